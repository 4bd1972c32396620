"""Approval and hooks: who may stop a call, what the model reads of it, and in which order it goes."""

import asyncio
import logging
import time

import pytest

from support.runs import assert_whole, events_of, only
from treadle import (
    Agent,
    Allow,
    ApprovalRequest,
    Capabilities,
    ConfigError,
    Deny,
    Edit,
    Limits,
    Pause,
    Retry,
    StopReason,
    ToolFinish,
    ToolStart,
    approve_effects,
    deny_all,
    detached,
    tool,
    with_timeout,
)
from treadle.hooks import MAX_INJECTED_BYTES
from treadle.testing import ScriptedModel, call

BOUND = 10.0


class Desk:
    """Tools that note what ran."""

    def __init__(self):
        self.ran = []

        @tool(effect="write")
        def write(text: str) -> str:
            """Write."""
            self.ran.append(text)
            return f"wrote {text}"

        @tool(effect="read")
        def read(name: str) -> str:
            """Read."""
            self.ran.append(name)
            return f"read {name}"

        self.tools = [write, read]


@pytest.fixture
def desk():
    return Desk()


def agent_of(desk, *calls, **options):
    return Agent(ScriptedModel(list(calls), "ok"), tools=desk.tools, **options)


async def finishes(agent):
    events = await asyncio.wait_for(events_of(agent), BOUND)
    assert_whole(events)
    return sorted(only(events, ToolFinish), key=lambda event: event.index), events


# Approval


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_a_denied_call_does_not_run_and_the_model_reads_why(desk, asynchronous):
    def policy(request):
        return Deny("not on Sundays") if request.name == "write" else Allow()

    async def later(request):
        return policy(request)

    agent = agent_of(desk, call("write", text="x"), call("read", name="y"), approve=later if asynchronous else policy)
    (denied, allowed), events = await finishes(agent)
    assert denied.is_error and denied.refused and "not on Sundays" in denied.result.content
    assert allowed.result.content == "read y" and desk.ran == ["y"]
    assert len(only(events, ApprovalRequest)) == (2 if asynchronous else 0)
    assert [event.index for event in only(events, ToolStart)] == [0, 1]


async def test_an_edited_call_runs_with_the_new_arguments(desk):
    agent = agent_of(desk, call("write", text="rm -rf"), approve=lambda request: Edit({"text": "ls"}))
    (finish,), events = await finishes(agent)
    assert desk.ran == ["ls"] and finish.result.content == "wrote ls"
    assert only(events, ToolStart)[0].args == '{"text":"ls"}'


async def test_edited_arguments_are_checked_like_the_model_s_own(desk):
    agent = agent_of(desk, call("write", text="x"), approve=lambda request: Edit('{"txt": 1}'))
    (finish,), _ = await finishes(agent)
    assert not desk.ran and finish.is_error and "text" in finish.result.content


async def test_all_calls_are_asked_about_at_once_and_once_each(desk):
    asked, everybody = [], asyncio.Event()

    async def policy(request):
        asked.append(request.call_id)
        if len(asked) == 3:
            everybody.set()
        await everybody.wait()
        return Allow()

    calls = [call("read", name=name) for name in "abc"]
    await finishes(agent_of(desk, *calls, approve=policy, parallelism=1))
    assert len(asked) == len(set(asked)) == 3
    assert desk.ran == ["a", "b", "c"]


@pytest.mark.parametrize(
    "policy", [lambda request: True, lambda request: None, lambda request: 1 / 0, Allow.__class__], ids=range(4)
)
async def test_a_policy_that_fails_or_says_something_else_denies(desk, policy, caplog):
    with caplog.at_level(logging.ERROR, "treadle"):
        (finish,), _ = await finishes(agent_of(desk, call("write", text="x"), approve=policy))
    assert finish.is_error and not desk.ran and "approval" in caplog.text


async def test_a_cancelled_run_cancels_the_asking(desk):
    asked, cancelled = asyncio.Event(), asyncio.Event()

    async def policy(request):
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    task = asyncio.create_task(agent_of(desk, call("write", text="x"), approve=policy).run("hi"))
    await asyncio.wait_for(asked.wait(), BOUND)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, BOUND)
    assert cancelled.is_set() and not desk.ran


async def test_time_spent_on_waiting_for_a_person_counts_towards_nothing():
    @tool(timeout_seconds=5)
    async def work() -> str:
        """Work."""
        return "done"

    async def slow_person(request):
        await asyncio.sleep(0.3)
        return Allow()

    agent = Agent(
        ScriptedModel(call("work"), "ok"),
        tools=[work],
        approve=slow_person,
        limits=Limits(seconds=0.2),
        retry=Retry(budget_seconds=0.2),
    )
    (finish,), events = await finishes(agent)
    assert finish.result.content == "done" and finish.duration_seconds < 0.25
    assert events[-1].stop is StopReason.END


