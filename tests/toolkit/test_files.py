"""`list_directory` and `read_file`: what they tell, and that nothing leads out of their directory."""

from __future__ import annotations

import json
import os
import socket
import tempfile
from pathlib import Path

import pytest

from treadle import Agent, ToolError
from treadle.testing import ScriptedModel, call
from treadle.toolkit import read_only_tools
from treadle.toolkit._confined import MAX_DEPTH
from treadle.toolkit._text import MAX_SCAN_BYTES, MAX_TEXT_BYTES

SECRET = "the key of the house"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "secret.txt").write_text(SECRET)
    root = tmp_path / "root"
    (root / "src").mkdir(parents=True)
    (root / "README.md").write_text("# Title\n\nText.\n")
    (root / "src" / "main.py").write_text("print('hi')\n")
    return root


class Files:
    def __init__(self, root: Path) -> None:
        self._list, self._read = read_only_tools(root)

    async def list(self, path: str | None = None) -> str:
        return await self._list.invoke("{}" if path is None else json.dumps({"path": path}))

    async def read(self, path: str, **lines: int) -> str:
        return await self._read.invoke(json.dumps({"path": path, **lines}))

    async def why_not(self, path: str) -> str:
        with pytest.raises(ToolError) as caught:
            await self.read(path)
        assert SECRET not in str(caught.value)
        return str(caught.value)


@pytest.fixture
def files(root: Path) -> Files:
    return Files(root)


# What is told


async def test_a_listing_is_sorted_and_tells_directories_sizes_and_links(root: Path, files: Files):
    (root / "link").symlink_to("README.md")
    (root / "Zed").write_bytes(b"123")
    assert await files.list() == "README.md\t15 bytes\nZed\t3 bytes\nlink\tlink to README.md\nsrc/"
    assert await files.list("src/") == "main.py\t12 bytes"


async def test_an_empty_directory_and_an_empty_file_say_that_they_are_empty(root: Path, files: Files):
    (root / "empty").mkdir()
    (root / "nothing.txt").touch()
    assert await files.list("empty") == "(empty directory)"
    assert await files.read("nothing.txt") == "(empty file)"


async def test_a_large_directory_is_cut_and_says_so(root: Path, files: Files):
    for number in range(1200):
        (root / "src" / f"{number:04}").touch()
    lines = (await files.list("src")).splitlines()
    assert lines[0] == "0000\t0 bytes"
    assert lines[-2:] == ["0999\t0 bytes", "[the first 1000 of 1201 entries, by name]"]


async def test_names_with_control_characters_can_be_told_apart(root: Path, files: Files):
    for name in ("a\nb", "a\\nb", "a\x1b[31m", "-n", "[a]b.txt", "a\u202eb", " a", "a"):
        (root / "src" / name).touch()
    shown = [line.partition("\t")[0] for line in (await files.list("src")).splitlines()]
    assert len(set(shown)) == len(shown) == 9
    assert all(name.isprintable() for name in shown)
    assert "'a\\nb'" in shown and "-n" in shown and "[a]b.txt" in shown


async def test_a_name_with_a_line_end_is_read_by_its_own_name(root: Path, files: Files):
    (root / "a\nb").write_text("inside")
    assert await files.read("a\nb") == "inside"


async def test_a_whole_file_comes_byte_for_byte(root: Path, files: Files):
    (root / "mixed.txt").write_bytes("a\r\nb\nümlaut".encode())
    assert await files.read("mixed.txt") == "a\r\nb\nümlaut"


async def test_a_byte_order_mark_is_no_text(root: Path, files: Files):
    (root / "bom.txt").write_bytes(b"\xef\xbb\xbfhello\n")
    (root / "only.txt").write_bytes(b"\xef\xbb\xbf")
    assert await files.read("bom.txt") == "hello\n"
    assert await files.read("only.txt") == "(empty file)"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ({"start_line": 2}, "two\nthree\n[lines 2-3 of 3]"),
        ({"start_line": 2, "end_line": 2}, "two\n[lines 2-2 of 3]"),
        ({"end_line": 1}, "one\n[lines 1-1 of 3]"),
        ({"end_line": 9}, "one\ntwo\nthree"),
    ],
)
async def test_some_lines_come_with_a_note_of_what_there_is(root: Path, files: Files, lines, expected):
    (root / "three.txt").write_text("one\ntwo\nthree")
    assert await files.read("three.txt", **lines) == expected


