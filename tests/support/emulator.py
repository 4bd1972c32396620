"""A terminal in memory: pyte's, made to do what terminals do where the client of a chat depends on it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pyte
from pyte.screens import Char, Margins
from wcwidth import wcwidth

# What joins or varies the character before it: pyte draws combining marks, but drops a text behind one of these.
_JOINS = re.compile("([\u200b-\u200d\u2060\ufe00-\ufe0f])")


class Emulator(pyte.Screen):
    """Keeps what scrolls out at the top, and answers what the program asks of the terminal by `answer`.

    A window that gets lower pushes lines into the history; one that gets narrower cuts them, as xterm does.
    """

    def __init__(self, columns: int, lines: int, answer: Callable[[str], object]) -> None:
        self.history: list[str] = []
        self.titles: list[str] = []
        self.bells = 0
        self._answer = answer
        super().__init__(columns, lines)

    def write_process_input(self, data: str) -> None:
        self._answer(data)

    def bell(self, *_: Any) -> None:
        self.bells += 1

    def set_title(self, param: str) -> None:
        self.titles.append(param)

    def draw(self, data: str) -> None:
        for piece in _JOINS.split(data):
            if _JOINS.fullmatch(piece):
                self._join(piece)
            elif piece:
                super().draw(piece)

    def _join(self, mark: str) -> None:
        row = self.buffer[self.cursor.y]
        at = self.cursor.x - 1
        while at > 0 and row[at].data == "":  # the second half of a wide character
            at -= 1
        if at >= 0 and row[at].data.strip():
            row[at] = row[at]._replace(data=row[at].data + mark)

    def select_graphic_rendition(self, *attrs: int, **kwargs: Any) -> None:
        """Faint, which pyte has no place for, stands where blinking would: no client blinks."""
        rest, taken = list(attrs), []
        while rest:
            code = rest.pop(0)
            size = {5: 2, 2: 4}.get(rest[0] if rest else 0, 0) if code in (38, 48) else 0
            taken += {2: [5], 22: [22, 25]}.get(code, [code]) + rest[:size]
            del rest[:size]
        super().select_graphic_rendition(*taken, **kwargs)

    def index(self) -> None:
        top, bottom = self.margins or Margins(0, self.lines - 1)
        if self.cursor.y == bottom and top == 0:
            self.history.append(self.line(0))
        super().index()

    def erase_in_display(self, how: int = 0, *args: Any, **kwargs: Any) -> None:
        if how == 3:
            self.history.clear()
        else:
            super().erase_in_display(how, *args, **kwargs)

    def resize(self, lines: int | None = None, columns: int | None = None) -> None:
        lines, columns = lines or self.lines, columns or self.columns
        surplus = max(0, self.cursor.y + 1 - lines)
        self.history += [self.line(y) for y in range(surplus)]
        kept = {y - surplus: row for y, row in self.buffer.items() if 0 <= y - surplus < lines}
        self.buffer.clear()
        for y, row in kept.items():
            self.buffer[y].update({x: cell for x, cell in row.items() if x < columns})
        self.lines, self.columns, self.margins = lines, columns, None
        self.cursor.y -= surplus
        self.cursor.x = min(self.cursor.x, columns - 1)
        self.tabstops = set(range(8, columns, 8))

    def cells(self, y: int) -> list[Char]:
        """The characters of a row, a wide one once."""
        row = self.buffer[y]
        return [row[x] for x in range(self.columns) if row[x].data]

    def line(self, y: int) -> str:
        return "".join(cell.data for cell in self.cells(y)).rstrip()

    def text(self) -> list[str]:
        """The rows down to the last one with something in it."""
        rows = [self.line(y) for y in range(self.lines)]
        while rows and not rows[-1]:
            rows.pop()
        return rows

    def column_of(self, y: int, found: str) -> int:
        """In which column `found` begins in row `y`; -1 where it is not."""
        column, text, wanted = 0, self.line(y), self.line(y).find(found)
        if wanted < 0:
            return -1
        for character in text[:wanted]:
            column += max(0, wcwidth(character))
        return column
