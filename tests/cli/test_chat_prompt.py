"""What stands behind the prompt: pastes, history, files, and the messages that are made of lines."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path

import pytest
from prompt_toolkit.keys import Keys

from treadle import FilePart, TextPart
from treadle.cli.chat.drafts import message_of
from treadle.cli.chat.files import MAX_SHOWN, Files, ranked
from treadle.cli.chat.history import MAX_FILE_BYTES, HistoryFile
from treadle.cli.chat.pastes import Pastes
from treadle.cli.chat.reading import PasteParser
from treadle.toolkit import Workspace

PNG = b"\x89PNG\r\n\x1a\n"
LONG = "\n".join(f"row {number}" for number in range(20))


def test_a_long_text_is_one_character_and_whole_again() -> None:
    pastes = Pastes()
    folded = f"before {pastes.fold(LONG)} after {pastes.fold('z' * 2000)}"
    assert len(folded) == len("before  after ") + 2
    assert pastes.whole(folded) == f"before {LONG} after {'z' * 2000}"
    assert pastes.shown(folded) == "before [pasted 20 lines] after [pasted 2,000 characters]"


def test_the_same_text_is_kept_once_and_a_short_one_not_at_all() -> None:
    pastes = Pastes()
    assert pastes.fold(LONG) == pastes.fold(LONG.replace("\n", "\r\n"))
    assert pastes.fold("a\rb\r\nc") == "a\nb\nc"


def test_a_text_cannot_pretend_to_be_an_earlier_paste() -> None:
    pastes = Pastes()
    sign = pastes.fold(LONG)
    assert pastes.whole(pastes.fold(f"say {sign}")) == "say \ufffd"
    assert pastes.whole(chr(0xF0000 + 7)) == "\ufffd" and pastes.label("x") is None


def test_a_named_text_is_shown_by_its_name() -> None:
    pastes = Pastes()
    sign = pastes.fold("short", "skill weave")
    assert pastes.shown(sign) == "[skill weave]" and pastes.whole(sign) == "short"


def test_history_keeps_lines_across_clients_and_for_nobody_else(tmp_path: Path) -> None:
    path = tmp_path / "state" / "history"
    HistoryFile(path).add("first\nin two lines")
    HistoryFile(path).add("zwölf \x1b[2J \ud800")
    assert HistoryFile(path).read() == ["first\nin two lines", "zwölf \x1b[2J \ud800"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_history_survives_a_torn_line_and_strange_ones(tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.write_bytes(b'"good"\n{}\n\x00\xff\n"torn')
    HistoryFile(path).add("next")
    assert HistoryFile(path).read() == ["good", "next"]


def test_history_forgets_the_oldest_and_takes_nothing_that_is_too_long(tmp_path: Path) -> None:
    history = HistoryFile(tmp_path / "history")
    history.add("x" * (1 << 20))
    assert history.read() == []
    for number in range(30):
        history.add(f"{number} {'x' * 200_000}")
    assert (tmp_path / "history").stat().st_size <= MAX_FILE_BYTES
    kept = history.read()
    assert kept[-1].startswith("29 ") and not kept[0].startswith("0 ")


def test_history_that_cannot_be_written_is_no_trouble(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    history = HistoryFile(tmp_path / "file" / "history")
    history.add("line")
    assert history.read() == []


def test_names_are_ranked_by_how_close_the_letters_are() -> None:
    names = ["src/loom/weave.py", "wide/eaves/x.py", "weave", "other.txt", "WEAVE.md"]
    assert ranked("weave", names) == ["weave", "WEAVE.md", "src/loom/weave.py", "wide/eaves/x.py"]
    assert ranked("zz", names) == [] and set(ranked("", names)) == set(names)


def test_ranking_does_not_take_long_for_hostile_names() -> None:
    assert ranked("a" * 30 + "b", ["a" * 4000] * 50) == []


@pytest.fixture
def files(tmp_path: Path) -> Files:
    find = next(tool for tool in Workspace(tmp_path).read_only() if tool.name == "find_files")
    return Files(find)


async def test_files_are_found_without_what_is_ignored(tmp_path: Path, files: Files) -> None:
    (tmp_path / ".gitignore").write_text("*.log\n")
    for name in ("a.py", "b.log", "[id].tsx", "sub/deep.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    found = await files.matching("")
    assert {"a.py", "[id].tsx", "sub/", "sub/deep.py"} <= set(found) and "b.log" not in found
    assert await files.matching("dpy") == ["sub/deep.py"]
    assert await files.matching("nothing") == []


async def test_of_very_many_files_the_named_one_is_found(tmp_path: Path, files: Files) -> None:
    for number in range(1_100):
        (tmp_path / f"a{number:04}").touch()
    (tmp_path / "zebra.txt").touch()
    assert len(await files.matching("")) == MAX_SHOWN
    assert await files.matching("zeb") == ["zebra.txt"]
    assert "zebra.txt" not in (await files.matching("a"))[:5]


async def test_files_are_kept_for_a_while(tmp_path: Path) -> None:
    now = 0.0
    find = next(tool for tool in Workspace(tmp_path).read_only() if tool.name == "find_files")
    files = Files(find, clock=lambda: now)
    assert await files.matching("new") == []
    (tmp_path / "new.py").touch()
    assert await files.matching("new") == []
    now = 11.0
    assert await files.matching("new") == ["new.py"]


def test_files_that_are_named_go_along(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(PNG)
    (tmp_path / "b c.png").write_bytes(PNG)
    (tmp_path / "notes.txt").write_text("text")
    dropped = str(tmp_path / "b c.png").replace(" ", "\\ ")
    for text in (
        f"see @a.png, and {dropped}",
        f"@\"a.png\" and '{tmp_path}/b c.png'",
        f"@a.png file://{tmp_path}/b%20c.png",
    ):
        made = message_of(text, root=tmp_path)
        *attached, last = made.parts
        assert [(part.media_type, part.name) for part in attached if isinstance(part, FilePart)] == [
            ("image/png", "a.png"),
            ("image/png", "b c.png"),
        ]
        assert last == TextPart(text) and made.notes == ["along with it: a.png, b c.png"]
    assert message_of("@notes.txt @missing.png mail@a.png", root=tmp_path).parts == [
        TextPart("@notes.txt @missing.png mail@a.png")
    ]


def test_a_model_that_takes_no_files_gets_none_and_the_person_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(PNG)
    made = message_of("see @a.png", root=tmp_path, files=False)
    assert made.parts == [TextPart("see @a.png")] and made.notes == ["a.png stays behind: this model takes no files"]


def test_a_file_that_cannot_go_along_is_told(tmp_path: Path) -> None:
    with (tmp_path / "big.png").open("wb") as file:
        file.truncate(21 << 20)
    made = message_of("see @big.png", root=tmp_path)
    assert len(made.parts) == 1 and "larger than" in made.notes[0] and not made.notes[0].startswith("--file")


def test_a_link_that_leads_out_of_the_root_takes_nothing_along(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "own.png").write_bytes(PNG)
    (root / "link.png").symlink_to(tmp_path / "own.png")
    made = message_of("see @link.png", root=root)
    assert len(made.parts) == 1 and made.notes == [
        "link.png stays behind: it is a link to somewhere else; give its own path"
    ]
    assert len(message_of("see @../own.png", root=root).parts) == 2


def test_a_pipe_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "p.png")
    assert message_of("see @p.png", root=tmp_path).parts == [TextPart("see @p.png")]


def test_what_commands_printed_stands_before_the_text(tmp_path: Path) -> None:
    made = message_of("why?", root=tmp_path, outputs=["$ make\nfailed"])
    assert made.parts == [TextPart("$ make\nfailed"), TextPart("why?")]
    assert made.notes == ["along with it: the output of 1 command"]


def test_what_only_a_paste_or_a_text_of_a_command_names_stays_behind(tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        (tmp_path / name).write_bytes(PNG)
    pastes = Pastes()
    for line in (
        f"{pastes.fold('see @b.png' + chr(10) * 20)} and @a.png",
        pastes.fold("look at @b.png and @a.png", "/look @a.png"),
    ):
        made = message_of(pastes.whole(line), root=tmp_path, typed=pastes.typed(line))
        assert [part.name for part in made.parts if isinstance(part, FilePart)] == ["a.png"]
        assert "@b.png" in made.parts[-1].text


def test_half_characters_are_marked_when_they_come_in(tmp_path: Path) -> None:
    assert Pastes().fold("a\ud800b") == "a\ufffdb"


def test_a_paste_comes_in_any_pieces_and_a_lone_ctrl_c_ends_one_that_has_no_end() -> None:
    keys: list[tuple[object, str]] = []
    parser = PasteParser(lambda press: keys.append((press.key, press.data)))
    for char in "\x1b[200~one\x03\x1b[20\x1b[201~x":
        parser.feed(char if char != "\x03" else "\x03 ")
    assert keys == [(Keys.BracketedPaste, "one\x03 \x1b[20"), ("x", "x")]
    keys.clear()
    parser.feed("\x1b[200~lost")
    parser.feed("\x03")
    parser.feed("y")
    assert keys == [(Keys.BracketedPaste, "lost"), ("y", "y")]


def test_a_huge_paste_in_small_pieces_takes_no_time() -> None:
    keys: list[str] = []
    parser = PasteParser(lambda press: keys.append(press.data))
    parser.feed("\x1b[200~")
    for _ in range(10_000):
        parser.feed("x" * 1024)
    parser.feed("\x1b[201~")
    assert len(keys[0]) == 10_240_000


async def test_looking_for_files_does_not_hold_the_prompt_up(tmp_path: Path, files: Files) -> None:
    looking = asyncio.ensure_future(files.matching("x"))
    await asyncio.sleep(0)
    assert not looking.done()
    await looking
