"""`streamGenerateContent` bodies for tests, and a model that reads them from a loopback server."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from support.chat import HELLO, consistent
from support.loopback import BOUND, Loopback, Reply
from treadle.events import ModelFinish
from treadle.model import ModelRequest
from treadle.providers.google import GoogleModel


def sse(*values: Any) -> bytes:
    """Values as events, framed as Google frames them; bytes as they are."""
    return b"".join(
        value if isinstance(value, bytes) else f"data: {json.dumps(value)}\r\n\r\n".encode() for value in values
    )


def chunk(*parts: Any, finish: str | None = None, more: dict[str, Any] | None = None, **top: Any) -> dict[str, Any]:
    """One chunk of a stream: `more` stands in its candidate, `top` beside it."""
    candidate: dict[str, Any] = {"index": 0, **(more or {})}
    if parts:
        candidate["content"] = {"role": "model", "parts": list(parts)}
    if finish is not None:
        candidate["finishReason"] = finish
    return {"candidates": [candidate], "responseId": "answer-1", **top}


def text(content: str, signature: str | None = None, *, thought: bool = False) -> dict[str, Any]:
    part: dict[str, Any] = {"text": content}
    if thought:
        part["thought"] = True
    return part if signature is None else {**part, "thoughtSignature": signature}


def call(name: str | None = None, args: Any = None, signature: str | None = None, **more: Any) -> dict[str, Any]:
    """A call as a part; what is None is left out."""
    function = {key: value for key, value in (("name", name), ("args", args)) if value is not None}
    part: dict[str, Any] = {"functionCall": {**function, **more}}
    return part if signature is None else {**part, "thoughtSignature": signature}


def piece(path: str, *, more: bool = True, goes_on: bool = False, **value: Any) -> dict[str, Any]:
    """A piece of a call's arguments."""
    argument = {"jsonPath": path, **value, **({"willContinue": True} if goes_on else {})}
    return call(partialArgs=[argument], **({"willContinue": True} if more else {}))


STOP = chunk(finish="STOP")


def model(server: Loopback, name: str = "m", **options: Any) -> GoogleModel:
    return GoogleModel(name, **{"base_url": server.origin, "api_key": "key-test-secret", **options})


async def collect(asked: GoogleModel, request: ModelRequest | None = None) -> list[Any]:
    """All events of one request."""

    async def run() -> list[Any]:
        return [event async for event in asked.stream(request or ModelRequest(None, HELLO))]

    return await asyncio.wait_for(run(), BOUND)


async def read(*values: Any, split: int = 0, reply: dict[str, Any] | None = None, **options: Any) -> list[Any]:
    """The events that a body of these values gives."""
    body = sse(*values)
    pieces = tuple(body[at : at + split] for at in range(0, len(body), split)) if split else (body,)
    async with Loopback(Reply(pieces, **(reply or {}))) as server:
        return await collect(model(server, **options))


async def finish(*values: Any, **options: Any) -> ModelFinish:
    """The end of what a body gives, checked against the deltas before it."""
    events = await read(*values, **options)
    consistent(events)
    ended: ModelFinish = events[-1]
    return ended
