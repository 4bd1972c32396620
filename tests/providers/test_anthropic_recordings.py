"""Every recorded exchange of the Messages API, against a naive reader and against the `anthropic` client."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import anthropic
import pytest

from support.claude import collect, consistent
from support.feeding import cuts, feed
from support.recorded import error_of
from treadle.errors import ModelError
from treadle.messages import (
    ProviderPart,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolMessage,
    ToolResultPart,
    UserMessage,
)
from treadle.model import HostedMCP, ModelRequest, Reasoning, ToolSpec
from treadle.providers import resolve
from treadle.providers.anthropic._models import traits_of
from treadle.providers.anthropic._request import RequestWriter
from treadle.usage import StopReason

if TYPE_CHECKING:
    from treadle.events import ModelFinish

STOPS = {
    "end_turn": StopReason.END,
    "stop_sequence": StopReason.END,
    "tool_use": StopReason.TOOL_CALLS,
    "max_tokens": StopReason.MAX_TOKENS,
    "refusal": StopReason.REFUSAL,
}

# Recorded requests have these made ASCII.
ASCII = str.maketrans({"\u2013": "-", "\u2014": "-", "\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"'})


def counts(exchange: dict[str, Any]) -> bool:
    """Whether tokens were to be counted."""
    return "/count_tokens" in exchange["request"]["path"]


# A reader of its own, as simple as can be


def naive(body: str) -> dict[str, Any]:
    """The message that a body holds, put together in the plainest way. `args` are the texts of streamed inputs."""
    if body.lstrip().startswith("{"):
        message: dict[str, Any] = json.loads(body)
        for block in message["content"]:
            if block["type"].endswith("tool_use"):
                block["args"] = block["input"]
        return message
    message = {"content": [], "usage": {}}
    for line in body.splitlines():
        if line.startswith("data:"):
            naive_event(json.loads(line[5:]), message)
    for block in message["content"]:
        if block["type"].endswith("tool_use"):
            block["input"] = json.loads(block["args"] or "{}") if not block.get("cut") else None
    return message


def naive_event(event: dict[str, Any], message: dict[str, Any]) -> None:
    if event["type"] == "message_start":
        message["usage"] |= event["message"]["usage"]
    elif event["type"] == "content_block_start":
        message["content"].append({**event["content_block"], "args": ""})
    elif event["type"] == "message_delta":
        message |= event["delta"]
        message["usage"] |= event["usage"]
        if message["stop_reason"] == "max_tokens":
            message["content"][-1]["cut"] = True
    elif event["type"] == "content_block_delta":
        block, delta = message["content"][event["index"]], event["delta"]
        kind = delta["type"]
        if kind == "input_json_delta":
            block["args"] += delta["partial_json"]
        elif kind == "citations_delta":
            block["citations"].append(delta["citation"])
        else:
            field = {"signature_delta": "signature", "compaction_delta": "content"}.get(
                kind, kind.removesuffix("_delta")
            )
            block[field] = (block[field] or "") + delta[field]


def compare(finish: ModelFinish, expected: dict[str, Any]) -> None:
    """The adapter's finish against the message that a body holds."""
    parts = list(finish.message.content)
    for block in expected["content"]:
        if block["type"] == "text" and not block["text"]:
            continue
        compare_block(parts.pop(0), block)
        if block.get("citations"):
            assert parts.pop(0) == ProviderPart("anthropic", "citations", block["citations"])
    assert {part.kind for part in parts} == {key for key in ("container", "stop_details") if expected.get(key)}
    compare_usage(finish, expected["usage"])
    calls = [block for block in expected["content"] if block["type"] == "tool_use"]
    reason = expected["stop_reason"]
    assert finish.raw_stop == reason
    assert finish.stop is (StopReason.TOOL_CALLS if calls and reason == "end_turn" else STOPS[reason])


