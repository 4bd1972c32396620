"""The `google-genai` client's own parsed stream, with a hand-written loop. It uses aiohttp where that is installed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

from by_hand import GOOGLE, Answer, loop
from google import genai
from google.genai import types

if TYPE_CHECKING:
    from collections.abc import Callable


class GoogleClient:
    """One `genai.Client` for all runs."""

    def __init__(self, base_url: str) -> None:
        origin = base_url.removesuffix("/v1")
        options = types.HttpOptions(base_url=origin, api_version="v1", timeout=120_000)
        self._client = genai.Client(api_key="none", http_options=options)
        calling = types.AutomaticFunctionCallingConfig(disable=True)
        tools = cast("Any", GOOGLE.tools)
        self._config = types.GenerateContentConfig(tools=tools, automatic_function_calling=calling)

    async def run(self, scenario: str, on_text: Callable[[str], None]) -> str:
        return await loop(GOOGLE, lambda messages: self._ask(scenario, messages, on_text))

    async def _ask(self, scenario: str, messages: list[dict[str, Any]], on_text: Callable[[str], None]) -> Answer:
        answer = Answer()
        stream = await self._client.aio.models.generate_content_stream(
            model=scenario, contents=cast("Any", messages), config=self._config
        )
        async for chunk in stream:
            _read(chunk, answer, on_text)
        return answer

    async def aclose(self) -> None:
        await self._client.aio.aclose()


def _read(chunk: types.GenerateContentResponse, answer: Answer, on_text: Callable[[str], None]) -> None:
    content = chunk.candidates[0].content if chunk.candidates else None
    for part in (content and content.parts) or ():
        if part.text:
            answer.text.append(part.text)
            on_text(part.text)
        elif part.function_call:
            answer.add_call(len(answer.calls), None, part.function_call.name, json.dumps(part.function_call.args))


def connect(base_url: str) -> GoogleClient:
    return GoogleClient(base_url)
