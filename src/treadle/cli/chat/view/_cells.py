"""How wide text is in a terminal, and where it may be cut.

Terminals differ: one draws a joined emoji in two cells, another draws its parts one by one. A width here is that of the
terminal that needs the most, so that no line ever wraps by itself; and no grapheme is cut where it fits.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, TypeAlias

from wcwidth import iter_graphemes, wcswidth, wcwidth

from treadle.cli.terminal import neutral
from treadle.messages import encodable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

Span: TypeAlias = tuple[str, str]  # a style's name and text that has it
Line: TypeAlias = list[Span]

_ENDS = 50_000  # characters at each end of a text that is longer than anybody reads
_WIDENS = "\ufe0f"  # asks for the emoji form, which is wide, of a character that may be narrow
_EAST = r"[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef\U00020000-\U0003fffd]"
_MARKS = r"\u0300-\u036f\u3099\u309a\ufe00-\ufe0f\U000e0100-\U000e01ef"
_STOPS = r"\u3001\u3002\uff0c\uff0e\uff1a\uff1b\uff01\uff1f\u300d\u300f\u3011\uff09\u30fc"
_STICKS = rf"[{_MARKS}{_STOPS}]*"
_COLUMN = re.compile(r"\S {2,}(?=\S)")  # what ends where the second column begins
# What stays together: blanks, a word, or a character of a script that is written without blanks.
_WORD = re.compile(rf"\s+|{_EAST}{_STICKS}|(?:(?!{_EAST})\S)+")


@functools.lru_cache(8192)
def _cell(char: str) -> int:
    # A vowel sign may take a cell of its own behind a letter, though it takes none by itself.
    return max(0, wcwidth(char), wcswidth(f"0{char}") - 1) + (char == _WIDENS)


def cells(text: str) -> int:
    """How many cells `text`, which is `plain`, takes at most."""
    return len(text) if text.isascii() else sum(map(_cell, text))


def plain(text: str) -> str:
    """`text` without anything that a terminal would obey but line ends; tabs are blanks, half characters marked."""
    if text.isprintable():
        return text
    return neutral(encodable(text.expandtabs(4)))


def wrap(spans: Iterable[Span], width: int, *, words: bool = True) -> list[Line]:
    """`spans` in lines of at most `width` cells, broken between words where that is possible; at least one line.

    Line ends in the text break lines too. With `words=False` a line is only cut where it is full, as code is.
    """
    return [cut for line in _lines(spans, width) for cut in _wrapped(line, width, words=words)]


def hanging(text: str, width: int, style: str) -> list[Line]:
    """`text` in lines, where what goes on stands below the text of an indented line, or of its second column."""
    lines: list[Line] = []
    for line in plain(text).split("\n"):
        indent = _indent(line, width)
        first, *rest = wrap([(style, line)], width)
        lines.append(first)
        if rest:
            more = line[sum(len(text) for _, text in first) :].lstrip()
            lines += [[(style, " " * indent), *cut] for cut in wrap([(style, more)], width - indent)]
    return lines


def _indent(line: str, width: int) -> int:
    own = len(line) - len(line.lstrip(" "))
    found = _COLUMN.search(line, own)
    wanted = (found.end(), own + 2) if found and own else (own,)
    return next((indent for indent in wanted if indent <= width // 2), 0)


def clip(spans: Iterable[Span], width: int) -> Line:
    """The first line of `spans`, with an ellipsis where it goes on behind `width` cells."""
    lines = wrap(spans, width, words=False)
    if len(lines) == 1:
        return lines[0]
    return [*(wrap(lines[0], width - 1, words=False)[0] if width > 1 else []), ("", "…")]


def beside(left: Iterable[Span], right: Sequence[Span], width: int) -> Line:
    """One line: `left`, cut where there is no room for all, and then the whole of `right`, if that fits at all."""
    room = width - line_cells(right)
    if room < 8:
        return clip([*left, *right], width)
    return [*clip(left, room), *right]


def line_cells(line: Iterable[Span]) -> int:
    """How many cells a line takes."""
    return sum(cells(text) for _, text in line)


def middle(lines: list[Line], most: int, width: int, style: str = "dim") -> list[Line]:
    """`lines`, of more than `most` only the first and the last ones, and how many are left out between."""
    if len(lines) <= most:
        return lines
    half = most // 2
    note = clip([(style, f"[... {len(lines) - 2 * half} lines ...]")], width)
    return [*lines[:half], note, *lines[-half:]]


def folded(text: str, most: int, width: int, broken: Callable[[str], list[Line]]) -> list[Line]:
    """The lines of `text`, of more than `most` only the first and the last ones. Only what may be shown is broken."""
    if len(text) <= 2 * _ENDS:
        return middle(broken(text), most, width)
    note = clip([("dim", f"[... {len(text) - 2 * _ENDS:,} characters and more ...]")], width)
    return [*broken(text[:_ENDS])[: most // 2], note, *broken(text[-_ENDS:])[-(most // 2) :]]


def _lines(spans: Iterable[Span], width: int) -> list[Line]:
    lines: list[Line] = [[]]
    for style, text in spans:
        first, *others = plain(text).split("\n")
        lines[-1].append((style, _narrow(first) if width < 2 else first))
        lines.extend([(style, _narrow(other) if width < 2 else other)] for other in others)
    return lines


def _narrow(text: str) -> str:
    """`text` for a terminal of one column."""
    return text if text.isascii() else "".join("?" if cells(one) > 1 else one for one in iter_graphemes(text))


def _wrapped(line: Line, width: int, *, words: bool) -> list[Line]:
    text = "".join(text for _, text in line)
    if cells(text) <= width:
        return [line]
    ends = _breaks(text, width, words=words)
    return [_stripped(part) if words else part for part in _parts(line, ends)]


def _breaks(text: str, width: int, *, words: bool) -> list[int]:
    """Where lines end in `text`, its end included."""
    ends: list[int] = []
    column = 0
    for begin, piece in _pieces(text, words=words):
        size = cells(piece)
        if piece.isspace() and words:
            column += size  # what stands over at the end of a line is not shown
        elif column + size <= width:
            column += size
        else:
            if column and words:
                ends.append(begin)
                column = 0
            for offset, taken in _units(piece, width):
                if column + taken > width:
                    ends.append(begin + offset)
                    column = 0
                column += taken
    return [*ends, len(text)]


def _pieces(text: str, *, words: bool) -> Iterator[tuple[int, str]]:
    if not words:
        yield 0, text
        return
    for word in _WORD.finditer(text):
        yield word.start(), word[0]


def _units(piece: str, width: int) -> Iterator[tuple[int, int]]:
    """Where each thing that is not cut begins, and its cells: a grapheme, or a part of one that fits into no line."""
    if piece.isascii():
        yield from ((offset, 1) for offset in range(len(piece)))
        return
    offset = 0
    for grapheme in iter_graphemes(piece):
        for unit in [grapheme] if cells(grapheme) <= width else grapheme:
            yield offset, cells(unit)
            offset += len(unit)


def _parts(line: Line, ends: list[int]) -> list[Line]:
    """`line` cut at offsets into its text."""
    parts: list[Line] = [[]]
    position, due = 0, iter(ends)
    end = next(due)
    for style, text in line:
        rest = text
        while position + len(rest) > end:
            parts[-1].append((style, rest[: end - position]))
            parts.append([])
            rest = rest[end - position :]
            position, end = end, next(due)
        parts[-1].append((style, rest))
        position += len(rest)
    return [[(style, text) for style, text in part if text] for part in parts]


def _stripped(line: Line) -> Line:
    """`line` without blanks at its end."""
    while line:
        style, text = line[-1]
        if kept := text.rstrip():
            return [*line[:-1], (style, kept)]
        line = line[:-1]
    return line
