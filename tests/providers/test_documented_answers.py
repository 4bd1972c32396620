"""Whatever the vendors' own types allow in an answer is read: nothing breaks, no text is lost, what must goes back.

The tables come from the clients' types, so that what no recording shows is tried as well.
"""

from __future__ import annotations

import json
import typing
from typing import Any

import pytest
from anthropic.types.beta import BetaMessage, BetaRawContentBlockDelta, BetaStopReason
from anthropic.types.beta.beta_content_block import BetaContentBlock
from google.genai import types as genai
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseOutputItem, ResponseStreamEvent

from support import chat, claude, google, responses
from support.loopback import Loopback, Reply
from support.samples import FORMS, members, sample, tag
from treadle.errors import ModelError
from treadle.messages import ToolMessage, ToolResultPart, UserMessage
from treadle.model import ModelRequest
from treadle.providers.anthropic._models import traits_of
from treadle.providers.anthropic._request import RequestWriter as AnthropicWriter
from treadle.providers.google._request import RequestWriter as GoogleWriter
from treadle.providers.openai._dialects import DIALECTS as RESPONSES_DIALECTS
from treadle.providers.openai._request import RequestWriter as ResponsesWriter
from treadle.providers.openai_chat._dialects import DIALECTS
from treadle.providers.openai_chat._request import RequestWriter as ChatWriter
from treadle.usage import StopReason

each_form = pytest.mark.parametrize("form", FORMS)


def conversation(message: Any) -> ModelRequest:
    """The request that follows an answer."""
    results = ToolMessage(tuple(ToolResultPart(call.id, call.name, "r") for call in message.calls))
    return ModelRequest(None, (UserMessage("x"), message, *([results] if message.calls else []), UserMessage("y")))


def assert_framed(message: Any) -> None:
    """What was said before and after the strange thing is whole."""
    assert message.text.startswith("before")
    assert message.text.endswith("after")


# Responses

ITEMS = members(ResponseOutputItem)
EVENTS = [event for event in members(ResponseStreamEvent) if tag(event) not in ("response.completed", "error")]
# What the caller's side would have to answer does not go back: we cannot.
UNANSWERABLE = {"custom_tool_call", "local_shell_call", "shell_call", "apply_patch_call", "computer_call"}


async def responses_answer(*events: Any, item: dict[str, Any] | None = None) -> Any:
    before, after = responses.message("before"), responses.message("after", id="msg_2")
    output = [before, *([item] if item else []), after]
    return await responses.finish(
        responses.done(0, before),
        *events,
        responses.added(3, after),
        responses.done(3, after),
        responses.completed(*output),
    )


@each_form
@pytest.mark.parametrize("kind", ITEMS, ids=tag)
async def test_each_item_of_a_response_is_kept_and_goes_back(kind: Any, form: str) -> None:
    item = {**sample(kind, form), "status": "completed"}
    for events in ((responses.added(1, item), responses.done(1, item)), (responses.done(1, item),), ()):
        message = (await responses_answer(*events, item=item)).message
        if item["type"] in ("message", "reasoning") and not events:
            continue  # told behind the text that was told before it
        assert_framed(message)
        writer = ResponsesWriter("openai", "gpt-5", RESPONSES_DIALECTS["openai"])
        sent = json.loads(writer.body(conversation(message)))["input"]
        if item["type"] == "message":
            assert message.text == "beforexafter"
        elif item["type"] == "function_call":
            (call,) = message.calls
            assert (call.id, call.name, call.args) == ("x", "x", "x")
        elif item["type"] == "reasoning" and not (item.get("encrypted_content") or item.get("content")):
            assert item not in sent
        elif item["type"] not in UNANSWERABLE and item.get("execution") != "client":
            assert item in sent


@each_form
@pytest.mark.parametrize("kind", EVENTS, ids=tag)
async def test_no_event_of_a_response_breaks_the_answer(kind: Any, form: str) -> None:
    event = sample(kind, form)
    if event["type"] in ("response.failed", "response.incomplete"):
        event["response"] = responses.document(responses.message("before"), status=event["type"][9:])
    if event["type"] == "response.failed":
        with pytest.raises(ModelError):
            await responses_answer(event)
        return
    message = (await responses_answer(event)).message
    assert message.text.startswith("before")
    assert message.text.endswith("after") or event["type"] == "response.incomplete"


async def test_a_call_that_a_message_follows_waits_for_nobody() -> None:
    item = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c", "name": "x_search", "input": "{}"}
    assert (await responses_answer(responses.done(1, item), item=item)).stop is StopReason.END
    last = await responses.finish(responses.done(0, item), responses.completed(item))
    assert last.stop is StopReason.OTHER


