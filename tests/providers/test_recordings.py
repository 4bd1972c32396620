"""Every recorded Chat Completions exchange, against a naive reader and against the `openai` client."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import openai
import pytest

from support.chat import collect, consistent
from support.feeding import cuts, feed
from support.recorded import error_of, prefix_of
from treadle.errors import (
    ModelError,
)
from treadle.messages import ProviderPart, ReasoningPart, ToolMessage, ToolResultPart, UserMessage
from treadle.model import ModelRequest
from treadle.providers import resolve
from treadle.providers.openai_chat._dialects import DIALECTS
from treadle.providers.openai_chat._request import RequestWriter
from treadle.usage import StopReason

if TYPE_CHECKING:
    from collections.abc import Iterable

    from treadle.events import ModelFinish


# A reader of its own, as simple as can be


def naive(body: str) -> dict[str, Any]:
    """What a body says, read in the plainest way."""
    found: dict[str, Any] = {"text": "", "reasoning": "", "calls": [], "usage": None, "finish": None, "native": None}
    found["refusal"] = ""
    for value in documents(body):
        found["usage"] = value.get("usage") or found["usage"]
        for choice in value.get("choices") or []:
            kinds = ("message", "delta") if body.lstrip().startswith("{") else ("delta", "message")
            naive_message(choice.get(kinds[0]) or choice.get(kinds[1]) or {}, found)
            found["finish"] = choice.get("finish_reason") or found["finish"]
            found["native"] = choice.get("native_finish_reason") or found["native"]
    return found


def documents(body: str) -> Iterable[dict[str, Any]]:
    if body.lstrip().startswith("{"):
        return [json.loads(body)]
    lines = [line[5:].strip() for line in body.splitlines() if line.startswith("data:")]
    return [json.loads(line) for line in lines if line and line != "[DONE]"]


def naive_message(message: dict[str, Any], found: dict[str, Any]) -> None:
    content = message.get("content") or ""
    for part in content if isinstance(content, list) else [{"type": "text", "text": content}]:
        if part["type"] == "thinking":
            found["reasoning"] += "".join(item["text"] for item in part["thinking"])
        else:
            found["text"] += part["text"]
    shown = message.get("reasoning_content") or message.get("reasoning")
    details = message.get("reasoning_details") or []
    found["reasoning"] += shown or "".join(item.get("text") or item.get("summary") or "" for item in details)
    found["text"] += message.get("refusal") or ""
    found["refusal"] += message.get("refusal") or ""
    for call in message.get("tool_calls") or []:
        if call.get("id"):
            found["calls"].append([call["id"], "", ""])
        found["calls"][-1][1] += call["function"].get("name") or ""
        found["calls"][-1][2] += call["function"].get("arguments") or ""


def compare(finish: ModelFinish, body: str) -> None:
    """The adapter's finish against what the body holds."""
    expected = naive(body)
    message = finish.message
    assert message.text == expected["text"]
    assert "".join(part.text for part in message.content if isinstance(part, ReasoningPart)) == expected["reasoning"]
    assert [[call.id, call.name, call.args] for call in message.calls] == expected["calls"]
    compare_usage(finish, expected["usage"])
    compare_stop(finish, expected)


def compare_usage(finish: ModelFinish, counts: dict[str, Any] | None) -> None:
    if counts is None:
        assert finish.usage is None
        return
    used = finish.usage
    assert used is not None
    details = counts.get("prompt_tokens_details") or {}
    # Azure has told of more cached tokens than there were tokens.
    assert used.cache_read_tokens == min(details.get("cached_tokens") or 0, counts["prompt_tokens"])
    assert used.input_tokens + used.cache_read_tokens + used.cache_write_tokens == counts["prompt_tokens"]
    assert used.total_tokens == counts["total_tokens"]
    assert used.reasoning_tokens == ((counts.get("completion_tokens_details") or {}).get("reasoning_tokens") or 0)
    cost = counts.get("cost")
    ticks = counts.get("cost_in_usd_ticks")
    expected = cost["total_cost"] if isinstance(cost, dict) else cost
    assert used.cost_usd == (expected if expected is not None else ticks / 1e10 if ticks else None)


def compare_stop(finish: ModelFinish, expected: dict[str, Any]) -> None:
    cut = expected["finish"] == "length" or expected["native"] in ("max_output_tokens", "MAX_TOKENS")
    if cut:
        assert finish.stop is StopReason.MAX_TOKENS
        assert all(not call.finished for call in finish.message.calls[-1:])
        return
    assert all(call.finished for call in finish.message.calls)
    assert finish.raw_stop == (expected["finish"] or finish.raw_stop)
    if expected["calls"]:
        assert finish.stop is StopReason.TOOL_CALLS
    elif expected["refusal"]:
        assert finish.stop is StopReason.REFUSAL
    else:
        assert finish.stop is {"content_filter": StopReason.REFUSAL}.get(expected["finish"], StopReason.END)


# The adapter, fed directly: any cut


def test_each_recording_gives_what_its_body_holds_however_it_is_cut(recordings: Any, chat_recording: str) -> None:
    recording = recordings.load(chat_recording)
    for number, exchange in enumerate(recording["exchanges"]):
        response = exchange["response"]
        if error_of(chat_recording, number, response):
            continue
        for cut in cuts():
            events = feed("chat", prefix_of(recording["provider"]), response, cut)
            consistent(events)
            compare(events[-1], response["body"])


