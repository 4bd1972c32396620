"""MCP both ways: servers whose tools agents may use, and our tools and agents for others.

Needs the extra `mcp`; its SDK is loaded when a server is connected or started.
"""

from __future__ import annotations

from treadle.mcp._config import load_config
from treadle.mcp._elicit import Elicitation
from treadle.mcp._oauth import OAuth
from treadle.mcp._values import Prompt, Resource, ServerInfo
from treadle.mcp.client import MCPServer
from treadle.mcp.server import serve_mcp

__all__ = ["Elicitation", "MCPServer", "OAuth", "Prompt", "Resource", "ServerInfo", "load_config", "serve_mcp"]
