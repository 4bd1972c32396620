"""`treadle run`."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import sys
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

from treadle.cli.asking import Person, Policy
from treadle.cli.choice import OFFLINE_NOTE, Choice, choose
from treadle.cli.exits import Exit
from treadle.cli.mcp import load_servers, started
from treadle.cli.options import left_out
from treadle.cli.terminal import Screen, at_a_terminal, complain, say
from treadle.cli.toolbox import Toolbox
from treadle.errors import AuthenticationError, ConfigError, RunError, StoreError
from treadle.usage import StopReason

if TYPE_CHECKING:
    import argparse

    from treadle import Agent, Event, Model, Run
    from treadle.cli.context import Context
    from treadle.cli.driving import Driver
    from treadle.cli.exits import Signals
    from treadle.cli.settings import Settings
    from treadle.store import JsonLinesStore

_SHORT = frozenset(
    {
        StopReason.MAX_STEPS,
        StopReason.BUDGET,
        StopReason.MAX_TOKENS,
        StopReason.REFUSAL,
        StopReason.CONTEXT,
        StopReason.OTHER,
    }
)


def run(arguments: argparse.Namespace, signals: Signals) -> int:
    """Runs one prompt and shows it, or what another program says as JSON lines.

    What tools print goes to standard error: standard output is the answer's, or the event log's.
    """
    out = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        if arguments.prompt is None and not arguments.json:
            raise ConfigError(
                "what to ask is missing: give PROMPT, - to read it from standard input, or --json for many"
            )
        return _Run(arguments).go(out, signals)


class _Run:
    """Everything that a run is made of. Raises `ConfigError`, and has sent nothing then."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        from treadle.cli.attachments import user_input
        from treadle.cli.settings import Trust, load_settings, paths, typed_flags

        typed = typed_flags(arguments)
        root = Path(arguments.root)
        project = Trust(paths(os.environ)).look(root)
        profile = arguments.profile
        settings = load_settings(root=root, flags=typed, environ=os.environ, profile=profile, project=project)
        self.settings: Settings = settings
        self.driver: Driver | None = _driver() if arguments.prompt is None else None
        if self.driver is not None and arguments.file:
            raise ConfigError(
                '--file goes with PROMPT; a line of --json names its own: {"type": "prompt", "files": [...]}'
            )
        self.context = _context(settings)
        self._permit(arguments, typed)
        self.given = user_input(arguments.prompt, arguments.file) if arguments.prompt is not None else []
        self.choice = _chosen(settings)
        self.model = _model(self.choice, arguments.chat_template)
        self._servers(arguments, typed)
        self.place = _place(arguments, root)
        self.json: bool = arguments.json

    def _permit(self, arguments: argparse.Namespace, typed: dict[str, Any]) -> None:
        """The tools, and who decides on their calls."""
        from treadle.cli.permissions import load_permissions
        from treadle.cli.settings import paths

        settings = self.settings
        permissions = load_permissions(settings, root=Path(arguments.root), environ=os.environ)
        attended = self.driver is not None or at_a_terminal()
        self.toolbox = Toolbox(arguments, settings, permissions, self.context, typed=typed, attended=attended)
        person = Person(self.toolbox.workspace, permissions.asks) if attended else None
        self.policy = Policy(
            permissions,
            self.toolbox.granted,
            ask=self.driver.ask if self.driver is not None else person,
            sure=arguments.yes,
            rules_file=str(paths(os.environ).config_file),
        )

    def _servers(self, arguments: argparse.Namespace, typed: dict[str, Any]) -> None:
        """The MCP servers. The tools of those that were typed need no rule where nobody can be asked."""
        from_flags = {os.path.normpath(Path.cwd() / Path(file).expanduser()) for file in typed.get("mcp", ())}
        files = [file for file in self.settings.mcp if not arguments.no_tools or file in from_flags]
        self.servers: list[Any] = []
        self.trusted_servers: list[Any] = []
        for file in files:
            found = load_servers([file], self.settings.content)
            self.servers += found
            if file in from_flags and not at_a_terminal() and self.driver is None:
                self.trusted_servers += found

    def go(self, out: Any, signals: Signals) -> int:
        """Does it. What is shown goes to `out` and standard error."""
        from treadle import Agent
        from treadle.cli.options import agent_options, window_of

        log: deque[Event] = deque()  # what was not shown yet: an interrupted run tells its end to taps only
        window = window_of(self.settings, self.model, self.choice.base_url)
        settings = dataclasses.replace(self.settings, context_tokens=window)
        agent = Agent(
            self.model,
            instructions=self.toolbox.instructions,
            tools=self.toolbox.tools,
            toolsets=self.servers,
            approve=self.policy,
            taps=[log.append],
            **agent_options(settings, self.model),
        )
        self.toolbox.tell()
        screen = Screen(out, self.toolbox.calls, json=self.json, listed_prices=self.choice.base_url is None)
        return asyncio.run(self._go(agent, screen, signals, log))

    async def _go(self, agent: Agent[Any, Any], screen: Screen, signals: Signals, log: deque[Event]) -> int:
        cancel, loop = asyncio.current_task().cancel, asyncio.get_running_loop()  # type: ignore[union-attr]
        signals.last_words = lambda: f"\n{screen.tally.line(estimate=False)}\n"
        signals.on_first = lambda: loop.call_soon_threadsafe(cancel)
        try:
            place = await self._session()
            async with started(self.servers):
                for server in self.trusted_servers:
                    self.policy.granted.update(tool.name for tool in await server.tools())
                if self.driver is not None:
                    return await self.driver.drive(agent, screen, signals, log, place)
                return await _drive(agent.stream(self.given, **place), screen, signals, log)
        except asyncio.CancelledError:  # before a run began, or behind it
            if not signals.code:
                raise
            say(screen.tally.line())
            return signals.code
        finally:
            signals.on_first = None
            if (aclose := getattr(agent.model, "aclose", None)) is not None:
                await aclose()

    async def _session(self) -> dict[str, Any]:
        """The store and the session to go on with, as `Agent.stream` takes them."""
        if self.place is None:
            return {}
        store, session = self.place
        if session is None:
            found = await store.list()
            if not found:
                raise ConfigError("no session of this directory is stored yet: --session ID begins one")
            session = found[0].id
        say(f"session: {session}")
        return {"store": store, "session": session}


