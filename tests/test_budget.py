"""Budgets of whole trees: reserved before a request, settled behind it, never overshot together."""

import asyncio
import contextlib
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.runs import events_of, only
from treadle import (
    Agent,
    AssistantMessage,
    Capabilities,
    ConfigError,
    LimitExceeded,
    Limits,
    ModelFinish,
    Remaining,
    Retry,
    StepFinish,
    StopReason,
    TextDelta,
    TextPart,
    ToolCallPart,
    ToolContext,
    Usage,
    fallback,
    retry,
    tool,
)
from treadle._budget import Amount, Budget
from treadle.pricing import Price
from treadle.testing import ScriptedModel, call

BOUND = 10.0
COSTS = (0.179421, 0.218826)
DEAR = Price(input_usd=1.0, output_usd=1_000_000.0)  # a dollar for a token of output


class Measured:
    """A model that bills what it is asked for at most, or a part of it: `bill` decides on the output tokens."""

    provider, name = "measured", "m"
    capabilities = Capabilities()
    price = Price(input_usd=0.0, output_usd=1_000_000.0)

    def __init__(self, bill=lambda most: most, steps=(), gate=None):
        self.bill, self.steps, self.gate = bill, list(steps), gate
        self.limits = []
        self.going = self.most_going = 0

    async def stream(self, request):
        self.limits.append(request.max_output_tokens)
        self.going += 1
        self.most_going = max(self.going, self.most_going)
        try:
            if self.gate is not None:
                await self.gate(self)
            step = self.steps.pop(0) if self.steps else "done"
            if isinstance(step, Exception):
                raise step
            parts = (TextPart(step),) if isinstance(step, str) else tuple(step)
            yield TextDelta("x")
            stop = StopReason.END if isinstance(step, str) else StopReason.TOOL_CALLS
            usage = Usage(output_tokens=self.bill(request.max_output_tokens))
            yield ModelFinish(AssistantMessage(parts, stop), usage=usage, stop=stop)
        finally:
            self.going -= 1


def asks(*names):
    return [ToolCallPart(f"call_{n}", name, '{"prompt":"go"}') for n, name in enumerate(names)]


async def stopped(agent, prompt="go"):
    with pytest.raises(LimitExceeded) as caught:
        await asyncio.wait_for(agent.run(prompt), BOUND)
    return caught.value


# Money


async def test_a_request_that_does_not_fit_is_not_sent():
    model = Measured()
    error = await stopped(Agent(model, limits=Limits(usd=0.5), retry=None))
    assert (error.limit, error.result.stop, model.limits) == ("usd", StopReason.BUDGET, [])


async def test_the_output_limit_is_lowered_to_what_is_left():
    @tool
    def again(prompt: str) -> str:
        """Again."""
        return "yes"

    model = Measured(steps=[asks("again"), asks("again"), asks("again")])
    error = await stopped(Agent(model, tools=[again], limits=Limits(usd=25), max_output_tokens=10))
    assert model.limits == [10, 10, 5] and error.limit == "usd"
    assert error.result.usage.output_tokens == 25


async def test_a_request_within_the_budget_is_sent_as_it_is():
    model = Measured(bill=lambda most: 3)
    result = await Agent(model, limits=Limits(usd=1_000), max_output_tokens=10).run("go")
    assert model.limits == [10] and result.complete


async def test_the_providers_own_figure_settles_and_prices_only_where_there_is_none():
    @tool
    def again(prompt: str) -> str:
        """Again."""
        return "yes"

    class Cheap(Measured):
        async def stream(self, request):
            async for event in super().stream(request):
                if isinstance(event, ModelFinish):
                    usage = Usage(output_tokens=event.usage.output_tokens, cost_usd=0.25)
                    yield ModelFinish(event.message, usage=usage, stop=event.stop)
                else:
                    yield event

    model = Cheap(steps=[asks("again")] * 3)
    result = await Agent(model, tools=[again], limits=Limits(usd=11), max_output_tokens=10).run("go")
    assert result.complete and result.usage.cost_usd == 1.0


async def test_a_provider_that_bills_more_than_its_most_is_shown():
    model = Measured(bill=lambda most: most * 3, steps=[asks("again")])

    @tool
    def again(prompt: str) -> str:
        """Again."""
        return "yes"

    events = await events_of(Agent(model, tools=[again], limits=Limits(usd=20), max_output_tokens=10))
    assert only(events, StepFinish)[0].remaining.usd == pytest.approx(-10)
    assert events[-1].usage.output_tokens == 30 and events[-1].limit == "usd"


def test_a_model_without_a_price_is_refused_unless_told_otherwise():
    with pytest.raises(ConfigError, match="no known price"):
        Agent(ScriptedModel("hi"), limits=Limits(usd=1))
    assert Agent(ScriptedModel("hi"), limits=Limits(usd=1, allow_unpriced=True)).run_sync("go").text == "hi"


