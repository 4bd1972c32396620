"""`list_directory` and `read_file`: what they tell, and that nothing leads out of their directory."""

from __future__ import annotations

import base64
import gc
import os
import socket
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest

from support.desk import SECRET, Desk
from treadle import Agent, ToolError
from treadle.testing import ScriptedModel, call
from treadle.toolkit import Workspace
from treadle.toolkit._text import MAX_COUNT_BYTES, MAX_TEXT_BYTES
from treadle.toolkit._walk import MAX_DEPTH


class Files:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def list(self, path: str | None = None) -> str:
        return await self._desk("list_directory", **({} if path is None else {"path": path}))

    async def read(self, path: str, **lines: int) -> str:
        return await self._desk("read_file", path=path, **lines)

    async def why_not(self, path: str) -> str:
        return await self._desk.refusal("read_file", path=path)


@pytest.fixture
def files(desk: Desk) -> Files:
    return Files(desk)


# What is told


async def test_a_listing_is_sorted_and_tells_directories_sizes_and_links(folder: Path, files: Files):
    (folder / "link").symlink_to("README.md")
    (folder / "Zed").write_bytes(b"123")
    assert await files.list() == "README.md\t15 bytes\nZed\t3 bytes\nlink\tlink to README.md\nsrc/"
    assert await files.list("src/") == "main.py\t12 bytes"


async def test_an_empty_directory_and_an_empty_file_say_that_they_are_empty(folder: Path, files: Files):
    (folder / "empty").mkdir()
    (folder / "nothing.txt").touch()
    assert await files.list("empty") == "(empty directory)"
    assert await files.read("nothing.txt") == "(empty file)"


async def test_a_large_directory_is_cut_and_says_so(folder: Path, files: Files):
    for number in range(1200):
        (folder / "src" / f"{number:04}").touch()
    lines = (await files.list("src")).splitlines()
    assert lines[0] == "0000\t0 bytes"
    assert lines[-2:] == ["0999\t0 bytes", "[the first 1000 of 1201 entries, by name]"]


async def test_names_with_control_characters_can_be_told_apart(folder: Path, files: Files):
    for name in ("a\nb", "a\\nb", "a\x1b[31m", "-n", "[a]b.txt", "a\u202eb", " a", "a"):
        (folder / "src" / name).touch()
    shown = [line.partition("\t")[0] for line in (await files.list("src")).splitlines()]
    assert len(set(shown)) == len(shown) == 9
    assert all(name.isprintable() for name in shown)
    assert "'a\\nb'" in shown and "-n" in shown and "[a]b.txt" in shown


async def test_a_name_with_a_line_end_is_read_by_its_own_name(folder: Path, files: Files):
    (folder / "a\nb").write_text("inside")
    assert await files.read("a\nb") == "inside"


async def test_a_whole_file_comes_byte_for_byte(folder: Path, files: Files):
    (folder / "mixed.txt").write_bytes("a\r\nb\nümlaut".encode())
    assert await files.read("mixed.txt") == "a\r\nb\nümlaut"


async def test_a_byte_order_mark_is_no_text(folder: Path, files: Files):
    (folder / "bom.txt").write_bytes(b"\xef\xbb\xbfhello\n")
    (folder / "only.txt").write_bytes(b"\xef\xbb\xbf")
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
async def test_some_lines_come_with_a_note_of_what_there_is(folder: Path, files: Files, lines, expected):
    (folder / "three.txt").write_text("one\ntwo\nthree")
    assert await files.read("three.txt", **lines) == expected


@pytest.mark.parametrize("lines", [{"start_line": 0}, {"start_line": 3, "end_line": 2}, {"start_line": 4}])
async def test_lines_that_cannot_be_are_refused(folder: Path, files: Files, lines):
    (folder / "three.txt").write_text("one\ntwo\nthree\n")
    with pytest.raises(ToolError, match=r"start_line is at least 1|ends before line 4; its lines: 3"):
        await files.read("three.txt", **lines)


async def test_a_long_file_is_cut_at_a_line_end_and_says_how_to_go_on(folder: Path, files: Files):
    (folder / "long.txt").write_text("".join(f"line {number}\n" for number in range(1, 20_001)))
    text, seen = "", 0
    while (piece := await files.read("long.txt", start_line=seen + 1)) and "go on with start_line=" in piece:
        assert len(piece.encode()) < MAX_TEXT_BYTES + 200
        body, _, note = piece.rpartition("[")
        text += body
        seen = int(note.partition("start_line=")[2].rstrip("]")) - 1
    text += piece.rpartition("[")[0]
    assert text == (folder / "long.txt").read_text()


async def test_one_endless_line_is_cut_inside_but_never_inside_a_character(folder: Path, files: Files):
    (folder / "line.txt").write_text("x" + "é" * MAX_TEXT_BYTES + "\nnext\n")
    piece = await files.read("line.txt")
    assert "\ufffd" not in piece
    assert piece.endswith(f"[lines 1-1 of 2; line 1 is cut after {MAX_TEXT_BYTES} bytes; go on with start_line=2]")
    assert await files.read("line.txt", start_line=2) == "next\n[lines 2-2 of 2]"


