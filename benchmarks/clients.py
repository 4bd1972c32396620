"""The clients that are compared: one module each, loaded only in the process that measures it.

A client module has `connect(base_url) -> Client`. Its client may be shared by many runs at once.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


class Client(Protocol):
    """Runs scenarios against the server."""

    async def run(self, scenario: str, on_text: Callable[[str], None]) -> str:
        """One whole run, tools included. Gives `on_text` every text delta and returns the last answer's text."""

    async def aclose(self) -> None:
        """Closes what the client holds open."""


class Entry(NamedTuple):
    """Where a client lives, and what its process imports before it can do anything."""

    module: str
    label: str
    imports: str
    distribution: str
    requires: tuple[str, ...] = ()


CLIENTS = {
    "aiohttp": Entry("client_aiohttp", "F: aiohttp + msgspec", "import aiohttp, msgspec", "aiohttp"),
    "httpx2": Entry("client_httpx2", "H: httpx2 + json", "import httpx2", "httpx2"),
    "httpx2-keepalive": Entry("client_httpx2_keepalive", "H, keep-alive", "import httpx2", "httpx2"),
    "openai": Entry("client_openai", "openai SDK", "import openai", "openai"),
    "treadle": Entry("client_treadle", "Treadle", "import treadle", "treadle"),
    "pydantic-ai": Entry(
        "client_pydantic_ai",
        "pydantic-ai",
        "import pydantic_ai, pydantic_ai.models.openai, pydantic_ai.providers.openai",
        "pydantic-ai-slim",
        ("pydantic-ai-slim[openai]",),
    ),
    "openai-agents": Entry(
        "client_openai_agents", "openai-agents", "import agents", "openai-agents", ("openai-agents",)
    ),
}

PEERS = tuple(name for name, entry in CLIENTS.items() if entry.requires)


def connect(name: str, base_url: str) -> Client:
    """Loads the client's module and connects it to the server's base URL."""
    client: Client = importlib.import_module(CLIENTS[name].module).connect(base_url)
    return client