@pytest.mark.parametrize("lines", [{"start_line": 0}, {"start_line": 3, "end_line": 2}, {"start_line": 4}])
async def test_lines_that_cannot_be_are_refused(root: Path, files: Files, lines):
    (root / "three.txt").write_text("one\ntwo\nthree\n")
    with pytest.raises(ToolError, match=r"start_line is at least 1|ends before line 4; its lines: 3"):
        await files.read("three.txt", **lines)


async def test_a_long_file_is_cut_at_a_line_end_and_says_how_to_go_on(root: Path, files: Files):
    (root / "long.txt").write_text("".join(f"line {number}\n" for number in range(1, 20_001)))
    text, seen = "", 0
    while (piece := await files.read("long.txt", start_line=seen + 1)) and "go on with start_line=" in piece:
        assert len(piece.encode()) < MAX_TEXT_BYTES + 200
        body, _, note = piece.rpartition("[")
        text += body
        seen = int(note.partition("start_line=")[2].rstrip("]")) - 1
    text += piece.rpartition("[")[0]
    assert text == (root / "long.txt").read_text()


async def test_one_endless_line_is_cut_inside_but_never_inside_a_character(root: Path, files: Files):
    (root / "line.txt").write_text("x" + "é" * MAX_TEXT_BYTES + "\nnext\n")
    piece = await files.read("line.txt")
    assert "\ufffd" not in piece
    assert piece.endswith(f"[lines 1-1 of 2; line 1 is cut after {MAX_TEXT_BYTES} bytes; go on with start_line=2]")
    assert await files.read("line.txt", start_line=2) == "next\n[lines 2-2 of 2]"


async def test_a_huge_file_is_never_read_to_its_end(root: Path, files: Files):
    with (root / "huge.txt").open("wb") as file:
        file.write(b"first\n" * 2000)
        file.truncate(MAX_SCAN_BYTES * 100)
    piece = await files.read("huge.txt", end_line=1)
    assert piece.startswith("first\n[lines 1-1 of more than 2001]")


async def test_a_binary_file_is_refused_and_bad_utf8_is_marked(root: Path, files: Files):
    (root / "image.png").write_bytes(b"\x89PNG\0\0")
    (root / "utf16.txt").write_bytes("hello".encode("utf-16"))
    (root / "latin.txt").write_bytes(b"caf\xe9\n")
    assert "binary" in await files.why_not("image.png")
    assert "encoding" in await files.why_not("utf16.txt")
    assert await files.read("latin.txt") == "caf\ufffd\n[not valid UTF-8: what could not be read is shown as \ufffd]"


async def test_a_missing_file_and_the_wrong_tool_are_told_in_a_way_to_act_on(files: Files):
    assert "list_directory shows what there is" in await files.why_not("nothing.md")
    assert "list_directory shows what is in it" in await files.why_not("src")
    assert "not a directory" in await files.why_not("README.md/x")
    with pytest.raises(ToolError, match="read_file shows what is in it"):
        await files.list("README.md")


# What stays inside


@pytest.mark.parametrize(
    "path",
    [
        "../secret.txt",
        "src/../../secret.txt",
        "./.././secret.txt",
        "/etc/passwd",
        "/proc/self/root/etc/passwd",
        "//etc/passwd",
    ],
)
async def test_a_path_that_leads_out_is_refused(files: Files, path):
    assert "leads out of the working directory" in await files.why_not(path)


async def test_paths_that_go_up_and_stay_inside_are_fine(root: Path, files: Files):
    assert await files.read("src/../README.md") == await files.read("README.md")
    assert await files.read(f"{root}/src/main.py") == "print('hi')\n"
    assert await files.read(f"{root}/src/../README.md") == await files.read("README.md")


