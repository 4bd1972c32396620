"""Lines from a file descriptor of any kind, read without holding up the loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading

AT_ONCE = 65536


class Lines:
    """Reads no further than it is asked to. A line that is not UTF-8 is taken as far as it is."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._buffer = b""
        self._ended = False

    async def next(self) -> str | None:
        """The next line; None at the end of the input."""
        pieces = [self._buffer]
        while not self._ended and b"\n" not in pieces[-1]:
            pieces.append(await self._piece())
            self._ended = not pieces[-1]
        line, end, self._buffer = b"".join(pieces).partition(b"\n")
        if self._ended and not line and not end:
            return None
        return line.decode(errors="replace").removesuffix("\r")

    async def _piece(self) -> bytes:
        """What can be read next. A thread waits for it, as a loop cannot watch a file; nothing waits for the thread."""
        loop = asyncio.get_running_loop()
        read: asyncio.Future[bytes] = loop.create_future()

        def settle(data: bytes) -> None:
            if not read.done():
                read.set_result(data)

        def wait() -> None:
            try:
                data = os.read(self._descriptor, AT_ONCE)
            except OSError:  # the terminal is gone
                data = b""
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(settle, data)

        threading.Thread(target=wait, name="treadle-input", daemon=True).start()
        return await read
