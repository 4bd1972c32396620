"""`treadle run`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

from treadle.cli.choice import OFFLINE_NOTE, Choice, choose
from treadle.cli.exits import Exit
from treadle.cli.mcp import load_servers, started
from treadle.cli.terminal import Screen, complain, say
from treadle.cli.toolbox import Toolbox
from treadle.errors import ConfigError, RunError
from treadle.usage import StopReason

if TYPE_CHECKING:
    import argparse

    from treadle import Agent, Event, Model
    from treadle.cli.exits import Signals
    from treadle.messages import FilePart, TextPart

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
    """Runs one prompt and shows it. What tools print goes to standard error: standard output is the answer's."""
    from treadle import Agent, Limits
    from treadle.cli.attachments import user_input

    out = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        toolbox = Toolbox(arguments)
        given = user_input(arguments.prompt, arguments.file)
        choice = _chosen(arguments)
        model = _model(choice, arguments.chat_template)
        log: deque[Event] = deque()  # what was not shown yet: an interrupted run tells its end to taps only
        limits = Limits(steps=arguments.max_steps)
        instructions = toolbox.instructions if arguments.system is None else arguments.system
        toolsets = load_servers(arguments.mcp)
        agent = Agent(
            model,
            instructions=instructions,
            tools=toolbox.tools,
            toolsets=toolsets,
            limits=limits,
            approve=toolbox.approve,
            taps=[log.append],
        )
        toolbox.tell()
        screen = Screen(out, toolbox.calls, json=arguments.json, listed_prices=choice.base_url is None)
        return asyncio.run(_drive(agent, given, screen, signals, log))


def _chosen(arguments: argparse.Namespace) -> Choice:
    if arguments.model is not None:
        return Choice(arguments.model, arguments.base_url, "")
    if arguments.base_url is not None:
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


async def _drive(
    agent: Agent[Any, Any], given: list[TextPart | FilePart], screen: Screen, signals: Signals, log: deque[Event]
) -> int:
    """Shows the run's events. The summary is the last line, whatever happens."""
    cancel, loop = asyncio.current_task().cancel, asyncio.get_running_loop()  # type: ignore[union-attr]
    signals.last_words = lambda: f"\n{screen.tally.line(estimate=False)}\n"
    signals.on_first = lambda: loop.call_soon_threadsafe(cancel)
    try:
        async with started(agent.toolsets), agent.stream(given) as run:
            async for _ in run:
                screen.show(log.popleft())
        code = int(_exit_code(screen.tally.stop))
    except asyncio.CancelledError:
        if not signals.code:
            raise
        code = signals.code
        while log:
            screen.show(log.popleft())
    except RunError as error:
        if isinstance(error.__cause__, ConfigError):
            raise error.__cause__ from None  # nothing was sent, so there is nothing to sum up
        code = complain(str(error), Exit.SHORT if screen.tally.stop is StopReason.CONTEXT else Exit.FAILED)
    finally:
        signals.on_first = None
        if (aclose := getattr(agent.model, "aclose", None)) is not None:
            await aclose()
    screen.end_line()
    say(screen.tally.line())
    return code


def _exit_code(stop: StopReason) -> Exit:
    if stop.complete:
        return Exit.COMPLETE
    return Exit.SHORT if stop in _SHORT else Exit.FAILED
