"""Treadle as its users use it: an agent, a tool, `async for event in run`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scenarios import PROMPT, TOOL_NAME, lookup

from treadle import Agent, Limits, TextDelta, tool
from treadle.providers import resolve

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import httpx2


PREFIXES = {"chat": "openai-chat", "anthropic": "anthropic", "responses": "openai", "google": "google"}


class TreadleClient:
    """One agent per scenario, shared by all its runs."""

    def __init__(self, base_url: str, wire: str, transport: str) -> None:
        self._base_url = base_url
        self._prefix = PREFIXES[wire]
        self._client = _over_aiohttp() if transport == "aiohttp" else None
        self._tool = tool(name=TOOL_NAME, effect="read")(lookup)
        self._agents: dict[str, Agent] = {}

    def _agent(self, scenario: str) -> Agent:
        if scenario not in self._agents:
            name = f"{self._prefix}:{scenario}"
            model = resolve(name, base_url=self._base_url, api_key="none", client=self._client)
            self._agents[scenario] = Agent(model, tools=[self._tool], limits=Limits(steps=None), parallelism=8)
        return self._agents[scenario]

    async def run(self, scenario: str, on_text: Callable[[str], None]) -> str:
        async with self._agent(scenario).stream(PROMPT) as run:
            async for event in run:
                if isinstance(event, TextDelta):
                    on_text(event.text)
            return (await run.result()).text

    async def aclose(self) -> None:
        """Closes a client of its own. Else there is nothing to close: the pool belongs to the event loop."""
        if self._client is not None:
            await self._client.aclose()


def _over_aiohttp() -> httpx2.AsyncClient:
    import httpx2

    from treadle.providers import aiohttp_transport

    return httpx2.AsyncClient(transport=aiohttp_transport())


def connect(base_url: str, wire: str = "chat", transport: str = "httpx2") -> TreadleClient:
    return TreadleClient(base_url, wire, transport)


def builder(functions: Sequence[Callable[..., Any]]) -> Callable[[], list[dict[str, Any]]]:
    """What makes an agent with these tools and gives the schemas that a model would be told."""
    model = resolve("openai-chat:any", base_url="http://127.0.0.1:1/v1", api_key="none")

    def build() -> list[dict[str, Any]]:
        agent = Agent(model, tools=[tool(effect="read")(function) for function in functions])
        return [each.spec.input_schema for each in agent.tools]

    return build
