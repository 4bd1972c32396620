"""Calls to judge, of the tools that the command line offers."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from treadle import Tool, ToolRequest, tool
from treadle.cli.permissions import PermissionRule, Permissions, parse_rule
from treadle.toolkit import Workspace


@tool(name="web_fetch", effect="read")
def fetch(url: str) -> str:
    """Read a page."""
    return url


@tool(effect="external")
def pay(amount: int) -> str:
    """Pay somebody."""
    return str(amount)


class Desk:
    """A root with the tools for it, and calls of them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        made = asyncio.run(Workspace(root, allow_commands=True).tools())
        self.tools: dict[str, Tool[..., Any]] = {each.name: each for each in (*made, fetch, pay)}

    def call(self, name: str, **arguments: Any) -> ToolRequest:
        return ToolRequest(
            call_id="a", index=0, name=name, args=json.dumps(arguments), tool=self.tools[name], context=None
        )

    def run(self, command: str) -> ToolRequest:
        return self.call("run_command", command=command)

    def edit(self, path: str) -> ToolRequest:
        return self.call("edit_file", path=path, edits=[{"old_text": "a", "new_text": "b"}])

    def permissions(self, mode: str = "ask", save: Any = None, **rules: list[str]) -> Permissions:
        return Permissions(mode, rules_of(**rules), save, root=self.root)


def rules_of(**rules: list[str]) -> list[PermissionRule]:
    return [parse_rule(text, decision, f"user {decision}") for decision, texts in rules.items() for text in texts]


def word(verdict: Any) -> str:
    """allow, deny or ask."""
    return "ask" if verdict is None else type(verdict).__name__.lower()
