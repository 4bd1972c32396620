"""What the adapter makes of streams, the odd ones above all."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.chat import DONE, calls, chunk, collect, consistent, finish, model, piece, read, sse, text, usage
from support.loopback import Loopback, Reply
from treadle.errors import (
    ContextOverflowError,
    ModelConnectionError,
    ModelError,
    ModelResponseError,
    OverloadedError,
    RateLimitError,
)
from treadle.events import ReasoningDelta, TextDelta, ToolCallDelta, encode_events
from treadle.messages import ModelRef, ProviderPart, ReasoningPart, TextPart, ToolCallPart
from treadle.model import ModelRequest
from treadle.providers._errors import model_error
from treadle.providers.openai_chat._stream import AnswerReader
from treadle.usage import StopReason, Usage

TOOLS = chunk({}, "tool_calls")
STOP = chunk({}, "stop")


async def calls_of(*chunks: Any, end: Any = TOOLS, **options: Any) -> list[tuple[str, str, str]]:
    """Id, name and arguments of the calls in a stream, with the deltas checked against them."""
    ended = await finish(*chunks, end, **options)
    return [(call.id, call.name, call.args) for call in ended.message.calls]


# How calls are cut into pieces (B002, B003, B005)


async def test_two_parallel_calls_that_share_an_index_stay_two_calls() -> None:
    pieces = [piece(0, "a", "lookup", '{"q":"x"}'), piece(0, "b", "lookup", '{"q":"y"}')]
    expected = [("a", "lookup", '{"q":"x"}'), ("b", "lookup", '{"q":"y"}')]
    assert await calls_of(calls(pieces[0]), calls(pieces[1])) == expected
    assert await calls_of(calls(*pieces)) == expected


async def test_two_parallel_calls_that_share_an_index_and_have_no_id_stay_two_calls() -> None:
    found = await calls_of(calls(piece(0, "", "lookup", '{"q":"x"}')), calls(piece(0, "", "lookup", '{"q":"y"}')))
    assert [call[1:] for call in found] == [("lookup", '{"q":"x"}'), ("lookup", '{"q":"y"}')]
    found = await calls_of(calls(piece(0, None, "one", "{}")), calls(piece(0, None, "two", "{}")))
    assert [call[1:] for call in found] == [("one", "{}"), ("two", "{}")]


async def test_pieces_without_an_index_belong_to_the_call_before_them() -> None:
    found = await calls_of(
        calls(piece(None, "a", "one")),
        calls(piece(None, args='{"x":1}')),
        calls(piece(None, "b", "two")),
        calls(piece(None, args='{"y":2}')),
    )
    assert found == [("a", "one", '{"x":1}'), ("b", "two", '{"y":2}')]


async def test_pieces_with_and_without_an_index_may_be_mixed() -> None:
    found = await calls_of(
        calls(piece(0, "a", "one", '{"x"')),
        calls(piece(None, args=":")),
        calls(piece(0, args="1}")),
        calls(piece(1, "b", "two", "{}")),
    )
    assert found == [("a", "one", '{"x":1}'), ("b", "two", "{}")]


async def test_a_first_chunk_with_two_entries_of_one_index_is_one_call() -> None:
    found = await calls_of(
        calls(piece(0, "a", "f"), piece(0, args='{"x"')), calls(piece(0, args=":1")), calls(piece(0, args="}"))
    )
    assert found == [("a", "f", '{"x":1}')]


async def test_pieces_whose_index_wanders_join_the_open_call() -> None:
    parts = ['{"a', '":', "1}"]
    later = [calls(piece(number + 1, args=part)) for number, part in enumerate(parts)]
    assert await calls_of(calls(piece(0, "a", "f")), *later) == [("a", "f", '{"a":1}')]


@pytest.mark.parametrize(
    "again",
    [{"name": "read_file"}, {"name": "read_file", "call_id": "a"}, {"name": ""}, {"call_id": "a"}, {"call_id": ""}, {}],
    ids=["name", "id and name", "empty name", "id", "empty id", "nothing"],
)
async def test_a_name_or_id_that_is_repeated_in_each_piece_counts_once(again: dict[str, Any]) -> None:
    parts = ['{"pa', 'th"', ":", '"a.txt"', "}"]
    pieces = [piece(0, "a", "read_file", parts[0]), *(piece(0, args=part, **again) for part in parts[1:])]
    assert await calls_of(*map(calls, pieces)) == [("a", "read_file", '{"path":"a.txt"}')]


async def test_a_null_name_in_later_pieces_changes_nothing() -> None:
    later = {"index": 0, "id": None, "function": {"name": None, "arguments": "1}"}}
    assert await calls_of(calls(piece(0, "a", "f", '{"x":')), calls(later)) == [("a", "f", '{"x":1}')]


async def test_id_and_name_may_come_in_two_pieces() -> None:
    assert await calls_of(calls(piece(0, "a")), calls(piece(0, None, "f", "{}"))) == [("a", "f", "{}")]
    assert await calls_of(calls(piece(0, None, "f")), calls(piece(0, "a", None, "{}"))) == [("a", "f", "{}")]
    assert await calls_of(calls(piece(0, "a", "read_")), calls(piece(0, None, "file", "{}"))) == [
        ("a", "read_file", "{}")
    ]


async def test_interleaved_calls_keep_their_own_pieces() -> None:
    found = await calls_of(
        calls(piece(0, "a", "one", '{"x"'), piece(1, "b", "two", '{"y"')),
        calls(piece(1, args=":2}"), piece(0, args=":1}")),
    )
    assert found == [("a", "one", '{"x":1}'), ("b", "two", '{"y":2}')]


async def test_equal_ids_in_one_answer_are_made_different() -> None:
    found = await calls_of(
        calls(piece(0, "x", "f", "{}")), calls(piece(1, "x", "g", '{"a":')), calls(piece(1, "x", None, "1}"))
    )
    assert found == [("x", "f", "{}"), ("x_2", "g", '{"a":1}')]


async def test_an_id_that_never_comes_is_invented_and_the_same_in_deltas_and_message() -> None:
    events = await read(calls(piece(0, None, "f", "{}")), calls(piece(1, "", "f", "{}")), TOOLS)
    one, two = events[-1].message.calls
    assert one.id != two.id
    assert one.id.startswith("call_")
    assert [event.call_id for event in events if isinstance(event, ToolCallDelta)] == [one.id, two.id]
    other = await calls_of({**calls(piece(0, None, "f", "{}")), "id": "chatcmpl-2"})
    assert other[0][0] != one.id


async def test_a_nameless_call_is_called_unnamed() -> None:
    assert await calls_of(calls(piece(0, "a", "", "{}"))) == [("a", "unnamed", "{}")]


@pytest.mark.parametrize("args", ["", None, " ", "null", '"null"'], ids=["empty", "null", "blank", "word", "string"])
async def test_empty_arguments_stay_as_they_came_and_the_call_is_whole(args: str | None) -> None:
    ended = await finish(calls({"index": 0, "id": "a", "function": {"name": "now", "arguments": args}}), TOOLS)
    assert (ended.message.calls[0].args, ended.message.calls[0].finished) == (args or "", True)


async def test_a_call_without_arguments_or_without_a_function_is_a_call() -> None:
    assert await calls_of(calls({"index": 0, "id": "a", "function": {"name": "now"}})) == [("a", "now", "")]
    assert await calls_of(calls({"index": 0, "id": "a", "type": "function"})) == [("a", "unnamed", "")]


async def test_arguments_that_come_as_an_object_become_its_json() -> None:
    assert await calls_of(calls(piece(0, "a", "f", {"x": [1, "ü"]}))) == [("a", "f", '{"x":[1,"ü"]}')]


async def test_a_legacy_function_call_is_a_call() -> None:
    one = chunk({"function_call": {"name": "f", "arguments": '{"x":'}})
    two = chunk({"function_call": {"arguments": "1}"}})
    assert [call[1:] for call in await calls_of(one, two, end=chunk({}, "function_call"))] == [("f", '{"x":1}')]


async def test_signatures_in_extra_content_are_kept_with_their_call() -> None:
    extra = {"google": {"thought_signature": "s"}}
    ended = await finish(calls(piece(0, "a", "f", "{}", extra_content=extra)), TOOLS)
    assert ended.message.calls[0].raw == {"extra_content": extra}


@given(
    st.lists(
        st.tuples(
            st.none() | st.integers(0, 2),
            st.sampled_from(["", "a", "b"]),
            st.sampled_from(["", "f", "g"]),
            st.text(max_size=4),
        ),
        max_size=8,
    )
)
def test_no_piece_of_a_call_is_ever_dropped(pieces: list[tuple[Any, str, str, str]]) -> None:
    events = fed(sse(*(calls(piece(*item)) for item in pieces), TOOLS, DONE), 1 << 30)
    consistent(events)
    assert sorted("".join(call.args for call in events[-1].message.calls)) == sorted(
        "".join(item[3] for item in pieces)
    )


# Text, reasoning, refusals, citations


async def test_text_and_reasoning_and_calls_keep_their_order() -> None:
    ended = await finish(
        chunk({"reasoning_content": "think"}),
        text("a"),
        text("b"),
        chunk({"reasoning": "more"}),
        text("c"),
        calls(piece(0, "x", "f", "{}")),
        text("d"),
        TOOLS,
    )
    assert ended.message.content == (
        ReasoningPart("think"),
        TextPart("ab"),
        ReasoningPart("more"),
        TextPart("c"),
        ToolCallPart("x", "f", "{}"),
        TextPart("d"),
    )


async def test_one_reasoning_under_two_names_counts_once() -> None:
    ended = await finish(chunk({"reasoning_content": "r", "reasoning": "r"}), text("a"), STOP)
    assert ended.message.content == (ReasoningPart("r"), TextPart("a"))


async def test_content_may_come_in_parts_that_think() -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "r"}], "closed": True}
    ended = await finish(
        text([thinking, {"type": "text", "text": "a"}]),
        text("b"),
        text([{"type": "reference", "reference_ids": [1]}]),
        STOP,
    )
    assert ended.message.content == (ReasoningPart("r"), TextPart("ab"))


async def test_odd_parts_of_content_are_read_as_far_as_they_go() -> None:
    parts = ["a", {"type": "thinking", "thinking": "r"}, 3, {"type": "text"}, {"type": "output_text", "text": "b"}]
    assert (await finish(text(parts), STOP)).message.content == (TextPart("a"), ReasoningPart("r"), TextPart("b"))
    ended = await finish(chunk({"reasoning_details": [3, {"type": "reasoning.summary", "summary": "s"}]}), STOP)
    assert ReasoningPart("s") in ended.message.content


async def test_reasoning_details_go_into_one_opaque_part_and_are_joined() -> None:
    def detail(**more: Any) -> dict[str, Any]:
        return chunk({"reasoning_details": [{"type": "reasoning.text", "index": 0, "format": "x", **more}]})

    sealed = {"type": "reasoning.encrypted", "index": 1, "id": "rs", "data": "e"}
    ended = await finish(
        detail(text="a"),
        detail(text="b", signature=None),
        detail(signature="sig"),
        chunk({"reasoning_details": [sealed]}),
        text("t"),
        STOP,
    )
    joined = {"type": "reasoning.text", "index": 0, "format": "x", "text": "ab", "signature": "sig"}
    assert ProviderPart("openai-chat", "reasoning_details", [joined, sealed]) in ended.message.content
    assert [part.text for part in ended.message.content if isinstance(part, ReasoningPart)] == ["ab"]


async def test_a_refusal_is_shown_as_text_and_stops_as_refusal() -> None:
    ended = await finish(chunk({"refusal": "I can", "content": ""}), chunk({"refusal": "not."}), STOP, usage())
    assert (ended.message.text, ended.stop, ended.raw_stop) == ("I cannot.", StopReason.REFUSAL, "stop")
    ended = await finish(chunk({"content": "fine", "refusal": ""}), STOP)
    assert ended.stop is StopReason.END


async def test_sources_are_citations_of_the_text() -> None:
    note = {"type": "url_citation", "url_citation": {"url": "https://a", "title": "A", "start_index": 0}}
    ended = await finish(chunk({"content": "x", "annotations": [note, note, "odd", {}]}), STOP)
    assert [(citation.url, citation.title) for citation in ended.message.content[0].citations] == [("https://a", "A")]
    ended = await finish({**text("x"), "citations": ["https://b"]}, {**STOP, "citations": ["https://b"]})
    assert [citation.url for citation in ended.message.content[0].citations] == ["https://b"]


async def test_only_the_first_candidate_counts() -> None:
    other = {"id": "1", "choices": [{"index": 1, "delta": {"content": "no"}, "finish_reason": "length"}]}
    assert (await finish(text("yes"), other, STOP)).message.content == (TextPart("yes"),)


# Ends (B015, B016)


@pytest.mark.parametrize("word", ["stop", "", "eos", "tool_calls", "function_call", "novelty"])
async def test_whole_calls_run_whatever_the_finish_reason_says(word: str) -> None:
    ended = await finish(calls(piece(0, "a", "f", "{}")), chunk({}, word))
    assert (ended.stop, ended.raw_stop, ended.message.calls[0].finished) == (StopReason.TOOL_CALLS, word, True)


async def test_done_without_a_finish_reason_is_an_end_if_something_was_said() -> None:
    ended = await finish(text("hello"))
    assert (ended.stop, ended.raw_stop) == (StopReason.END, None)
    assert (await finish(calls(piece(0, "a", "f", "{}")))).stop is StopReason.TOOL_CALLS


@pytest.mark.parametrize(
    ("word", "stop"),
    [
        ("length", StopReason.MAX_TOKENS),
        ("model_length", StopReason.MAX_TOKENS),
        ("content_filter", StopReason.REFUSAL),
        ("sensitive", StopReason.REFUSAL),
        ("model_context_window_exceeded", StopReason.CONTEXT),
        ("eos", StopReason.END),
        ("novelty", StopReason.OTHER),
    ],
)
async def test_each_finish_reason_has_its_stop_and_is_kept(word: str, stop: StopReason) -> None:
    ended = await finish(text("hello"), chunk({}, word))
    assert (ended.stop, ended.message.stop, ended.raw_stop) == (stop, stop, word)


@pytest.mark.parametrize("args", ['{"path":"a.txt","content":"line 1', '{"path":"a.txt"}'], ids=["broken", "whole"])
async def test_the_last_call_of_an_answer_cut_by_length_is_not_finished(args: str) -> None:
    ended = await finish(calls(piece(0, "a", "f", "{}"), piece(1, "b", "write", args)), chunk({}, "length"))
    assert ended.stop is StopReason.MAX_TOKENS
    assert [call.finished for call in ended.message.calls] == [True, False]


async def test_a_call_that_just_ends_is_not_finished_whatever_the_finish_reason_says() -> None:
    ended = await finish(calls(piece(0, "a", "write", '{"path":"a.txt","content":"line 1')), TOOLS)
    assert (ended.stop, ended.message.calls[0].finished) == (StopReason.TOOL_CALLS, False)


async def test_a_cut_call_in_an_answer_as_long_as_allowed_was_cut_by_the_limit() -> None:
    events = fed(sse(calls(piece(0, "a", "write", '{"x":"')), TOOLS, usage(10, 16), DONE), 1 << 30, limit=16)
    assert events[-1].stop is StopReason.MAX_TOKENS


async def test_a_native_finish_reason_tells_a_cut_that_the_other_hides() -> None:
    end = chunk({}, "tool_calls")
    end["choices"][0]["native_finish_reason"] = "max_output_tokens"
    ended = await finish(calls(piece(0, "a", "write", '{"x":"')), end)
    assert (ended.stop, ended.raw_stop) == (StopReason.MAX_TOKENS, "max_output_tokens")
    assert not ended.message.calls[0].finished


@pytest.mark.parametrize("args", ["[1]", '"x"', "3", '{"a":1} tail', "{'a': 1}"])
async def test_arguments_that_are_no_object_are_handed_on_for_the_tool_to_refuse(args: str) -> None:
    ended = await finish(calls(piece(0, "a", "f", args), piece(1, "b", "g", "{}")), TOOLS)
    assert [(call.args, call.finished) for call in ended.message.calls] == [(args, True), ("{}", True)]


@pytest.mark.parametrize(
    ("word", "error"),
    [
        ("error", OverloadedError),
        ("insufficient_system_resource", OverloadedError),
        ("MALFORMED_FUNCTION_CALL", ModelResponseError),
    ],
)
async def test_a_finish_reason_that_tells_of_a_failure_raises_and_may_be_retried(
    word: str, error: type[ModelError]
) -> None:
    with pytest.raises(error, match=word) as caught:
        await read(text("hel"), chunk({}, word))
    assert caught.value.retryable


async def test_an_empty_answer_that_ended_is_an_empty_message() -> None:
    ended = await finish(text(""), STOP, usage(10, 0))
    assert (ended.message.content, ended.stop) == ((), StopReason.END)


async def test_nothing_but_done_is_an_answer_we_do_not_understand() -> None:
    with pytest.raises(ModelResponseError, match="the answer is empty") as caught:
        await read({"id": "1", "choices": []}, {"choices": None})
    assert caught.value.retryable


@pytest.mark.parametrize(
    "chunks", [(), (text("hel"),), (calls(piece(0, "a", "f", "{}")),)], ids=["nothing", "text", "call"]
)
async def test_a_stream_that_ends_without_finish_and_done_is_a_connection_error(chunks: tuple[Any, ...]) -> None:
    with pytest.raises(ModelConnectionError, match="ended before the answer did") as caught:
        await read(*chunks, done=False)
    assert caught.value.retryable


async def test_a_finish_reason_alone_ends_the_answer_without_done() -> None:
    assert (await finish(text("hello"), STOP, done=False)).message.text == "hello"


# Usage (B086)


async def test_the_last_of_many_usages_counts() -> None:
    grown = [{**text("x"), "usage": {"prompt_tokens": 7, "completion_tokens": count}} for count in (10, 50, 100)]
    assert (await finish(*grown, STOP)).usage == Usage(7, 100)


async def test_usage_that_is_absent_null_or_empty_is_unknown_and_not_zero() -> None:
    for more in ({}, {"usage": None}, {"usage": {}}, {"usage": {"prompt_tokens": None}}):
        assert (await finish(text("x"), {**STOP, **more})).usage is None


async def test_null_and_odd_counts_count_as_nothing() -> None:
    odd = usage(10, 5, prompt_tokens_details=None, completion_tokens_details={"reasoning_tokens": None}, cost="free")
    assert (await finish(text("x"), STOP, odd)).usage == Usage(10, 5)
    odd = usage(
        10, 5, prompt_tokens_details={"cached_tokens": 99}, completion_tokens_details={"reasoning_tokens": True}
    )
    assert (await finish(text("x"), STOP, odd)).usage == Usage(0, 5, 10)


async def test_cached_and_reasoning_tokens_are_counted_apart() -> None:
    told = usage(
        100,
        50,
        prompt_tokens_details={"cached_tokens": 60, "cache_write_tokens": 10},
        completion_tokens_details={"reasoning_tokens": 20},
    )
    assert (await finish(text("x"), STOP, told)).usage == Usage(30, 50, 60, 10, 20)
    assert (await finish(text("x"), STOP, usage(100, 50, prompt_cache_hit_tokens=40))).usage == Usage(60, 50, 40)


async def test_reasoning_that_the_output_leaves_out_is_added() -> None:
    told = usage(12, 1, total_tokens=241, completion_tokens_details={"reasoning_tokens": 228})
    assert (await finish(text("x"), STOP, told)).usage == Usage(12, 229, reasoning_tokens=228)


@pytest.mark.parametrize(
    ("more", "cost"),
    [
        ({"cost": 0.5}, 0.5),
        ({"cost": 0}, 0.0),
        ({"cost": {"total_cost": 0.25}}, 0.25),
        ({"cost_in_usd_ticks": 15000000}, 0.0015),
        ({"cost_in_usd_ticks": 0}, None),
        ({}, None),
    ],
)
async def test_the_providers_own_cost_is_kept(more: dict[str, Any], cost: float | None) -> None:
    ended = await finish(text("x"), STOP, usage(**more))
    assert ended.usage is not None
    assert ended.usage.cost_usd == cost


async def test_groqs_own_usage_counts_once() -> None:
    counts = {"prompt_tokens": 3, "completion_tokens": 4}
    assert (await finish(text("x"), {**STOP, "x_groq": {"usage": counts}, "usage": counts})).usage == Usage(3, 4)
    assert (await finish(text("x"), {**STOP, "x_groq": {"id": "r", "usage": counts}})).usage == Usage(3, 4)


# Noise, and bytes that are no clean JSON (B007)

NOISE = (
    b": PROCESSING\n\n",
    b"id: 1\nretry: 5\ndata: " + json.dumps(text("a")).encode() + b"\n\n",
    b": ping\n\n",
    b"data:\n\n",
    b"data: : keepalive\n\n",
    b'event: ping\ndata: {"type":"ping"}\n\n',
    b"\n\n\n",
    b"event: message\ndata: {}\n\n",
)


@pytest.mark.parametrize("split", [0, 1, 3])
async def test_comments_and_keepalives_are_ignored(split: int) -> None:
    events = await read(*NOISE, text("b"), STOP, split=split)
    consistent(events)
    assert [event.text for event in events[:-1]] == ["a", "b"]


async def test_crlf_and_several_data_lines_and_a_mark_are_read() -> None:
    body = b'\xef\xbb\xbfdata: {"id":"1",\r\ndata: "choices":[{"delta":{"content":"h\xc3\xa9"},\r\ndata:"finish_reason":"stop"}]}\r\n\r\n'
    for split in (0, 1, 2):
        assert (await finish(body, split=split)).message.text == "hé"


async def test_a_surrogate_pair_cut_between_two_deltas_is_one_character() -> None:
    one = b'data: {"id":"1","choices":[{"delta":{"content":"a\\ud83d"}}]}\n\n'
    two = b'data: {"id":"1","choices":[{"delta":{"content":"\\ude00b"}}]}\n\n'
    events = await read(one, two, text("c"), STOP)
    assert [event.text for event in events[:-1]] == ["a", "\U0001f600b", "c"]
    consistent(events)
    encode_events(events)
    for lone in ((one, text("c"), STOP), (one, STOP), (two, STOP)):
        events = await read(*lone)
        assert "\ufffd" in events[-1].message.text
        encode_events(events)


async def test_a_surrogate_pair_cut_in_arguments_and_reasoning_is_mended_too() -> None:
    halves = ("\\ud83d", "\\ude00")
    reasoning = [b'data: {"choices":[{"delta":{"reasoning":"%s"}}]}\n\n' % half.encode() for half in halves]
    arguments = [
        b'data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"%s"}}]}}]}\n\n'
        % half.encode()
        for half in ('{\\"x\\":\\"' + halves[0], halves[1] + '\\"}')
    ]
    events = await read(*reasoning, *arguments, TOOLS)
    consistent(events)
    assert events[-1].message.content == (ReasoningPart("\U0001f600"), ToolCallPart("a", "f", '{"x":"\U0001f600"}'))
    events = await read(arguments[0], TOOLS)
    consistent(events)
    encode_events(events)


async def test_invalid_bytes_control_characters_and_constants_do_not_break_the_stream() -> None:
    bad = b'data: {"id":"1","choices":[{"delta":{"content":"a\xff\tb"},"logprobs":{"x":NaN}}],"timings":Infinity}\n\n'
    marked = b'data: \xef\xbb\xbf{"choices":[{"delta":{"content":"c"}}]}\n\n'
    assert (await finish(bad, marked, STOP)).message.text == "a\ufffd\tbc"


async def test_fields_of_the_wrong_shape_are_left_out_and_the_rest_is_read() -> None:
    odd = {
        "id": 7,
        "usage": "none",
        "choices": [
            {
                "index": "0",
                "delta": {
                    "content": "a",
                    "refusal": {},
                    "tool_calls": {"index": "0", "id": 5, "function": {"name": "f", "arguments": 1}},
                },
            }
        ],
    }
    ended = await finish(
        odd, {"choices": {"delta": {"content": "b"}}}, {"choices": [None, 3, {"delta": []}]}, chunk({}, 4)
    )
    assert ended.message.text == "ab"
    assert [call.name for call in ended.message.calls] == ["f"]


async def test_a_broken_chunk_is_an_answer_we_do_not_understand() -> None:
    with pytest.raises(ModelResponseError, match="an event is no JSON") as caught:
        await read(text("a"), b'data: {"id": broken}\n\n', text("b"), STOP)
    assert caught.value.retryable


async def test_a_chunk_cut_by_the_end_of_the_body_is_a_connection_error() -> None:
    with pytest.raises(ModelConnectionError):
        await read(text("a"), b'data: {"choices":[{"delta":{"content":"b', done=False)


async def test_plain_words_in_place_of_an_answer_are_told() -> None:
    with pytest.raises(ModelConnectionError, match="it said: upstream is gone"):
        await read(b"data: upstream is gone\n\n", done=False)


async def test_a_last_event_needs_no_blank_line() -> None:
    assert (await finish(text("a"), sse(STOP).rstrip(), done=False)).message.text == "a"


# Errors inside a 200 (B011 for this wire)


@pytest.mark.parametrize("call", [True, False], ids=["in a call", "in text"])
async def test_an_error_event_in_the_middle_raises_and_may_be_retried(call: bool) -> None:
    begun = calls(piece(0, "a", "f", '{"path":"a')) if call else text("hel")
    event = b'event: error\ndata: {"error":{"type":"overloaded_error","message":"busy"}}\n\n'
    with pytest.raises(OverloadedError, match="busy") as caught:
        await read(begun, event, done=False)
    assert (caught.value.retryable, caught.value.status) == (True, None)


@pytest.mark.parametrize(
    ("error", "kind", "status"),
    [
        ({"code": 502, "message": "bad gateway"}, OverloadedError, 502),
        ({"code": "429", "message": "slow down"}, RateLimitError, 429),
        ({"code": "rate_limit_exceeded", "message": "slow down"}, RateLimitError, None),
        ("Internal server error", OverloadedError, None),
        ({"message": "x", "code": "tool_use_failed", "status_code": 400}, ModelResponseError, 400),
    ],
)
async def test_a_top_level_error_has_its_class_and_status(
    error: Any, kind: type[ModelError], status: int | None
) -> None:
    with pytest.raises(kind) as caught:
        await read(text("a"), {**chunk({"content": ""}, "error"), "error": error})
    assert (caught.value.status, caught.value.retryable, caught.value.model) == (status, True, "m")


async def test_an_error_event_that_is_plain_text_is_told() -> None:
    with pytest.raises(OverloadedError, match="the model crashed"):
        await read(b"event: error\ndata: the model crashed\n\n", done=False)


async def test_a_context_overflow_inside_a_200_is_the_stop_context() -> None:
    ended = await finish(text("a"), {"error": {"code": "context_length_exceeded", "message": "too long"}}, done=False)
    assert (ended.stop, ended.message.text) == (StopReason.CONTEXT, "a")


# Answers that are not streamed


async def test_an_answer_in_one_document_is_read() -> None:
    message = {
        "role": "assistant",
        "content": "hi",
        "reasoning_content": "r",
        "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
    }
    document = {
        "id": "1",
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
        "usage": usage()["usage"],
    }
    body = b"\n   \n" + json.dumps(document).encode()
    events = await read(
        body, done=False, reply={"content_type": "application/json; charset=utf-8", "whole": True}, split=5
    )
    consistent(events)
    assert events[-1].message.content == (ReasoningPart("r"), TextPart("hi"), ToolCallPart("a", "f", "{}"))
    assert (events[-1].usage, events[-1].model) == (Usage(10, 5), ModelRef("openai-chat", "m"))


async def test_a_stream_under_the_type_of_a_document_is_read() -> None:
    assert (await finish(text("hi"), STOP, reply={"content_type": "application/json"})).message.text == "hi"


@pytest.mark.parametrize("body", [b"{}", b'{"choices":[]}', b'{"object":"list","data":[]}'])
async def test_a_document_that_is_no_answer_is_not_understood(body: bytes) -> None:
    with pytest.raises(ModelResponseError):
        await read(body, done=False, reply={"content_type": "application/json"})


async def test_an_error_in_a_document_under_200_has_its_class() -> None:
    with pytest.raises(RateLimitError):
        await read(b'{"error":{"message":"slow","code":429}}', done=False, reply={"content_type": "application/json"})


async def test_a_page_instead_of_an_answer_is_not_understood() -> None:
    with pytest.raises(ModelResponseError, match="a page instead of JSON: Sign in"):
        await read(b"<html><title>Sign in</title></html>", done=False, reply={"content_type": "text/html"})


# Any cut gives the same


def fed(body: bytes, *sizes: int, limit: int = 32_000) -> list[Any]:
    """The events of a body handed over in pieces of these sizes, over and over."""
    reader = AnswerReader("p", "m", limit, lambda refusal: model_error(refusal, provider="p", model="m"))
    events, at, turn = [], 0, 0
    while at < len(body):
        size = sizes[turn % len(sizes)]
        events += reader.feed(body[at : at + size])
        at, turn = at + size, turn + 1
    return [*events, *reader.end(), reader.finish()]


line_ends = st.sampled_from([b"\n", b"\r\n", b"\r"])
deltas = st.one_of(
    st.builds(text, st.text(max_size=8)),
    st.builds(lambda value: chunk({"reasoning": value}), st.text(st.characters(), max_size=4)),
    st.builds(lambda index, args: calls(piece(index, f"c{index}", "f", args)), st.integers(0, 2), st.text(max_size=6)),
    st.just(b": comment\n\n"),
)


@given(st.lists(deltas, max_size=8), line_ends, st.lists(st.integers(1, 30), min_size=1, max_size=8))
def test_any_cut_of_any_body_gives_the_same_events(chunks: list[Any], end: bytes, sizes: list[int]) -> None:
    body = sse(*chunks, STOP, usage(), DONE).replace(b"\n", end)
    whole = fed(body, 1 << 30)
    consistent(whole)
    assert fed(body, *sizes) == whole


@given(st.lists(deltas, max_size=6), st.data())
def test_any_damage_to_a_body_is_read_or_is_an_error_of_ours(chunks: list[Any], data: Any) -> None:
    body = bytearray(sse(*chunks, STOP, usage(), DONE))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at] = data.draw(st.integers(0, 255))
    try:
        events = fed(bytes(body), 40)
    except ModelError:
        return
    encode_events(events)


def test_a_stop_never_hides_the_text_before_it() -> None:
    assert [type(event) for event in fed(sse(text("a"), chunk({"reasoning": "b"}), STOP), 5)[:-1]] == [
        TextDelta,
        ReasoningDelta,
    ]
    assert ModelRequest(None, ()).max_output_tokens == 32_000
    assert issubclass(ContextOverflowError, ModelError)


# Beside the openai client, live

LIVE = {
    "text": (text("he"), text("llo"), STOP, usage()),
    "calls": (calls(piece(0, "a", "f", '{"x"')), calls(piece(0, args=":1}"), piece(1, "b", "g", "{}")), TOOLS, usage()),
    "unicode": (text("h\u00e9 \U0001f600"), text("\u2028"), STOP),
    "refusal": (chunk({"refusal": "no"}), STOP),
    "length": (calls(piece(0, "a", "f", '{"x"')), chunk({}, "length"), usage(3, 4)),
}


@pytest.mark.parametrize("name", sorted(LIVE))
async def test_a_live_stream_reads_as_the_openai_client_reads_it(name: str) -> None:
    body = sse(*LIVE[name], DONE)
    async with Loopback(Reply((body[:50], body[50:]))) as server:
        async with openai.AsyncOpenAI(base_url=server.url, api_key="k", max_retries=0) as client:
            stream = client.chat.completions.stream(model="m", messages=[{"role": "user", "content": "hello"}])
            async with stream as theirs:
                expected = (await theirs.get_final_completion()) if name != "length" else None
        ours = (await collect(model(server)))[-1]
        assert server.requests[0].body["messages"] == server.requests[1].body["messages"]
    if expected is None:
        assert ours.stop is StopReason.MAX_TOKENS  # their client raises
        return
    message = expected.choices[0].message
    assert ours.message.text == (message.content or "") + (message.refusal or "")
    their_calls = [(call.id, call.function.name, call.function.arguments) for call in message.tool_calls or ()]
    assert [(call.id, call.name, call.args) for call in ours.message.calls] == their_calls
    assert ours.raw_stop == expected.choices[0].finish_reason
