"""Running agents and looking at what they logged."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from treadle import Agent, Event, RunFinish, RunStart, ToolFinish, ToolStart

if TYPE_CHECKING:
    from collections.abc import Iterable

BOUND = 10.0  # seconds; a wait that takes longer is a hang


async def events_of(agent: Agent[Any, Any], prompt: Any = "go", **options: Any) -> list[Event]:
    """All events of one run."""
    async with agent.stream(prompt, **options) as run:
        return [event async for event in run]


def only(events: Iterable[Event], kind: type[Any]) -> list[Any]:
    """The events of one kind."""
    return [event for event in events if isinstance(event, kind)]


def without_place(events: Iterable[Event]) -> list[tuple[type[Any], dict[str, Any]]]:
    """Events without what belongs to one run alone: its id, the time that tools took, the wait before a retry."""
    gone = {"run_id", "duration_seconds", "delay_seconds"}
    return [
        (type(event), {name: getattr(event, name) for name in event.__struct_fields__ if name not in gone})
        for event in events
    ]


def assert_whole(events: list[Event]) -> None:
    """The log is numbered without gaps, begins and ends as it must, and each local call starts and finishes once."""
    assert [event.seq for event in events] == list(range(len(events)))
    assert len({event.run_id for event in events}) == 1
    assert isinstance(events[0], RunStart)
    assert [isinstance(event, RunFinish) for event in events].index(True) == len(events) - 1
    running: set[int] = set()
    for event in events:
        if isinstance(event, ToolStart) and not event.hosted:
            assert event.index not in running
            running.add(event.index)
        elif isinstance(event, ToolFinish) and not event.result.hosted:
            running.remove(event.index)
    assert not running


async def bounded(awaitable: Any) -> Any:
    """Awaits with an upper bound, so that a hang is a failure."""
    return await asyncio.wait_for(awaitable, BOUND)


def other_tasks() -> set[asyncio.Task[Any]]:
    """The tasks that are alive beside the caller's."""
    return asyncio.all_tasks() - {asyncio.current_task()}  # type: ignore[arg-type]