def compare_block(part: Any, block: dict[str, Any]) -> None:
    kind = block["type"]
    if kind == "text":
        assert isinstance(part, TextPart)
        assert part.text == block["text"]
        urls = [item["url"] for item in block.get("citations") or []]
        assert list(dict.fromkeys(urls)) == list(dict.fromkeys(item.url for item in part.citations))
    elif kind == "thinking":
        assert part == ReasoningPart(block["thinking"], block["signature"])
    elif kind.endswith("tool_use"):
        assert isinstance(part, ToolCallPart)
        assert (part.id, part.name, part.hosted) == (block["id"], block["name"], kind != "tool_use")
        assert part.finished is not block.get("cut", False)
        assert part.args == block["args"] if isinstance(block["args"], str) else json.loads(part.args) == block["args"]
        if part.hosted:
            assert part.raw == {key: value for key, value in block.items() if key != "args"}
        else:
            assert (part.raw or {}).get("caller") == block.get("caller")
    elif kind.endswith("_tool_result"):
        assert isinstance(part, ToolResultPart)
        assert (part.call_id, part.hosted) == (block["tool_use_id"], True)
        assert part.raw == {key: value for key, value in block.items() if key != "args"}
        content = block["content"]
        failed = isinstance(content, dict) and content["type"].endswith("_error")
        assert part.is_error == (bool(block.get("is_error")) or failed)
    else:
        assert part == ProviderPart("anthropic", kind, {key: value for key, value in block.items() if key != "args"})


def compare_usage(finish: ModelFinish, counts: dict[str, Any]) -> None:
    used = finish.usage
    assert used is not None
    passes = counts.get("iterations") or [counts]

    def total(key: str) -> int:
        return sum(item.get(key) or 0 for item in passes)

    assert used.input_tokens == total("input_tokens")
    assert used.output_tokens == total("output_tokens")
    assert used.cache_read_tokens == total("cache_read_input_tokens")
    assert used.cache_write_tokens == total("cache_creation_input_tokens")
    assert used.reasoning_tokens == (counts.get("output_tokens_details") or {}).get("thinking_tokens", 0)


# The adapter, fed directly: any cut


def answers(recording: dict[str, Any], name: str) -> list[tuple[int, dict[str, Any]]]:
    """The exchanges that hold an answer."""
    return [
        (number, exchange)
        for number, exchange in enumerate(recording["exchanges"])
        if not error_of(name, number, exchange["response"]) and not counts(exchange)
    ]


def test_each_recording_gives_what_its_body_holds_however_it_is_cut(recordings: Any, anthropic_recording: str) -> None:
    for _, exchange in answers(recordings.load(anthropic_recording), anthropic_recording):
        expected = naive(exchange["response"]["body"])
        for cut in cuts():
            events = feed("anthropic", "anthropic", exchange["response"], cut)
            consistent(events)
            if expected["stop_reason"] == "pause_turn":
                assert events[-1].stop is StopReason.OTHER
                continue
            compare(events[-1], expected)


# The adapter over HTTP


@pytest.mark.parametrize("options", [{}, {"split": 7}, {"split_random": 50, "seed": 4}], ids=["whole", "7", "random"])
async def test_each_recording_replays_over_http(
    recordings: Any, anthropic_recording: str, options: dict[str, Any]
) -> None:
    recording = recordings.load(anthropic_recording)
    with recordings.server(anthropic_recording, **options) as server:
        asked: Any = resolve("anthropic:m", base_url=server.base_url, api_key="k")
        numbers = iter(range(len(recording["exchanges"])))
        for number in numbers:
            response = recording["exchanges"][number]["response"]
            expected = error_of(anthropic_recording, number, response)
            if expected is None and counts(recording["exchanges"][number]):
                count = await asked.count_tokens(ModelRequest(None, (UserMessage("hi"),)))
                assert count == json.loads(response["body"])["input_tokens"]
            elif expected is not None:
                with pytest.raises(ModelError) as caught:
                    await collect(asked)
                assert isinstance(caught.value, expected)
                assert "\n" not in str(caught.value)
                assert caught.value.status == response["status"] or response["status"] == 200
            else:
                events = await collect(asked)
                consistent(events)
                if "pause-turn" in recording["exchanges"][number]["features"]:
                    next(numbers)
                    compare_joined(events[-1], recording)
                else:
                    compare(events[-1], naive(response["body"]))
    assert len(server.received) == len(recording["exchanges"])
    # The other clients ask for betas by a query.
    assert [item["path"] for item in server.received] == [
        exchange["request"]["path"].partition("?")[0] for exchange in recording["exchanges"]
    ]


