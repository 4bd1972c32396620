"""The `openai` client's own parsed streams, with a hand-written loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import openai
from by_hand import CHAT, RESPONSES, Answer, Dialogue, loop

if TYPE_CHECKING:
    from collections.abc import Callable

    from openai.types.chat import ChatCompletionChunk
    from openai.types.responses import ResponseStreamEvent


class OpenAIClient:
    """One `AsyncOpenAI` for all runs."""

    dialogue: Dialogue = CHAT

    def __init__(self, base_url: str) -> None:
        self._client = openai.AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0, timeout=120)

    async def run(self, scenario: str, on_text: Callable[[str], None]) -> str:
        return await loop(self.dialogue, lambda messages: self._ask(scenario, messages, on_text))

    async def _ask(self, scenario: str, messages: list[dict[str, Any]], on_text: Callable[[str], None]) -> Answer:
        answer = Answer()
        stream = await self._client.chat.completions.create(
            model=scenario, messages=cast("Any", messages), tools=cast("Any", CHAT.tools), stream=True
        )
        async for chunk in stream:
            _read(chunk, answer, on_text)
        return answer

    async def aclose(self) -> None:
        await self._client.close()


class OpenAIResponsesClient(OpenAIClient):
    """The same for the Responses API."""

    dialogue = RESPONSES

    async def _ask(self, scenario: str, messages: list[dict[str, Any]], on_text: Callable[[str], None]) -> Answer:
        answer = Answer()
        stream = await self._client.responses.create(
            model=scenario, input=cast("Any", messages), tools=cast("Any", RESPONSES.tools), store=False, stream=True
        )
        async for event in stream:
            _read_event(event, answer, on_text)
        return answer


def _read(chunk: ChatCompletionChunk, answer: Answer, on_text: Callable[[str], None]) -> None:
    for choice in chunk.choices:
        if choice.delta.content:
            answer.text.append(choice.delta.content)
            on_text(choice.delta.content)
        for call in choice.delta.tool_calls or ():
            name = call.function.name if call.function else None
            arguments = call.function.arguments if call.function else None
            answer.add_call(call.index, call.id, name, arguments)


def _read_event(event: ResponseStreamEvent, answer: Answer, on_text: Callable[[str], None]) -> None:
    if event.type == "response.output_text.delta":
        answer.text.append(event.delta)
        on_text(event.delta)
    elif event.type == "response.function_call_arguments.delta":
        answer.calls[event.output_index].args += event.delta
    elif event.type == "response.output_item.added" and event.item.type == "function_call":
        answer.add_call(event.output_index, event.item.call_id, event.item.name, None)


def connect(base_url: str, wire: str = "chat") -> OpenAIClient:
    return OpenAIResponsesClient(base_url) if wire == "responses" else OpenAIClient(base_url)
