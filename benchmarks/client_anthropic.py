"""The `anthropic` client's own parsed stream, with a hand-written loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import anthropic
from by_hand import ANTHROPIC, Answer, loop

if TYPE_CHECKING:
    from collections.abc import Callable

    from anthropic.types import RawMessageStreamEvent


class AnthropicClient:
    """One `AsyncAnthropic` for all runs."""

    def __init__(self, base_url: str) -> None:
        self._client = anthropic.AsyncAnthropic(
            base_url=base_url.removesuffix("/v1"), api_key="none", max_retries=0, timeout=120
        )

    async def run(self, scenario: str, on_text: Callable[[str], None]) -> str:
        return await loop(ANTHROPIC, lambda messages: self._ask(scenario, messages, on_text))

    async def _ask(self, scenario: str, messages: list[dict[str, Any]], on_text: Callable[[str], None]) -> Answer:
        answer = Answer()
        stream = await self._client.messages.create(
            model=scenario,
            max_tokens=32_000,
            messages=cast("Any", messages),
            tools=cast("Any", ANTHROPIC.tools),
            stream=True,
        )
        async for event in stream:
            _read(event, answer, on_text)
        return answer

    async def aclose(self) -> None:
        await self._client.close()


def _read(event: RawMessageStreamEvent, answer: Answer, on_text: Callable[[str], None]) -> None:
    if event.type == "content_block_delta":
        if event.delta.type == "text_delta":
            answer.text.append(event.delta.text)
            on_text(event.delta.text)
        elif event.delta.type == "input_json_delta":
            answer.calls[-1].args += event.delta.partial_json
    elif event.type == "content_block_start" and event.content_block.type == "tool_use":
        answer.add_call(len(answer.calls), event.content_block.id, event.content_block.name, None)


def connect(base_url: str) -> AnthropicClient:
    return AnthropicClient(base_url)
