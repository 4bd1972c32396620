"""Agents as tools of agents: what comes back, what it costs, who may do what, and how a tree of them ends."""

import asyncio

import pytest

from support.runs import assert_whole, events_of, only
from treadle import (
    Agent,
    Allow,
    Capabilities,
    ConfigError,
    Limits,
    Pause,
    Reasoning,
    RunError,
    RunFinish,
    RunStart,
    StopReason,
    SubagentEvent,
    TextDelta,
    ToolContext,
    UnsupportedError,
    Usage,
    approve_effects,
    decode_event,
    encode_event,
    fold,
    tool,
)
from treadle.testing import ScriptedModel, call, error

BOUND = 10.0
TEN = Usage(input_tokens=6, output_tokens=4, cost_usd=0.01)


@tool(effect="read")
def look(place: str) -> str:
    """Look."""
    return f"seen {place}"


@tool(effect="write")
def write(text: str) -> str:
    """Write."""
    return f"wrote {text}"


def scripted(*steps):
    return ScriptedModel(*steps, usage=TEN)


def parent_of(*subs, steps=None, **options):
    steps = steps or ([call(sub.name, prompt="find it") for sub in subs], "done")
    return Agent(scripted(*steps), tools=subs, **options)


def results_of(result):
    return [one.content for one in result.steps[0].results]


async def test_a_sub_agent_works_alone_and_only_its_answer_returns():
    model = scripted(call("look", place="attic"), "it is in the attic")
    child = Agent(model, instructions="Find things.", tools=[look])
    parent = parent_of(child.as_tool("finder", description="Finds things."), instructions="Ask.")
    result = await parent.run("where is it?")
    assert results_of(result) == ["it is in the attic"] and result.text == "done"
    assert model.requests[0].instructions == "Find things."
    assert [part.text for part in model.requests[0].messages[0].content] == ["find it"]
    assert len(model.requests[0].messages) == 1
    (spec,) = parent.model.requests[0].tools
    assert (spec.name, spec.description, list(spec.input_schema["properties"])) == (
        "finder",
        "Finds things.",
        ["prompt"],
    )


async def test_usage_and_cost_of_the_whole_tree_are_in_the_totals():
    grandchild = Agent(scripted("deep"))
    child = Agent(scripted(call("deeper", prompt="go"), "less deep"), tools=[grandchild.as_tool("deeper")])
    parent = parent_of(child.as_tool("deep", nested=True))
    events = await events_of(parent)
    assert_whole(events)
    finish = events[-1]
    assert finish.usage.total_tokens == 50 and finish.usage.cost_usd == pytest.approx(0.05)
    assert finish.usage.cost_complete


async def test_one_level_unless_it_is_built_on_purpose():
    grandchild = Agent(scripted("deep"))
    child = Agent(scripted(call("deeper", prompt="go"), "no such tool"), tools=[look, grandchild.as_tool("deeper")])
    result = await parent_of(child.as_tool("deep")).run("go")
    assert [spec.name for spec in child.model.requests[0].tools] == ["look"]
    assert results_of(result) == ["no such tool"] and not grandchild.model.requests


async def test_instructions_and_limits_may_be_its_own():
    child = Agent(scripted(*[call("look", place=str(n)) for n in range(9)]), instructions="Old.", tools=[look])
    asked = child.as_tool("deep", instructions="New.", limits=Limits(steps=2))
    result = await parent_of(asked).run("go")
    assert child.model.requests[0].instructions == "New." and len(child.model.requests) == 2
    assert "stopped short: it reached its limit on steps" in results_of(result)[0]
    assert result.steps[0].results[0].is_error


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        (([error("the provider is down")],), "stopped short: the provider is down"),
        ((["half an ans", error("reset")],), "half an ans\n[The sub-agent stopped short: reset"),
    ],
    ids=["at once", "midway"],
)
async def test_a_sub_agent_that_breaks_is_an_error_result(steps, told):
    result = await parent_of(Agent(scripted(*steps)).as_tool("deep")).run("go")
    assert told in results_of(result)[0] and result.steps[0].results[0].is_error
    assert result.text == "done"


async def test_what_a_broken_sub_agent_used_counts():
    child = Agent(scripted(call("look", place="x"), error("broken")), tools=[look])
    result = await parent_of(child.as_tool("deep")).run("go")
    assert result.usage.total_tokens == 30


async def test_an_answer_that_was_cut_is_told_as_such():
    from treadle.testing.script import step

    child = Agent(scripted(step("half", stop="max_tokens")))
    result = await parent_of(child.as_tool("deep")).run("go")
    assert results_of(result) == ["half\n[The sub-agent stopped short: its answer ended with max_tokens.]"]


async def test_a_typed_sub_agent_returns_json():
    child = Agent(scripted("[1, 2]"), output=list[int])
    assert results_of(await parent_of(child.as_tool("deep")).run("go")) == ["[1,2]"]


async def test_the_run_s_dependencies_reach_the_sub_agent():
    @tool
    def whose(context: ToolContext[str]) -> str:
        """Tell."""
        return context.deps

    child = Agent(scripted(call("whose"), "told"), tools=[whose], deps=str)
    parent = Agent(scripted(call("deep", prompt="go"), "done"), tools=[child.as_tool("deep")], deps=str)
    await parent.run("go", deps="mine")
    assert child.model.requests[1].messages[-1].results[0].content == "mine"


# Events


