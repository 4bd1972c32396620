"""Text that streams in: what is finished of it, and what the rest looks like now."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from treadle.cli.chat.view._cells import wrap
from treadle.cli.chat.view._signs import ending

if TYPE_CHECKING:
    from treadle.cli.chat.view._blocks import Blocks
    from treadle.cli.chat.view._cells import Line


class Thought:
    """Reasoning that is shown: its lines as they are, dimmed."""

    def line(self, text: str, width: int) -> list[Line]:
        return wrap([("dim", text.rstrip())], width)

    def end(self, width: int) -> list[Line]:  # noqa: ARG002 - as of `Blocks`
        return []

    def shorten(self, most: int) -> None:
        """Holds nothing."""


class Stream:
    """Pieces of text in, finished lines out. How the text is cut into pieces makes no difference."""

    def __init__(self, blocks: Blocks | Thought) -> None:
        self._blocks = blocks
        self._open: list[str] = []  # of the last line
        self._tail: tuple[int, int, list[Line]] | None = None

    def feed(self, text: str, width: int) -> list[Line]:
        """The lines that are finished by `text`."""
        self._tail = None
        *whole, rest = text.split("\n")
        made: list[Line] = []
        for line in whole:
            made += self._blocks.line("".join([*self._open, line]), width)
            self._open.clear()
        if rest:
            self._open.append(rest)
        return made

    def end(self, width: int) -> list[Line]:
        """The lines that are left."""
        made = self.feed("\n", width) if self._open else []
        self._tail = None
        return made + self._blocks.end(width)

    def tail(self, width: int, height: int) -> list[Line]:
        """The last lines of what is not finished, as they would be if nothing followed."""
        if self._tail is None or self._tail[:2] != (width, height):
            self._tail = (width, height, self._look(width, height))
        return self._tail[2]

    def _look(self, width: int, height: int) -> list[Line]:
        most = max(400, width * height)
        last = "".join(self._open)
        self._open = [last] if last else []
        ahead = copy.deepcopy(self._blocks)
        ahead.shorten(most)
        made = ahead.line(ending(last, most), width) if last else []
        made += ahead.end(width)
        return made[-height:] if height > 0 else []