async def test_time_in_which_a_plain_function_keeps_everybody_waiting_does_not_count_either(desk):
    def at_the_prompt(request):
        time.sleep(0.3)  # as input() does
        return Allow()

    agent = agent_of(desk, call("read", name="a"), approve=at_the_prompt, limits=Limits(seconds=0.2))
    _, events = await finishes(agent)
    assert events[-1].stop is StopReason.END and not only(events, ApprovalRequest)


@pytest.mark.parametrize("args", [{"text": object()}, [1], "{", None, {"text": "\ud800"}])
async def test_what_an_edit_gives_that_is_no_arguments_denies(desk, args):
    policy = approve_effects("read", otherwise=lambda request: Edit(args))
    calls = call("write", text="x"), call("write", text="y")
    (first, _), _ = await finishes(agent_of(desk, *calls, approve=policy))
    assert not desk.ran and "Its arguments were edited, and do not fit" in first.result.content


@pytest.mark.parametrize("limits", [Limits(), Limits(tool_calls=1), Limits(tokens=100_000)])
async def test_nobody_is_asked_about_the_typed_answer_itself(desk, limits):
    asked = []
    model = ScriptedModel(
        call("read", name="a"),
        call("final_answer", value=3),
        capabilities=Capabilities(tools=True, output_schema=False),
    )
    hooks = {"before_tool": lambda request: asked.append(request.name)}
    policy = approve_effects("write")
    agent = Agent(model, tools=desk.tools, output=int, approve=policy, hooks=hooks, limits=limits)
    assert (await agent.run("how many?")).output == 3
    assert asked == ["read"] and not desk.ran


async def test_effects_decide_and_the_others_are_asked_about_elsewhere(desk):
    calls = (call("write", text="x"), call("read", name="y"))
    (denied, allowed), _ = await finishes(agent_of(desk, *calls, approve=approve_effects("read")))
    assert denied.is_error and not allowed.is_error and desk.ran == ["y"]
    desk.ran.clear()
    policy = approve_effects("read", otherwise=lambda request: Allow())
    await finishes(agent_of(desk, *calls, approve=policy))
    assert desk.ran == ["x", "y"]
    (denied, also), _ = await finishes(agent_of(desk, *calls, approve=deny_all))
    assert denied.is_error and also.is_error
    with pytest.raises(ConfigError, match="effect"):
        approve_effects("reed")


# Hooks


async def test_a_denial_by_a_hook_is_final_whatever_the_approval_says(desk):
    asked = []

    def policy(request):
        asked.append(request.name)
        return Allow()

    hooks = {"before_tool": [lambda request: None, lambda request: Deny("the house says no")]}
    (finish,), _ = await finishes(agent_of(desk, call("write", text="x"), approve=policy, hooks=hooks))
    assert "the house says no" in finish.result.content and finish.refused and not desk.ran and not asked


async def test_edited_arguments_go_through_the_hooks_again(desk):
    seen = []

    async def hook(request):
        seen.append(request.arguments["text"])
        return Deny("no passwords") if "secret" in request.args else Allow()

    options = {"approve": lambda request: Edit({"text": "secret"}), "hooks": {"before_tool": [hook]}}
    (finish,), _ = await finishes(agent_of(desk, call("write", text="fine"), **options))
    assert seen == ["fine", "secret"] and not desk.ran and "no passwords" in finish.result.content


async def _broken(request):
    raise RuntimeError("broken")


async def _hanging(request):
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    "hook", [_broken, with_timeout(_hanging, 0.01), lambda request: "yes"], ids=["crash", "timeout", "nonsense"]
)
async def test_a_hook_that_crashes_hangs_or_says_nonsense_denies(desk, hook, caplog):
    with caplog.at_level(logging.ERROR, "treadle"):
        (finish,), _ = await finishes(agent_of(desk, call("write", text="x"), hooks={"before_tool": [hook]}))
    assert finish.is_error and not desk.ran and "hook" in caplog.text


async def test_what_after_tool_hooks_say_is_read_behind_the_result(desk):
    async def note(request, output):
        return f"{request.name} said {len(output.content)} characters"

    hooks = {"after_tool": [note, lambda request, output: None, lambda request, output: "and that is all"]}
    (finish,), _ = await finishes(agent_of(desk, call("read", name="y"), hooks=hooks))
    assert finish.result.content == "read y\nread said 6 characters\nand that is all"


async def test_what_hooks_add_is_bounded_and_survives_a_cut_result(desk):
    hooks = {"after_tool": [lambda request, output: "\u00e9" * 20_000]}
    agent = agent_of(desk, call("read", name="y" * 500), hooks=hooks, max_result_bytes=100)
    (finish,), _ = await finishes(agent)
    content = finish.result.content
    assert content.count("\u00e9") == MAX_INJECTED_BYTES // 2
    assert content.startswith("read yyy") and content.count("y") < 110


