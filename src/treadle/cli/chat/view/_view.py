"""The event log of a conversation as lines of a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.cli.chat.view._cells import clip, folded, hanging, wrap
from treadle.cli.chat.view._describe import counted, duration
from treadle.cli.chat.view._history import replayed, said
from treadle.cli.chat.view._notes import retried, sources, stopped, summarised
from treadle.cli.chat.view._preview import preview
from treadle.cli.chat.view._running import Running
from treadle.cli.chat.view._status import Spent, status_line, waiting
from treadle.cli.chat.view._theme import Paint
from treadle.cli.chat.view._words import Spacing, Words
from treadle.cli.terminal import LONGEST, one_line
from treadle.events import (
    ApprovalRequest,
    Compaction,
    ModelFinish,
    ModelRetry,
    ReasoningDelta,
    RunFinish,
    RunStart,
    StepFinish,
    StepStart,
    TextDelta,
    ToolCallDelta,
    ToolFinish,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from treadle.cli.chat.view._cells import Line
    from treadle.cli.chat.view._theme import Theme
    from treadle.events import Event
    from treadle.messages import Message
    from treadle.usage import Usage

_NOTE_LINES = 200


class View:
    """What a conversation looks like: events in, lines out. It knows no terminal and no clock.

    Lines that `feed` gives are final and belong above those of `live`, which show what is going on and are drawn anew
    whenever that is wanted; times are in seconds on any clock, widths and heights in cells. Of a run that ends, its
    stop and its error are among the lines. What the user said is not: `user` gives the lines of that.

    `change` gives the unified diff of what a call has changed, by its id. `listed_prices`: the model is asked where its
    provider's list prices hold. `window` is how many tokens the model's context has, if that is known.
    """

    theme: Theme
    show_reasoning: bool
    model: str
    mode: str
    window: int | None

    def __init__(
        self,
        theme: Theme = "dark",
        *,
        show_reasoning: bool = False,
        change: Callable[[str], str] = lambda _: "",
        model: str = "",
        mode: str = "",
        window: int | None = None,
        listed_prices: bool = True,
    ) -> None:
        self.theme = theme
        self.show_reasoning = show_reasoning
        self.model = model
        self.mode = mode
        self.window = window
        self._paint = Paint(theme)
        self._spacing = Spacing()
        self._words = Words(self._spacing, marks=not self._paint.coloured)
        self._running = Running(change)
        self._spent = Spent(listed_prices=listed_prices)
        self._streamed = False  # whether the step's answer has come in pieces
        self._active = False
        self._began = self._since = 0.0  # the run, and what it waits for
        self._retry: float | None = None  # when the next attempt begins

    @property
    def context(self) -> int | None:
        """The tokens of the last request and its answer, if they are known."""
        return self._spent.context

    @context.setter
    def context(self, tokens: int | None) -> None:
        self._spent.context = tokens

    @property
    def usage(self) -> Usage:
        """The tokens of all runs so far."""
        return self._spent.usage

    @property
    def cost(self) -> str:
        """What all runs have cost in words, an estimate marked; empty where that is not known."""
        cost = self._spent.cost()
        return "" if cost is None else str(cost)

    @property
    def spent(self) -> str:
        """What all runs have taken, in words."""
        usage = self.usage
        cached = f", {usage.cache_read_tokens:,} read from the cache" if usage.cache_read_tokens else ""
        return f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out{cached}; {self.cost or 'cost unknown'}"

    def feed(self, event: Event, now: float, width: int) -> list[str]:
        """The lines that are finished by an event, in the order of a log."""
        self._spent.feed(event)
        return self._paint(self._lines(event, now, max(1, width)))

    def live(self, now: float, width: int, height: int) -> list[str]:
        """At most `height` lines of what is going on: the end of the answer so far, and the calls that run."""
        width, height = max(1, width), max(0, height)
        spinner = self._paint.spinner(now)
        calls = self._running.live(now, width, spinner)
        if len(calls) > height:
            shown = max(0, height - 1)
            calls = [*calls[:shown], clip([("dim", f"... and {len(calls) - shown} more")], width)]
        tail = self._words.tail(width, height - len(calls))
        kind = self._words.kind
        if self._active and not tail and not calls:
            what, seconds = self._waits(now)
            tail, kind = [clip([("running", f"{spinner} "), ("dim", f"{what} {duration(seconds)}")], width)], "waiting"
        lines = self._spacing.before(tail, kind)
        lines += [[], *calls] if calls and tail else self._spacing.before(calls, "calls")
        return self._paint(lines[len(lines) - height :] if len(lines) > height else lines)

    def status(self, now: float, width: int) -> str:
        """One line: what is waited for and how long, the mode, the model, the context used, tokens and cost."""
        doing = waiting(self._paint.spinner(now), *self._waits(now)) if self._active else []
        line = status_line(
            doing, model=self.model, mode=self.mode, spent=self._spent, window=self.window, width=max(1, width)
        )
        return self._paint([line])[0]

    def replay(self, messages: Iterable[Message], width: int) -> list[str]:
        """The lines of an earlier conversation."""
        marks = not self._paint.coloured
        return self._apart(replayed(messages, max(1, width), show_reasoning=self.show_reasoning, marks=marks))

    def user(self, text: str, width: int) -> list[str]:
        """What the user said."""
        return self._apart(said(text, max(1, width)))

    def note(self, text: str, width: int) -> list[str]:
        """Something that is good to know; its line ends are kept."""
        width = max(1, width)
        return self._apart(folded(text, _NOTE_LINES, width, lambda some: hanging(some, width, "dim")))

    def error(self, text: str, width: int) -> list[str]:
        """What went wrong, as one line of text."""
        return self._apart(wrap([("error", f"error: {one_line(text, LONGEST)}")], max(1, width)))

    def approval(self, name: str, args: str, width: int, *, change: str = "") -> list[str]:
        """What a call would do, to be shown before somebody is asked: a diff (`change`), a command, or arguments.

        The lines may be drawn again and again: no empty line comes before them.
        """
        return self._paint(preview(name, args, change, max(1, width)))

    def _apart(self, lines: list[Line]) -> list[str]:
        return self._paint(self._spacing.apart(lines))

    def _lines(self, event: Event, now: float, width: int) -> list[Line]:
        match event:
            case TextDelta(text="") | ReasoningDelta(text="") | StepFinish():
                return []
            case TextDelta(text=text):
                self._streamed, self._retry = True, None
                return self._words.text(text, now, width)
            case ReasoningDelta(text=text):
                self._retry = None
                return self._words.reasoning(text, now, width, shown=self.show_reasoning)
            case ToolCallDelta():
                self._retry = None
                return self._call(event, now, width)
            case RunStart() | StepStart():
                return self._start(event, now)
            case ModelFinish():
                return self._answered(event, now, width)
            case ModelRetry() | Compaction() | RunFinish():
                return [*self._words.end(now, width), *self._note(event, now, width)]
            case _:
                return self._call(event, now, width)

    def _start(self, event: RunStart | StepStart, now: float) -> list[Line]:
        self._since, self._streamed, self._retry = now, False, None
        if isinstance(event, RunStart):
            self._began, self._active = now, True
            self.model = self.model or str(event.model)
            self._running.clear()
        return []

    def _answered(self, event: ModelFinish, now: float, width: int) -> list[Line]:
        lines: list[Line] = []
        if not self._streamed and event.message.text:  # it came whole
            lines += self._words.text(event.message.text, now, width)
        lines += self._words.end(now, width)
        self._running.feed(event, now, width)
        self._since, self._streamed = now, False
        return [*lines, *self._spacing.put(sources(event.message, width), "sources")]

    def _note(self, event: ModelRetry | Compaction | RunFinish, now: float, width: int) -> list[Line]:
        self._running.feed(event, now, width)
        if isinstance(event, Compaction):
            return self._spacing.apart(summarised(event, width))
        if isinstance(event, ModelRetry):
            void, self._streamed, self._retry = self._streamed, False, now + event.delay_seconds
            return self._spacing.put(retried(event, width, void=void), "retries")
        self._active, self._retry = False, None
        return self._spacing.apart(stopped(event, now - self._began, width))

    def _call(self, event: Event, now: float, width: int) -> list[Line]:
        """A tool's event. The text before it is finished: it would be out of order else."""
        before = self._words.end(now, width)
        lines = self._spacing.put(self._running.feed(event, now, width), "calls")
        if isinstance(event, ApprovalRequest | ToolFinish) and not self._running.names:
            self._since = now
        return [*before, *lines]

    def _waits(self, now: float) -> tuple[str, float]:
        """What the run waits for, and since how many seconds."""
        if self._running.asking:
            return "approval", now - self._since
        if names := self._running.names:
            return names[0] if len(names) == 1 else counted(len(names), "call"), now - self._running.since
        if self._retry is not None and self._retry > now:
            return "retry in", self._retry - now
        if self._running.writing:
            return "writing a call", now - self._since
        if self._words.thinking is not None:
            return "thinking", now - self._words.thinking
        return "answering" if self._words.answering else "waiting for the model", now - self._since
