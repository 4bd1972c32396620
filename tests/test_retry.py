"""Retry and fallback over scripted models. That the requests are as many at a server: tests/providers/test_retry_at_a_server.py."""

import asyncio
import contextlib
import logging
import math
import time

import pytest

from treadle import (
    Agent,
    AssistantMessage,
    Capabilities,
    ConfigError,
    Limits,
    ModelError,
    ModelFinish,
    ModelRef,
    ModelRequest,
    ModelRetry,
    RateLimitError,
    Reasoning,
    Retry,
    RetryBudgetExceeded,
    RunError,
    RunFinish,
    StopReason,
    TextDelta,
    TextPart,
    UnsupportedError,
    UserMessage,
    fallback,
    fold,
    retry,
    tool,
)
from treadle.retry import MAX_RETRY_AFTER_SECONDS
from treadle.testing import ScriptedModel, call, error, think

BOUND = 10.0
AT_ONCE = Retry(base_seconds=0)
HELLO = ModelRequest(None, (UserMessage("hello"),))


def busy(text="busy", **options):
    return error(text, **{"status": 503, "retryable": True, **options})


async def events_of(agent, prompt="hello", **options):
    async with agent.stream(prompt, **options) as run:
        return [event async for event in run], await run.result()


async def answer_of(model):
    return [event async for event in model.stream(HELLO)]


# What is tried again


async def test_an_agent_tries_again_by_itself_and_tells_each_time(caplog):
    model = ScriptedModel(busy("too busy"), busy("still busy"), "hello")
    with caplog.at_level(logging.WARNING, "treadle"):
        events, result = await events_of(Agent(model, retry=AT_ONCE))
    assert result.text == "hello" and result.stop is StopReason.END and len(result.steps) == 1
    retries = [event for event in events if isinstance(event, ModelRetry)]
    assert [(event.attempt, event.error) for event in retries] == [(1, "too busy"), (2, "still busy")]
    assert all(event.run_id == result.id for event in retries)
    assert [event.seq for event in events] == list(range(len(events)))
    assert [record.getMessage() for record in caplog.records] == [
        "attempt 1 of 3 failed, the next in 0.0 s: too busy",
        "attempt 2 of 3 failed, the next in 0.0 s: still busy",
    ]
    assert fold(events) == result.messages
    model.assert_used_up()


def test_agents_retry_by_default_three_attempts_in_all():
    assert Agent(ScriptedModel()).retry == Retry() == Retry(attempts=3, base_seconds=0.5, max_seconds=8)


async def test_the_last_attempt_s_error_is_raised_with_its_number():
    model = ScriptedModel(busy("one"), busy("two"), busy("three"), "never asked for")
    with pytest.raises(RunError, match="three") as caught:
        await Agent(model, retry=AT_ONCE).run("hello")
    assert isinstance(caught.value.__cause__, ModelError) and caught.value.__cause__.attempt == 3
    assert len(model.requests) == 3


async def test_none_turns_it_off():
    model = ScriptedModel(busy(), "never asked for")
    with pytest.raises(RunError) as caught:
        await Agent(model, retry=None).run("hello")
    assert len(model.requests) == 1 and caught.value.__cause__.attempt == 1


async def test_what_does_not_say_that_it_may_be_retried_is_not():
    model = ScriptedModel(error("no such model", status=404), "never asked for")
    with pytest.raises(RunError, match="no such model"):
        await Agent(model, retry=AT_ONCE).run("hello")
    assert len(model.requests) == 1


async def test_any_exception_may_say_that_it_may_be_retried():
    class Hiccup(RuntimeError):
        retryable = True

    class Maybe(RuntimeError):
        retryable = "yes"

    assert (await Agent(ScriptedModel(error(Hiccup("ow")), "fine"), retry=AT_ONCE).run("hello")).text == "fine"
    with pytest.raises(RunError):
        await Agent(ScriptedModel(error(Maybe("ow")), "fine"), retry=AT_ONCE).run("hello")