async def test_an_after_tool_hook_that_fails_loses_nothing(desk, caplog):
    def crash(request, output):
        raise RuntimeError("broken")

    hooks = {"after_tool": [crash, lambda request, output: 3, lambda request, output: "more"]}
    with caplog.at_level(logging.ERROR, "treadle"):
        (finish,), _ = await finishes(agent_of(desk, call("read", name="y"), hooks=hooks))
    assert finish.result.content == "read y\nmore" and not finish.is_error
    assert "broken" in caplog.text and "no text" in caplog.text


async def test_an_after_tool_hook_whose_own_work_is_cancelled_loses_nothing(desk, caplog):
    async def hook(request, output):
        work = asyncio.create_task(asyncio.sleep(60))
        work.cancel()
        await work

    agent = agent_of(desk, call("read", name="a"), hooks={"after_tool": [hook]})
    (finish,), _ = await finishes(agent)
    assert (finish.result.content, finish.is_error) == ("read a", False)
    assert "the result stays as it is" in caplog.text


async def test_after_tool_hooks_see_failures_and_not_what_never_ran(desk):
    seen = []

    @tool
    def fail() -> str:
        """Fail."""
        raise ValueError("broken")

    def watch(request, output):
        seen.append((request.name, output.is_error))

    model = ScriptedModel([call("fail"), call("write", text="x"), call("nope")], "ok")
    approve = lambda request: Deny("no") if request.name == "write" else Allow()  # noqa: E731
    await finishes(Agent(model, tools=[*desk.tools, fail], approve=approve, hooks={"after_tool": [watch]}))
    assert seen == [("fail", True)]


async def test_a_hook_is_told_when_the_tool_was_denied_before_in_the_run(desk):
    told = []

    def hook(request):
        told.append((request.name, request.denied))

    model = ScriptedModel(call("write", text="a"), [call("write", text="b"), call("read", name="c")], "ok")
    agent = Agent(model, tools=desk.tools, approve=approve_effects("read"), hooks={"before_tool": [hook]})
    await finishes(agent)
    assert told == [("write", False), ("write", True), ("read", False)]


async def test_the_order_for_one_call(desk):
    order = []

    def step(name, answer):
        def note(*args):
            order.append(name)
            return answer

        return note

    async def wrap(request, call_next):
        order.append("wrap")
        output = await call_next(request)
        order.append("unwrap")
        return output

    agent = agent_of(
        desk,
        call("write", text="x"),
        wrap_tool=wrap,
        hooks={"before_tool": [step("before", None)], "after_tool": [step("after", None)]},
        approve=step("approve", Allow()),
        taps=[lambda event: order.append("tool_start") if isinstance(event, ToolStart) else None],
    )
    await finishes(agent)
    assert [name for name in order if name != "tool_start"] == ["wrap", "before", "approve", "after", "unwrap"]
    assert order.index("tool_start") > order.index("approve")


async def test_a_detached_hook_is_waited_for_by_nobody(desk, caplog):
    release, ended = asyncio.Event(), asyncio.Event()

    async def slow(request):
        await release.wait()
        ended.set()
        raise RuntimeError("too late to matter")

    hooks = {"before_tool": [detached(slow), detached(lambda request: Deny("nobody listens"))]}
    with caplog.at_level(logging.ERROR, "treadle"):
        (finish,), _ = await finishes(agent_of(desk, call("write", text="x"), hooks=hooks))
        assert desk.ran == ["x"] and not finish.is_error and not ended.is_set()
        release.set()
        await asyncio.wait_for(ended.wait(), BOUND)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert "too late to matter" in caplog.text


@pytest.mark.parametrize(
    ("hooks", "text"),
    [([len], "hooks are"), ({"before": []}, "no hooks 'before'"), ({"before_tool": [3]}, "is no hook")],
)
def test_hooks_that_cannot_be_are_refused(hooks, text):
    with pytest.raises(ConfigError, match=text):
        Agent(ScriptedModel(), hooks=hooks)


@pytest.mark.parametrize("seconds", [0, -1, True, "1"])
def test_a_time_limit_that_makes_no_sense_is_refused(seconds):
    with pytest.raises(ConfigError, match="with_timeout"):
        with_timeout(_hanging, seconds)


async def test_hosted_calls_are_asked_about_by_nobody(desk):
    asked = []

    def policy(request):
        asked.append(request.name)
        return Pause()

    result = await Agent(ScriptedModel("no calls at all"), tools=desk.tools, approve=policy).run("hi")
    assert result.complete and not asked


async def test_a_call_that_has_run_cannot_be_paused_any_more(desk):
    verdicts = iter([Allow(), Pause()])

    async def twice(request, call_next):
        await call_next(request)
        return await call_next(request)

    agent = agent_of(desk, call("write", text="x"), wrap_tool=twice, approve=lambda request: next(verdicts))
    (finish,), events = await finishes(agent)
    assert desk.ran == ["x"] and finish.is_error and "paused when it had run" in finish.result.content
    assert events[-1].stop is StopReason.END
