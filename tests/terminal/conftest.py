"""The real client in a real terminal, with a provider on loopback that plays a script."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.provider import Provider, Refusal
from support.terminal import Terminal, environment, python

Start = Callable[..., Terminal]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def root(home: Path) -> Path:
    """A small project, below the home directory."""
    folder = home / "loom"
    folder.mkdir()
    (folder / "README.md").write_text("# Loom\n\nA loom of our own.\n")
    (folder / "notes.txt").write_text("one\ntwo\n")
    return folder


@pytest.fixture
def provider() -> Iterator[Callable[..., Provider]]:
    started: list[Provider] = []

    def start(*answers: list[object] | Refusal) -> Provider:
        started.append(Provider(*answers))
        return started[-1]

    yield start
    for each in started:
        each.close()


@pytest.fixture
def start(home: Path, root: Path) -> Iterator[Start]:
    """Starts `treadle` with these arguments in the project."""
    started: list[Terminal] = []

    def start(*arguments: str, columns: int = 80, lines: int = 24, **environ: str) -> Terminal:
        command = python("-m", "treadle", *arguments)
        started.append(Terminal(command, root, environment(home, **environ), columns=columns, lines=lines))
        return started[-1]

    yield start
    for terminal in started:
        terminal.close()


@pytest.fixture
def chat(start: Start) -> Start:
    """Starts the client of a provider, and waits for its prompt."""

    def begin(provider: Provider, *arguments: str, **options: object) -> Terminal:
        terminal = start("chat", *provider.model, *arguments, **options)
        terminal.wait(lambda: terminal.modes.paste, "the prompt")
        return terminal

    return begin
