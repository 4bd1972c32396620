"""Sessions: what a log of several runs tells, and runs that take their history from one and leave their events there."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.runs import BOUND, bounded, only, other_tasks
from support.stores import MemoryStore
from test_run_properties import act, scripts
from test_transcript import assert_valid
from treadle import (
    Agent,
    Allow,
    AssistantMessage,
    Compaction,
    ConfigError,
    Deny,
    Limits,
    ModelFinish,
    ModelRef,
    NoSuchSessionError,
    Pause,
    ReasoningDelta,
    RunConsumedError,
    RunError,
    RunFinish,
    RunPaused,
    RunStart,
    StepFinish,
    StepStart,
    StopReason,
    StoreError,
    SubagentEvent,
    TextDelta,
    TextPart,
    ToolCallDelta,
    ToolCallPart,
    ToolFinish,
    ToolMessage,
    ToolResultPart,
    ToolStart,
    Usage,
    UserMessage,
    fold,
    tool,
)
from treadle._session_loop import DeltaFilter, SessionLoop
from treadle.loop import Loop
from treadle.sessions import check_session_id, conversation, load, new_session_id, paused
from treadle.testing import ScriptedModel, call, error
from treadle.transcript import compacted

MODEL = ModelRef("scripted", "scripted")


@tool(effect="external")
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@pytest.fixture
def store():
    return MemoryStore()


def here(store):
    return {"store": store, "session": "one"}


def texts(messages):
    return [getattr(message, "text", None) or message.content[0].text for message in messages]


async def taken(run, events=None):
    events = [] if events is None else events
    async for event in run:
        events.append(event)
    return events


# What a log tells


def started(text="hi", run_id="run_1", **fields):
    return RunStart(agent=None, model=MODEL, input=(UserMessage(text),), run_id=run_id, **fields)


def answered(text="yes", run_id="run_1"):
    return ModelFinish(AssistantMessage(text), run_id=run_id)


def ended(stop=StopReason.END, run_id="run_1", **fields):
    return RunFinish(usage=Usage(), steps=1, stop=stop, run_id=run_id, **fields)


def test_nothing_is_an_empty_conversation():
    assert conversation([]) == ()
    assert conversation([StepStart(index=0)]) == ()


def test_runs_follow_each_other():
    log = [started(), answered(), ended(), started("more", "run_2"), answered("sure", "run_2"), ended(run_id="run_2")]
    assert texts(conversation(log)) == ["hi", "yes", "more", "sure"]


def test_the_history_that_a_run_brought_along_stands_for_all_before_it():
    log = [started(), answered(), ended(), started("more", "run_2", history=(UserMessage("something else"),))]
    assert texts(conversation(log)) == ["something else", "more"]


def test_a_run_that_was_killed_has_its_calls_answered_before_the_next_one_begins():
    asked = AssistantMessage((ToolCallPart("a", "pay", "{}"), ToolCallPart("b", "pay", "{}")))
    finish = ToolFinish("b", 1, "pay", ToolResultPart("b", "pay", "paid"))
    log = [started(), ModelFinish(asked), finish, started("again", "run_2"), answered(run_id="run_2")]
    messages = conversation(log)
    assert [one.is_error for one in messages[2].results] == [True, False]
    assert messages[3:] == (UserMessage("again"), AssistantMessage("yes"))
    assert_valid(messages)


def test_what_was_shown_of_an_answer_that_broke_off_stays():
    log = [started(), TextDelta("half "), TextDelta("of"), ended(StopReason.CANCELLED), started("go on", "run_2")]
    assert texts(conversation(log)) == ["hi", "half of", "go on"]


def test_sub_agents_have_conversations_of_their_own():
    log = [started(), SubagentEvent("a", started("deep", "run_9")), SubagentEvent("a", answered("low", "run_9"))]
    assert texts(conversation([*log, answered()])) == ["hi", "yes"]


LONG = [started(), answered(), ended(), started("more", "run_2")]


def test_the_last_compaction_of_a_run_counts_on_the_run_s_own_list():
    first = Compaction("short", 1, run_id="run_2")
    second = Compaction("shorter", 3, run_id="run_2")
    before = (UserMessage("hi"), AssistantMessage("yes"), UserMessage("more"), AssistantMessage("sure"))
    log = [*LONG, first, answered("sure", "run_2")]
    assert conversation(log) == compacted(before, first)
    assert conversation([*log, second]) == compacted(before, second)
    following = started("and", "run_3")
    assert conversation([*log, second, following]) == (*compacted(before, second), UserMessage("and"))


def test_a_compaction_between_runs_counts_on_the_conversation_so_far():
    log = [*LONG, Compaction("one", 2, run_id="run_2"), answered("sure", "run_2"), ended(run_id="run_2")]
    before = conversation(log)
    assert len(before) == 3
    between = Compaction("two", 2)
    assert conversation([*log, between]) == compacted(before, between)
    again = Compaction("three", 1)
    assert conversation([*log, between, again]) == compacted(compacted(before, between), again)
    said = (UserMessage("hi"), AssistantMessage("yes"), UserMessage("more"), AssistantMessage("sure"))
    assert conversation([*log, between, again], originals=True) == said


@pytest.mark.parametrize("count", [-9, 0, 2, 3, 99])
def test_a_compaction_that_cuts_where_none_may_still_gives_a_valid_request(count):
    asked = AssistantMessage((ToolCallPart("a", "pay", "{}"),))
    finish = ToolFinish("a", 0, "pay", ToolResultPart("a", "pay", "paid"))
    log = [started(), ModelFinish(asked), finish, StepFinish(0, None, StopReason.TOOL_CALLS)]
    for place in (Compaction("so far", count, run_id="run_1"), Compaction("so far", count)):
        messages = conversation([*log, place])
        assert "so far" in messages[0].content[0].text
        assert_valid(messages)


@pytest.mark.parametrize("session", ["a", "A.b_c-1", "x" * 128])
def test_safe_ids(session):
    assert check_session_id(session) == session


def test_new_ids_are_safe_and_differ():
    made = {new_session_id() for _ in range(50)}
    assert len(made) == 50 and all(map(check_session_id, made))


# Runs with a session


async def test_runs_continue_the_conversation_of_their_session(store):
    model = ScriptedModel([call("pay", amount=1)], "done", "and more")
    agent = Agent(model, tools=[pay])
    first = await agent.run("pay", **here(store))
    assert await load(store, "one") == first.messages
    second = await agent.run("thanks", **here(store))
    assert await load(store, "one") == second.messages
    assert second.messages[: len(first.messages)] == first.messages == model.requests[2].messages[:-1]
    assert texts(second.messages[-2:]) == ["thanks", "and more"]


async def test_a_session_s_events_tell_no_history_again(store):
    agent = Agent(ScriptedModel("one", "two"))
    seen = []
    watching = Agent(agent.model, taps=[seen.append])
    await agent.run("a", **here(store))
    async with watching.stream("b", **here(store)) as run:
        events = [event async for event in run]
    assert events == seen and events[0].history == () and texts(events[0].input) == ["b"]
    assert [event.seq for event in events] == list(range(len(events)))
    assert run.id == events[0].run_id


async def test_deltas_are_not_stored_once_the_answer_is_in(store):
    await Agent(ScriptedModel(["several ", "pieces"])).run("go", **here(store))
    kinds = [type(event) for event in store.events("one")]
    assert kinds == [RunStart, StepStart, ModelFinish, StepFinish, RunFinish]


async def test_the_ends_of_steps_and_of_the_run_are_durable(store):
    await Agent(ScriptedModel([call("pay", amount=1)], "done"), tools=[pay]).run("go", **here(store))
    kinds = [type(store.events("one")[seq]) for seq in store.durable]
    assert kinds == [StepFinish, StepFinish, RunFinish]


async def test_what_the_consumer_sees_is_stored_already(store):
    async with Agent(ScriptedModel([call("pay", amount=1)], ["do", "ne"]), tools=[pay]).stream(
        "x", **here(store)
    ) as run:
        async for event in run:
            if not isinstance(event, TextDelta | ToolCallDelta):
                assert event in store.events("one")


async def test_a_run_without_a_prompt_goes_on_after_a_crash(store):
    await store.append("one", [started("do it")])
    result = await Agent(ScriptedModel("done")).run(**here(store))
    assert texts(result.messages) == ["do it", "done"]


def test_run_sync_takes_a_session_too(store):
    agent = Agent(ScriptedModel("one", "two"))
    agent.run_sync("a", **here(store))
    assert texts(agent.run_sync("b", **here(store)).messages) == ["a", "one", "b", "two"]


async def test_several_sessions_at_once_do_not_meet(store):
    agent = Agent(ScriptedModel(*["ok"] * 20))
    await asyncio.gather(*[agent.run(f"run {number}", store=store, session=f"s{number}") for number in range(20)])
    for number in range(20):
        assert texts(await load(store, f"s{number}")) == [f"run {number}", "ok"]


async def test_the_events_of_sub_agents_are_stored_inside(store):
    child = Agent(ScriptedModel(["deep ", "down"]))
    agent = Agent(ScriptedModel([call("subagent", prompt="dig")], "done"), tools=[child.as_tool(forward_events=True)])
    await agent.run("go", **here(store))
    inner = [event.event for event in only(store.events("one"), SubagentEvent)]
    assert [type(event) for event in inner] == [RunStart, StepStart, ModelFinish, StepFinish, RunFinish]


async def test_what_steered_a_run_is_part_of_the_session(store):
    agent = Agent(ScriptedModel("one", "two"))
    async with agent.stream("a", **here(store)) as run:
        run.steer("b")
        assert run.unsent == ()
        async for event in run:
            if isinstance(event, ModelFinish) and event.message.text == "one":
                run.steer("c")
                assert texts(run.unsent) == ["c"]
        result = await run.result()
    assert texts(await load(store, "one")) == ["a", "b", "one", "c", "two"] == texts(result.messages)


def test_a_run_without_a_session_is_driven_by_its_loop_alone(store):
    agent = Agent(ScriptedModel("unused"))
    assert type(agent.stream("a")._loop) is Loop
    assert type(agent.stream("a", **here(store))._loop) is SessionLoop


# What does not go together


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"session": "one"}, "needs both"),
        ({"store": MemoryStore()}, "needs both"),
        ({"store": MemoryStore(), "session": "one", "messages": [UserMessage("x")]}, "comes from the session"),
    ],
)
async def test_wrong_combinations_are_refused_at_once(given, text):
    agent = Agent(ScriptedModel("unused"))
    with pytest.raises(ConfigError, match=text):
        agent.stream("go", **given)
    with pytest.raises(ConfigError, match=text):
        agent.resume_stream(None, {}, **given)


async def test_an_unsafe_session_id_is_refused_at_once(store):
    with pytest.raises(StoreError, match="a session id is"):
        Agent(ScriptedModel("unused")).stream("go", store=store, session="../x")


async def test_a_prompt_that_cannot_be_answered_leaves_the_session_alone(store):
    agent = Agent(ScriptedModel("ok"))
    with pytest.raises(ConfigError, match="nothing to answer"):
        await agent.run("  ", **here(store))
    assert "one" not in store.sessions and not store.claimed
    await agent.run("go", **here(store))


# One run at a time


async def test_a_second_run_on_a_session_is_refused_and_the_first_goes_on(store):
    agent = Agent(ScriptedModel("one", "two"))
    async with agent.stream("a", **here(store)) as run:
        events = aiter(run)
        await anext(events)
        async with agent.stream("b", **here(store)) as second:
            with pytest.raises(StoreError, match="in use"):
                await taken(second)
            with pytest.raises(StoreError, match="in use"):
                await second.result()
            assert second.so_far().messages == ()
        async for _ in events:
            pass
    assert texts(await load(store, "one")) == ["a", "one"]
    await agent.run("b", **here(store))
    assert texts(await load(store, "one")) == ["a", "one", "b", "two"]


async def test_a_run_that_was_never_begun_claims_nothing(store):
    async with Agent(ScriptedModel()).stream("a", **here(store)) as run:
        pass
    assert not store.claimed and not store.sessions
    with pytest.raises(RunConsumedError):
        aiter(run)
    with pytest.raises(RunError, match="cancelled"):
        await run.result()


async def test_an_iterator_of_a_session_s_run_that_ended_gives_nothing_more(store):
    agent = Agent(ScriptedModel("one"))
    async with agent.stream("a", **here(store)) as run:
        events = aiter(run)
    assert [event async for event in events] == []
    async with store.claim("one"), agent.stream("a", **here(store)) as refused:
        events = aiter(refused)
        for _ in range(2):
            with pytest.raises(StoreError, match="in use"):
                await anext(events)


# Ends that come early


def never():
    @tool
    async def wait() -> str:
        await asyncio.Event().wait()

    return wait


async def test_leaving_a_run_stores_how_its_calls_ended(store):
    agent = Agent(ScriptedModel([call("wait")], "fine"), tools=[never()])
    async with agent.stream("a", **here(store)) as run:
        async for event in run:
            if isinstance(event, ToolStart):
                break
    log = store.events("one")
    assert [event.discarded for event in only(log, ToolFinish)] == [True]
    assert isinstance(log[-1], RunFinish) and log[-1].stop is StopReason.CANCELLED
    assert not store.claimed and not other_tasks()
    result = await agent.run("b", **here(store))
    assert_valid(result.messages) and result.text == "fine"


async def test_a_cancelled_answer_is_stored_joined(store):
    pieces = [f"word{number} " for number in range(10)]
    agent = Agent(ScriptedModel([*pieces]))
    async with agent.stream("a", **here(store)) as run:
        async for event in run:
            if isinstance(event, TextDelta) and event.text == "word3 ":
                break
    deltas = only(store.events("one"), TextDelta)
    assert [delta.text for delta in deltas] == ["word0 word1 word2 word3 "]
    assert await load(store, "one") == run.so_far().messages


def test_fragments_are_joined_with_their_own_kind():
    log = [
        ReasoningDelta("h", seq=2),
        ReasoningDelta("m", seq=3),
        TextDelta("a", seq=4),
        TextDelta("b", seq=5),
        ToolCallDelta(0, "x", "pay", '{"a', seq=6),
        ToolCallDelta(0, "x", "pay", 'm"', seq=7),
        ToolCallDelta(1, "y", "pay", "{", seq=8),
    ]
    sieve = DeltaFilter()
    inside = [SubagentEvent("deep", event) for event in log]
    for event in [*log, *inside]:
        assert sieve.feed(event) == []
    kept = sieve.feed(ended(StopReason.CANCELLED))
    assert kept[:4] == [
        ReasoningDelta("hm", seq=2),
        TextDelta("ab", seq=4),
        ToolCallDelta(0, "x", "pay", '{"am"', seq=6),
        ToolCallDelta(1, "y", "pay", "{", seq=8),
    ]
    assert kept[4:8] == [SubagentEvent("deep", event) for event in kept[:4]]
    assert kept[8:] == [ended(StopReason.CANCELLED)]


async def test_a_model_that_fails_leaves_what_it_said(store):
    agent = Agent(ScriptedModel(["half", error("down")], "better"), retry=None)
    with pytest.raises(RunError) as failed:
        await agent.run("a", **here(store))
    assert await load(store, "one") == failed.value.result.messages
    assert store.events("one")[-1].error and not store.claimed
    assert (await agent.run("b", **here(store))).text == "better"


async def test_a_limit_that_is_reached_is_stored(store):
    agent = Agent(ScriptedModel([call("pay", amount=1)]), tools=[pay], limits=Limits(steps=1))
    with pytest.raises(RunError):
        await agent.run("a", **here(store))
    assert store.events("one")[-1].limit == "steps"
    assert_valid(await load(store, "one"))


async def test_a_task_that_is_cancelled_while_its_event_is_being_stored_stores_the_end_too(store):
    store.gate = asyncio.Event()
    agent = Agent(ScriptedModel("never"))
    task = asyncio.create_task(agent.run("a", **here(store)))
    await bounded(store.waiting.wait())
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()  # once more changes nothing
    assert not task.done()
    store.gate.set()
    with pytest.raises(asyncio.CancelledError):
        await bounded(task)
    assert [type(event) for event in store.events("one")] == [RunStart, RunFinish]
    assert not store.claimed and not other_tasks()


async def test_a_context_that_is_left_while_another_task_stores_waits_for_it(store):
    store.gate = asyncio.Event()
    async with Agent(ScriptedModel("never")).stream("a", **here(store)) as run:

        async def take():
            return [event async for event in run]

        taking = asyncio.create_task(take())
        await bounded(store.waiting.wait())
        with pytest.raises(RuntimeError, match="another task"):
            await run._loop.__anext__()
        asyncio.get_running_loop().call_soon(store.gate.set)
    assert isinstance((await bounded(taking))[0], RunStart)
    assert [type(event) for event in store.events("one")] == [RunStart, RunFinish]
    assert not store.claimed


async def test_a_context_that_is_left_while_another_task_claims_waits_for_it(store):
    class Slow(MemoryStore):
        def __init__(self):
            super().__init__()
            self.entered, self.go = asyncio.Event(), asyncio.Event()

        async def read(self, session, after=-1):
            self.entered.set()
            await self.go.wait()
            async for stored in super().read(session, after):
                yield stored

    slow = Slow()
    await slow.append("one", [started("old")])
    async with Agent(ScriptedModel("never")).stream("a", **here(slow)) as run:
        taking = asyncio.create_task(run.result())
        await bounded(slow.entered.wait())
        asyncio.get_running_loop().call_soon(slow.go.set)
    with pytest.raises(RunError, match="cancelled"):
        await bounded(taking)
    assert not slow.claimed
    assert texts(conversation(slow.events("one"))) == ["old", "a"]


async def test_a_wait_for_the_claim_can_be_cancelled(store):
    class Stuck(MemoryStore):
        async def read(self, session, after=-1):
            self.waiting.set()
            await asyncio.Event().wait()
            yield

    stuck = Stuck()
    task = asyncio.create_task(Agent(ScriptedModel()).run("a", **here(stuck)))
    await bounded(stuck.waiting.wait())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await bounded(task)
    assert not stuck.claimed and not stuck.sessions


# A store that fails


@pytest.mark.parametrize("at", range(9))
async def test_a_store_that_fails_breaks_the_run_at_that_place(store, at):
    store.fails_at = at
    agent = Agent(ScriptedModel([call("pay", amount=1)], "done"), tools=[pay])
    seen = []
    async with agent.stream("a", **here(store)) as run:
        with pytest.raises(RunError, match="could not be stored: no room is left") as failed:
            await taken(run, seen)
        with pytest.raises(RunError, match="could not be stored"):
            await run.result()
    assert isinstance(failed.value.__cause__, StoreError)
    assert isinstance(seen[-1], RunFinish) or at == 8
    assert failed.value.result.messages[0] == UserMessage("a")
    assert_valid(failed.value.result.messages)
    assert not store.claimed and not other_tasks()
    assert len(store.sessions.get("one", ())) == at


async def test_a_store_that_fails_is_told_where_the_run_is_left(store):
    agent = Agent(ScriptedModel("never"))

    async def leave():
        async with agent.stream("a", **here(store)) as run:
            async for _ in run:
                store.fails_at = 0
                break

    with pytest.raises(RunError, match="could not be stored"):
        await leave()
    assert not store.claimed


async def test_a_store_that_fails_while_the_run_is_left_is_told_to_both(store):
    store.gate = asyncio.Event()
    store.fails_at = 0
    run = Agent(ScriptedModel("never")).stream("a", **here(store))
    taking = asyncio.create_task(run.result())

    async def leave():
        async with run:
            await bounded(store.waiting.wait())
            asyncio.get_running_loop().call_soon(store.gate.set)

    for told in (leave(), taking):
        with pytest.raises(RunError, match="could not be stored"):
            await bounded(told)
    assert not store.claimed


async def test_leaving_may_itself_be_cancelled(store):
    store.gate = asyncio.Event()
    run = Agent(ScriptedModel("never")).stream("a", **here(store))

    async def leave():
        async with run:
            await bounded(store.waiting.wait())

    leaving = asyncio.create_task(leave())
    taking = asyncio.create_task(run.result())
    await bounded(store.waiting.wait())
    await asyncio.sleep(0)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await bounded(leaving)
    store.gate.set()
    with pytest.raises(RunError, match="cancelled"):
        await bounded(taking)
    assert not store.claimed
    assert [type(event) for event in store.events("one")] == [RunStart, RunFinish]


async def test_a_store_that_fails_hides_no_other_error(store, caplog):
    agent = Agent(ScriptedModel("never"))

    async def work():
        async with agent.stream("a", **here(store)) as run:
            async for _ in run:
                store.fails_at = 0
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await work()
    assert "could not be stored" in caplog.text


async def test_a_cancel_is_not_hidden_by_a_store_that_fails(store):
    agent = Agent(ScriptedModel([call("wait")]), tools=[never()])
    run = agent.stream("a", **here(store))

    async def work():
        async with run:
            async for event in run:
                if isinstance(event, ToolStart):
                    store.fails_at = 0
                    asyncio.current_task().cancel()

    with pytest.raises(asyncio.CancelledError):
        await bounded(asyncio.create_task(work()))
    with pytest.raises(RunError, match="could not be stored"):
        await run.result()


async def test_a_store_whose_own_work_is_cancelled_fails(store):
    class Odd(MemoryStore):
        async def append(self, session, events, *, durable=False):
            raise asyncio.CancelledError

    with pytest.raises(RunError, match="the store was cancelled"):
        await bounded(Agent(ScriptedModel("x")).run("a", **here(Odd())))


# Pausing


def asking(*script, **options):
    return Agent(ScriptedModel(*script), tools=[pay], approve=lambda request: Pause("who says?"), **options)


async def pause(store, *script):
    with pytest.raises(RunPaused) as waiting:
        await asking(*(script or ([call("pay", amount=5), call("pay", amount=7)],))).run("pay them", **here(store))
    return waiting.value


async def test_a_paused_session_goes_on_with_the_decisions(store):
    await Agent(ScriptedModel("hello")).run("hi", **here(store))
    waiting = await pause(store)
    first, second = waiting.pending
    told = await paused(store, "one")
    assert told.pending == waiting.pending and told.run_id == waiting.result.id
    assert (await load(store, "one"))[-1].calls
    decisions = {first.call_id: Allow(key=first.key), second.call_id: Deny("no", key=second.key)}
    agent = asking("settled")
    async with agent.resume_stream(decisions=decisions, **here(store)) as run:
        assert run.id == ""
        events = [event async for event in run]
        result = await run.result()
    assert run.id == result.id == waiting.result.id
    assert [event.seq for event in events] == list(range(waiting.result.next_seq, result.next_seq))
    assert events[0].resumed and events[0].history == ()
    assert [one.is_error for one in result.messages[-2].results] == [False, True]
    assert await load(store, "one") == result.messages and await paused(store, "one") is None
    assert fold(events) == result.messages[-1:]  # alone it knows nothing of the calls that were asked for


async def test_a_session_may_pause_again_and_again(store):
    waiting = await pause(store)
    first, second = waiting.pending
    with pytest.raises(RunPaused):
        await asking().resume(decisions={first.call_id: Allow(), second.call_id: Pause()}, **here(store))
    result = await asking("ok").resume(decisions={second.call_id: Allow()}, run_id=waiting.result.id, **here(store))
    assert [one.content for one in result.messages[-2].results] == ["paid 5", "paid 7"]
    assert await load(store, "one") == result.messages


async def test_a_new_prompt_on_a_paused_session_answers_the_calls_as_never_run(store):
    await pause(store)
    result = await asking("as you like").run("never mind", **here(store))
    assert [one.is_error for one in result.messages[2].results] == [True, True]
    assert texts(result.messages[-2:]) == ["never mind", "as you like"]
    assert await load(store, "one") == result.messages and await paused(store, "one") is None


async def test_results_may_be_given_for_the_calls_of_a_paused_session(store):
    waiting = await pause(store)
    results = ToolMessage(tuple(ToolResultPart(one.call_id, one.name, "by hand") for one in waiting.pending))
    result = await asking("fine").run([results], **here(store))
    assert [one.content for one in result.messages[2].results] == ["by hand", "by hand"]
    assert await load(store, "one") == result.messages


async def test_resuming_what_does_not_wait_is_refused(store):
    agent = asking("hello")
    await agent.run("hi", **here(store))
    with pytest.raises(ConfigError, match="did not pause"):
        await agent.resume(**here(store))
    with pytest.raises(ConfigError, match="did not pause"):
        await agent.resume(store=store, session="two")
    await pause(store)
    with pytest.raises(ConfigError, match="no decision on pay"):
        await agent.resume(**here(store))
    with pytest.raises(ConfigError, match="not in the given 'run_7'"):
        await agent.resume(run_id="run_7", **here(store))
    assert await paused(store, "one") is not None and not store.claimed


async def test_a_resumed_run_that_was_killed_has_its_calls_answered(store):
    await pause(store)
    log = store.events("one")
    again = RunStart(agent=None, model=MODEL, input=(), resumed=True, run_id=log[0].run_id)
    messages = conversation([*log, again])
    assert_valid(messages) and all(one.is_error for one in messages[-1].results)


async def test_a_compaction_on_a_paused_session_settles_it(store):
    await pause(store)
    await store.append("one", [Compaction("short", 1)])
    assert await paused(store, "one") is None
    assert_valid(await load(store, "one"))


async def test_a_compaction_inside_a_run_that_paused_keeps_its_calls_open(store):
    await pause(store)
    log = store.events("one")
    compaction = Compaction("short", 1, run_id=log[0].run_id)
    assert conversation([*log[:2], compaction, *log[2:]])[-1].calls


async def test_an_unknown_session_is_told(store):
    for reading in (load, paused):
        with pytest.raises(NoSuchSessionError):
            await reading(store, "nowhere")


# Whatever happens


async def live(agents, leave, store):
    """Some runs on one session, each left or cancelled after some events; what each one said that the conversation is."""
    said = []
    for agent, (leave_after, cancel_after) in zip(agents, leave, strict=True):
        run = agent.stream("go", **here(store))

        async def consume(run=run, leave_after=leave_after, cancel_after=cancel_after):
            async with run:
                count = 0
                async for _ in run:
                    count += 1
                    if count == leave_after:
                        return
                    if count == cancel_after:
                        asyncio.current_task().cancel()

        done, _ = await asyncio.wait([task := asyncio.create_task(consume())], timeout=BOUND)
        assert done
        if not task.cancelled() and (raised := task.exception()) is not None:
            assert isinstance(raised, RunError)
        assert not store.claimed
        said.append(run.so_far().messages)
        assert conversation(store.events("one")) == said[-1]
    return said


place = st.none() | st.integers(1, 20)


@given(st.lists(scripts, min_size=2, max_size=3), st.lists(st.tuples(place, place), min_size=3, max_size=3))
def test_every_log_of_several_runs_tells_what_the_runs_said_and_every_beginning_is_valid(
    given_scripts: list[Any], leave: list[Any]
) -> None:
    store = MemoryStore()
    agents = [Agent(ScriptedModel(*script), tools=[act], limits=Limits(seconds=0.05)) for script in given_scripts]
    said = asyncio.run(live(agents, leave[: len(agents)], store))
    for before, after in itertools.pairwise(said):
        assert after[: len(before)] == before
    log = store.events("one")
    for length in range(1, len(log) + 1):
        messages = conversation(log[:length])
        assert isinstance(messages[0], UserMessage) and isinstance(messages[0].content[0], TextPart)
        assert_valid(messages)
    for torn in range(len(log)):  # an event that was lost with a torn file
        assert_valid(conversation([*log[:torn], *log[torn + 1 :]]))


async def test_a_log_that_lost_any_events_still_gives_a_valid_request_or_a_paused_one(store):
    waiting = await pause(store)
    await asking("ok").resume(decisions={one.call_id: Allow() for one in waiting.pending}, **here(store))
    agent = Agent(ScriptedModel([call("pay", amount=1)], [call("pay", amount=2)], "done"), tools=[pay])
    await agent.run("more", **here(store))
    log = store.events("one")
    for first, second in itertools.combinations(range(len(log) + 1), 2):
        messages = conversation([*log[:first], *log[first + 1 : second], *log[second + 1 :]])
        assert_valid(messages)


def test_a_session_of_many_runs_is_read_in_the_time_that_its_length_takes():
    log = [event for number in range(1_500) for event in (started(str(number)), answered(), ended())]
    began = time.process_time()
    assert len(conversation(log)) == 3_000
    assert time.process_time() - began < 2