@pytest.mark.parametrize("first", ["Hello wor", think("hm"), call("save", a=1)], ids=["text", "reasoning", "call"])
async def test_nothing_is_tried_again_once_a_part_of_the_answer_was_yielded(first):
    ran = []

    @tool
    def save(a: int) -> str:
        """Save."""
        ran.append(a)
        return "saved"

    model = ScriptedModel([first, busy("reset")], "never asked for")
    with pytest.raises(RunError, match="reset") as caught:
        await Agent(model, tools=[save], retry=AT_ONCE).run("hello")
    assert len(model.requests) == 1 and not ran
    assert caught.value.__cause__.attempt == 1


class Scripted:
    """A model of which each answer is made by a function of its number."""

    provider, name, capabilities = "scripted", "by hand", Capabilities()

    def __init__(self, answer):
        self.answer, self.asked = answer, 0

    def stream(self, request):
        self.asked += 1
        return self.answer(self.asked)


class Answers:
    """An answer that is no generator: it may lack `aclose`, or fail in it."""

    def __init__(self, *events):
        self.events = iter(events)

    def __aiter__(self):
        return self

    async def __anext__(self):
        event = next(self.events, None)
        if event is None:
            raise StopAsyncIteration
        if isinstance(event, Exception):
            raise event
        return event


class Unclosable(Answers):
    async def aclose(self):
        raise RuntimeError("it is stuck")


FINE = ModelFinish(AssistantMessage((TextPart("fine"),)))


def raises(number):
    if number == 1:
        raise ModelError("not now", retryable=True)
    return Answers(FINE)


def breaks(number):
    return Answers(ModelError("not now", retryable=True) if number == 1 else FINE)


def breaks_and_cannot_close(number):
    return Unclosable(ModelError("not now", retryable=True) if number == 1 else FINE)


@pytest.mark.parametrize("answer", [raises, breaks, breaks_and_cannot_close])
async def test_it_does_not_matter_how_a_model_fails(answer, caplog):
    model = Scripted(answer)
    assert (await Agent(model, retry=AT_ONCE).run("hello")).text == "fine" and model.asked == 2
    for wrapped in (
        retry(Scripted(answer), AT_ONCE),
        retry(Scripted(answer), Retry(base_seconds=0, budget_seconds=BOUND)),
        fallback(Scripted(answer), Scripted(lambda _: Answers(FINE))),
    ):
        told, finish = await answer_of(wrapped)
        assert isinstance(told, ModelRetry) and told.error == "not now"
        assert finish.message == FINE.message
    with pytest.raises(ModelError, match="not now") as caught:
        await answer_of(retry(Scripted(answer), Retry(attempts=1)))
    assert caught.value.attempt == 1


async def test_a_stream_that_cannot_be_closed_takes_nothing_from_its_answer(caplog):
    with caplog.at_level(logging.WARNING, "treadle"):
        assert (await Agent(Scripted(lambda _: Unclosable(FINE)), retry=None).run("hello")).text == "fine"
    assert "failed while it was closed" in caplog.text


async def test_every_step_has_its_own_attempts():
    @tool
    def now() -> str:
        """The time."""
        return "noon"

    model = ScriptedModel(busy(), busy(), call("now"), busy(), busy(), "noon it is")
    result = await Agent(model, tools=[now], retry=AT_ONCE).run("hello")
    assert result.text == "noon it is" and len(result.steps) == 2


async def test_the_same_request_is_sent_again():
    model = ScriptedModel(busy(), "fine")
    await Agent(model, retry=AT_ONCE).run("hello")
    assert model.requests[0] == model.requests[1]


# How long it waits