async def test_a_huge_file_is_never_read_to_its_end(folder: Path, files: Files):
    with (folder / "huge.txt").open("wb") as file:
        file.write(b"first\n" * 2000)
        file.truncate(MAX_COUNT_BYTES * 100)
    piece = await files.read("huge.txt", end_line=1)
    assert piece.startswith("first\n[lines 1-1 of more than 2001]")


async def test_a_binary_file_is_refused_and_says_so(folder: Path, files: Files):
    (folder / "program").write_bytes(b"\x7fELF\0\0")
    (folder / "wide.txt").write_bytes("no mark".encode("utf-16-le"))
    assert "binary" in await files.why_not("program")
    assert "encoding" in await files.why_not("wide.txt")


@pytest.mark.parametrize("codec", ["utf-16", "utf-32", "utf-8-sig"])
async def test_the_mark_in_front_of_a_file_tells_its_encoding(folder: Path, files: Files, codec):
    text = "".join(f"Zeile {number}: grün\n" for number in range(30_000))
    (folder / "marked.txt").write_bytes(text.encode(codec))
    assert await files.read("marked.txt", start_line=29_999) == (
        "Zeile 29998: grün\nZeile 29999: grün\n[lines 29999-30000 of 30000]"
    )
    assert await files.read("marked.txt", end_line=1) == "Zeile 0: grün\n[lines 1-1 of 30000]"


async def test_what_is_no_utf8_is_shown_byte_by_byte_and_said_to_be(folder: Path, files: Files):
    (folder / "latin.txt").write_bytes(b"caf\xe9\n")
    (folder / "late.txt").write_bytes(b"plain\n" * 2000 + b"caf\xe9\n")
    assert await files.read("latin.txt") == (
        "café\n[not UTF-8: shown as Latin-1, so that what is not ASCII may look wrong]"
    )
    assert (await files.read("late.txt", start_line=2001)).endswith(
        "caf\ufffd\n[lines 2001-2001 of 2001; not valid UTF-8: what could not be read is shown as \ufffd]"
    )


async def test_lines_are_numbered_where_the_host_wants_it(folder: Path):
    desk = Desk(folder, number_lines=True)
    assert await desk("read_file", path="README.md", start_line=2) == ("     2\t\n     3\tText.\n[lines 2-3 of 3]")
    (folder / "short.txt").write_text("x\n" * 50_000)
    assert len((await desk("read_file", path="short.txt")).encode()) < 60_000


@pytest.mark.parametrize(
    ("media_type", "data"),
    [
        ("image/png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\0IEND\xaeB`\x82"),
        ("image/jpeg", b"\xff\xd8\xff\xe0\xff\xd9"),
        ("image/gif", b"GIF89a\1\0\1\0;"),
        ("image/webp", b"RIFF\x04\0\0\0WEBP"),
    ],
)
async def test_an_image_comes_as_a_file_that_a_model_can_see(folder: Path, desk: Desk, media_type, data):
    (folder / "picture").write_bytes(data)
    output = await desk.output("read_file", path="picture")
    [file] = output.files
    assert (file.media_type, base64.b64decode(file.data), file.name) == (media_type, data, "picture")
    assert output.content == f"picture is an image: {media_type}, {len(data)} bytes"


async def test_an_image_too_large_to_send_is_refused(folder: Path, desk: Desk):
    with (folder / "huge.png").open("wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n")
        file.truncate(6 << 20)
    assert "of more than 3.75 MiB" in await desk.refusal("read_file", path="huge.png")


@pytest.mark.parametrize(
    "data", [b"\x89PNG\r\n\x1a\n\0\0", b"\xff\xd8\xff\xe0\0", b"GIF89a is a format\n", b"RIFF\x64\0\0\0WEBPVP8 "]
)
async def test_what_only_begins_like_an_image_is_not_sent(folder: Path, desk: Desk, data):
    (folder / "picture").write_bytes(data)
    assert "is not a whole one" in await desk.refusal("read_file", path="picture")


async def test_a_text_about_an_image_format_is_text(folder: Path, files: Files):
    (folder / "about").write_text("GIF8 and so on")
    assert await files.read("about") == "GIF8 and so on"


