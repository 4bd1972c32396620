"""The question about a call, as it stands at the prompt: its lines, and what each answer does."""

from __future__ import annotations

import textwrap
import time
from typing import TYPE_CHECKING, Literal

from treadle.cli.chat.view import exact
from treadle.cli.terminal import neutral
from treadle.messages import encodable

if TYPE_CHECKING:
    from collections.abc import Callable

    from treadle.cli.chat.approvals import Approvals, Question

ARMED_SECONDS = 0.4  # keys that were typed for the prompt must not answer a question that has just come up
MIN_PREVIEW = 3
_SHORT = "[y] [s] [a] [n] esc"
_TOO_SMALL = "too small: [v] shows all; esc: no"
Stage = Literal["none", "choice", "rule", "reason"]


class Asking:
    """One question after the other. Where the preview is longer than the screen it is cut, and `v` prints all of it.

    In a window that is too small to show what is decided on, nothing is allowed before `v` has printed it.
    `shown` lays a call out for a width.
    """

    def __init__(
        self,
        approvals: Approvals,
        shown: Callable[[Question, int], list[str]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._approvals = approvals
        self._shown = shown
        self._clock = clock
        self._question: Question | None = None
        self._since = 0.0
        self._stage: Stage = "choice"
        self._laid: tuple[Question, int, list[str]] | None = None  # a long one takes a while
        self._legible = False  # what is decided on was drawn, or printed
        self._printed: Stage | None = None

    @property
    def question(self) -> Question | None:
        """What is asked now."""
        found = self._approvals.question
        if found is not self._question:
            self._question, self._stage, self._since = found, "choice", self._clock()
            self._legible, self._printed = False, None
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
        if question is None or stage in ("none", "reason") or (key != "n" and not self._legible):
            return
        self._legible = False  # until the next question, or the rule, is drawn
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
            self._approvals.deny(question, neutral(encodable(reason.strip())))

    def back(self) -> None:
        """From the rule or the reason back to the choice; from there, denies."""
        if self.stage in ("rule", "reason"):
            self._stage = "choice"
        elif self.stage == "choice":
            self.deny()

    def lines(self, height: int, width: int = 80) -> list[str]:
        """The question in at most `height` rows."""
        question, stage = self.question, self.stage
        if question is None:
            return []
        keys = self._keys(question, width)
        rule = self._rule(question, width) if stage == "rule" else []
        room = height - len(rule) - len(keys)
        whole = self.whole(width)
        cut = whole if len(whole) <= room else _cut(whole, room, width)
        legible = room >= 0 and bool(cut or rule) and _narrow(keys, width)
        if stage in ("none", "reason"):
            return [*cut, *keys][-height:] if height > 0 else []
        if not legible and self._printed == stage:
            cut, rule, keys = [], [], keys if len(keys) <= height else [_SHORT]
            legible = len(keys) <= height and _narrow(keys, width)
        self._legible = legible
        return [*cut, *rule, *keys] if legible else _wrapped(_TOO_SMALL, width)[: max(0, height)]

    def whole(self, width: int = 80) -> list[str]:
        """All lines of what the call would do."""
        question = self.question
        if question is None:
            return []
        if self._laid is None or self._laid[:2] != (question, width):
            self._laid = (question, width, self._shown(question, width))
        return self._laid[2]

    def printed(self, width: int = 80) -> list[str]:
        """All that is decided on, to be printed where it stays."""
        question, self._printed = self.question, self.stage
        if question is None:
            return []
        return [*self.whole(width), *(self._rule(question, width) if self._printed == "rule" else [])]

    def _rule(self, question: Question, width: int) -> list[str]:
        """The rule in full: it is seen before it is saved."""
        return exact(f"always allow: {question.rule.text}", width)

    def _keys(self, question: Question, width: int) -> list[str]:
        match self.stage:
            case "none":
                return [""]
            case "rule":
                keys = ["[y] save this rule", "[n] back"]
            case "reason":
                return _wrapped("why not? enter denies, with what you type as the reason for the model", width)
            case _:
                more = len(self._approvals.pending) - 1
                keys = ["[y]es", "[s]ession", *["[a]lways"] * (question.rule is not None), "[n]o, and why", "esc: no"]
                keys += [f"({more} more after this)"] * (more > 0)
        return _packed(keys, width)


def _cut(lines: list[str], room: int, width: int) -> list[str]:
    """The first of `lines` and how many are left out; nothing where there is too little room."""
    if room < MIN_PREVIEW:
        return []
    told = "... {} more lines; [v] prints them all"
    shown = room - len(_wrapped(told.format(len(lines)), width))
    return [*lines[:shown], *_wrapped(told.format(len(lines) - shown), width)] if shown > 0 else []


def _narrow(lines: list[str], width: int) -> bool:
    return all(len(line) <= width for line in lines)


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, max(1, width))


def _packed(words: list[str], width: int) -> list[str]:
    """As many of `words` in a row as there is room for."""
    rows: list[str] = []
    for word in words:
        if rows and len(rows[-1]) + 2 + len(word) <= width:
            rows[-1] += f"  {word}"
        else:
            rows.append(word)
    return rows
