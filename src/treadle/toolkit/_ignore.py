"""What `.gitignore` files and their like exclude.

Own code and no library, because a search must find the same files wherever it runs, and its process, which has to
start fast, loads nothing but the standard library. Git itself is the oracle of the tests; it differs in
counting bytes where `?` and sets count characters here.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from treadle.toolkit._glob import translated

NAMES = (".rgignore", ".ignore", ".gitignore")  # the first that decides counts, however far up it is
MAX_BYTES = 1 << 20


class _Rule(NamedTuple):
    regex: re.Pattern[str]
    text: str
    negated: bool
    directories_only: bool


class Rules:
    """The rules of one ignore file, for paths relative to its directory. The last that matches counts."""

    def __init__(self, data: bytes) -> None:
        lines = os.fsdecode(data.removeprefix(b"\xef\xbb\xbf")).split("\n")
        self._rules = [rule for line in lines if (rule := _rule(line.removesuffix("\r"))) is not None]
        # One look tells for most paths that no rule is about them.
        self._any = re.compile("|".join(f"(?:{rule.text})" for rule in self._rules) or "(?!)", re.DOTALL)

    def excludes(self, path: str, *, is_directory: bool) -> bool | None:
        """Whether `path` is excluded; None where no rule says so or otherwise."""
        if self._any.fullmatch(path) is None:
            return None
        for rule in reversed(self._rules):
            if (is_directory or not rule.directories_only) and rule.regex.fullmatch(path):
                return not rule.negated
        return None


class Placed(NamedTuple):
    """Rules, the place of their file's name in `NAMES`, and the length of their directory's path."""

    kind: int
    length: int
    rules: Rules


def excluded(name: str, placed: list[Placed], path: str, *, is_directory: bool) -> bool:
    """Whether the file `name` at `path` is left out, by the rules of all directories above it, the uppermost first."""
    if name == ".git":
        return True
    for kind in sorted({own.kind for own in placed}):
        for own in reversed(placed):
            if own.kind == kind:
                decision = own.rules.excludes(path[own.length :], is_directory=is_directory)
                if decision is not None:
                    return decision
    return False


def _rule(line: str) -> _Rule | None:
    if line.startswith("#"):
        return None
    line = re.sub(r"(?<!\\)((?:\\\\)*) +\Z", r"\1", line)
    negated = line.startswith("!")
    line = line[negated:]
    directories_only = line.endswith("/")
    line = line.removesuffix("/")
    if not line:
        return None
    text = translated(line.removeprefix("/"))
    if "/" not in line:
        text = f"(?:.*/)?{text}"
    try:
        return _Rule(re.compile(text, re.DOTALL), text, negated, directories_only)
    except (re.error, OverflowError, RecursionError):
        return None
