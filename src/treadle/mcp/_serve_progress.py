"""What a client is told of a call that runs: the tool's own notes, and an agent's steps, tools and text."""

from __future__ import annotations

import asyncio
import math
import threading
from collections import deque
from typing import TYPE_CHECKING

from treadle.errors import first_line
from treadle.events import (
    ModelFinish,
    ModelRetry,
    StepStart,
    SubagentEvent,
    TextDelta,
    ToolFinish,
    ToolProgress,
    ToolStart,
)
from treadle.mcp._spec import log
from treadle.messages import encodable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from treadle.events import Event

    Send = Callable[[float, float | None, str | None], Awaitable[None]]

_MAX_WAITING = 1_000  # notes that a slow client has not taken yet; later ones are dropped
_PIECE = 200  # characters of text after which it is told though its line goes on


class Progress:
    """The notes of one call, sent in order by a task of its own. `tell` may be called from any thread."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._waiting: deque[tuple[str, float | None, float | None]] = deque()
        self._wake = asyncio.Event()
        self._closed = False
        self._at = 0.0
        self._numbered = False
        self._task = asyncio.create_task(self._pump())

    def tell(self, message: str, progress: float | None = None, total: float | None = None) -> None:
        """Notes what a tool says of itself."""
        if threading.get_ident() == self._thread:
            self._add(message, progress, total)
            return
        try:
            self._loop.call_soon_threadsafe(self._add, message, progress, total)
        except RuntimeError:
            return  # the event loop is closed: nobody listens any more

    async def close(self) -> None:
        """Waits until everything is sent: nothing may follow the result."""
        self._closed = True
        self._wake.set()
        await self._task

    def abandon(self) -> None:
        """Sends nothing more."""
        self._closed = True
        self._task.cancel()

    def _add(self, message: str, progress: float | None, total: float | None) -> None:
        if not self._closed and len(self._waiting) < _MAX_WAITING:
            self._waiting.append((message, progress, total))
            self._wake.set()

    async def _pump(self) -> None:
        try:
            while True:
                while self._waiting:
                    message, progress, total = self._waiting.popleft()
                    total = total if total is not None and math.isfinite(total) else None
                    await self._send(self._next(progress), total, encodable(message) or None)
                if self._closed:
                    return
                self._wake.clear()
                await self._wake.wait()
        except Exception as error:  # noqa: BLE001 - a note that cannot be sent is no reason to lose the result
            self._closed = True
            log.debug("progress is told no more: %s", first_line(error))

    def _next(self, progress: float | None) -> float:
        """The protocol wants each number above the one before; where a tool gives none, notes are counted."""
        if progress is not None and math.isfinite(progress):
            self._numbered = True
            self._at = progress if progress > self._at else math.nextafter(self._at, math.inf)
        else:
            self._at = math.nextafter(self._at, math.inf) if self._numbered else self._at + 1
        return self._at


class Narrator:
    """Tells of an agent's events: a note for each step, tool and line of text."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._text = ""

    def feed(self, event: Event) -> None:
        """Takes the next event of the run."""
        match event:
            case TextDelta(text=text):
                self._text += text
                if "\n" in text or len(self._text) >= _PIECE:
                    self._flush()
            case ModelFinish():
                self._flush()
            case ModelRetry(attempt=attempt, error=error):
                self._text = ""
                self._tell(f"the model failed and is asked again (attempt {attempt}): {error}")
            case StepStart(index=index):
                self._tell(f"step {index + 1}")
            case ToolStart(name=name):
                self._tell(f"tool {name}")
            case ToolProgress(message=message) if message:
                self._tell(message)
            case ToolFinish(name=name):
                self._tell(f"tool {name} {'failed' if event.is_error else 'done'}")
            case SubagentEvent(event=inner):
                self.feed(inner)
            case _:
                pass

    def _flush(self) -> None:
        text, self._text = self._text.strip(), ""
        if text:
            self._tell(text)
