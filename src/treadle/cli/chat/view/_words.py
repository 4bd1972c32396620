"""What a model writes: its answer as Markdown, and its reasoning dimmed or folded to a line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.cli.chat.view._answer import Stream, Thought
from treadle.cli.chat.view._blocks import Blocks
from treadle.cli.chat.view._cells import clip
from treadle.cli.chat.view._describe import duration

if TYPE_CHECKING:
    from treadle.cli.chat.view._cells import Line


class Spacing:
    """Empty lines: none within a kind of lines, one between two kinds."""

    def __init__(self) -> None:
        self._last = ""

    def put(self, lines: list[Line], kind: str) -> list[Line]:
        """Lines that come next, with the empty line before them that is due."""
        made = self.before(lines, kind)
        if lines:
            self._last = kind
        return made

    def apart(self, lines: list[Line]) -> list[Line]:
        """Lines that stand alone."""
        self._last = self._last and "another"
        return self.put(lines, "alone")

    def before(self, lines: list[Line], kind: str) -> list[Line]:
        """As `put`, of lines that are not there to stay."""
        return [[], *lines] if lines and self._last not in ("", kind) else lines


class Words:
    """The texts of a run, one after the other. At most one is open."""

    thinking: float | None  # since when
    answering: bool

    def __init__(self, spacing: Spacing, *, marks: bool) -> None:
        self._spacing = spacing
        self._marks = marks
        self._stream: Stream | None = None
        self._count = 0
        self.thinking = None
        self.answering = False

    @property
    def kind(self) -> str:
        """What the lines of the open text are to the spacing: those of another text are another kind."""
        return f"text {self._count}"

    def text(self, text: str, now: float, width: int) -> list[Line]:
        """The lines that are finished by a piece of the answer."""
        before = [] if self.answering else self.end(now, width)
        if self._stream is None:
            self._open(Stream(Blocks(marks=self._marks)))
        self.answering = True
        return [*before, *self._feed(text, width)]

    def reasoning(self, text: str, now: float, width: int, *, shown: bool) -> list[Line]:
        """The lines that are finished by a piece of reasoning. If it is not shown, its end is."""
        before = self.end(now, width) if self.answering else []
        if self.thinking is None:
            self.thinking = now
        if not shown:
            return before
        if self._stream is None:
            self._open(Stream(Thought()))
        return [*before, *self._feed(text, width)]

    def end(self, now: float, width: int) -> list[Line]:
        """The lines that are left of the open text."""
        stream, thinking = self._stream, self.thinking
        self._stream, self.thinking, self.answering = None, None, False
        if stream is not None:
            return self._spacing.put(stream.end(width), self.kind)
        if thinking is not None:
            return self._spacing.apart([clip([("dim", f"thought for {duration(now - thinking)}")], width)])
        return []

    def tail(self, width: int, height: int) -> list[Line]:
        """The last lines of the open text, as they look now."""
        return [] if self._stream is None else self._stream.tail(width, height)

    def _open(self, stream: Stream) -> None:
        self._stream = stream
        self._count += 1

    def _feed(self, text: str, width: int) -> list[Line]:
        assert self._stream is not None
        return self._spacing.put(self._stream.feed(text, width), self.kind)
