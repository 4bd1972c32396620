"""Decorated tools and their context, as a user's checker sees them."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, assert_type

from treadle import Agent, FilePart, RunContext, Tool, ToolContext, ToolOutput, tool


@dataclass
class Services:
    user: str


@tool
def plain(city: str, days: int = 1) -> list[str]:
    """Plain decorator, sync."""
    return [city] * days


@tool(effect="read", idempotent=True, timeout_seconds=2)
async def with_options(city: str) -> float:
    """Decorator with options, async."""
    return len(city) / 2


@tool(effect="read")
async def with_context(context: ToolContext[Services], city: str) -> ToolOutput:
    """Takes the run's dependencies."""
    assert_type(context.deps, Services)
    assert_type(context.run_id, str)
    assert_type(context.idempotency_key, str)
    context.progress("half way", progress=1, total=2)
    return ToolOutput(f"{context.deps.user} in {city}", files=(FilePart("image/png", url="https://example.com/a.png"),))


async def a_decorated_tool_keeps_its_signature() -> None:
    assert_type(plain("Oslo"), list[str])
    assert_type(plain("Oslo", days=2), list[str])
    assert_type(await with_options("Oslo"), float)
    unfinished: Coroutine[Any, Any, float] = with_options("Oslo")
    unfinished.close()
    plain(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    plain()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    assert_type(plain.name, str)
    assert_type(plain.input_schema, dict[str, Any])


def instructions(context: RunContext[Services]) -> str:
    return f"You serve {context.deps.user}."


async def dependencies_are_checked() -> None:
    agent = Agent("openai-chat:some-model", tools=[plain, with_options, with_context], deps=Services)
    assert_type(agent, Agent[Services, str])
    assert_type(Agent("openai-chat:some-model"), Agent[None, str])
    assert_type(Agent("openai-chat:some-model", output=int), Agent[None, int])
    assert_type(Agent("openai-chat:some-model", output=int, deps=Services), Agent[Services, int])
    result = await agent.run("Hi", deps=Services("Ada"))
    assert_type(result.output, str)
    await agent.run("Hi", deps="Ada")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Agent("openai-chat:some-model", instructions=instructions, deps=Services)


def a_raw_tool(arguments: dict[str, Any]) -> str:
    return str(arguments)


def raw_tools_are_tools() -> None:
    raw: Tool[..., Any] = Tool.raw("raw", "A raw tool.", {"type": "object"}, a_raw_tool)
    Agent("openai-chat:some-model", tools=[raw, plain])
