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
from treadle.cli.terminal import one_line, say, show
from treadle.errors import ConfigError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from treadle import Agent
    from treadle.cli.chat.app import App
    from treadle.cli.chat.building import Built
    from treadle.cli.chat.plain import Plain
    from treadle.cli.exits import Signals
    from treadle.cli.settings import Project, Settings

_EXTRA = 'treadle chat needs packages that are not there: pip install "treadle[terminal]"'
PACKAGES = ("prompt_toolkit", "markdown_it", "pygments", "wcwidth")
# What the client may have left on: paste mode, a hidden cursor, no wrapping, colours, output that is held.
_RESTORING = "\x1b[?2026l\x1b[?2004l\x1b[?25h\x1b[?7h\x1b[0m"


def chat(arguments: argparse.Namespace, signals: Signals) -> int:
    """Runs the client until the person leaves it."""
    if any(find_spec(name) is None for name in PACKAGES):
        raise ConfigError(_EXTRA)
    from treadle.cli.settings import typed_flags

    flags = typed_flags(arguments)
    _check_model(flags.get("model"), flags.get("base_url"))  # before anything is asked
    given = _agent(arguments.agent) if arguments.agent else None
    settings = _settings(arguments, flags)
    if given is None:
        _check_model(settings.model, settings.base_url)
    with _restored(signals) if can_draw() else contextlib.nullcontext():
        return asyncio.run(_run(settings, "" if arguments.continue_ else arguments.resume, given, signals))


def at_a_terminal() -> bool:
    """Whether there is a terminal to read from and to draw on."""
    streams = (sys.stdin, sys.stdout)
    return all(stream is not None and stream.isatty() for stream in streams)


def can_draw() -> bool:
    """Whether it is one that can move its cursor."""
    return at_a_terminal() and os.environ.get("TERM", "dumb") not in ("", "dumb", "unknown")


def _agent(name: str) -> Agent[Any, Any]:
    from treadle import Agent
    from treadle.cli.loading import kind, load

    found = load(name)
    if not isinstance(found, Agent):
        raise ConfigError(f"{name} is {kind(found)}, not an Agent")
    return found


def _check_model(name: str | None, base_url: str | None) -> None:
    """Raises `ConfigError` for a name that means no model. Loads nothing that speaks HTTP, now or later."""
    from treadle.providers import resolve, split_name

    if name is not None and split_name(name)[0] == "offline":
        resolve(name, base_url=base_url)  # it has few models, and they take no address


def _settings(arguments: argparse.Namespace, flags: dict[str, Any]) -> Settings:
    """The settings. Before anything of the project's is used, the person is asked whether it is trusted."""
    from treadle.cli.settings import Trust, load_settings, paths

    trust = Trust(paths(os.environ))
    project = trust.look(Path(arguments.root))
    if not project.trusted and project.files and _is_trusted(project):
        trust.trust(project)
    if arguments.yolo:
        flags = {**flags, "mode": "yolo"}
    return load_settings(
        root=Path(arguments.root), flags=flags, environ=os.environ, profile=arguments.profile, project=project
    )


def _is_trusted(project: Project) -> bool:
    """Asks. At the end of input, and where nobody can be asked, nothing is trusted."""
    from treadle.cli.settings._described import described

    if sys.stdin is None or not sys.stdin.isatty():
        return False
    show(described(project))
    say("Without trust they are not used: treadle goes on without them.")
    termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)  # what was typed before the question does not answer it
    print("Trust them as they are now? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


async def _run(settings: Settings, wanted: str | None, given: Agent[Any, Any] | None, signals: Signals) -> int:
    from treadle.cli.chat.building import build
    from treadle.cli.chat.commands import shadowed
    from treadle.cli.chat.session_commands import context_tokens, is_stored

    built = await build(settings, wanted, os.environ, given, drawn=can_draw())
    parts, opened = built.parts, built.opened
    app = _app(built)
    face = app.client.face
    if opened.messages:
        app.client.context_tokens = built.view.context = await context_tokens(parts.store, opened.session)

    def begin() -> None:
        if opened.messages:
            face.replay(opened.messages)
        for note in (*opened.notes, *left_out(settings), *parts.context.notes, *shadowed(parts.context)):
            face.note(note)
        if sys.stdin is not None and sys.stdin.isatty():
            app.client.do(app.client.choose_model())

    code = await app.run(_banner(settings, parts.agents.model, opened.session), begin, signals)
    if sys.stdin is not None and sys.stdin.isatty() and await is_stored(app.client):
        say(f"to go on with session {app.client.conversation.session}: treadle chat --continue")
    return code


def _app(built: Built) -> App | Plain:
    """The client that fits the streams."""
    if can_draw():
        from treadle.cli.chat.app import App
        from treadle.cli.chat.history import HistoryFile
        from treadle.cli.settings import paths

        history = HistoryFile(paths(os.environ).state_dir / "history.jsonl")
        return App(built.parts, built.opened.session, built.view, history)
    from treadle.cli.chat.plain import plain

    return plain(built.parts, built.opened.session, built.view)


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