@pytest.mark.parametrize(("attempt", "longest"), [(1, 0.5), (2, 1), (3, 2), (5, 8), (6, 8), (10_000, 8)])
def test_the_wait_doubles_up_to_its_most_and_is_jittered(attempt, longest):
    policy = Retry(attempts=100_000)
    waits = {policy.delay_seconds(ModelError("busy", retryable=True), attempt) for _ in range(50)}
    assert len(waits) > 40
    assert all(longest / 2 <= wait <= longest for wait in waits)


@pytest.mark.parametrize("wanted", [0.0, 0.25, 2.0, MAX_RETRY_AFTER_SECONDS])
def test_a_retry_after_goes_before_the_backoff(wanted):
    failure = RateLimitError("slow down", retry_after_seconds=wanted)
    for _ in range(20):
        assert wanted <= Retry(max_seconds=0.1).delay_seconds(failure, 1) <= wanted * 1.1


@pytest.mark.parametrize("odd", [-5.0, math.nan, None, "soon"])
def test_an_odd_retry_after_means_the_normal_wait(odd):
    failure = RateLimitError("slow down", retry_after_seconds=odd)
    assert 0.25 <= Retry().delay_seconds(failure, 1) <= 0.5


@pytest.mark.parametrize("wanted", [MAX_RETRY_AFTER_SECONDS + 1, 86_400.0, math.inf])
async def test_a_retry_after_beyond_the_limit_is_an_error_at_once_that_carries_it(wanted):
    model = ScriptedModel(error(RateLimitError("come back tomorrow", retry_after_seconds=wanted)), "never asked for")
    with pytest.raises(RunError) as caught:
        await asyncio.wait_for(Agent(model).run("hello"), BOUND)
    assert caught.value.__cause__.retry_after_seconds == wanted and len(model.requests) == 1


def test_a_longer_most_allows_a_longer_retry_after():
    failure = RateLimitError("slow down", retry_after_seconds=100)
    assert Retry(max_seconds=120).delay_seconds(failure, 1) >= 100


async def test_the_wait_is_the_one_that_the_event_tells():
    model = ScriptedModel(error(RateLimitError("slow down", retry_after_seconds=0.05)), "fine")
    started = time.monotonic()
    events, _ = await events_of(Agent(model))
    (told,) = [event for event in events if isinstance(event, ModelRetry)]
    assert 0.05 <= told.delay_seconds <= time.monotonic() - started


async def test_cancelling_ends_the_wait_at_once():
    model = ScriptedModel(busy(), "never asked for")
    waiting = asyncio.Event()
    agent = Agent(
        model,
        retry=Retry(base_seconds=1_000, max_seconds=1_000),
        taps=[lambda event: waiting.set() if isinstance(event, ModelRetry) else None],
    )
    task = asyncio.create_task(agent.run("hello"))
    await asyncio.wait_for(waiting.wait(), BOUND)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, BOUND)
    assert len(model.requests) == 1


async def test_leaving_the_run_ends_the_wait_too():
    model = ScriptedModel(busy(), "never asked for")
    async with asyncio.timeout(BOUND):
        async with Agent(model, retry=Retry(base_seconds=1_000, max_seconds=1_000)).stream("hello") as run:
            async for event in run:
                if isinstance(event, ModelRetry):
                    break
    assert len(model.requests) == 1


# The budget


async def test_the_budget_interrupts_a_wait():
    model = ScriptedModel(busy("out of order"), "never asked for")
    policy = Retry(base_seconds=0.15, max_seconds=0.15, budget_seconds=0.2, attempts=9)
    model = ScriptedModel(*[busy("out of order")] * 9)
    with pytest.raises(RunError, match=r"0\.2 seconds allowed.*out of order") as caught:
        await asyncio.wait_for(Agent(model, retry=policy).run("hello"), BOUND)
    cause = caught.value.__cause__
    assert isinstance(cause, RetryBudgetExceeded) and isinstance(cause.__cause__, ModelError)
    assert cause.status == 503 and not cause.retryable
    assert 1 <= len(model.requests) <= 3
    assert caught.value.result.stop is StopReason.ERROR


