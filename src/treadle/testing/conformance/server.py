"""An HTTP server on loopback that gives the answers it was told to give, byte by byte if need be."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from treadle.testing.conformance.answers import Spoken

STALL = "stall"
"""Send nothing more and wait until the client leaves."""
CLOSE = "close"
"""Close the connection where it is, without the end of the body."""
RESET = "reset"
"""Break the connection."""

Send: TypeAlias = bytes | str | asyncio.Event | float
"""Bytes to send, one of the words above, an event to wait for, or seconds to wait."""


class Reply(msgspec.Struct, frozen=True, eq=False):
    """An HTTP answer. `body` holds its bytes, each event of the wire format for itself."""

    body: tuple[Send, ...] = ()
    status: int = 200
    content_type: str = "text/event-stream"
    headers: dict[str, str] = {}
    head: bool = True
    """Without one, nothing at all is sent before the body's first pieces."""

    @property
    def data(self) -> bytes:
        """All the bytes of the body."""
        return b"".join([piece for piece in self.body if isinstance(piece, bytes)])

    @property
    def events(self) -> tuple[bytes, ...]:
        """The bytes of the body as they were given."""
        return tuple([piece for piece in self.body if isinstance(piece, bytes)])

    def sending(self, *body: Send) -> Reply:
        """The same answer with another body."""
        return msgspec.structs.replace(self, body=body)

    def in_pieces(self, sizes: Sequence[int]) -> Reply:
        """The body in pieces of these sizes, again and again from the first."""
        data, pieces, at, number = self.data, [], 0, 0
        while at < len(data):
            size = sizes[number % len(sizes)]
            pieces.append(data[at : at + size])
            at, number = at + size, number + 1
        return self.sending(*pieces)

    def with_header(self, name: str, value: str) -> Reply:
        """The same answer with one more header."""
        return msgspec.structs.replace(self, headers={**self.headers, name: value})


class Seen(msgspec.Struct, frozen=True, eq=False):
    """A request as it arrived. Names of headers are in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Server:
    """What a model under test talks to.

    `url` is its address without a path, `api_key` a key that must show nowhere but in the request, and
    `idle_timeout_seconds` how long the model should wait where nothing comes. `answers` says what the model will hear,
    request by request, for models that have no wire and answer by themselves.
    """

    def __init__(
        self,
        answers: Sequence[Spoken] = (),
        replies: Sequence[Reply] | Callable[[Seen], Reply] = (),
        *,
        idle_timeout_seconds: float = 60.0,
        port: int = 0,
    ) -> None:
        self.answers: tuple[Spoken, ...] = tuple(answers)
        self.idle_timeout_seconds: float = idle_timeout_seconds
        self.api_key: str = "key-that-shows-nowhere-0123456789"
        self.url: str = "http://127.0.0.1:9"  # nobody is there before the server runs
        self.port: int = port
        self.requests: list[Seen] = []
        self.connections: int = 0
        self.left: asyncio.Event = asyncio.Event()
        self._replies = replies
        self._tasks: set[asyncio.Task[Any]] = set()
        self._open = 0
        self._changed = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self.port, backlog=4096)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Closes everything: whoever connects now is refused."""
        self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def tasks(self) -> frozenset[asyncio.Task[Any]]:
        """The server's own tasks, which are nobody's leak."""
        return frozenset(self._tasks)

    async def settle(self) -> None:
        """Lets whatever is on its way arrive."""
        for _ in range(5):
            await asyncio.sleep(0)

    async def until_asked(self, least: int) -> None:
        """Waits until at least so many requests are in."""
        while len(self.requests) < least:
            self._changed.clear()
            await self._changed.wait()

    async def until_open(self, most: int) -> None:
        """Waits until at most so many connections are open."""
        while self._open > most:
            self._changed.clear()
            await self._changed.wait()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        self._open += 1
        try:
            while await self._serve(reader, writer):
                pass
        except asyncio.IncompleteReadError:
            pass  # the client closes a connection that it does not need any more
        except ConnectionError:
            self.left.set()
        except asyncio.CancelledError:
            pass
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()
            self._open -= 1
            self._changed.set()
            self._tasks.discard(task)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answers one request. Whether the connection is still of use."""
        seen = await _read_request(reader)
        self.requests.append(seen)
        self._changed.set()
        reply = self._reply_to(seen)
        if reply.head:
            writer.write(_head(reply))
        for piece in reply.body:
            if isinstance(piece, bytes):
                writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                await writer.drain()
                await asyncio.sleep(0)  # lets a client in the same loop read what there is
            elif piece == RESET:
                writer.transport.abort()
                return False
            elif piece == CLOSE:
                return False
            elif not await self._wait(piece, reader):
                self.left.set()
                return False
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    def _reply_to(self, seen: Seen) -> Reply:
        if callable(self._replies):
            return self._replies(seen)
        last = len(self._replies) - 1
        return self._replies[min(len(self.requests) - 1, last)] if self._replies else Reply(status=404)

    async def _wait(self, piece: str | asyncio.Event | float, reader: asyncio.StreamReader) -> bool:
        """Whether the client was still there when the time or the event came."""
        if isinstance(piece, str):
            await reader.read(1)
            return False
        waits = piece.wait() if isinstance(piece, asyncio.Event) else asyncio.sleep(piece, result=True)
        gone, came = tasks = asyncio.ensure_future(reader.read(1)), asyncio.ensure_future(waits)
        self._tasks |= {*tasks}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return came.done()
        finally:
            gone.cancel()
            came.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._tasks -= {*tasks}


async def _read_request(reader: asyncio.StreamReader) -> Seen:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ", 2)
    pairs = (line.partition(":") for line in lines if line)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    if "chunked" not in headers.get("transfer-encoding", ""):
        return Seen(method, path, headers, await reader.readexactly(int(headers.get("content-length", 0))))
    body = bytearray()
    while size := int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16):
        body += await reader.readexactly(size)
        await reader.readexactly(2)
    await reader.readuntil(b"\r\n")
    return Seen(method, path, headers, bytes(body))


def _head(reply: Reply) -> bytes:
    headers = {"content-type": reply.content_type, **reply.headers, "transfer-encoding": "chunked"}
    lines = [f"HTTP/1.1 {reply.status} Answer", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
