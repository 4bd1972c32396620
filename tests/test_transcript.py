"""Transcripts stay valid requests, whatever happened to them."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.strategies import transcripts
from treadle.events import (
    Event,
    ModelFinish,
    ModelRetry,
    ReasoningDelta,
    RunFinish,
    RunStart,
    StepFinish,
    StepStart,
    TextDelta,
    ToolCallDelta,
    ToolFinish,
)
from treadle.messages import (
    AssistantMessage,
    Message,
    ModelRef,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolMessage,
    ToolResultPart,
    UserMessage,
)
from treadle.transcript import CUT_CALL, MISSING_RESULT, fold, repair, trim
from treadle.usage import StopReason, Usage

MODEL = ModelRef("scripted", "scripted")


def asked(*calls: ToolCallPart) -> AssistantMessage:
    return AssistantMessage(calls, StopReason.TOOL_CALLS)


def call(call_id: str, **more: bool) -> ToolCallPart:
    return ToolCallPart(call_id, "f", "{}", **more)


def answer(call_id: str, content: str = "ok") -> ToolResultPart:
    return ToolResultPart(call_id, "f", content)


def assert_valid(messages: Iterable[Message]) -> None:
    """Every call is answered once, right behind its message and in order, and every result answers a call."""
    waiting: tuple[ToolCallPart, ...] = ()
    for message in messages:
        if isinstance(message, ToolMessage):
            assert [result.call_id for result in message.results] == [one.id for one in waiting]
            assert waiting
            waiting = ()
            continue
        assert not waiting
        waiting = message.calls if isinstance(message, AssistantMessage) else ()
    assert not waiting


@given(transcripts)
def test_repair_makes_any_list_of_messages_valid_and_changes_nothing_the_second_time(messages: list[Message]) -> None:
    repaired = repair(messages)
    assert_valid(repaired)
    assert repair(repaired) == repaired
    kept = [message for message in messages if not isinstance(message, ToolMessage)]
    assert [message for message in repaired if not isinstance(message, ToolMessage)] == kept


@given(transcripts)
def test_repair_invents_no_result_where_one_was_given(messages: list[Message]) -> None:
    given_results = [result for message in messages if isinstance(message, ToolMessage) for result in message.results]
    for message in repair(messages):
        if isinstance(message, ToolMessage):
            for result in message.results:
                assert result in given_results or result.content in {MISSING_RESULT, CUT_CALL}


def test_a_valid_transcript_is_kept_object_for_object() -> None:
    messages = (
        UserMessage("hi"),
        asked(call("1"), call("2")),
        ToolMessage((answer("1"), answer("2"))),
        UserMessage("go on"),
    )
    assert all(mine is theirs for mine, theirs in zip(repair(messages), messages, strict=True))


def test_a_list_is_repaired_to_a_list_and_trimmed_to_lists() -> None:
    messages = [UserMessage("hi"), asked(call("1")), ToolMessage((answer("1"),))]
    assert repair(messages) == messages
    assert trim(messages, 1) == ([], messages)


def test_ids_that_come_back_are_paired_within_their_own_turn() -> None:
    messages = (
        asked(call("call_1")),
        ToolMessage((answer("call_1", "first"),)),
        asked(call("call_1")),
        UserMessage("never mind"),
        asked(call("call_1")),
        ToolMessage((answer("call_1", "third"),)),
    )
    repaired = repair(messages)
    results = [message.results[0].content for message in repaired if isinstance(message, ToolMessage)]
    assert results == ["first", MISSING_RESULT, "third"]


def test_results_out_of_order_late_or_spread_over_messages_are_gathered_behind_their_calls() -> None:
    messages = (asked(call("a"), call("b")), ToolMessage((answer("b"),)), UserMessage("x"), ToolMessage((answer("a"),)))
    assert repair(messages) == (messages[0], ToolMessage((answer("a"), answer("b"))), messages[2])


def test_two_calls_with_one_id_in_one_step_each_get_a_result() -> None:
    messages = (asked(call("a"), call("a")), ToolMessage((answer("a", "1"), answer("a", "2"), answer("a", "3"))))
    assert repair(messages) == (messages[0], ToolMessage((answer("a", "1"), answer("a", "2"))))


def test_results_that_answer_nothing_are_dropped() -> None:
    assert repair((ToolMessage((answer("a"),)), UserMessage("x"), ToolMessage((answer("b"),)))) == (UserMessage("x"),)


def test_a_call_that_was_cut_off_is_told_so_and_a_hosted_one_needs_no_result() -> None:
    messages = (asked(call("a", finished=False), call("b", hosted=True)),)
    (_, results) = repair(messages)
    assert isinstance(results, ToolMessage)
    assert [(result.call_id, result.content, result.is_error) for result in results.results] == [("a", CUT_CALL, True)]


@given(transcripts, st.integers(0, 10))
def test_trimming_anywhere_never_orphans_a_result(messages: list[Message], keep: int) -> None:
    whole = repair(tuple(messages))
    kept, dropped = trim(whole, keep)
    assert dropped + kept == whole
    assert len(kept) <= keep
    assert not kept or not isinstance(kept[0], ToolMessage)
    assert_valid(kept)


def test_trimming_keeps_a_call_that_still_waits_for_its_result() -> None:
    messages = (UserMessage("a"), UserMessage("b"), asked(call("1")))
    assert trim(messages, 1) == ((messages[2],), messages[:2])


def test_trimming_drops_a_result_whose_call_it_drops() -> None:
    messages = (UserMessage("a"), asked(call("1")), ToolMessage((answer("1"),)), UserMessage("b"))
    assert trim(messages, 2) == (messages[3:], messages[:3])
    assert trim(messages, 0) == ((), messages)


def test_trimming_to_a_negative_length_is_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        trim((), -1)


def log(*events: Event) -> tuple[Event, ...]:
    return (RunStart("a", MODEL, (UserMessage("hi"),)), *events)


def test_an_answer_that_broke_off_is_folded_from_its_fragments() -> None:
    events = log(
        StepStart(0),
        ReasoningDelta("hm"),
        TextDelta("Hel"),
        TextDelta("lo"),
        ToolCallDelta(0, "c1", "f", '{"a'),
        ToolCallDelta(1, "", "", "{"),
        ToolCallDelta(0, "", "", '":'),
        TextDelta("!"),
    )
    (_, partial, results) = fold(events)
    assert isinstance(partial, AssistantMessage)
    assert partial.content == (
        ReasoningPart("hm"),
        TextPart("Hello"),
        ToolCallPart("c1", "f", '{"a":', finished=False),
        ToolCallPart("call_1", "unnamed", "{", finished=False),
        TextPart("!"),
    )
    assert partial.stop is StopReason.ERROR
    assert partial.model == MODEL
    assert isinstance(results, ToolMessage)
    assert len(results.results) == 2


def test_a_retry_voids_the_fragments_before_it_and_empty_ones_leave_no_part() -> None:
    events = log(StepStart(0), TextDelta("Hello wor"), ModelRetry(1, 0.0, "reset"), TextDelta(""))
    assert fold(events) == (UserMessage("hi"),)


def test_the_stop_of_a_cancelled_run_marks_its_broken_answer() -> None:
    events = log(StepStart(0), TextDelta("Hel"), RunFinish(Usage(), 0, StopReason.CANCELLED))
    assert fold(events)[-1] == AssistantMessage((TextPart("Hel"),), StopReason.CANCELLED, MODEL)


def test_results_are_folded_in_call_order_also_before_their_step_is_over() -> None:
    finish = ModelFinish(asked(call("1"), call("2"), call("h", hosted=True)), None, StopReason.TOOL_CALLS)
    hosted = ToolFinish("h", 2, "web", ToolResultPart("h", "web", "x", hosted=True))
    second, first = ToolFinish("2", 1, "f", answer("2")), ToolFinish("1", 0, "f", answer("1"))
    whole = (UserMessage("hi"), finish.message, ToolMessage((answer("1"), answer("2"))))
    assert fold(log(hosted, finish, second, first)) == whole
    assert fold(log(finish, second, first, StepFinish(0, None, StopReason.TOOL_CALLS))) == whole
    half = fold(log(finish, second))[-1]
    assert isinstance(half, ToolMessage)
    assert [result.is_error for result in half.results] == [True, False]


def test_what_the_loop_adds_before_a_step_is_part_of_the_transcript() -> None:
    assert fold(log(StepStart(1, (UserMessage("again"),)))) == (UserMessage("hi"), UserMessage("again"))
