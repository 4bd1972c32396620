"""pydantic-ai on its own recommended streaming API, `Agent.run_stream_events`. Needs a venv of its own."""

# mypy: disable-error-code="import-not-found"

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic_ai import Agent, PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta, Tool, UsageLimits
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from scenarios import PROMPT, lookup

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class PydanticAIClient:
    """One agent per scenario, shared by all its runs."""

    def __init__(self, base_url: str) -> None:
        self._provider = OpenAIProvider(base_url=base_url, api_key="none")
        self._agents: dict[str, Any] = {}

    def _agent(self, scenario: str) -> Any:
        if scenario not in self._agents:
            self._agents[scenario] = Agent(OpenAIChatModel(scenario, provider=self._provider), tools=[lookup])
        return self._agents[scenario]

    async def run(self, scenario: str, on_text: Callable[[str], None]) -> str:
        answer = ""
        limits = UsageLimits(request_limit=None)
        async with self._agent(scenario).run_stream_events(PROMPT, usage_limits=limits) as events:
            async for event in events:
                if isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
                    on_text(event.delta.content_delta)
                elif isinstance(event, PartStartEvent) and isinstance(event.part, TextPart) and event.part.content:
                    on_text(event.part.content)
                elif event.event_kind == "agent_run_result":
                    answer = event.result.output
        return answer

    async def aclose(self) -> None:
        """The provider's client lives as long as the process."""


def connect(base_url: str) -> PydanticAIClient:
    return PydanticAIClient(base_url)


def builder(functions: Sequence[Callable[..., Any]]) -> Callable[[], list[dict[str, Any]]]:
    """What makes an agent with these tools and gives the schemas that a model would be told."""
    model = OpenAIChatModel("any", provider=OpenAIProvider(base_url="http://127.0.0.1:1/v1", api_key="none"))

    def build() -> list[dict[str, Any]]:
        agent = Agent(model, tools=[Tool(function) for function in functions])
        return [tool.tool_def.parameters_json_schema for tool in agent._function_toolset.tools.values()]

    return build
