"""Answers of the Responses API as we read them: what servers do that recordings do not show, or show once."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from support.chat import consistent, sse
from support.loopback import BOUND, BREAK, STALL, Loopback, Reply
from support.responses import (
    HELLO,
    added,
    args,
    call,
    collect,
    completed,
    document,
    done,
    event,
    finish,
    message,
    model,
    read,
    read_document,
    reasoning,
    text,
    usage,
)
from treadle import Agent, HostedMCP, tool
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
)
from treadle.events import Effect, ModelFinish, ReasoningDelta, TextDelta, ToolCallDelta, ToolFinish, ToolStart
from treadle.messages import Citation, ProviderPart, ReasoningPart, TextPart, ToolCallPart, ToolResultPart
from treadle.model import ModelRequest
from treadle.usage import StopReason, Usage

MCP = {"type": "mcp_call", "id": "mcp_1", "name": "ask", "server_label": "wiki", "arguments": '{"q":1}'}
SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed"}


# Text


async def test_text_is_told_as_it_comes() -> None:
    events = await read(text("Hel"), text("lo"), done(0, message("Hello")), completed(message("Hello")))
    assert events[:-1] == [TextDelta("Hel"), TextDelta("lo")]
    assert events[-1].message.content == (TextPart("Hello"),)
    assert (events[-1].stop, events[-1].raw_stop) == (StopReason.END, "completed")


@pytest.mark.parametrize(
    "body",
    [
        [completed(message("Hello"))],
        [done(0, message("Hello")), completed()],
        [text("Hel"), completed(message("Hello"))],
        [text("Hel"), event("output_text.done", output_index=0, content_index=0, text="Hello"), completed()],
        [text("Hello"), completed()],
        [added(None, message()), event("output_text.delta", delta="Hello"), completed()],
        [added(3, message()), event("output_text.delta", delta="Hello"), done(3, message("Hello")), completed()],
    ],
    ids=["end only", "item only", "rest in the end", "rest in its text", "deltas only", "no indices", "some indices"],
)
async def test_text_is_whole_whichever_events_a_server_leaves_out(body: list[Any]) -> None:
    assert (await finish(*body)).message.content == (TextPart("Hello"),)


async def test_items_and_their_texts_stay_apart_though_they_come_mixed() -> None:
    pieces = [text("a", 0, 0), args('{"x"', 1), text("b", 0, 1), args(":1}", 1)]
    ends = [done(1, call('{"x":1}')), done(0, message("a", "b"))]
    found = await finish(added(0, message()), added(1, call("")), *pieces, *ends, completed())
    assert found.message.content[:2] == (TextPart("a"), TextPart("b"))
    assert [one.args for one in found.message.calls] == ['{"x":1}']


async def test_an_index_that_is_used_twice_means_two_items() -> None:
    found = await finish(
        added(0, message()),
        text("a"),
        done(0, message("a")),
        added(0, call()),
        args('{"x":1}'),
        done(0, call('{"x":1}')),
        completed(),
    )
    assert found.message.text == "a"
    assert [one.args for one in found.message.calls] == ['{"x":1}']


async def test_text_whose_place_in_the_item_was_told_wrong_is_told_once() -> None:
    item = message("", "a")
    assert (await finish(added(0, message()), text("a"), done(0, item), completed(item))).message.text == "a"


async def test_phases_are_kept_beside_their_messages() -> None:
    first, second = message("thinking aloud", phase="commentary"), message("4", id="msg_2", phase="final_answer")
    found = await finish(done(0, first), done(1, second), completed(first, second))
    assert found.message.content == (
        ProviderPart("openai", "message", {"phase": "commentary"}),
        TextPart("thinking aloud"),
        ProviderPart("openai", "message", {"phase": "final_answer"}),
        TextPart("4"),
    )


async def test_citations_of_pages_and_of_files_are_kept_once_each() -> None:
    page = {"type": "url_citation", "url": "https://a", "title": "A", "start_index": 0, "end_index": 1}
    file = {"type": "file_citation", "file_id": "file-1", "filename": "a.pdf", "index": 3}
    odd = {"type": "other"}
    item = message("x")
    item["content"][0]["annotations"] = [page, file, page, odd, 3]
    found = await finish(text("x"), done(0, item), completed(item))
    assert found.message.content == (TextPart("x", (Citation(url="https://a", title="A"), Citation(file="a.pdf"))),)


async def test_a_pair_of_escaped_surrogates_may_be_cut_in_two() -> None:
    halves = [
        b'data: {"type":"response.output_text.delta","output_index":0,"delta":"%b"}\n\n' % half
        for half in (b"\\ud83d", b"\\ude00!")
    ]
    found = await finish(*halves, completed(message("😀!")))
    assert found.message.text == "😀!"
    lost = await finish(halves[0], completed())
    assert lost.message.text == "�"


async def test_an_item_with_half_a_surrogate_pair_is_valid_in_the_end() -> None:
    body = b'data: {"type":"response.completed","response":{"status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"a\\ud83d"}]},{"type":"program","code":"\\ud83d"}]}}\n\n'
    found = await finish(body)
    assert found.message.content == (
        TextPart("a�"),
        ProviderPart("openai", "program", {"type": "program", "code": "�"}),
    )


async def test_unknown_events_comments_and_other_shapes_are_skipped() -> None:
    found = await finish(
        b": keepalive\n\n",
        event("queued", response={"id": 1}),
        event("new_thing.delta", delta={"a": [1]}),
        {"type": "keepalive"},
        text("a"),
        event("output_text.delta", output_index=0, delta="", logprobs="x"),
        b"data: [DONE]\n\n",
        completed(message("a")),
    )
    assert found.message.text == "a"


# Reasoning


async def test_reasoning_is_told_and_its_item_kept_as_it_came() -> None:
    item = reasoning("First.", "Second.")
    summary = [
        event("reasoning_summary_text.delta", output_index=0, summary_index=index, delta=delta)
        for index, delta in ((0, "Fir"), (0, "st."), (1, "Second."))
    ]
    events = await read(
        added(0, reasoning(sealed="other")),
        *summary,
        done(0, item),
        done(1, message("4")),
        completed(item, message("4")),
    )
    consistent(events)
    thoughts = [event.text for event in events if isinstance(event, ReasoningDelta)]
    assert thoughts == ["Fir", "st.", "\n\n", "Second."]
    assert events[-1].message.content == (
        ReasoningPart("First.\n\nSecond."),
        ProviderPart("openai", "reasoning", item),
        TextPart("4"),
    )


async def test_the_sealed_content_of_the_item_counts_not_that_of_the_last_event() -> None:
    found = await finish(done(0, reasoning(sealed="a")), completed(reasoning(sealed="b")))
    assert [part.data["encrypted_content"] for part in found.message.content] == ["a"]


async def test_reasoning_that_is_shown_as_it_is_is_reasoning_too() -> None:
    item = reasoning(sealed=None, content=[{"type": "reasoning_text", "text": "We add."}])
    deltas = [event("reasoning_text.delta", output_index=0, content_index=0, delta=part) for part in ("We ", "add.")]
    found = await finish(added(0, reasoning(sealed=None)), *deltas, done(0, item), completed(item))
    assert found.message.content == (ReasoningPart("We add."), ProviderPart("openai", "reasoning", item))


async def test_reasoning_that_broke_off_is_told_but_does_not_go_back() -> None:
    delta = event("reasoning_summary_text.delta", output_index=0, summary_index=0, delta="Hm")
    cut = {"reason": "max_output_tokens"}
    found = await finish(added(0, reasoning()), delta, completed(status="incomplete", incomplete_details=cut))
    assert found.message.content == (ReasoningPart("Hm"),)
    assert found.stop is StopReason.MAX_TOKENS


# Calls


@pytest.mark.parametrize(
    "body",
    [
        [added(0, call("")), args('{"x"'), args(":1}"), done(0, call('{"x":1}'))],
        [
            added(0, call("")),
            event("function_call_arguments.done", output_index=0, arguments='{"x":1}'),
            done(0, call('{"x":1}')),
        ],
        [added(0, call("")), args('{"x"'), args(":1}")],
        [done(0, call('{"x":1}'))],
        [args('{"x":1}'), done(0, call('{"x":1}'))],
        [added(0, call('{"x":1}')), done(0, call('{"x":1}'))],
        [done(0, call({"x": 1}))],
        [],
    ],
    ids=["deltas", "done", "no item", "item", "not announced", "at once", "as a value", "end"],
)
async def test_arguments_are_whole_with_and_without_deltas(body: list[Any]) -> None:
    found = await finish(*body, completed(call('{"x":1}')))
    assert [(one.id, one.name, one.args, one.finished) for one in found.message.calls] == [
        ("call_1", "add", '{"x":1}', True)
    ]
    assert found.stop is StopReason.TOOL_CALLS


async def test_a_call_is_announced_before_its_arguments() -> None:
    events = await read(added(0, call("")), args("{}"), done(0, call()), completed())
    assert events[:-1] == [ToolCallDelta(0, "call_1", "add", ""), ToolCallDelta(0, "call_1", "add", "{}")]


async def test_the_call_id_pairs_and_the_item_keeps_what_else_came_with_it() -> None:
    item = call(namespace="tools", caller={"type": "program", "caller_id": "p"}, id="fc_9")
    found = await finish(done(0, item), completed(item))
    (one,) = found.message.calls
    assert one.id == "call_1"
    assert one.raw == {
        "id": "fc_9",
        "status": "completed",
        "namespace": "tools",
        "caller": {"type": "program", "caller_id": "p"},
    }


async def test_calls_without_ids_and_names_get_some_and_equal_ids_are_told_apart() -> None:
    bare = {"type": "function_call", "arguments": "{}"}
    items = [call(), call(), bare, {**bare, "id": "fc_x", "name": "f"}, bare]
    body = [event("created", response={"id": "resp_9"}), *(done(index, item) for index, item in enumerate(items))]
    found = await finish(*body, completed())
    ids = [one.id for one in found.message.calls]
    assert ids[:2] == ["call_1", "call_1_2"]
    assert ids[3] == "fc_x"
    assert len(set(ids)) == 5
    assert all(ids)
    assert [one.name for one in found.message.calls] == ["add", "add", "unnamed", "f", "unnamed"]
    assert [one.id for one in (await finish(*body, completed(), split=5)).message.calls] == ids


@pytest.mark.parametrize("arguments", ["", '{"x":1}', '{"x":1'])
async def test_the_last_call_of_a_cut_answer_is_not_finished(arguments: str) -> None:
    items = [call(), call(arguments, "call_2", status="incomplete")]
    end = completed(*items, status="incomplete", incomplete_details={"reason": "max_output_tokens"})
    found = await finish(done(0, items[0]), done(1, items[1]), end)
    assert [one.finished for one in found.message.calls] == [True, False]
    assert (found.stop, found.raw_stop) == (StopReason.MAX_TOKENS, "max_output_tokens")


async def test_a_call_whose_json_just_ends_is_not_finished_whatever_the_status_says() -> None:
    found = await finish(done(0, call('{"x":')), done(1, call("", "call_2")), completed())
    assert [one.finished for one in found.message.calls] == [False, True]


# Hosted calls and opaque items


async def test_a_hosted_mcp_call_starts_when_its_arguments_are_known_and_finishes_with_its_item() -> None:
    item = {**MCP, "output": "42", "error": None, "status": "completed"}
    events = await read(
        added(0, {**MCP, "arguments": ""}),
        event("mcp_call_arguments.delta", output_index=0, delta='{"q":1}'),
        event("mcp_call_arguments.done", output_index=0, arguments='{"q":1}'),
        done(0, item),
        text("ok", 1),
        completed(item, message("ok")),
    )
    result = ToolResultPart("mcp_1", "ask", "42", hosted=True)
    assert events[:-1] == [
        ToolStart("mcp_1", 0, "ask", '{"q":1}', Effect.EXTERNAL, hosted=True),
        ToolFinish("mcp_1", 0, "ask", result),
        TextDelta("ok"),
    ]
    called = ToolCallPart("mcp_1", "ask", '{"q":1}', hosted=True, raw=item)
    assert events[-1].message.content == (called, result, TextPart("ok"))
    assert events[-1].message.calls == ()
    assert events[-1].stop is StopReason.END


@pytest.mark.parametrize(
    ("error", "content"),
    [("it broke", "it broke"), ({"type": "http_error", "message": "not found"}, "not found"), ({"a": 1}, '{"a":1}')],
)
async def test_a_hosted_mcp_call_that_failed_has_an_error_result(error: Any, content: str) -> None:
    item = {**MCP, "output": None, "error": error, "status": "failed"}
    events = await read(done(0, item), completed(item))
    assert [type(one) for one in events] == [ToolStart, ToolFinish, ModelFinish]
    assert (events[1].is_error, events[1].result.content, events[1].refused) == (True, content, False)


async def test_a_hosted_search_tells_its_query_and_what_it_found() -> None:
    sources = [{"type": "url", "url": "https://a"}, {"type": "api", "name": "w"}, {"type": "url", "url": "https://b"}]
    item = {**SEARCH, "action": {"type": "search", "query": "x", "sources": sources}}
    events = await read(added(0, SEARCH), done(0, item), completed(item))
    start, end, last = events
    assert start == ToolStart("ws_1", 0, "web_search", '{"type":"search","query":"x"}', Effect.READ, hosted=True)
    assert end.result == ToolResultPart("ws_1", "web_search", "https://a\nhttps://b", hosted=True)
    assert last.message.content[0].raw == item


async def test_a_hosted_call_that_the_end_of_the_answer_cut_off_finishes_as_an_error_and_is_no_part() -> None:
    known = event("mcp_call_arguments.done", output_index=0, arguments='{"q":1}')
    end = completed(status="incomplete", incomplete_details={"reason": "max_output_tokens"})
    events = await read(added(0, {**MCP, "arguments": ""}), known, end)
    assert [type(one) for one in events] == [ToolStart, ToolFinish, ModelFinish]
    assert events[1].is_error
    assert events[-1].message.content == ()


async def test_a_server_that_asks_for_an_approval_pauses_the_answer() -> None:
    item = {"type": "mcp_approval_request", "id": "mcpr_1", "name": "send", "arguments": "{}", "server_label": "mail"}
    events = await read(done(0, item), completed(item))
    assert (events[1].refused, events[1].is_error) == (True, True)
    assert events[-1].stop is StopReason.PAUSED


@pytest.mark.parametrize("kind", ["mcp_list_tools", "code_interpreter_call", "compaction", "program", "whatever_comes"])
async def test_other_items_are_kept_as_they_came(kind: str) -> None:
    item = {"type": kind, "id": "x", "deep": [{"a": None, "b": 1.5}]}
    found = await finish(added(0, {"type": kind, "id": "x"}), done(0, item), completed(item))
    assert found.message.content == (ProviderPart("openai", kind, item),)
    assert found.stop is StopReason.END


@pytest.mark.parametrize(
    "item",
    [
        {"type": "custom_tool_call", "call_id": "c", "input": "x"},
        {"type": "tool_search_call", "call_id": "c", "execution": "client"},
    ],
)
async def test_an_answer_that_waits_for_what_nobody_can_give_is_no_end(item: dict[str, Any]) -> None:
    assert (await finish(done(0, item), completed(item))).stop is StopReason.OTHER
    output = {"type": f"{item['type']}_output", "call_id": "c"}
    assert (await finish(done(0, item), done(1, output), completed(item, output))).stop is StopReason.END


# Usage


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, None),
        ({}, None),
        ({"input_tokens": None, "output_tokens": None}, None),
        (usage(10, 5), Usage(10, 5)),
        (usage(10, 5, input_tokens_details=None, output_tokens_details=None), Usage(10, 5)),
        (usage(10, 5, input_tokens_details={"cached_tokens": 4, "cache_write_tokens": 3}), Usage(3, 5, 4, 3)),
        (usage(10, 5, input_tokens_details={"cached_tokens": 40}), Usage(0, 5, 10)),
        (usage(10, 5, output_tokens_details={"reasoning_tokens": 3}), Usage(10, 5, reasoning_tokens=3)),
        (
            usage(10, 5, output_tokens_details={"reasoning_tokens": 7}, total_tokens=22),
            Usage(10, 12, reasoning_tokens=7),
        ),
        (usage(10, 5, cost_in_usd_ticks=10_112_000), Usage(10, 5, cost_usd=0.0010112)),
        (usage(10, 5, cost=0.25), Usage(10, 5, cost_usd=0.25)),
        (usage(10, -5), Usage(10, 0)),
    ],
)
async def test_usage_counts_everything_once(given: Any, expected: Usage | None) -> None:
    assert (await finish(completed(message("a"), usage=given))).usage == expected


# Stops


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("max_output_tokens", StopReason.MAX_TOKENS),
        ("content_filter", StopReason.REFUSAL),
        ("something", StopReason.OTHER),
        (None, StopReason.OTHER),
    ],
)
async def test_an_incomplete_answer_says_why(reason: str | None, stop: StopReason) -> None:
    found = await finish(text("a"), completed(message("a"), status="incomplete", incomplete_details={"reason": reason}))
    assert (found.stop, found.raw_stop) == (stop, reason or "incomplete")
    assert found.message.text == "a"


async def test_the_last_event_says_how_it_ended_where_its_answer_does_not() -> None:
    found = await finish(text("a"), event("incomplete", response={"output": [message("a")]}))
    assert (found.stop, found.raw_stop) == (StopReason.OTHER, "incomplete")


async def test_a_refusal_is_text_and_a_stop() -> None:
    item = message()
    item["content"] = [{"type": "refusal", "refusal": "I will not."}]
    deltas = [event("refusal.delta", output_index=0, content_index=0, delta=part) for part in ("I will", " not.")]
    found = await finish(added(0, message()), *deltas, done(0, item), completed(item))
    assert (found.message.text, found.stop) == ("I will not.", StopReason.REFUSAL)


async def test_an_empty_answer_is_an_end_without_content() -> None:
    found = await finish(completed())
    assert (found.message.content, found.stop) == ((), StopReason.END)


# Errors inside a 200


def failed(code: str, text: str = "why", **more: Any) -> dict[str, Any]:
    return completed(status="failed", error={"code": code, "message": text}, **more)


@pytest.mark.parametrize(
    ("body", "kind", "retryable"),
    [
        ({"type": "error", "code": "rate_limit_exceeded", "message": "m", "param": None}, RateLimitError, True),
        (
            {"type": "error", "error": {"type": "server_error", "code": "server_error", "message": "m"}},
            OverloadedError,
            True,
        ),
        ({"error": {"code": 429, "message": "m"}}, RateLimitError, True),
        (failed("server_error"), OverloadedError, True),
        (failed("insufficient_quota"), RateLimitError, False),
        (failed("vector_store_timeout"), OverloadedError, True),
        (failed("invalid_image_url"), InvalidRequestError, False),
        (failed("image_too_large"), InvalidRequestError, False),
        (failed("invalid_prompt", "Invalid prompt: no text"), InvalidRequestError, False),
        (completed(status="failed"), OverloadedError, True),
        (completed(status="cancelled"), ModelResponseError, True),
        (event("completed", response=3), ModelResponseError, True),
        (b"data: {broken\n\n", ModelResponseError, True),
    ],
)
async def test_an_error_inside_the_stream_raises_what_it_means(
    body: Any, kind: type[ModelError], retryable: bool
) -> None:
    with pytest.raises(ModelError) as caught:
        await read(text("a"), added(1, call("")), args('{"path":"a', 1), body, completed(message("a")))
    assert type(caught.value) is kind
    assert caught.value.retryable is retryable
    assert caught.value.provider == "openai"
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("code", ["image_content_policy_violation", "misalignment_policy_violation", "invalid_prompt"])
async def test_a_filter_that_steps_in_is_a_refusal_and_leaves_what_came(code: str) -> None:
    found = await finish(text("a"), failed(code, "flagged as potentially violating our usage policy"))
    assert (found.stop, found.raw_stop, found.message.text) == (StopReason.REFUSAL, code, "a")


async def test_a_prompt_that_a_filter_refuses_is_a_refusal_with_no_content() -> None:
    error = {"error": {"code": "content_filter", "message": "blocked"}}
    reply = Reply((json.dumps(error).encode(),), status=400, content_type="application/json")
    async with Loopback(reply) as server:
        (found,) = await collect(model(server))
    assert (found.stop, found.message.content, found.usage) == (StopReason.REFUSAL, (), None)


async def test_overflow_inside_the_stream_is_a_stop_and_as_an_http_error_raises() -> None:
    found = await finish(text("a"), failed("context_length_exceeded", usage=usage()))
    assert (found.stop, found.message.text, found.usage) == (StopReason.CONTEXT, "a", Usage(10, 5))
    error = {"error": {"code": "context_length_exceeded", "message": "too long"}}
    async with Loopback(Reply((json.dumps(error).encode(),), status=400, content_type="application/json")) as server:
        with pytest.raises(ContextOverflowError):
            await collect(model(server))


@pytest.mark.parametrize(
    "body", [[text("a")], [text("a"), done(0, message("a"))], [text("a"), b"data: [DONE]\n\n"], []]
)
async def test_a_stream_without_its_last_event_broke_off(body: list[Any]) -> None:
    with pytest.raises(ModelConnectionError) as caught:
        await read(*body)
    assert caught.value.retryable


async def test_half_an_event_at_the_end_broke_off_but_a_missing_blank_line_is_no_fault() -> None:
    whole = sse(completed(message("a")))
    assert (await finish(whole[:-2])).message.text == "a"
    with pytest.raises(ModelConnectionError):
        await read(whole[:-9])


async def test_errors_over_http_have_their_class_and_never_show_the_key() -> None:
    for status, kind in ((429, RateLimitError), (503, OverloadedError), (404, InvalidRequestError)):
        reply = Reply(
            (b'{"error":{"message":"no sk-test-secret here"}}',), status=status, content_type="application/json"
        )
        async with Loopback(reply) as server:
            with pytest.raises(kind) as caught:
                await collect(model(server))
        assert "secret" not in str(caught.value)
        assert caught.value.status == status
    with pytest.raises(ModelResponseError) as told:
        await read(b"data: {sk-test-secret\n\n", completed())
    assert "secret" not in str(told.value)


# Documents


async def test_an_answer_without_a_stream_gives_the_same_events() -> None:
    items = [reasoning("Hm"), message("a"), call('{"x":1}')]
    events = await read_document(document(*items, usage=usage()))
    consistent(events)
    assert [type(one) for one in events] == [ReasoningDelta, TextDelta, ToolCallDelta, ToolCallDelta, ModelFinish]
    assert events[-1].stop is StopReason.TOOL_CALLS
    assert events[-1].usage == Usage(10, 5)
    assert [type(part) for part in events[-1].message.content] == [ReasoningPart, ProviderPart, TextPart, ToolCallPart]


async def test_a_document_without_a_status_is_whole() -> None:
    events = await read_document({"output": [message("a")]})
    assert (events[-1].message.text, events[-1].stop) == ("a", StopReason.END)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ({"error": {"code": "rate_limit_exceeded", "message": "m"}}, RateLimitError),
        (document(status="failed", error={"code": "server_error", "message": "m"}), OverloadedError),
        (document(status="queued"), ModelResponseError),
        ({"hello": 1}, ModelResponseError),
    ],
)
async def test_a_document_without_an_answer_raises(value: Any, kind: type[ModelError]) -> None:
    with pytest.raises(kind):
        await read_document(value)


async def test_a_stream_under_the_wrong_content_type_is_read_and_a_page_is_not() -> None:
    events = await read(completed(message("a")), reply={"content_type": "application/json"})
    assert events[-1].message.text == "a"
    with pytest.raises(ModelResponseError, match="a page instead of JSON: Sign in"):
        await read(b"<html><title>Sign in</title>", reply={"content_type": "text/html"})


# A run


async def test_a_run_over_hosted_and_own_tools_sends_back_what_it_got() -> None:
    @tool(effect="read")
    def add(a: int) -> int:
        """Adds one."""
        return a + 1

    thought, hosted = reasoning("Hm"), {**MCP, "output": "41", "error": None, "status": "completed"}
    first = [thought, hosted, call('{"a":41}')]
    replies = (
        Reply((sse(*(done(index, item) for index, item in enumerate(first)), completed(*first, usage=usage(10, 5))),)),
        Reply((sse(text("42"), completed(message("42"), usage=usage(20, 6))),)),
    )
    async with Loopback(*replies) as server:
        agent = Agent(model(server), tools=[add], hosted_mcp=[HostedMCP("wiki", "https://a")])
        async with agent.stream("hello") as run:
            events = [one async for one in run]
        result = await run.result()
    assert (result.text, result.stop, result.usage.total_tokens) == ("42", StopReason.END, 41)
    assert not any(isinstance(one, ReasoningDelta) for one in events)
    tools = [(one.name, one.hosted) for one in events if isinstance(one, ToolStart)]
    assert tools == [("ask", True), ("add", False)]
    _, second = server.requests
    assert second.body["input"][1:] == [*first, {"type": "function_call_output", "call_id": "call_1", "output": "42"}]
    assert server.requests[0].body["prompt_cache_key"] == second.body["prompt_cache_key"]
    assert server.connections == 1


# The connection


async def test_cancel_and_early_close_close_the_connection() -> None:
    async with Loopback(Reply((sse(text("a")), STALL))) as server:
        stream = model(server).stream(ModelRequest(None, HELLO))
        assert await asyncio.wait_for(anext(stream), BOUND) == TextDelta("a")
        await stream.aclose()
        await asyncio.wait_for(server.left.wait(), BOUND)
    async with Loopback(Reply((sse(text("a")), STALL))) as server:
        task = asyncio.create_task(collect(model(server)))
        await asyncio.wait_for(server.asked.wait(), BOUND)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(server.left.wait(), BOUND)


async def test_a_stalled_stream_and_a_cut_one_raise() -> None:
    async with Loopback(Reply((sse(text("a")), STALL))) as server:
        with pytest.raises(StreamIdleError):
            await collect(model(server, idle_timeout_seconds=0.05))
    async with Loopback(Reply((sse(text("a")), BREAK))) as server:
        with pytest.raises(ModelConnectionError):
            await collect(model(server))


async def test_a_connection_that_breaks_behind_the_last_event_costs_nothing() -> None:
    async with Loopback(Reply((sse(completed(message("a"))), BREAK))) as server:
        assert (await collect(model(server)))[-1].message.text == "a"


async def test_the_switch_that_denies_requests_denies_these(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREADLE_MODEL_REQUESTS", "deny")
    async with Loopback(Reply()) as server:
        with pytest.raises(ModelRequestsDenied):
            await collect(model(server))
        assert server.connections == 0
