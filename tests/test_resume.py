"""Runs that pause for a decision, and go on with it: exactly the approved calls, once, in any process."""

import asyncio
import json
import subprocess
import sys

import msgspec
import pytest

from support.runs import only
from treadle import (
    Agent,
    Allow,
    ApprovalRequest,
    AssistantMessage,
    ConfigError,
    Decision,
    Deny,
    Edit,
    Pause,
    RunFinish,
    RunPaused,
    RunStart,
    StepFinish,
    StepStart,
    StopReason,
    ToolCallPart,
    ToolFinish,
    ToolMessage,
    ToolStart,
    decode_event,
    decode_messages,
    encode,
    encode_event,
    encode_events,
    fold,
    repair,
    tool,
)
from treadle.testing import ScriptedModel, call

BOUND = 10.0


class Bank:
    def __init__(self):
        self.paid = []

        @tool(effect="external")
        def pay(amount: int) -> str:
            """Pay."""
            self.paid.append(amount)
            return f"paid {amount}"

        @tool(effect="read")
        def balance() -> str:
            """Look."""
            return "plenty"

        self.tools = [pay, balance]


def ask_about_payments(request):
    return Pause("a person must agree") if request.name == "pay" else Allow()


@pytest.fixture
def bank():
    return Bank()


def agent_of(bank, *steps, **options):
    return Agent(ScriptedModel(*steps), tools=bank.tools, **{"approve": ask_about_payments, **options})


STEP = [call("pay", amount=5), call("balance"), call("pay", amount=7)]


async def pause(bank, *steps, **options):
    with pytest.raises(RunPaused) as caught:
        await asyncio.wait_for(agent_of(bank, *(steps or (STEP,)), **options).run("pay them"), BOUND)
    return caught.value


async def test_a_run_pauses_with_what_may_run_already_done(bank):
    paused = await pause(bank)
    assert [(one.name, one.args, one.reason) for one in paused.pending] == [
        ("pay", '{"amount":5}', "a person must agree"),
        ("pay", '{"amount":7}', "a person must agree"),
    ]
    result = paused.result
    assert result.stop is StopReason.PAUSED and not result.complete and result.pending == paused.pending
    assert not bank.paid
    *_, asked, results = result.messages
    assert len(asked.calls) == 3 and [one.content for one in results.results] == ["plenty"]


async def test_the_log_of_a_paused_run_says_so(bank):
    agent = agent_of(bank, STEP)
    async with agent.stream("pay them") as run:
        events = [event async for event in run]
    last = events[-1]
    assert isinstance(last, RunFinish) and last.stop is StopReason.PAUSED and len(last.pending) == 2
    assert [event.seq for event in events] == list(range(len(events)))
    assert [event.reason for event in only(events, ApprovalRequest)] == ["a person must agree"] * 2
    assert [event.name for event in only(events, ToolStart)] == ["balance"]
    assert len(only(events, StepFinish)) == 1
    assert [decode_event(encode_event(event)) for event in events] == events
    folded = fold(events)
    assert folded[-2].calls and len(folded[-1].results) == 1 and repair(folded) != folded


async def test_a_resumed_run_runs_what_was_allowed_and_goes_on(bank):
    paused = await pause(bank)
    first, second = paused.pending
    agent = agent_of(bank, "all settled")
    decisions = {first.call_id: Allow(), second.call_id: Deny("too much")}
    async with agent.resume_stream(paused.result, decisions) as run:
        events = [event async for event in run]
        result = await run.result()
    assert bank.paid == [5]
    assert result.text == "all settled" and result.complete and result.id == paused.result.id
    assert repair(result.messages) == result.messages
    asked, answered, _ = result.messages[-3:]
    assert [one.call_id for one in answered.results] == [one.id for one in asked.calls]
    contents = [one.content for one in answered.results]
    assert contents[:2] == ["paid 5", "plenty"] and "too much" in contents[2]
    assert isinstance(events[0], RunStart) and events[0].resumed
    assert [event.seq for event in events] == list(range(paused.result.next_seq, result.next_seq))
    assert [event.index for event in only(events, StepStart)] == [0, 1]
    assert [event.index for event in only(events, ToolStart)] == [0, 2]
    assert fold(events) == result.messages


