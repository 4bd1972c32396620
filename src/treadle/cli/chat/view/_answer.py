"""Text that streams in: what is finished of it, and what the rest looks like now."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from treadle.cli.chat.view._cells import wrap
from treadle.cli.chat.view._signs import ending

if TYPE_CHECKING:
    from treadle.cli.chat.view._blocks import Blocks
    from treadle.cli.chat.view._cells import Line

_LONGEST = 10_000  # characters of a line; more would be too much to look at for one that waits at the prompt


class Thought:
    """Reasoning that is shown: its lines as they are, dimmed."""

    def line(self, text: str, width: int) -> list[Line]:
        return wrap([("dim", text.rstrip())], width)

    more = line

    def end(self, width: int) -> list[Line]:  # noqa: ARG002 - as of `Blocks`
        return []

    def shorten(self, most: int) -> None:
        """Holds nothing."""


class Stream:
    """Pieces of text in, finished lines out. How the text is cut into pieces makes no difference."""

    def __init__(self, blocks: Blocks | Thought) -> None:
        self._blocks = blocks
        self._open: list[str] = []  # of the last line
        self._size = 0  # of that
        self._goes_on = False  # the last line, of which the beginning is out
        self._tail: tuple[int, int, list[Line]] | None = None

    def feed(self, text: str, width: int) -> list[Line]:
        """The lines that are finished by `text`."""
        self._tail = None
        *whole, rest = text.split("\n")
        made: list[Line] = []
        for line in whole:
            made += self._add(line, width)
            made += self._finish(width)
        return made + self._add(rest, width)

    def end(self, width: int) -> list[Line]:
        """The lines that are left."""
        self._tail = None
        made = self._finish(width) if self._open else []
        return made + self._blocks.end(width)

    def _add(self, text: str, width: int) -> list[Line]:
        """Adds to the last line. Of one that is too long what fills a line of the longest kind is finished."""
        made: list[Line] = []
        begin = 0
        while self._size + len(text) - begin > _LONGEST:
            end = begin + _LONGEST - self._size
            self._open.append(text[begin:end])
            made += self._finish(width)
            self._goes_on, begin = True, end
        if begin < len(text):
            self._open.append(text[begin:])
            self._size += len(text) - begin
        return made

    def _finish(self, width: int) -> list[Line]:
        take = self._blocks.more if self._goes_on else self._blocks.line
        line = "".join(self._open)
        self._open.clear()
        self._size, self._goes_on = 0, False
        return take(line, width)

    def tail(self, width: int, height: int) -> list[Line]:
        """The last lines of what is not finished, as they would be if nothing followed."""
        if self._tail is None or self._tail[:2] != (width, height):
            self._tail = (width, height, self._look(width, height))
        return self._tail[2]

    def _look(self, width: int, height: int) -> list[Line]:
        most = max(400, width * height)
        last = "".join(self._open)
        self._open = [last] if last else []
        ahead = copy.copy(self._blocks)
        ahead.shorten(most)
        take = ahead.more if self._goes_on else ahead.line
        made = take(ending(last, most), width) if last else []
        made += ahead.end(width)
        return made[-height:] if height > 0 else []