async def test_a_wait_that_would_end_behind_the_budget_is_not_begun():
    model = ScriptedModel(error(RateLimitError("slow down", retry_after_seconds=50)), "never asked for")
    with pytest.raises(RunError) as caught:
        await asyncio.wait_for(Agent(model, retry=Retry(budget_seconds=20)).run("hello"), BOUND)
    assert isinstance(caught.value.__cause__, RetryBudgetExceeded)
    assert caught.value.__cause__.retry_after_seconds == 50


class Endless:
    """A model that goes well and never ends."""

    provider, name, capabilities = "endless", "endless", Capabilities()

    async def stream(self, request):
        yield TextDelta("well")
        await asyncio.Event().wait()


async def test_the_budget_interrupts_an_answer_that_goes_well_and_keeps_what_there_is():
    with pytest.raises(RunError) as caught:
        await asyncio.wait_for(Agent(Endless(), retry=Retry(budget_seconds=0.05)).run("hello"), BOUND)
    assert isinstance(caught.value.__cause__, RetryBudgetExceeded)
    assert caught.value.__cause__.__cause__ is None
    assert "well" in str(caught.value.result.messages)


async def test_the_budget_is_one_for_the_whole_run_and_stops_its_tools():
    stopped = asyncio.Event()

    @tool
    async def sleep() -> str:
        """Sleep."""
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return "slept"

    model = ScriptedModel(call("sleep"), "never asked for")
    events = []
    agent = Agent(model, tools=[sleep], retry=Retry(budget_seconds=0.05), taps=[events.append])
    with pytest.raises(RunError) as caught:
        await asyncio.wait_for(agent.run("hello"), BOUND)
    assert isinstance(caught.value.__cause__, RetryBudgetExceeded) and stopped.is_set()
    assert isinstance(events[-1], RunFinish) and events[-1].stop is StopReason.ERROR and events[-1].limit is None
    assert fold(events) == caught.value.result.messages


