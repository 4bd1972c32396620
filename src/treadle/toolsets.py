"""Toolsets: groups of tools with a lifetime."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from treadle.tools import Tool


@runtime_checkable
class Toolset(Protocol):
    """A group of tools with a lifetime.

    A run enters the toolset before its first request and leaves it when it ends; runs of one agent may hold it at the
    same time. `tools` is asked before each step, so the group may change in the middle of a run. Where several offer
    one name, the tools of toolsets that have a `name` of their own, a string, are called `name_tool` instead; else the
    first wins. One that has lost its tools may say why in an attribute `missing`, a sentence: `step_start` events have
    it, and so has the answer to a call of a tool that is not there.
    """

    async def __aenter__(self) -> Any: ...
    async def __aexit__(self, *exc_info: Any) -> bool | None: ...
    async def tools(self) -> Sequence[Tool]: ...
