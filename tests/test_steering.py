"""What a user adds while a run goes on."""

from __future__ import annotations

import pytest

from support.runs import assert_whole, bounded, only
from treadle import (
    Agent,
    Capabilities,
    ConfigError,
    FilePart,
    LimitExceeded,
    Limits,
    StepStart,
    StopReason,
    TextDelta,
    ToolStart,
    UnsupportedError,
    UserMessage,
    fold,
    tool,
)
from treadle.testing import ScriptedModel, call


@tool(effect="read")
def look() -> str:
    """Look."""
    return "seen"


async def test_it_reaches_the_model_with_the_next_step():
    model = ScriptedModel(call("look"), "done")
    async with Agent(model, tools=[look]).stream("go") as run:
        events = []
        async for event in run:
            events.append(event)
            if isinstance(event, ToolStart):
                run.steer("and look left")
    assert_whole(events)
    assert model.requests[1].messages[-1] == UserMessage("and look left")
    assert only(events, StepStart)[1].input == (UserMessage("and look left"),)
    assert fold(events) == (await run.result()).messages
    assert run.unsent == ()


async def test_a_run_that_would_end_goes_on_with_it():
    model = ScriptedModel("done", "done again")
    async with Agent(model).stream("go") as run:
        async for event in run:
            if isinstance(event, TextDelta) and event.text == "done":
                run.steer("more")
                run.steer([UserMessage("and more")])
        result = await run.result()
    assert result.text == "done again"
    assert [step.index for step in result.steps] == [0, 1]
    assert model.requests[1].messages[-2:] == (UserMessage("more"), UserMessage("and more"))


async def test_typed_output_is_that_of_the_last_answer():
    model = ScriptedModel("1", "2")
    async with Agent(model, output=int).stream("go") as run:
        async for event in run:
            if isinstance(event, TextDelta) and event.text == "1":
                run.steer("another")
        assert (await run.result()).output == 2


async def test_what_a_limit_keeps_from_the_model_is_left():
    model = ScriptedModel(call("look"))
    async with Agent(model, tools=[look], limits=Limits(steps=1)).stream("go") as run:
        async for event in run:
            if isinstance(event, ToolStart):
                run.steer("too late")
        with pytest.raises(LimitExceeded):
            await run.result()
    assert run.unsent == (UserMessage("too late"),)


async def test_a_cancelled_run_does_not_go_on():
    async with Agent(ScriptedModel("done")).stream("go") as run:
        run.steer("before anything")
    assert run.so_far().stop is StopReason.CANCELLED
    assert run.unsent == (UserMessage("before anything"),)


async def test_a_run_that_has_ended_takes_nothing():
    async with Agent(ScriptedModel("done")).stream("go") as run:
        await bounded(run.result())
        with pytest.raises(ConfigError, match="has ended"):
            run.steer("more")
    with pytest.raises(ConfigError, match="has ended"):
        run.steer("more")


async def test_what_the_model_cannot_take_is_refused_at_once():
    model = ScriptedModel("done", capabilities=Capabilities(tools=True))
    async with Agent(model).stream("go") as run:
        with pytest.raises(UnsupportedError, match="takes no files"):
            run.steer([FilePart("image/png", data=b"x")])
        with pytest.raises(ConfigError, match="nothing to answer"):
            run.steer(" ")
        assert (await run.result()).text == "done"
