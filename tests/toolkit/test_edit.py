"""`edit_file` and `write_file`: what is not named stays, byte for byte, and what cannot be done is told in a way to act on."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.desk import Desk, snapshot
from treadle import ToolError
from treadle.toolkit._edit import edited
from treadle.toolkit._encoding import Encoding, encoding_of_all

UTF8 = Encoding("utf-8")


@pytest.fixture
def file(folder: Path) -> Path:
    return folder / "file.txt"


async def edit(desk: Desk, *edits: tuple[str, str]) -> str:
    pairs = [{"old_text": old, "new_text": new} for old, new in edits]
    return await desk("edit_file", path="file.txt", edits=pairs)


async def why_not(desk: Desk, *edits: tuple[str, str]) -> str:
    before = snapshot(desk.folder)
    with pytest.raises(ToolError) as caught:
        await edit(desk, *edits)
    assert snapshot(desk.folder) == before
    return str(caught.value)


# Line ends, marks and encodings


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        (b"a=1\r\nb=2\r\nc=3\r\n", "b=2", "b=2\nb=3", b"a=1\r\nb=2\r\nb=3\r\nc=3\r\n"),
        (b"a=1\r\nb=2\r\nc=3\r\n", "a=1\nb=2\n", "a=1\n", b"a=1\r\nc=3\r\n"),
        (b"a=1\r\nb=2\r\nc=3\r\n", "b=2\r\n", "x\r\ny\r\n", b"a=1\r\nx\r\ny\r\nc=3\r\n"),
        (b"a=1\nb=2\n", "b=2", "x\r\ny", b"a=1\nx\ny\n"),
        (b"a\r\nb\nc\r\n", "b", "b\nB", b"a\r\nb\nB\nc\r\n"),
        (b"a\r\nb\nc\r\n", "a\nb\nc", "a\nB\nc", b"a\r\nB\nc\r\n"),
        (b"a\r\nb\nc", "c", "c\nd", b"a\r\nb\nc\nd"),
        (b"p 1%\rp 2%\rdone\n", "done", "ready", b"p 1%\rp 2%\rready\n"),
        (b"a\rb\rc", "b", "x\ny", b"a\rx\ny\rc"),
        (b"one line", "line", "x\r\ny", b"one x\r\ny"),
        (b"no end", "end", "end\n", b"no end\n"),
        (b"an end\n", "end\n", "end", b"an end"),
        (b"\xef\xbb\xbfhello\n\xc3\xa9\n", "hello", "bye", b"\xef\xbb\xbfbye\n\xc3\xa9\n"),
        (b"\xef\xbb\xbfhello\n", "hello\n", "", b"\xef\xbb\xbf"),
        ("\ufeffgr\u00fcn\r\nb\r\n".encode("utf-16-le"), "b", "\u20ac\nx", "\ufeffgr\u00fcn\r\n\u20ac\r\nx\r\n".encode("utf-16-le")),
        ("\ufeffa\nb".encode("utf-32-be"), "b", "\u20ac", "\ufeffa\n\u20ac".encode("utf-32-be")),
        (b"caf\xe9 = 1\nx = 2\n", "x = 2", "x = 3", b"caf\xe9 = 1\nx = 3\n"),
        (b"caf\xe9 = 1\n", "caf\u00e9 = 1", "my caf\u00e9 = 2", b"my caf\xe9 = 2\n"),
        (b"x\r\r\ny\r\n", "y", "z", b"x\r\r\nz\r\n"),
    ],
)  # fmt: skip
async def test_only_the_named_bytes_change(desk: Desk, file: Path, before, old, new, after):
    file.write_bytes(before)
    await edit(desk, (old, new))
    assert file.read_bytes() == after


@pytest.mark.parametrize(
    "text", ["$& $1 $$ \\1 \\g<0> new\\table {0} %s", "tab\there", "\u2028 separator", "quote ' \" ` end"]
)
async def test_the_new_text_is_taken_literally(desk: Desk, file: Path, text):
    file.write_text("begin a.b(c)*[ end\naxbc\n")
    await edit(desk, ("a.b(c)*[", text))
    assert file.read_text() == f"begin {text} end\naxbc\n"
    await edit(desk, (text, "a.b(c)*["))
    assert file.read_text() == "begin a.b(c)*[ end\naxbc\n"


async def test_what_an_unknown_encoding_cannot_take_is_refused(desk: Desk, file: Path):
    file.write_bytes(b"caf\xe9 = 1\n")
    assert "can only be ASCII" in await why_not(desk, ("= 1", "= \u20ac"))
    assert "can only be ASCII" in await why_not(desk, ("= 1", "= \xfc"))


async def test_what_could_not_be_written_back_is_refused(desk: Desk, file: Path):
    file.write_bytes("\ufeffab".encode("utf-16-le") + b"\x00\xd8")
    assert "could not be kept" in await why_not(desk, ("a", "b"))
    file.write_bytes(b"\x7fELF\0\0\0a")
    assert "binary" in await why_not(desk, ("a", "b"))


# Which place is meant


async def test_edits_are_refused_that_say_nothing(desk: Desk, file: Path):
    file.write_text("x = 1\n")
    assert "old_text is empty" in await why_not(desk, ("", "y"))
    assert "the same" in await why_not(desk, ("x", "x"))
    assert "edits is empty" in await why_not(desk)


async def test_a_text_that_occurs_more_than_once_is_refused_with_the_lines(desk: Desk, file: Path):
    file.write_text("x = 1\nx = 1\nx = 1\ny\nx = 2\nx = 1\n")
    told = await why_not(desk, ("x = 1\nx = 1\n", "z\n"))
    assert "occurs 2 times, beginning at lines 1, 2; add lines" in told
    assert "occurs 4 times, beginning at lines 1, 2, 3, 6" in await why_not(desk, ("x = 1", "z"))
    await edit(desk, ("x = 2\nx = 1", "z"))
    assert file.read_text() == "x = 1\nx = 1\nx = 1\ny\nz\n"


async def test_several_edits_are_all_made_or_none(desk: Desk, file: Path):
    file.write_text("one\ntwo\nthree\n")
    told = await why_not(desk, ("one", "1"), ("four", "4"))
    assert told.startswith("file.txt: edit 2 of 2: old_text was not found")
    assert "same place, at line 2" in await why_not(desk, ("one\ntwo", "x"), ("two", "y"))
    assert "same place" in await why_not(desk, ("two", "x"), ("two", "y"))
    assert await edit(desk, ("three", "two"), ("two", "three"), ("one", "")) == "Edited file.txt at lines 1, 2, 3."
    assert file.read_text() == "\nthree\ntwo\n"


@pytest.mark.parametrize(
    ("text", "old", "hint"),
    [
        ("cafe\u0301 = 1\n", "caf\u00e9 = 1", "U+0065 LATIN SMALL LETTER E + U+0301 COMBINING ACUTE ACCENT where old_text has U+00E9"),
        ("a\u00a0b\n", "a b", "white space: the file has U+00A0 NO-BREAK SPACE where old_text has a space"),
        ("say \u201chi\u201d\n", 'say "hi"', "the file has U+201C LEFT DOUBLE QUOTATION MARK where old_text has U+0022"),
        ("wait\u2026\n", "wait...", "the file has U+2026 HORIZONTAL ELLIPSIS where"),
        ("if x:\n    beta(2)\n", "if x:\n  beta(2)", "line 1 there is text that differs only in white space"),
        ("if x:\n\tbeta(2)\n", "if x:\n    beta(2)", "the file has a tab where old_text has a space"),
        ("    beta( 2 )\n", "beta(2)", "must be in the file character for character"),
        ("Title\n", "title", "upper and lower case: the file has 'T' where old_text has 't'"),
        ("beta(2)\n", "beta(9)", "must be in the file character for character"),
        ("one\ntwo\nthree\n", "one\ntwo\nfour", "From line 1 on it agrees, but line 3 is 'three', not 'four'"),
        ("one\ntwo", "one\ntwo\nthree", "but line 3 is missing: the file ends, not 'three'"),
    ],
)  # fmt: skip
async def test_a_text_that_is_not_there_is_refused_with_what_comes_near(desk: Desk, file: Path, text, old, hint):
    file.write_text(text)
    told = await why_not(desk, (old, "new"))
    assert "old_text was not found" in told and hint in told


async def test_a_search_for_what_comes_near_ends_soon_in_a_large_file(desk: Desk, file: Path):
    file.write_text("x" * 5_000_000)
    assert "not found" in await why_not(desk, ("y" * 1000, "z"))


async def test_texts_that_nearly_match_everywhere_are_refused_soon(desk: Desk, file: Path):
    file.write_text("a\n" * 400_000 + "b" * 8_000_000)
    async with asyncio.timeout(30):
        assert "occurs more than 1000 times" in await why_not(desk, ("b" * 20_000, "z"))
        file.write_text("a\n" * 400_000)
        assert "From line 1 on it agrees, but line 5001 is 'a'" in await why_not(desk, ("a\n" * 5_000 + "c", "z"))


# What stays of the file


async def test_mode_and_links_stay(desk: Desk, folder: Path, file: Path):
    file.write_text("#!/bin/sh\n")
    file.chmod(0o755)
    (folder / "link.txt").symlink_to("file.txt")
    await desk("edit_file", path="link.txt", edits=[{"old_text": "sh", "new_text": "bash"}])
    await desk("write_file", path="link.txt", content="#!/bin/dash\n")
    assert (folder / "link.txt").is_symlink()
    assert file.read_text() == "#!/bin/dash\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o755


async def test_a_read_only_file_is_refused(desk: Desk, folder: Path, file: Path):
    file.write_text("x")
    file.chmod(0o444)
    before = snapshot(folder)
    assert "is read-only" in await why_not(desk, ("x", "y"))
    assert "is read-only" in await desk.refusal("write_file", path="file.txt", content="y")
    assert snapshot(folder) == before


async def test_a_file_too_large_to_edit_is_refused(desk: Desk, file: Path):
    with file.open("wb") as large:
        large.write(b"x\n")
        large.truncate(17 << 20)
    with pytest.raises(ToolError, match="larger than 16 MiB"):
        await edit(desk, ("x", "y"))


# Writing whole files


async def test_a_file_is_written_with_the_directories_that_it_needs(desk: Desk, folder: Path):
    assert await desk("write_file", path="a/b/c.txt", content="ä\r\n") == "Made a/b/c.txt: 4 bytes."
    assert (folder / "a" / "b" / "c.txt").read_bytes() == "ä\r\n".encode()
    assert await desk("write_file", path=f"{folder}/a/b/c.txt", content="") == f"Replaced {folder}/a/b/c.txt: 0 bytes."
    assert (folder / "a" / "b" / "c.txt").read_bytes() == b""


@pytest.mark.parametrize("codec", ["utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("content", ["new\n", "\ufeffnew\n"])
async def test_the_mark_of_a_file_stays_once_when_all_of_it_is_replaced(desk: Desk, file: Path, codec, content):
    file.write_bytes("old\n".encode(codec))
    await desk("write_file", path="file.txt", content=content)
    assert file.read_bytes() == "new\n".encode(codec)


async def test_what_is_no_text_may_be_replaced_whole(desk: Desk, file: Path):
    file.write_bytes(b"\0\1\2")
    await desk("write_file", path="file.txt", content="text")
    assert file.read_text() == "text"


async def test_a_directory_is_not_overwritten(desk: Desk, folder: Path):
    before = snapshot(folder)
    for path in ("src", ".", "", "src/", "new/"):
        await desk.refusal("write_file", path=path, content="x")
    assert snapshot(folder) == before


# Any text and any edit

TEXTS = st.text(st.sampled_from("ab \t\n\ré€\u00a0😀\ufeff"), max_size=40) | st.text(max_size=40)
ENCODINGS = st.sampled_from(
    [UTF8, Encoding("utf-8", b"\xef\xbb\xbf"), Encoding("utf-16-le", b"\xff\xfe"), Encoding("utf-16-be", b"\xfe\xff")]
)


@given(before=TEXTS, old=TEXTS, after=TEXTS, new=TEXTS, encoding=ENCODINGS)
def test_what_an_edit_does_not_name_is_the_same_afterwards(before, old, after, new, encoding):
    text = before + old + after
    try:
        result, [change] = edited(text, [(old, new)], encoding)
    except ToolError:
        return
    # The one place that was found is the one that was meant, or one that reads the same with plain line ends.
    head, tail = encoding.encode(text[: change.start]), text[change.end :].encode(encoding.codec)
    data = encoding.encode(result)
    assert data.startswith(head) and data.endswith(tail) and len(data) >= len(head) + len(tail)
    assert encoding.encode(text).startswith(head) and encoding.encode(text).endswith(tail)
    assert text[change.start : change.end].replace("\r\n", "\n") in old.replace("\r\n", "\n")
    flat = text.replace("\r\n", "\n")
    assert flat.count(old.replace("\r\n", "\n")) == 1
    if "\r" not in text + new:
        assert result == text.replace(old, new)


@given(st.binary(max_size=60), TEXTS)
def test_a_file_that_can_be_edited_is_decoded_without_loss(data, text):
    for whole in (data, text.encode("utf-8", "ignore"), b"\xff\xfe" + text.encode("utf-16-le", "ignore")):
        encoding = encoding_of_all(whole)
        if encoding is None:
            continue
        try:
            decoded = encoding.decode(whole)
        except UnicodeError:
            continue
        assert encoding.encode(decoded) == whole


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(
    lines=st.lists(st.sampled_from(["alpha", "beta", "gamma é", "", "  delta"]), min_size=1, max_size=8),
    ends=st.lists(st.sampled_from(["\n", "\r\n", "\r"]), min_size=8, max_size=8),
    mark=st.sampled_from([b"", b"\xef\xbb\xbf"]),
    new=st.sampled_from(["", "x", "x\ny", "$1 \\1\n"]),
)
def test_on_disk_the_rest_of_a_file_is_the_same_afterwards(tmp_path_factory, lines, ends, mark, new):
    folder = tmp_path_factory.mktemp("property")
    before = "".join(line + end for line, end in zip(lines, ends, strict=False)).encode()
    after = "".join(end + line for line, end in zip(lines, reversed(ends), strict=False)).encode()
    (folder / "file.txt").write_bytes(mark + before + b"NEEDLE" + after)
    asyncio.run(edit(Desk(folder), ("NEEDLE", new)))
    data = (folder / "file.txt").read_bytes()
    assert data.startswith(mark + before) and data.endswith(after)
    middle = data[len(mark + before) : len(data) - len(after)]
    assert middle.replace(b"\r\n", b"\n") == new.encode()
