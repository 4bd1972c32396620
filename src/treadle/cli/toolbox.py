"""The tools of a run: what was asked for, and what is said of it to the person and to the model."""

from __future__ import annotations

import asyncio
import datetime as dt
import fnmatch
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from treadle.cli.calls import CHANGES, COMMAND, Calls
from treadle.cli.terminal import say
from treadle.errors import ConfigError

if TYPE_CHECKING:
    import argparse

    from treadle import Tool
    from treadle.cli.context import Allowed as Word
    from treadle.cli.context import Context, Facts
    from treadle.cli.permissions import PermissionRule, Permissions
    from treadle.cli.settings import Settings
    from treadle.toolkit import Workspace

_FLOWS = ("run_flow",)
_POWERS = {
    "write_file": "may write",
    COMMAND: "may run commands",
    "web_fetch": "may read the public web",
    "web_search": "may search the web",
    "run_flow": "may run flows",
}


class Toolbox:
    """The tools named by `--tool`, and those that settings ask for; of two with one name the named is taken.

    Only reading in the root is on by itself. Writing and commands are where settings say so, and otherwise where the
    run is `attended`, so that somebody can be asked about each call, or a rule may allow it. With `--no-tools` only
    typed options count, whatever files of settings say. `calls` shows what the tools do. `granted` are the tools that
    were asked for by typing it, so that nobody need be asked; at a terminal that is not enough to change something.
    Raises `ConfigError`.
    """

    tools: list[Tool[..., Any]]
    calls: Calls
    granted: frozenset[str]
    workspace: Workspace | None
    instructions: str | None

    def __init__(
        self,
        arguments: argparse.Namespace,
        settings: Settings,
        permissions: Permissions,
        context: Context,
        *,
        typed: dict[str, Any],
        attended: bool,
    ) -> None:
        from treadle.cli.loading import load_tools
        from treadle.toolkit import mycelium

        self._settings, self._permissions, self._typed = settings, permissions, typed
        self._bare: bool = arguments.no_tools
        self._attended = attended
        self._sure: bool = arguments.yes
        self._asks = attended and not arguments.yes
        given = load_tools(arguments.tool)
        named = {tool.name for tool in given}
        self.granted = frozenset(named | self._granted())
        self.workspace = self._workspace(arguments)
        flows = mycelium() if self._wanted("mycelium") else []
        ours = [*self._of_workspace(), *self._web(), *flows]
        told = self.workspace is not None and arguments.system is None
        skills = [context.skill_tool()] if told and context.skills else []
        ours = [tool for tool in [*ours, *skills] if tool.name not in named]
        self.calls = Calls()
        self.tools = [*given, *(self.calls.watch(tool, self.workspace) if self.workspace else tool for tool in ours)]
        names = {tool.name for tool in ours}
        self.instructions = context.instructions(self._facts(names)) if told else arguments.system
        self._powers = [power for name, power in _POWERS.items() if name in names]
        if self._wanted("mycelium") and not flows:
            self._powers.append("no mycelium on this machine")

    def tell(self) -> None:
        """Says in a line on standard error what the model can do."""
        if not self.tools:
            return
        names = ", ".join(tool.name for tool in self.tools)
        where = f" in {self.workspace.root.path}" if self.workspace is not None else ""
        only_reads = ["only reads"] if all(tool.effect == "read" for tool in self.tools) else []
        condition = self._condition() if self._powers else ""
        powers = ", ".join(filter(None, [*(self._powers or only_reads), condition]))
        say(f"tools: {names}{where}{powers and f'; {powers}'}")

    def _granted(self) -> set[str]:
        typed = self._typed
        if self._asks:
            return {"web_fetch"} if typed.get("fetch") else set()
        by_flag = {"allow_writes": CHANGES, "allow_commands": (COMMAND,), "fetch": ("web_fetch",), "mycelium": _FLOWS}
        return {name for flag, names in by_flag.items() if typed.get(flag) for name in names}

    def _condition(self) -> str:
        if self._settings.mode == "yolo":
            return "asks about nothing (mode yolo)"
        if self._asks:
            return "asks first"
        words = {self._word(CHANGES), self._word((COMMAND,))}
        return "where rules allow it" if "ruled" in words else ""

    def _workspace(self, arguments: argparse.Namespace) -> Workspace | None:
        if self._bare:
            if self._typed.get("allow_writes") or self._typed.get("allow_commands"):
                raise ConfigError("--no-tools goes with neither --allow-writes nor --allow-commands")
            return None
        from treadle.toolkit import Workspace

        added = {name: os.environ[name] for name in self._settings.env if name in os.environ}
        return Workspace(arguments.root, allow_commands=self._word((COMMAND,)) != "no", environment=added)

    def _of_workspace(self) -> list[Tool[..., Any]]:
        """The tools that read, and of the others those that were asked for."""
        from treadle import Effect

        if self.workspace is None:
            return []
        writes = self._word(CHANGES) != "no"
        return [tool for tool in asyncio.run(_all(self.workspace)) if writes or tool.effect is not Effect.WRITE]

    def _web(self) -> list[Tool[..., Any]]:
        from treadle.toolkit import web_fetch, web_search

        try:
            search = web_search(self._settings.search_url or "") if self._wanted("search_url") else []
        except ConfigError as error:
            raise ConfigError(f"{self._settings.origin('search_url')}: {error}") from None
        return [*([web_fetch()] if self._wanted("fetch") else []), *search]

    def _wanted(self, name: str) -> Any:
        """A setting that adds tools."""
        return getattr(self._settings, name) if not self._bare or name in self._typed else None

    def _word(self, names: tuple[str, ...]) -> Word:
        """Whether tools that change something are there, and who lets each call run."""
        mode, explicit = self._settings.mode, self._explicit(names)
        rules = [rule for rule in self._permissions.rules if rule.decision == "allow"]
        free = mode == "yolo" or (mode == "auto-edit" and names == CHANGES)
        ruled = any(_speaks_of(rule, names) for rule in rules)
        if mode == "plan" or self._bare or explicit is False or not (explicit or self._attended or free or ruled):
            return "no"
        if self._asks:
            return "asked"
        return "yes" if free or self._sure or self.granted.issuperset(names) else "ruled"

    def _network(self, names: set[str]) -> Word:
        if not names & {"web_fetch", "web_search"}:
            return "no"
        if "web_fetch" not in names or self._sure or "web_fetch" in self.granted or self._settings.mode == "yolo":
            return "yes"
        return "asked" if self._attended else "ruled"

    def _explicit(self, names: tuple[str, ...]) -> bool | None:
        return self._settings.allow_commands if names == (COMMAND,) else self._settings.allow_writes

    def _facts(self, names: set[str]) -> Facts:
        from treadle.cli.context import Facts

        assert self.workspace is not None
        return Facts(
            Path(self.workspace.root.path),
            dt.datetime.now().astimezone().date(),
            writes=self._word(CHANGES),
            commands=self._word((COMMAND,)),
            network=self._network(names),
        )


async def _all(workspace: Workspace) -> list[Tool[..., Any]]:
    return list(await workspace.tools())


def _speaks_of(rule: PermissionRule, names: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(name, rule.tool) for name in names)
