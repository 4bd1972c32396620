"""Older messages summarised: where a conversation is cut, what the model reads, and what the log keeps."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.runs import assert_whole, events_of, only
from treadle import (
    Agent,
    AssistantMessage,
    Compaction,
    ConfigError,
    ContextOverflowError,
    FilePart,
    Limits,
    ModelFinish,
    ModelRetry,
    ModelSettings,
    RunError,
    StopReason,
    TextPart,
    ToolCallPart,
    ToolMessage,
    ToolResultPart,
    Usage,
    UserMessage,
    compact,
    fold,
    tool,
)
from treadle.compaction import ASK, summarize
from treadle.testing import ScriptedModel, call, error, step
from treadle.transcript import compacted

LONG = "word " * 400  # some 2,000 bytes
SUMMARY_USAGE = Usage(7, 3)


@tool(effect="read")
def look(at: str) -> str:
    """Look."""
    return f"{at}: {LONG}"


def is_asked_for_a_summary(request: Any) -> bool:
    last = request.messages[-1]
    return isinstance(last, UserMessage) and last.content[-1].text.startswith(ASK[:40])


def texts(messages: Any) -> list[str]:
    return [part.text[:40] for message in messages for part in getattr(message, "content", ()) if hasattr(part, "text")]


def assert_valid(messages: Any) -> None:
    """Every call is answered right behind it, and nothing answers no call."""
    asked: list[str] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            assert [result.call_id for result in message.results] == asked
            asked = []
        else:
            assert not asked
            asked = [part.id for part in message.content if isinstance(part, ToolCallPart)]
    assert not asked


async def test_a_run_that_grows_too_long_is_summarised_and_its_log_keeps_everything():
    model = ScriptedModel(
        call("look", at="a"),
        call("look", at="b"),
        step("what was seen", usage=SUMMARY_USAGE),
        "done",
    )
    # Before anything was counted a token is taken for some three bytes; then the provider's own count holds.
    model_usage = iter([Usage(100, 1), Usage(700, 1), Usage(600, 1)])

    async def counted(request, call_next):
        async for event in call_next(request):
            counts = isinstance(event, ModelFinish) and not is_asked_for_a_summary(request)
            yield msgspec.structs.replace(event, usage=next(model_usage)) if counts else event

    agent = Agent(model, tools=[look], wrap_model=[compact(1_200, keep_tokens=1_000), counted])
    events = await events_of(agent)
    assert_whole(events)
    [told] = only(events, Compaction)
    assert told.summary == "what was seen"
    assert told.usage == SUMMARY_USAGE
    summarising, after = model.requests[-2:]
    assert is_asked_for_a_summary(summarising)
    assert summarising.tools == after.tools
    assert after.messages[0].content[0].text.endswith("what was seen")
    assert_valid(after.messages)
    whole = fold(events)
    assert after.messages[1:] == whole[told.messages : -1]
    assert "go" in texts(whole)
    assert len(only(whole, ToolMessage)) == 2
    assert events[-1].usage == Usage(100, 1) + Usage(700, 1) + Usage(600, 1) + SUMMARY_USAGE


async def test_the_summary_stays_the_same_until_the_rest_is_too_long_again():
    wrap = compact(3_000, keep_tokens=700)
    steps = [step(call("look", at=str(number)), usage=None) for number in range(14)]
    summaries = iter(["first", "second", "third", "fourth"])

    seen: list[Any] = []

    async def answer(request, call_next):
        seen.append(request)
        if is_asked_for_a_summary(request):
            given = step(next(summaries), usage=None)
        else:
            given = steps.pop(0) if steps else step("done", usage=None)
        async for event in ScriptedModel(given).stream(request):
            yield event

    events = await events_of(Agent(ScriptedModel(), tools=[look], wrap_model=[wrap, answer]))
    told = only(events, Compaction)
    assert len(told) >= 2
    assert [event.messages for event in told] == sorted({event.messages for event in told})
    asked = [request for request in seen if not is_asked_for_a_summary(request)]
    for before, after in itertools.pairwise(asked):
        assert_valid(after.messages)
        if before.messages[0] == after.messages[0]:
            assert after.messages[: len(before.messages)] == before.messages
    second = [request for request in seen if is_asked_for_a_summary(request)][1]
    assert second.messages[0].content[0].text.endswith("first")


async def test_a_model_that_refuses_the_length_is_asked_again_with_a_summary():
    too_long = ContextOverflowError("too long", provider="p", model="m")
    model = ScriptedModel(call("look", at="a"), error(too_long), "a summary", "done")
    events = await events_of(Agent(model, tools=[look], wrap_model=compact(1_000_000, keep_tokens=0)))
    assert_whole(events)
    assert events[-1].stop is StopReason.END
    [told] = only(events, Compaction)
    assert told.messages == 1  # the latest step is kept whole
    assert isinstance(model.requests[-1].messages[1], AssistantMessage)


async def test_instructions_and_tools_are_no_reason_to_cut_short_messages():
    model = ScriptedModel(step("1", usage=Usage(2_000, 1)), "2", "3")
    agent = Agent(model, instructions=LONG * 3, wrap_model=compact(3_000))
    messages: Any = ()
    for prompt in ("hi", "and", "so"):
        messages = (await agent.run(prompt, messages=messages)).messages
    assert len(model.requests) == 3


async def test_a_full_context_that_is_told_inside_an_answer_is_mended_too():
    model = ScriptedModel(call("look", at="a"), step(stop="context"), "a summary", "done")
    events = await events_of(Agent(model, tools=[look], wrap_model=compact(1_000_000)))
    assert events[-1].stop is StopReason.END
    assert len(only(events, Compaction)) == 1


@pytest.mark.parametrize("told", ["error", "stop"])
async def test_what_cannot_be_cut_ends_as_it_would_without_the_wrap(told):
    too_long = ContextOverflowError("too long", provider="p", model="m")
    model = ScriptedModel(error(too_long) if told == "error" else step(stop="context"))
    events: list[Any] = []
    agent = Agent(model, wrap_model=compact(1_000_000), taps=[events.append])
    if told == "error":
        with pytest.raises(RunError):
            await agent.run("one message alone cannot be cut")
    else:
        await agent.run("one message alone cannot be cut")
    assert events[-1].stop is StopReason.CONTEXT
    assert not only(events, Compaction)


async def test_an_answer_that_is_too_long_twice_is_not_summarised_for_ever():
    too_long = ContextOverflowError("too long", provider="p", model="m")
    model = ScriptedModel(call("look", at="a"), error(too_long), "a summary", error(too_long))
    with pytest.raises(RunError, match="too long"):
        await Agent(model, tools=[look], wrap_model=compact(1_000_000)).run("go")


async def test_a_conversation_too_long_for_its_own_summary_loses_its_older_half():
    too_long = ContextOverflowError("too long", provider="p", model="m")
    history = [UserMessage(str(number)) for number in range(8)]
    model = ScriptedModel(error(too_long), error(too_long), step(stop="context"), "a summary", "done")
    events = await events_of(Agent(model, wrap_model=compact(1_000_000, keep_tokens=0)), messages=history)
    assert len(only(events, Compaction)) == 1
    assert [len(request.messages) for request in model.requests] == [9, 9, 5, 3, 2]


async def test_without_a_summary_the_request_stays_as_it_is(caplog):
    too_long = ContextOverflowError("too long", provider="p", model="m")
    history = [UserMessage(LONG), UserMessage(LONG)]
    agent = Agent(ScriptedModel(step(" "), "answer"), wrap_model=compact(100))
    events = await events_of(agent, messages=history)
    assert not only(events, Compaction)
    assert events[-1].stop is StopReason.END
    assert "gave no summary" in caplog.text
    agent = Agent(ScriptedModel(*[error(too_long)] * 3, "answer"), wrap_model=compact(100))
    events = await events_of(agent, messages=history)
    assert events[-1].stop is StopReason.END
    assert "too long even to be summarised" in caplog.text


async def test_retries_while_summarising_are_told():
    model = ScriptedModel(error("busy", retryable=True, retry_after_seconds=0), "a summary", "done")
    events = await events_of(Agent(model, wrap_model=compact(100)), messages=[UserMessage(LONG), UserMessage(LONG)])
    assert [type(event) for event in events if isinstance(event, ModelRetry | Compaction)] == [ModelRetry, Compaction]


async def test_the_request_for_a_summary_asks_for_nothing_else():
    model = ScriptedModel("a summary", call("look", at="x"), "done")
    agent = Agent(
        model,
        tools=[look],
        settings=ModelSettings(tool_choice="required", temperature=0),
        wrap_model=compact(100, focus="Keep the names."),
        limits=Limits(steps=1),
    )
    await events_of(agent, messages=[UserMessage(LONG), UserMessage(LONG)])
    asked = model.requests[0]
    assert asked.messages[-1].content[0].text.endswith("Keep the names.")
    assert asked.settings == ModelSettings(temperature=0)


async def test_two_runs_share_a_summary_only_where_they_share_the_messages():
    wrap = compact(500, keep_tokens=0)
    shared = (UserMessage(LONG), UserMessage("and?"))
    agent = Agent(ScriptedModel("of one", "1", "2"), wrap_model=wrap)
    first = await agent.run("now", messages=shared)
    second = await agent.run("then", messages=first.messages[:2])
    assert (first.text, second.text) == ("1", "2")
    other = Agent(ScriptedModel("of another", "3"), wrap_model=wrap)
    await other.run("now", messages=[UserMessage("else " + LONG), *first.messages[1:2]])


def test_a_file_weighs_the_same_whatever_its_size():
    from treadle.compaction import _bytes  # what a token costs is an estimate; that it is bounded is not

    small, large = (UserMessage((FilePart("image/png", data=b"x" * size),)) for size in (10, 1_000_000))
    assert abs(_bytes(small) - _bytes(large)) < 10
    shown = ToolResultPart("1", "look", "", files=(FilePart("image/png", data=b"x" * 1_000_000),))
    assert _bytes(ToolMessage((shown,))) < 10_000


def test_a_memory_forgets_its_oldest():
    from treadle import compaction

    known: dict[int, Any] = {}
    for number in range(compaction._KNOWN + 10):
        compaction._keep(known, number, number)
    assert (len(known), min(known)) == (compaction._KNOWN, 10)


@pytest.mark.parametrize("options", [{"at_tokens": 0}, {"at_tokens": True}, {"at_tokens": 10, "keep_tokens": -1}])
def test_wrong_sizes_are_refused(options):
    with pytest.raises(ConfigError, match="is a number of tokens"):
        compact(**options)


def test_keeping_more_than_fits_is_refused():
    with pytest.raises(ConfigError, match="must be less"):
        compact(100, keep_tokens=100)


async def test_a_conversation_is_summarised_by_hand():
    busy = error("busy", retryable=True, retry_after_seconds=0)
    model = ScriptedModel(busy, step("all of it", usage=SUMMARY_USAGE), "next")
    agent = Agent(model, instructions="Be brief.", tools=[look])
    messages = [UserMessage("hello"), AssistantMessage("hi")]
    event = await summarize(agent, messages)
    assert event == Compaction("all of it", 2, SUMMARY_USAGE)
    assert model.requests[1].instructions == "Be brief."
    await agent.run("go on", messages=compacted(messages, event))
    assert texts(model.requests[2].messages)[1:] == ["go on"]
    with pytest.raises(ConfigError, match="nothing to summarise"):
        await summarize(agent, [])


async def test_a_model_that_gives_no_summary_by_hand_is_an_error():
    with pytest.raises(ContextOverflowError, match="gave no summary"):
        await summarize(Agent(ScriptedModel(step(""))), [UserMessage("hello")])


async def test_instructions_made_per_run_are_given_by_hand():
    model = ScriptedModel("a summary")
    await summarize(Agent(model, instructions=lambda context: "made"), [UserMessage("x")], instructions="given")
    assert model.requests[0].instructions == "given"


SIZES = st.integers(1, 3_000)
STEPS = st.lists(st.tuples(st.booleans(), SIZES, SIZES), min_size=1, max_size=12)


@settings(max_examples=100)
@given(STEPS, st.integers(0, 3_000), st.booleans())
def test_no_cut_ever_parts_a_call_from_its_result(steps, keep, more):
    messages: list[Any] = [UserMessage("go")]
    for number, (calls, asked, answered) in enumerate(steps):
        if calls:
            messages.append(AssistantMessage((ToolCallPart(f"c{number}", "look", "{}" + " " * asked),)))
            messages.append(ToolMessage((ToolResultPart(f"c{number}", "look", "x" * answered),)))
        else:
            messages += [AssistantMessage((TextPart("x" * asked),)), UserMessage("y" * answered)]
    messages += [UserMessage("last")] * more
    for start in range(len(messages)):
        end = compact(1_000)._boundary(messages, start, keep)
        if end is not None:
            assert start < end < len(messages)
            assert_valid(compacted(messages, Compaction("s", end)))


async def test_long_instructions_leave_room_for_several_steps_between_two_summaries():
    steps = [step(call("look", at=str(number)), usage=None) for number in range(12)]
    asked = 0

    async def answer(request, call_next):
        nonlocal asked
        asked += (summary := is_asked_for_a_summary(request))
        given = step("in short", usage=None) if summary else steps.pop(0) if steps else step("done", usage=None)
        async for event in ScriptedModel(given).stream(request):
            yield event

    long = "x" * 33_000  # nearly 10,000 of the 13,000 tokens, as a byte is taken for 0.3
    await events_of(Agent(ScriptedModel(), instructions=long, tools=[look], wrap_model=[compact(13_000), answer]))
    assert 1 <= asked <= 5


async def test_where_instructions_alone_are_too_long_no_step_is_spent_on_summaries():
    model = ScriptedModel(*[step(call("look", at="x"), usage=None) for _ in range(4)], step("done", usage=None))
    agent = Agent(model, instructions="x" * 9_000, tools=[look], wrap_model=compact(2_000))
    assert (await agent.run("go")).text == "done"
    assert not any(map(is_asked_for_a_summary, model.requests))


async def test_what_a_summary_cost_that_came_to_nothing_counts_all_the_same():
    empty = step(call("look", at="x"), usage=Usage(900, 90))
    first = step(call("look", at="y"), usage=Usage(100, 1))
    model = ScriptedModel(first, empty, step("done", usage=Usage(600, 6)))
    result = await Agent(model, tools=[look], wrap_model=compact(300)).run("go")
    assert is_asked_for_a_summary(model.requests[1])
    assert (result.text, result.usage) == ("done", Usage(1_600, 97))
