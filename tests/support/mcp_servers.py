"""MCP servers for tests: the one that misbehaves, as a child process, and how to ask it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from treadle.mcp import MCPServer

if TYPE_CHECKING:
    from treadle import ToolOutput

CHAOS = Path(__file__).with_name("mcp_chaos.py")
MODERN = Path(__file__).with_name("mcp_modern.py")


def chaos(*modes: str, **options: Any) -> MCPServer:
    """The misbehaving server of `mcp_chaos.py`."""
    return MCPServer.stdio(sys.executable, ["-S", "-E", CHAOS, *modes], **{"name": "chaos", **options})


def modern(*modes: str, **options: Any) -> MCPServer:
    """A server of the newest protocol, on the official SDK."""
    return MCPServer.stdio(sys.executable, [MODERN, *modes], **{"name": "modern", **options})


async def ask(server: MCPServer, tool: str, /, **arguments: Any) -> ToolOutput:
    """The output of one of the server's tools, by the name it has here."""
    tools = {each.name: each for each in await server.tools()}
    output: ToolOutput = await tools[tool].invoke(arguments)
    return output


def lives(pid: int) -> bool:
    """Whether a process is there and is no zombie."""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except FileNotFoundError:
        return False
    except OSError:
        os.kill(pid, 0)
        return True
