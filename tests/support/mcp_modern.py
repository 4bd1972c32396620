"""An MCP server on the official SDK, which speaks the newest protocol and the older one: over stdio or, given a port,
over HTTP."""

from __future__ import annotations

import sys
from typing import Annotated

from mcp.server.mcpserver import Context, Elicit, MCPServer, Resolve
from mcp.server.mcpserver.resolve import AcceptedElicitation, ElicitationResult
from mcp_types import ToolAnnotations
from pydantic import BaseModel

server = MCPServer("modern", version="1.0", instructions="Be modern.")


class Seat(BaseModel):
    row: int
    aisle: bool = True


async def which_seat() -> Elicit[Seat]:
    return Elicit("Which seat?", Seat)


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


@server.tool()
async def slow(ctx: Context) -> str:
    """Tells how far it is."""
    for step in range(3):
        await ctx.report_progress(step, 3, f"step {step}")
    return "done"


@server.tool()
async def book(seat: Annotated[ElicitationResult[Seat], Resolve(which_seat)]) -> str:
    """Asks for a seat."""
    if isinstance(seat, AcceptedElicitation):
        return f"row {seat.data.row}, aisle {seat.data.aisle}"
    return f"no seat: {seat.action}"


@server.tool()
async def grow(ctx: Context) -> str:
    """Offers one more tool."""
    server.add_tool(add, name="sum")
    await ctx.notify_tools_changed()
    return "grown"


@server.resource("notes://today", mime_type="text/plain")
def today() -> str:
    """What is to be done."""
    return "write tests"


@server.prompt()
def review(code: str) -> str:
    """Asks for a review."""
    return f"Review: {code}"


if len(sys.argv) > 1:
    server.run("streamable-http", port=int(sys.argv[1]))
else:
    server.run("stdio")
