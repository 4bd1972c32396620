"""`treadle chat`: from the command line to the prompt."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import termios
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from treadle import __version__
from treadle.cli.options import left_out
from treadle.cli.terminal import neutral, one_line, say, show
from treadle.errors import ConfigError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from treadle import Agent
    from treadle.cli.exits import Signals
    from treadle.cli.settings import Project, Settings

_NO_TERMINAL = "treadle chat needs a terminal; `treadle run PROMPT` works without one"
_EXTRA = 'treadle chat needs packages that are not there: pip install "treadle[terminal]"'
PACKAGES = ("prompt_toolkit", "markdown_it", "pygments", "wcwidth")
# What the client may have left on: paste mode, a hidden cursor, no wrapping, colours, output that is held.
_RESTORING = "\x1b[?2026l\x1b[?2004l\x1b[?25h\x1b[?7h\x1b[0m"


def chat(arguments: argparse.Namespace, signals: Signals) -> int:
    """Runs the client until the person leaves it."""
    _check_terminal()
    if any(find_spec(name) is None for name in PACKAGES):
        raise ConfigError(_EXTRA)
    given = _agent(arguments.agent) if arguments.agent else None
    settings = _settings(arguments)
    with _restored(signals):
        return asyncio.run(_run(settings, "" if arguments.continue_ else arguments.resume, given, signals))


def at_a_terminal() -> bool:
    """Whether there is a terminal to read from and to draw on."""
    streams = (sys.stdin, sys.stdout)
    return all(stream is not None and stream.isatty() for stream in streams)


def _check_terminal() -> None:
    if not at_a_terminal():
        raise ConfigError(_NO_TERMINAL)
    if os.environ.get("TERM", "dumb") in ("", "dumb", "unknown"):
        raise ConfigError("treadle chat needs a terminal that can move its cursor, and TERM says that this one cannot; "
                          "`treadle run PROMPT` works without")  # fmt: skip


def _agent(name: str) -> Agent[Any, Any]:
    from treadle import Agent
    from treadle.cli.loading import load

    found = load(name)
    if not isinstance(found, Agent):
        raise ConfigError(f"{name} is a {type(found).__name__}, not an Agent")
    return found


def _settings(arguments: argparse.Namespace) -> Settings:
    """The settings. Before anything of the project's is used, the person is asked whether it is trusted."""
    from treadle.cli.settings import Trust, load_settings, paths, typed_flags

    trust = Trust(paths(os.environ))
    project = trust.look(Path(arguments.root))
    if not project.trusted and project.files and _is_trusted(project):
        trust.trust(project)
    flags = typed_flags(arguments)
    if arguments.yolo:
        flags["mode"] = "yolo"
    return load_settings(
        root=Path(arguments.root), flags=flags, environ=os.environ, profile=arguments.profile, project=project
    )


def _is_trusted(project: Project) -> bool:
    """Asks. At the end of input nothing is trusted."""
    from treadle.cli.settings._commands import described

    show([neutral(line)[:2000] for line in described(project)])
    say("Without trust they are not used: treadle goes on without them.")
    termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)  # what was typed before the question does not answer it
    print("Trust them as they are now? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


async def _run(settings: Settings, wanted: str | None, given: Agent[Any, Any] | None, signals: Signals) -> int:
    from treadle.cli.chat.building import build

    app, opened = await build(settings, wanted, os.environ, given)
    parts = app.client.parts

    def begin() -> None:
        if opened.messages:
            app.screen.replay(opened.messages)
        for note in (*opened.notes, *left_out(settings), *parts.context.notes):
            app.screen.note(note)
        app.client.do(app.client.choose_model())

    return await app.run(_banner(settings, parts.agents.model, opened.session), begin, signals)


def _banner(settings: Settings, model: str, session: str) -> list[str]:
    from treadle.cli.settings._paths import short

    mode = "yolo: everything runs without asking" if settings.mode == "yolo" else settings.mode
    lines = [
        f"treadle {__version__} · {model or 'no model named'} · {mode}",
        f"{short(settings.project.root, os.environ)} · session {session} · /help",
    ]
    return [one_line(line) for line in lines]


@contextlib.contextmanager
def _restored(signals: Signals) -> Iterator[None]:
    """The terminal as it was, also where a second signal ends the program at once."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)

    def restore() -> str:
        with contextlib.suppress(termios.error):
            termios.tcsetattr(descriptor, termios.TCSANOW, before)
        return _RESTORING

    signals.last_words = restore
    try:
        yield
    finally:
        restore()
        signals.last_words = str
