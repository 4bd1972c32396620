"""Responses API bodies for tests, and a model that reads them from a loopback server."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from support.chat import consistent, sse
from support.loopback import BOUND, Loopback, Reply
from treadle.events import ModelFinish
from treadle.messages import UserMessage
from treadle.model import ModelRequest
from treadle.providers.openai import OpenAIModel

HELLO = (UserMessage("hello"),)


def event(kind: str, **fields: Any) -> dict[str, Any]:
    """One event of a stream."""
    return {"type": f"response.{kind}", **fields}


def added(index: int | None, item: dict[str, Any]) -> dict[str, Any]:
    return event("output_item.added", output_index=index, item=item)


def done(index: int | None, item: dict[str, Any]) -> dict[str, Any]:
    return event("output_item.done", output_index=index, item=item)


def text(delta: str, index: int = 0, content: int = 0) -> dict[str, Any]:
    return event("output_text.delta", output_index=index, content_index=content, delta=delta)


def args(delta: str, index: int = 0) -> dict[str, Any]:
    return event("function_call_arguments.delta", output_index=index, delta=delta)


def message(*texts: str, **more: Any) -> dict[str, Any]:
    """A message item."""
    content = [{"type": "output_text", "text": said, "annotations": []} for said in texts]
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content, **more}


def call(arguments: str = "{}", call_id: str = "call_1", name: str = "add", **more: Any) -> dict[str, Any]:
    """A function call item."""
    fields = {"id": f"fc_{call_id}", "call_id": call_id, "name": name, "arguments": arguments, "status": "completed"}
    return {"type": "function_call", **fields, **more}


def reasoning(*summary: str, sealed: str | None = "enc", **more: Any) -> dict[str, Any]:
    """A reasoning item."""
    item = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": said} for said in summary]}
    return {**item, **({} if sealed is None else {"encrypted_content": sealed}), **more}


def completed(*output: dict[str, Any], status: str = "completed", **more: Any) -> dict[str, Any]:
    """The last event of a stream."""
    return event(status, response=document(*output, status=status, **more))


def document(*output: dict[str, Any], status: str = "completed", **more: Any) -> dict[str, Any]:
    """A whole answer."""
    return {"id": "resp_1", "object": "response", "status": status, "error": None, "output": list(output), **more}


def usage(sent: int = 10, output: int = 5, **more: Any) -> dict[str, Any]:
    return {"input_tokens": sent, "output_tokens": output, "total_tokens": sent + output, **more}


def model(server: Loopback, name: str = "gpt-5", **options: Any) -> OpenAIModel:
    return OpenAIModel(name, **{"base_url": server.url, "api_key": "sk-test-secret", **options})


async def collect(asked: OpenAIModel, request: ModelRequest | None = None) -> list[Any]:
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


async def read_document(value: Any, **options: Any) -> list[Any]:
    """The events that an answer without a stream gives."""
    body = json.dumps(value).encode()
    async with Loopback(Reply((body,), content_type="application/json")) as server:
        return await collect(model(server, **options))


async def finish(*values: Any, **options: Any) -> ModelFinish:
    """The end of what a body gives, checked against the deltas before it."""
    events = await read(*values, **options)
    consistent(events)
    last: ModelFinish = events[-1]
    return last
