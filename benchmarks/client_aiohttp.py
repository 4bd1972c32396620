"""F: the physical limit. aiohttp's raw chunks, an own event split, msgspec's typed decode, history kept encoded."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import aiohttp
import msgspec
from scenarios import PROMPT, TOOL_DESCRIPTION, TOOL_NAME, TOOL_PARAMETERS, lookup

if TYPE_CHECKING:
    from collections.abc import Callable


class Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class Call(msgspec.Struct):
    index: int
    function: Function
    id: str | None = None


class Delta(msgspec.Struct):
    content: str | None = None
    tool_calls: list[Call] | None = None


class Choice(msgspec.Struct):
    delta: Delta


class Chunk(msgspec.Struct):
    choices: list[Choice]


class WholeCall(msgspec.Struct):
    """A call as it is sent back."""

    id: str
    function: Function
    type: str = "function"


class AssistantTurn(msgspec.Struct):
    tool_calls: list[WholeCall]
    content: str | None = None
    role: str = "assistant"


class ToolTurn(msgspec.Struct):
    tool_call_id: str
    content: str
    role: str = "tool"


class Arguments(msgspec.Struct):
    query: str
    limit: int
    region: str


TOOLS = json.dumps(
    [
        {
            "type": "function",
            "function": {"name": TOOL_NAME, "description": TOOL_DESCRIPTION, "parameters": TOOL_PARAMETERS},
        }
    ]
).encode()
USER = json.dumps({"role": "user", "content": PROMPT}).encode()

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Chunk).decode
_arguments = msgspec.json.Decoder(Arguments).decode


class AiohttpClient:
    """A hand-written loop over raw chunks."""

    def __init__(self, base_url: str) -> None:
        connector = aiohttp.TCPConnector(limit=0)
        timeout = aiohttp.ClientTimeout(total=None, sock_read=120)
        self._http = aiohttp.ClientSession(connector=connector, timeout=timeout)
        self._url = f"{base_url}/chat/completions"

    async def run(self, scenario: str, on_text: Callable[[str], None]) -> str:
        opening = b'{"model":"%s","stream":true,"tools":%s,"messages":[' % (scenario.encode(), TOOLS)
        history = [USER]
        while True:
            text, calls = await self._ask(opening + b",".join(history) + b"]}", on_text)
            if not calls:
                return "".join(text)
            history.append(_encode(AssistantTurn(calls)))
            history += await asyncio.gather(*(_result(call) for call in calls))

    async def _ask(self, body: bytes, on_text: Callable[[str], None]) -> tuple[list[str], list[WholeCall]]:
        text: list[str] = []
        calls: list[WholeCall] = []
        headers = {"content-type": "application/json"}
        async with self._http.post(self._url, data=body, headers=headers) as response:
            response.raise_for_status()
            rest = b""
            async for data in response.content.iter_any():
                events = (rest + data).split(b"\n\n")
                rest = events.pop()
                for event in events:
                    if event.startswith(b"data: {"):
                        _read(_decode(event[6:]), text, calls, on_text)
        return text, calls

    async def aclose(self) -> None:
        await self._http.close()


def _read(chunk: Chunk, text: list[str], calls: list[WholeCall], on_text: Callable[[str], None]) -> None:
    for choice in chunk.choices:
        delta = choice.delta
        if delta.content:
            text.append(delta.content)
            on_text(delta.content)
        for call in delta.tool_calls or ():
            if call.index == len(calls):
                calls.append(WholeCall(call.id or "", Function(call.function.name, "")))
            function = calls[call.index].function
            function.arguments = (function.arguments or "") + (call.function.arguments or "")


async def _result(call: WholeCall) -> bytes:
    arguments = _arguments(call.function.arguments or "{}")
    content = await lookup(arguments.query, arguments.limit, arguments.region)
    return _encode(ToolTurn(call.id, content))


def connect(base_url: str) -> AiohttpClient:
    return AiohttpClient(base_url)
