"""What a person is shown before a change is made."""

from __future__ import annotations

import difflib
import re
from itertools import takewhile

_MAX_CHARACTERS = 1_000_000
_MAX_PAIRS = 4_000_000  # of lines to compare, the square of which a difference may take
_CONTEXT = 3
_NUMBERS = re.compile(r"(?<=[-+])\d+")


def difference(old: str, new: str, source: str, target: str) -> str | None:
    """A unified diff; None where it would take too long, or be too long to read."""
    if len(old) + len(new) > _MAX_CHARACTERS:
        return None
    before, after = _lines(old), _lines(new)
    head = max(0, _equal(before, after) - _CONTEXT)
    before, after = before[head:], after[head:]
    tail = max(0, _equal(before[::-1], after[::-1]) - _CONTEXT)
    before, after = before[: len(before) - tail], after[: len(after) - tail]
    if len(before) * len(after) > _MAX_PAIRS:
        return None
    lines = difflib.unified_diff(before, after, source, target, lineterm="")
    return "\n".join(_moved(line, head) if line.startswith("@@ ") else line for line in lines)


def _lines(text: str) -> list[str]:
    """The lines of a text. A last one without its end is told as such, in the words of diff and git."""
    *lines, last = text.split("\n")
    return [*lines, f"{last}\n\\ No newline at end of file"] if last else lines


def _equal(one: list[str], other: list[str]) -> int:
    """How many lines at the beginning are the same."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _moved(header: str, lines: int) -> str:
    """The header of a hunk, `lines` further down."""
    return _NUMBERS.sub(lambda number: str(int(number[0]) + lines), header)