async def test_an_event_or_item_of_no_known_kind_changes_nothing() -> None:
    strange = {"type": "response.telepathy.delta", "delta": "x", "output_index": 0, "content_index": 0}
    item = {"type": "telepathy_call", "id": "tp_1", "of": [1, None]}
    message = (await responses_answer(strange, responses.done(1, item), item=item)).message
    assert message.text == "beforeafter"
    assert [part.data for part in message.content if hasattr(part, "data")] == [item]


# Anthropic

BLOCKS = members(BetaContentBlock)
DELTAS = members(BetaRawContentBlockDelta)


async def anthropic_answer(*events: Any, reason: Any = "end_turn") -> Any:
    return await claude.finish(
        claude.start(), *claude.text("before"), *events, *claude.text("after", index=9), *claude.end(reason)
    )


def anthropic_sent(message: Any) -> list[dict[str, Any]]:
    writer = AnthropicWriter("claude-opus-4-6", traits_of("claude-opus-4-6"))
    content: list[dict[str, Any]] = json.loads(writer.body(conversation(message)))["messages"][1]["content"]
    return content


@each_form
@pytest.mark.parametrize("kind", BLOCKS, ids=tag)
async def test_each_block_of_a_message_is_kept_and_goes_back(kind: Any, form: str) -> None:
    block = {**sample(kind, form), "type": tag(kind)}
    partner = []
    if block["type"] in ("server_tool_use", "mcp_tool_use"):
        partner = claude.block({"type": "mcp_tool_result", "tool_use_id": "x", "content": []}, index=2)
    message = (await anthropic_answer(*claude.block(block, index=1), *partner)).message
    assert_framed(message)
    expected = {key: value for key, value in block.items() if not (key == "citations" and not value)}
    assert expected in anthropic_sent(message)


@pytest.mark.parametrize("delta", DELTAS, ids=tag)
@pytest.mark.parametrize("kind", BLOCKS, ids=tag)
async def test_no_delta_breaks_a_block(kind: Any, delta: Any) -> None:
    events = claude.block(sample(kind, "least"), sample(delta, "most"), {"type": "telepathy_delta", "x": 1}, index=1)
    message = (await anthropic_answer(*events)).message
    assert_framed(message)
    anthropic_sent(message)


@pytest.mark.parametrize("reason", [*typing.get_args(BetaStopReason), "telepathy"])
async def test_each_stop_reason_of_a_message_is_a_stop(reason: str) -> None:
    if reason == "pause_turn":
        return  # no end: the turn is gone on with
    finish = await anthropic_answer(reason=reason)
    assert finish.raw_stop == reason
    known = {"end_turn", "stop_sequence", "tool_use", "max_tokens", "refusal", "model_context_window_exceeded"}
    assert (finish.stop is StopReason.OTHER) == (reason not in known)
    assert finish.message.text == "beforeafter"


# Gemini

PARTS = [name for name in genai.Part.model_fields if name not in ("text", "thought", "function_response")]
BESIDE = [name for name in genai.Candidate.model_fields if name not in ("content", "index", "finish_reason")]


def camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word.title() for word in rest)


def google_sent(message: Any) -> list[dict[str, Any]]:
    contents: list[dict[str, Any]] = json.loads(GoogleWriter("google", "gemini-3-flash").body(conversation(message)))[
        "contents"
    ]
    return contents[1]["parts"]


@each_form
@pytest.mark.parametrize("name", PARTS)
async def test_each_part_of_a_candidate_is_kept_and_goes_back(name: str, form: str) -> None:
    value = sample(genai.Part.model_fields[name].annotation, "most" if form == "null" else form)
    part = {camel(name): value}
    if name == "function_call":
        value.pop("willContinue", None)
        value.pop("partialArgs", None)
    elif name == "thought_signature":
        part["text"] = ""
    if form == "null":
        part |= dict.fromkeys(("text", "thought", "thoughtSignature", "functionCall"), None) | part
    finish = await google.finish(
        google.chunk(google.text("before")), google.chunk(part), google.chunk(google.text("after"), finish="STOP")
    )
    assert_framed(finish.message)
    sent = google_sent(finish.message)
    if name == "function_call":
        assert bool(finish.message.calls) == bool(value)
    elif form != "null":
        assert part in sent


@each_form
@pytest.mark.parametrize("name", BESIDE)
async def test_nothing_beside_the_content_of_a_candidate_breaks_it(name: str, form: str) -> None:
    more = {camel(name): sample(genai.Candidate.model_fields[name].annotation, form)}
    first = google.chunk(google.text("before"), more=more)
    finish = await google.finish(first, google.chunk(google.text("after"), finish="STOP", more=more))
    assert finish.message.text == "beforeafter"
    assert finish.stop is StopReason.END
    google_sent(finish.message)


