"""Whatever happened in a run, each beginning of its log is a request that a Chat Completions server takes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.strategies import transcripts
from test_run_properties import run_once, scripts
from treadle import (
    Event,
    Message,
    ModelFinish,
    ModelRequest,
    UnsupportedError,
    UserMessage,
    decode_messages,
    encode,
    fold,
    repair,
)
from treadle.providers import resolve

ANSWER = b'data: {"choices":[{"delta":{"content":"ok"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


async def bodies_of(requests: Iterable[tuple[Message, ...]], model: str) -> list[dict[str, Any]]:
    """The bodies that the adapter sends for these messages."""
    bodies: list[dict[str, Any]] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        bodies.append(json.loads(request.content))
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=ANSWER)

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer), trust_env=False) as client:
        adapter = resolve(model, api_key="none", client=client)
        for messages in requests:
            events = [event async for event in adapter.stream(ModelRequest(None, messages))]
            assert isinstance(events[-1], ModelFinish)
    return bodies


def assert_server_takes(body: dict[str, Any]) -> None:
    """The rules that Chat Completions servers enforce."""
    waiting: list[str] = []
    for message in body["messages"]:
        content = message.get("content")
        if message["role"] == "tool":
            assert message["tool_call_id"] == waiting.pop(0)
            assert isinstance(content, str)
            continue
        assert not waiting
        assert content or message.get("tool_calls")
        for part in content if isinstance(content, list) else [{"type": "text", "text": content or "-"}]:
            assert part["type"] != "text" or part["text"].strip()
        waiting = [call["id"] for call in message.get("tool_calls", [])]
        assert len(waiting) == len(set(waiting))
        for call in message.get("tool_calls", []):
            assert isinstance(json.loads(call["function"]["arguments"]), dict)
            assert call["id"]
            assert call["function"]["name"]
    assert not waiting


@given(scripts, st.none() | st.integers(1, 20), st.none() | st.integers(1, 20))
def test_every_beginning_of_a_log_is_a_request_that_a_server_takes(
    script: list[Any], leave_after: int | None, cancel_after: int | None
) -> None:
    async def main() -> None:
        events: list[Event] = await run_once(script, leave_after, cancel_after, 2)
        beginnings = dict.fromkeys(encode(fold(events[:length])) for length in range(1, len(events) + 1))
        for body in await bodies_of(map(decode_messages, beginnings), "openai-chat:m"):
            assert_server_takes(body)

    asyncio.run(main())


@pytest.mark.parametrize("model", ["openai-chat:m", "ollama:m"])
@given(messages=transcripts)
def test_any_repaired_transcript_is_a_request_that_a_server_takes(model: str, messages: list[Message]) -> None:
    history = (*repair(messages), UserMessage("go"))
    try:
        bodies = asyncio.run(bodies_of([history], model))
    except UnsupportedError as error:
        assert error.feature == "files"  # noqa: PT017 - many a file of many a type may be refused, and nothing else
        return
    for body in bodies:
        assert_server_takes(body)
