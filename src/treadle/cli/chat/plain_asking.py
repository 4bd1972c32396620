"""The question about a call where it is asked and answered in lines."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from treadle.approval import visible
from treadle.cli.chat.asking import ARMED_SECONDS
from treadle.cli.terminal import neutral
from treadle.messages import encodable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from treadle.cli.chat.approvals import Approvals, Question
    from treadle.cli.chat.view import View

_RULE = "save this rule? [y]es [n]o: "
_REASON = "why not? (an empty line gives no reason): "


class PlainAsking:
    """One question after the other. `prompt` says what kind of answer is awaited.

    `show` takes what makes lines of a width.
    """

    def __init__(
        self,
        approvals: Approvals,
        show: Callable[[Callable[[int], Sequence[str]]], None],
        view: View,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.prompt: str = ""
        self._approvals = approvals
        self._show = show
        self._view = view
        self._clock = clock
        self._question: Question | None = None
        self._since = 0.0

    def look(self) -> None:
        """Shows the question that is asked now, if it is another one."""
        found = self._approvals.question
        if found is self._question:
            return
        self._question, self._since, self.prompt = found, self._clock(), ""
        if found is not None:
            self.prompt = self._choice(found)
            request, change = found.request, found.preview
            self._show(lambda width: self._view.approval(request.name, request.args, width, change=change))

    def takes(self, line: str) -> bool:
        """Answers with a line. False where nothing is asked, or it was typed before the question could be read."""
        question = self._question
        if question is None or self._clock() - self._since < ARMED_SECONDS:
            return False
        if self.prompt == _REASON:
            self._deny(question, line)
        elif self.prompt == _RULE:
            self._save(question, line.strip().lower())
        else:
            self._answer(question, line.strip())
        return True

    def _answer(self, question: Question, line: str) -> None:
        word, _, reason = line.partition(" ")
        match word.lower():
            case "n" | "no" if reason.strip():
                self._deny(question, reason)
            case "n" | "no":
                self.prompt = _REASON
            case "y" | "yes" if not reason:
                self._approvals.allow(question)
            case "s" | "session" if not reason:
                self._approvals.allow_for_session(question)
            case "a" | "always" if not reason and question.rule is not None:
                self.prompt, self._since = _RULE, self._clock()
                rule = f"always allow: {visible(question.rule.text)}"
                self._show(lambda _: [rule])

    def _save(self, question: Question, word: str) -> None:
        if word in ("y", "yes"):
            self.prompt = self._choice(question)
            if (failed := self._approvals.allow_always(question)) is not None:
                told = failed
                self._show(lambda width: self._view.error(told, width))
        elif word in ("n", "no"):
            self.prompt = self._choice(question)

    def _deny(self, question: Question, reason: str) -> None:
        self._approvals.deny(question, neutral(encodable(reason.strip())))

    @staticmethod
    def _choice(question: Question) -> str:
        always = "[a]lways " if question.rule is not None else ""
        return f"allow? [y]es [s]ession {always}[n]o: "
