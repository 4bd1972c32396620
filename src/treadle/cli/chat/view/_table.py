"""Tables."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from treadle.cli.chat.view._cells import line_cells, wrap
from treadle.cli.chat.view._inline import inline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from treadle.cli.chat.view._cells import Line

_DELIMITER = re.compile(r":?-+:?")
_BAR = re.compile(r"(?<!\\)\|")
_LEAST = 6  # cells of a column that had to give way
_MOST = 5000  # cells
_BETWEEN = " │ "


def begins_table(header: str, line: str) -> bool:
    """Whether two lines are the header of a table and what follows it."""
    if "|" not in header or "-" not in line:
        return False
    signs = _texts(line)
    return len(signs) == len(_texts(header)) and all(_DELIMITER.fullmatch(sign) for sign in signs)


def table(lines: Sequence[str], width: int, *, marks: bool) -> list[Line]:
    """The rows of a table in columns; in a list of what each row has where there is no room for columns.

    One with more cells than anybody looks at is shown as it was written.
    """
    texts = [_texts(line) for line in (lines[0], *lines[2:])]
    count = max(map(len, texts))
    if count * len(texts) > _MOST:
        return wrap([("", "\n".join(lines))], width, words=False)
    texts = [row + [""] * (count - len(row)) for row in texts]
    sides = ([_side(text) for text in _texts(lines[1])] + ["left"] * count)[:count]
    rows = [
        [inline(text, "strong" if index == 0 else "", marks=marks and index > 0) for text in row]
        for index, row in enumerate(texts)
    ]
    widths = _widths(rows, width - len(_BETWEEN) * (count - 1))
    if not widths:
        return _listed(rows, width)
    rule: Line = [("dim", "─┼─".join("─" * column for column in widths))]
    head, *body = [_row(row, widths, sides) for row in rows]
    return [*head, rule, *(line for row in body for line in row)]


def _texts(line: str) -> list[str]:
    line = line.strip().removeprefix("|")
    if line.endswith("|") and not line.endswith("\\|"):
        line = line[:-1]
    return [text.strip().replace("\\|", "|") for text in _BAR.split(line)]


def _side(text: str) -> str:
    if text.endswith(":"):
        return "center" if text.startswith(":") else "right"
    return "left"


def _widths(rows: list[list[Line]], room: int) -> list[int]:
    """The columns' widths, the widest ones cut down until all fit into `room`; none where they cannot."""
    widths = [max(1, *(line_cells(cell) for cell in column)) for column in zip(*rows, strict=True)]
    if sum(min(width, _LEAST) for width in widths) > room:
        return []
    while (over := sum(widths) - room) > 0:
        widest = max(widths)
        next_width = max([width for width in widths if width < widest] + [_LEAST])
        many = widths.count(widest)
        fewer = max(1, min(widest - next_width, over // many))
        for index, width in enumerate(widths):
            if width == widest and over > 0:
                widths[index] -= min(fewer, over)
                over -= min(fewer, over)
    return widths


def _row(row: list[Line], widths: list[int], sides: list[str]) -> list[Line]:
    cells = [wrap(cell, width) for cell, width in zip(row, widths, strict=True)]
    made: list[Line] = []
    for number in range(max(map(len, cells))):
        line: Line = []
        for index, (cell, width) in enumerate(zip(cells, widths, strict=True)):
            part = cell[number] if number < len(cell) else []
            line += [("dim", _BETWEEN)] if index else []
            line += _placed(part, width, sides[index], last=index == len(cells) - 1)
        made.append(line)
    return made


def _placed(part: Line, width: int, side: str, *, last: bool) -> Line:
    spare = width - line_cells(part)
    before = {"left": 0, "center": spare // 2, "right": spare}[side]
    after = 0 if last else spare - before
    return [*([("", " " * before)] if before else []), *part, *([("", " " * after)] if after else [])]


def _listed(rows: list[list[Line]], width: int) -> list[Line]:
    head, *body = rows
    made: list[Line] = []
    for row in body or [head]:
        made += [[]] if made else []
        for name, cell in zip(head, row, strict=True):
            made += wrap([*name, ("", ": "), *cell] if body else cell, width)
    return made