async def test_an_unpriced_child_of_a_limited_parent_is_refused_too():
    child = Agent(ScriptedModel("never asked for")).as_tool("child")
    model = Measured(steps=[asks("child")], bill=lambda most: 1)
    result = await Agent(model, tools=[child], limits=Limits(usd=100), max_output_tokens=10).run("go")
    assert "no known price" in result.steps[0].results[0].content


def test_list_prices_serve_where_a_model_has_none():
    agent = Agent(ScriptedModel("hi", provider="openai", name="gpt-4o"), limits=Limits(usd=10))
    assert agent.run_sync("go").text == "hi"
    agent = Agent(ScriptedModel("hi", provider="openai", name="gpt-4o"), limits=Limits(usd=0.000001))
    with pytest.raises(LimitExceeded):
        agent.run_sync("go")


async def test_the_dearest_of_the_models_that_may_answer_counts():
    cheap, dear = Measured(), Measured()
    cheap.price = Price(input_usd=0, output_usd=1)
    agent = Agent(fallback(retry(cheap), dear), limits=Limits(usd=5), max_output_tokens=100)
    await agent.run("go")
    assert cheap.limits == [5]
    with pytest.raises(ConfigError, match="no known price"):
        Agent(fallback(cheap, ScriptedModel()), limits=Limits(usd=5))


async def test_what_broke_off_is_taken_for_spent_only_once_it_began():
    class Breaking(Measured):
        async def stream(self, request):
            yield TextDelta("half an ans")
            raise RuntimeError("reset")

    left = []
    for model in (Breaking(), Measured(steps=[RuntimeError("reset")])):
        child = Agent(model, max_output_tokens=10, retry=None).as_tool("child")
        parent = Measured(steps=[asks("child")], bill=lambda most: 0)
        events = await events_of(Agent(parent, tools=[child], limits=Limits(usd=100), max_output_tokens=10))
        left.append(only(events, StepFinish)[0].remaining.usd)
    assert left == [90, 100]


# Tokens


async def test_tokens_are_bounded_by_the_size_of_the_request_and_else_by_the_counter():
    model = Measured(bill=lambda most: 1)
    error = await stopped(Agent(model, limits=Limits(tokens=1_000)), "word " * 400)
    assert error.limit == "tokens" and not model.limits

    class Counting(Measured):
        capabilities = Capabilities(token_counting=True)
        counted = 0

        async def count_tokens(self, request):
            self.counted += 1
            return 400

    model = Counting(bill=lambda most: 1)
    result = await Agent(model, limits=Limits(tokens=1_000)).run("word " * 400)
    assert result.complete and model.counted == 1 and model.limits == [600]
    model = Counting(bill=lambda most: 1)
    await Agent(model, limits=Limits(tokens=100_000)).run("word " * 400)
    assert model.counted == 0, "a count costs a request: only where the size says too much"


async def test_unknown_usage_counts_as_the_worst_case():
    class Silent(Measured):
        async def stream(self, request):
            async for event in super().stream(request):
                yield ModelFinish(event.message, stop=event.stop) if isinstance(event, ModelFinish) else event

    @tool
    def again(prompt: str) -> str:
        """Again."""
        return "yes"

    model = Silent(steps=[asks("again")] * 9)
    error = await stopped(Agent(model, tools=[again], limits=Limits(usd=20), max_output_tokens=10))
    assert len(model.limits) == 2 and error.limit == "usd"


# Trees


async def test_parallel_children_cannot_overshoot_together():
    async def all_at_once(model):
        for _ in range(5):
            await asyncio.sleep(0)

    model = Measured(gate=all_at_once)
    children = [Agent(model, max_output_tokens=10).as_tool(f"child_{n}") for n in range(8)]
    parent = Measured(steps=[asks(*(child.name for child in children))], bill=lambda most: 0)
    parent.price = Price(input_usd=0, output_usd=0)
    agent = Agent(parent, tools=children, limits=Limits(usd=35), parallelism=8)
    result = (await stopped(agent)).result
    assert model.most_going == 3, "three of them fit at once; the others wait for what comes back"
    assert sum(model.limits) == 35 and sorted(model.limits) == [5, 10, 10, 10]
    assert result.usage.output_tokens == 35
    short = [one for one in result.steps[0].results if "limit on usd" in one.content]
    assert len(short) == 4


async def test_what_comes_back_is_used_by_those_who_wait():
    model = Measured(bill=lambda most: 1)
    children = [Agent(model, max_output_tokens=10).as_tool(f"child_{n}") for n in range(8)]
    parent = Measured(steps=[asks(*(child.name for child in children))], bill=lambda most: 0)
    parent.price = Price(input_usd=0, output_usd=0)
    result = await asyncio.wait_for(
        Agent(parent, tools=children, limits=Limits(usd=12), parallelism=8).run("go"), BOUND
    )
    assert not any(one.is_error for one in result.steps[0].results)
    assert result.usage.output_tokens == 8


