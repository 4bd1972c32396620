"""H: a bare reader over httpx2 and json. Opens a connection per step and reads each answer to its end."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import httpx2
from by_hand import TOOLS, Answer, loop

if TYPE_CHECKING:
    from collections.abc import Callable


class Httpx2Client:
    """A hand-written loop over `aiter_lines`."""

    def __init__(self, base_url: str, keep_alive: bool) -> None:
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=100 if keep_alive else 0)
        self._http = httpx2.AsyncClient(limits=limits, timeout=120)
        self._url = f"{base_url}/chat/completions"

    async def run(self, scenario: str, on_text: Callable[[str], None]) -> str:
        return await loop(lambda messages: self._ask(scenario, messages, on_text))

    async def _ask(self, scenario: str, messages: list[dict[str, Any]], on_text: Callable[[str], None]) -> Answer:
        answer = Answer()
        body = {"model": scenario, "stream": True, "messages": messages, "tools": TOOLS}
        async with self._http.stream("POST", self._url, json=body) as response:
            response.raise_for_status()
            async for line in response.aiter_lines():
                if line.startswith("data: {"):
                    _read(json.loads(line[6:]), answer, on_text)
        return answer

    async def aclose(self) -> None:
        await self._http.aclose()


def _read(chunk: dict[str, Any], answer: Answer, on_text: Callable[[str], None]) -> None:
    for choice in chunk["choices"]:
        delta = choice["delta"]
        if text := delta.get("content"):
            answer.text.append(text)
            on_text(text)
        for call in delta.get("tool_calls") or ():
            function = call["function"]
            answer.add_call(call["index"], call.get("id"), function.get("name"), function.get("arguments"))


def connect(base_url: str) -> Httpx2Client:
    return Httpx2Client(base_url, keep_alive=False)
