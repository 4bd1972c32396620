"""The real program in a process of its own, and servers for it to talk to. Every wait is bounded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest

BOUND = 60.0  # seconds; a wait that takes longer is a hang


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


class Program:
    """`treadle` as users start it, in a folder of its own and without the keys and models of this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        foreign = ("_API_KEY", "_BASE_URL", "_PROXY")
        kept = {key: value for key, value in os.environ.items() if not key.upper().endswith(foreign)}
        self.environ = {key: value for key, value in kept.items() if not key.startswith("TREADLE_")}
        # Nothing looks for the local servers that this machine may have. Tests that send requests allow them again.
        self.environ |= {"TREADLE_MODEL_REQUESTS": "deny", "PYTHONUTF8": "1"}
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
        options.setdefault("stdin", subprocess.DEVNULL)
        for stream in ("stdout", "stderr"):
            options.setdefault(stream, subprocess.PIPE)
        process = subprocess.Popen(
            [sys.executable, "-m", "treadle", *arguments], cwd=self.folder, env=self.environ, **options
        )
        self._started.append(process)
        return process

    def __call__(self, *arguments: str, input: str | None = None) -> Outcome:
        process = self.start(*arguments, stdin=subprocess.PIPE if input is not None else subprocess.DEVNULL)
        return finish(process, input)

    def close(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.wait(BOUND)
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()


def finish(process: subprocess.Popen[bytes], input: str | None = None) -> Outcome:
    out, err = process.communicate(None if input is None else input.encode(), timeout=BOUND)
    return Outcome(process.returncode, (out or b"").decode(errors="replace"), (err or b"").decode(errors="replace"))


@pytest.fixture
def treadle(tmp_path: Path) -> Iterator[Program]:
    (tmp_path / "README.md").write_text("# Loom\n\nA loom of our own.\n")
    (tmp_path / "notes.txt").write_text("one\ntwo\n")
    program = Program(tmp_path)
    yield program
    program.close()


class Server:
    """A loopback server. `answers` maps a path to JSON, or to a function that writes the answer itself."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers = answers
        self.requests: list[tuple[str, Any]] = []
        self.released = threading.Event()  # lets an answer end that waits
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                length = int(self.headers.get("content-length", 0))
                body = json.loads(self.rfile.read(length)) if length else None
                outer.requests.append((self.path, body))
                answer = outer.answers.get(self.path)
                if callable(answer):
                    answer(self)
                    return
                status, data = (404, b"<html>") if answer is None else (200, json.dumps(answer).encode())
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = answer

            def log_message(self, *_: Any) -> None: ...

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: Any) -> None:
                """Clients that leave are what some tests are about."""

        self._http = Quiet(("127.0.0.1", 0), Handler)
        self.port = self._http.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/v1"
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.released.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(BOUND)


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    """Starts a loopback server with the given answers."""
    started: list[Server] = []

    def start(answers: dict[str, Any]) -> Server:
        started.append(Server(answers))
        return started[-1]

    yield start
    for server in started:
        server.close()


class Chat:
    """Answers of a chat server, one for each request: the deltas to stream, then how it ends."""

    @staticmethod
    def text(*pieces: str, stop: str = "stop") -> list[dict[str, Any]]:
        return [{"content": piece} for piece in pieces] + [{"finish": stop}]

    @staticmethod
    def call(name: str, args: str) -> list[dict[str, Any]]:
        function = {"name": name, "arguments": args}
        return [{"tool_calls": [{"index": 0, "id": "call_a", "type": "function", "function": function}]}, {"finish": "tool_calls"}]

    STALL: dict[str, Any] = {"stall": True}
    """Sends nothing more until the test is over."""


class ChatServer:
    def __init__(self, serve: Callable[..., Server], answers: list[list[dict[str, Any]]]) -> None:
        self._answers = iter(answers)
        self.left = threading.Event()  # the client went away in the middle of an answer
        self.server = serve({"/v1/chat/completions": self._stream})
        self.model = ("-m", "openai-chat:tiny", "--base-url", self.server.url)

    @property
    def bodies(self) -> list[Any]:
        return [body for _, body in self.server.requests]

    def _stream(self, handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("content-type", "text/event-stream")
        handler.send_header("connection", "close")
        handler.end_headers()
        try:
            for delta in next(self._answers):
                if delta is Chat.STALL:
                    self._stall(handler)
                else:
                    self._send(handler, delta)
            handler.wfile.write(b"data: [DONE]\n\n")
        except OSError:
            self.left.set()

    def _send(self, handler: BaseHTTPRequestHandler, delta: dict[str, Any]) -> None:
        finish = delta.get("finish")
        choice = {"index": 0, "delta": {} if finish else delta, "finish_reason": finish}
        chunk: dict[str, Any] = {"id": "x", "model": "tiny", "choices": [choice]}
        if finish:
            chunk["usage"] = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
        handler.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")

    def _stall(self, handler: BaseHTTPRequestHandler) -> None:
        handler.connection.settimeout(BOUND)
        if handler.connection.recv(1) == b"":  # blocks until the client hangs up
            self.left.set()


@pytest.fixture
def chat(serve: Callable[..., Server], treadle: Program) -> Callable[..., ChatServer]:
    """Starts a chat server with the given answers, and lets the program send requests."""
    treadle.environ |= {"TREADLE_MODEL_REQUESTS": "", "OPENAI_API_KEY": "test-key"}
    return lambda *answers: ChatServer(serve, list(answers))
