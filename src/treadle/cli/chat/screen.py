"""The face of a conversation: lines that are finished go above, and what goes on is drawn anew a few times a second."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, cast

import msgspec

from treadle.cli.terminal import LONGEST, one_line
from treadle.events import ModelFinish, ModelRetry, ReasoningDelta, RunFinish, RunStart, StepStart, TextDelta

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from treadle import Event, Message
    from treadle.cli.chat.view import View

TICK_SECONDS = 0.125
HINT_SECONDS = 2.0
PIECE = 2000  # characters that the view is given at once
FEED_SECONDS = 0.05  # after which keys are looked at again, however much text there is
LONG_SECONDS = 10.0  # of a run whose end is worth a bell


class Paper(Protocol):
    """Where lines end up."""

    def print_above(self, lines: Sequence[str]) -> None:
        """Puts finished lines above what is drawn."""
        ...

    def redraw(self) -> None:
        """Draws what is below again, soon."""
        ...

    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        ...

    def ring(self, why: str) -> None:
        """Calls the person, who may be looking elsewhere."""
        ...


class Screen:
    """What is shown of a conversation. `give_back` takes what will not be said by itself, for the prompt.

    `away`: the terminal is somebody else's for now, an editor's for instance; lines wait until it is back.
    """

    def __init__(
        self,
        view: View,
        paper: Paper,
        *,
        busy: Callable[[], bool],
        give_back: Callable[[str], None],
        changed: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.view: View = view
        self.away: bool = False
        self._paper = paper
        self._busy = busy
        self._take_back = give_back
        self._on_change = changed
        self._clock = clock
        self._waiting: deque[Event | Callable[[int], list[str]]] = deque()  # what no lines are made of yet
        self._size = 0  # of the text in it
        self._streamed = False  # some of the step's answer
        self._lines: list[str] = []
        self._live: list[str] = []
        self._timer: asyncio.TimerHandle | None = None
        self._hint = ("", 0.0)
        self._began = 0.0

    # What is told

    def event(self, event: Event) -> None:
        """Shows how the log goes on, at the next tick."""
        if isinstance(event, StepStart | ModelRetry):
            self._streamed = False
        elif isinstance(event, ModelFinish) and not self._streamed and event.message.text:  # it came whole
            self._wait(TextDelta(text=event.message.text))
        self._wait(event)
        if not isinstance(event, TextDelta | ReasoningDelta):
            self._feed_some()
        self._tick_soon()
        if isinstance(event, RunStart):
            self._began = self._clock()
        elif isinstance(event, RunFinish) and self._clock() - self._began > LONG_SECONDS:
            self._paper.ring("the answer is there")

    async def room(self) -> None:
        """Waits until all text but a little is shown: what comes faster than it can be drawn waits where it is made."""
        while self._size > PIECE and not self.away:
            self.flush()
            await asyncio.sleep(0)

    def user(self, text: str) -> None:
        """Shows what the person said."""
        self._add(self.view.user, text)

    def output(self, text: str) -> None:
        """Shows lines as they are, but for what a terminal would obey."""
        self._add(self.view.note, text.removesuffix("\n"))

    def note(self, text: str) -> None:
        """Shows a line."""
        self._add(self.view.note, one_line(text, LONGEST))

    def error(self, text: str) -> None:
        """Shows what went wrong, in a line."""
        self._add(self.view.error, one_line(text, LONGEST))

    def replay(self, messages: Sequence[Message]) -> None:
        """Shows an earlier conversation."""
        self._add(self.view.replay, messages)

    def give_back(self, text: str) -> None:
        """Hands over what will not be said by itself."""
        self._take_back(text)

    def changed(self) -> None:
        """Draws again what is below."""
        self._on_change()
        self.flush()
        if self._busy():
            self._tick_soon()

    def cost(self) -> str:
        """What was spent, in words."""
        return self.view.spent

    def hint(self, text: str) -> None:
        """Says something for two seconds, where the status stands."""
        self._hint = (text, self._clock() + HINT_SECONDS)
        asyncio.get_running_loop().call_later(HINT_SECONDS, self._paper.redraw)
        self._paper.redraw()

    # What is drawn

    @property
    def width(self) -> int:
        """The columns there are."""
        return self._paper.size()[0]

    def live(self) -> list[str]:
        """The lines of what goes on, as of the last tick."""
        rows = self._paper.size()[1]
        return self._live[-max(0, rows - 4) :] if rows > 5 else []

    def status(self) -> list[str]:
        """The status line, or the hint in its place."""
        columns, rows = self._paper.size()
        if rows < 3:
            return []
        text, until = self._hint
        line = text[: columns - 1] if self._clock() < until else self.view.status(self._clock(), columns - 1)
        return [*([""] if rows > 8 else []), line]

    def flush(self) -> None:
        """Prints what is finished and draws what goes on."""
        if self.away:
            return
        self._feed_some()
        lines, self._lines = self._lines, []
        columns, rows = self._paper.size()
        self._live = self.view.live(self._clock(), columns, max(1, rows - 6)) if self._busy() else []
        self._paper.print_above(lines)
        self._paper.redraw()

    def close(self) -> None:
        """Prints what is left; nothing is drawn any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiting:
            self._feed_some()
        lines, self._lines = self._lines, []
        self._paper.print_above(lines)

    def _wait(self, event: Event) -> None:
        """Puts an event behind what waits, a long text in pieces. `room` waits for text."""
        if not isinstance(event, TextDelta | ReasoningDelta):
            self._waiting.append(event)
            return
        self._streamed |= isinstance(event, TextDelta)
        self._size += len(event.text)
        if len(event.text) <= PIECE:  # as nearly all are
            self._waiting.append(event)
            return
        for begin in range(0, len(event.text), PIECE):
            self._waiting.append(msgspec.structs.replace(event, text=event.text[begin : begin + PIECE]))

    def _feed_some(self) -> None:
        """Has the view make lines of what waits, in its order, for as long as nobody notices."""
        begun = self._clock()
        while self._waiting and self._clock() - begun <= FEED_SECONDS:
            first = self._waiting.popleft()
            if callable(first):
                self._lines += first(self.width)
                continue
            if isinstance(first, TextDelta | ReasoningDelta):
                first = self._piece(first)
            self._lines += self.view.feed(first, self._clock(), self.width)

    def _piece(self, first: TextDelta | ReasoningDelta) -> Event:
        """As much text as the view is given at once: of `first`, and of what follows of its kind."""
        texts, size = [first.text], len(first.text)
        while size < PIECE and self._waiting and type(self._waiting[0]) is type(first):
            texts.append(cast("TextDelta", self._waiting.popleft()).text)
            size += len(texts[-1])
        self._size -= size
        return msgspec.structs.replace(first, text="".join(texts))

    def _add(self, made: Callable[[Any, int], list[str]], what: Any) -> None:
        self._waiting.append(partial(made, what))
        self.flush()
        if self._waiting and not self.away:
            self._tick_soon()

    def _tick_soon(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(TICK_SECONDS, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.flush()
        if self._busy() or self._waiting:
            self._tick_soon()
