"""The two wrap points: what they see, what they may do, and in which order."""

import asyncio

import msgspec
import pytest

from support.runs import assert_whole, events_of, only
from treadle import (
    Agent,
    ConfigError,
    ModelFinish,
    ModelRetry,
    ModelSettings,
    Retry,
    RunError,
    TextDelta,
    ToolFinish,
    ToolOutput,
    ToolStart,
    fold,
    tool,
)
from treadle.testing import ScriptedModel, call, error

BOUND = 10.0


@tool(effect="read")
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


# Around the model


def tracing(name, seen):
    async def wrap(request, call_next):
        seen.append(f"{name} in")
        async for event in call_next(request):
            yield event
        seen.append(f"{name} out")

    return wrap


async def test_the_first_wrap_of_the_model_is_the_outermost():
    seen = []
    agent = Agent(ScriptedModel("hello"), wrap_model=[tracing("a", seen), tracing("b", seen)])
    events = await events_of(agent)
    assert_whole(events)
    assert seen == ["a in", "b in", "b out", "a out"]


async def test_a_wrap_replaces_the_request_and_the_run_keeps_its_own():
    import msgspec

    async def cooler(request, call_next):
        return await call_next(msgspec.structs.replace(request, settings=ModelSettings(temperature=0)))

    model = ScriptedModel("hello")
    agent = Agent(model, wrap_model=cooler)
    result = await agent.run("hi")
    assert model.requests[0].settings == ModelSettings(temperature=0) and agent.settings is None
    assert result.text == "hello"


async def test_a_wrap_answers_in_the_model_s_stead():
    from treadle import AssistantMessage, TextPart

    async def cached(request, call_next):
        yield TextDelta("from the cache")
        yield ModelFinish(AssistantMessage((TextPart("from the cache"),)))

    model = ScriptedModel()
    assert (await Agent(model, wrap_model=cached).run("hi")).text == "from the cache"
    assert not model.requests


def test_a_wrap_may_be_a_plain_function_that_passes_the_answer_on():
    agent = Agent(ScriptedModel("hello"), wrap_model=lambda request, call_next: call_next(request))
    assert agent.run_sync("hi").text == "hello"


async def test_a_wrap_asks_again_and_only_the_last_answer_counts():
    async def twice(request, call_next):
        async for _ in call_next(request):
            pass
        async for event in call_next(request):
            yield event

    model = ScriptedModel("first", "second")
    assert (await Agent(model, wrap_model=twice).run("hi")).text == "second"


async def test_retries_happen_inside_and_are_seen():
    seen = []

    async def watch(request, call_next):
        async for event in call_next(request):
            seen.append(type(event))
            yield event

    model = ScriptedModel(error("busy", retryable=True), "hello")
    await Agent(model, wrap_model=watch, retry=Retry(base_seconds=0)).run("hi")
    assert seen == [ModelRetry, TextDelta, ModelFinish]


async def test_what_a_wrap_of_the_model_raises_breaks_the_run_like_a_model():
    async def broken(request, call_next):
        raise ValueError("no way")
        yield

    with pytest.raises(RunError, match="no way"):
        await Agent(ScriptedModel("hello"), wrap_model=broken).run("hi")


async def test_leaving_early_closes_the_answer_behind_a_wrap_that_stopped_reading():
    closed = []

    class Watching(ScriptedModel):
        async def stream(self, request):
            try:
                async for event in super().stream(request):
                    yield event
            finally:
                closed.append(True)

    async def impatient(request, call_next):
        async for event in call_next(request):
            yield event
            return

    with pytest.raises(RunError, match="model_finish"):
        await Agent(Watching(["a", "b"]), wrap_model=impatient).run("hi")
    assert closed == [True]
    async with Agent(Watching(["a", "b"]), wrap_model=tracing("x", [])).stream("hi") as run:
        async for event in run:
            if isinstance(event, TextDelta):
                break
    assert closed == [True, True]


# Around tools


