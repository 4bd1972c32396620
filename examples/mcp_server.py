"""Tools and an agent for MCP clients, on standard input and output or over HTTP.

treadle mcp serve examples.mcp_server:served
treadle mcp serve examples.mcp_server:served --http 127.0.0.1:8000
"""

from __future__ import annotations

from collections import Counter

from treadle import Agent, ToolContext, tool
from treadle.toolkit import Workspace


@tool(effect="read")
def most_common_words(text: str, count: int, context: ToolContext) -> dict[str, int]:
    """Tell how often the `count` most common words of a text come."""
    context.progress(f"{len(text)} characters")
    return dict(Counter(text.lower().split()).most_common(count))


# Each call of this one is a run: it looks around in the working directory and answers.
reader = Agent("offline:demo", name="reader", tools=Workspace(".").read_only())

served = [most_common_words, reader]