def compare_joined(finish: ModelFinish, recording: dict[str, Any]) -> None:
    """A turn that was paused: one answer, the usage added up."""
    first, second = (naive(exchange["response"]["body"]) for exchange in recording["exchanges"])
    keys = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    usage = {key: (first["usage"].get(key) or 0) + (second["usage"].get(key) or 0) for key in keys}
    details = [message["usage"].get("output_tokens_details") or {} for message in (first, second)]
    usage["output_tokens_details"] = {"thinking_tokens": sum(item.get("thinking_tokens", 0) for item in details)}
    compare(finish, {**second, "content": first["content"] + second["content"], "usage": usage})


async def test_each_recording_parses_as_the_anthropic_client_parses_it(
    recordings: Any, anthropic_recording: str
) -> None:
    recording = recordings.load(anthropic_recording)
    with recordings.server(anthropic_recording) as server:
        async with anthropic.AsyncAnthropic(base_url=server.base_url, api_key="k", max_retries=0) as client:
            for number, exchange in enumerate(recording["exchanges"]):
                if counts(exchange):
                    await client.messages.count_tokens(model="m", messages=[{"role": "user", "content": "x"}])
                elif error_of(anthropic_recording, number, exchange["response"]):
                    with pytest.raises(anthropic.APIError):
                        await oracle(client, exchange)
                else:
                    compare_oracle(
                        feed("anthropic", "anthropic", exchange["response"])[-1], await oracle(client, exchange)
                    )


async def oracle(client: Any, exchange: dict[str, Any]) -> Any:
    """What the `anthropic` client makes of an exchange."""
    asked: dict[str, Any] = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "x"}]}
    if "json" in exchange["response"]["headers"].get("content-type", ""):
        return await client.beta.messages.create(**asked)
    async with client.beta.messages.stream(**asked) as stream:
        return await stream.get_final_message()


def compare_oracle(finish: ModelFinish, expected: Any) -> None:
    content = finish.message.content
    assert finish.raw_stop == expected.stop_reason
    assert finish.message.text == "".join(block.text for block in expected.content if block.type == "text")
    thinking = [(block.thinking, block.signature) for block in expected.content if block.type == "thinking"]
    assert [(part.text, part.signature) for part in content if isinstance(part, ReasoningPart)] == thinking
    calls = [block for block in expected.content if block.type.endswith("tool_use")]
    found = [part for part in content if isinstance(part, ToolCallPart)]
    assert [(part.id, part.name) for part in found] == [(block.id, block.name) for block in calls]
    for part, block in zip(found, calls, strict=True):
        if part.finished:
            assert json.loads(part.args or "{}") == block.input
    results = [part.call_id for part in content if isinstance(part, ToolResultPart)]
    assert results == [block.tool_use_id for block in expected.content if block.type.endswith("_tool_result")]
    assert finish.usage is not None
    if not expected.usage.iterations:
        assert finish.usage.input_tokens == expected.usage.input_tokens
        assert finish.usage.output_tokens == expected.usage.output_tokens


# What goes back


def test_an_answer_goes_back_as_it_came(recordings: Any, anthropic_recording: str) -> None:
    """Every block of every answer, in its order; blank texts, and thinking at the very end, are left out."""
    for _, exchange in answers(recordings.load(anthropic_recording), anthropic_recording):
        expected = naive(exchange["response"]["body"])
        if expected["stop_reason"] in ("pause_turn", "max_tokens"):
            continue
        message = feed("anthropic", "anthropic", exchange["response"])[-1].message
        body = json.loads(RequestWriter("m", traits_of("m")).body(ModelRequest(None, (UserMessage("x"), message))))
        written = body["messages"][1]["content"] if len(body["messages"]) > 1 else []
        sendable = [
            sent_block(block) for block in expected["content"] if block["type"] != "text" or block["text"].strip()
        ]
        assert written == sendable


def sent_block(block: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in block.items() if key != "args" and not (key == "citations" and not value)}


def test_the_next_request_carries_back_what_the_recorded_one_does(recordings: Any, anthropic_recording: str) -> None:
    exchanges = recordings.load(anthropic_recording)["exchanges"]
    for number, (exchange, following) in enumerate(itertools.pairwise(exchanges)):
        asked, before = following["request"]["body"], exchange["request"]["body"]
        if error_of(anthropic_recording, number, exchange["response"]) or counts(exchange) or not (asked and before):
            continue
        finish = feed("anthropic", "anthropic", exchange["response"])[-1]
        messages, depth = asked["messages"], len(before["messages"])
        if len(messages) > depth and messages[:depth] == before["messages"]:  # no other conversation, nor other marks
            compare_request(finish, messages[depth], messages[depth + 1 :], asked)


