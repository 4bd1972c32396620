"""A run in its consumer's hands: taking events, leaving early, cancelling, and many runs at once."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from typing import Any

import anyio
import pytest

from support.runs import assert_whole, bounded, events_of, only, other_tasks
from treadle import (
    Agent,
    ConfigError,
    Event,
    LimitExceeded,
    Limits,
    RunConsumedError,
    RunContext,
    RunError,
    RunFinish,
    StopReason,
    TextDelta,
    ToolContext,
    ToolFinish,
    ToolStart,
    UserMessage,
    fold,
    tool,
)
from treadle.testing import ScriptedModel, call, error


class Waiting:
    """A tool that waits for ever and tells how it ended."""

    def __init__(self) -> None:
        self.running = asyncio.Event()
        self.ended = False

        @tool
        async def wait() -> None:
            self.running.set()
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)  # cleaning up takes a moment, and is waited for
                self.ended = True

        self.tool = wait


async def test_text_stream_gives_only_the_answers_text() -> None:
    async with Agent(ScriptedModel(["Hel", "lo"])).stream("go") as run:
        assert [text async for text in run.text_stream()] == ["Hel", "lo"]
        assert (await run.result()).text == "Hello"


async def test_events_are_taken_once() -> None:
    async with Agent(ScriptedModel("x")).stream("go") as run:
        async for _ in run:
            break
        with pytest.raises(RunConsumedError, match="once"):
            aiter(run)
        assert (await run.result()).text == "x"
        assert (await run.result()).text == "x"
    with pytest.raises(RunConsumedError):
        aiter(run)


async def test_the_result_may_be_asked_for_first_and_then_there_are_no_events() -> None:
    async with Agent(ScriptedModel("x")).stream("go") as run:
        await run.result()
        with pytest.raises(RunConsumedError):
            aiter(run)
    assert (await run.result()).text == "x"


async def test_a_closed_run_says_that_it_is_closed() -> None:
    model, seen = ScriptedModel("x"), list[Event]()
    async with Agent(model, taps=[seen.append]).stream("go") as run:
        pass
    with pytest.raises(RunConsumedError, match="closed"):
        aiter(run)
    with pytest.raises(RunError, match="cancelled") as raised:
        await run.result()
    assert raised.value.result is not None
    assert raised.value.result.stop is StopReason.CANCELLED
    assert raised.value.result.messages == (UserMessage("go"),)
    assert not model.requests
    assert not seen


async def test_the_result_can_be_awaited_from_another_task_meanwhile() -> None:
    gate = asyncio.Event()
    async with Agent(ScriptedModel(["a", gate, "b"])).stream("go") as run:
        waiting: list[asyncio.Task[Any]] = []
        texts = []
        async for event in run:
            if isinstance(event, TextDelta):
                texts.append(event.text)
                if not waiting:
                    waiting = [asyncio.create_task(run.result()) for _ in range(2)]
                    await asyncio.sleep(0)
                    gate.set()
        assert texts == ["a", "b"]
        assert [(await bounded(task)).text for task in waiting] == ["ab", "ab"]


async def test_giving_up_on_the_result_from_another_task_leaves_the_run_alone() -> None:
    gate = asyncio.Event()
    async with Agent(ScriptedModel(["a", gate, "b"])).stream("go") as run:
        async for event in run:
            if isinstance(event, TextDelta) and event.text == "a":
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(asyncio.create_task(run.result()), 0.01)
                gate.set()
        assert (await run.result()).text == "ab"


async def test_another_task_may_take_the_rest_when_the_first_has_ended() -> None:
    async with Agent(ScriptedModel(["a", "b"])).stream("go") as run:

        async def first() -> None:
            async for _ in run:
                break

        await asyncio.create_task(first())
        assert (await run.result()).text == "ab"


@pytest.mark.parametrize("how", ["events", "text"])
async def test_after_a_break_the_result_may_be_asked_for_in_any_task(how: str) -> None:
    async with Agent(ScriptedModel(["a", "b"])).stream("go") as run:
        async for _ in run if how == "events" else run.text_stream():
            break
        assert (await asyncio.wait_for(asyncio.create_task(run.result()), 5)).text == "ab"


async def test_two_tasks_that_ask_for_the_result_when_the_reader_leaves_both_get_it() -> None:
    async with Agent(ScriptedModel(["a", "b"])).stream("go") as run:
        async for event in run:
            if isinstance(event, TextDelta):
                tasks = [asyncio.create_task(run.result()) for _ in range(2)]
                await asyncio.sleep(0)
                break
        assert [(await bounded(task)).text for task in tasks] == ["ab", "ab"]


async def test_a_reader_that_pulls_each_event_in_a_task_loses_none_to_the_result() -> None:
    async with Agent(ScriptedModel(["a", "b"])).stream("go") as run:
        events = aiter(run)
        seen = [await asyncio.wait_for(anext(events), 5)]
        result = asyncio.create_task(run.result())
        await asyncio.sleep(0)
        while True:
            try:
                seen.append(await asyncio.wait_for(anext(events), 5))
            except StopAsyncIteration:
                break
        assert_whole(seen)
        assert (await bounded(result)).text == "ab"


async def test_two_tasks_cannot_pull_at_once_and_the_run_survives_the_attempt() -> None:
    gate = asyncio.Event()
    async with Agent(ScriptedModel([gate, "x"])).stream("go") as run:
        events = aiter(run)

        async def drain() -> list[Event]:
            return [event async for event in events]

        task = asyncio.create_task(drain())
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="another task"):
            await anext(events)
        gate.set()
        assert_whole(await bounded(task))


async def test_each_event_may_be_pulled_by_a_task_of_its_own() -> None:
    async with Agent(ScriptedModel(["a", "b"]), limits=Limits(seconds=60)).stream("go") as run:
        events = aiter(run)
        seen = []
        while True:
            try:
                seen.append(await asyncio.wait_for(anext(events), 5))
            except StopAsyncIteration:
                break
        assert_whole(seen)
        assert (await run.result()).text == "ab"


@pytest.mark.parametrize("how", ["break", "raise", "return"])
async def test_leaving_early_stops_the_tools_and_waits_for_their_end(how: str) -> None:
    waiting = Waiting()
    seen: list[Event] = []
    agent = Agent(ScriptedModel(call("wait")), tools=[waiting.tool], taps=[seen.append])

    async def consume() -> None:
        async with agent.stream("go") as run:
            async for event in run:
                if isinstance(event, ToolStart):
                    await bounded(waiting.running.wait())
                    if how == "raise":
                        raise ZeroDivisionError
                    if how == "return":
                        return
                    break
        assert waiting.ended

    if how == "raise":
        with pytest.raises(ZeroDivisionError):
            await consume()
    else:
        await consume()
    assert waiting.ended
    assert not other_tasks()
    assert_whole(seen)
    assert seen[-1].stop is StopReason.CANCELLED
    assert only(seen, ToolFinish)[0].discarded


async def test_leaving_early_closes_the_models_stream() -> None:
    closed = asyncio.Event()

    class Slow(ScriptedModel):
        async def stream(self, request: Any, /) -> Any:
            try:
                async for event in super().stream(request):
                    yield event
            finally:
                closed.set()

    async with Agent(Slow(["a", "b"])).stream("go") as run:
        async for event in run:
            if isinstance(event, TextDelta):
                break
        assert not closed.is_set()
    assert closed.is_set()
    with pytest.raises(RunError) as raised:
        await run.result()
    assert raised.value.result is not None
    assert raised.value.result.text == "a"


@pytest.mark.parametrize("where", ["model", "tool"])
async def test_leaving_while_another_task_waits_for_the_next_event_ends_its_iteration(where: str) -> None:
    waiting = Waiting()
    never = asyncio.Event()
    script = ["a", never] if where == "model" else call("wait")
    seen: list[Event] = []
    async with Agent(ScriptedModel(script), tools=[waiting.tool], taps=[seen.append]).stream("go") as run:
        reached = asyncio.Event()

        async def consume() -> None:
            async for event in run:
                if isinstance(event, TextDelta | ToolStart):
                    reached.set()

        task = asyncio.create_task(consume())
        await bounded(reached.wait())
        if where == "tool":
            await bounded(waiting.running.wait())
    await bounded(task)
    assert not task.cancelled()
    assert_whole(seen)
    assert seen[-1].stop is StopReason.CANCELLED
    assert not other_tasks()


@pytest.mark.parametrize("where", ["model", "tool"])
async def test_cancelling_the_consumer_cancels_the_run_and_leaves_a_valid_transcript(where: str) -> None:
    waiting, never = Waiting(), asyncio.Event()
    seen: list[Event] = []
    reached = asyncio.Event()

    def tap(event: Event) -> None:
        seen.append(event)
        if isinstance(event, TextDelta):
            reached.set()

    script = ["Hel", never] if where == "model" else ["Hel", call("wait")]
    agent = Agent(ScriptedModel(script), tools=[waiting.tool], taps=[tap])
    task = asyncio.create_task(agent.run("go"))
    await bounded((reached if where == "model" else waiting.running).wait())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await bounded(task)
    assert_whole(seen)
    assert seen[-1].stop is StopReason.CANCELLED
    assert not other_tasks()
    messages = fold(seen)
    result = await Agent(ScriptedModel("go on")).run("and?", messages=messages)
    assert result.messages[: len(messages)] == messages


async def test_a_second_cancel_while_tools_end_still_closes_the_log() -> None:
    running, cleaning = asyncio.Event(), asyncio.Event()
    seen: list[Event] = []

    @tool
    async def slow_to_end() -> None:
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaning.set()
            await asyncio.sleep(0.01)

    task = asyncio.create_task(
        Agent(ScriptedModel(call("slow_to_end")), tools=[slow_to_end], taps=[seen.append]).run("go")
    )
    await bounded(running.wait())
    task.cancel()
    await bounded(cleaning.wait())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await bounded(task)
    assert_whole(seen)
    await bounded(asyncio.gather(*other_tasks(), return_exceptions=True))


async def test_leaving_while_a_limit_is_ending_the_run_waits_for_that_end() -> None:
    cleaning, release = asyncio.Event(), asyncio.Event()

    @tool
    async def slow_to_end() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaning.set()
            await release.wait()

    agent = Agent(ScriptedModel(call("slow_to_end")), tools=[slow_to_end], limits=Limits(seconds=0.01))
    async with agent.stream("go") as run:
        task = asyncio.create_task(run.result())
        await bounded(cleaning.wait())
        asyncio.get_running_loop().call_soon(release.set)
    with pytest.raises(LimitExceeded):
        await bounded(task)


async def test_the_result_of_a_broken_run_raises_each_time_it_is_asked_for() -> None:
    async with Agent(ScriptedModel(error("down"))).stream("go") as run:
        for _ in range(2):
            with pytest.raises(RunError, match="down"):
                await run.result()


async def test_a_cancel_from_outside_is_not_swallowed_by_a_time_limit_at_the_same_moment() -> None:
    loop = asyncio.get_running_loop()
    agent = Agent(ScriptedModel([asyncio.Event()]), limits=Limits(seconds=0.02))
    task = asyncio.create_task(agent.run("go"))
    await asyncio.sleep(0)  # the limit's timer is set now
    loop.call_at(loop.time() + 0.001, task.cancel)
    loop.call_soon(time.sleep, 0.05)  # both are due when the loop looks again, this one first
    with pytest.raises(asyncio.CancelledError):
        await bounded(task)


async def test_a_run_in_a_cancel_scope_that_cancels_again_and_again_waits_for_its_tools() -> None:
    waiting = Waiting()
    seen: list[Event] = []
    agent = Agent(ScriptedModel(call("wait")), tools=[waiting.tool], taps=[seen.append])
    with anyio.CancelScope() as scope:

        async def leave() -> None:
            await waiting.running.wait()
            scope.cancel()

        leaving = asyncio.create_task(leave())
        await agent.run("go")
    await leaving
    assert waiting.ended
    assert not other_tasks()
    assert_whole(seen)


async def test_an_outer_timeout_is_the_callers_and_not_a_limit_of_the_run() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await Agent(ScriptedModel([asyncio.Event(), "x"]), limits=Limits(seconds=60)).run("go")
    assert not other_tasks()


async def test_fifty_runs_of_one_agent_at_once_mix_nothing() -> None:
    @tool
    async def whose(context: ToolContext[int], n: int) -> str:
        await asyncio.sleep(0)
        return f"{context.deps}/{context.run_id}/{n}"

    async def instruct(context: RunContext[int]) -> str:
        await asyncio.sleep(0)
        return f"for {context.deps}"

    def asks(request: Any) -> Any:
        return call("whose", n=int(request.messages[0].content[0].text))

    def answers(request: Any) -> str:
        return f"{request.instructions}: {request.messages[-1].results[0].content}"

    seen: list[Event] = []
    agent = Agent(
        ScriptedModel(asks, answers, by_position=True),
        tools=[whose],
        instructions=instruct,
        deps=int,
        taps=[seen.append],
    )
    results = await asyncio.gather(*[agent.run(str(n), deps=n, run_id=f"r{n}") for n in range(50)])
    assert [result.text for result in results] == [f"for {n}: {n}/r{n}/{n}" for n in range(50)]
    for n, result in enumerate(results):
        log = [event for event in seen if event.run_id == f"r{n}"]
        assert_whole(log)
        assert fold(log) == result.messages


async def test_one_run_that_fails_and_one_that_is_cancelled_leave_the_others_alone() -> None:
    gate = asyncio.Event()

    def by_name(request: Any) -> Any:
        name = request.messages[0].content[0].text
        return error("down") if name == "fails" else [asyncio.Event()] if name == "cancelled" else [gate, name]

    agent = Agent(ScriptedModel(by_name, by_position=True))
    tasks = {name: asyncio.create_task(agent.run(name)) for name in ("a", "fails", "cancelled", "b")}
    await asyncio.sleep(0)
    tasks["cancelled"].cancel()
    gate.set()
    outcomes = await bounded(asyncio.gather(*tasks.values(), return_exceptions=True))
    assert [outcomes[0].text, outcomes[3].text] == ["a", "b"]
    assert isinstance(outcomes[1], RunError)
    assert isinstance(outcomes[2], asyncio.CancelledError)


def test_a_script_may_run_without_an_event_loop_again_and_again() -> None:
    agent = Agent(ScriptedModel("a", "b"))
    assert [agent.run_sync("go").text, agent.run_sync("go").text] == ["a", "b"]


async def test_run_sync_inside_a_running_loop_is_refused_with_the_fix() -> None:
    with pytest.raises(ConfigError, match=r"await agent\.run"):
        Agent(ScriptedModel()).run_sync("go")


def test_run_sync_works_from_threads_and_beside_a_closed_loop_and_carries_context() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    asyncio.set_event_loop(loop)
    agent = Agent(ScriptedModel("x", by_position=True))
    texts: list[str] = []
    threads = [threading.Thread(target=lambda: texts.append(agent.run_sync("go").text)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert [*texts, agent.run_sync("go").text] == ["x"] * 9
    asyncio.set_event_loop(None)
    assert asyncio.run(agent.run("go")).text == asyncio.run(agent.run("go")).text == "x"


def test_run_sync_raises_what_the_run_raises() -> None:
    with pytest.raises(RunError, match="down"):
        Agent(ScriptedModel(error("down"))).run_sync("go")


@pytest.mark.parametrize("sync", [True, False])
def test_keyboard_interrupt_in_a_tool_reaches_its_own_synchronous_caller_only(sync: bool) -> None:
    @tool
    async def interrupt() -> None:
        raise KeyboardInterrupt

    @tool(name="interrupt")
    def interrupt_in_a_thread() -> None:
        raise KeyboardInterrupt

    gate = threading.Event()

    @tool
    def wait() -> str:
        gate.wait(10)
        return "waited"

    innocent: list[str] = []
    other = Agent(ScriptedModel(call("wait"), "innocent"), tools=[wait])
    thread = threading.Thread(target=lambda: innocent.append(other.run_sync("go").text))
    thread.start()
    agent = Agent(ScriptedModel(call("interrupt")), tools=[interrupt_in_a_thread if sync else interrupt])
    with pytest.raises(KeyboardInterrupt):
        agent.run_sync("go")
    gate.set()
    thread.join(10)
    assert innocent == ["innocent"]


def test_run_sync_works_in_a_forked_child() -> None:
    script = """