async def test_calls_of_tools_count_through_the_tree():
    @tool
    def work(prompt: str) -> str:
        """Work."""
        return "done"

    child = Agent(ScriptedModel(*[call("work", prompt="x")] * 9), tools=[work]).as_tool("child")
    model = ScriptedModel(*[call("child", prompt="go")] * 9)
    error = await stopped(Agent(model, tools=[child], limits=Limits(tool_calls=4)))
    assert error.limit == "tool_calls"
    assert "limit on tool calls" in error.result.steps[0].results[0].content


async def test_a_tool_and_the_events_see_what_is_left():
    seen = []

    @tool
    def look(context: ToolContext) -> str:
        """Look."""
        seen.append(context.remaining)
        return "seen"

    model = ScriptedModel(call("look"), "done", usage=Usage(input_tokens=10, output_tokens=5))
    agent = Agent(model, tools=[look], limits=Limits(tokens=5_000, tool_calls=3, seconds=60), max_output_tokens=10)
    events = await events_of(agent)
    assert (seen[0].tokens, seen[0].tool_calls, seen[0].usd) == (4_985, 2, None)
    assert 0 < seen[0].seconds <= 60
    assert [event.remaining.tokens for event in only(events, StepFinish)] == [4_985, 4_970]
    plain = await events_of(Agent(ScriptedModel("done")))
    assert only(plain, StepFinish)[0].remaining is None
    await look.invoke()
    assert seen[-1] == Remaining()


async def test_a_retry_reserves_once():
    model = Measured(steps=[ConnectionResetError("busy"), "done"], bill=lambda most: 1)
    model.steps[0].retryable = True
    agent = Agent(model, limits=Limits(usd=10), max_output_tokens=10, retry=Retry(base_seconds=0))
    assert (await agent.run("go")).complete
    assert model.limits == [10, 10]


@given(seed=st.integers(0, 2**32), usd=st.integers(1, 60), children=st.integers(1, 5))
@settings(deadline=None, max_examples=60)
def test_a_tree_never_spends_more_than_it_may(seed, usd, children):
    rng = random.Random(seed)

    async def hesitate(model):
        for _ in range(rng.randrange(4)):
            await asyncio.sleep(0)

    models = []

    def grow(depth):
        model = Measured(bill=lambda most: rng.randint(0, most), gate=hesitate)
        models.append(model)
        below = [grow(depth - 1).as_tool(f"child_{n}", nested=True) for n in range(children if depth else 0)]
        names = [child.name for child in below]
        model.steps = [asks(*rng.sample(names, rng.randint(1, len(names)))) for _ in range(2)] if names else []
        own = Limits(usd=rng.randint(1, 60)) if rng.random() < 0.3 else Limits()
        return Agent(model, tools=below, limits=own, max_output_tokens=rng.randint(1, 20), parallelism=4)

    root = grow(2)
    agent = root._changed(limits=Limits(usd=usd))
    events = []

    async def run():
        agent_ = agent._changed(taps=(events.append,))
        with contextlib.suppress(LimitExceeded):
            await asyncio.wait_for(agent_.run("go"), BOUND)

    asyncio.run(run())
    assert events[-1].usage.output_tokens <= usd


async def test_what_came_back_is_there_to_the_last_digit():
    # Added and taken off again, these leave a rest.
    assert sum((*COSTS, -COSTS[0], -COSTS[1])) != 0
    tree = Budget(Limits(usd=0.42), None)
    children = Budget(Limits(), tree), Budget(Limits(), tree)
    taken = [await child.reserve(Amount(0, usd), Amount(), 1) for child, usd in zip(children, COSTS, strict=True)]
    for child, (amount, _) in zip(children, taken, strict=True):
        child.settle(amount, Amount())  # never began
    async with asyncio.timeout(BOUND):
        _, allowed = await tree.reserve(Amount(), Amount(1, 2e-06), 1_000_000)
    assert allowed == int(0.42 / 2e-06)


async def test_a_run_never_waits_for_what_it_holds_itself():
    async def asks_twice_at_once(request, call_next):
        async for _ in call_next(request):  # is left open
            async for event in call_next(request):
                yield event
            return

    agent = Agent(Measured(), limits=Limits(usd=5), max_output_tokens=100, wrap_model=asks_twice_at_once)
    async with asyncio.timeout(BOUND):
        assert (await stopped(agent)).limit == "usd"


async def test_of_two_models_of_one_name_the_dearer_price_is_booked():
    class Down(Measured):
        async def stream(self, request):
            raise RuntimeError("down")
            yield

    cheap, dear = Down(), Measured(bill=lambda most: 2)
    cheap.price = Price(input_usd=0, output_usd=1)
    events = await events_of(Agent(fallback(cheap, dear, on=RuntimeError), limits=Limits(usd=5), retry=None))
    assert [event.remaining.usd for event in only(events, StepFinish)] == [3.0]
