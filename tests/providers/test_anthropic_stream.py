"""What the Messages adapter makes of an answer."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.claude import (
    HELLO,
    NAME,
    answer,
    block,
    call,
    collect,
    consistent,
    end,
    finish,
    model,
    read,
    sse,
    start,
    text,
    thinking,
)
from support.loopback import BOUND, BREAK, STALL, Loopback, Reply
from treadle import Agent, tool
from treadle.errors import (
    ContextOverflowError,
    InvalidRequestError,
    ModelConnectionError,
    ModelError,
    ModelRequestsDenied,
    ModelResponseError,
    OverloadedError,
    RateLimitError,
    StreamIdleError,
    TreadleError,
)
from treadle.events import ModelFinish, ReasoningDelta, TextDelta, ToolCallDelta, ToolFinish, ToolStart
from treadle.messages import Citation, ProviderPart, ReasoningPart, TextPart, ToolCallPart, ToolResultPart
from treadle.model import ModelRequest
from treadle.providers.anthropic._errors import refusal_error
from treadle.providers.anthropic._stream import AnswerReader
from treadle.usage import StopReason, Usage

PING = {"type": "ping"}


def error(kind: str, message: str = "Overloaded") -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}


# Blocks


async def test_text_thinking_and_calls_keep_their_order() -> None:
    found = await finish(
        start(), *thinking("wh", "y"), *text("a", "b", index=1), *call('{"a"', ": 1}", index=2), *end("tool_use")
    )
    assert found.message.content == (
        ReasoningPart("why", "sig"),
        TextPart("ab"),
        ToolCallPart("toolu_1", "add", '{"a": 1}'),
    )
    assert (found.stop, found.raw_stop) == (StopReason.TOOL_CALLS, "tool_use")


async def test_each_delta_is_one_event() -> None:
    events = await read(start(), PING, *text("a", "b"), PING, *thinking("c", index=1), *call("{", "}", index=2), *end())
    assert [(type(event), getattr(event, "text", getattr(event, "args", None))) for event in events[:-1]] == [
        (TextDelta, "a"),
        (TextDelta, "b"),
        (ReasoningDelta, "c"),
        (ToolCallDelta, ""),
        (ToolCallDelta, "{"),
        (ToolCallDelta, "}"),
    ]


async def test_arguments_that_never_come_are_empty_and_the_call_is_whole() -> None:
    found = await finish(start(), *call(""), *end("tool_use"))
    assert found.message.calls == (ToolCallPart("toolu_1", "add", ""),)


async def test_arguments_that_come_with_the_start_count_where_no_others_come() -> None:
    given_args = {"input": {"a": 1}}
    assert (await finish(start(), *call(**given_args), *end())).message.calls[0].args == '{"a": 1}'
    assert (await finish(start(), *call('{"a": 2}', **given_args), *end())).message.calls[0].args == '{"a": 2}'


async def test_parallel_calls_keep_their_own_pieces_though_they_interleave() -> None:
    one, two = call('{"a"', ":1}"), call('{"b"', ":2}", index=1, id="toolu_2", name="sub")
    found = await finish(start(), one[0], two[0], one[1], two[1], two[2], one[2], one[3], two[3], *end("tool_use"))
    assert [(item.id, item.args) for item in found.message.calls] == [("toolu_1", '{"a":1}'), ("toolu_2", '{"b":2}')]


async def test_two_calls_that_share_an_index_and_an_id_stay_two_calls() -> None:
    found = await finish(start(), *call('{"a":1}'), *call('{"a":2}')[:-1], *end("tool_use"))
    assert [(item.id, item.args) for item in found.message.calls] == [("toolu_1", '{"a":1}'), ("toolu_1_2", '{"a":2}')]


async def test_a_call_without_id_and_name_gets_both() -> None:
    found = await finish(start(), *call("{}", id="", name=""), *end("tool_use"))
    (made,) = found.message.calls
    assert made.id.startswith("toolu_")
    assert made.name == "unnamed"


async def test_the_caller_of_a_call_is_kept() -> None:
    found = await finish(start(), *call("{}", caller={"type": "direct"}), *end("tool_use"))
    assert found.message.calls[0].raw == {"caller": {"type": "direct"}}


async def test_empty_thinking_with_a_signature_is_kept_and_without_one_is_not() -> None:
    found = await finish(start(), *thinking(signature="only"), *thinking(signature="", index=1), *end())
    assert found.message.content == (ReasoningPart("", "only"),)


async def test_redacted_thinking_compaction_and_blocks_to_come_are_opaque() -> None:
    redacted = {"type": "redacted_thinking", "data": "R"}
    compacted = block(
        {"type": "compaction", "content": None},
        {"type": "compaction_delta", "content": "sum"},
        {"type": "compaction_delta", "content": "mary", "encrypted_content": "E"},
        index=1,
    )
    coming = block({"type": "novel", "x": 1}, {"type": "novel_delta", "y": [2]}, index=2)
    found = await finish(start(), *block(redacted), *compacted, *coming, *end())
    assert found.message.content == (
        ProviderPart("anthropic", "redacted_thinking", redacted),
        ProviderPart("anthropic", "compaction", {"type": "compaction", "content": "summary", "encrypted_content": "E"}),
        ProviderPart("anthropic", "novel", {"type": "novel", "x": 1, "y": [2]}),
    )


async def test_citations_are_kept_for_readers_and_for_the_server() -> None:
    told = [
        {
            "type": "web_search_result_location",
            "url": "https://a",
            "title": "A",
            "cited_text": "q",
            "encrypted_index": "I",
        },
        {"type": "page_location", "document_title": "D", "file_id": None, "cited_text": "p", "start_page_number": 1},
        {"type": "search_result_location", "source": "kb://1", "title": "K", "cited_text": "k"},
    ]
    deltas = [{"type": "citations_delta", "citation": item} for item in told]
    head = {"type": "text", "text": "", "citations": []}
    found = await finish(start(), *block(head, *deltas, {"type": "text_delta", "text": "so"}), *end())
    assert found.message.content == (
        TextPart(
            "so",
            (
                Citation(url="https://a", title="A", text="q"),
                Citation(file="D", title="D", text="p"),
                Citation(url="kb://1", title="K", text="k"),
            ),
        ),
        ProviderPart("anthropic", "citations", told),
    )


# Hosted calls


async def test_hosted_calls_and_results_are_events_and_parts() -> None:
    use = {"kind": "mcp_tool_use", "id": "mcptoolu_1", "name": "ask", "server_name": "wiki"}
    result = {
        "type": "mcp_tool_result",
        "tool_use_id": "mcptoolu_1",
        "is_error": True,
        "content": [{"type": "text", "text": "no"}, {"type": "text", "text": "way"}],
    }
    events = await read(start(), *call('{"q":', "1}", **use), *block(result, index=1), *text("ok", index=2), *end())
    consistent(events)
    asked, told, *_ = events
    assert isinstance(asked, ToolStart)
    assert (asked.call_id, asked.name, asked.args, asked.hosted) == ("mcptoolu_1", "ask", '{"q":1}', True)
    assert isinstance(told, ToolFinish)
    assert (told.call_id, told.name, told.is_error, told.index) == ("mcptoolu_1", "ask", True, asked.index)
    made, answered, _ = events[-1].message.content
    raw = {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "ask", "input": {"q": 1}, "server_name": "wiki"}
    assert made == ToolCallPart("mcptoolu_1", "ask", '{"q":1}', hosted=True, raw=raw)
    assert answered == ToolResultPart("mcptoolu_1", "ask", "no\nway", is_error=True, hosted=True, raw=result)
    assert events[-1].message.calls == ()
    assert events[-1].stop is StopReason.END


@pytest.mark.parametrize(
    ("content", "shown", "failed"),
    [
        ([{"type": "web_search_result", "url": "https://a", "title": "A"}], "A https://a", False),
        ({"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"}, None, True),
        ("plain", "plain", False),
        ([], "", False),
    ],
)
async def test_a_hosted_result_reads_as_text(content: Any, shown: str | None, failed: bool) -> None:
    result = {"type": "web_search_tool_result", "tool_use_id": "srv_9", "content": content}
    (part,) = (await finish(start(), *block(result), *end())).message.content
    assert isinstance(part, ToolResultPart)
    assert part.name == "web_search"
    assert part.content == (json.dumps(content, separators=(",", ":")) if shown is None else shown)
    assert part.is_error is failed


async def test_a_run_shows_hosted_calls_and_answers_only_its_own() -> None:
    @tool(effect="read")
    async def add(a: int) -> int:
        """Adds."""
        return a + 1

    use = {"kind": "server_tool_use", "id": "srvtoolu_1", "name": "web_search"}
    result = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
    first = answer(*call("{}", **use), *block(result, index=1), *call('{"a":1}', index=2), reason="tool_use")
    async with Loopback(Reply((first,)), Reply((answer(*text("2")),))) as server:
        run = await Agent(model(server), tools=[add]).run("go")
    assert run.text == "2"
    _, turn, reply = server.requests[1].body["messages"]
    assert [item["type"] for item in turn["content"]] == ["server_tool_use", "web_search_tool_result", "tool_use"]
    assert [item["tool_use_id"] for item in reply["content"]] == ["toolu_1"]


# Turns that the server pauses


async def test_a_paused_turn_is_gone_on_with_and_its_usage_added_up() -> None:
    use = {"kind": "server_tool_use", "id": "srvtoolu_1", "name": "web_search"}
    result = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
    first = sse(start(), *thinking("t"), *text("a", index=1), *call('{"query": "q"}', index=2, **use))
    first += sse(*end("pause_turn", container={"id": "c1"}))
    second = sse(start(input_tokens=50), *block(result), *text("b", index=1), *end())
    async with Loopback(Reply((first,)), Reply((second,))) as server:
        events = await collect(model(server))
    consistent(events)
    found = events[-1]
    assert [part.__struct_config__.tag for part in found.message.content] == [
        "reasoning",
        "text",
        "tool_call",
        "tool_result",
        "text",
        "provider",
    ]
    assert (found.stop, found.raw_stop) == (StopReason.END, "end_turn")
    assert found.usage == Usage(75, 30)
    one, two = (seen.body for seen in server.requests)
    assert two["messages"][:-1] == one["messages"]
    assert two["messages"][-1] == {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "t", "signature": "sig"},
            {"type": "text", "text": "a"},
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}},
        ],
    }
    assert two["container"] == "c1"


async def test_a_turn_that_is_paused_for_ever_ends() -> None:
    async with Loopback(Reply((answer(*text("a"), reason="pause_turn"),))) as server:
        found = (await collect(model(server)))[-1]
    assert (found.stop, found.raw_stop) == (StopReason.OTHER, "pause_turn")
    assert len(server.requests) == 20
    assert found.message.text == "a" * 20
    assert found.usage == Usage(25 * 20, 15 * 20)


async def test_a_failure_behind_a_pause_is_raised() -> None:
    busy = Reply((json.dumps(error("overloaded_error")).encode(),), status=529, content_type="application/json")
    async with Loopback(Reply((answer(*text("a"), reason="pause_turn"),)), busy) as server:
        with pytest.raises(OverloadedError):
            await collect(model(server))


# Why it ended


@pytest.mark.parametrize(
    ("word", "stop"),
    [
        ("end_turn", StopReason.END),
        ("stop_sequence", StopReason.END),
        ("max_tokens", StopReason.MAX_TOKENS),
        ("model_context_window_exceeded", StopReason.CONTEXT),
        ("refusal", StopReason.REFUSAL),
        ("compaction", StopReason.OTHER),
        ("whatever", StopReason.OTHER),
    ],
)
async def test_each_stop_reason_has_its_stop_and_is_kept(word: str, stop: StopReason) -> None:
    found = await finish(start(), *text("a"), *end(word))
    assert (found.stop, found.raw_stop, found.message.text) == (stop, word, "a")


@pytest.mark.parametrize("word", ["end_turn", "stop_sequence", "whatever", None])
async def test_whole_calls_run_whatever_the_stop_reason_says(word: str | None) -> None:
    assert (await finish(start(), *call("{}"), *end(word))).stop is StopReason.TOOL_CALLS


@pytest.mark.parametrize("word", ["max_tokens", "model_context_window_exceeded"])
@pytest.mark.parametrize("args", ['{"path": "a', '{"path": "a"}', ""])
async def test_the_last_call_of_a_cut_answer_is_not_finished(word: str, args: str) -> None:
    found = await finish(start(), *call("{}", id="toolu_0"), *call(args, index=1), *end(word))
    assert [item.finished for item in found.message.calls] == [True, False]


async def test_a_call_whose_json_just_ends_is_not_finished() -> None:
    assert not (await finish(start(), *call('{"a": '), *end("tool_use"))).message.calls[0].finished


async def test_a_call_that_escapes_half_a_surrogate_pair_is_whole() -> None:
    found = await finish(start(), *call(r'{"a": "\ud83d"}'), *end("tool_use"))
    assert found.message.calls[0].finished


async def test_a_refusal_keeps_its_details_and_what_was_said_before() -> None:
    details = {"type": "refusal", "category": "cyber", "explanation": None}
    found = await finish(start(), *text("Hi"), *end("refusal", stop_details=details))
    assert found.stop is StopReason.REFUSAL
    assert found.message.content == (TextPart("Hi"), ProviderPart("anthropic", "stop_details", details))


async def test_an_empty_answer_that_ended_is_an_empty_message() -> None:
    found = await finish(start(), *text(""), *end())
    assert (found.message.content, found.stop) == ((), StopReason.END)


async def test_a_stop_reason_alone_ends_the_answer() -> None:
    assert (await finish(start(), *text("a"), end()[0])).stop is StopReason.END


async def test_a_second_head_of_the_message_changes_nothing_but_the_usage() -> None:
    found = await finish(start(), *text("a"), start(input_tokens=30), *text("b", index=1), *end())
    assert found.message.text == "ab"
    assert found.usage == Usage(30, 15)


# Usage


async def test_usage_is_the_last_that_was_told() -> None:
    assert (await finish(start(), *text("a"), *end())).usage == Usage(25, 15)
    counts = {"input_tokens": 61, "output_tokens": 2, "cache_read_input_tokens": 7, "cache_creation_input_tokens": 3}
    details = {"output_tokens_details": {"thinking_tokens": 1}}
    assert (await finish(start(), *text("a"), *end(usage=counts | details))).usage == Usage(61, 2, 7, 3, 1)


async def test_null_and_odd_counts_count_as_nothing() -> None:
    odd = {"input_tokens": None, "output_tokens": 4, "cache_read_input_tokens": "7", "output_tokens_details": None}
    odd |= {"iterations": 3, "cache_creation_input_tokens": -1}
    assert (await finish(start(), *text("a"), *end(usage=odd))).usage == Usage(25, 4)


async def test_usage_that_is_not_told_is_unknown_and_not_zero() -> None:
    head = {"type": "message_start", "message": {"id": "m", "usage": None}}
    assert (await finish(head, *text("a"), *end(usage={}))).usage is None


async def test_every_pass_of_an_answer_counts_once() -> None:
    passes = [
        {"type": "compaction", "input_tokens": 100, "output_tokens": 83, "cache_read_input_tokens": 9},
        {"type": "message", "input_tokens": 181, "output_tokens": 8},
    ]
    told = {"input_tokens": 181, "output_tokens": 8, "iterations": passes}
    assert (await finish(start(), *text("a"), *end(usage=told))).usage == Usage(281, 91, 9)


# Odd bytes


async def test_unknown_events_and_deltas_are_skipped() -> None:
    odd = {"type": "content_block_delta", "index": 0, "delta": {"type": "novel_delta", "x": 1}}
    body = [start(), {"type": "novel"}, *text("a")[:-1], odd, {"type": "content_block_stop", "index": 0}, *end()]
    assert (await finish(b": ping\n\ndata:\n\ndata: [DONE]\n\n", *body)).message.text == "a"


async def test_deltas_of_a_block_that_was_never_begun_are_kept() -> None:
    found = await finish(start(), *text("a")[1:], *thinking("t", index=1)[1:], *end())
    assert found.message.content == (TextPart("a"), ReasoningPart("t", "sig"))
    with pytest.raises(ModelResponseError, match="never begun"):
        await finish(start(), *call("{}")[1:], *end())


async def test_a_surrogate_pair_cut_between_two_deltas_is_one_character() -> None:
    for make, deltas in ((text, TextDelta), (thinking, ReasoningDelta)):
        events = await read(start(), *make("a\ud83d", "\ude00b"), *end())
        consistent(events)
        assert [event.text for event in events if isinstance(event, deltas)] == ["a", "😀b"]
    found = await finish(start(), *call('{"a": "\ud83d', '\ude00"}'), *end())
    assert found.message.calls[0].args == '{"a": "😀"}'


async def test_half_a_surrogate_pair_is_told_as_lost() -> None:
    found = await finish(start(), *text("a\ud83d"), *text("b", index=1), *end())
    assert found.message.text == "a\ufffdb"


async def test_fields_of_the_wrong_shape_are_left_out_and_the_rest_is_read() -> None:
    odd = [
        {"type": "message_start", "message": {"id": 7, "usage": "none", "content": 3}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a", "signature": 5}},
        {"type": "content_block_start", "index": 1, "content_block": "text"},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_details": 5}, "usage": []},
    ]
    found = await finish(*odd)
    assert (found.message.text, found.stop, found.usage) == ("a", StopReason.END, None)


async def test_invalid_bytes_do_not_break_the_stream() -> None:
    broken = sse(*text("a~b")).replace(b"~", b"\xff")
    assert (await finish(start(), broken, *end())).message.text == "a\ufffdb"


async def test_a_broken_event_is_an_answer_we_do_not_understand() -> None:
    with pytest.raises(ModelResponseError, match="an event is no JSON") as caught:
        await finish(start(), b'data: {"type": "cont\n\n', *end())
    assert caught.value.retryable


@pytest.mark.parametrize("cut", [0, 40, -1])
async def test_a_stream_that_ends_too_early_is_a_connection_error(cut: int) -> None:
    body = sse(start(), *text("a"))[:cut] if cut else b""
    with pytest.raises(ModelConnectionError, match="the stream ended before the answer did") as caught:
        await read(body)
    assert caught.value.retryable


async def test_an_answer_in_one_document_is_read() -> None:
    document = {
        "id": "msg_1",
        "type": "message",
        "content": [
            {"type": "thinking", "thinking": "t", "signature": "s"},
            {"type": "text", "text": "a", "citations": None},
            {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 1.0}},
        ],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 3, "output_tokens": 4},
    }
    body = json.dumps(document).encode()
    found = await finish(body, reply={"content_type": "application/json"})
    assert found.message.content == (
        ReasoningPart("t", "s"),
        TextPart("a"),
        ToolCallPart("toolu_1", "add", '{"a": 1.0}'),
    )
    assert (found.stop, found.usage) == (StopReason.TOOL_CALLS, Usage(3, 4))


async def test_a_stream_under_the_type_of_a_document_is_read() -> None:
    assert (await finish(answer(*text("a")), reply={"content_type": "application/json"})).message.text == "a"


async def test_a_page_instead_of_an_answer_is_not_understood() -> None:
    with pytest.raises(ModelError, match="Sign in"):
        await read(b"<html><title>Sign in</title></html>", reply={"content_type": "text/html"})


def cut_reader(body: bytes, sizes: list[int]) -> list[Any]:
    reader = AnswerReader("m", lambda refusal: refusal_error(refusal, "m", None))
    events, at = list[Any](), 0
    for size in [*sizes, len(body)]:
        events += reader.feed(body[at : at + size])
        at += size
    return [*events, *reader.end(), reader.finish()]


@given(st.lists(st.integers(1, 40), max_size=60))
def test_any_cut_of_a_body_gives_the_same_events(sizes: list[int]) -> None:
    body = answer(*thinking("é", "😀"), *text("a", "ö", index=1), *call('{"a"', ":1}", index=2), PING)
    assert cut_reader(body, sizes) == cut_reader(body, [])


@given(st.data())
def test_any_damage_to_a_body_is_read_or_is_an_error_of_ours(data: Any) -> None:
    body = bytearray(answer(*thinking("t"), *text("a", index=1), *call('{"a":1}', index=2)))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = cut_reader(bytes(body), [])[-1]
    except TreadleError:
        return
    assert isinstance(found, ModelFinish)


# Errors inside a 200


@pytest.mark.parametrize(
    ("kind", "expected", "retryable"),
    [
        ("overloaded_error", OverloadedError, True),
        ("api_error", OverloadedError, True),
        ("rate_limit_error", RateLimitError, True),
        ("invalid_request_error", InvalidRequestError, False),
    ],
)
async def test_an_error_in_the_middle_of_a_call_has_its_class(
    kind: str, expected: type[ModelError], retryable: bool
) -> None:
    async with Loopback(Reply((sse(start(), *call('{"path":"a')[:-1], error(kind)), STALL))) as server:
        with pytest.raises(expected, match="Overloaded") as caught:
            await collect(model(server))
        await asyncio.wait_for(server.left.wait(), BOUND)
    assert type(caught.value) is expected
    assert (caught.value.retryable, caught.value.request_id) == (retryable, "req_1")


async def test_a_context_overflow_inside_a_200_is_the_stop_context() -> None:
    told = error("invalid_request_error", "prompt is too long: 205000 tokens > 200000 maximum")
    found = await finish(start(), *text("a"), told)
    assert (found.stop, found.message.text) == (StopReason.CONTEXT, "a")


async def test_an_error_in_a_document_under_200_has_its_class() -> None:
    body = json.dumps(error("overloaded_error")).encode()
    with pytest.raises(OverloadedError):
        await read(body, reply={"content_type": "application/json"})


@pytest.mark.parametrize(
    ("status", "kind", "message", "expected"),
    [
        (400, "invalid_request_error", "prompt is too long: 9 tokens > 8 maximum", ContextOverflowError),
        (400, "invalid_request_error", "input length and `max_tokens` exceed context limit", ContextOverflowError),
        (400, "invalid_request_error", "messages: bad", InvalidRequestError),
        (413, "request_too_large", "Request exceeds the maximum size", ContextOverflowError),
        (429, "rate_limit_error", "slow down", RateLimitError),
        (529, "overloaded_error", "Overloaded", OverloadedError),
        (500, "api_error", "Internal server error", OverloadedError),
    ],
)
async def test_each_refusal_has_its_class(status: int, kind: str, message: str, expected: type[ModelError]) -> None:
    headers = {"request-id": "req_9", "retry-after": "3"}
    body = json.dumps(error(kind, message)).encode()
    async with Loopback(Reply((body,), status=status, content_type="application/json", headers=headers)) as server:
        with pytest.raises(ModelError) as caught:
            await collect(model(server))
    assert type(caught.value) is expected
    assert (caught.value.status, caught.value.request_id) == (status, "req_9")
    assert caught.value.retry_after_seconds == 3


async def test_an_account_without_credit_is_not_asked_again() -> None:
    body = json.dumps(error("invalid_request_error", "Your credit balance is too low to access the API.")).encode()
    async with Loopback(Reply((body,), status=400, content_type="application/json")) as server:
        with pytest.raises(RateLimitError, match="credit balance") as caught:
            await collect(model(server))
    assert not caught.value.retryable


async def test_a_key_never_shows_in_an_error() -> None:
    body = json.dumps(error("authentication_error", "bad key sk-ant-secret")).encode()
    async with Loopback(Reply((body,), status=401, content_type="application/json")) as server:
        with pytest.raises(ModelError) as caught:
            await collect(model(server))
    assert "secret" not in str(caught.value)


async def test_a_missing_model_is_told_with_a_hint() -> None:
    body = json.dumps(error("not_found_error", "model: nope")).encode()
    async with Loopback(Reply((body,), status=404, content_type="application/json")) as server:
        with pytest.raises(InvalidRequestError, match="models are listed at"):
            await collect(model(server, "nope"))


# The connection


async def test_leaving_early_closes_the_connection_and_leaves_no_task() -> None:
    async with Loopback(Reply((sse(start(), *text("a")), STALL))) as server:
        before = asyncio.all_tasks()
        stream = model(server).stream(ModelRequest(None, HELLO))
        assert (await anext(stream)).text == "a"  # type: ignore[union-attr]
        await stream.aclose()
        await asyncio.wait_for(server.left.wait(), BOUND)
        assert asyncio.all_tasks() - before <= server._tasks


@pytest.mark.parametrize("paused", [False, True])
async def test_a_cancel_while_the_model_speaks_closes_the_connection(paused: bool) -> None:
    spoken = asyncio.Event()
    stalls = Reply((sse(start(), *text("a")), STALL))
    replies = (Reply((answer(*text("a"), reason="pause_turn"),)), stalls) if paused else (stalls,)
    async with Loopback(*replies) as server:

        async def listen() -> None:
            heard = 0
            async for _ in model(server).stream(ModelRequest(None, HELLO)):
                heard += 1
                if heard == len(replies):
                    spoken.set()

        task = asyncio.create_task(listen())
        await asyncio.wait_for(spoken.wait(), BOUND)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(server.left.wait(), BOUND)


async def test_a_connection_that_breaks_is_a_connection_error() -> None:
    async with Loopback(Reply((sse(start(), *text("a")), BREAK))) as server:
        with pytest.raises(ModelConnectionError, match="broke before the answer's end"):
            await collect(model(server))


async def test_a_stall_is_an_idle_error_and_behind_the_stop_reason_none() -> None:
    async with Loopback(Reply((sse(start(), *text("a")), STALL))) as server:
        with pytest.raises(StreamIdleError):
            await collect(model(server, idle_timeout_seconds=0.05))
    async with Loopback(Reply((sse(start(), *text("a"), end()[0]), STALL))) as server:
        found = (await collect(model(server, idle_timeout_seconds=0.05)))[-1]
        assert (found.stop, found.usage) == (StopReason.END, Usage(25, 15))


async def test_the_kill_switch_opens_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREADLE_MODEL_REQUESTS", "deny")
    async with Loopback(Reply((answer(*text("a")),))) as server:
        with pytest.raises(ModelRequestsDenied):
            await collect(model(server))
        with pytest.raises(ModelRequestsDenied):
            await model(server).count_tokens(ModelRequest(None, HELLO))
    assert server.connections == 0


async def test_a_hundred_streams_of_one_model_do_not_mix() -> None:
    def reply(seen: Any) -> Reply:
        word = seen.body["system"][0]["text"]
        dice = random.Random(word)
        body = answer(*text(*(f"{word}-{number} " for number in range(dice.randint(1, 20)))))
        return Reply(tuple(body[at : at + 50] for at in range(0, len(body), 50)))

    async with Loopback(reply) as server:
        asked = model(server, NAME)
        found = await asyncio.gather(*(collect(asked, ModelRequest(f"w{number}", HELLO)) for number in range(100)))
    for number, events in enumerate(found):
        assert {word.partition("-")[0] for word in events[-1].message.text.split()} == {f"w{number}"}
