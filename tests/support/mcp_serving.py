"""Our MCP server in this process, over HTTP, and as a child process, over stdio. Every wait is bounded."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
from mcp import Client

from treadle.mcp import serve_mcp

BOUND = 30.0
NEW, OLD = "2026-07-28", "legacy"


@contextlib.asynccontextmanager
async def serving(thing: Any, **options: Any) -> AsyncIterator[str]:
    """The address of a server that runs inside of the context, on a free port."""
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serve_mcp(thing, "http", port=0, on_ready=ready.set_result, **options))
    try:
        await asyncio.wait([task, ready], timeout=BOUND, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            await task  # raises
        yield ready.result()
    finally:
        task.cancel()
        await asyncio.wait([task], timeout=BOUND)
        assert task.done()


@contextlib.asynccontextmanager
async def connected(thing: Any, mode: str = NEW, **options: Any) -> AsyncIterator[Client]:
    """The official SDK's client, connected to a server over HTTP."""
    how = "auto" if mode == NEW else mode
    async with serving(thing, **options) as url, Client(url, mode=how, read_timeout_seconds=BOUND) as client:
        assert (client.session.protocol_version == NEW) == (mode == NEW)
        yield client


def request(method: str, id: Any = 1, **params: Any) -> dict[str, Any]:
    """A request of the newest protocol."""
    meta = {"io.modelcontextprotocol/protocolVersion": NEW, "io.modelcontextprotocol/clientCapabilities": {}}
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": {"_meta": meta, **params}}


def headers_of(body: dict[str, Any]) -> dict[str, str]:
    """What a client of the newest protocol sends along."""
    name = body["params"].get("name")
    return {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": NEW,
        "mcp-method": body["method"],
        **({"mcp-name": name} if name else {}),
    }


async def post(url: str, body: dict[str, Any], **headers: str | None) -> httpx2.Response:
    """Sends a request of the newest protocol; a header given as None is left out."""
    sent = headers_of(body) | {name.replace("_", "-"): value for name, value in headers.items()}
    async with httpx2.AsyncClient(timeout=BOUND) as client:
        kept = {name: value for name, value in sent.items() if value is not None}
        return await client.post(url, content=json.dumps(body), headers=kept)
