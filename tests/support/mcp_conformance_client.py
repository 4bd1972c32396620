"""What the official conformance suite drives as a client: `mcp_conformance_client.py URL`.

The scenario's name and what it wants called are in the environment.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import httpx2
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider

from treadle import Allow, MCPError, ToolError
from treadle.mcp import MCPServer, OAuth

SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
CONTEXT = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
SAMPLES = {"number": 3, "integer": 3, "string": "text", "boolean": True, "array": [], "object": {}, "null": None}


class Tokens:
    """Tokens in memory, for an authorisation of the SDK's own."""

    def __init__(self) -> None:
        self._kept: dict[str, Any] = {}

    async def get_tokens(self) -> Any:
        return self._kept.get("tokens")

    async def set_tokens(self, tokens: Any) -> None:
        self._kept["tokens"] = tokens

    async def get_client_info(self) -> Any:
        return self._kept.get("client")

    async def set_client_info(self, client_info: Any) -> None:
        self._kept["client"] = client_info


async def browser(url: str) -> None:
    """Agrees to everything."""
    async with httpx2.AsyncClient(trust_env=False) as client:
        page = await client.get(url)
        await client.get(page.headers["location"])


def arguments(schema: dict[str, Any]) -> dict[str, Any]:
    """Something for each argument that is required."""
    properties = schema.get("properties", {})
    return {name: SAMPLES[properties.get(name, {}).get("type", "string")] for name in schema.get("required", ())}


def auth(url: str, folder: str) -> Any:
    if SCENARIO == "auth/client-credentials-basic":
        secret = CONTEXT["client_secret"]
        return ClientCredentialsOAuthProvider(url, Tokens(), CONTEXT["client_id"], secret, "client_secret_basic")
    if not SCENARIO.startswith("auth/"):
        return None
    return OAuth(
        store=Path(folder) / "tokens.json",
        open_url=browser,
        wait_seconds=10,
        client_id=CONTEXT.get("client_id"),
        client_secret=CONTEXT.get("client_secret"),
        client_metadata_url="https://conformance-test.local/client-metadata.json",
    )


async def main(url: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        server = MCPServer.http(url, name="suite", auth=auth(url, folder), elicit=lambda _: Allow())
        async with server:
            await server.ready()
            tools = {tool.name: tool for tool in await server.tools()}
            calls = [(each["name"], each.get("arguments", {})) for each in CONTEXT.get("toolCalls", ())]
            if "json_schema_echo" in tools:
                focal = next(tool for name, tool in tools.items() if name != "json_schema_echo")
                calls = [("json_schema_echo", {"schema": focal.input_schema})]
            for name, given in calls or [(name, arguments(tool.input_schema)) for name, tool in tools.items()]:
                with contextlib.suppress(ToolError):  # some are there to fail
                    await tools[name].invoke(given)
            for resource in await server.resources():
                await server.read_resource(resource.uri)
            for prompt in await server.prompts():
                await server.prompt(prompt.name, **dict.fromkeys(prompt.arguments, "text"))


if __name__ == "__main__":
    try:
        asyncio.run(main(sys.argv[1]))
    except MCPError as error:
        sys.exit(str(error))
