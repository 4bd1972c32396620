"""The loop that people write by hand, shared by the clients without one."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from scenarios import PROMPT, TOOL_DESCRIPTION, TOOL_NAME, TOOL_PARAMETERS, lookup

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

TOOLS = [
    {
        "type": "function",
        "function": {"name": TOOL_NAME, "description": TOOL_DESCRIPTION, "parameters": TOOL_PARAMETERS},
    }
]


class Answer:
    """One answer, put together from its deltas."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.calls: list[dict[str, Any]] = []

    def add_call(self, index: int, call_id: str | None, name: str | None, arguments: str | None) -> None:
        """Adds a fragment of a call."""
        if index == len(self.calls):
            self.calls.append({"id": call_id, "type": "function", "function": {"name": name, "arguments": ""}})
        if arguments:
            self.calls[index]["function"]["arguments"] += arguments

    def message(self) -> dict[str, Any]:
        """The assistant message to send back."""
        message: dict[str, Any] = {"role": "assistant", "content": "".join(self.text) or None}
        return {**message, "tool_calls": self.calls} if self.calls else message


async def loop(ask: Callable[[list[dict[str, Any]]], Awaitable[Answer]]) -> str:
    """Asks until an answer has no calls; the calls of one answer run together. Returns the last answer's text."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": PROMPT}]
    while True:
        answer = await ask(messages)
        if not answer.calls:
            return "".join(answer.text)
        messages.append(answer.message())
        messages += await asyncio.gather(*(_result(call) for call in answer.calls))


async def _result(call: dict[str, Any]) -> dict[str, Any]:
    content = await lookup(**json.loads(call["function"]["arguments"]))
    return {"role": "tool", "tool_call_id": call["id"], "content": content}
