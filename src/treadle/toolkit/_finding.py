"""Finding and searching in a process of its own: the event loop stays free, and a pattern that runs on is ended.

Python's own regular expressions are what models know best, and they can run for ever while they hold the
interpreter's lock; no thread can be stopped then, a process can.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from treadle.errors import ToolError
from treadle.toolkit._literal import required
from treadle.toolkit._names import explained
from treadle.toolkit._processes import find_program

if TYPE_CHECKING:
    from treadle.toolkit.root import Root

MAX_PATTERN = 10_000
_GRACE_SECONDS = 1.0  # for what was found before the time was up
# The package without its own import, which would cost several times what the search does.
_BOOT = """
import sys, types
folder, *ripgrep = sys.argv[1:]
for name, path in (("treadle", folder), ("treadle.toolkit", folder + "/toolkit")):
    sys.modules[name] = module = types.ModuleType(name)
    module.__path__ = [path]
from treadle.toolkit._ripgrep import Ripgrep
running = Ripgrep(ripgrep[0], int(ripgrep[1]), ripgrep[2]) if ripgrep else None
from treadle.toolkit._searcher import main
main(running)
"""


async def find(root: Root, seconds: float, *, pattern: str, path: str) -> str:
    """The files whose names match a glob pattern. Raises `ToolError`, as `search` does."""
    _check(pattern)
    return await _ask(root, seconds, (), {"what": "find", "pattern": pattern, "path": _inside(root, path)})


async def search(
    root: Root,
    seconds: float,
    *,
    pattern: str,
    path: str,
    literal: bool,
    glob: str | None,
    context_lines: int,
    ripgrep: str | None,
) -> str:
    """The lines that match. Raises `ToolError` for a request that cannot be, or takes longer than `seconds`."""
    _check(pattern)
    if glob is not None:
        _check(glob)
    inside = _inside(root, path)
    needle = pattern if literal else required(pattern)
    if needle is not None and (not needle.isascii() or "\n" in needle):
        needle = None  # may be written in other bytes; no line has a line end in it
    request = {"what": "search", "pattern": pattern, "path": inside, "literal": literal, "glob": glob}
    request |= {"context_lines": context_lines, "needle": needle}
    base = _base(root, inside) if ripgrep is not None and needle is not None else None
    if base is None:
        return await _ask(root, seconds, (), request)
    try:
        return await _ask(root, seconds, (str(ripgrep), str(base), str(needle)), request, base)
    finally:
        os.close(base)


def _check(pattern: str) -> None:
    if "\0" in pattern or not 0 < len(pattern) <= MAX_PATTERN:
        raise ToolError(f"a pattern has 1 to {MAX_PATTERN} characters and no NUL among them")


def _inside(root: Root, path: str) -> str:
    try:
        return root.inside(path)
    except (OSError, UnicodeError) as error:
        raise ToolError(explained(error, path)) from None


def _base(root: Root, path: str) -> int | None:
    """The directory to look through; None where there is none, which the searcher says better."""
    try:
        return root.open_directory(path)
    except OSError:
        return None


async def _ask(root: Root, seconds: float, ripgrep: tuple[str, ...], request: dict[str, Any], *passed: int) -> str:
    given = {"root": root.fileno(), "backend": root.backend, "seconds": seconds, **request}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", "-X", "utf8", "-c", _BOOT, str(Path(__file__).parents[1]), *ripgrep),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        pass_fds=(root.fileno(), *passed),
        start_new_session=True,
        env={},
    )
    try:
        async with asyncio.timeout(seconds + _GRACE_SECONDS):
            output, _ = await process.communicate(json.dumps(given).encode())
    except TimeoutError:
        text = f"the search was still running after {seconds:g} seconds and was stopped"
        raise ToolError(f"{text}: make the pattern simpler, or name a path or a glob") from None
    finally:
        await _end(process)
    if not output:
        raise ToolError("the search failed; a simpler pattern may work")
    answer = json.loads(output)
    if "error" in answer:
        raise ToolError(answer["error"])
    return str(answer["text"])


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def ripgrep(root: Root) -> str | None:
    """Where ripgrep is, if it is installed. One inside `root` is none: who may write there could have replaced it."""
    found = find_program("rg")
    return None if found is None or Path(found).resolve().is_relative_to(root.path) else found