async def test_the_first_wrap_of_a_tool_is_the_outermost_and_sees_data():
    seen = []

    def around(name):
        async def wrap(request, call_next):
            seen.append((name, request.name, request.arguments, request.effect, request.call_id, request.index))
            output = await call_next(request)
            seen.append((name, output.content))
            return output

        return wrap

    agent = Agent(ScriptedModel(call("add", a=1, b=2), "3"), tools=[add], wrap_tool=[around("o"), around("i")])
    events = await events_of(agent)
    assert_whole(events)
    assert [entry[0] for entry in seen] == ["o", "i", "i", "o"]
    assert seen[0][1:4] == ("add", {"a": 1, "b": 2}, "read") and seen[2] == ("i", "3")


async def test_a_wrap_changes_arguments_and_the_start_tells_the_new_ones():
    async def doubled(request, call_next):
        return await call_next(request.replace(args={"a": 10, "b": request.arguments["b"]}))

    agent = Agent(ScriptedModel(call("add", a=1, b=2), "12"), tools=[add], wrap_tool=doubled)
    events = await events_of(agent)
    (start,), (finish,) = only(events, ToolStart), only(events, ToolFinish)
    assert start.args == '{"a":10,"b":2}' and finish.result.content == "12"
    assert fold(events)[1].calls[0].args == '{"a":1,"b":2}'


async def test_a_wrap_answers_in_the_tool_s_stead():
    async def cached(request, call_next):
        return {"cached": True}

    ran = []

    @tool
    def work() -> str:
        """Work."""
        ran.append(1)
        return "done"

    events = await events_of(Agent(ScriptedModel(call("work"), "ok"), tools=[work], wrap_tool=cached))
    (finish,) = only(events, ToolFinish)
    assert finish.result.content == '{"cached":true}' and finish.refused and not finish.is_error
    assert not ran
    assert_whole(events)


async def test_a_failure_is_data_for_a_wrap_and_so_is_the_wrap_s_own():
    @tool
    def fail() -> str:
        """Fail."""
        raise ValueError("broken")

    seen = []

    async def watch(request, call_next):
        output = await call_next(request)
        seen.append((output.is_error, output.content))
        raise RuntimeError("the wrap broke")

    events = await events_of(Agent(ScriptedModel(call("fail"), "ok"), tools=[fail], wrap_tool=watch))
    (finish,) = only(events, ToolFinish)
    assert seen == [(True, "ValueError: broken")]
    assert finish.is_error and finish.result.content == "RuntimeError: the wrap broke"


async def test_a_wrap_may_try_a_tool_again_within_one_start_and_finish():
    attempts = []

    @tool
    def flaky() -> str:
        """Work at the second time."""
        attempts.append(1)
        if len(attempts) == 1:
            raise ValueError("not yet")
        return "done"

    async def again(request, call_next):
        output = await call_next(request)
        return await call_next(request) if output.is_error else output

    events = await events_of(Agent(ScriptedModel(call("flaky"), "ok"), tools=[flaky], wrap_tool=again))
    assert_whole(events)
    (finish,) = only(events, ToolFinish)
    assert finish.result.content == "done" and len(attempts) == 2


async def test_calls_start_in_call_order_however_long_their_wraps_take():
    first_may_go = asyncio.Event()

    async def slow_first(request, call_next):
        if request.index == 0:
            await first_may_go.wait()
        else:
            first_may_go.set()
        return await call_next(request)

    calls = [call("add", a=1, b=1), call("add", a=2, b=2), call("add", a=3, b=3)]
    agent = Agent(ScriptedModel(calls, "ok"), tools=[add], wrap_tool=slow_first)
    events = await asyncio.wait_for(events_of(agent), BOUND)
    assert [event.index for event in only(events, ToolStart)] == [0, 1, 2]
    assert_whole(events)


