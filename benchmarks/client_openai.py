"""The `openai` client's own parsed stream, with a hand-written loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import openai
from by_hand import TOOLS, Answer, loop

if TYPE_CHECKING:
    from collections.abc import Callable

    from openai.types.chat import ChatCompletionChunk


class OpenAIClient:
    """One `AsyncOpenAI` for all runs."""

    def __init__(self, base_url: str) -> None:
        self._client = openai.AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0, timeout=120)

    async def run(self, scenario: str, on_text: Callable[[str], None]) -> str:
        return await loop(lambda messages: self._ask(scenario, messages, on_text))

    async def _ask(self, scenario: str, messages: list[dict[str, Any]], on_text: Callable[[str], None]) -> Answer:
        answer = Answer()
        stream = await self._client.chat.completions.create(
            model=scenario, messages=cast("Any", messages), tools=cast("Any", TOOLS), stream=True
        )
        async for chunk in stream:
            _read(chunk, answer, on_text)
        return answer

    async def aclose(self) -> None:
        await self._client.close()


def _read(chunk: ChatCompletionChunk, answer: Answer, on_text: Callable[[str], None]) -> None:
    for choice in chunk.choices:
        if choice.delta.content:
            answer.text.append(choice.delta.content)
            on_text(choice.delta.content)
        for call in choice.delta.tool_calls or ():
            name = call.function.name if call.function else None
            arguments = call.function.arguments if call.function else None
            answer.add_call(call.index, call.id, name, arguments)


def connect(base_url: str) -> OpenAIClient:
    return OpenAIClient(base_url)