# The adapter over HTTP


@pytest.mark.parametrize("options", [{}, {"split": 7}, {"split_random": 50, "seed": 4}], ids=["whole", "7", "random"])
async def test_each_recording_replays_over_http(recordings: Any, chat_recording: str, options: dict[str, Any]) -> None:
    recording = recordings.load(chat_recording)
    with recordings.server(chat_recording, **options) as server:
        _, mark, query = recording["exchanges"][0]["request"]["path"].partition("?")
        url = f"{server.base_url}{mark}{query}"
        asked: Any = resolve(f"{prefix_of(recording['provider'])}:m", base_url=url, api_key="k")
        for number, exchange in enumerate(recording["exchanges"]):
            expected = error_of(chat_recording, number, exchange["response"])
            if expected is None:
                events = await collect(asked)
                consistent(events)
                compare(events[-1], exchange["response"]["body"])
                continue
            with pytest.raises(ModelError) as caught:
                await collect(asked)
            assert isinstance(caught.value, expected)
            assert "\n" not in str(caught.value)
            status = exchange["response"]["status"]
            assert status in (caught.value.status, 200)
    assert len(server.received) == len(recording["exchanges"])
    assert not server.mismatches


async def test_each_recording_parses_as_the_openai_client_parses_it(recordings: Any, chat_recording: str) -> None:
    recording = recordings.load(chat_recording)
    with recordings.server(chat_recording) as server:
        async with openai.AsyncOpenAI(base_url=server.base_url, api_key="k", max_retries=0) as client:
            for number, exchange in enumerate(recording["exchanges"]):
                if error_of(chat_recording, number, exchange["response"]):
                    with pytest.raises(openai.APIError):
                        await oracle(client, exchange)
                    continue
                expected = await oracle(client, exchange)
                events = feed("chat", prefix_of(recording["provider"]), exchange["response"])
                message = events[-1].message
                assert message.text == expected["text"]
                assert [[call.id, call.name, call.args] for call in message.calls] == expected["calls"]
                assert events[-1].raw_stop in (expected["finish"], "max_output_tokens")


async def oracle(client: Any, exchange: dict[str, Any]) -> dict[str, Any]:
    """What the `openai` client makes of an exchange. Parts of content it hands on as they came."""
    found: dict[str, Any] = {"text": "", "reasoning": "", "calls": [], "finish": None, "refusal": ""}
    stream = "json" not in exchange["response"]["headers"].get("content-type", "")
    answer = await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}], stream=stream)
    chunks = [chunk async for chunk in answer] if stream else [answer]
    for value in chunks:
        for choice in value.choices or []:
            naive_message((choice.delta if stream else choice.message).to_dict(warnings=False), found)
            found["finish"] = choice.finish_reason if choice.finish_reason is not None else found["finish"]
    return found


# What goes back


def test_the_next_request_carries_back_what_the_provider_gave(recordings: Any, chat_recording: str) -> None:
    recording = recordings.load(chat_recording)
    provider, exchanges = prefix_of(recording["provider"]), recording["exchanges"]
    for number, (exchange, following) in enumerate(itertools.pairwise(exchanges)):
        if error_of(chat_recording, number, exchange["response"]):
            continue
        message = feed("chat", provider, exchange["response"])[-1].message
        ids = [call.id for call in message.calls]
        messages = (following["request"]["body"] or {}).get("messages", [])
        for item in messages:
            if ids and sent_ids(item) == ids:
                compare_sent(provider, message, item, messages)


def sent_ids(item: dict[str, Any]) -> list[str]:
    return [call["id"] for call in item.get("tool_calls") or []] if item["role"] == "assistant" else []


def compare_sent(provider: str, message: Any, item: dict[str, Any], messages: list[dict[str, Any]]) -> None:
    """Our rendering of an answer and its results against what another client sent."""
    dialect = DIALECTS[provider]
    contents = {reply["tool_call_id"]: reply["content"] for reply in messages if reply["role"] == "tool"}
    results = ToolMessage(
        tuple(ToolResultPart(call.id, call.name, str(contents.get(call.id))) for call in message.calls)
    )
    body = RequestWriter(provider, "m", dialect).body(ModelRequest(None, (UserMessage("x"), message, results)))
    _, written, *replies = json.loads(body)["messages"]
    ids = [call["id"] for call in written["tool_calls"]]
    assert [reply["tool_call_id"] for reply in replies] == ids
    if dialect.call_id_length is None or all(len(call["id"]) == dialect.call_id_length for call in item["tool_calls"]):
        assert ids == sent_ids(item)
    for ours, theirs in zip(written["tool_calls"], item["tool_calls"], strict=True):
        assert ours["function"]["name"] == theirs["function"]["name"]
        assert json.loads(ours["function"]["arguments"]) == (json.loads(theirs["function"]["arguments"]) or {})
    if details := item.get("reasoning_details"):
        # The other client added nulls; ours go back as they came.
        assert [without_nulls(detail) for detail in written["reasoning_details"]] == [
            {**without_nulls(detail), "format": ours["format"]}
            for ours, detail in zip(written["reasoning_details"], details, strict=True)
        ]
        assert any(isinstance(part, ProviderPart) for part in message.content)
    if dialect.reasoning_field in item:
        assert written[dialect.reasoning_field] == item[dialect.reasoning_field]


def without_nulls(value: dict[str, Any]) -> dict[str, Any]:
    return {key: item for key, item in value.items() if item is not None}