async def test_parallelism_bounds_tools_and_not_wraps():
    inside, most, entered = set(), [], []

    @tool
    async def work(n: int) -> str:
        """Work."""
        inside.add(n)
        most.append(len(inside))
        await asyncio.sleep(0)
        inside.discard(n)
        return "done"

    async def note(request, call_next):
        entered.append(request.index)
        return await call_next(request)

    calls = [call("work", n=n) for n in range(6)]
    events = await events_of(Agent(ScriptedModel(calls, "ok"), tools=[work], wrap_tool=note, parallelism=2))
    assert max(most) == 2 and entered == list(range(6))
    assert_whole(events)


async def test_unknown_tools_and_bad_arguments_never_reach_a_wrap():
    seen = []

    async def note(request, call_next):
        seen.append(request.name)
        return await call_next(request)

    calls = [call("ad", a=1), call("add", a="x"), call("add", a=1, b=1)]
    events = await events_of(Agent(ScriptedModel(calls, "ok"), tools=[add], wrap_tool=note))
    assert seen == ["add"]
    assert [event.is_error for event in sorted(only(events, ToolFinish), key=lambda event: event.index)] == [
        True,
        True,
        False,
    ]
    assert_whole(events)


async def test_a_cancelled_run_cancels_what_waits_in_a_wrap():
    entered, cancelled = asyncio.Event(), asyncio.Event()

    async def stuck(request, call_next):
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    agent = Agent(ScriptedModel(call("add", a=1, b=2)), tools=[add], wrap_tool=stuck)
    task = asyncio.create_task(agent.run("hi"))
    await asyncio.wait_for(entered.wait(), BOUND)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, BOUND)
    assert cancelled.is_set()


async def test_files_pass_through_wraps():
    from treadle import FilePart

    picture = FilePart("image/png", data="aGk=")

    @tool
    def draw() -> ToolOutput:
        """Draw."""
        return ToolOutput("a picture", files=(picture,))

    async def note(request, call_next):
        return await call_next(request)

    result = await Agent(ScriptedModel(call("draw"), "ok"), tools=[draw], wrap_tool=note).run("hi")
    assert result.steps[0].results[0].files == (picture,)


@pytest.mark.parametrize("options", [{"wrap_model": [3]}, {"wrap_tool": [3]}, {"approve": 3}], ids=str)
def test_what_is_no_function_is_refused(options):
    with pytest.raises(ConfigError, match=next(iter(options))):
        Agent(ScriptedModel(), **options)


async def test_a_wrap_that_gives_up_waiting_for_its_turn_is_no_failure_of_the_others():
    first_may_go, second_gave_up, second_may_end = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def impatient(request, call_next):
        if request.index == 0:
            await first_may_go.wait()
            return await call_next(request)
        try:
            return await asyncio.wait_for(call_next(request), 0.01)
        except TimeoutError:
            second_gave_up.set()
            await second_may_end.wait()
            return "gave up"

    calls = [call("add", a=1, b=1), call("add", a=2, b=2)]
    agent = Agent(ScriptedModel(calls, "ok"), tools=[add], wrap_tool=impatient)
    running = asyncio.create_task(events_of(agent))
    await asyncio.wait_for(second_gave_up.wait(), BOUND)
    first_may_go.set()
    await asyncio.sleep(0)
    second_may_end.set()
    events = await asyncio.wait_for(running, BOUND)
    assert_whole(events)
    assert sorted(event.result.content for event in only(events, ToolFinish)) == ["2", "gave up"]


async def test_a_wrap_that_gives_a_call_another_place_changes_nothing_of_it():
    async def elsewhere(request, call_next):
        return await call_next(msgspec.structs.replace(request, index=7, name="other", call_id="strange"))

    model = ScriptedModel([call("add", a=1, b=2), call("add", a=3, b=4)], "done")
    events = await asyncio.wait_for(events_of(Agent(model, tools=[add], wrap_tool=elsewhere)), BOUND)
    assert_whole(events)
    assert sorted((event.index, event.result.content) for event in only(events, ToolFinish)) == [(0, "3"), (1, "7")]