def test_a_range_far_into_a_file_of_two_gigabytes_takes_little_memory(folder: Path):
    with (folder / "huge.txt").open("wb") as file:
        file.write(b"first\n" * 2000)
        file.seek(2 << 30)
        file.write(b"\nlast but one\nlast\n")
    code = """
        import asyncio, resource, sys
        from treadle.toolkit import Workspace
        workspace = Workspace(sys.argv[1])
        read = workspace.read_only()[0]
        asyncio.run(read.invoke({"path": "README.md"}))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        output = asyncio.run(read.invoke({"path": "huge.txt", "start_line": 2002, "end_line": 2002}))
        print(output.content)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(folder)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True, env=environment)
    text, grown = done.stdout.rsplit("\n", 2)[:2]
    assert text == "last but one\n[lines 2002-2002 of 2003]"
    assert int(grown) * (1 if sys.platform == "darwin" else 1024) < 20 << 20


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


async def test_paths_that_go_up_and_stay_inside_are_fine(folder: Path, files: Files):
    assert await files.read("src/../README.md") == await files.read("README.md")
    assert await files.read(f"{folder}/src/main.py") == "print('hi')\n"
    assert await files.read(f"{folder}/src/../README.md") == await files.read("README.md")


async def test_an_absolute_path_that_only_begins_like_the_root_is_outside(folder: Path, files: Files):
    Path(f"{folder}-other").mkdir()
    Path(f"{folder}-other", "secret.txt").write_text(SECRET)
    assert "leads out" in await files.why_not(f"{folder}-other/secret.txt")
    assert "leads out" in await files.why_not(f"{folder}/../secret.txt")


async def test_links_are_followed_only_inside(folder: Path, files: Files):
    (folder / "good").symlink_to("src/main.py")
    (folder / "folder").symlink_to("src")
    (folder / "src" / "back").symlink_to("../README.md")
    (folder / "chain").symlink_to("folder/back")
    (folder / "absolute").symlink_to("/etc/passwd")
    (folder / "inward").symlink_to(folder / "README.md")  # also refused: where it leads depends on what is above
    (folder / "relative").symlink_to("../secret.txt")
    (folder / "parent").symlink_to("..")
    assert await files.read("good") == await files.read("folder/main.py") == "print('hi')\n"
    assert await files.read("chain") == await files.read("README.md")
    assert await files.list("folder/") == "back\tlink to ../README.md\nmain.py\t12 bytes"
    for path in ("absolute", "inward", "relative", "parent/secret.txt"):
        assert "leads out" in await files.why_not(path)
    with pytest.raises(ToolError, match="leads out"):
        await files.list("parent")


async def test_dangling_and_circular_links_are_errors(folder: Path, files: Files):
    (folder / "dangling").symlink_to("nowhere")
    (folder / "a").symlink_to("b")
    (folder / "b").symlink_to("a")
    assert "no such file" in await files.why_not("dangling")
    assert "circle" in await files.why_not("a")


async def test_going_up_behind_a_linked_folder_is_meant_as_the_system_means_it(folder: Path, files: Files):
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "deep" / "file").write_text("deep")
    (folder / "jump").symlink_to("deep/er")
    assert await files.read("jump/../file") == "deep"


async def test_pipes_sockets_and_devices_are_refused_without_waiting(folder: Path, files: Files):
    os.mkfifo(folder / "pipe")
    assert "is a pipe" in await files.why_not("pipe")
    with tempfile.TemporaryDirectory() as short, socket.socket(socket.AF_UNIX) as listener:  # socket paths are short
        listener.bind(f"{short}/socket")
        assert "is a socket" in await Files(Desk(Path(short))).why_not("socket")
    assert "is a device" in await Files(Desk(Path("/dev"))).why_not("zero")
    assert "pipe\tpipe" in (await files.list()).splitlines()


async def test_names_that_no_system_takes_are_refused(files: Files):
    for path in ("a\0b", "x" * 300, "x/" * 3000, "\ud800"):
        assert await files.why_not(path)


async def test_a_path_too_deep_is_refused_before_descriptors_run_out(folder: Path, files: Files):
    deep = "/".join("d" * (MAX_DEPTH + 1))
    (folder / deep).mkdir(parents=True)
    assert "too deep" in await files.why_not(f"{deep}/x")


async def test_no_descriptor_is_left_open(folder: Path, files: Files):
    gc.collect()
    before = len(list(Path("/dev/fd").iterdir()))
    for path in ("README.md", "src", "nothing", "../secret.txt", "src/main.py/x"):
        try:
            await files.read(path)
        except ToolError:
            continue
    await files.list("src")
    assert len(list(Path("/dev/fd").iterdir())) == before


async def test_in_a_run_a_failure_is_an_error_result_that_the_model_reads(folder: Path):
    model = ScriptedModel(call("read_file", path="../secret.txt"), call("list_directory"), "done")
    result = await Agent(model, tools=Workspace(folder).read_only()).run("go")
    refused, listed = (step.results[0] for step in result.steps[:2])
    assert refused.is_error and "leads out" in refused.content
    assert not listed.is_error and "README.md" in listed.content


def test_both_tools_only_read(folder: Path):
    for tool in Workspace(folder).read_only():
        assert (tool.effect, tool.idempotent) == ("read", True)
        assert tool.description and "path" in tool.input_schema["properties"]