@each_form
async def test_all_that_may_stand_in_a_chunk_of_gemini_is_read(form: str) -> None:
    whole = sample(genai.GenerateContentResponse, form)
    for key in ("candidates", "promptFeedback", "sdkHttpResponse", "parsed", "automaticFunctionCallingHistory"):
        whole.pop(key, None)
    body = [google.chunk(google.text("before"), **whole), google.chunk(google.text("after"), finish="STOP", **whole)]
    assert (await google.finish(*body)).message.text == "beforeafter"


@pytest.mark.parametrize("reason", [*(reason.value for reason in genai.FinishReason), "TELEPATHY"])
async def test_each_finish_reason_of_gemini_is_a_stop_or_an_error(reason: str) -> None:
    body = (google.chunk(google.text("before")), google.chunk(google.text("after"), finish=reason))
    failures = {"MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "MISSING_THOUGHT_SIGNATURE", "UNEXPECTED_TOOL_CALL"}
    if reason in failures:
        with pytest.raises(ModelError, match=reason):
            await google.finish(*body)
        return
    finish = await google.finish(*body)
    assert (finish.raw_stop, finish.message.text) == (reason, "beforeafter")
    assert finish.stop.complete == (reason == "STOP")


@pytest.mark.parametrize("reason", [*(reason.value for reason in genai.BlockedReason), "TELEPATHY"])
async def test_each_block_reason_of_gemini_is_a_refusal(reason: str) -> None:
    finish = await google.finish({"promptFeedback": {"blockReason": reason}, "usageMetadata": {"promptTokenCount": 3}})
    assert (finish.stop, finish.raw_stop) == (StopReason.REFUSAL, reason)
    assert finish.usage is not None


# Chat Completions

NULLS = dict.fromkeys(("content", "refusal", "role", "tool_calls", "function_call", "audio", "annotations"))
NULLS |= dict.fromkeys(("reasoning", "reasoning_content", "reasoning_details", "images", "name"))
# Deltas that servers are known to send, or may: what they add to the text.
ODDITIES: list[tuple[Any, str]] = [
    (None, ""),
    ({}, ""),
    ({"role": "assistant"}, ""),
    (NULLS, ""),
    ({"content": ""}, ""),
    ({"content": []}, ""),
    ({"content": ["a", {"type": "text", "text": "b"}, {"type": "output_text", "text": "c"}]}, "abc"),
    ({"content": [{"type": "reference", "reference_ids": [1]}, {"type": "text", "text": "b"}, None, 3]}, "b"),
    ({"content": [{"type": "thinking", "thinking": "plain", "closed": True}]}, ""),
    ({"content": {"type": "text", "text": "b"}}, None),
    ({"content": "b", "tool_calls": []}, "b"),
    ({"content": "b", "tool_calls": [None]}, "b"),
    ({"content": "b", "tool_calls": None, "function_call": None}, "b"),
    ({"content": "b", "reasoning_details": [None, {}, {"type": "reasoning.telepathy", "x": 1}]}, "b"),
    ({"content": "b", "reasoning": {"text": "r"}, "reasoning_content": ["r"]}, "b"),
    ({"content": "b", "annotations": [None, {}, {"type": "url_citation"}, {"url_citation": None}]}, "b"),
    ({"content": "b", "audio": {"id": "a", "data": "eA==", "transcript": "t"}}, "b"),
    ({"content": "b", "images": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,eA=="}}]}, "b"),
    ({"content": "b", "executed_tools": [{"index": 0, "type": "search", "arguments": "{}", "output": "o"}]}, "b"),
    ({"content": "b", "obfuscation": "zzz", "provider_specific_fields": {"x": None}, "logprobs": {}}, "b"),
]


async def chat_answer(*events: Any, **options: Any) -> Any:
    return await chat.finish(
        chat.text("before"), *events, chat.text("after"), chat.chunk(finish="stop"), chat.usage(), **options
    )


@pytest.mark.parametrize(("delta", "said"), ODDITIES, ids=lambda value: json.dumps(value)[:50])
async def test_an_odd_delta_loses_no_text(delta: Any, said: str | None) -> None:
    chunk = {"id": "chatcmpl-1", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    finish = await chat_answer(chunk)
    assert_framed(finish.message)
    assert said is None or finish.message.text == f"before{said}after"
    assert finish.usage is not None
    ChatWriter("openrouter", "m", DIALECTS["openrouter"]).body(conversation(finish.message))


@pytest.mark.parametrize(
    "more",
    [
        {"choices": None},
        {"choices": []},
        {"choices": [{}]},
        {"choices": [{"index": 0}]},
        {"choices": [{"index": None, "delta": {"content": ""}, "finish_reason": ""}]},
        {"choices": [{"index": 1, "delta": {"content": "another candidate"}}]},
        {"choices": [{"index": "0", "delta": {"role": "assistant"}, "finish_reason": None, "stop_reason": None}]},
        {"error": None, "usage": None, "x_groq": None, "citations": None, "search_results": None},
        {"usage": [], "x_groq": {"id": "req", "usage": None}, "citations": {}, "search_results": [None, "x"]},
        {"id": 7, "created": "now", "object": None, "model": None, "system_fingerprint": 3, "timings": {"a": 1}},
        {"prompt_filter_results": [{"prompt_index": 0, "content_filter_results": {}}], "choices": []},
        {"choices": [{"index": 0, "delta": None, "content_filter_offsets": {"check_offset": 1}}]},
        {"sla_metrics": {"ttft_ms": 1}, "p": "abc", "nvext": {}, "kv_transfer_params": None, "service_tier": "x"},
    ],
    ids=lambda value: json.dumps(value)[:50],
)
async def test_an_odd_chunk_loses_nothing(more: dict[str, Any]) -> None:
    finish = await chat_answer(more)
    assert (finish.message.text, finish.stop) == ("beforeafter", StopReason.END)
    assert finish.usage is not None
    assert finish.usage.input_tokens == 10


@each_form
@pytest.mark.parametrize("kind", [ChatCompletionChunk, ChatCompletion])
async def test_all_that_may_stand_in_a_chunk_is_read(kind: Any, form: str) -> None:
    whole = sample(kind, form)
    choice = {key: value for key, value in whole["choices"][0].items() if key not in ("message", "delta")}
    whole["choices"] = [{**choice, "index": 0, "delta": {}, "finish_reason": None}]
    finish = await chat_answer(whole)
    assert finish.message.text == "beforeafter"


@pytest.mark.parametrize(
    ("piece", "args"),
    [
        ({"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}, "{}"),
        ({"id": "a", "function": {"name": "f", "arguments": {"x": 1}}}, '{"x":1}'),
        ({"index": "0", "id": "a", "function": {"name": "f", "arguments": "{}"}}, "{}"),
        ({"index": 0, "id": 7, "function": {"name": "f", "arguments": "{}", "parameters": None}}, "{}"),
        ({"index": None, "id": None, "type": None, "function": {"name": "f", "arguments": None}}, ""),
        ({"index": 3, "id": "a", "custom": None, "function": {"name": "f"}}, ""),
        ({"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}, "x": {}}, "{}"),
    ],
    ids=lambda value: json.dumps(value)[:60],
)
async def test_a_call_of_any_shape_is_a_call(piece: dict[str, Any], args: str) -> None:
    finish = await chat_answer(chat.calls(piece))
    (call,) = finish.message.calls
    assert (call.name, call.args, call.finished) == ("f", args, True)
    assert call.id
    assert finish.stop is StopReason.TOOL_CALLS
    assert_framed(finish.message)


async def test_what_comes_behind_the_finish_reason_is_not_lost() -> None:
    finish = await chat.finish(
        chat.text("before"), chat.chunk({"content": "mid"}, finish="stop"), chat.text("after"), chat.usage()
    )
    assert finish.message.text == "beforemidafter"
    assert finish.usage is not None


# Answers in one piece


async def in_one_piece(collect: Any, model: Any, value: dict[str, Any]) -> Any:
    async with Loopback(Reply((json.dumps(value).encode(),), content_type="application/json")) as server:
        return (await collect(model(server)))[-1]


@each_form
async def test_all_that_may_stand_in_a_whole_answer_is_read(form: str) -> None:
    completion = sample(ChatCompletion, form)
    completion["choices"][0] |= {"finish_reason": "stop", "index": 0}
    completion["choices"][0]["message"] |= {"content": "said", "refusal": None, "tool_calls": None}
    completion["choices"][0]["message"].pop("function_call", None)
    message = {**sample(BetaMessage, form), "content": [{"type": "text", "text": "said"}], "stop_reason": "end_turn"}
    output = [{**sample(kind, form), "status": "completed"} for kind in ITEMS if tag(kind) != "message"]
    response = {**sample(Response, form), "error": None, "status": "completed", "incomplete_details": None}
    response["output"] = [*output, responses.message("said")]
    generated = sample(genai.GenerateContentResponse, form) | google.chunk(google.text("said"), finish="STOP")
    generated.pop("promptFeedback", None)
    finishes = [
        await in_one_piece(chat.collect, chat.model, completion),
        await in_one_piece(claude.collect, claude.model, message),
        await in_one_piece(responses.collect, responses.model, response),
        await in_one_piece(google.collect, google.model, generated),
    ]
    assert [finish.message.text for finish in finishes] == ["said"] * 4
    kinds = {part.__struct_config__.tag for part in finishes[2].message.content}
    assert {"text", "provider", "tool_call", "tool_result"} <= kinds