def compare_request(finish: ModelFinish, turn: dict[str, Any], rest: list[Any], asked: dict[str, Any]) -> None:
    contents = {
        block["tool_use_id"]: block
        for message in rest
        for block in message["content"]
        if block["type"] == "tool_result"
    }
    message, writer = finish.message, RequestWriter("m", traits_of("m"))
    if finish.raw_stop == "pause_turn":
        body = json.loads(writer.body(ModelRequest(None, (UserMessage("x"),)), message))
        assert not rest
        replies: list[Any] = []
    else:
        results = ToolMessage(tuple(ToolResultPart(item.id, item.name, "r") for item in message.calls))
        body = json.loads(writer.body(ModelRequest(None, (UserMessage("x"), message, results))))
        replies = body["messages"][2]["content"] if message.calls else []
    written = body["messages"][1]
    assert written["role"] == "assistant"
    assert [without_nulls(block) for block in written["content"]] == [
        without_nulls(theirs, ours) for theirs, ours in zip(sendable_blocks(turn), written["content"], strict=True)
    ]
    assert [reply["tool_use_id"] for reply in replies] == list(contents)
    if "container" in asked:
        assert body["container"] == asked["container"]


def sendable_blocks(turn: dict[str, Any]) -> list[dict[str, Any]]:
    return [block for block in turn["content"] if block["type"] != "text" or block["text"].strip()]


def without_nulls(value: Any, ours: dict[str, Any] | None = None) -> Any:
    """A block as far as it matters: the other clients add nulls or lose them, or leave `caller` out."""
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    if isinstance(value, str):
        return value.translate(ASCII)
    if not isinstance(value, dict):
        return value
    found = {key: without_nulls(item) for key, item in value.items() if item is not None}
    if ours is not None and "caller" in ours:
        found.setdefault("caller", ours["caller"])
    return found


def test_options_go_out_as_recorded(recordings: Any) -> None:
    """What other clients sent beside the messages, and what we send for the same wish."""
    cases: dict[str, tuple[str, dict[str, Any]]] = {
        "reasoning-tool-roundtrip-streaming": ("thinking", {"reasoning": Reasoning()}),
        "code-execution-tool-stream": ("thinking", {"reasoning": Reasoning(budget_tokens=3000)}),
        "fixed-version-tool-chain-with-thinking-display-regression": (
            "thinking",
            {"reasoning": Reasoning(budget_tokens=1024, show=True)},
        ),
        "explicit-effort-xhigh-unsupported-model-errors": ("output_config", {"reasoning": Reasoning(effort="xhigh")}),
    }
    for name, (field, more) in cases.items():
        asked = recordings.load(f"anthropic--{name}")["exchanges"][0]["request"]["body"]
        writer = RequestWriter(asked["model"], traits_of(asked["model"]))
        body = json.loads(writer.body(ModelRequest(None, (UserMessage("x"),), **more)))
        assert body[field] == asked[field]
    asked = recordings.load("anthropic--schema-prompt")["exchanges"][0]["request"]["body"]
    schema = asked["output_config"]["format"]["schema"]
    writer = RequestWriter(asked["model"], traits_of(asked["model"]))
    body = json.loads(writer.body(ModelRequest(None, (UserMessage("x"),), output_schema=schema)))
    assert body["output_config"] == asked["output_config"]
    asked = recordings.load("anthropic--mcp-servers-stream")["exchanges"][0]["request"]["body"]
    (server,) = asked["mcp_servers"]
    hosted = HostedMCP(server["name"], server["url"], allowed_tools=("ask_question",))
    body = json.loads(writer.body(ModelRequest(None, (UserMessage("x"),), hosted_mcp=(hosted,))))
    assert body["mcp_servers"] == [{key: server[key] for key in ("type", "name", "url")}]
    asked = recordings.load("anthropic--streaming-grammar-parallel-tool-use")["exchanges"][0]["request"]["body"]
    specs = tuple(ToolSpec(item["name"], item["description"], item["input_schema"]) for item in asked["tools"])
    body = json.loads(writer.body(ModelRequest("i", (UserMessage("x"),), specs)))
    assert body["tools"] == asked["tools"]
