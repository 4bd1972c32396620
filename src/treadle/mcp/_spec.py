"""What is known of a server before it is connected, and what is known of a connection while it lives."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from treadle.errors import MCPError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping
    from contextlib import AbstractAsyncContextManager
    from typing import Protocol

    from treadle._guard import Waits
    from treadle.mcp._elicit import Elicit

    class Transport(Protocol):
        """Where a server is and how to talk to it.

        `restartable`: each connection starts a server of its own. `probe_seconds`: how long only the newest protocol is
        asked for.
        """

        @property
        def restartable(self) -> bool: ...
        @property
        def probe_seconds(self) -> float: ...

        def open(self, life: Life) -> AbstractAsyncContextManager[tuple[Any, Any]]: ...


log = logging.getLogger("treadle.mcp")

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
"""A longer message of a server ends its connection."""
MAX_TOLD = 2_000
"""Characters of an error, or of a note of progress, that are passed on."""
REFUSED = -32_099
"""Our own error code for a request that the server did not take: it was not there, or does not know the session."""
_TAIL_BYTES = 8 * 1024
_SHOWN_LINES = 5
_SHOWN_CHARACTERS = 600


class SessionRefusedError(Exception):
    """The server did not take a request, since it was not there or does not know the session. It is safe to repeat."""


@dataclass(frozen=True)
class Timeouts:
    connect: float
    list: float
    call: float
    close: float


@dataclass(frozen=True)
class Spec:
    """One server as it was configured."""

    name: str
    transport: Transport
    timeouts: Timeouts
    protocol: str
    elicit: Elicit | None


@dataclass(frozen=True)
class Command:
    """A server that is a child process."""

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str | None = None
    restartable: bool = True
    probe_seconds: float = 2.0  # old servers may never answer

    def open(self, life: Life) -> AbstractAsyncContextManager[tuple[Any, Any]]:
        from treadle.mcp._stdio import stdio

        return stdio(self, life)


@dataclass(frozen=True)
class Endpoint:
    """A server at a URL. `auth` is an `httpx2.Auth`, or what makes one for a connection."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    auth: Any = field(default=None, repr=False)
    restartable: bool = False
    probe_seconds: float = 10.0  # they answer, if only with an error

    def open(self, life: Life) -> AbstractAsyncContextManager[tuple[Any, Any]]:
        from treadle.mcp._http import http

        return http(self, life)


class Tail:
    """The last of what a server wrote to its standard error."""

    def __init__(self) -> None:
        self._pieces: deque[bytes] = deque()
        self._size = 0

    def add(self, data: bytes) -> None:
        self._pieces.append(data[-_TAIL_BYTES:])
        self._size += len(self._pieces[-1])
        while self._size - len(self._pieces[0]) >= _TAIL_BYTES:
            self._size -= len(self._pieces.popleft())

    @property
    def text(self) -> str:
        """The last lines, as one line of printable text."""
        lines = b"".join(self._pieces)[-_TAIL_BYTES:].decode(errors="replace").splitlines()
        kept = [line.strip() for line in lines if line.strip()][-_SHOWN_LINES:]
        return printable(" | ".join(kept)[-_SHOWN_CHARACTERS:])


def printable(text: str) -> str:
    """`text` as a terminal and a log can show it on one line."""
    return "".join(character if character.isprintable() else " " for character in text)


class Bound:
    """The time limit of one request. It stands still while a person is asked, and so do the limits of its run.

    The server asks without saying for which request: all that go on wait for the person.
    """

    def __init__(self, timeout: asyncio.Timeout, waits: Waits | None) -> None:
        self._timeout = timeout
        self._waits = waits
        self._left: float | None = None
        self._waiting = contextlib.ExitStack()

    def pause(self) -> None:
        when = self._timeout.when()
        if self._left is None and when is not None and not self._timeout.expired():
            self._left = when - asyncio.get_running_loop().time()
            self._timeout.reschedule(None)
            if self._waits is not None:
                self._waiting.enter_context(self._waits())

    def go_on(self) -> None:
        if self._left is not None:
            self._waiting.close()
            self._timeout.reschedule(asyncio.get_running_loop().time() + self._left)
            self._left = None


class Life:
    """One connection's state, shared by the task that owns it, its transport and its callers.

    `over` is set when it has ended or must end, `fault` says why. A `refused` connection takes no further requests: the
    server did not take one of them.
    """

    def __init__(self, name: str, timeouts: Timeouts) -> None:
        self.name = name
        self.timeouts = timeouts
        self.over: asyncio.Event = asyncio.Event()
        self.fault: str | None = None
        self.refused = False
        self.tail: Tail = Tail()
        self._bounds: set[Bound] = set()
        self._asking = 0

    @property
    def usable(self) -> bool:
        return not self.over.is_set() and not self.refused

    def end(self, fault: str | None = None) -> None:
        self.fault = self.fault or fault
        self.over.set()

    def error(self, what: str) -> MCPError:
        """An error of this server, with what it wrote to its standard error at last."""
        told = f"; its stderr ends with: {self.tail.text}" if self.tail.text else ""
        return MCPError(f"MCP server {self.name}: {printable(what[:MAX_TOLD])}{told}")

    @contextlib.asynccontextmanager
    async def limit(self, seconds: float, waits: Waits | None = None) -> AsyncIterator[None]:
        """Raises `TimeoutError` after `seconds`; time in which a person is asked does not count, and is in `waits`."""
        async with asyncio.timeout(seconds) as timeout:
            bound = Bound(timeout, waits)
            self._bounds.add(bound)
            if self._asking:
                bound.pause()
            try:
                yield
            finally:
                self._bounds.discard(bound)
                bound.go_on()

    @contextlib.contextmanager
    def asking_a_person(self) -> Iterator[None]:
        self._asking += 1
        for bound in self._bounds:
            bound.pause()
        try:
            yield
        finally:
            self._asking -= 1
            if not self._asking:
                for bound in self._bounds:
                    bound.go_on()
