"""The real program in a process of its own, and servers for it to talk to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.program import ChatServer, Program, Server


@pytest.fixture
def treadle(tmp_path: Path) -> Iterator[Program]:
    (tmp_path / "README.md").write_text("# Loom\n\nA loom of our own.\n")
    (tmp_path / "notes.txt").write_text("one\ntwo\n")
    program = Program(tmp_path)
    yield program
    program.close()


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    """Starts a loopback server with the given answers."""
    started: list[Server] = []

    def start(answers: dict[str, Any], port: int = 0) -> Server:
        started.append(Server(answers, port))
        return started[-1]

    yield start
    for server in started:
        server.close()


@pytest.fixture
def chat(serve: Callable[..., Server], treadle: Program) -> Callable[..., ChatServer]:
    """Starts a chat server with the given answers, and lets the program send requests."""
    treadle.environ |= {"TREADLE_MODEL_REQUESTS": "", "OPENAI_API_KEY": "test-key"}
    return lambda *answers: ChatServer(serve, list(answers))
