"""What the Gemini adapter makes of streams, the odd ones above all."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.chat import HELLO, consistent
from support.google import STOP, call, chunk, collect, finish, model, piece, read, sse, text
from support.loopback import BOUND, BREAK, STALL, Loopback, Reply
from treadle.errors import (
    AuthenticationError,
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
from treadle.events import ReasoningDelta, TextDelta, ToolCallDelta, ToolFinish, ToolStart, encode_events
from treadle.messages import Citation, ProviderPart, ReasoningPart, TextPart, ToolCallPart, ToolResultPart
from treadle.model import ModelRequest
from treadle.providers._errors import model_error
from treadle.providers.google._stream import AnswerReader
from treadle.usage import StopReason, Usage

COUNTS = {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}


async def calls_of(*chunks: Any, **options: Any) -> list[tuple[str, Any]]:
    ended = await finish(*chunks, **options)
    return [(found.name, json.loads(found.args)) for found in ended.message.calls]


# Signatures


async def test_a_signature_stays_on_the_very_text_it_came_with() -> None:
    ended = await finish(chunk(text("one ")), chunk(text("two", "sig")), chunk(text(", three"), finish="STOP"))
    assert ended.message.content == (
        TextPart("one "),
        TextPart("two"),
        ProviderPart("google", "text_signature", "sig"),
        TextPart(", three"),
    )
    assert ended.message.text == "one two, three"


async def test_a_signature_on_a_last_empty_part_is_kept_as_that_part() -> None:
    ended = await finish(chunk(text("three")), chunk(text("", "sig"), finish="STOP"))
    kept = ProviderPart("google", "part", {"text": "", "thoughtSignature": "sig"})
    assert ended.message.content == (TextPart("three"), kept)


async def test_a_part_that_is_only_a_signature_is_kept() -> None:
    ended = await finish(chunk(text("three"), {"thoughtSignature": "sig"}, finish="STOP"))
    assert ended.message.content == (TextPart("three"), ProviderPart("google", "part", {"thoughtSignature": "sig"}))


async def test_a_signature_closes_the_thoughts_before_it() -> None:
    first = [chunk(text("a", thought=True)), chunk(text("b", thought=True)), chunk(text("", "sig", thought=True))]
    ended = await finish(*first, chunk(text("c", thought=True), text("answer")), STOP)
    assert ended.message.content == (ReasoningPart("ab", "sig"), ReasoningPart("c"), TextPart("answer"))


async def test_a_thought_signature_without_any_thought_is_kept() -> None:
    ended = await finish(chunk(text("", "sig", thought=True), text("answer"), finish="STOP"))
    assert ended.message.content == (ReasoningPart("", "sig"), TextPart("answer"))


async def test_the_signature_of_a_call_is_the_calls_own() -> None:
    ended = await finish(chunk(call("a", {}, "sig"), call("b", {}), finish="STOP"))
    assert [found.signature for found in ended.message.calls] == ["sig", None]
    assert ended.stop is StopReason.TOOL_CALLS


# Calls


async def test_missing_ids_are_invented_and_the_same_in_deltas_and_message() -> None:
    events = await read(chunk(call("f", {}), call("f", {}), finish="STOP"))
    one, two = events[-1].message.calls
    assert one.id != two.id
    assert [event.call_id for event in events if isinstance(event, ToolCallDelta)] == [one.id, two.id]
    again = await finish(chunk(call("f", {}), call("f", {}), finish="STOP"))
    assert [found.id for found in again.message.calls] == [one.id, two.id]
    other = await finish(chunk(call("f", {}), finish="STOP", responseId="answer-2"))
    assert other.message.calls[0].id != one.id


async def test_invented_ids_differ_between_answers_that_tell_no_id_of_their_own() -> None:
    one = chunk(call("f", {"a": 1}), finish="STOP", responseId=None)
    two = chunk(call("f", {"a": 2}), finish="STOP", responseId=None)
    assert (await finish(one)).message.calls[0].id != (await finish(two)).message.calls[0].id


async def test_equal_ids_in_one_answer_are_made_different() -> None:
    ended = await finish(chunk(call("f", {}, id="x"), call("g", {}, id="x"), finish="STOP"))
    assert [found.id for found in ended.message.calls] == ["x", "x_2"]


async def test_arguments_are_kept_byte_for_byte() -> None:
    body = b'data: {"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":{ "n" : 1.50, "u":"\\u00e9" }}}]}'
    ended = await finish(body + b',"finishReason":"STOP"}]}\r\n\r\n')
    assert ended.message.calls[0].args == '{ "n" : 1.50, "u":"\\u00e9" }'


@pytest.mark.parametrize("more", [{}, {"args": {}}], ids=["absent", "empty"])
async def test_a_call_without_arguments_has_an_empty_object(more: dict[str, Any]) -> None:
    assert await calls_of(chunk({"functionCall": {"name": "now", **more}}, finish="STOP")) == [("now", {})]


async def test_null_arguments_are_an_empty_object() -> None:
    assert await calls_of(chunk({"functionCall": {"name": "now", "args": None}}, finish="STOP")) == [("now", {})]


async def test_a_nameless_call_is_called_unnamed() -> None:
    assert await calls_of(chunk({"functionCall": {"args": {"a": 1}}}, finish="STOP")) == [("unnamed", {"a": 1})]
    assert await calls_of(chunk({"functionCall": {}}, text("x"), finish="STOP")) == []


async def test_arguments_come_by_path() -> None:
    begun = chunk(call("f", willContinue=True))
    pieces = [
        piece("$.a.b[0].c", stringValue="x", goes_on=True),
        piece("$.a.b[0].c", stringValue="y"),
        piece("$.a.b[1]['d e']", numberValue=2),
        piece('$["q\\"r"]', boolValue=False),
        piece("$.n", nullValue=None),
        piece("$.deep[1][0]", stringValue="z"),
    ]
    expected = {"a": {"b": [{"c": "xy"}, {"d e": 2}]}, 'q"r': False, "n": None, "deep": [None, ["z"]]}
    assert await calls_of(begun, *map(chunk, pieces), chunk(call()), STOP) == [("f", expected)]


async def test_a_call_in_pieces_ends_with_its_last_piece_or_with_the_next_call() -> None:
    one, two = chunk(call("f", willContinue=True)), chunk(call("g", willContinue=True))
    x, y = piece("$.x", numberValue=1), piece("$.y", numberValue=2, more=False)
    found = await calls_of(one, chunk(x), two, chunk(y), chunk(call("h", {"z": 3})), STOP)
    assert found == [("f", {"x": 1}), ("g", {"y": 2}), ("h", {"z": 3})]


async def test_a_call_whose_last_piece_never_came_is_whole_only_where_the_answer_is() -> None:
    pieces = [chunk(call("f", willContinue=True)), chunk(piece("$.x", stringValue="abc", goes_on=True))]
    assert (await finish(*pieces, STOP)).message.calls[0].finished
    ended = await finish(*pieces, chunk(finish="MAX_TOKENS"))
    assert ended.stop is StopReason.MAX_TOKENS
    assert not ended.message.calls[0].finished
    assert not (await finish(*pieces, chunk(finish="SAFETY"))).message.calls[0].finished


async def test_pieces_that_leave_room_for_millions_are_refused() -> None:
    with pytest.raises(ModelResponseError) as caught:
        await read(chunk(call("f", willContinue=True)), chunk(piece("$.a[900000]", numberValue=1)), STOP)
    assert caught.value.retryable


async def test_pieces_in_each_others_way_break_nothing() -> None:
    pieces = [piece("$.a", stringValue="x"), piece("$.a.b", stringValue="y"), piece("$.a[0]", numberValue=1)]
    pieces += [piece("$", stringValue="?"), piece("$[0]", stringValue="?"), piece("", stringValue="?")]
    assert await calls_of(chunk(call("f", willContinue=True)), *map(chunk, pieces), STOP) == [("f", {"a": [1]})]


async def test_the_last_call_of_an_answer_that_hit_the_limit_is_cut_off() -> None:
    ended = await finish(chunk(call("f", {}), call("g", {}), finish="MAX_TOKENS"))
    assert [found.finished for found in ended.message.calls] == [True, False]


# Why an answer ended


@pytest.mark.parametrize(
    ("word", "stop"),
    [
        ("STOP", StopReason.END),
        ("MAX_TOKENS", StopReason.MAX_TOKENS),
        ("SAFETY", StopReason.REFUSAL),
        ("RECITATION", StopReason.REFUSAL),
        ("BLOCKLIST", StopReason.REFUSAL),
        ("PROHIBITED_CONTENT", StopReason.REFUSAL),
        ("SPII", StopReason.REFUSAL),
        ("MODEL_ARMOR", StopReason.REFUSAL),
        ("OTHER", StopReason.OTHER),
        ("TOO_MANY_TOOL_CALLS", StopReason.OTHER),
        ("NEW_IN_2027", StopReason.OTHER),
    ],
)
async def test_finish_reasons_are_told_in_our_words_and_kept(word: str, stop: StopReason) -> None:
    ended = await finish(chunk(text("a")), chunk(finish=word))
    assert (ended.stop, ended.raw_stop, ended.message.stop) == (stop, word, stop)


@pytest.mark.parametrize("reason", ["SAFETY", "PROHIBITED_CONTENT", "MODEL_ARMOR", "OTHER", "SOMETHING_NEW"])
async def test_a_blocked_prompt_is_a_refusal(reason: str) -> None:
    ended = await finish({"promptFeedback": {"blockReason": reason}, "usageMetadata": {"trafficType": "ON_DEMAND"}})
    assert (ended.stop, ended.raw_stop, ended.message.content) == (StopReason.REFUSAL, reason, ())
    assert ended.usage is None


@pytest.mark.parametrize("content", [None, {}, {"parts": None}, {"parts": []}, {"role": "model"}])
async def test_a_blocked_answer_needs_no_content(content: Any) -> None:
    value = {"candidates": [{"content": content, "finishReason": "SAFETY"}], "usageMetadata": COUNTS}
    ended = await finish(value)
    assert (ended.stop, ended.message.content) == (StopReason.REFUSAL, ())
    assert ended.usage == Usage(10, 5)


@pytest.mark.parametrize("word", ["MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL"])
async def test_a_call_that_google_could_not_read_is_worth_another_try(word: str) -> None:
    with pytest.raises(ModelResponseError) as caught:
        await read(chunk(finish=word, more={"finishMessage": "Malformed function call:\n print("}))
    assert caught.value.retryable
    assert word in str(caught.value)
    assert "Malformed function call: print(" in str(caught.value)


async def test_a_call_to_an_undeclared_tool_is_a_call() -> None:
    ended = await finish(chunk(call("nope", {}, "sig"), finish="UNEXPECTED_TOOL_CALL"))
    assert (ended.stop, ended.raw_stop) == (StopReason.TOOL_CALLS, "UNEXPECTED_TOOL_CALL")
    assert ended.message.calls[0].name == "nope"


async def test_a_missing_signature_is_our_fault_and_not_tried_again() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        await read(chunk(finish="MISSING_THOUGHT_SIGNATURE"))
    assert not caught.value.retryable


async def test_an_empty_answer_that_ended_is_an_end() -> None:
    ended = await finish(STOP)
    assert (ended.stop, ended.message.content) == (StopReason.END, ())


# Usage


async def test_the_last_totals_count_and_thoughts_are_output() -> None:
    last = {"promptTokenCount": 100, "cachedContentTokenCount": 60, "candidatesTokenCount": 7, "thoughtsTokenCount": 20}
    last |= {"toolUsePromptTokenCount": 5, "totalTokenCount": 132}
    chunks = [chunk(text("a"), usageMetadata=COUNTS), chunk(finish="STOP", usageMetadata=last)]
    ended = await finish(*chunks, {"usageMetadata": {"trafficType": "ON_DEMAND"}})
    assert ended.usage == Usage(45, 27, 60, reasoning_tokens=20)
    assert ended.usage.total_tokens == 132


async def test_thoughts_that_are_counted_among_the_answer_count_once() -> None:
    counts = {"promptTokenCount": 10, "candidatesTokenCount": 30, "thoughtsTokenCount": 20, "totalTokenCount": 40}
    assert (await finish(chunk(finish="STOP", usageMetadata=counts))).usage == Usage(10, 30, reasoning_tokens=20)


@pytest.mark.parametrize("counts", [None, {}, {"promptTokenCount": None}, {"promptTokenCount": "?"}, []])
async def test_usage_that_says_nothing_is_unknown(counts: Any) -> None:
    assert (await finish(chunk(text("a"), finish="STOP", usageMetadata=counts))).usage is None


async def test_odd_counts_are_no_error() -> None:
    counts = {"promptTokenCount": 10.0, "candidatesTokenCount": None, "cachedContentTokenCount": 99}
    counts |= {"thoughtsTokenCount": -3}
    assert (await finish(chunk(finish="STOP", usageMetadata=counts))).usage == Usage(0, 0, 10)


# What Google runs itself


async def test_code_and_its_result_are_hosted_parts_and_events() -> None:
    code = {"executableCode": {"language": "PYTHON", "code": "print(1)"}, "thoughtSignature": "sig"}
    result = {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1\n"}}
    events = await read(chunk(text("so:"), code), chunk(result), chunk(text("1"), finish="STOP"))
    _, start, finished, _, ended = events
    assert isinstance(start, ToolStart) and start.hosted
    assert (start.name, json.loads(start.args)) == ("code_execution", {"language": "PYTHON", "code": "print(1)"})
    assert isinstance(finished, ToolFinish) and finished.call_id == start.call_id and not finished.is_error
    _, asked, answered, _ = ended.message.content
    assert isinstance(asked, ToolCallPart) and asked.hosted and asked.raw == code
    assert isinstance(answered, ToolResultPart) and answered.hosted and answered.raw == result
    assert answered == finished.result
    assert (ended.message.calls, ended.stop) == ((), StopReason.END)


async def test_code_that_failed_is_an_error_result() -> None:
    code = {"executableCode": {"code": "1/0", "id": "c1"}}
    result = {"codeExecutionResult": {"outcome": "OUTCOME_FAILED", "output": "ZeroDivisionError", "id": "c1"}}
    events = await read(chunk(code, result, finish="STOP"))
    assert events[1].is_error and events[1].result.is_error and events[1].call_id == "c1"


async def test_server_side_tool_parts_are_hosted_and_need_no_second_telling() -> None:
    asked = {"toolCall": {"toolType": "GOOGLE_SEARCH_WEB", "id": "s1", "args": {"queries": ["q"]}}}
    answered = {"toolResponse": {"toolType": "GOOGLE_SEARCH_WEB", "id": "s1", "response": {"n": 1}}}
    grounding = {"webSearchQueries": ["q"], "groundingChunks": [{"web": {"uri": "https://a", "title": "A"}}]}
    more = {"groundingMetadata": grounding}
    events = await read(chunk(asked), chunk(answered), chunk(text("x"), finish="STOP", more=more))
    hosted = [event for event in events if isinstance(event, ToolStart | ToolFinish)]
    assert [event.call_id for event in hosted] == ["s1", "s1"]
    parts = events[-1].message.content
    assert [part.raw for part in parts[:2]] == [asked, answered]
    assert parts[2] == TextPart("x", (Citation("https://a", title="A"),))


async def test_fetched_pages_are_a_hosted_call() -> None:
    pages = {"urlMetadata": [{"retrievedUrl": "https://a", "urlRetrievalStatus": "URL_RETRIEVAL_STATUS_SUCCESS"}]}
    events = await read(chunk(text("x"), finish="STOP", more={"urlContextMetadata": pages}))
    assert (events[1].name, json.loads(events[1].args)) == ("url_context", {"urls": ["https://a"]})
    assert events[2].result.hosted


async def test_sources_are_told_once_and_documents_with_their_words() -> None:
    web = {"web": {"uri": "https://a", "title": "A"}}
    stored = {"retrievedContext": {"uri": "gs://b/doc", "title": "Doc", "text": "words"}}
    bare = {"retrievedContext": {"title": "only a title"}}
    more = [{"groundingMetadata": {"groundingChunks": found}} for found in ([web], [web, stored, bare, {}, None])]
    quoted = {"citationMetadata": {"citationSources": [{"uri": "https://q", "startIndex": 1}]}}
    chunks = [chunk(text("x"), more=more[0]), chunk(text("y"), more=more[1]), chunk(finish="STOP", more=quoted)]
    (part,) = (await finish(*chunks)).message.content
    assert part.citations == (
        Citation("https://a", title="A"),
        Citation(file="gs://b/doc", title="Doc", text="words"),
        Citation(file="only a title", title="only a title"),
        Citation("https://q"),
    )


async def test_parts_of_a_kind_we_do_not_know_are_kept_as_they_came() -> None:
    image = {"inlineData": {"mimeType": "image/png", "data": "aGk="}, "thoughtSignature": "sig"}
    ended = await finish(chunk(text("see"), image, {"hologram": {"a": [1, None, 2.5]}}, {}, finish="STOP"))
    kept = [ProviderPart("google", "part", value) for value in (image, {"hologram": {"a": [1, None, 2.5]}})]
    assert ended.message.content == (TextPart("see"), *kept)


# Framing


async def test_all_line_ends_and_the_end_of_the_body_are_fine() -> None:
    value = json.dumps(chunk(text("hi"), finish="STOP")).encode()
    for body in (
        b"data: %b\r\n\r\n",
        b"data: %b\n\n",
        b"data:%b\r\r",
        b": hi\r\n\r\ndata: %b",
        b"event: x\ndata: %b\n\n",
    ):
        assert (await finish(body % value)).message.text == "hi"


async def test_an_array_and_a_single_document_are_answers_too() -> None:
    values = [chunk(text("a")), chunk(text("b"), call("f", {"x": 1}), finish="STOP", usageMetadata=COUNTS)]
    reply = {"content_type": "application/json; charset=UTF-8"}
    for split in (0, 5):
        ended = await finish(json.dumps(values, indent=1).encode(), reply=reply, split=split)
        assert (ended.message.text, ended.usage) == ("ab", Usage(10, 5))
    assert (await finish(json.dumps(values[1]).encode(), reply=reply)).message.text == "b"
    assert (await finish(*values, reply=reply)).message.text == "ab"


async def test_arguments_in_an_array_are_kept_byte_for_byte() -> None:
    args = b'{\n  "n": 1.50 }'
    whole = b'[{"candidates": [{"content": {"parts": [{"functionCall": {"name": "f", "args": %b}}]}' % args
    whole += b', "finishReason": "STOP"}]}]'
    reply = {"content_type": "application/json"}
    assert (await finish(whole, reply=reply)).message.calls[0].args == args.decode()
    lax = await finish(whole.replace(b'"n"', b'"\xff"'), reply=reply)
    assert json.loads(lax.message.calls[0].args) == {"\ufffd": 1.5}


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'[{"candidates":', b'{"candidates":[{"content"'])
async def test_a_document_without_an_answer_is_no_end(body: bytes) -> None:
    with pytest.raises(ModelConnectionError) as caught:
        await read(body, reply={"content_type": "application/json"})
    assert caught.value.retryable


async def test_a_page_instead_of_an_answer_is_told_on_one_line() -> None:
    page = b"<html><head><title>Sign\n in</title></head></html>"
    with pytest.raises(ModelResponseError, match="Sign in") as caught:
        await read(page, reply={"content_type": "text/html"})
    assert not caught.value.retryable


async def test_a_stream_that_ends_before_the_answer_is_no_end() -> None:
    for chunks in ([], [chunk(text("a"))], [b": keepalive\n\n"]):
        with pytest.raises(ModelConnectionError) as caught:
            await read(*chunks)
        assert caught.value.retryable
    with pytest.raises(ModelConnectionError, match="it said: upstream busy"):
        await read(b"data: upstream busy\n\n")


async def test_a_chunk_that_is_half_an_object_is_a_fault() -> None:
    with pytest.raises(ModelResponseError):
        await read(b'data: {"candidates":[{"con\n\n', chunk(text("a"), finish="STOP"))


async def test_chunks_of_another_shape_are_read_field_by_field() -> None:
    odd = {"candidates": [{"content": {"parts": [{"text": "a", "thought": "no"}]}, "index": "0", "finishReason": 7}]}
    ended = await finish({**odd, "responseId": 5, "usageMetadata": {"promptTokenCount": "12"}}, STOP)
    assert (ended.message.text, ended.usage) == ("a", Usage(12, 0))


async def test_lone_surrogates_become_valid_text_wherever_they_are() -> None:
    body = rb'data: {"candidates":[{"content":{"parts":[{"text":"a\ud800"},{"functionCall":{"name":"f","args":{"x":"\udc00"}}},'
    body += rb'{"executableCode":{"code":"\ud83d"}}]},"finishReason":"STOP"}]}' + b"\r\n\r\n"
    events = await read(body)
    assert events[-1].message.text == "a\ufffd"
    assert json.loads(events[-1].message.calls[0].args) == {"x": "\ufffd"}
    assert encode_events(events)


async def test_other_candidates_are_left_out() -> None:
    value = chunk(text("a"), finish="STOP")
    value["candidates"].append({"index": 1, "content": {"parts": [text("b")]}, "finishReason": "SAFETY"})
    ended = await finish(value)
    assert (ended.message.text, ended.stop) == ("a", StopReason.END)


parts = st.lists(
    st.one_of(
        st.builds(text, st.text(max_size=8), st.none() | st.just("sig"), thought=st.booleans()),
        st.builds(call, st.sampled_from(["f", "g"]), st.none() | st.dictionaries(st.text(max_size=3), st.integers())),
        st.just({"executableCode": {"code": "1"}}),
    ),
    max_size=3,
)


@given(st.lists(parts, max_size=5), st.data())
def test_any_cut_of_any_stream_gives_the_same_message(chunks: list[Any], data: st.DataObject) -> None:
    body = sse(*(chunk(*found) for found in chunks), STOP)

    def read_in(pieces: list[bytes]) -> list[Any]:
        reader = AnswerReader("google", "m", lambda refusal: model_error(refusal, provider="google", model="m"))
        events = [event for found in pieces for event in reader.feed(found)]
        events += [*reader.end(), *reader.conclude()]
        return [*events, reader.finish()]

    whole = read_in([body])
    consistent(whole)
    places = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=6)))
    edges = [0, *places, len(body)]
    assert read_in([body[one:two] for one, two in itertools.pairwise(edges)]) == whole


# Errors


def problem(code: int, message: str, status: str = "", *details: Any) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "status": status, "details": list(details)}}


INFO = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}
REFUSALS = [
    (
        problem(400, "API key not valid. Please pass a valid API key.", "INVALID_ARGUMENT", INFO),
        AuthenticationError,
        False,
    ),
    (problem(403, "Permission denied", "PERMISSION_DENIED"), AuthenticationError, False),
    (problem(404, "models/m is not found", "NOT_FOUND"), InvalidRequestError, False),
    (problem(400, "Invalid value at 'contents'", "INVALID_ARGUMENT"), InvalidRequestError, False),
    (
        problem(400, "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).", "X"),
        ContextOverflowError,
        False,
    ),
    (problem(429, "Quota exceeded", "RESOURCE_EXHAUSTED"), RateLimitError, True),
    (problem(500, "An internal error has occurred", "INTERNAL"), OverloadedError, True),
    (problem(503, "The model is overloaded", "UNAVAILABLE"), OverloadedError, True),
]


@pytest.mark.parametrize(("body", "kind", "retryable"), REFUSALS, ids=lambda value: str(value)[:40])
async def test_refusals_are_told_by_kind(body: dict[str, Any], kind: type[ModelError], retryable: bool) -> None:
    status = body["error"]["code"]
    for content in (body, [body]):
        reply = Reply((json.dumps(content).encode(),), status=status, content_type="application/json")
        async with Loopback(reply) as server:
            with pytest.raises(ModelError) as caught:
                await collect(model(server))
        assert type(caught.value) is kind
        assert (caught.value.retryable, caught.value.status) == (retryable, status)


@pytest.mark.parametrize(("body", "kind", "retryable"), REFUSALS, ids=lambda value: str(value)[:40])
async def test_errors_inside_a_stream_are_the_same_errors(
    body: dict[str, Any], kind: type[ModelError], retryable: bool
) -> None:
    if kind is ContextOverflowError:
        ended = await finish(chunk(text("a")), body)
        assert (ended.stop, ended.message.text) == (StopReason.CONTEXT, "a")
        return
    for chunks in ([chunk(text("a")), body], [json.dumps([chunk(text("a")), body]).encode()]):
        with pytest.raises(kind) as caught:
            await read(*chunks, reply={"content_type": "application/json"} if len(chunks) == 1 else None)
        assert (caught.value.retryable, caught.value.status) == (retryable, body["error"]["code"])


async def test_the_time_to_come_back_is_in_the_details_or_the_header() -> None:
    info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7.5s"}
    body = json.dumps(problem(429, "slow down", "RESOURCE_EXHAUSTED", info)).encode()
    for headers, seconds in (({}, 7.5), ({"retry-after": "3"}, 3.0)):
        async with Loopback(Reply((body,), status=429, headers=headers)) as server:
            with pytest.raises(RateLimitError) as caught:
                await collect(model(server))
        assert caught.value.retry_after_seconds == seconds
    with pytest.raises(RateLimitError) as caught:
        await read(problem(429, "slow down", "RESOURCE_EXHAUSTED", info))
    assert caught.value.retry_after_seconds == 7.5


async def test_a_key_never_shows_in_an_error() -> None:
    body = json.dumps(problem(400, "bad key key-test-secret")).encode()
    async with Loopback(Reply((body,), status=400)) as server:
        with pytest.raises(ModelError) as caught:
            await collect(model(server))
    assert "key-test-secret" not in str(caught.value)


# The connection


async def test_what_breaks_behind_the_finish_reason_loses_nothing() -> None:
    async with Loopback(Reply((sse(chunk(text("a"), finish="STOP")), BREAK))) as server:
        assert (await collect(model(server)))[-1].message.text == "a"
    async with Loopback(Reply((sse(chunk(text("a"))), BREAK))) as server:
        with pytest.raises(ModelConnectionError):
            await collect(model(server))


async def test_a_stalled_stream_is_given_up() -> None:
    async with Loopback(Reply((sse(chunk(text("a"))), STALL))) as server:
        with pytest.raises(StreamIdleError):
            await collect(model(server, idle_timeout_seconds=0.05))


async def test_leaving_early_closes_the_connection() -> None:
    async with Loopback(Reply((sse(chunk(text("a"))), STALL))) as server:
        stream = model(server).stream(ModelRequest(None, HELLO))
        assert isinstance(await anext(stream), TextDelta)
        await stream.aclose()
        await asyncio.wait_for(server.left.wait(), BOUND)


async def test_a_cancel_closes_the_connection() -> None:
    async with Loopback(Reply((sse(chunk(text("a", thought=True))), STALL))) as server:
        begun = asyncio.Event()

        async def run() -> None:
            async for event in model(server).stream(ModelRequest(None, HELLO)):
                assert isinstance(event, ReasoningDelta)
                begun.set()

        task = asyncio.create_task(run())
        await asyncio.wait_for(begun.wait(), BOUND)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(server.left.wait(), BOUND)


async def test_a_whole_stream_leaves_its_connection_for_the_next() -> None:
    async with Loopback(Reply((sse(chunk(text("a"), finish="STOP")),))) as server:
        asked = model(server)
        await collect(asked)
        await collect(asked)
        assert server.connections == 1


async def test_the_kill_switch_stops_everything_before_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREADLE_MODEL_REQUESTS", "deny")
    async with Loopback(Reply()) as server:
        with pytest.raises(ModelRequestsDenied):
            await collect(model(server))
        with pytest.raises(ModelRequestsDenied):
            await model(server).count_tokens(ModelRequest(None, HELLO))
        assert server.requests == []
