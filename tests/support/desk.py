"""A workspace over a real directory, with something to steal and to break beside it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from treadle import ToolError, ToolOutput
from treadle.toolkit import Root, Workspace

SECRET = "the key of the house"


class Desk:
    """All tools of a workspace on `folder`; `outside` lies beside it and must never be seen or touched."""

    def __init__(self, folder: Path, backend: str | None = None, **options: Any) -> None:
        self.folder = folder
        options.setdefault("allow_commands", True)
        self.workspace = Workspace(Root(folder, backend=backend), **options)
        self.tools = {tool.name: tool for tool in [*self.workspace._reading, *self.workspace._writing]}

    async def output(self, name: str, /, **arguments: Any) -> ToolOutput:
        value = await self.tools[name].invoke(json.dumps(arguments))
        return value if isinstance(value, ToolOutput) else ToolOutput(value)

    async def __call__(self, name: str, /, **arguments: Any) -> str:
        return (await self.output(name, **arguments)).content

    async def refusal(self, name: str, /, **arguments: Any) -> str:
        """What the tool says when it refuses; it must refuse."""
        with pytest.raises(ToolError) as caught:
            await self(name, **arguments)
        assert SECRET not in str(caught.value)
        return str(caught.value)


def snapshot(folder: Path) -> dict[str, tuple[Any, ...]]:
    """Every file below `folder` with its bytes, mode, owner and inode: what must be equal afterwards."""
    found = {}
    for path in sorted([folder, *folder.rglob("*")]):
        status = path.lstat()
        content = path.read_bytes() if stat.S_ISREG(status.st_mode) else None
        target = path.readlink() if path.is_symlink() else None
        found[str(path)] = (content, target, status.st_mode, status.st_uid, status.st_gid, status.st_ino)
    return found


def alive(name: str) -> list[str]:
    """The processes, zombies aside, that have `name` in their command line."""
    found = []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if folder.name.isdigit() and name.encode() in (folder / "cmdline").read_bytes():
                found.append(folder.name)
    return found


async def until(condition: Callable[[], object]) -> None:
    """Waits for something outside this process to be so, and not for ever."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - other processes set no event
            await asyncio.sleep(0.01)
