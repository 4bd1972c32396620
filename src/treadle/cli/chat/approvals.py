"""Calls that wait for the person: one question after the other, and what an answer means."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

from treadle.approval import Allow, Decision, Deny
from treadle.errors import ConfigError, ToolError

if TYPE_CHECKING:
    from collections.abc import Callable

    from treadle.toolkit import Workspace
    from treadle.wraps import ToolRequest


class Judge(Protocol):
    """What the settings say of a call."""

    def judge(self, request: ToolRequest) -> Allow | Deny | None:
        """A decision, or None where the person is asked."""
        ...

    def suggest(self, request: ToolRequest) -> Any:
        """The rule that would allow calls like this one from now on: `.text` shows it. None where there is none."""
        ...

    def allow_for_session(self, request: ToolRequest) -> object:
        """Calls like this one are allowed as long as the client runs."""
        ...

    def allow_always(self, rule: Any) -> None:
        """Saves a rule in the user's settings."""
        ...


class Question:
    """A call that waits. `preview` is what it would do, `rule` what `always` would save."""

    def __init__(self, request: ToolRequest, preview: str, rule: Any) -> None:
        self.request: ToolRequest = request
        self.preview: str = preview
        self.rule: Any = rule
        self.answer: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()


class Approvals:
    """The policy of a client's agents. `changed` is called when there are other questions than before."""

    def __init__(self, judge: Judge, workspace: Workspace) -> None:
        self.pending: list[Question] = []
        self.changed: Callable[[], object] = lambda: None
        self._judge = judge
        self._workspace = workspace

    async def __call__(self, request: ToolRequest) -> Decision:
        verdict = self._judge.judge(request)
        if verdict is not None:
            return verdict
        try:
            preview = self._workspace.preview(request.name, request.arguments)
        except (ToolError, KeyError, TypeError):
            preview = ""  # a tool of that name that is not the workspace's, or a call that will fail
        question = Question(request, preview, self._judge.suggest(request))
        self.pending.append(question)
        self.changed()
        try:
            return await question.answer
        finally:
            self.pending.remove(question)
            self.changed()

    @property
    def question(self) -> Question | None:
        """The one that is asked now."""
        return next((question for question in self.pending if not question.answer.done()), None)

    def allow(self, question: Question) -> None:
        """This call may run."""
        self._decide(question, Allow())

    def allow_for_session(self, question: Question) -> None:
        """This call and those like it may run, as long as the client does."""
        self._judge.allow_for_session(question.request)
        self._decide(question, Allow())
        self.look_again()

    def allow_always(self, question: Question) -> str | None:
        """Saves the question's rule and lets the call run; or says why the rule could not be saved."""
        try:
            self._judge.allow_always(question.rule)
        except (ConfigError, OSError) as error:
            return str(error)
        self._decide(question, Allow())
        self.look_again()
        return None

    def deny(self, question: Question, reason: str = "") -> None:
        """The call must not run; the model reads the reason."""
        self._decide(question, Deny(f"The user did not allow it: {reason}") if reason else Deny())

    def look_again(self) -> None:
        """The rules or the mode changed: what they decide now is no question any more."""
        for question in tuple(self.pending):
            verdict = self._judge.judge(question.request)
            if verdict is not None:
                self._decide(question, verdict)

    @staticmethod
    def _decide(question: Question, decision: Decision) -> None:
        if not question.answer.done():
            question.answer.set_result(decision)
