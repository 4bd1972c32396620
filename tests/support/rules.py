"""What each API refuses in a request, as its server or its documents say. Written without a look at the adapters.

Each `assert_*` takes the body of a request as it arrived.
"""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import pydantic
from anthropic.types.beta import BetaMessageParam
from google.genai import types as genai_types
from openai.types.chat import ChatCompletionMessageParam
from openai.types.responses import ResponseInputItemParam

# The vendors' own types of what goes out. Extra keys are looked at below: servers differ in them.
_CHAT_MESSAGES = pydantic.TypeAdapter(list[ChatCompletionMessageParam])
_ANTHROPIC_MESSAGES = pydantic.TypeAdapter(list[BetaMessageParam])
_RESPONSES_ITEM = pydantic.TypeAdapter(ResponseInputItemParam)

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}", re.ASCII)
REASONING_FIELDS = {"reasoning", "reasoning_content", "reasoning_details"}


def assert_object(text: str) -> None:
    """Arguments are the text of a JSON object."""
    assert isinstance(text, str)
    assert isinstance(json.loads(text), dict)


# Chat Completions


def assert_chat_takes(body: dict[str, Any], provider: str) -> None:
    messages = body["messages"]
    assert messages
    waiting: list[str] = []
    for number, message in enumerate(messages):
        role = message["role"]
        if role == "tool":
            assert set(message) <= {"role", "tool_call_id", "content", "name"}
            assert message["tool_call_id"] == waiting.pop(0)
            if message["content"] != "":
                _assert_chat_content(message["content"])
            continue
        assert not waiting, "every result stands right behind its call"
        if role == "assistant":
            waiting = _chat_answer(message, provider)
        else:
            assert role == "user" or (role == "system" and number == 0)
            _assert_chat_content(message["content"])
        if provider == "mistral" and role == "user":
            assert messages[number - 1]["role"] != "tool", "mistral refuses a user right behind results"
    assert not waiting
    assert messages[-1]["role"] != "assistant", "that would be a prefill"
    if provider == "perplexity":
        sides = [message["role"] for message in messages if message["role"] != "system"]
        assert sides == (["user", "assistant"] * len(sides))[: len(sides)], "users and answers take turns"
        assert not any("tool_calls" in message for message in messages)
    _CHAT_MESSAGES.validate_python([_without_extras(message) for message in messages])


def _chat_answer(message: dict[str, Any], provider: str) -> list[str]:
    assert set(message) <= {"role", "content", "tool_calls", *REASONING_FIELDS}
    calls = message.get("tool_calls")
    assert calls or message.get("content")
    assert calls is None or calls, "an empty list of calls is refused"
    if provider == "deepseek" or (provider == "moonshot" and calls):
        assert message["reasoning_content"], "400: reasoning_content must be passed back"
    if message.get("content") is not None:
        _assert_chat_content(message["content"])
    ids = []
    for call in calls or ():
        assert set(call) <= {"id", "type", "function", "extra_content"}
        assert NAME.fullmatch(call["function"]["name"])
        assert_object(call["function"]["arguments"])
        if provider == "mistral":
            assert re.fullmatch(r"[a-zA-Z0-9]{9}", call["id"], re.ASCII)
        assert 0 < len(call["id"]) <= 40
        ids.append(call["id"])
    assert len(set(ids)) == len(ids)
    return ids


def _assert_chat_content(content: Any) -> None:
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
    assert parts
    for part in parts:
        if part["type"] == "text":
            assert part["text"].strip()


def _without_extras(message: dict[str, Any]) -> dict[str, Any]:
    """What OpenAI's types know. Mistral's thinking parts are of no type of theirs."""
    found = {key: value for key, value in message.items() if key not in REASONING_FIELDS}
    if message["role"] == "assistant" and isinstance(message.get("content"), list):
        found["content"] = [part for part in message["content"] if part["type"] != "thinking"]
    return found


# Anthropic's Messages


def assert_anthropic_takes(body: dict[str, Any]) -> None:
    messages = body["messages"]
    assert messages[0]["role"] == "user"
    seen: set[str] = set()
    waiting: list[str] = []
    for message in messages:
        blocks = message["content"]
        assert isinstance(blocks, list) and blocks
        if message["role"] == "assistant":
            assert not waiting
            waiting = _anthropic_answer(blocks, seen)
            continue
        results = [block for block in blocks if block["type"] == "tool_result"]
        assert blocks[: len(results)] == results, "results come first"
        assert [block["tool_use_id"] for block in results] == waiting
        waiting = []
        for block in results:
            _assert_anthropic_result(block)
        _assert_no_blank(blocks)
    assert not waiting
    assert messages[-1]["role"] == "user"
    assert json.dumps(body).count('"cache_control"') <= 4
    _ANTHROPIC_MESSAGES.validate_python(messages)


