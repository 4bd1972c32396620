"""H: a bare reader over httpx2 and json. Opens a connection per step and reads each answer to its end."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import by_hand
import httpx2
from by_hand import Answer, Dialogue

if TYPE_CHECKING:
    from collections.abc import Callable


class Reader(NamedTuple):
    """How one wire is asked and read."""

    dialogue: Dialogue
    path: str
    body: Callable[[str, list[dict[str, Any]]], dict[str, Any]]
    read: Callable[[dict[str, Any], Answer, Callable[[str], None]], None]


class Httpx2Client:
    """A hand-written loop over `aiter_lines`."""

    def __init__(self, base_url: str, reader: Reader, *, keep_alive: bool) -> None:
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=100 if keep_alive else 0)
        self._http = httpx2.AsyncClient(limits=limits, timeout=120)
        self._base_url = base_url
        self._reader = reader

    async def run(self, scenario: str, on_text: Callable[[str], None]) -> str:
        return await by_hand.loop(self._reader.dialogue, lambda messages: self._ask(scenario, messages, on_text))

    async def _ask(self, scenario: str, messages: list[dict[str, Any]], on_text: Callable[[str], None]) -> Answer:
        answer, read = Answer(), self._reader.read
        url = f"{self._base_url}{self._reader.path.format(model=scenario)}"
        async with self._http.stream("POST", url, json=self._reader.body(scenario, messages)) as response:
            response.raise_for_status()
            async for line in response.aiter_lines():
                if line.startswith("data: {"):
                    read(json.loads(line[6:]), answer, on_text)
        return answer

    async def aclose(self) -> None:
        await self._http.aclose()


def _read_chat(chunk: dict[str, Any], answer: Answer, on_text: Callable[[str], None]) -> None:
    for choice in chunk["choices"]:
        delta = choice["delta"]
        if text := delta.get("content"):
            answer.text.append(text)
            on_text(text)
        for call in delta.get("tool_calls") or ():
            function = call["function"]
            answer.add_call(call["index"], call.get("id"), function.get("name"), function.get("arguments"))


def _read_message(event: dict[str, Any], answer: Answer, on_text: Callable[[str], None]) -> None:
    kind = event["type"]
    if kind == "content_block_delta":
        delta = event["delta"]
        if delta["type"] == "text_delta":
            answer.text.append(delta["text"])
            on_text(delta["text"])
        elif delta["type"] == "input_json_delta":
            answer.calls[-1].args += delta["partial_json"]
    elif kind == "content_block_start" and event["content_block"]["type"] == "tool_use":
        block = event["content_block"]
        answer.add_call(len(answer.calls), block["id"], block["name"], None)


def _read_response(event: dict[str, Any], answer: Answer, on_text: Callable[[str], None]) -> None:
    kind = event["type"]
    if kind == "response.output_text.delta":
        answer.text.append(event["delta"])
        on_text(event["delta"])
    elif kind == "response.function_call_arguments.delta":
        answer.calls[event["output_index"]].args += event["delta"]
    elif kind == "response.output_item.added" and event["item"]["type"] == "function_call":
        answer.add_call(event["output_index"], event["item"]["call_id"], event["item"]["name"], None)


def _read_google(chunk: dict[str, Any], answer: Answer, on_text: Callable[[str], None]) -> None:
    for part in chunk["candidates"][0]["content"]["parts"]:
        if text := part.get("text"):
            answer.text.append(text)
            on_text(text)
        elif call := part.get("functionCall"):
            answer.add_call(len(answer.calls), None, call["name"], json.dumps(call["args"]))


def _chat_body(model: str, messages: list[dict[str, Any]]) -> dict[str, Any]:
    return {"model": model, "stream": True, "messages": messages, "tools": by_hand.CHAT.tools}


def _message_body(model: str, messages: list[dict[str, Any]]) -> dict[str, Any]:
    tools = by_hand.ANTHROPIC.tools
    return {"model": model, "stream": True, "max_tokens": 32_000, "messages": messages, "tools": tools}


def _response_body(model: str, messages: list[dict[str, Any]]) -> dict[str, Any]:
    return {"model": model, "stream": True, "store": False, "input": messages, "tools": by_hand.RESPONSES.tools}


def _google_body(model: str, messages: list[dict[str, Any]]) -> dict[str, Any]:
    return {"contents": messages, "tools": by_hand.GOOGLE.tools}


READERS = {
    "chat": Reader(by_hand.CHAT, "/chat/completions", _chat_body, _read_chat),
    "anthropic": Reader(by_hand.ANTHROPIC, "/messages", _message_body, _read_message),
    "responses": Reader(by_hand.RESPONSES, "/responses", _response_body, _read_response),
    "google": Reader(by_hand.GOOGLE, "/models/{model}:streamGenerateContent?alt=sse", _google_body, _read_google),
}


def connect(base_url: str, wire: str = "chat", keep_alive: str = "") -> Httpx2Client:
    return Httpx2Client(base_url, READERS[wire], keep_alive=bool(keep_alive))