def _driver() -> Driver:
    from treadle.cli.driving import Driver

    return Driver(sys.stdin)


def _context(settings: Settings) -> Context:
    """What is told beside the prompt. What does not count, or could not be read, is said."""
    from treadle.cli.context import load_context

    context = load_context(settings.project, os.environ)
    for line in left_out(settings):
        say(line)
    for line in context.notes:
        say(f"context: {line}")
    return context


def _place(arguments: argparse.Namespace, root: Path) -> tuple[JsonLinesStore, str | None] | None:
    """Where the run is stored: only where that is asked for. Without an id it is the last session."""
    if arguments.session is None and not arguments.go_on:
        return None
    from treadle.cli.stored import session_store
    from treadle.sessions import check_session_id

    if arguments.session is not None:
        try:
            check_session_id(arguments.session)
        except StoreError as error:
            raise ConfigError(f"--session: {error}") from None
    return session_store(root, os.environ), arguments.session


def _chosen(settings: Settings) -> Choice:
    if settings.model is not None:
        origin = settings.origin("model")
        typed = origin.startswith("flag ")
        why = "" if typed else f"using {settings.model} ({origin.removeprefix('environment ')})"
        return Choice(settings.model, settings.base_url, why)
    if settings.base_url is not None:
        raise ConfigError("--base-url needs the model that answers there: -m PROVIDER:MODEL")
    return choose(os.environ)


def _model(choice: Choice, chat_template: str | None) -> Model:
    """The chosen model; what is chosen and why goes to standard error where that was not asked for by `-m`."""
    provider, _, name = choice.model.partition(":")
    if choice.why:
        say(choice.why)
    if provider == "offline" and OFFLINE_NOTE not in choice.why:
        say(f"{choice.model}: {OFFLINE_NOTE}")
    if provider == "local":
        if choice.base_url is not None:
            raise ConfigError("--base-url does not go with local: models, which have a server of their own")
        return _local_model(name, chat_template)
    if chat_template is not None:
        raise ConfigError("--chat-template is for local: models; other servers have a template of their own")
    from treadle.providers import resolve

    return resolve(choice.model, base_url=choice.base_url)


def _local_model(path: str, chat_template: str | None) -> Model:
    from treadle.providers.local import LocalModel

    due = 0.0

    def tell(seconds: float) -> None:
        nonlocal due
        if seconds >= due:
            say(f"loading {Path(path).name} ... {seconds:.0f} s")
            due = max(2.0, due * 2)

    return LocalModel(path, chat_template=chat_template, on_load=tell)


async def _drive(run: Run[Any], screen: Screen, signals: Signals, log: deque[Event]) -> int:
    """Shows the run's events. The summary is the last line, whatever happens."""
    try:
        async with run:
            async for _ in run:
                screen.show(log.popleft())
        code = int(exit_code(screen.tally.stop))
    except asyncio.CancelledError:
        if not signals.code:
            raise
        code = signals.code
        while log:
            screen.show(log.popleft())
    except (RunError, StoreError) as error:
        code = failed(error, screen)
    screen.end_line()
    say(screen.tally.line())
    return code


def failed(error: RunError | StoreError, screen: Screen) -> int:
    """Says what broke a run. Raises `ConfigError` where that is the cause: nothing was sent, nothing is summed up."""
    cause = error.__cause__
    if isinstance(cause, ConfigError):
        raise cause from None
    if isinstance(cause, AuthenticationError) and cause.status is None:  # no server said so: there is no key
        raise ConfigError(str(cause)) from None
    return complain(str(error), Exit.SHORT if screen.tally.stop is StopReason.CONTEXT else Exit.FAILED)


def exit_code(stop: StopReason) -> Exit:
    """What the end of a run is as an exit code."""
    if stop.complete:
        return Exit.COMPLETE
    return Exit.SHORT if stop in _SHORT else Exit.FAILED