async def test_a_callers_own_cancel_is_not_taken_for_the_budget():
    task = asyncio.create_task(Agent(Endless(), retry=Retry(budget_seconds=1_000)).run("hello"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, BOUND)


async def test_the_limit_on_seconds_stays_a_stop_beside_the_budget():
    agent = Agent(Endless(), limits=Limits(seconds=0.05), retry=Retry(budget_seconds=1_000))
    async with agent.stream("hello") as run:
        events = [event async for event in run]
    assert events[-1].stop is StopReason.BUDGET and events[-1].limit == "seconds"


async def test_the_budget_is_over_between_two_steps_too():
    agent = Agent(Endless(), retry=Retry(budget_seconds=0))
    async with agent.stream("hello") as run:
        events = [await anext(aiter(run))]
        for _ in range(3):  # the consumer takes its time
            await asyncio.sleep(0)
        with pytest.raises(RunError) as caught:
            await run.result()
    assert isinstance(caught.value.__cause__, RetryBudgetExceeded) and events


# Bare models


async def test_a_bare_model_is_wrapped_by_retry():
    model = ScriptedModel(busy(), "fine")
    events = await answer_of(retry(model, AT_ONCE))
    assert [type(event) for event in events] == [ModelRetry, TextDelta, ModelFinish]


async def test_layers_never_multiply():
    model = ScriptedModel(*[busy()] * 20)
    twice = retry(retry(model, Retry(attempts=2, base_seconds=0)), Retry(attempts=5, base_seconds=0))
    with pytest.raises(RunError):
        await Agent(twice, retry=Retry(attempts=7, base_seconds=0)).run("hello")
    assert len(model.requests) == 2


async def test_a_wrapped_model_can_what_the_model_can():
    class Counting(ScriptedModel):
        closed = 0

        async def count_tokens(self, request):
            return 7

        async def aclose(self):
            self.closed += 1

        def check(self, request):
            if request.settings is not None:
                raise UnsupportedError("no settings")

    model = Counting()
    wrapped = retry(model)
    assert (wrapped.provider, wrapped.name, wrapped.capabilities) == (model.provider, model.name, model.capabilities)
    assert await Agent(wrapped).count_tokens("hello") == 7
    await wrapped.aclose()
    assert model.closed == 1
    assert "Retry(" in repr(wrapped)
    from treadle import ModelSettings

    with pytest.raises(UnsupportedError, match="no settings"):
        Agent(wrapped, settings=ModelSettings(seed=1))


async def test_a_bare_model_has_a_budget_for_each_request():
    wrapped = retry(Endless(), Retry(budget_seconds=0.05))
    stream = aiter(wrapped.stream(HELLO))
    assert await anext(stream) == TextDelta("well")
    with pytest.raises(RetryBudgetExceeded, match=r"0\.05 seconds"):
        await asyncio.wait_for(anext(stream), BOUND)
    fine = retry(ScriptedModel(busy(), "fine", "again"), Retry(base_seconds=0, budget_seconds=1_000))
    assert isinstance((await answer_of(fine))[-1], ModelFinish)
    assert isinstance((await answer_of(fine))[-1], ModelFinish)


async def test_a_timeout_of_the_model_s_own_is_not_the_budget():
    wrapped = retry(ScriptedModel(error(TimeoutError("mine"))), Retry(budget_seconds=1_000))
    with pytest.raises(TimeoutError, match="mine"):
        await answer_of(wrapped)


@pytest.mark.parametrize(
    "options",
    [
        {"attempts": 0},
        {"attempts": 1.5},
        {"attempts": True},
        {"base_seconds": -1},
        {"max_seconds": math.nan},
        {"max_seconds": None},
        {"budget_seconds": math.inf},
        {"budget_seconds": "5"},
    ],
    ids=str,
)
def test_a_policy_that_makes_no_sense_is_refused(options):
    with pytest.raises(ConfigError, match=next(iter(options))):
        Retry(**options)


def test_an_agent_refuses_what_is_no_policy():
    with pytest.raises(ConfigError, match="retry is a Retry"):
        Agent(ScriptedModel(), retry=3)


# Fallback


def named(name, *steps, **capabilities):
    model = ScriptedModel(*steps, name=name)
    if capabilities:
        model.capabilities = Capabilities(**capabilities)
    return model


async def test_the_next_model_answers_where_one_fails(caplog):
    first, second = named("first", error("no key", status=401)), named("second", "hello")
    with caplog.at_level(logging.WARNING, "treadle"):
        events, result = await events_of(Agent(fallback(first, second), retry=None))
    assert result.text == "hello"
    assert result.steps[0].model == ModelRef("scripted", "second")
    (told,) = [event for event in events if isinstance(event, ModelRetry)]
    assert (told.attempt, told.delay_seconds, told.error) == (1, 0.0, "no key")
    assert "scripted:first failed: no key; asking scripted:second" in caplog.text


async def test_the_last_model_s_error_is_the_one_that_is_raised():
    with pytest.raises(RunError, match="second"):
        await Agent(fallback(named("a", error("first")), named("b", error("second"))), retry=None).run("hello")


async def test_a_model_that_yielded_something_is_not_replaced():
    second = named("second", "never asked for")
    with pytest.raises(RunError, match="reset"):
        await Agent(fallback(named("first", ["Hel", busy("reset")]), second), retry=None).run("hello")
    assert not second.requests


@pytest.mark.parametrize(
    ("on", "falls_back"),
    [
        (RateLimitError, True),
        ((ValueError, RateLimitError), True),
        (lambda failure: failure.status == 429, True),
        (ValueError, False),
        (lambda failure: failure.status == 500, False),
    ],
)
async def test_on_says_which_failures_are_passed_over(on, falls_back):
    model = fallback(named("a", error(RateLimitError("full", status=429))), named("b", "hello"), on=on)
    if falls_back:
        assert (await Agent(model, retry=None).run("hello")).text == "hello"
    else:
        with pytest.raises(RunError, match="full"):
            await Agent(model, retry=None).run("hello")


async def test_what_is_no_failure_of_a_model_is_not_passed_over():
    second = named("second", "never asked for")
    with pytest.raises(RunError, match="a bug"):
        await Agent(fallback(named("first", error(RuntimeError("a bug"))), second)).run("hello")
    assert not second.requests


async def test_an_agent_goes_round_all_models_and_asks_each_as_often_as_it_may():
    first, second = named("a", *[busy()] * 9), named("b", *[busy()] * 9)
    with pytest.raises(RunError):
        await Agent(fallback(first, second), retry=AT_ONCE).run("hello")
    assert (len(first.requests), len(second.requests)) == (3, 3)


async def test_an_agent_leaves_the_retries_to_a_model_inside_that_makes_its_own():
    first, second = named("a", *[busy()] * 9), named("b", *[busy()] * 9)
    model = fallback(retry(first, AT_ONCE), second)
    with pytest.raises(RunError):
        await Agent(model, retry=Retry(attempts=5, base_seconds=0)).run("hello")
    assert (len(first.requests), len(second.requests)) == (3, 1)
    assert retry(model) is model


def test_a_fallback_can_what_all_its_models_can():
    both = fallback(
        named("a", tools=True, files=True, reasoning=True, min_reasoning_budget=1_024),
        named("b", tools=True, files=False, reasoning=True, min_reasoning_budget=1),
    )
    assert both.capabilities == Capabilities(tools=True, reasoning=True, min_reasoning_budget=1_024)
    with pytest.raises(UnsupportedError):
        Agent(
            fallback(named("a", reasoning=True, min_reasoning_budget=1), named("b", reasoning=True)),
            reasoning=Reasoning(budget_tokens=2_000),
        )


def test_a_fallback_needs_two_models_and_takes_names():
    with pytest.raises(ConfigError, match="two models"):
        fallback(ScriptedModel())
    model = fallback("openai-chat:a", "groq:b")
    assert [str(part.provider) for part in model.models] == ["openai-chat", "groq"]
    with pytest.raises(ConfigError, match="model is a Model"):
        fallback("openai-chat:a", 3)


async def test_a_fallback_checks_counts_and_closes_its_models():
    closed = []

    class Counting(ScriptedModel):
        async def count_tokens(self, request):
            return 7

        async def aclose(self):
            closed.append(self)

    first, second = Counting(), Counting()
    model = fallback(first, second)
    assert await Agent(model).count_tokens("hello") == 7
    await model.aclose()
    assert closed == [first, second]
    assert repr(model).startswith("fallback(")


async def test_who_answered_is_named_also_where_the_model_does_not_say_it():
    class Silent:
        provider, name, capabilities = "silent", "s", Capabilities()

        async def stream(self, request):
            yield TextDelta("hello")
            yield ModelFinish(AssistantMessage((TextPart("hello"),)))

    result = await Agent(fallback(named("first", error("no key")), Silent())).run("hello")
    assert result.steps[0].model == ModelRef("silent", "s") == result.messages[-1].model


async def test_closing_a_stream_closes_the_model_s_own():
    closed = []

    class Watching:
        provider, name, capabilities = "w", "w", Capabilities()

        async def stream(self, request):
            try:
                yield TextDelta("a")
                yield TextDelta("b")
            finally:
                closed.append(True)

    for model in (retry(Watching()), retry(Watching(), Retry(budget_seconds=5)), fallback(Watching(), Watching())):
        async with contextlib.aclosing(model.stream(HELLO)) as stream:
            assert await anext(stream) == TextDelta("a")
    assert len(closed) == 3
