"""Who decides on a call: the rules, and where they say nothing, somebody who can be asked, or nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.cli.terminal import LONGEST, one_line, say, some_lines
from treadle.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from treadle.approval import Decision
    from treadle.cli.permissions import Permissions
    from treadle.toolkit import Workspace
    from treadle.wraps import ToolRequest

QUESTION = "Allow? [y]es, for this [s]ession, or no and why: "
NOBODY = "Nobody can be asked about it here, and no rule of the user allows it."
_PREVIEWED = frozenset({"write_file", "edit_file", "run_command"})
_FLAGS = {
    "write_file": "--allow-writes",
    "edit_file": "--allow-writes",
    "run_command": "--allow-commands",
    "web_fetch": "--fetch",
}


class Policy:
    """Decides by the rules. Where they say nothing, the tools in `granted` run, and all of them if the user is `sure`.

    The rest is for `ask`. Without it such a call is denied, and standard error says which rule would allow it.
    """

    granted: set[str]

    def __init__(
        self,
        permissions: Permissions,
        granted: Collection[str],
        *,
        ask: Callable[[ToolRequest], Decision | Awaitable[Decision]] | None,
        sure: bool,
        rules_file: str,
    ) -> None:
        self.granted = set(granted)
        self._permissions = permissions
        self._ask = ask
        self._sure = sure
        self._rules_file = rules_file

    def __call__(self, request: ToolRequest) -> Decision | Awaitable[Decision]:
        from treadle.approval import Allow

        verdict = self._permissions.judge(request)
        if verdict is not None:
            return verdict
        if self._sure or (request.name in self.granted and not self._permissions.asks(request)):
            return Allow()
        return self._ask(request) if self._ask is not None else self._refused(request)

    def _refused(self, request: ToolRequest) -> Decision:
        from treadle.approval import Deny

        rule = self._permissions.suggest(request)
        flag = _FLAGS.get(request.name, "--yes")
        how = f"add {rule.text} to permissions.allow in {self._rules_file}, or give {flag}" if rule else f"give {flag}"
        say(f"nobody can be asked about {one_line(request.name)} here; to allow it {how}")
        return Deny(NOBODY)


class Person:
    """The person at the terminal. What a call would do is shown first: a diff, a command, or its arguments.

    `asks` tells the calls that a rule has asked about each time, whatever was allowed for the session.
    """

    def __init__(self, workspace: Workspace | None, asks: Callable[[ToolRequest], bool]) -> None:
        self._workspace = workspace
        self._asks = asks
        self._allowed: set[str] = set()

    def __call__(self, request: ToolRequest) -> Decision | Awaitable[Decision]:
        from treadle.approval import Allow, Deny

        if request.name in self._allowed and not self._asks(request):
            return Allow()
        try:
            shown = self._preview(request)
        except ToolError as error:  # not to be let run unseen: an earlier call may change what it would do
            return Deny(f"Not run, since it would fail: {error}")
        return self._asked(request, shown)

    async def _asked(self, request: ToolRequest, shown: list[str]) -> Decision:
        from treadle.approval import Allow, Deny, typed

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
