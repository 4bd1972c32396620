"""What a person sees of the tool calls: changes as a diff, commands as their line and what they print."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from treadle.cli.terminal import LONGEST, one_line, some_lines
from treadle.errors import ToolInputError

if TYPE_CHECKING:
    from treadle import Tool, ToolContext, ToolFinish, ToolStart
    from treadle.toolkit import Workspace

COMMAND = "run_command"
CHANGES = ("write_file", "edit_file")


class Calls:
    """Tells of calls when they begin and when they have ended, each as lines that a terminal can show."""

    def __init__(self) -> None:
        self._commands: Tool[..., Any] | None = None
        self._previews: dict[str, str] = {}

    def watch(self, made: Tool[..., Any], workspace: Workspace) -> Tool[..., Any]:
        """`made` as a tool of which more is shown than of others, if it changes files or runs commands."""
        if made.name == COMMAND:
            self._commands = made
        return self._previewed(made, workspace) if made.name in CHANGES else made

    def _previewed(self, made: Tool[..., Any], workspace: Workspace) -> Tool[..., Any]:
        from treadle import Tool

        # Only here, between the call's beginning and its effect, is the file certain to be as it was.
        def change(arguments: dict[str, Any], context: ToolContext[Any]) -> Any:
            given = made.parse(json.dumps(arguments))
            preview = workspace.preview(made.name, given)
            answer = made(**given)
            self._previews[context.call_id] = preview
            return answer

        return Tool.raw(
            made.name, made.description, made.input_schema, change,
            effect=made.effect, idempotent=made.idempotent, sequential=made.sequential,
        )  # fmt: skip

    def begun(self, event: ToolStart) -> list[str]:
        """A command as it was asked for, any other call with its arguments in a line."""
        if self._commands is not None and event.name == COMMAND:
            try:
                command = str(self._commands.parse(event.args)["command"])
            except ToolInputError:
                pass
            else:
                return some_lines(f"$ {command}", LONGEST)
        return [one_line(f"tool {event.name} {event.args}")]

    def ended(self, event: ToolFinish) -> list[str]:
        """What a command printed with its exit code; how any other call went, and what it changed."""
        if self._commands is not None and event.name == COMMAND and not event.refused:
            return some_lines(event.result.content)
        preview = self.change(event.call_id)
        return [one_line(f"tool {event.name} {_outcome(event)}"), *(some_lines(preview) if preview else [])]

    def change(self, call_id: str) -> str:
        """What a call has changed, as a unified diff, or nothing. It is told once."""
        return self._previews.pop(call_id, "")


def _outcome(event: ToolFinish) -> str:
    if event.refused:
        return f"refused: {event.result.content}"
    if event.is_error:
        return f"failed: {event.result.content}"
    content = event.result.content
    lines = content.count("\n") + (content != "" and not content.endswith("\n"))
    return f"done in {event.duration_seconds:.2f} s: {lines} line{'s' * (lines != 1)}"
