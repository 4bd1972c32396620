"""What a loop is given: its agent's configuration, and what one run adds to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from treadle.model import ModelRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from treadle._budget import Budget
    from treadle._guard import Waits
    from treadle.approval import Approve, Decision
    from treadle.events import Event, Parent
    from treadle.hooks import Hooks
    from treadle.limits import Limits, StopCondition
    from treadle.messages import AssistantMessage, Message, ToolCallPart, ToolResultPart
    from treadle.model import HostedMCP, Model, ModelSettings, Reasoning, ToolSpec
    from treadle.output import OutputSpec
    from treadle.result import RunContext
    from treadle.retry import Retry
    from treadle.tools import Tool
    from treadle.toolsets import Toolset
    from treadle.wraps import WrapModel, WrapTool


class ToolTable:
    """The tools of a step by name, and what the model is told of them. Of two with one name the first wins."""

    def __init__(self, tools: Sequence[Tool[..., Any]]) -> None:
        self.source = tools
        self.by_name: Mapping[str, Tool[..., Any]] = {tool.name: tool for tool in reversed(tools)}
        self.specs: tuple[ToolSpec, ...] = tuple(self.by_name[name].spec for name in sorted(self.by_name))


@dataclass(frozen=True, eq=False)
class AgentConfig:
    """What the loop needs to know of its agent."""

    model: Model
    name: str | None
    instructions: str | Callable[[RunContext[Any]], Any] | None
    tools: tuple[Tool[..., Any], ...]
    toolsets: tuple[Toolset, ...]
    output: Any
    deps: Any
    reasoning: Reasoning | None
    settings: ModelSettings | None
    max_output_tokens: int
    limits: Limits
    parallelism: int
    stop_when: tuple[StopCondition, ...]
    taps: tuple[Callable[[Event], object], ...]
    max_result_bytes: int
    hosted_mcp: tuple[HostedMCP, ...]
    hosted_web_search: bool
    retry: Retry | None
    wrap_model: tuple[WrapModel, ...]
    wrap_tool: tuple[WrapTool, ...]
    approve: Approve | None
    hooks: Hooks | None


@dataclass(frozen=True, eq=False)
class Resumption:
    """A paused step: its answer, the calls left open and the results there are, by index, and what was decided."""

    message: AssistantMessage
    calls: Mapping[int, ToolCallPart]
    results: Mapping[int, ToolResultPart]
    decisions: Mapping[str, Decision]
    step: int
    seq: int


def request_of(
    agent: AgentConfig,
    instructions: str | None,
    messages: tuple[Message, ...],
    tools: tuple[ToolSpec, ...],
    *,
    output_schema: dict[str, Any] | None,
    settings: ModelSettings | None,
) -> ModelRequest:
    """A request as `agent` makes it."""
    return ModelRequest(
        instructions,
        messages,
        tools,
        output_schema=output_schema,
        reasoning=agent.reasoning,
        settings=settings,
        max_output_tokens=agent.max_output_tokens,
        hosted_mcp=agent.hosted_mcp,
        hosted_web_search=agent.hosted_web_search,
        sequential_tools=agent.parallelism == 1,
    )


@dataclass(frozen=True, eq=False)
class RunInput:
    """What one run is given: repaired messages, and what overrides the agent."""

    run_id: str
    history: tuple[Message, ...]
    new: tuple[Message, ...]
    deps: Any
    settings: ModelSettings | None
    table: ToolTable
    spec: OutputSpec | None
    final_tool: bool
    resumed: Resumption | None = None
    parent: Parent | None = None
    budget: Budget | None = None
    stored: bool = False  # the history is that of a session, whose log tells it already
    waits: Waits | None = None
