"""Directories and files that become links to the outside, and back, while the tools are at work on them."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from support.desk import SECRET, Desk, snapshot
from treadle import ToolError
from treadle.toolkit import Root

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="swaps two names in one step, which is Linux's renameat2"
)

SWAPS = 50_000
ROUNDS = 4  # at most: on a busy machine an operation may miss one side in a round
SWAPPER = """
    import ctypes, os, sys
    folder, swaps = sys.argv[1], int(sys.argv[2])
    os.chdir(folder)
    swap = ctypes.CDLL(None, use_errno=True).renameat2
    pairs = ((b"folder", b"folder-link"), (b"file", b"file-link"))
    print("ready", flush=True)
    for number in range(swaps):
        for one, other in pairs:
            if swap(-100, one, -100, other, 2):
                sys.exit(ctypes.get_errno())
    print(number + 1, flush=True)
"""


@pytest.fixture
def arena(folder: Path, outside: Path) -> Path:
    """`folder` and `file` change places with links to their like outside."""
    (folder / "folder").mkdir()
    for path in (folder / "folder" / "data.txt", folder / "file"):
        path.write_text("inside")
    (outside / "data.txt").write_text(SECRET)
    (folder / "folder-link").symlink_to("../outside")
    (folder / "file-link").symlink_to("../outside/data.txt")
    return folder


@contextlib.contextmanager
def swapping(arena: Path, swaps: int):
    """A process that swaps as fast as it can; gives it, and afterwards it has made `swaps` of them."""
    command = [sys.executable, "-I", "-c", textwrap.dedent(SWAPPER), arena, str(swaps)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        yield process
        process.wait(120)
        assert process.stdout.read() == f"{swaps}\n"


def test_no_operation_of_a_root_touches_the_outside_in_fifty_thousand_swaps(arena: Path, outside: Path, backend):
    root = Root(arena, backend=backend)
    before = snapshot(outside)
    seen: dict[str, set[str]] = {"done": set(), "refused": set()}
    operations = {
        "read": lambda: root.read("folder/data.txt"),
        "read file": lambda: root.read("file"),
        "write": lambda: root.write("folder/data.txt", b"inside"),
        "write file": lambda: root.write("file", b"inside"),
        "make": lambda: root.write("folder/new.txt", b"inside"),
        "unlink": lambda: root.unlink("folder/new.txt"),
        "mkdir": lambda: root.mkdir("folder/new/er", parents=True),
        "rename": lambda: root.rename("folder/data.txt", "folder/data.txt"),
        "up": lambda: root.read("folder/../README.md"),
        "list": lambda: root.scandir("folder"),
    }

    def work(process: subprocess.Popen[str]) -> None:
        while process.poll() is None:
            for name, operation in operations.items():
                try:
                    result = operation()
                except OSError:
                    seen["refused"].add(name)
                    continue
                seen["done"].add(name)
                if isinstance(result, bytes):
                    assert result in (b"inside", b"# Title\n\nText.\n")
                if name == "list":
                    assert "secret.txt" not in [entry.name for entry in result.entries]

    for _ in range(ROUNDS):
        with swapping(arena, SWAPS) as process:
            work(process)
        assert snapshot(outside) == before
        if seen["done"] == seen["refused"]:
            break
    # The race was one: each operation met both the directory and the link.
    assert seen["done"] == seen["refused"] == set(operations)


async def test_no_tool_touches_the_outside_while_everything_is_swapped(arena: Path, outside: Path, backend):
    desk = Desk(arena, backend)
    before = snapshot(outside)
    calls = [
        ("read_file", {"path": "folder/data.txt"}),
        ("read_file", {"path": "file"}),
        ("write_file", {"path": "folder/data.txt", "content": "inside"}),
        ("write_file", {"path": "file", "content": "inside"}),
        ("write_file", {"path": "folder/a/b.txt", "content": "inside"}),
        ("edit_file", {"path": "folder/data.txt", "edits": [{"old_text": "inside", "new_text": "in"}]}),
        ("edit_file", {"path": "folder/data.txt", "edits": [{"old_text": "in", "new_text": "inside"}]}),
        ("list_directory", {"path": "folder"}),
        ("find_files", {"pattern": "*.txt", "path": "folder"}),
        ("search_content", {"pattern": "house|inside", "path": "."}),
        ("search_content", {"pattern": "the key of", "path": "folder"}),
    ]
    answers = []
    with swapping(arena, 2 * SWAPS) as process:
        while process.poll() is None:
            for name, arguments in calls:
                try:
                    answers.append(await desk(name, **arguments))
                except ToolError as error:
                    answers.append(str(error))
            await asyncio.sleep(0)
    assert snapshot(outside) == before
    told = "\n".join(answers)
    assert SECRET not in told and "secret.txt" not in told
    assert "inside" in told and "leads out" in told


def test_edits_at_the_same_time_are_all_made(folder: Path, backend):
    (folder / "list.txt").write_text("".join(f"line {number}\n" for number in range(20)))
    desk = Desk(folder, backend)

    def edit(number: int) -> None:
        edits = [{"old_text": f"line {number}\n", "new_text": f"done {number}\n"}]
        asyncio.run(desk("edit_file", path="list.txt", edits=edits))

    threads = [threading.Thread(target=edit, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (folder / "list.txt").read_text() == "".join(f"done {number}\n" for number in range(20))
    assert not list(folder.glob("*.tmp"))
