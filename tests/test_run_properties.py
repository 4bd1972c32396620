"""What holds of every run, whatever its tools, its model and its consumer do."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from support.runs import BOUND, assert_whole, other_tasks
from test_transcript import assert_valid
from treadle import Agent, Event, Limits, RunError, UserMessage, decode_event, encode_event, fold, tool
from treadle.testing import ScriptedModel, call, call_text, error, step, think

BEHAVIOURS = ["ok", "raise", "exit", "cancel", "wait", "sleep"]

pieces = st.one_of(
    st.sampled_from(BEHAVIOURS).map(lambda how: call("act", how=how)),
    st.just(call_text("act", '{"how": ')),
    st.just(call("unknown")),
    st.just("text"),
    st.just(think("hm")),
)
steps = st.builds(
    lambda content, stop: step(*content, **({"stop": stop} if stop else {})),
    st.builds(lambda some, last: some + last, st.lists(pieces, max_size=4), st.sampled_from([[], [], [error("down")]])),
    st.sampled_from([None, None, None, "max_tokens", "refusal", "end"]),
)
scripts = st.lists(steps, max_size=3).map(lambda some: [*some, "done"])


@tool
async def act(how: str) -> str:
    if how == "raise":
        raise ValueError(how)
    if how == "exit":
        raise SystemExit(1)
    if how == "cancel":
        raise asyncio.CancelledError
    if how == "wait":
        await asyncio.sleep(0)
    if how == "sleep":
        await asyncio.Event().wait()
    return how


async def run_once(
    script: list[Any], leave_after: int | None, cancel_after: int | None, parallelism: int
) -> list[Event]:
    """One run, left or cancelled after some events, and in any case after a while."""
    seen: list[Event] = []
    limits = Limits(seconds=0.05)
    agent = Agent(ScriptedModel(*script), tools=[act], parallelism=parallelism, taps=[seen.append], limits=limits)

    async def consume() -> None:
        task = asyncio.current_task()
        assert task is not None
        async with agent.stream("go") as run:
            count = 0
            async for _ in run:
                count += 1
                if count == leave_after:
                    return
                if count == cancel_after:
                    task.cancel()

    task = asyncio.create_task(consume())
    done, _ = await asyncio.wait([task], timeout=BOUND)
    assert done
    if not task.cancelled() and (raised := task.exception()) is not None:
        assert isinstance(raised, RunError)
    assert not other_tasks()
    return seen


@given(scripts, st.none() | st.integers(1, 20), st.none() | st.integers(1, 20), st.integers(1, 3))
def test_every_log_is_whole_and_every_beginning_of_it_folds_to_a_valid_request(
    script: list[Any], leave_after: int | None, cancel_after: int | None, parallelism: int
) -> None:
    events = asyncio.run(run_once(script, leave_after, cancel_after, parallelism))
    if not events:
        return
    assert_whole(events)
    assert [decode_event(encode_event(event)) for event in events] == events
    for length in range(1, len(events) + 1):
        messages = fold(events[:length])
        assert messages[0] == UserMessage("go")
        assert_valid(messages)
