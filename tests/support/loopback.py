"""A raw HTTP server on loopback that answers with given bytes and remembers what it was asked."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Callable

BOUND = 10.0  # seconds; a wait that takes longer is a hang
STALL = object()  # send nothing more until the client leaves
BREAK = object()  # cut the connection


@dataclass
class Seen:
    """One request as it arrived."""

    path: str
    headers: dict[str, str]
    raw: bytes
    connection: int

    @property
    def body(self) -> Any:
        return json.loads(self.raw)


@dataclass
class Reply:
    """One answer. `pieces` are bytes to write, events to wait for, STALL or BREAK. Each bytes piece is a chunk."""

    pieces: tuple[Any, ...] = ()
    status: int = 200
    content_type: str | None = "text/event-stream"
    headers: dict[str, str] = field(default_factory=dict)
    whole: bool = False  # content-length instead of chunks

    def head(self) -> bytes:
        lines = [f"HTTP/1.1 {self.status} X"]
        if self.content_type is not None:
            lines.append(f"content-type: {self.content_type}")
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        if self.whole:
            lines.append(f"content-length: {sum(len(piece) for piece in self.pieces)}")
        else:
            lines.append("transfer-encoding: chunked")
        return ("\r\n".join(lines) + "\r\n\r\n").encode()


class Loopback:
    """`async with Loopback(reply, ...) as server`: the n-th request gets the n-th reply, the last one repeats.

    A function instead of replies is called with each request and returns the reply.
    """

    def __init__(self, *replies: Reply | Callable[[Seen], Reply]) -> None:
        self._replies = replies
        self.requests: list[Seen] = []
        self.connections = 0
        self.asked = asyncio.Event()
        self.left = asyncio.Event()  # a client went away in the middle of a reply
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0, limit=1 << 26)
        self.origin = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        self.url = f"{self.origin}/v1"
        return self

    async def __aexit__(self, *exc_info: Any) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        number = self.connections
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            while await self._serve(reader, writer, number):
                pass
        writer.close()
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            await writer.wait_closed()
        self._tasks.discard(task)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> bool:
        head, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        pairs = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines if line)]
        headers = dict(pairs)
        assert len(headers) == len(pairs), "a header came twice"
        raw = await reader.readexactly(int(headers.get("content-length", 0)))
        seen = Seen(head.split(" ")[1], headers, raw, number)
        self.requests.append(seen)
        self.asked.set()
        reply = self._replies[min(len(self.requests), len(self._replies)) - 1]
        return await self._answer(reply if isinstance(reply, Reply) else reply(seen), reader, writer)

    async def _answer(self, reply: Reply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        writer.write(reply.head())
        for piece in reply.pieces:
            if piece is BREAK:
                writer.transport.abort()
                return False
            if isinstance(piece, bytes):
                writer.write(piece if reply.whole else b"%x\r\n%b\r\n" % (len(piece), piece))
                await writer.drain()
            elif not await self._wait(piece, reader):
                self.left.set()
                return False
        if not reply.whole:
            writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    async def _wait(self, piece: Any, reader: asyncio.StreamReader) -> bool:
        """Whether the client was still there when the event came."""
        gone = asyncio.ensure_future(reader.read(1))
        if piece is STALL:
            await gone
            return False
        came = asyncio.ensure_future(piece.wait())
        await asyncio.wait({gone, came}, return_when=asyncio.FIRST_COMPLETED)
        for waiting in (gone, came):
            waiting.cancel()
        await asyncio.wait({gone, came})  # only then may another read begin
        return piece.is_set()
