"""Why a text was not found: what in the file comes near to it, and where the two part."""

from __future__ import annotations

import itertools
import unicodedata
from typing import NamedTuple

_ALIKE = {
    **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032\u0060\u00b4", "'"),
    **dict.fromkeys("\u201c\u201d\u201e\u201f\u2033", '"'),
    **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
}
_MAX_TEXT = 1_000_000  # characters; a second's work
_MAX_STARTS = 100
_NOTHING_NEAR = "It must be in the file character for character; read_file shows what is there."


class _Folded(NamedTuple):
    """A text without what eyes overlook: case, white space, accents' forms, kinds of quotes. And whence each piece."""

    text: str
    origin: list[int]


def near_miss(text: str, old: str) -> str:
    """A sentence or two that help to find what `old` should have been."""
    if len(text) > _MAX_TEXT:
        return _NOTHING_NEAR
    wanted, there = _fold(old), _fold(text)
    at = there.text.find(wanted.text) if wanted.text else -1
    if at >= 0:
        begin = there.origin[at]
        line = text.count("\n", 0, begin) + 1
        return f"At line {line} there is text that differs only in {_difference(text[begin:], old.lstrip())}."
    return _first_line(text, old)


def _fold(text: str) -> _Folded:
    pieces: list[str] = []
    origin: list[int] = []
    blank = False
    for index, char in enumerate(text):
        if char.isspace():
            blank = True
            continue
        alike = _ALIKE.get(char) or unicodedata.normalize("NFKD", char).casefold()
        if blank and pieces:
            alike = f" {alike}"
        blank = False
        pieces.append(alike)
        origin += [index] * len(alike)
    return _Folded("".join(pieces), origin)


def _difference(there: str, wanted: str) -> str:
    """What differs first, both texts being alike otherwise."""
    index = next((i for i, (a, b) in enumerate(zip(there, wanted, strict=False)) if a != b), None)
    if index is None:
        return "white space"
    a, b = _cluster(there, index), _cluster(wanted, index)
    if a.isspace() or b.isspace():
        return f"white space: the file has {_named(a)} where old_text has {_named(b)}"
    if a.casefold() == b.casefold():
        return f"upper and lower case: the file has {a!r} where old_text has {b!r}"
    return f"characters that look alike: the file has {_named(a)} where old_text has {_named(b)}"


def _cluster(text: str, index: int) -> str:
    """A character with the marks that belong to it."""
    end = index + 1
    while end < len(text) and unicodedata.combining(text[end]):
        end += 1
    return text[index:end]


def _named(cluster: str) -> str:
    name = {"\n": "a line end", "\t": "a tab", " ": "a space"}.get(cluster)
    return name or " + ".join(f"U+{ord(char):04X} {unicodedata.name(char, '')}".strip() for char in cluster)


def _first_line(text: str, old: str) -> str:
    """How far the first lines of `old` go along with the file."""
    lines, wanted = text.split("\n"), old.strip("\n").split("\n")
    if len(wanted) == 1 or not wanted[0].strip():
        return _NOTHING_NEAR
    best, length = 0, 0
    for number in itertools.islice((n for n, line in enumerate(lines) if line == wanted[0]), _MAX_STARTS):
        same = 1
        while same < len(wanted) and lines[number + same : number + same + 1] == wanted[same : same + 1]:
            same += 1
        best, length = (number, same) if same > length else (best, length)
    if not length:
        return _NOTHING_NEAR
    there = lines[best + length] if best + length < len(lines) else None
    has = f"is {there[:200]!r}" if there is not None else "is missing: the file ends"
    return f"From line {best + 1} on it agrees, but line {best + length + 1} {has}, not {wanted[length][:200]!r}."
