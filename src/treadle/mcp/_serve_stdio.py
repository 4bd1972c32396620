"""A server on standard input and output, which belong to the protocol alone while it runs."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING, Any

from mcp.server.stdio import stdio_server

from treadle._threads import run_in_thread
from treadle.mcp._spec import MAX_MESSAGE_BYTES, log

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from mcp.server.lowlevel.server import Server

_CHUNK = 64 * 1024


async def serve_stdio(server: Server[Any]) -> None:
    """Serves one client until it closes our standard input.

    The SDK reads and writes in threads that the interpreter waits for when it leaves, also where one is stuck in a
    read that never ends; hence streams of our own.
    """
    with _standard_streams() as (source, sink):
        out = _Writer(sink)
        async with stdio_server(_lines(source), out) as (incoming, outgoing):  # type: ignore[arg-type]
            await server.run(incoming, outgoing, server.create_initialization_options())


@contextlib.contextmanager
def _standard_streams() -> Iterator[tuple[int, int]]:
    """Descriptors of the client. Meanwhile everybody else reads nothing from 0, and writes to 2 what goes to 1.

    The first is never closed: a thread may still be reading from it.
    """
    sys.stdout.flush()
    source, sink = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        os.dup2(nothing, 0)
        try:
            os.dup2(2, 1)
        except OSError:  # there is no standard error
            os.dup2(nothing, 1)
        yield source, sink
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        os.dup2(source, 0)
        os.dup2(sink, 1)
        os.close(nothing)
        os.close(sink)


async def _lines(source: int) -> AsyncIterator[str]:
    """The lines of the client. One that is too long is dropped with a warning."""
    kept, size, dropping = list[bytes](), 0, False
    while chunk := await run_in_thread(lambda: _read(source)):
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            if not dropping and size + len(end) <= MAX_MESSAGE_BYTES:
                yield b"".join((*kept, end)).decode(errors="replace")
            kept, size, dropping = [], 0, False
        kept.append(rest)
        size += len(rest)
        if size > MAX_MESSAGE_BYTES and not dropping:
            log.warning("dropped a message of more than %d bytes", MAX_MESSAGE_BYTES)
            dropping = True
        if dropping:
            kept.clear()


def _read(source: int) -> bytes:
    try:
        return os.read(source, _CHUNK)
    except OSError:
        return b""


class _Writer:
    """Where the SDK writes a line at a time. A client that is gone is no error: its input ends, too."""

    def __init__(self, sink: int) -> None:
        self._sink = sink
        self._gone = False

    async def write(self, line: str) -> None:
        data = line.encode(errors="replace")
        if not self._gone:
            await run_in_thread(lambda: self._write(data))

    async def flush(self) -> None: ...

    def _write(self, data: bytes) -> None:
        left = memoryview(data)
        try:
            while left:
                left = left[os.write(self._sink, left) :]
        except OSError as error:
            self._gone = True
            log.debug("the client reads no more: %s", error)
