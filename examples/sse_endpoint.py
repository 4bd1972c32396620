"""Serves a run's event log as server-sent events: a plain ASGI app, no framework.

    uvicorn --app-dir examples sse_endpoint:app
    curl -N -d "List the files here." http://127.0.0.1:8000

The body of the request is the prompt. Each event goes out under its number, so that a client can tell what it has seen.
A client that goes away ends its run: the model call and the tools have stopped when the app returns.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from treadle import Agent, Event, Run, RunError, encode_event
from treadle.toolkit import Workspace

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Receive = Callable[[], Awaitable[dict[str, Any]]]
    Send = Callable[[dict[str, Any]], Awaitable[None]]

HEADERS = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]


def sse_app(agent: Agent[Any, Any]) -> Callable[[dict[str, Any], Receive, Send], Awaitable[None]]:
    """An ASGI app that runs `agent` once for each request."""

    async def app(scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        prompt = await read_body(receive)
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        async with agent.stream(prompt) as run, asyncio.TaskGroup() as tasks:
            writer = tasks.create_task(write_events(run, send))
            reader = tasks.create_task(receive())  # all that can still come is the news that the client is gone
            await asyncio.wait({writer, reader}, return_when=asyncio.FIRST_COMPLETED)
            writer.cancel()
            reader.cancel()

    return app


async def read_body(receive: Receive) -> str:
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    return body.decode()


async def write_events(run: Run[Any], send: Send) -> None:
    with contextlib.suppress(RunError):  # the client reads of a failure in the last event
        async for event in run:
            await send({"type": "http.response.body", "body": as_sse(event), "more_body": True})
    await send({"type": "http.response.body", "body": b""})


def as_sse(event: Event) -> bytes:
    return b"id: %d\ndata: %b\n\n" % (event.seq, encode_event(event))


app = sse_app(Agent("offline:demo", tools=Workspace().read_only()))
