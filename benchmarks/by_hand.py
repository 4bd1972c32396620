"""The loop that people write by hand, shared by the clients without one, and its messages for each wire."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from scenarios import PROMPT, TOOL_DESCRIPTION, TOOL_NAME, TOOL_PARAMETERS, lookup

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class Call:
    """A call, put together from its fragments."""

    def __init__(self, call_id: str | None, name: str | None, args: str = "") -> None:
        self.id = call_id
        self.name = name
        self.args = args


class Answer:
    """One answer, put together from its deltas."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.calls: list[Call] = []

    def add_call(self, index: int, call_id: str | None, name: str | None, args: str | None) -> None:
        """Adds a fragment of a call."""
        if index == len(self.calls):
            self.calls.append(Call(call_id, name))
        if args:
            self.calls[index].args += args


class Dialogue(NamedTuple):
    """How one wire writes a conversation: the tools, the question, an answer, and the results of its calls."""

    tools: list[dict[str, Any]]
    question: dict[str, Any]
    answered: Callable[[Answer], list[dict[str, Any]]]
    results: Callable[[Answer, list[str]], list[dict[str, Any]]]


async def loop(dialogue: Dialogue, ask: Callable[[list[dict[str, Any]]], Awaitable[Answer]]) -> str:
    """Asks until an answer has no calls; the calls of one answer run together. Returns the last answer's text."""
    messages = [dialogue.question]
    while True:
        answer = await ask(messages)
        if not answer.calls:
            return "".join(answer.text)
        contents = await asyncio.gather(*(lookup(**json.loads(call.args)) for call in answer.calls))
        messages += dialogue.answered(answer)
        messages += dialogue.results(answer, contents)


# Chat Completions


def _chat_answered(answer: Answer) -> list[dict[str, Any]]:
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.args}}
        for call in answer.calls
    ]
    return [{"role": "assistant", "content": "".join(answer.text) or None, "tool_calls": calls}]


def _chat_results(answer: Answer, contents: list[str]) -> list[dict[str, Any]]:
    pairs = zip(answer.calls, contents, strict=True)
    return [{"role": "tool", "tool_call_id": call.id, "content": content} for call, content in pairs]


CHAT = Dialogue(
    [
        {
            "type": "function",
            "function": {"name": TOOL_NAME, "description": TOOL_DESCRIPTION, "parameters": TOOL_PARAMETERS},
        }
    ],
    {"role": "user", "content": PROMPT},
    _chat_answered,
    _chat_results,
)


# Anthropic's Messages


def _message_answered(answer: Answer) -> list[dict[str, Any]]:
    text = [{"type": "text", "text": "".join(answer.text)}] if answer.text else []
    calls = [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": json.loads(call.args)} for call in answer.calls
    ]
    return [{"role": "assistant", "content": [*text, *calls]}]


def _message_results(answer: Answer, contents: list[str]) -> list[dict[str, Any]]:
    pairs = zip(answer.calls, contents, strict=True)
    blocks = [{"type": "tool_result", "tool_use_id": call.id, "content": content} for call, content in pairs]
    return [{"role": "user", "content": blocks}]


ANTHROPIC = Dialogue(
    [{"name": TOOL_NAME, "description": TOOL_DESCRIPTION, "input_schema": TOOL_PARAMETERS}],
    {"role": "user", "content": PROMPT},
    _message_answered,
    _message_results,
)


# OpenAI's Responses


def _items_answered(answer: Answer) -> list[dict[str, Any]]:
    return [
        {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.args}
        for call in answer.calls
    ]


def _items_results(answer: Answer, contents: list[str]) -> list[dict[str, Any]]:
    pairs = zip(answer.calls, contents, strict=True)
    return [{"type": "function_call_output", "call_id": call.id, "output": content} for call, content in pairs]


RESPONSES = Dialogue(
    [
        {
            "type": "function",
            "name": TOOL_NAME,
            "description": TOOL_DESCRIPTION,
            "parameters": TOOL_PARAMETERS,
            "strict": False,
        }
    ],
    {"role": "user", "content": PROMPT},
    _items_answered,
    _items_results,
)


# Google's Gemini API


def _contents_answered(answer: Answer) -> list[dict[str, Any]]:
    parts = [{"functionCall": {"name": call.name, "args": json.loads(call.args)}} for call in answer.calls]
    return [{"role": "model", "parts": parts}]


def _contents_results(answer: Answer, contents: list[str]) -> list[dict[str, Any]]:
    pairs = zip(answer.calls, contents, strict=True)
    parts = [{"functionResponse": {"name": call.name, "response": {"result": content}}} for call, content in pairs]
    return [{"role": "user", "parts": parts}]


GOOGLE = Dialogue(
    [
        {
            "functionDeclarations": [
                {"name": TOOL_NAME, "description": TOOL_DESCRIPTION, "parametersJsonSchema": TOOL_PARAMETERS}
            ]
        }
    ],
    {"role": "user", "parts": [{"text": PROMPT}]},
    _contents_answered,
    _contents_results,
)
