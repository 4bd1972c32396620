"""A provider on loopback that plays a script: text at a pace, calls, holes that a test fills, and failures.

Built on the chat server of `support.program`; each argument of `Provider` is the answer to one request.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler
from typing import Any, NamedTuple

from support.program import BOUND, STALL, ChatServer, Server, call, text

CUT: dict[str, Any] = {"cut": True}
"""Where the connection breaks in the middle of an answer."""


class Hold:
    """A place in an answer: `reached` tells that the server is there, `release()` lets it go on."""

    def __init__(self) -> None:
        self._reached = threading.Event()
        self._released = threading.Event()

    def reached(self) -> bool:
        return self._reached.is_set()

    def release(self) -> None:
        self._released.set()

    def pass_by(self) -> None:
        self._reached.set()
        assert self._released.wait(BOUND), "nobody released it"


class Pause(NamedTuple):
    """A place in an answer where so much time passes: what paces a stream."""

    seconds: float


class Refusal(NamedTuple):
    """An answer that is an error."""

    status: int
    message: str = "try later"
    headers: tuple[tuple[str, str], ...] = ()


def paced(pieces: Iterable[str], seconds: float) -> list[Any]:
    """An answer of text with a pause before each piece."""
    return [part for piece in pieces for part in (Pause(seconds), {"content": piece})] + [{"finish": "stop"}]


def words(answer: str) -> list[Any]:
    """An answer of text, a word at a time."""
    pieces = answer.replace(" ", " \0").split("\0")
    return text(*pieces)


def tool(name: str, /, **arguments: Any) -> list[Any]:
    """An answer that calls a tool."""
    return call(name, json.dumps(arguments))


def thought(reasoning: str, answer: list[Any]) -> list[Any]:
    """An answer with the reasoning of a compatible server before it."""
    return [{"reasoning_content": reasoning}, *answer]


class Provider(ChatServer):
    """The script's answers in order. A request beyond them is refused, and `missed` counts it."""

    def __init__(self, *answers: list[Any] | Refusal) -> None:
        self.missed = 0
        self._lock = threading.Lock()
        self._started: list[Server] = []
        super().__init__(self._serve, list(answers))  # type: ignore[arg-type]

    def _serve(self, answers: dict[str, Any]) -> Server:
        self._started.append(Server(answers))
        return self._started[-1]

    def close(self) -> None:
        for server in self._started:
            server.close()

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def asked(self) -> list[str]:
        """What the last request said, a line for each message: its role, and its text or its calls."""
        return [_line(message) for message in self.bodies[-1]["messages"]]

    def _stream(self, handler: BaseHTTPRequestHandler) -> None:
        with self._lock:
            answer = next(self._answers, None)
        if answer is None:
            self.missed += 1
            answer = Refusal(400, "the script has no more answers")
        if isinstance(answer, Refusal):
            self._refuse(handler, answer)
            return
        handler.send_response(200)
        handler.send_header("content-type", "text/event-stream")
        handler.send_header("connection", "close")
        handler.end_headers()
        try:
            for part in answer:
                self._play(handler, part)
            handler.wfile.write(b"data: [DONE]\n\n")
        except OSError:
            self.left.set()

    def _play(self, handler: BaseHTTPRequestHandler, part: Any) -> None:
        if isinstance(part, Hold):
            part.pass_by()
        elif isinstance(part, Pause):
            time.sleep(part.seconds)
        elif part is STALL:
            self._stall(handler)
        elif part is CUT:
            handler.connection.shutdown(2)
        else:
            self._send(handler, part)

    @staticmethod
    def _refuse(handler: BaseHTTPRequestHandler, refusal: Refusal) -> None:
        body = json.dumps({"error": {"message": refusal.message}}).encode()
        handler.send_response(refusal.status)
        for name, value in (*refusal.headers, ("content-type", "application/json"), ("content-length", str(len(body)))):
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)


def _line(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, list):
        content = "".join(part.get("text", f"[{part.get('type')}]") for part in content)
    calls = "".join(f"[{each['function']['name']}]" for each in message.get("tool_calls") or ())
    return f"{message['role']}: {content}{calls}"


Providers = Callable[..., Provider]