async def test_both_logs_together_fold_to_the_whole_conversation(bank):
    agent = agent_of(bank, STEP, "all settled")
    async with agent.stream("pay them") as run:
        log = [event async for event in run]
        with pytest.raises(RunPaused) as caught:
            await run.result()
    paused = caught.value
    async with agent.resume_stream(paused.result, {one.call_id: Allow() for one in paused.pending}) as run:
        log += [event async for event in run]
        result = await run.result()
    assert fold(log) == result.messages
    assert [event.seq for event in log] == list(range(len(log)))
    for cut in range(len(log)):
        folded = fold(log[:cut])
        assert repair(folded) == folded or isinstance(log[cut - 1], RunFinish)


async def test_an_edited_decision_runs_with_its_own_arguments(bank):
    paused = await pause(bank, [call("pay", amount=5)])
    result = await agent_of(bank, "done").resume(paused.result, {paused.pending[0].call_id: Edit({"amount": 1})})
    assert bank.paid == [1] and result.text == "done"


async def test_a_decision_to_wait_longer_pauses_again(bank):
    paused = await pause(bank, [call("pay", amount=5), call("pay", amount=7)])
    first, second = paused.pending
    with pytest.raises(RunPaused) as caught:
        await agent_of(bank).resume(paused.result, {first.call_id: Allow(), second.call_id: Pause("tomorrow")})
    again = caught.value
    assert bank.paid == [5] and [one.call_id for one in again.pending] == [second.call_id]
    result = await agent_of(bank, "done").resume(again.result, {second.call_id: Allow()})
    assert bank.paid == [5, 7]
    assert [one.content for one in result.messages[-2].results] == ["paid 5", "paid 7"]


async def test_a_later_step_with_the_same_call_id_is_asked_about_anew(bank):
    paused = await pause(bank, [call("pay", amount=5)])
    (one,) = paused.pending

    class SameIds(ScriptedModel):
        async def stream(self, request):
            async for event in super().stream(request):
                if hasattr(event, "message"):
                    part = msgspec.structs.replace(event.message.calls[0], id=one.call_id)
                    message = msgspec.structs.replace(event.message, content=(part,))
                    yield msgspec.structs.replace(event, message=message)
                else:
                    yield event

    agent = Agent(SameIds([call("pay", amount=500)]), tools=bank.tools, approve=ask_about_payments)
    with pytest.raises(RunPaused) as caught:
        await agent.resume(paused.result, {one.call_id: Allow()})
    assert bank.paid == [5]
    assert caught.value.pending[0].call_id == one.call_id and caught.value.pending[0].key != one.key


async def test_hooks_are_asked_again_when_a_run_goes_on(bank):
    paused = await pause(bank, [call("pay", amount=5)])
    agent = agent_of(bank, "ok", hooks={"before_tool": [lambda request: Deny("the bank is closed")]})
    result = await agent.resume(paused.result, {paused.pending[0].call_id: Allow()})
    assert not bank.paid and "the bank is closed" in result.steps[0].results[0].content


# Decisions that are not for this call


async def refused(bank, paused, decisions, text, **given):
    agent = agent_of(bank, "never asked for")
    with pytest.raises(ConfigError, match=text):
        await agent.resume(**{"result": paused and paused.result, "decisions": decisions, **given})
    assert not bank.paid


async def test_a_decision_is_needed_for_every_pending_call(bank):
    paused = await pause(bank)
    await refused(bank, paused, {paused.pending[0].call_id: Allow()}, "no decision on pay")