import os
from treadle import Agent
from treadle.testing import ScriptedModel
agent = Agent(ScriptedModel("x", by_position=True))
agent.run_sync("go")
if (child := os.fork()) == 0:
    os._exit(0 if agent.run_sync("go").text == "x" else 1)
print(os.waitpid(child, 0)[1])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=False)
    assert (done.stdout, done.returncode) == ("0\n", 0)


def test_a_process_that_ends_during_a_synchronous_run_ends_it_quietly() -> None:
    script = """
import threading
from treadle import Agent, tool
from treadle.testing import ScriptedModel, call
running = threading.Event()
@tool
async def wait() -> None:
    import asyncio
    running.set()
    await asyncio.Event().wait()
def work():
    try:
        Agent(ScriptedModel(call("wait")), tools=[wait]).run_sync("go")
    except BaseException:
        pass
threading.Thread(target=work, daemon=True).start()
running.wait(10)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=False)
    assert (done.stderr, done.returncode) == ("", 0)


def test_a_cancelled_error_out_of_a_synchronous_run_is_one() -> None:
    class Cancelling(ScriptedModel):
        async def stream(self, request: Any, /) -> Any:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)
            yield

    with pytest.raises(asyncio.CancelledError):
        Agent(Cancelling()).run_sync("go")


def test_interrupting_a_synchronous_run_ends_it_and_the_process_quietly() -> None:
    script = """
import signal, threading, os
from treadle import Agent, RunFinish, TextDelta
from treadle.testing import ScriptedModel
import asyncio
def tap(event):
    if isinstance(event, TextDelta):
        os.kill(os.getpid(), signal.SIGINT)
    if isinstance(event, RunFinish):
        print(event.stop.value, flush=True)
try:
    Agent(ScriptedModel(["a", 60.0]) if False else ScriptedModel(["a", asyncio.Event()]), taps=[tap]).run_sync("go")
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.stdout.split(), done.stderr, done.returncode) == (["cancelled", "interrupted"], "", 0)


async def test_the_log_of_a_run_folds_to_the_transcript_of_its_result() -> None:
    @tool
    async def add(a: int, b: int) -> int:
        return a + b

    agent = Agent(
        ScriptedModel([call("add", a=1, b=2), call("add", a=1)], ["Hel", "lo"], by_position=True), tools=[add]
    )
    first = await agent.run("one")
    events = await events_of(agent, "two", messages=first.messages[:1])
    assert isinstance(events[-1], RunFinish)
    async with agent.stream("three") as run:
        log = [event async for event in run]
        assert fold(log) == (await run.result()).messages