async def test_an_absolute_path_that_only_begins_like_the_root_is_outside(root: Path, files: Files):
    Path(f"{root}-other").mkdir()
    Path(f"{root}-other", "secret.txt").write_text(SECRET)
    assert "leads out" in await files.why_not(f"{root}-other/secret.txt")
    assert "leads out" in await files.why_not(f"{root}/../secret.txt")


async def test_links_are_followed_only_inside(root: Path, files: Files):
    (root / "good").symlink_to("src/main.py")
    (root / "folder").symlink_to(root / "src")
    (root / "src" / "back").symlink_to("../README.md")
    (root / "chain").symlink_to("folder/back")
    (root / "absolute").symlink_to("/etc/passwd")
    (root / "relative").symlink_to("../secret.txt")
    (root / "parent").symlink_to("..")
    assert await files.read("good") == await files.read("folder/main.py") == "print('hi')\n"
    assert await files.read("chain") == await files.read("README.md")
    assert await files.list("folder/") == "back\tlink to ../README.md\nmain.py\t12 bytes"
    for path in ("absolute", "relative", "parent/secret.txt"):
        assert "leads out" in await files.why_not(path)
    with pytest.raises(ToolError, match="leads out"):
        await files.list("parent")


async def test_dangling_and_circular_links_are_errors(root: Path, files: Files):
    (root / "dangling").symlink_to("nowhere")
    (root / "a").symlink_to("b")
    (root / "b").symlink_to("a")
    assert "no such file" in await files.why_not("dangling")
    assert "circle" in await files.why_not("a")


async def test_going_up_behind_a_linked_folder_is_meant_as_the_system_means_it(root: Path, files: Files):
    (root / "deep" / "er").mkdir(parents=True)
    (root / "deep" / "file").write_text("deep")
    (root / "jump").symlink_to("deep/er")
    assert await files.read("jump/../file") == "deep"


async def test_pipes_sockets_and_devices_are_refused_without_waiting(root: Path, files: Files):
    os.mkfifo(root / "pipe")
    assert "is a pipe" in await files.why_not("pipe")
    with tempfile.TemporaryDirectory() as short, socket.socket(socket.AF_UNIX) as listener:  # socket paths are short
        listener.bind(f"{short}/socket")
        assert "is a socket" in await Files(Path(short)).why_not("socket")
    assert "is a device" in await Files(Path("/dev")).why_not("zero")
    assert "pipe\tpipe" in (await files.list()).splitlines()


async def test_names_that_no_system_takes_are_refused(files: Files):
    for path in ("a\0b", "x" * 300, "x/" * 3000, "\ud800"):
        assert await files.why_not(path)


async def test_a_path_too_deep_is_refused_before_descriptors_run_out(root: Path, files: Files):
    deep = "/".join("d" * (MAX_DEPTH + 1))
    (root / deep).mkdir(parents=True)
    assert "directories deep" in await files.why_not(f"{deep}/x")


async def test_no_descriptor_is_left_open(root: Path, files: Files):
    before = len(list(Path("/dev/fd").iterdir()))
    for path in ("README.md", "src", "nothing", "../secret.txt", "src/main.py/x"):
        try:
            await files.read(path)
        except ToolError:
            continue
    await files.list("src")
    assert len(list(Path("/dev/fd").iterdir())) == before


async def test_in_a_run_a_failure_is_an_error_result_that_the_model_reads(root: Path):
    model = ScriptedModel(call("read_file", path="../secret.txt"), call("list_directory"), "done")
    result = await Agent(model, tools=read_only_tools(root)).run("go")
    refused, listed = (step.results[0] for step in result.steps[:2])
    assert refused.is_error and "leads out" in refused.content
    assert not listed.is_error and "README.md" in listed.content


def test_both_tools_only_read(root: Path):
    for tool in read_only_tools(root):
        assert (tool.effect, tool.idempotent) == ("read", True)
        assert tool.description and "path" in tool.input_schema["properties"]
