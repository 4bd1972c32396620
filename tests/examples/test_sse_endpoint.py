from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING, Any

import httpx2
import uvicorn
from sse_endpoint import sse_app

from treadle import Agent, Effect, Event, RunFinish, RunStart, StopReason, decode_event, fold, tool
from treadle.testing import ScriptedModel, call, error

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@contextlib.asynccontextmanager
async def serving(agent: Agent[Any, Any]) -> AsyncIterator[str]:
    """A real server on loopback. Its socket listens before it starts, so nobody has to wait for it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(
            sse_app(agent), lifespan="off", ws="none", log_level="error", timeout_graceful_shutdown=5
        )
        server = uvicorn.Server(config)
        task = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await asyncio.wait_for(task, 20)


async def read_events(response: httpx2.Response) -> AsyncIterator[tuple[str, Event]]:
    number = ""
    async for line in response.aiter_lines():
        if line.startswith("id: "):
            number = line.removeprefix("id: ")
        elif line.startswith("data: "):
            yield number, decode_event(line.removeprefix("data: "))


async def test_a_client_reads_the_whole_log_and_can_rebuild_the_transcript():
    agent = Agent(ScriptedModel(["Good ", "morning."]))
    async with (
        serving(agent) as url,
        httpx2.AsyncClient() as client,
        client.stream("POST", url, content="Hi") as response,
    ):
        assert response.headers["content-type"] == "text/event-stream"
        numbered = [pair async for pair in read_events(response)]
    events = [event for _, event in numbered]
    assert [number for number, _ in numbered] == [str(event.seq) for event in events]
    assert isinstance(events[0], RunStart)
    assert isinstance(events[-1], RunFinish)
    assert fold(events)[-1].text == "Good morning."


async def test_a_client_that_disconnects_early_cancels_the_run_and_leaves_no_task_behind():
    told, finished = asyncio.Event(), asyncio.Event()
    seen: list[Event] = []

    @tool(effect=Effect.READ)
    async def wait_for_ever() -> str:
        """Wait."""
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            told.set()
            raise
        return "never"

    def tap(event: Event) -> None:
        seen.append(event)
        if isinstance(event, RunFinish):
            finished.set()

    before = asyncio.all_tasks()
    agent = Agent(ScriptedModel(["Let me ", "see.", call("wait_for_ever")]), tools=[wait_for_ever], taps=[tap])
    async with serving(agent) as url:
        async with httpx2.AsyncClient() as client, client.stream("POST", url, content="Well?") as response:
            async for _, event in read_events(response):
                if event.__struct_config__.tag == "tool_start":
                    break
            assert not told.is_set()
        await asyncio.wait_for(told.wait(), 20)
        await asyncio.wait_for(finished.wait(), 20)
    assert isinstance(seen[-1], RunFinish)
    assert seen[-1].stop is StopReason.CANCELLED
    assert asyncio.all_tasks() == before


async def test_a_run_that_fails_is_told_in_the_stream():
    agent = Agent(ScriptedModel(["Half ", error("the disk is full")]))
    async with (
        serving(agent) as url,
        httpx2.AsyncClient() as client,
        client.stream("POST", url, content="Hi") as response,
    ):
        events = [event async for _, event in read_events(response)]
    last = events[-1]
    assert isinstance(last, RunFinish)
    assert last.stop is StopReason.ERROR
    assert "the disk is full" in str(last.error)
