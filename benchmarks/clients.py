"""The clients that are compared: one module each, loaded only in the process that measures it.

A client module has `connect(base_url) -> Client`. Its client may be shared by many runs at once.
"""

from __future__ import annotations

import importlib
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Client(Protocol):
    """Runs scenarios against the server."""

    async def run(self, scenario: str, on_text: Callable[[str], None]) -> str:
        """One whole run, tools included. Gives `on_text` every text delta and returns the last answer's text."""

    async def aclose(self) -> None:
        """Closes what the client holds open."""


class Entry(NamedTuple):
    """Where a client lives, and what its process imports before it can do anything.

    `options` go to `connect`; `requires` is what its own environment needs.
    """

    module: str
    label: str
    imports: str
    distribution: str
    requires: tuple[str, ...] = ()
    options: Mapping[str, str] = MappingProxyType({})


def _over(wire: str) -> Mapping[str, str]:
    return MappingProxyType({"wire": wire})


CLIENTS = {
    "aiohttp": Entry("client_aiohttp", "F: aiohttp + msgspec", "import aiohttp, msgspec", "aiohttp"),
    "httpx2": Entry("client_httpx2", "H: httpx2 + json", "import httpx2", "httpx2"),
    "httpx2-keepalive": Entry(
        "client_httpx2", "H, keep-alive", "import httpx2", "httpx2", options=MappingProxyType({"keep_alive": "yes"})
    ),
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
COMPARED = tuple(CLIENTS)
"""Those that do all the work that there is to measure, and have a column each."""


class Contest(NamedTuple):
    """Who is compared on one wire: the bare reader, the vendor's client, Treadle."""

    label: str
    bare: str
    official: str
    ours: str


CONTESTS = (
    Contest("Chat Completions", "httpx2", "openai", "treadle"),
    Contest("Anthropic Messages", "httpx2-anthropic", "anthropic", "treadle-anthropic"),
    Contest("OpenAI Responses", "httpx2-responses", "openai-responses", "treadle-responses"),
    Contest("Gemini", "httpx2-google", "google-genai", "treadle-google"),
)
OVER_AIOHTTP = "treadle-aiohttp"

CLIENTS |= {
    "anthropic": Entry("client_anthropic", "anthropic SDK", "import anthropic", "anthropic"),
    "openai-responses": Entry(
        "client_openai", "openai SDK, Responses", "import openai", "openai", options=_over("responses")
    ),
    "google-genai": Entry("client_google_genai", "google-genai SDK", "import google.genai", "google-genai"),
    OVER_AIOHTTP: Entry(
        "client_treadle",
        "Treadle over aiohttp",
        "import treadle",
        "treadle",
        options=MappingProxyType({"transport": "aiohttp"}),
    ),
}
for _wire in ("anthropic", "responses", "google"):
    CLIENTS[f"httpx2-{_wire}"] = Entry("client_httpx2", f"H, {_wire}", "import httpx2", "httpx2", options=_over(_wire))
    CLIENTS[f"treadle-{_wire}"] = Entry(
        "client_treadle", f"Treadle, {_wire}", "import treadle", "treadle", options=_over(_wire)
    )


def connect(name: str, base_url: str) -> Client:
    """Loads the client's module and connects it to the server's base URL."""
    entry = CLIENTS[name]
    client: Client = importlib.import_module(entry.module).connect(base_url, **entry.options)
    return client