async def test_a_decision_on_a_call_that_does_not_wait_is_refused(bank):
    paused = await pause(bank)
    decisions = {one.call_id: Allow() for one in paused.pending}
    await refused(bank, paused, decisions | {"call_of_somebody_else": Allow()}, "no call 'call_of_somebody_else'")


async def test_a_decision_is_not_taken_twice(bank):
    paused = await pause(bank, [call("pay", amount=5)])
    decisions = {paused.pending[0].call_id: Allow()}
    result = await agent_of(bank, "done").resume(paused.result, decisions)
    bank.paid.clear()
    await refused(bank, paused, decisions, "nothing to resume", result=result)


async def test_changed_arguments_are_refused(bank):
    paused = await pause(bank, [call("pay", amount=5)])
    (one,) = paused.pending
    *before, asked = paused.result.messages
    other = msgspec.structs.replace(asked.calls[0], args='{"amount":5000}')
    tampered = (*before, msgspec.structs.replace(asked, content=(other,)))
    result = msgspec.structs.replace(paused.result, messages=tampered)
    await refused(bank, paused, {one.call_id: Allow()}, "name or arguments changed", result=result)
    bound = {one.call_id: Allow(key=one.key)}
    given = {"result": None, "messages": tampered, "run_id": paused.result.id}
    await refused(bank, paused, bound, "made for another call or other arguments", **given)


async def test_a_bound_decision_of_another_run_is_refused(bank):
    first, second = await pause(bank, [call("pay", amount=5)]), await pause(bank, [call("pay", amount=5)])
    decisions = {second.pending[0].call_id: Allow(key=first.pending[0].key)}
    await refused(bank, second, decisions, "made for another call")


@pytest.mark.parametrize("from_messages", [False, True])
async def test_a_bound_decision_holds_in_a_conversation_that_began_before_the_run(bank, from_messages):
    before = (await agent_of(bank, [call("balance")], "plenty").run("how much?")).messages
    with pytest.raises(RunPaused) as caught:
        await agent_of(bank, [call("pay", amount=5)]).run("pay it", messages=before)
    result, (one,) = caught.value.result, caught.value.pending
    given = {"messages": result.messages, "run_id": result.id} if from_messages else {"result": result}
    done = await agent_of(bank, "done").resume(decisions={one.call_id: Allow(key=one.key)}, **given)
    assert bank.paid == [5] and done.text == "done"


async def test_the_steps_of_a_resumed_run_go_on_counting_where_it_paused(bank):
    before = (await agent_of(bank, "hello").run("hi")).messages
    agent = agent_of(bank, [call("balance")], [call("pay", amount=5)])
    with pytest.raises(RunPaused) as caught:
        await agent.run("pay it", messages=before)
    paused = caught.value
    result = await agent_of(bank, "done").resume(paused.result, {paused.pending[0].call_id: Allow()})
    assert [step.index for step in result.steps] == [1, 2]


async def test_a_result_with_the_pending_calls_of_another_run_is_refused(bank):
    first, second = await pause(bank, [call("pay", amount=5)]), await pause(bank, [call("pay", amount=7)])
    mixed = msgspec.structs.replace(second.result, pending=first.pending)
    await refused(bank, second, {second.pending[0].call_id: Allow()}, "not what was paused", result=mixed)


@pytest.mark.parametrize("decision", [True, None, "allow"])
async def test_what_is_no_decision_is_refused(bank, decision):
    paused = await pause(bank, [call("pay", amount=5)])
    await refused(bank, paused, {paused.pending[0].call_id: decision}, "no decision")


async def test_what_is_not_paused_is_refused(bank):
    result = await agent_of(bank, "hello").run("hi")
    await refused(bank, None, {}, "nothing to resume", result=result)
    await refused(bank, None, [Allow()], "a dictionary by call id", result=result)
    await refused(bank, None, {}, "its messages and run_id", result=None)
    await refused(bank, None, {}, "nothing to resume", result=None, run_id="run_1", messages=())


