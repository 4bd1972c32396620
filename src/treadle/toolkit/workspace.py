"""The tools of an agent that works on a directory."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from treadle.approval import visible
from treadle.errors import ConfigError, ToolError
from treadle.toolkit._changing import Changing, Edit
from treadle.toolkit._names import shown
from treadle.toolkit._preview import difference
from treadle.toolkit._reading import Reading
from treadle.toolkit.root import Root
from treadle.tools import Effect, Tool, tool

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Self


class _Command(msgspec.Struct):
    command: str


class _Write(msgspec.Struct):
    path: str
    content: str


class _Edits(msgspec.Struct):
    path: str
    edits: list[Edit]


_PREVIEWED: dict[str, type[_Command | _Write | _Edits]] = {
    "run_command": _Command,
    "write_file": _Write,
    "edit_file": _Edits,
}


class Workspace:
    """A toolset to work on a directory: read, write, edit, list, find, search, and run commands where that is allowed.

    `root` is a directory, or a `Root` with settings of its own. The file tools reach nothing outside it, by no path,
    link or race; with `allow_commands` a model can run anything as the user of this process, which is no sandbox.
    `environment` is added to the few variables that commands get. `number_lines` has `read_file` number what it shows.
    A search ends after `search_seconds`. `ripgrep=False` leaves an installed `rg` alone; the results are the same.

    One workspace serves any number of runs at a time, and keeps edits of one file apart.
    """

    root: Root

    def __init__(
        self,
        root: Root | str | os.PathLike[str] = ".",
        *,
        allow_commands: bool = False,
        environment: Mapping[str, str] | None = None,
        number_lines: bool = False,
        search_seconds: float = 10.0,
        ripgrep: bool = True,
    ) -> None:
        if not (isinstance(search_seconds, int | float) and 0 < search_seconds < math.inf):
            raise ConfigError("search_seconds is a number above 0")
        added = _variables(environment)
        self.root = root if isinstance(root, Root) else Root(root)
        reading = Reading(self.root, number_lines=number_lines, search_seconds=search_seconds, ripgrep=ripgrep)
        self._changing = Changing(self.root, added)
        looks: list[Callable[..., Any]] = [reading.read_file, reading.list_directory]
        looks += [reading.find_files, reading.search_content]
        self._reading: list[Tool[..., Any]] = [tool(look, effect=Effect.READ) for look in looks]
        # Alone in their step: what is written first is there for the command that was asked for behind it.
        write, edit = self._changing.write_file, self._changing.edit_file
        self._writing: list[Tool[..., Any]] = [
            tool(write, effect=Effect.WRITE, idempotent=True, sequential=True),
            tool(edit, effect=Effect.WRITE, sequential=True),
        ]
        if allow_commands:
            self._writing.append(tool(self._changing.run_command, effect=Effect.EXTERNAL, sequential=True))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Nothing to end: a command does not outlive its call, and the root serves other runs."""

    async def tools(self) -> Sequence[Tool[..., Any]]:
        """All tools, for `Agent(toolsets=[workspace])`."""
        return [*self._reading, *self._writing]

    def read_only(self) -> list[Tool[..., Any]]:
        """The tools that change nothing, for `Agent(tools=workspace.read_only())`."""
        return list(self._reading)

    def preview(self, name: str, arguments: Mapping[str, Any]) -> str:
        """What a call would do, for a person to decide on: a unified diff, or the command line; else nothing.

        What a terminal would not show as it is comes escaped. Raises `ToolError` where the call would fail.
        """
        if name not in _PREVIEWED:
            return ""
        try:
            given = msgspec.convert(arguments, _PREVIEWED[name])
        except msgspec.ValidationError as error:
            raise ToolError(f"{name} cannot be called like this: {error}") from None
        if isinstance(given, _Command):
            return visible(f"$ {given.command}")
        if isinstance(given, _Write):
            plan = self._changing.plan_write(given.path, given.content)
        else:
            plan = self._changing.plan_edit(given.path, given.edits)
        path = shown(given.path)
        source = path if plan.status is not None else os.devnull
        diff = difference(plan.old, plan.new, source, path)
        return visible(f"{path}: {len(plan.old)} characters become {len(plan.new)}" if diff is None else diff)


def _variables(environment: Mapping[str, str] | None) -> dict[str, str]:
    added = environment or {}
    texts = [*added, *added.values()] if isinstance(added, Mapping) else [None]
    if not all(isinstance(text, str) and "\0" not in text for text in texts):
        raise ConfigError("environment is a dictionary of strings")
    if wrong := [name for name in added if not name or "=" in name]:
        raise ConfigError(f"environment has a variable named {wrong[0]!r}, which is no name")
    return dict(added)