def _anthropic_answer(blocks: list[dict[str, Any]], seen: set[str]) -> list[str]:
    assert blocks[-1]["type"] not in ("thinking", "redacted_thinking"), "refused at the end of an answer"
    _assert_no_blank(blocks)
    asked = []
    hosted: set[str] = set()
    for block in blocks:
        if block["type"] == "tool_use":
            assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", block["id"], re.ASCII)
            assert block["id"] not in seen, "ids are unique in a conversation"
            assert re.fullmatch(r"[a-zA-Z0-9_-]{1,128}", block["name"], re.ASCII)
            assert isinstance(block["input"], dict)
            seen.add(block["id"])
            asked.append(block["id"])
        elif block["type"] in ("server_tool_use", "mcp_tool_use"):
            hosted.add(block["id"])
        elif block["type"].endswith("_tool_result"):
            hosted.remove(block["tool_use_id"])
        elif block["type"] == "thinking":
            assert block["signature"]
    assert not hosted or asked, "a hosted call without its result"
    return asked


def _assert_anthropic_result(block: dict[str, Any]) -> None:
    assert set(block) <= {"type", "tool_use_id", "content", "is_error", "cache_control"}
    content = block.get("content")
    assert content or not block.get("is_error"), "an error needs content"
    for part in content if isinstance(content, list) else ():
        assert part["type"] in ("text", "image", "document", "search_result")
    _assert_no_blank(content if isinstance(content, list) else [])


def _assert_no_blank(blocks: list[dict[str, Any]]) -> None:
    for block in blocks:
        assert block["type"] != "text" or block["text"].strip()


# Responses


def assert_responses_takes(body: dict[str, Any]) -> None:
    items = body["input"]
    assert items
    waiting: dict[str, None] = {}
    for item, following in zip(items, [*items[1:], None], strict=True):
        kind = item.get("type", "message")
        if kind == "message":
            _assert_responses_message(item)
        elif kind == "function_call":
            assert 0 < len(item["call_id"]) <= 64
            assert NAME.fullmatch(item["name"])
            assert_object(item["arguments"])
            assert item.get("id", "fc_").startswith("fc")
            assert item["call_id"] not in waiting
            waiting[item["call_id"]] = None
        elif kind == "function_call_output":
            assert item["call_id"] == next(iter(waiting)), "in the order of the calls"
            del waiting[item["call_id"]]
            _assert_responses_output(item["output"])
        elif kind == "reasoning":
            assert item["id"].startswith("rs")
            assert following is not None, "reasoning without what it led to"
            assert following.get("role") != "user"
            assert following.get("type") != "function_call_output"
        else:
            assert kind != "item_reference", "nothing was stored"
        if kind == "message" and item["role"] == "user":
            assert not waiting, "every call has its output before the user speaks again"
        if {"id", "status"} <= set(item) or kind != "message":
            _RESPONSES_ITEM.validate_python(item)
    assert not waiting
    assert items[-1].get("role") == "user" or items[-1].get("type") == "function_call_output"


def _assert_responses_message(item: dict[str, Any]) -> None:
    assert item["role"] in ("user", "assistant")
    assert set(item) <= {"type", "role", "content", "phase", "id", "status"}
    content = item["content"]
    for part in [{"text": content}] if isinstance(content, str) else content:
        assert part.get("text", "-").strip()


def _assert_responses_output(output: Any) -> None:
    assert isinstance(output, str | list)
    if isinstance(output, list):
        assert output
        for part in output:
            assert part["type"] in ("input_text", "input_image", "input_file")
            assert part.get("text", "-").strip()


# Gemini


def assert_google_takes(body: dict[str, Any], *, modern: bool) -> None:
    """`modern`: Gemini 3 and later, which wants each step's first call of the current turn signed."""
    contents = body["contents"]
    assert contents[0]["role"] == "user"
    calls: list[dict[str, Any]] = []
    for content in contents:
        genai_types.Content.model_validate(content)
        parts = content["parts"]
        assert parts
        for part in parts:
            _assert_google_part(part)
        responses = [part["functionResponse"] for part in parts if "functionResponse" in part]
        assert [(call.get("id"), call["name"]) for call in calls] == [
            (response.get("id"), response["name"]) for response in responses
        ], "as many responses as calls, right behind them"
        calls = [part["functionCall"] for part in parts if "functionCall" in part]
        assert content["role"] == ("model" if calls else "user" if responses else content["role"])
    assert not calls
    assert contents[-1]["role"] == "user"
    if modern:
        _assert_signed(contents)


def _assert_google_part(part: dict[str, Any]) -> None:
    beside = {"thought", "thoughtSignature", "videoMetadata", "partMetadata", "mediaResolution"}
    (kind,) = set(part) - beside
    if kind == "text":
        assert part["text"].strip() or "thoughtSignature" in part
    elif kind == "functionCall":
        assert NAME.fullmatch(part["functionCall"]["name"])
        assert isinstance(part["functionCall"]["args"], dict)
    elif kind == "functionResponse":
        assert isinstance(part["functionResponse"]["response"], dict)
    if "thoughtSignature" in part:
        base64.b64decode(part["thoughtSignature"].replace("-", "+").replace("_", "/") + "==")


def _assert_signed(contents: list[dict[str, Any]]) -> None:
    """Each step since the user last said something has its first call signed."""
    said = [place for place, content in enumerate(contents) if content["role"] == "user" and _says(content)]
    for content in contents[said[-1] :]:
        first = next((part for part in content["parts"] if "functionCall" in part), None)
        assert first is None or first.get("thoughtSignature")


def _says(content: dict[str, Any]) -> bool:
    return any("functionResponse" not in part for part in content["parts"])
