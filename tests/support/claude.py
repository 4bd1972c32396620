"""Messages API bodies for tests, and a model that reads them from a loopback server."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from support.loopback import BOUND, Loopback, Reply
from treadle.events import ModelFinish, ReasoningDelta, TextDelta, ToolCallDelta, ToolFinish, ToolStart
from treadle.messages import ReasoningPart, ToolCallPart, ToolResultPart, UserMessage
from treadle.model import ModelRequest
from treadle.providers.anthropic import AnthropicModel

HELLO = (UserMessage("hello"),)
NAME = "claude-opus-4-6"


def sse(*values: Any) -> bytes:
    """Values as events, each under its name; bytes as they are."""
    return b"".join(
        value if isinstance(value, bytes) else f"event: {value['type']}\ndata: {json.dumps(value)}\n\n".encode()
        for value in values
    )


def start(**usage: Any) -> dict[str, Any]:
    """The head of a message."""
    counts = usage or {"input_tokens": 25, "output_tokens": 1}
    return {"type": "message_start", "message": {"id": "msg_1", "role": "assistant", "content": [], "usage": counts}}


def block(content: dict[str, Any], *deltas: dict[str, Any], index: int = 0) -> list[dict[str, Any]]:
    """One block: its start, its deltas, its stop."""
    return [
        {"type": "content_block_start", "index": index, "content_block": content},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def text(*pieces: str, index: int = 0) -> list[dict[str, Any]]:
    deltas = ({"type": "text_delta", "text": piece} for piece in pieces)
    return block({"type": "text", "text": ""}, *deltas, index=index)


def thinking(*pieces: str, signature: str = "sig", index: int = 0) -> list[dict[str, Any]]:
    deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces]
    deltas.append({"type": "signature_delta", "signature": signature})
    return block({"type": "thinking", "thinking": "", "signature": ""}, *deltas, index=index)


def call(*pieces: str, index: int = 0, kind: str = "tool_use", **more: Any) -> list[dict[str, Any]]:
    head = {"type": kind, "id": "toolu_1", "name": "add", "input": {}, **more}
    deltas = ({"type": "input_json_delta", "partial_json": piece} for piece in pieces)
    return block(head, *deltas, index=index)


def end(reason: Any = "end_turn", usage: dict[str, Any] | None = None, **more: Any) -> list[dict[str, Any]]:
    """Why the answer ended, and its end."""
    delta = {"stop_reason": reason, "stop_sequence": None, **more}
    counts = {"output_tokens": 15} if usage is None else usage
    return [{"type": "message_delta", "delta": delta, "usage": counts}, {"type": "message_stop"}]


def answer(*values: Any, reason: str = "end_turn") -> bytes:
    """A whole body: head, what is given, end."""
    return sse(start(), *values, *end(reason))


def model(server: Loopback, name: str = NAME, **options: Any) -> AnthropicModel:
    return AnthropicModel(name, **{"base_url": server.url, "api_key": "sk-ant-secret", **options})


async def collect(asked: AnthropicModel, request: ModelRequest | None = None) -> list[Any]:
    """All events of one answer."""

    async def run() -> list[Any]:
        return [event async for event in asked.stream(request or ModelRequest(None, HELLO))]

    return await asyncio.wait_for(run(), BOUND)


async def read(*values: Any, split: int = 0, reply: dict[str, Any] | None = None) -> list[Any]:
    """The events that a body of these values gives."""
    body = sse(*values)
    pieces = tuple(body[at : at + split] for at in range(0, len(body), split)) if split else (body,)
    async with Loopback(Reply(pieces, **(reply or {}))) as server:
        return await collect(model(server))


async def finish(*values: Any, **options: Any) -> ModelFinish:
    """The end of what a body gives, checked against the events before it."""
    events = await read(*values, **options)
    consistent(events)
    return events[-1]


def consistent(events: list[Any]) -> None:
    """Deltas and hosted events add up to the message, and exactly one finish comes last."""
    assert [type(event) for event in events].count(ModelFinish) == 1
    message = events[-1].message
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == message.text
    reasoning = "".join(part.text for part in message.content if isinstance(part, ReasoningPart))
    assert "".join(event.text for event in events if isinstance(event, ReasoningDelta)) == reasoning
    for index, found in enumerate(message.calls):
        deltas = [event for event in events if isinstance(event, ToolCallDelta) and event.index == index]
        assert "".join(event.args for event in deltas) == found.args
        assert {(event.call_id, event.name) for event in deltas} == {(found.id, found.name)}
    assert len({found.id for found in message.calls}) == len(message.calls)
    hosted = [part for part in message.content if isinstance(part, ToolCallPart) and part.hosted]
    starts = [(event.call_id, event.name, event.args) for event in events if isinstance(event, ToolStart)]
    assert starts == [(part.id, part.name, part.args) for part in hosted]
    results = [part for part in message.content if isinstance(part, ToolResultPart)]
    assert [event.result for event in events if isinstance(event, ToolFinish)] == results
    assert all(event.hosted for event in events if isinstance(event, ToolStart))
    assert all(part.hosted for part in results)