async def test_a_paused_transcript_given_as_history_is_repaired(bank):
    paused = await pause(bank)
    result = await agent_of(bank, "I see").run("never mind", messages=paused.result.messages)
    assert not bank.paid and result.text == "I see"
    assert sum(one.is_error for one in result.messages[2].results) == 2


# In another process

OTHER_PROCESS = """
import asyncio, json, sys
import msgspec
from treadle import Agent, Decision, decode_messages, tool
from treadle.testing import ScriptedModel

paid = []

@tool(effect="external")
def pay(amount: int) -> str:
    "Pay."
    paid.append(amount)
    return f"paid {amount}"

given = json.load(sys.stdin)
decisions = msgspec.json.decode(given["decisions"], type=dict[str, Decision])
agent = Agent(ScriptedModel("done elsewhere"), tools=[pay])
result = asyncio.run(agent.resume(messages=decode_messages(given["messages"]), run_id=given["run_id"], decisions=decisions))
print(json.dumps([paid, result.text, result.id]))
"""


async def test_another_process_goes_on_with_nothing_but_json(bank):
    agent = agent_of(bank, [call("pay", amount=5), call("pay", amount=7)])
    async with agent.stream("pay them") as run:
        log = encode_events([event async for event in run])
    events = [decode_event(line) for line in log.splitlines()]
    pending = events[-1].pending
    decisions = {pending[0].call_id: Allow(key=pending[0].key), pending[1].call_id: Deny("no", key=pending[1].key)}
    given = {
        "messages": encode(fold(events)).decode(),
        "run_id": events[0].run_id,
        "decisions": msgspec.json.encode(decisions).decode(),
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", OTHER_PROCESS, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    answer, _ = await asyncio.wait_for(process.communicate(json.dumps(given).encode()), 60)
    assert json.loads(answer) == [[5], "done elsewhere", run.id]


def test_decisions_are_json():
    decisions = [Allow(), Deny("no"), Edit({"a": 1}, key="k"), Pause()]
    assert msgspec.json.decode(msgspec.json.encode(decisions), type=list[Decision]) == decisions
    assert decode_messages(encode([])) in ([], ())


async def test_a_typed_answer_may_pause_on_its_way(bank):
    paused = await pause(bank, [call("pay", amount=5)], output=int)
    agent = agent_of(bank, "42", output=int)
    result = await agent.resume(paused.result, {paused.pending[0].call_id: Allow()})
    assert result.output == 42


async def test_a_cut_call_beside_a_pending_one_stays_answered(bank):
    from treadle.testing import call_text
    from treadle.testing.script import step

    cut = step(call("pay", amount=5), call_text("pay", '{"amount":'), stop="max_tokens")
    paused = await pause(bank, cut)
    assert len(paused.pending) == 1
    *_, asked, results = paused.result.messages
    assert isinstance(asked, AssistantMessage) and isinstance(results, ToolMessage)
    assert [isinstance(part, ToolCallPart) for part in asked.content] == [True, True]
    result = await agent_of(bank, "done").resume(paused.result, {paused.pending[0].call_id: Allow()})
    assert bank.paid == [5] and len(result.messages[-2].results) == 2


async def test_cancelling_a_resumed_run_answers_every_call():
    entered = asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        entered.set()
        await asyncio.Event().wait()
        return ""

    with pytest.raises(RunPaused) as caught:
        await Agent(ScriptedModel(call("wait")), tools=[wait], approve=lambda request: Pause()).run("hi")
    paused, events = caught.value, []
    agent = Agent(ScriptedModel("never asked for"), tools=[wait], taps=[events.append])
    task = asyncio.create_task(agent.resume(paused.result, {paused.pending[0].call_id: Allow()}))
    await asyncio.wait_for(entered.wait(), BOUND)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, BOUND)
    (finish,) = only(events, ToolFinish)
    assert finish.discarded and repair(fold(events)) == fold(events)
