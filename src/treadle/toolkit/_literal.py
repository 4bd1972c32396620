"""A text that every match of a regular expression contains, by which files without one are left out fast."""

from __future__ import annotations

import re

_REPEAT = re.compile(r"\{\d*,?\d*\}")
_PLACES = frozenset("dDwWsSbBAZ")


def required(pattern: str) -> str | None:
    """The longest plain text at the top of `pattern`, in ASCII; None where none is sure to be there.

    Errs on the side of None: alternatives, flags and unusual escapes are not looked into.
    """
    if "|" in pattern or "(?" in pattern:
        return None
    runs = _Runs()
    index, depth = 0, 0
    while index < len(pattern):
        char = pattern[index]
        index += 1
        if char == "\\":
            escaped = pattern[index : index + 1]
            index += 1
            if escaped in _PLACES:
                runs.end()
            elif not escaped or escaped.isalnum():
                return None
            else:
                runs.add(escaped, depth)
        elif char == "[":
            index = _behind_set(pattern, index)
            runs.end()
        elif char in "()":
            depth += 1 if char == "(" else -1
            runs.end()
        elif char in "*?" or (char == "{" and _REPEAT.match(pattern, index - 1)):
            index = pattern.index("}", index) + 1 if char == "{" else index
            runs.drop()
        elif char in "+.^$":
            runs.end()
        else:
            runs.add(char, depth)
    runs.end()
    return runs.best or None


class _Runs:
    def __init__(self) -> None:
        self.best = ""
        self._run = ""

    def add(self, char: str, depth: int) -> None:
        if depth == 0 and char.isascii() and char != "\n":
            self._run += char
        else:
            self.end()

    def drop(self) -> None:
        """The last character may be absent."""
        self._run = self._run[:-1]
        self.end()

    def end(self) -> None:
        self.best = max(self.best, self._run, key=len)
        self._run = ""


def _behind_set(pattern: str, index: int) -> int:
    """Where the set ends whose inside begins at `index`."""
    index += pattern[index : index + 1] == "^"
    index += pattern[index : index + 1] == "]"
    while index < len(pattern) and pattern[index] != "]":
        index += 2 if pattern[index] == "\\" else 1
    return index + 1
