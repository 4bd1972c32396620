"""The type of an answer, as a user's checker sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, assert_type

from treadle import Agent, RunResult, StepRecord, Usage


@dataclass
class City:
    name: str
    people: int


async def text_by_default() -> None:
    agent = Agent("openai-chat:some-model", instructions="Be short.")
    result = await agent.run("Which city?")
    assert_type(result, RunResult[str])
    assert_type(result.output, str)
    assert_type(result.text, str)
    assert_type(result.usage, Usage)
    assert_type(result.usage.cost_usd, float | None)
    assert_type(result.steps, tuple[StepRecord, ...])
    assert_type(result.complete, bool)
    again = await agent.run("And then?", messages=result.messages)
    assert_type(again.output, str)


async def a_class() -> None:
    agent = Agent("openai-chat:some-model", output=City)
    result = await agent.run("Which city?")
    assert_type(result.output, City)
    assert_type(agent.run_sync("Which city?").output, City)
    async with agent.stream("Which city?") as run:
        assert_type((await run.result()).output, City)
        assert_type(run.id, str)
        async for text in run.text_stream():
            assert_type(text, str)


async def a_generic() -> None:
    agent = Agent("openai-chat:some-model", output=list[int])
    assert_type((await agent.run("Which?")).output, list[int])
    pairs = Agent("openai-chat:some-model", output=dict[str, City])
    assert_type((await pairs.run("Which?")).output, dict[str, City])


async def a_union() -> None:
    agent = Agent("openai-chat:some-model", output=int | None)
    assert_type((await agent.run("Which?")).output, int | None)
    either = Agent("openai-chat:some-model", output=City | str)
    assert_type((await either.run("Which?")).output, City | str)


async def other_options_do_not_change_the_output(options: dict[str, Any]) -> None:
    agent = Agent("openai-chat:some-model", name="a", tools=[], taps=[print], max_output_tokens=100, parallelism=1)
    assert_type((await agent.run("Which?")).output, str)