async def test_events_reach_the_parent_s_log_only_if_asked_for():
    def child():
        return Agent(scripted("from below"), name="child").as_tool("deep")

    assert not only(await events_of(parent_of(child())), SubagentEvent)
    loud = Agent(scripted("from below"), name="child").as_tool("deep", forward_events=True)
    events = await events_of(parent_of(loud))
    assert_whole(events)
    forwarded = only(events, SubagentEvent)
    inner = [event.event for event in forwarded]
    assert isinstance(inner[0], RunStart) and isinstance(inner[-1], RunFinish)
    assert [event.seq for event in inner] == list(range(len(inner)))
    assert inner[0].parent.run_id == events[0].run_id
    assert {event.call_id for event in forwarded} == {inner[0].parent.call_id}
    assert "from below" in [event.text for event in inner if isinstance(event, TextDelta)]
    assert [decode_event(encode_event(event)) for event in events] == events
    assert "from below" not in str(fold(events)[0])


# Who may do what


async def child_writes(**options):
    """Whether a sub-agent wrote something, and its run's options."""
    wrote = []

    @tool(effect="write")
    def scribble(text: str) -> str:
        """Write."""
        wrote.append(text)
        return "written"

    as_tool = options.pop("as_tool", {})
    child = Agent(scripted(call("scribble", text="x"), "done below"), tools=[scribble], **options.pop("child", {}))
    await parent_of(child.as_tool("deep", **as_tool), **options).run("go")
    return wrote


async def test_where_nobody_approves_anything_nothing_is_denied():
    assert await child_writes() == ["x"]


@pytest.mark.parametrize(
    "options",
    [{"approve": lambda request: Allow()}, {"child": {"approve": lambda request: Allow()}}],
    ids=["the caller's", "its own"],
)
async def test_where_somebody_approves_a_sub_agent_s_calls_are_denied(options):
    assert await child_writes(**options) == []


async def test_a_policy_given_on_purpose_decides():
    allow = {"as_tool": {"approve": lambda request: Allow()}}
    assert await child_writes(**allow, approve=lambda request: Allow()) == ["x"]
    assert await child_writes(as_tool={"approve": approve_effects("read")}) == []


async def test_a_pause_below_is_told_and_leaves_nothing_open():
    child = Agent(scripted(call("look", place="x")), tools=[look])
    result = await parent_of(child.as_tool("deep", approve=lambda request: Pause())).run("go")
    assert "waits for an approval" in results_of(result)[0] and result.complete


@pytest.mark.parametrize(
    ("tools", "effect"), [((), "read"), ((look,), "read"), ((look, write), "write")], ids=["none", "read", "write"]
)
def test_a_sub_agent_has_the_strongest_effect_of_its_tools(tools, effect):
    assert Agent(scripted(), tools=tools).as_tool("deep").effect == effect


# Building and ending


def test_what_cannot_be_is_told_when_the_agent_is_built():
    with pytest.raises(ConfigError, match="instructions"):
        Agent(scripted()).as_tool("deep", instructions=3)
    with pytest.raises(ConfigError, match="tool name"):
        Agent(scripted()).as_tool("deep thought")
    with pytest.raises(ConfigError, match="limits"):
        Agent(scripted()).as_tool("deep", limits=3)
    with pytest.raises(UnsupportedError):
        Agent(ScriptedModel(capabilities=Capabilities()), reasoning=Reasoning()).as_tool("deep")


async def test_cancelling_the_parent_reaches_the_lowest_tool_and_its_usage_is_kept():
    entered, cancelled = asyncio.Event(), asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return ""

    grandchild = Agent(scripted(call("wait")), tools=[wait])
    child = Agent(scripted(call("deeper", prompt="go")), tools=[grandchild.as_tool("deeper")])
    events = []
    parent = parent_of(child.as_tool("deep", nested=True), taps=[events.append])
    task = asyncio.create_task(parent.run("go"))
    await asyncio.wait_for(entered.wait(), BOUND)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, BOUND)
    assert cancelled.is_set()
    assert events[-1].stop is StopReason.CANCELLED and events[-1].usage.total_tokens == 30


async def test_parallel_children_do_not_mix():
    children = [Agent(scripted(f"answer {n}")).as_tool(f"child_{n}") for n in range(8)]
    result = await parent_of(*children, parallelism=8).run("go")
    assert results_of(result) == [f"answer {n}" for n in range(8)]
    assert result.usage.total_tokens == 100


async def test_a_token_limit_counts_what_children_used():
    child = Agent(scripted(*["answer"] * 9))
    steps = [call("deep", prompt="go")] * 9
    parent = Agent(scripted(*steps), tools=[child.as_tool("deep")], limits=Limits(tokens=45, steps=9))
    with pytest.raises(RunError) as caught:
        await parent.run("go")
    assert caught.value.limit == "tokens"


async def test_a_sub_agent_called_outside_of_a_run_works_too():
    child = Agent(scripted("alone"))
    parent = Agent(scripted(), tools=[child.as_tool("deep")])
    assert (await parent.call_tool("deep", {"prompt": "go"})).content == "alone"


async def test_time_in_which_a_child_waits_for_a_person_counts_towards_no_limit_of_the_tree():
    async def slow_person(request):
        await asyncio.sleep(0.3)
        return Allow()

    child = Agent(scripted(call("write", text="x"), "written"), tools=[write])
    parent = parent_of(child.as_tool("writer", approve=slow_person), limits=Limits(seconds=0.2))
    result = await asyncio.wait_for(parent.run("go"), BOUND)
    assert results_of(result) == ["written"]
