"""What costs no network: the loop over a scripted model, and building an agent."""

from __future__ import annotations

import gc
import importlib
import time
from typing import TYPE_CHECKING, Any

import scenarios
from clients import CLIENTS
from scenarios import PROMPT, TOOL_NAME, Scenario, lookup, tally

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from treadle import Agent

ARGUMENTS = {"query": "deploys last night", "limit": 10, "region": "eu-west-1"}


async def scripted(scenario: str) -> dict[str, Any]:
    """CPU seconds and events of a run over `ScriptedModel`; making the agent and a warm-up run are excluded."""
    drive = await prepared(scenario)
    begin = time.process_time()
    events, answer = await drive()
    seconds = time.process_time() - begin
    scenarios.check(scenarios.parse(scenario), answer)
    return {"seconds": seconds, "events": events}


async def prepared(scenario: str) -> Callable[[], Awaitable[tuple[int, str]]]:
    """What runs the scenario over `ScriptedModel` and gives the number of events and the answer; all is warm."""
    for name in ("text-100", "tools-1x2"):
        await _drive(_scripted_agent(scenarios.parse(name)))
    tally.clear()
    agent = _scripted_agent(scenarios.parse(scenario))
    gc.collect()
    return lambda: _drive(agent)


def _scripted_agent(scenario: Scenario) -> Agent:
    from treadle import Agent, Limits, tool
    from treadle.testing import ScriptedModel, call

    step = [call(TOOL_NAME, **ARGUMENTS) for _ in range(scenario.calls)]
    model = ScriptedModel(*[step for _ in range(scenario.steps)], scenarios.words(scenario), record=False)
    return Agent(model, tools=[tool(name=TOOL_NAME, effect="read")(lookup)], limits=Limits(steps=None), parallelism=8)


async def _drive(agent: Agent) -> tuple[int, str]:
    from treadle import TextDelta

    events = 0
    async with agent.stream(PROMPT) as run:
        async for event in run:
            events += 1
            if isinstance(event, TextDelta):
                tally.text(event.text)
        return events, (await run.result()).text


def agent_cost(client: str, count: int, warm_up: bool) -> dict[str, Any]:
    """CPU seconds to make an agent of `count` tools with their schemas ready; its model is there before."""
    build = agent_builder(client, count, warm_up)
    begin = time.process_time()
    schemas = build()
    seconds = time.process_time() - begin
    if [len(schema["properties"]) for schema in schemas] != [5] * count:
        raise SystemExit(f"{client}: the agent's tools do not have five parameters each")
    return {"seconds": seconds}


def agent_builder(client: str, count: int, warm_up: bool) -> Callable[[], list[dict[str, Any]]]:
    """What makes the agent and gives its schemas.

    With `warm_up`, pydantic is imported and has made one schema before, as in a process that uses it anyway.
    """
    build: Callable[[], list[dict[str, Any]]]
    build = importlib.import_module(CLIENTS[client].module).builder([_function(number) for number in range(count)])
    if warm_up:
        import pydantic

        pydantic.TypeAdapter(pydantic.create_model("WarmUp", field=(list[str], ...))).json_schema()
    gc.collect()
    return build


def _function(number: int) -> Callable[..., Any]:
    async def search(
        query: str,
        limit: int = 10,
        exact: bool = False,
        minimum_score: float = 0.0,
        tags: list[str] | None = None,
    ) -> str:
        """Find events that match a question.

        Args:
            query: What to look for.
            limit: How many to return at most.
            exact: Whether the words must match as they stand.
            minimum_score: How well an event must match.
            tags: Only events with all of these.
        """
        return query

    search.__name__ = search.__qualname__ = f"search_{number}"
    return search
