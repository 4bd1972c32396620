"""The real program in a process of its own, and servers for it to talk to. Every wait is bounded."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

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
        self.home = folder.with_name(f"{folder.name}-home")  # nothing of the user's own is read or written
        self.environ["TREADLE_HOME"] = str(self.home)
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


def wait_for(process: subprocess.Popen[bytes], stream: Any, wanted: bytes) -> bytes:
    """What comes on `stream` until `wanted` is in it."""
    seen, deadline = b"", time.monotonic() + BOUND
    while wanted not in seen:
        ready, _, _ = select.select([stream], [], [], max(0.0, deadline - time.monotonic()))
        piece = os.read(stream.fileno(), 4096) if ready else b""
        assert piece, (seen, process.poll())
        seen += piece
    return seen


class Server:
    """A loopback server. `answers` maps a path to JSON, or to a function that writes the answer itself."""

    def __init__(self, answers: dict[str, Any], port: int = 0) -> None:
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

        self._http = Quiet(("127.0.0.1", port), Handler)
        self.port = self._http.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/v1"
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.released.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(BOUND)


STALL: dict[str, Any] = {}
"""Where an answer stops and sends nothing more until the client hangs up."""


def text(*pieces: str, stop: str = "stop") -> list[dict[str, Any]]:
    """An answer of text."""
    return [*({"content": piece} for piece in pieces), {"finish": stop}]


def call(name: str, args: str) -> list[dict[str, Any]]:
    """An answer that calls a tool."""
    function = {"name": name, "arguments": args}
    return [
        {"tool_calls": [{"index": 0, "id": "a", "type": "function", "function": function}]},
        {"finish": "tool_calls"},
    ]


class ChatServer:
    """A chat server with an answer for each request: the deltas to stream, then how it ends."""

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
                if delta is STALL:
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
