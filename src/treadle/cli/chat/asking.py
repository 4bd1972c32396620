"""The question about a call, as it stands at the prompt: its lines, and what each answer does."""

from __future__ import annotations

import textwrap
import time
from typing import TYPE_CHECKING, Literal

from treadle.cli.terminal import LONGEST, neutral, one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from treadle.cli.chat.approvals import Approvals, Question

ARMED_SECONDS = 0.4  # keys that were typed for the prompt must not answer a question that has just come up
MIN_PREVIEW = 3
Stage = Literal["none", "choice", "rule", "reason"]


class Asking:
    """One question after the other. Where the preview is longer than the screen it is cut, and `v` prints all of it."""

    def __init__(
        self,
        approvals: Approvals,
        shown: Callable[[Question], list[str]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._approvals = approvals
        self._shown = shown
        self._clock = clock
        self._question: Question | None = None
        self._since = 0.0
        self._stage: Stage = "choice"

    @property
    def question(self) -> Question | None:
        """What is asked now."""
        found = self._approvals.question
        if found is not self._question:
            self._question, self._stage, self._since = found, "choice", self._clock()
        return found

    @property
    def stage(self) -> Stage:
        """What kind of answer is awaited. `none`, too, as long as a question is too new to be answered."""
        if self.question is None or self.seconds_left > 0:
            return "none"
        return self._stage

    @property
    def seconds_left(self) -> float:
        """Until the question can be answered."""
        return max(0.0, self._since + ARMED_SECONDS - self._clock())

    def typed(self) -> None:
        """Somebody is typing: what they type is for the prompt, and the question waits anew until they stop."""
        if self.question is not None and self.seconds_left > 0:
            self._since = self._clock()

    def press(self, key: str, note: Callable[[str], None]) -> None:
        """Answers with a key: `y`, `s`, `a`, `n`; at the rule `y` or `n`. Others do nothing."""
        question, stage = self.question, self.stage
        if question is None or stage in ("none", "reason"):
            return
        if stage == "rule":
            self._stage = "choice"
            if key == "y" and (failed := self._approvals.allow_always(question)) is not None:
                note(failed)
        elif key == "y":
            self._approvals.allow(question)
        elif key == "s":
            self._approvals.allow_for_session(question)
        elif key == "a" and question.rule is not None:
            self._stage = "rule"
        elif key == "n":
            self._stage = "reason"

    def deny(self, reason: str = "") -> None:
        """Denies what is asked."""
        if (question := self.question) is not None:
            self._approvals.deny(question, neutral(reason.strip()))

    def back(self) -> None:
        """From the rule or the reason back to the choice; from there, denies."""
        if self.stage in ("rule", "reason"):
            self._stage = "choice"
        elif self.stage == "choice":
            self.deny()

    def lines(self, height: int, width: int = 80) -> list[str]:
        """The question in at most `height` rows or a few."""
        question = self.question
        if question is None:
            return []
        preview = self.whole()
        room = max(MIN_PREVIEW, height - 2)
        if len(preview) > room:
            preview = [*preview[: room - 1], f"... {len(preview) - room + 1} more lines; [v] prints them all"]
        return [*preview, *self._choice(question, width)]

    def whole(self) -> list[str]:
        """All lines of what the call would do."""
        question = self.question
        return [] if question is None else self._shown(question)

    def _choice(self, question: Question, width: int) -> list[str]:
        match self.stage:
            case "none":
                return [""]
            case "rule":
                rule = one_line(f"always allow: {question.rule.text}", LONGEST)
                seen = textwrap.wrap(rule, max(10, width - 1), drop_whitespace=False)  # all of it, before it is saved
                return [*seen, "[y] save this rule  [n] back"]
            case "reason":
                return ["why not? enter denies, with what you type as the reason for the model"]
            case _:
                always = "  [a]lways" if question.rule is not None else ""
                more = len(self._approvals.pending) - 1
                after = f"  ({more} more after this)" if more else ""
                return [f"[y]es  [s]ession{always}  [n]o, and why  esc: no{after}"]
