"""openai-agents on its own recommended streaming API, `Runner.run_streamed`. Needs a venv of its own."""

# mypy: disable-error-code="import-not-found"

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI
from scenarios import PROMPT, lookup

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class OpenAIAgentsClient:
    """One agent per scenario, shared by all its runs. Tracing is off by its own switch."""

    def __init__(self, base_url: str) -> None:
        set_tracing_disabled(True)
        self._client = AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0, timeout=120)
        self._agents: dict[str, Any] = {}

    def _agent(self, scenario: str) -> Any:
        if scenario not in self._agents:
            model = OpenAIChatCompletionsModel(scenario, self._client)
            self._agents[scenario] = Agent(name="bench", model=model, tools=[function_tool(lookup)])
        return self._agents[scenario]

    async def run(self, scenario: str, on_text: Callable[[str], None]) -> str:
        result = Runner.run_streamed(self._agent(scenario), PROMPT, max_turns=10_000)
        async for event in result.stream_events():
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                on_text(event.data.delta)
        return str(result.final_output)

    async def aclose(self) -> None:
        await self._client.close()


def connect(base_url: str) -> OpenAIAgentsClient:
    return OpenAIAgentsClient(base_url)


def builder(functions: Sequence[Callable[..., Any]]) -> Callable[[], list[dict[str, Any]]]:
    """What makes an agent with these tools and gives the schemas that a model would be told."""
    model = OpenAIChatCompletionsModel("any", AsyncOpenAI(base_url="http://127.0.0.1:1/v1", api_key="none"))

    def build() -> list[dict[str, Any]]:
        agent = Agent(name="bench", model=model, tools=[function_tool(function) for function in functions])
        return [tool.params_json_schema for tool in agent.tools]

    return build
