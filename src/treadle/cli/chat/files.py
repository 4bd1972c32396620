"""The files of a root by name, for completion: looked up beside the prompt, and kept for a while."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

from treadle.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from treadle import Tool

FRESH_SECONDS = 10.0
MAX_KEPT = 200  # answers
MAX_SHOWN = 50
_NOTE = re.compile(r"\[.+ .+\]")  # the tool's last line where there is more
_NOTHING = "No file matches."


class Files:
    """Finds files by what is typed of their name, with the workspace's own tool: it ends and knows ignore files."""

    def __init__(self, find: Tool[..., Any], clock: Callable[[], float] = time.monotonic) -> None:
        self._find = find
        self._clock = clock
        self._kept: dict[str, tuple[float, list[str], bool]] = {}

    async def matching(self, typed: str) -> list[str]:
        """The paths that have the characters of `typed` in their order, the nearest first. Directories end in `/`."""
        paths, cut = await self._listed("**/*" if not typed else "")
        if cut and typed:  # there are more than the tool shows at once: have it look for the name
            paths = [*paths, *(await self._listed(_pattern(typed.rpartition("/")[2])))[0]]
        return ranked(typed, paths)[:MAX_SHOWN]

    async def _listed(self, pattern: str) -> tuple[list[str], bool]:
        pattern = pattern or "**/*"
        kept = self._kept.get(pattern)
        if kept is None or self._clock() - kept[0] > FRESH_SECONDS:
            if len(self._kept) >= MAX_KEPT:
                self._kept.clear()
            try:
                lines = str(await self._find.invoke({"pattern": pattern})).split("\n")
            except ToolError:
                lines = []
            cut = bool(_NOTE.fullmatch(lines[-1])) if lines else False
            paths = [line for line in (lines[:-1] if cut else lines) if line not in ("", _NOTHING)]
            kept = self._kept[pattern] = (self._clock(), paths, cut)
        return kept[1], kept[2]


def ranked(typed: str, names: Sequence[str]) -> list[str]:
    """Those of `names` that have the characters of `typed` in their order, the closest together first."""
    found: list[tuple[tuple[int, bool, int, str], str]] = []
    for name in dict.fromkeys(names):
        if (span := _span(typed.lower(), name.lower())) is not None:
            length, start = span
            in_directory = start < name.rstrip("/").rfind("/") + 1
            found.append(((length, in_directory, len(name), name), name))
    return [name for _, name in sorted(found)]


def _span(typed: str, name: str) -> tuple[int, int] | None:
    """The shortest stretch of `name` with the characters of `typed` in order: its length and where it begins."""
    if not typed:
        return 0, len(name)
    best: tuple[int, int] | None = None
    start = name.find(typed[0])
    while start >= 0:
        end = start
        for char in typed[1:]:
            end = name.find(char, end + 1)
            if end < 0:
                return best
        best = min(best or (len(name), start), (end - start, start))
        start = name.find(typed[0], start + 1)
    return best


def _pattern(typed: str) -> str:
    """A glob for names that have the characters of `typed` in their order, whatever their case."""
    letters = (
        f"[{char.lower()}{char.upper()}]" if char.isalpha() else f"[{char}]" for char in typed if char not in "[]!^\\-/"
    )
    return f"*{'*'.join(letters)}*" if typed else "**/*"
