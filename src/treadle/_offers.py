"""What an agent's own tools and its toolsets offer together, under names that tell them apart."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from treadle._tool_names import hashed_name, legal_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from treadle.tools import Tool
    from treadle.toolsets import Toolset


class Offers:
    """The tools of one run. A tool that was renamed once keeps that name, whatever its rivals do later.

    `missing` says of each toolset that has lost its tools why.
    """

    def __init__(self, own: Sequence[Tool[..., Any]], toolsets: Sequence[Toolset]) -> None:
        self._own = tuple(own)
        self._toolsets = toolsets
        self._offered: list[tuple[Tool[..., Any], ...]] | None = None
        self._renamed: dict[tuple[int, str], str] = {}
        self.missing: tuple[str, ...] = ()

    async def ask(self) -> list[Tool[..., Any]] | None:
        """All tools as of now; None where nothing has changed."""
        offered = [tuple(await toolset.tools()) for toolset in self._toolsets]
        faults = (getattr(toolset, "missing", None) for toolset in self._toolsets)
        self.missing = tuple(fault for fault in faults if isinstance(fault, str))
        if offered == self._offered:
            return None
        self._offered = offered
        counts = Counter(tool.name for tools in (self._own, *offered) for tool in tools)
        taken = counts.keys() | set(self._renamed.values())
        found = list(self._own)
        for index, tools in enumerate(offered):
            prefix = getattr(self._toolsets[index], "name", None)
            for tool in tools:
                key = (index, tool.name)
                if isinstance(prefix, str) and counts[tool.name] > 1 and key not in self._renamed:
                    taken.add(self._renamed.setdefault(key, _apart(prefix, tool.name, index, taken)))
                found.append(tool.with_name(self._renamed[key]) if key in self._renamed else tool)
        return found


def _apart(prefix: str, name: str, index: int, taken: set[str]) -> str:
    full = legal_name(f"{legal_name(prefix)}_{name}")
    return hashed_name(f"{full}_{index}") if full in taken else full
