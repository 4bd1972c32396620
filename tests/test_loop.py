"""The loop: steps, tool calls, and what ends a run."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, Self

import pytest

from support.runs import assert_whole, bounded, events_of, only, other_tasks
from treadle import (
    Agent,
    AssistantMessage,
    Capabilities,
    ContextOverflowError,
    Effect,
    HasToolCall,
    LimitExceeded,
    Limits,
    ModelContractError,
    ModelFinish,
    ModelRetry,
    ModelSettings,
    OverloadedError,
    Reasoning,
    ReasoningDelta,
    RunContext,
    RunError,
    RunFinish,
    RunStart,
    StepCount,
    StepFinish,
    StepStart,
    StopReason,
    TextDelta,
    TextPart,
    Tool,
    ToolCallDelta,
    ToolCallPart,
    ToolContext,
    ToolError,
    ToolFinish,
    ToolMessage,
    ToolOutput,
    ToolProgress,
    ToolResultPart,
    ToolStart,
    UnsupportedError,
    Usage,
    UserMessage,
    decode_event,
    encode_event,
    fold,
    tool,
)
from treadle.testing import ScriptedModel, call, call_text, error, step, think

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from treadle import Event, ModelEvent, ModelRequest, StepRecord


@tool(effect="read")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def fail(text: str = "boom") -> str:
    """Fail."""
    raise ValueError(text)


async def test_an_answer_without_tools_is_one_step() -> None:
    events = await events_of(Agent(ScriptedModel(["Hel", "lo"]), name="greeter"))
    assert_whole(events)
    assert [type(event) for event in events] == [
        RunStart, StepStart, TextDelta, TextDelta, ModelFinish, StepFinish, RunFinish,
    ]  # fmt: skip
    assert (events[0].agent, events[0].input) == ("greeter", (UserMessage("go"),))
    assert events[-1].stop is StopReason.END


async def test_a_tool_call_is_run_and_its_result_goes_back_to_the_model() -> None:
    model = ScriptedModel(call("add", a=1, b=2), "three")
    result = await Agent(model, tools=[add]).run("1+2?")
    assert (result.text, result.output, result.stop, result.complete) == ("three", "three", StopReason.END, True)
    assert len(result.steps) == 2
    assert result.steps[0].results[0].content == "3"
    assert model.requests[1].messages == result.messages[:-1]
    assert result.new_messages == result.messages[1:]
    assert result.usage == Usage(20, 10)


async def test_every_request_extends_the_one_before_it() -> None:
    model = ScriptedModel(call("add", a=1, b=2), call("add", a=3, b=4), "done")
    await Agent(model, tools=[add]).run("go")
    for earlier, later in zip(model.requests, model.requests[1:], strict=False):
        assert later.messages[: len(earlier.messages)] == earlier.messages
        assert later.tools is earlier.tools


async def test_tools_are_told_to_the_model_sorted_by_name() -> None:
    model = ScriptedModel("x")
    await Agent(model, tools=[fail, add]).run("go")
    assert [spec.name for spec in model.requests[0].tools] == ["add", "fail"]


async def test_a_conversation_goes_on_with_the_messages_of_the_last_run() -> None:
    model = ScriptedModel("one", "two")
    agent = Agent(model)
    first = await agent.run("a")
    second = await agent.run("b", messages=first.messages)
    assert [message.content[0].text for message in model.requests[1].messages] == ["a", "one", "b"]
    assert second.messages == (*first.messages, UserMessage("b"), *second.new_messages)
    assert [message.text for message in second.new_messages] == ["two"]


class Gate:
    """Tools that tell when they run and end when they are told to."""

    def __init__(self) -> None:
        self.running: list[str] = []
        self.most = 0
        self.changed = asyncio.Condition()
        self.release: dict[str, asyncio.Event] = {}
        self.cancelled: list[str] = []

    async def work(self, name: str) -> str:
        self.running.append(name)
        self.most = max(self.most, len(self.running))
        gate = self.release.setdefault(name, asyncio.Event())
        async with self.changed:
            self.changed.notify_all()
        try:
            await gate.wait()
        except asyncio.CancelledError:
            self.cancelled.append(name)
            raise
        finally:
            self.running.remove(name)
        async with self.changed:
            self.changed.notify_all()
        return name

    async def until_running(self, *names: str) -> None:
        async with self.changed:
            await bounded(self.changed.wait_for(lambda: set(names) <= set(self.running)))

    async def until_ended(self, name: str) -> None:
        async with self.changed:
            await bounded(self.changed.wait_for(lambda: name not in self.running))

    def let_go(self, *names: str) -> None:
        for name in names:
            self.release.setdefault(name, asyncio.Event()).set()

    def tool(self, **options: Any) -> Tool[..., Any]:
        async def work(name: str) -> str:
            return await self.work(name)

        return tool(**options)(work)


async def test_calls_of_a_step_run_together_and_finish_events_come_as_they_finish() -> None:
    gate = Gate()
    model = ScriptedModel([call("work", name=name) for name in "abc"], "done")

    async def conduct() -> None:
        await gate.until_running("a", "b", "c")
        for name in "cab":
            gate.let_go(name)
            await gate.until_ended(name)

    events, _ = await bounded(asyncio.gather(events_of(Agent(model, tools=[gate.tool()])), conduct()))
    assert_whole(events)
    assert [event.index for event in only(events, ToolStart)] == [0, 1, 2]
    assert [event.result.content for event in only(events, ToolFinish)] == ["c", "a", "b"]
    results = next(message for message in fold(events) if isinstance(message, ToolMessage))
    assert [result.content for result in results.results] == ["a", "b", "c"]


@pytest.mark.parametrize(("parallelism", "most"), [(1, 1), (2, 2), (9, 5)])
async def test_parallelism_bounds_what_runs_at_once_and_keeps_the_order_of_starts(parallelism: int, most: int) -> None:
    gate = Gate()
    model = ScriptedModel([call("work", name=name) for name in "abcde"], "done")
    agent = Agent(model, tools=[gate.tool()], parallelism=parallelism)

    async def conduct() -> None:
        for name in "abcde":
            await gate.until_running(name)
            gate.let_go(name)

    events, _ = await bounded(asyncio.gather(events_of(agent), conduct()))
    assert_whole(events)
    assert [event.index for event in only(events, ToolStart)] == [0, 1, 2, 3, 4]
    assert gate.most <= most
    assert model.requests[0].sequential_tools == (parallelism == 1)


async def test_a_sequential_tool_runs_alone() -> None:
    gate = Gate()
    lone = gate.tool(name="lone", sequential=True)
    model = ScriptedModel([call("work", name="a"), call("lone", name="b"), call("work", name="c")], "done")

    async def conduct() -> None:
        for name in "abc":
            await gate.until_running(name)
            gate.let_go(name)

    events, _ = await bounded(asyncio.gather(events_of(Agent(model, tools=[gate.tool(), lone])), conduct()))
    assert_whole(events)
    assert gate.most == 1


async def test_starting_calls_does_not_wait_for_a_slow_consumer() -> None:
    gate = Gate()
    model = ScriptedModel([call("work", name="a"), call("work", name="b")], "done")
    async with Agent(model, tools=[gate.tool()], parallelism=1).stream("go") as run:
        async for event in run:
            if isinstance(event, ToolStart) and event.index == 0:
                gate.let_go("a")
                await gate.until_running("b")  # while this consumer holds the first event
                gate.let_go("b")


async def test_whatever_a_tool_raises_is_data_and_its_siblings_go_on() -> None:
    @tool
    async def leave() -> None:
        raise SystemExit(3)

    @tool
    def stop_in_a_thread() -> None:
        raise StopIteration

    @tool
    async def cancel_oneself() -> None:
        raise asyncio.CancelledError

    @tool
    async def cancel_the_task() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    @tool
    async def explain() -> None:
        raise ToolError("try again with another city")

    class Odd(BaseException):
        pass

    @tool
    async def odd() -> None:
        raise Odd

    tools = [add, fail, leave, stop_in_a_thread, cancel_oneself, cancel_the_task, explain, odd]
    calls = [call(one.name) for one in tools[1:]]
    model = ScriptedModel([call("raed_file"), call("add", a=1), *calls, call("add", a=1, b=2)], "done")
    events = await bounded(events_of(Agent(model, tools=tools, parallelism=20)))
    assert_whole(events)
    finishes = {event.index: event for event in only(events, ToolFinish)}
    contents = [finishes[index].result.content for index in sorted(finishes)]
    assert "'raed_file'" in contents[0]
    assert "add, cancel_oneself" in contents[0]
    assert "b" in contents[1]
    assert contents[2] == "ValueError: boom"
    assert "SystemExit" in contents[3]
    assert "StopIteration" in contents[4]
    assert contents[5] == contents[6] == "The tool cancelled itself."
    assert contents[7] == "try again with another city"
    assert contents[8] == "Odd"
    assert [finishes[index].is_error for index in sorted(finishes)] == [True] * 9 + [False]
    assert finishes[0].refused
    assert finishes[9].result.content == "3"
    assert events[-1].stop is StopReason.END


class Mute(Exception):
    """An error that cannot say what it is."""

    def __str__(self) -> str:
        raise ValueError


async def test_an_error_that_cannot_be_read_is_an_error_all_the_same() -> None:
    @tool
    async def here() -> None:
        raise Mute

    @tool
    def there() -> None:
        raise type("MuteExit", (SystemExit,), {"__str__": Mute.__str__})

    result = await bounded(Agent(ScriptedModel([call("here"), call("there")], "done"), tools=[here, there]).run("go"))
    assert [one.content for one in result.steps[0].results] == ["Mute", "the function raised MuteExit:"]
    with pytest.raises(RunError, match="Mute"):
        await bounded(Agent(Custom(Mute())).run("go"))


async def test_a_tool_that_never_ends_is_stopped_by_its_timeout() -> None:
    ended = asyncio.Event()

    @tool(timeout_seconds=0.01)
    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    @tool
    async def times_out_inside() -> None:
        raise TimeoutError("the database did not answer")

    model = ScriptedModel([call("forever"), call("times_out_inside")], "done")
    result = await bounded(Agent(model, tools=[forever, times_out_inside]).run("go"))
    assert ended.is_set()
    assert "within 0.01 seconds" in result.steps[0].results[0].content
    assert result.steps[0].results[1].content == "TimeoutError: the database did not answer"


async def test_a_tools_own_timeout_error_is_not_taken_for_ours() -> None:
    @tool(timeout_seconds=60)
    async def impatient() -> None:
        raise TimeoutError("mine")

    result = await Agent(ScriptedModel(call("impatient"), "done"), tools=[impatient]).run("go")
    assert result.steps[0].results[0].content == "TimeoutError: mine"


async def test_sync_tools_that_block_run_side_by_side_and_leave_the_loop_free() -> None:
    barrier = threading.Barrier(3)

    @tool
    def block(name: str) -> str:
        barrier.wait(10)  # returns only when three threads stand here at once
        return name

    model = ScriptedModel([call("block", name=name) for name in "abc"], "done")
    result = await bounded(Agent(model, tools=[block]).run("go"))
    assert [one.content for one in result.steps[0].results] == ["a", "b", "c"]


async def test_a_cancelled_run_abandons_a_blocking_sync_tool() -> None:
    release, running = threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    @tool
    def block() -> None:
        loop.call_soon_threadsafe(running.set)
        release.wait(10)

    seen: list[Event] = []
    agent = Agent(ScriptedModel(call("block")), tools=[block], taps=[seen.append])
    task = asyncio.create_task(agent.run("go"))
    await bounded(running.wait())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await bounded(task)
    assert not release.is_set()
    release.set()
    assert_whole(seen)
    assert only(seen, ToolFinish)[0].discarded


async def test_a_tool_that_ignores_cancellation_is_left_behind_after_a_bounded_wait(
    caplog: pytest.LogCaptureFixture,
) -> None:
    running, release = asyncio.Event(), asyncio.Event()

    @tool
    async def stubborn() -> None:
        running.set()
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    async with Agent(ScriptedModel(call("stubborn")), tools=[stubborn]).stream("go") as run:
        async for event in run:
            if isinstance(event, ToolStart):
                await bounded(running.wait())
                break
    assert "left behind" in caplog.text
    release.set()
    await bounded(asyncio.gather(*other_tasks()))


async def test_keyboard_interrupt_is_never_data() -> None:
    @tool
    def interrupt() -> None:
        raise KeyboardInterrupt

    seen: list[Event] = []

    async def main() -> None:
        await Agent(ScriptedModel(call("interrupt")), tools=[interrupt], taps=[seen.append]).run("go")

    outcome: list[BaseException] = []

    def thread() -> None:
        try:
            asyncio.run(main())
        except BaseException as raised:  # noqa: BLE001
            outcome.append(raised)

    worker = threading.Thread(target=thread)
    worker.start()
    await asyncio.to_thread(worker.join, 10)
    assert isinstance(outcome[0], KeyboardInterrupt)
    assert_whole(seen)


def test_keyboard_interrupt_out_of_a_model_passes_through_and_the_log_is_closed() -> None:
    seen: list[Event] = []
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(Agent(Custom(KeyboardInterrupt()), taps=[seen.append]).run("go"))
    assert_whole(seen)


def test_progress_from_a_thread_whose_loop_is_gone_is_dropped() -> None:
    running, release, told = threading.Event(), threading.Event(), threading.Event()

    @tool
    def outlive(context: ToolContext) -> None:
        running.set()
        release.wait(10)
        context.progress("anybody there?")
        told.set()

    async def main() -> None:
        async with Agent(ScriptedModel(call("outlive")), tools=[outlive]).stream("go") as run:
            async for event in run:
                if isinstance(event, ToolStart):
                    await asyncio.to_thread(running.wait, 10)
                    break

    asyncio.run(main())
    release.set()
    assert told.wait(10)


async def test_a_tool_gets_its_context_dependencies_and_a_stable_idempotency_key() -> None:
    seen: list[ToolContext[str]] = []

    @tool
    async def look(context: ToolContext[str], n: int) -> str:
        seen.append(context)
        return context.deps

    model = ScriptedModel("hm", [call("look", n=1), call("look", n=2)], "done")
    agent = Agent(model, tools=[look], deps=str)
    result = await agent.run("go", deps="the deps")
    result = await agent.run("go", messages=result.messages, deps="the deps", run_id="r1")
    assert [(one.run_id, one.step, one.index, one.name) for one in seen] == [("r1", 0, 0, "look"), ("r1", 0, 1, "look")]
    assert [one.call_id for one in seen] == [one.call_id for one in result.steps[0].results]
    assert seen[0].idempotency_key == "r1:0:0"
    assert result.steps[0].results[0].content == "the deps"


async def test_progress_comes_between_start_and_finish_from_coroutines_and_threads() -> None:
    @tool
    async def here(context: ToolContext) -> None:
        context.progress("half", 1, 2)

    @tool
    def there(context: ToolContext) -> None:
        context.progress("thread")

    model = ScriptedModel([call("here"), call("there")], "done")
    events = await events_of(Agent(model, tools=[here, there]))
    assert_whole(events)
    progress = {event.message: event for event in only(events, ToolProgress)}
    assert (progress["half"].progress, progress["half"].total) == (1, 2)
    for event in progress.values():
        start = next(one for one in only(events, ToolStart) if one.call_id == event.call_id)
        finish = next(one for one in only(events, ToolFinish) if one.call_id == event.call_id)
        assert start.seq < event.seq < finish.seq


async def test_progress_after_the_answer_is_dropped() -> None:
    later: list[ToolContext[Any]] = []

    @tool
    async def keep(context: ToolContext) -> None:
        later.append(context)

    model = ScriptedModel(call("keep"), call("keep"), "done")
    seen: list[Event] = []

    def late(event: Event) -> None:
        if isinstance(event, ToolFinish):
            later[0].progress("too late")

    events = await events_of(Agent(model, tools=[keep], taps=[late, seen.append]))
    assert_whole(events)
    assert not only(events, ToolProgress)


async def test_results_are_cut_and_say_so_unless_the_bound_is_zero() -> None:
    @tool
    async def long() -> str:
        return "é" * 100

    for bound, cut in ((50, True), (0, False)):
        result = await Agent(ScriptedModel(call("long"), "x"), tools=[long], max_result_bytes=bound).run("go")
        content = result.steps[0].results[0].content
        assert content.startswith("é" * 25)
        assert (content != "é" * 100) == cut


async def test_a_tool_may_return_files_and_say_that_it_failed() -> None:
    @tool
    async def both() -> ToolOutput:
        return ToolOutput({"a": 1}, is_error=True)

    result = await Agent(ScriptedModel(call("both"), "x"), tools=[both]).run("go")
    assert (result.steps[0].results[0].content, result.steps[0].results[0].is_error) == ('{"a":1}', True)


async def test_a_call_cut_by_the_output_limit_is_not_run_and_the_model_is_told() -> None:
    model = ScriptedModel(
        step(call("add", a=1, b=2), call_text("add", '{"a":1'), stop="max_tokens"),
        step(call("add", a=1, b=2), stop="max_tokens"),  # complete JSON, and cut all the same
        "never",
    )
    events = await events_of(Agent(model, tools=[add]))
    assert_whole(events)
    first, second, third = only(events, ToolFinish)
    assert sorted((one.index, one.refused, one.is_error) for one in (first, second)) == [
        (0, False, False),
        (1, True, True),
    ]
    assert third.refused
    assert events[-1].stop is StopReason.MAX_TOKENS
    assert not only(events, ModelFinish)[1].message.calls[-1].finished


async def test_a_call_that_its_model_marks_as_cut_off_is_not_run() -> None:
    cut = ToolCallPart("1", "add", '{"a":1,"b":2}', finished=False)
    for more in ({"stop": StopReason.MAX_TOKENS}, {}):
        events = await events_of(Agent(Custom(finished(cut, **more)), tools=[add], limits=Limits(steps=1)))
        assert only(events, ToolFinish)[0].refused
        assert only(events, ModelFinish)[0].message.content == (cut,)


async def test_one_cut_step_is_forgiven() -> None:
    model = ScriptedModel(
        step(call("add", a=1), stop="max_tokens"), call("add", a=1, b=2), step(call("add"), stop="max_tokens"), "done"
    )
    result = await Agent(model, tools=[add]).run("go")
    assert result.complete


async def test_a_truncated_text_ends_the_run_and_is_not_complete() -> None:
    result = await Agent(ScriptedModel(step("half an ans", stop="max_tokens"))).run("go")
    assert (result.stop, result.complete, result.text) == (StopReason.MAX_TOKENS, False, "half an ans")


@pytest.mark.parametrize("stop", ["refusal", "context"])
async def test_no_call_runs_after_a_refusal_or_an_overflow(stop: str) -> None:
    events = await events_of(Agent(ScriptedModel(step("no", call("add", a=1, b=2), stop=stop)), tools=[add]))
    assert_whole(events)
    assert only(events, ToolFinish)[0].refused
    assert events[-1].stop == stop


@pytest.mark.parametrize("stop", ["end", "other", "tool_calls", "stop_condition"])
async def test_complete_calls_run_whatever_the_reason_says(stop: str) -> None:
    result = await Agent(ScriptedModel(step(call("add", a=1, b=2), stop=stop), "done"), tools=[add]).run("go")
    assert result.steps[0].results[0].content == "3"


async def test_a_stop_for_calls_without_calls_is_no_complete_end() -> None:
    result = await Agent(ScriptedModel(step("hm", stop="tool_calls"))).run("go")
    assert result.stop is StopReason.OTHER


async def test_an_empty_answer_ends_the_run_with_empty_text() -> None:
    result = await Agent(ScriptedModel(step())).run("go")
    assert (result.text, result.complete) == ("", True)


async def test_the_same_failing_call_is_ordered_off_at_three_and_stops_the_run_at_five() -> None:
    model = ScriptedModel(*[call("fail", text="x") for _ in range(9)])
    with pytest.raises(LimitExceeded) as raised:
        await Agent(model, tools=[fail]).run("go")
    assert raised.value.limit == "repeated_calls"
    result = raised.value.result
    assert result is not None
    assert result.stop is StopReason.BUDGET
    orders = ["Do not repeat it" in record.results[0].content for record in result.steps]
    assert orders == [False, False, True, True, True]


async def test_failures_are_in_a_row_only_while_nothing_else_comes_between() -> None:
    same = call("fail", text="x")
    model = ScriptedModel(same, same, call("add", a=1, b=2), same, same, call("fail", text="y"), same, same, "done")
    result = await Agent(model, tools=[add, fail]).run("go")
    assert not any("Do not repeat" in one.content for record in result.steps for one in record.results)


async def test_a_call_that_works_again_forgets_its_failures() -> None:
    outcomes = iter([True, True, False, True, True, False])

    @tool
    async def flaky() -> str:
        if next(outcomes):
            raise ValueError("x")
        return "ok"

    result = await Agent(ScriptedModel(*[call("flaky")] * 6, "done"), tools=[flaky]).run("go")
    assert not any("Do not repeat" in record.results[0].content for record in result.steps[:6])


def endless() -> ScriptedModel:
    return ScriptedModel(*[call("add", a=n, b=1) for n in range(100)])


@pytest.mark.parametrize(
    ("limits", "stop", "limit", "steps"),
    [
        (Limits(), "max_steps", "steps", 50),
        (Limits(steps=3), "max_steps", "steps", 3),
        (Limits(steps=None, tool_calls=2), "budget", "tool_calls", 3),
        (Limits(tool_calls=0), "budget", "tool_calls", 1),
        (Limits(tokens=40), "budget", "tokens", 2),
    ],
)
async def test_a_limit_is_a_stop_in_the_stream_and_raises_from_the_result(
    limits: Limits, stop: str, limit: str, steps: int
) -> None:
    agent = Agent(endless(), tools=[add], limits=limits)
    events = await events_of(agent)
    assert_whole(events)
    assert (events[-1].stop, events[-1].limit, events[-1].steps) == (stop, limit, steps)
    with pytest.raises(LimitExceeded, match=limit) as raised:
        await Agent(endless(), tools=[add], limits=limits).run("go")
    result = raised.value.result
    assert result is not None
    assert (raised.value.limit, len(result.steps), result.complete) == (limit, steps, False)
    assert isinstance(result.messages[-1], ToolMessage)


async def test_calls_beyond_a_limit_are_answered_and_the_ones_within_it_run() -> None:
    model = ScriptedModel([call("add", a=n, b=0) for n in range(4)])
    events = await events_of(Agent(model, tools=[add], limits=Limits(tool_calls=2)))
    assert_whole(events)
    by_index = {event.index: event for event in only(events, ToolFinish)}
    assert [by_index[index].refused for index in range(4)] == [False, False, True, True]


async def test_a_final_answer_over_the_token_limit_is_still_an_answer() -> None:
    model = ScriptedModel("done", usage=Usage(input_tokens=5_000, output_tokens=5))  # more than it was asked for
    result = await Agent(model, limits=Limits(tokens=4_000)).run("go")
    assert result.complete


@pytest.mark.parametrize("where", ["model", "tool"])
async def test_the_time_limit_interrupts_whatever_the_run_waits_for(where: str) -> None:
    never = asyncio.Event()
    gate = Gate()
    script = ["Hel", never, "lo"] if where == "model" else [call("work", name="a"), call("work", name="b")]
    agent = Agent(ScriptedModel(script), tools=[gate.tool()], limits=Limits(seconds=0.02), parallelism=1)
    events = await bounded(events_of(agent))
    assert_whole(events)
    assert (events[-1].stop, events[-1].limit) == ("budget", "seconds")
    if where == "tool":
        assert gate.cancelled == ["a"]
        assert [(one.discarded, one.refused) for one in only(events, ToolFinish)] == [(True, False), (False, True)]
        assert len(only(events, StepFinish)) == 1
    assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]


async def test_the_time_limit_never_touches_the_consumers_own_waiting() -> None:
    agent = Agent(ScriptedModel(["a", "b", "c"]), limits=Limits(seconds=0.01))
    kinds = []
    async with agent.stream("go") as run:
        async for event in run:
            kinds.append(type(event))
            if isinstance(event, TextDelta):
                await asyncio.sleep(0.05)  # the limit passes while this consumer is busy
    assert kinds == [RunStart, StepStart, TextDelta, RunFinish]
    with pytest.raises(LimitExceeded) as raised:
        await run.result()
    assert raised.value.limit == "seconds"


async def test_stop_conditions_end_a_run_as_complete() -> None:
    async def later(steps: Sequence[StepRecord]) -> bool:
        return len(steps) == 2

    for conditions, steps in ((StepCount(3), 3), ([HasToolCall("add")], 1), ([HasToolCall("x"), later], 2)):
        result = await Agent(endless(), tools=[add], stop_when=conditions).run("go")
        assert (result.stop, result.complete, len(result.steps)) == (StopReason.STOP_CONDITION, True, steps)


async def test_instructions_may_be_a_function_of_the_run_called_once() -> None:
    called: list[RunContext[str]] = []

    def instruct(context: RunContext[str]) -> str:
        called.append(context)
        return f"You serve {context.deps}."

    async def instruct_later(context: RunContext[str]) -> str:
        return instruct(context)

    for function in (instruct, instruct_later):
        called.clear()
        model = ScriptedModel(call("add", a=1, b=2), "done")
        await Agent(model, tools=[add], instructions=function, deps=str).run("go", deps="Ada", run_id="r")
        assert [request.instructions for request in model.requests] == ["You serve Ada."] * 2
        assert called == [RunContext("r", "Ada")]


@pytest.mark.parametrize("function", [lambda _: 1 / 0, lambda _: 42])
async def test_instructions_that_fail_break_the_run(function: Any) -> None:
    with pytest.raises(RunError):
        await Agent(ScriptedModel(), instructions=function).run("go")


async def test_reasoning_is_shown_only_where_it_was_asked_for_and_always_kept() -> None:
    for reasoning, shown in ((None, 0), (Reasoning(effort="low"), 0), (Reasoning(show=True), 1)):
        events = await events_of(Agent(ScriptedModel([think("hm", signature="s"), "x"]), reasoning=reasoning))
        assert_whole(events)
        assert len(only(events, ReasoningDelta)) == shown
        assert only(events, ModelFinish)[0].message.content[0].signature == "s"


async def test_settings_of_a_run_override_the_agents_field_by_field() -> None:
    model = ScriptedModel("x", "y")
    agent = Agent(model, settings=ModelSettings(temperature=0.1, seed=1, extra_body={"a": 1}))
    await agent.run("go", settings=ModelSettings(temperature=0.9, extra_body={"b": 2}))
    await agent.run("go")
    merged = ModelSettings(temperature=0.9, seed=1, extra_body={"a": 1, "b": 2})
    assert [request.settings for request in model.requests] == [merged, agent.settings]
    await Agent(ScriptedModel("x")).run("go", settings=ModelSettings(seed=2))


async def test_taps_see_every_event_in_order_and_one_that_raises_goes_on_seeing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[Event] = []

    def broken(event: Event) -> None:
        seen.append(event)
        raise ValueError("tap trouble")

    model = ScriptedModel(call("add", a=1, b=2), "done")
    events = await events_of(Agent(model, tools=[add], taps=[broken]))
    assert seen == events
    assert "tap trouble" in caplog.text


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_a_tap_that_ends_the_program_at_the_last_event_leaves_nobody_waiting(kind: type[BaseException]) -> None:
    def tap(event: Event) -> None:
        if isinstance(event, RunFinish):
            raise kind

    with pytest.raises(kind):
        asyncio.run(Agent(ScriptedModel("x"), taps=[tap]).run("go"))


@pytest.mark.parametrize("kind", [asyncio.CancelledError, GeneratorExit])
async def test_a_tap_cannot_cancel_a_run(kind: type[BaseException]) -> None:
    def tap(event: Event) -> None:
        raise kind

    assert (await Agent(ScriptedModel("x"), taps=[tap]).run("go")).text == "x"


class Registry:
    """A toolset that changes."""

    def __init__(self, *tools: Tool[..., Any]) -> None:
        self.offer = list(tools)
        self.entered = self.left = 0

    async def __aenter__(self) -> Self:
        self.entered += 1
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self.left += 1

    async def tools(self) -> Sequence[Tool[..., Any]]:
        return list(self.offer)


async def test_a_toolset_lives_as_long_as_the_run_and_may_change_between_steps() -> None:
    registry = Registry()

    @tool
    async def grow() -> str:
        registry.offer.append(add)
        return "grown"

    registry.offer.append(grow)
    model = ScriptedModel(call("add", a=1, b=2), call("grow"), call("add", a=1, b=2), "done")
    result = await Agent(model, toolsets=[registry]).run("go")
    assert [record.results[0].is_error for record in result.steps[:3]] == [True, False, False]
    assert [[spec.name for spec in request.tools] for request in model.requests] == [["grow"]] * 2 + [
        ["add", "grow"]
    ] * 2
    assert model.requests[0].tools is model.requests[1].tools
    assert (registry.entered, registry.left) == (1, 1)


async def test_of_two_tools_with_one_name_the_first_wins() -> None:
    @tool(name="add")
    async def other(a: int, b: int) -> str:
        return "other"

    @tool(name="late")
    async def late() -> str:
        return "first set"

    @tool(name="late")
    async def later() -> str:
        return "second set"

    model = ScriptedModel([call("add", a=1, b=2), call("late")], "done")
    result = await Agent(model, tools=[add], toolsets=[Registry(other, late), Registry(later)]).run("go")
    assert [one.content for one in result.steps[0].results] == ["3", "first set"]


async def test_a_toolset_that_fails_breaks_the_run_and_the_others_are_left() -> None:
    class Broken(Registry):
        async def __aenter__(self) -> Self:
            raise OSError("no server")

    good = Registry()
    with pytest.raises(RunError, match="no server") as raised:
        await Agent(ScriptedModel(), toolsets=[good, Broken()]).run("go")
    assert isinstance(raised.value.__cause__, OSError)
    assert good.left == 1


async def test_toolsets_are_left_also_when_the_models_stream_cannot_be_closed(caplog: pytest.LogCaptureFixture) -> None:
    class Sticky(ScriptedModel):
        async def stream(self, request: ModelRequest, /) -> AsyncIterator[ModelEvent]:
            try:
                yield TextDelta("x")
            finally:
                raise OSError("will not close")

    registry = Registry()
    async with Agent(Sticky(), toolsets=[registry]).stream("go") as run:
        async for event in run:
            if isinstance(event, TextDelta):
                break
    assert (registry.entered, registry.left) == (1, 1)
    assert "will not close" in caplog.text


async def test_a_toolset_that_fails_on_leaving_does_not_spoil_the_answer(caplog: pytest.LogCaptureFixture) -> None:
    class Sticky(Registry):
        async def __aexit__(self, *exc_info: object) -> None:
            raise OSError("stuck")

    result = await Agent(ScriptedModel("fine"), toolsets=[Sticky()]).run("go")
    assert result.text == "fine"
    assert "stuck" in caplog.text


class PlainIterator:
    """A model whose stream is no generator and cannot be closed."""

    provider, name, capabilities = "plain", "m", Capabilities()

    def stream(self, request: ModelRequest) -> PlainIterator:
        self.events = iter([TextDelta("x"), finished(TextPart("x"))])
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ModelEvent:
        for event in self.events:
            return event
        raise StopAsyncIteration


async def test_a_models_stream_may_be_any_iterator() -> None:
    assert (await Agent(PlainIterator()).run("go")).text == "x"


class Custom:
    """A model that yields what it is told to."""

    provider, name, capabilities = "custom", "m", Capabilities(reasoning=True)

    def __init__(self, *events: Any) -> None:
        self.events = events

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        for event in self.events:
            if isinstance(event, BaseException):
                raise event
            yield event


def finished(*parts: Any, **more: Any) -> ModelFinish:
    return ModelFinish(AssistantMessage(parts), **more)


@pytest.mark.parametrize(
    ("events", "fault"),
    [
        ([TextDelta("x")], "without a model_finish"),
        ([finished(), TextDelta("x")], "went on"),
        ([finished(), finished()], "went on"),
        ([finished(ToolCallPart("", "f", "{}"))], "without an id"),
        ([finished(ToolCallPart("1", "", "{}"))], "without a name"),
        ([RunStart("a", None, ())], "only deltas"),  # type: ignore[arg-type]
        (["text"], "only deltas"),
        ([TextDelta(None)], "text_delta"),  # type: ignore[arg-type]
        ([ReasoningDelta(None)], "only deltas"),  # type: ignore[arg-type]
        ([ToolCallDelta(0, "1", "f", None)], "only deltas"),  # type: ignore[arg-type]
        ([ToolCallDelta([], "1", "f", "{}")], "only deltas"),  # type: ignore[arg-type]
        ([ToolStart("1", 0, "f", "{}")], "only deltas"),
    ],
)
async def test_a_model_that_breaks_its_contract_breaks_the_run(events: list[Any], fault: str) -> None:
    seen: list[Event] = []
    with pytest.raises(ModelContractError, match=fault) as raised:
        await Agent(Custom(*events), taps=[seen.append]).run("go")
    assert_whole(seen)
    assert seen[-1].stop is StopReason.ERROR
    assert fault in (seen[-1].error or "")
    assert raised.value.result is not None


async def test_hosted_calls_and_retries_of_a_model_are_passed_on() -> None:
    hosted = ToolCallPart("h", "web", "{}", hosted=True)
    answer = ToolResultPart("h", "web", "found", hosted=True)
    model = Custom(
        ModelRetry(1, 0.0, "reset"),
        ToolCallDelta(0, "h", "web", "{}"),
        ToolStart("h", 0, "web", "{}", Effect.READ, hosted=True),
        ToolFinish("h", 0, "web", answer),
        finished(hosted, answer, TextPart("x"), usage=Usage(1, 1)),
    )
    events = await events_of(Agent(model))
    assert_whole(events)
    assert len(only(events, ToolFinish)) == len(only(events, ModelRetry)) == 1
    assert fold(events)[-1].content[:2] == (hosted, answer)
    assert only(events, StepFinish)[0].usage == Usage(1, 1)


async def test_usage_that_nobody_reports_is_unknown_and_not_zero() -> None:
    events = await events_of(Agent(Custom(finished(TextPart("x")))))
    assert only(events, ModelFinish)[0].usage is None
    assert only(events, StepFinish)[0].usage is None
    assert (events[-1].usage.total_tokens, events[-1].usage.cost_complete) == (0, False)


async def test_an_answer_is_signed_with_the_model_that_gave_it() -> None:
    result = await Agent(Custom(finished(TextPart("x")))).run("go")
    assert str(result.messages[-1].model) == str(result.steps[0].model) == "custom:m"


async def test_text_that_no_json_can_hold_is_mended_everywhere() -> None:
    bad = "a\ud800"
    model = Custom(
        TextDelta(bad),
        ReasoningDelta(bad),
        ToolCallDelta(0, "h", bad, bad),
        ModelRetry(1, 0.0, bad),
        ToolStart("h", 0, bad, bad, hosted=True),
        ToolFinish("h", 0, bad, ToolResultPart("h", bad, bad, hosted=True)),
        finished(TextPart(bad), raw_stop=bad),
    )
    agent = Agent(model, name=bad, instructions="\udfff", reasoning=Reasoning(show=True))
    events = await events_of(agent, "\ud83d\ude00 \ud800")
    assert [decode_event(encode_event(event)) for event in events] == events
    assert events[0].input[0].content[0].text == "\U0001f600 \ufffd"
    assert only(events, TextDelta)[0].text == "a\ufffd"
    assert fold(events)[-1].text == "a\ufffd"


@pytest.mark.parametrize(
    ("cause", "stop"),
    [
        (OverloadedError("busy"), "error"),
        (ContextOverflowError("too long"), "context"),
        (ZeroDivisionError("a bug"), "error"),
        (asyncio.CancelledError(), "error"),
    ],
)
async def test_a_failing_model_raises_a_run_error_with_the_cause_and_what_there_is(
    cause: BaseException, stop: str
) -> None:
    seen: list[Event] = []
    agent = Agent(Custom(TextDelta("Hel"), cause), taps=[seen.append])
    with pytest.raises(RunError) as raised:
        await agent.run("go")
    assert raised.value.__cause__ is cause
    assert raised.value.result is not None
    assert raised.value.result.text == "Hel"
    assert raised.value.result.messages == fold(seen)
    assert_whole(seen)
    assert (seen[-1].stop, bool(seen[-1].error)) == (stop, True)


async def test_a_cost_is_complete_only_where_every_request_told_one() -> None:
    priced = step(call("add", a=1, b=2), usage=Usage(1, 1, cost_usd=0.5))
    for last, complete in ((step("x", usage=None), False), (step("x", usage=Usage(1, 1, cost_usd=0.5)), True)):
        usage = (await Agent(ScriptedModel(priced, last), tools=[add]).run("go")).usage
        assert usage.cost_usd == (1.0 if complete else 0.5)
        assert usage.cost_complete is complete


async def test_a_model_may_write_its_stop_as_a_plain_word_of_ours_and_of_no_other() -> None:
    result = await Agent(Custom(finished(TextPart("x"), stop="max_tokens"))).run("go")
    assert (result.stop, result.complete) == (StopReason.MAX_TOKENS, False)
    with pytest.raises(ValueError, match="because"):
        finished(TextPart("x"), stop="because")


class Picky(ScriptedModel):
    """A model that takes no temperature and no second message."""

    def check(self, request: ModelRequest) -> None:
        if request.settings is not None and request.settings.temperature is not None:
            raise UnsupportedError("no temperature", feature="temperature")
        if len(request.messages) > 1:
            raise UnsupportedError("no second message", feature="messages")


async def test_what_a_model_checks_itself_is_refused_before_a_run_begins() -> None:
    warm = ModelSettings(temperature=1)
    with pytest.raises(UnsupportedError, match="temperature"):
        Agent(Picky(), settings=warm)
    model = Picky("x")
    agent = Agent(model)
    with pytest.raises(UnsupportedError, match="temperature"):
        await agent.run("go", settings=warm)
    with pytest.raises(UnsupportedError, match="second"):
        await agent.run("go", messages=[UserMessage("hi")])
    assert not model.requests
    assert (await agent.run("go")).text == "x"


async def test_usage_is_kept_when_a_run_fails_later() -> None:
    with pytest.raises(RunError) as raised:
        await Agent(ScriptedModel(call("add", a=1, b=2), error("down")), tools=[add]).run("go")
    assert raised.value.step == 1
    assert raised.value.result is not None
    assert raised.value.result.usage == Usage(10, 5)
    assert len(raised.value.result.steps) == 1


async def test_an_error_while_iterating_comes_after_the_last_event() -> None:
    seen: list[Event] = []
    async with Agent(ScriptedModel(error("down"))).stream("go") as run:
        events = aiter(run)
        while not (seen and isinstance(seen[-1], RunFinish)):
            seen.append(await anext(events))
        with pytest.raises(RunError, match="down"):
            await anext(events)
    assert_whole(seen)


async def test_a_broken_stop_condition_breaks_the_run() -> None:
    with pytest.raises(RunError, match="division"):
        await Agent(ScriptedModel(call("add", a=1, b=2)), tools=[add], stop_when=lambda _: 1 / 0).run("go")
