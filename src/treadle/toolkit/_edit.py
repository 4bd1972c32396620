"""Replacing parts of a text, each named by the old text, which must be there exactly once.

A line end in what a model writes stands for the file's own, of one character or two. Only what differs between the
old and the new text is touched.
"""

from __future__ import annotations

import itertools
import os.path
from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

from treadle.errors import ToolError
from treadle.toolkit._near import near_miss

if TYPE_CHECKING:
    from collections.abc import Sequence

    from treadle.toolkit._encoding import Encoding

_MAX_SHOWN_LINES = 10
_MAX_COUNTED = 1000


class Change(NamedTuple):
    """A span of the file's text and what takes its place; `line` is where it begins."""

    start: int
    end: int
    text: str
    line: int


class _Text:
    """A file's text, and the same with plain line ends, in which old texts are looked for."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.flat = text.replace("\r\n", "\n")
        self._pairs: list[int] = []  # where in `flat` the line ends of two characters are
        position = -1
        while (position := text.find("\r\n", position + 1)) >= 0:
            self._pairs.append(position - len(self._pairs))

    def original(self, index: int) -> int:
        """The place in `text` of a place in `flat`."""
        return index + bisect_left(self._pairs, index)

    def ending(self, index: int) -> str | None:
        """The line end that holds around a place in `flat`; None in a file of one line."""
        near = self.flat.find("\n", index)
        if near < 0:
            near = self.flat.rfind("\n")
        if near < 0:
            return None
        return "\r\n" if self._pairs[(at := bisect_left(self._pairs, near)) : at + 1] == [near] else "\n"

    def line(self, index: int) -> int:
        return self.flat.count("\n", 0, index) + 1


def edited(text: str, edits: Sequence[tuple[str, str]], encoding: Encoding) -> tuple[str, list[Change]]:
    """`text` with all of `edits` (old, new) made, and what was changed, in order.

    Every old text is looked for in `text` as it is. Raises `ToolError` that says how to do it better.
    """
    if not edits:
        raise ToolError("edits is empty: give at least one edit with old_text and new_text")
    file = _Text(text)
    changes = []
    for number, (old, new) in enumerate(edits, 1):
        where = f"edit {number} of {len(edits)}: " if len(edits) > 1 else ""
        try:
            _check_characters(old, new, encoding)
            changes.append(_change(file, old, new))
        except ToolError as error:
            raise ToolError(f"{where}{error}") from None
    changes.sort()
    for before, after in itertools.pairwise(changes):
        if after.start < before.end or after.start == before.start:
            raise ToolError(f"two edits change the same place, at line {after.line}: make them one edit")
    return _joined(text, changes), changes


def _joined(text: str, changes: list[Change]) -> str:
    pieces, end = [], 0
    for change in changes:
        pieces += [text[end : change.start], change.text]
        end = change.end
    return "".join([*pieces, text[end:]])


def _change(file: _Text, old: str, new: str) -> Change:
    given, old, new = new, old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
    if not old:
        raise ToolError("old_text is empty: quote the text to replace, or use write_file to write the whole file")
    if old == new:
        raise ToolError("old_text and new_text are the same, so there is nothing to change")
    start = _only(file, old)
    ending = file.ending(start)
    if ending is None:
        return Change(start, start + len(old), given, 1)
    common = _common(old, new)
    rest = min(len(old), len(new)) - common
    tail = _common(old[::-1][:rest], new[::-1][:rest])
    inner = new[common : len(new) - tail].replace("\n", ending)
    first, last = file.original(start + common), file.original(start + len(old) - tail)
    return Change(first, last, inner, file.line(start))


def _common(one: str, other: str) -> int:
    """How many characters at the beginning are the same."""
    return len(os.path.commonprefix([one, other]))  # noqa: RUF071 - characters are meant


def _only(file: _Text, old: str) -> int:
    """Where `old` is, if it is there exactly once; matches that overlap count each."""
    found: list[int] = []
    position = -1
    while len(found) <= _MAX_COUNTED and (position := file.flat.find(old, position + 1)) >= 0:
        found.append(position)
    if len(found) == 1:
        return found[0]
    if not found:
        raise ToolError(f"old_text was not found. {near_miss(file.flat, old)}")
    lines = ", ".join(str(file.line(at)) for at in found[:_MAX_SHOWN_LINES])
    more = ", ..." if len(found) > _MAX_SHOWN_LINES else ""
    count = len(found) if len(found) <= _MAX_COUNTED else f"more than {_MAX_COUNTED}"
    raise ToolError(
        f"old_text occurs {count} times, beginning at lines {lines}{more}; "
        "add lines before or after it until it occurs once"
    )


def _check_characters(old: str, new: str, encoding: Encoding) -> None:
    """Of a file in an unknown encoding nobody can say how a character is written that is not there yet."""
    if any("\ud800" <= char <= "\udfff" for char in new):
        raise ToolError("new_text has half a surrogate pair in it, which is no character")
    if not encoding.known and any(ord(char) > 127 for char in set(new) - set(old)):
        raise ToolError("the file is not UTF-8, so that new text in it can only be ASCII")
