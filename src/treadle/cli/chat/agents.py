"""The agent of the next run: made when it is needed, and anew once the model or the effort changed."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime as dt
import importlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from treadle.cli.calls import COMMAND
from treadle.cli.options import agent_options, window_of
from treadle.errors import TreadleError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from treadle import Agent, Event, Model, Tool
    from treadle.approval import Approve
    from treadle.cli.calls import Calls
    from treadle.cli.context import Context
    from treadle.cli.settings import Settings
    from treadle.toolkit import Workspace


class Agents:
    """Makes the client's agents. `given` is an agent of the user's own, which keeps its tools and instructions.

    `tap` sees every event of their runs; `note` is told what a person should know.

    Nothing is loaded before the first one is asked for: neither a provider nor the code that speaks HTTP.
    """

    def __init__(
        self,
        settings: Settings,
        workspace: Workspace,
        context: Context,
        *,
        approve: Approve,
        calls: Calls,
        given: Agent[Any, Any] | None = None,
    ) -> None:
        own = given is None or settings.origin("effort").startswith("flag")
        self.effort: str | None = settings.effort if own else None
        self.given: Agent[Any, Any] | None = given
        self.window: int | None = settings.context_tokens  # of the model's context, in tokens
        self.servers: list[Any] = []
        self.faults: list[str] = []  # why others are not among them
        self.tap: Callable[[Event], object] = lambda _: None
        self.note: Callable[[str], object] = lambda _: None
        self._settings = settings
        self._workspace = workspace
        self.context: Context = context
        self._approve = approve
        self._calls = calls
        self._base_url: str | None = settings.base_url
        own = given is None or settings.origin("model").startswith("flag")  # an agent has its model
        self._name: str | None = settings.model if own else None
        self._made: Agent[Any, Any] | None = None
        self._models: dict[tuple[str, str | None], Model] = {}  # made here, by name and address
        self._holding: asyncio.Task[None] | None = None
        self._choosing = asyncio.Lock()
        self._started = asyncio.Event()
        self._leave = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def model(self) -> str:
        """The model as `provider:name`, as far as it is known before it is asked."""
        if self._made is not None:
            return f"{self._made.model.provider}:{self._made.model.name}"
        if self._name is None and self.given is not None:
            return f"{self.given.model.provider}:{self.given.model.name}"
        return self._name or ""

    async def use(self, model: str | None = None, effort: str | None = None) -> None:
        """Changes the model or the effort from the next run on. Where that fails, nothing changes."""
        before = self._name, self._base_url, self.effort, self._made
        if model is not None:
            self._name, self._base_url = model, None
        if effort is not None:
            self.effort = effort or None  # an empty one leaves it to the model
        self._made = None
        try:
            await self.agent()
        except BaseException:
            self._name, self._base_url, self.effort, self._made = before
            raise

    async def agent(self) -> Agent[Any, Any]:
        """The agent as it is now. Raises `ConfigError` where it cannot be."""
        if self._made is None:
            self._loop = asyncio.get_running_loop()
            await self.choose()
            await self._start_servers()
            tools = await self._tools()
            # In a thread: what it imports for the first time takes long enough to be felt at the prompt.
            self._made = await asyncio.to_thread(self._make, tools)
        return self._made

    async def next_run(self) -> Agent[Any, Any]:
        """The agent of a run that begins. No other one goes on, so what models before it hold is ended."""
        agent = await self.agent()
        kept = self._key
        for key in [key for key in self._models if key != kept]:
            await _close(self._models.pop(key))
        return agent

    async def choose(self) -> None:
        """Settles the model where neither the settings nor an agent name one, and says which it is."""
        from treadle.cli.choice import choose

        async with self._choosing:
            if self._name is None and self.given is None:
                choice = await asyncio.to_thread(choose, os.environ)
                self._name, self._base_url = choice.model, choice.base_url
                self.note(choice.why)

    async def close(self) -> None:
        """Ends the servers, and what the model holds."""
        self._leave.set()
        if self._holding is not None:
            if not self._started.is_set():  # a server may take its time, or for ever
                self._holding.cancel()
            await asyncio.wait([self._holding])
        for model in (*self._models.values(), *([self.given.model] if self.given is not None else [])):
            await _close(model)

    def _make(self, tools: Sequence[Tool[..., Any]]) -> Agent[Any, Any]:
        from treadle import Agent

        if self.given is not None:
            return self._adopted(self.given)
        model = self._model()
        settings = self._settings
        self.window = window_of(settings, model, self._base_url)
        settings = dataclasses.replace(settings, effort=self.effort, context_tokens=self.window)
        return Agent(
            model,
            instructions=self.context.instructions(self._facts(tools)),
            tools=[self._calls.watch(tool, self._workspace) for tool in tools],
            toolsets=self.servers,
            approve=self._approve,
            taps=[self.tap],
            **agent_options(settings, model),
        )

    def _adopted(self, given: Agent[Any, Any]) -> Agent[Any, Any]:
        """The user's own agent as it is, with this client's questions where it has none."""
        from treadle import Reasoning

        changes: dict[str, Any] = {
            "taps": (*given.taps, self.tap),
            "approve": given.approve or self._approve,
        }
        if self._name is not None:
            changes["model"] = self._model()
        if self.effort is not None:
            changes["reasoning"] = msgspec.structs.replace(given.reasoning or Reasoning(), effort=self.effort)
        if given.hooks is not None:
            changes["hooks"] = {"before_tool": given.hooks.before, "after_tool": given.hooks.after}
        return dataclasses.replace(given, **changes)

    @property
    def _key(self) -> tuple[str, str | None]:
        return self._name or "", self._base_url

    def _model(self) -> Model:
        """The model of that name: the same one as long as it goes by it, since a local one takes long to load."""
        if (model := self._models.get(self._key)) is None:
            model = self._models[self._key] = self._new_model(*self._key)
        return model

    def _new_model(self, full_name: str, base_url: str | None) -> Model:
        from treadle.providers import resolve

        provider, _, name = full_name.partition(":")
        if provider == "local":
            from treadle.providers.local import LocalModel

            return LocalModel(name, on_load=self._loading(Path(name).name))
        return resolve(full_name, base_url=base_url)

    def _loading(self, name: str) -> Callable[[float], None]:
        """Tells that a model is being loaded, more and more seldom."""
        due = 0.0

        def tell(seconds: float) -> None:
            nonlocal due
            if seconds >= due:
                self._say(f"loading {name} ... {seconds:.0f} s")
                due = max(2.0, due * 2)

        return tell

    def _say(self, text: str) -> None:
        """Notes something, from any thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self.note, text)

    def _facts(self, tools: Sequence[Tool[..., Any]]) -> Any:
        from treadle.cli.context import Facts

        names = {tool.name for tool in tools}
        return Facts(
            Path(self._workspace.root.path),
            dt.datetime.now(tz=dt.UTC).astimezone().date(),
            writes="asked" if "write_file" in names else "no",
            commands="asked" if COMMAND in names else "no",
            network="asked" if names & {"web_fetch", "web_search"} else "no",
        )

    async def _tools(self) -> list[Tool[..., Any]]:
        from treadle.toolkit import mycelium, web_fetch, web_search

        settings = self._settings
        tools = [tool for tool in await self._workspace.tools() if self._is_offered(tool)]
        if self.context.skills:
            tools.append(self.context.skill_tool())
        if settings.fetch:
            tools.append(web_fetch())
        if settings.search_url:
            tools += web_search(settings.search_url)
        return [*tools, *(mycelium() if settings.mycelium else [])]

    def _is_offered(self, tool: Tool[..., Any]) -> bool:
        """Whether the settings leave the model this tool; what it may do with it is asked later."""
        if tool.effect == "write":
            return self._settings.allow_writes is not False
        return tool.name != COMMAND or self._settings.allow_commands is not False

    async def _start_servers(self) -> None:
        """Returns when the servers of the settings have started, or have failed to."""
        if not self._settings.mcp or self.given is not None:
            return
        # In a thread: it takes a second, in which no key would be answered. Where it is not there, the servers say so.
        with contextlib.suppress(ImportError):
            await asyncio.to_thread(importlib.import_module, "mcp")
        if self._holding is None:
            from treadle.cli.mcp import load_servers

            self.servers = load_servers(self._settings.mcp, self._settings.content)
            count = len(self.servers)
            self.note(f"starting {count} MCP server{'s' * (count != 1)} ...")
            self._holding = asyncio.get_running_loop().create_task(self._hold())
        await self._started.wait()

    async def _hold(self) -> None:
        """Keeps the servers from here to the end, in one task. One that does not start is told of and left out."""
        async with contextlib.AsyncExitStack() as stack:
            try:
                self._leave_out([await _fault(stack.enter_async_context(server)) for server in self.servers])
                self._leave_out(await asyncio.gather(*(_fault(server.ready()) for server in self.servers)))
            finally:
                self._started.set()
            await self._leave.wait()

    def _leave_out(self, faults: Sequence[str | None]) -> None:
        for fault in dict.fromkeys(filter(None, faults)):
            self.faults.append(fault)
            self.note(fault)
        self.servers = [server for server, fault in zip(self.servers, faults, strict=True) if fault is None]


async def _fault(starting: Awaitable[object]) -> str | None:
    """Why a server is not to be had; None once it is."""
    try:
        await starting
    except TreadleError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - the others are to be had, whatever went wrong with one
        return f"an MCP server could not be started: {type(error).__name__}: {error}"
    return None


async def _close(model: Model) -> None:
    if (aclose := getattr(model, "aclose", None)) is not None:
        await aclose()
