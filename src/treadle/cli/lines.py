"""The lines of standard input, as they come, without holding up the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import threading
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

MAX_LINE_BYTES = 32 << 20
_CHUNK_BYTES = 1 << 16
_AHEAD = 16  # lines that are read before they are looked at


async def lines(stream: TextIO | None) -> AsyncIterator[bytes | None]:
    """The lines of `stream` without their ends; None stands for one that is longer than `MAX_LINE_BYTES`.

    They are read past the stream's own buffer, in a daemon thread that ends with the input or with the process.
    """
    if stream is None:
        return
    loop, room = asyncio.get_running_loop(), threading.Semaphore(_AHEAD)
    found: asyncio.Queue[tuple[bytes | None] | None] = asyncio.Queue()
    descriptor = stream.fileno()

    def read() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens any more
            for line in _lines(descriptor):
                room.acquire()
                loop.call_soon_threadsafe(found.put_nowait, (line,))
            loop.call_soon_threadsafe(found.put_nowait, None)

    threading.Thread(target=read, name="treadle-lines", daemon=True).start()
    while (item := await found.get()) is not None:
        room.release()
        yield item[0]


def _lines(descriptor: int) -> Iterator[bytes | None]:
    pieces: list[bytes] = []
    size = 0
    while chunk := _read(descriptor):
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            yield _whole(pieces, end, size)
            pieces, size = [], 0
        size += len(rest)
        if size <= MAX_LINE_BYTES:
            pieces.append(rest)
        else:
            pieces.clear()
    if size:
        yield _whole(pieces, b"", size)


def _whole(pieces: list[bytes], end: bytes, size: int) -> bytes | None:
    return None if size + len(end) > MAX_LINE_BYTES else b"".join([*pieces, end])


def _read(descriptor: int) -> bytes:
    """What there is, waiting for it; nothing at the end, and where standard input is closed or cannot be read."""
    while True:
        try:
            return os.read(descriptor, _CHUNK_BYTES)
        except BlockingIOError:  # whoever has the other end chose so
            select.select([descriptor], [], [])
        except OSError:
            return b""
