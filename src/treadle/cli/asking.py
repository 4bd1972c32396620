"""The person at the terminal, asked about each call that changes something."""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.cli.terminal import LONGEST, one_line, say, some_lines
from treadle.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from treadle.approval import Decision
    from treadle.toolkit import Workspace
    from treadle.wraps import ToolRequest

QUESTION = "Allow? [y]es, for this [s]ession, or no and why: "
_PREVIEWED = frozenset({"write_file", "edit_file", "run_command"})


class Person:
    """A policy: tools that only read run, and so do those named on the command line. The others are asked about.

    What a call would do is shown first: a diff, a command, or its arguments.
    """

    def __init__(self, workspace: Workspace | None, trusted: Iterable[str]) -> None:
        self._workspace = workspace
        self._allowed = set(trusted)

    async def __call__(self, request: ToolRequest) -> Decision:
        from treadle.approval import Allow, Deny, typed

        if request.effect == "read" or request.name in self._allowed:
            return Allow()
        try:
            shown = self._preview(request)
        except ToolError:
            return Allow()  # it will fail, and tell the model why
        for line in shown:
            say(line)
        try:
            answer = await typed(QUESTION)
        except OSError:
            return Deny("There is no terminal at which somebody could allow it.")
        word = answer.lower()
        if word in ("s", "session"):
            self._allowed.add(request.name)
        if word in ("y", "yes", "s", "session"):
            return Allow()
        return Deny() if word in ("", "n", "no") else Deny(answer)

    def _preview(self, request: ToolRequest) -> list[str]:
        if self._workspace is not None and request.name in _PREVIEWED:
            return some_lines(self._workspace.preview(request.name, request.arguments), LONGEST)
        return [one_line(f"tool {request.name} {request.args}")]
