"""Chat Completions bodies for tests, and a model that reads them from a loopback server."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from support.loopback import BOUND, Loopback, Reply
from treadle.events import ModelFinish, ReasoningDelta, TextDelta, ToolCallDelta
from treadle.messages import UserMessage
from treadle.model import ModelRequest
from treadle.providers.openai_chat import OpenAIChatModel

HELLO = (UserMessage("hello"),)
DONE = b"data: [DONE]\n\n"


def sse(*values: Any) -> bytes:
    """Values as events; strings as they are."""
    return b"".join(
        value if isinstance(value, bytes) else f"data: {json.dumps(value)}\n\n".encode() for value in values
    )


def chunk(delta: dict[str, Any] | None = None, finish: Any = None, **more: Any) -> dict[str, Any]:
    """One chunk of a stream."""
    choice = {"index": 0, "delta": {} if delta is None else delta, "finish_reason": finish}
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [choice], **more}


def text(content: Any) -> dict[str, Any]:
    return chunk({"content": content})


def calls(*pieces: dict[str, Any]) -> dict[str, Any]:
    """A chunk of tool call pieces."""
    return chunk({"tool_calls": list(pieces)})


def piece(index: Any = None, call_id: Any = None, name: Any = None, args: Any = None, **more: Any) -> dict[str, Any]:
    """A tool call piece; what is None is left out."""
    function = {key: value for key, value in (("name", name), ("arguments", args)) if value is not None}
    found = {key: value for key, value in (("index", index), ("id", call_id)) if value is not None}
    return found | ({"function": function} if function else {}) | more


def usage(prompt: int = 10, completion: int = 5, **more: Any) -> dict[str, Any]:
    """The last chunk of a stream that reports usage."""
    counts = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion, **more}
    return {"id": "chatcmpl-1", "choices": [], "usage": counts}


def model(server: Loopback, name: str = "m", **options: Any) -> OpenAIChatModel:
    return OpenAIChatModel(name, **{"base_url": server.url, "api_key": "sk-test-secret", **options})


async def collect(asked: OpenAIChatModel, request: ModelRequest | None = None) -> list[Any]:
    """All events of one request."""

    async def run() -> list[Any]:
        return [event async for event in asked.stream(request or ModelRequest(None, HELLO))]

    return await asyncio.wait_for(run(), BOUND)


async def read(
    *values: Any, split: int = 0, done: bool = True, reply: dict[str, Any] | None = None, **options: Any
) -> list[Any]:
    """The events that a body of these values gives."""
    body = sse(*values, *([DONE] if done else []))
    pieces = tuple(body[at : at + split] for at in range(0, len(body), split)) if split else (body,)
    async with Loopback(Reply(pieces, **(reply or {}))) as server:
        return await collect(model(server, **options))


async def finish(*values: Any, **options: Any) -> ModelFinish:
    """The end of what a body gives, checked against the deltas before it."""
    events = await read(*values, **options)
    consistent(events)
    return events[-1]


def consistent(events: list[Any]) -> None:
    """The deltas add up to the message, and exactly one finish comes last."""
    assert [type(event) for event in events].count(ModelFinish) == 1
    message = events[-1].message
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == message.text
    reasoning = "".join(part.text for part in message.content if part.__struct_config__.tag == "reasoning")
    assert "".join(event.text for event in events if isinstance(event, ReasoningDelta)) == reasoning
    for index, call in enumerate(message.calls):
        deltas = [event for event in events if isinstance(event, ToolCallDelta) and event.index == index]
        assert "".join(event.args for event in deltas) == call.args
        assert deltas[-1].call_id == call.id
    assert len({call.id for call in message.calls}) == len(message.calls)
