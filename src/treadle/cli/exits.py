"""The exit codes of `treadle`, and the signals that lead to two of them."""

from __future__ import annotations

import os
import signal
import threading
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Callable


class Exit(IntEnum):
    """What an exit code says."""

    COMPLETE = 0
    FAILED = 1
    USAGE = 2
    SHORT = 3
    INTERRUPTED = 130
    CLOSED_PIPE = 141
    TERMINATED = 143


class Signals:
    """Ctrl-C and SIGTERM as long as the context is open.

    The first one cancels what `on_first` was given, or raises `KeyboardInterrupt` where nothing was; `code` is then
    the exit code. The second one says `last_words` and leaves at once, also where something blocks the event loop.
    """

    def __init__(self) -> None:
        self.code: int = 0
        self.on_first: Callable[[], object] | None = None
        self.last_words: Callable[[], str] = str
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._hit) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *exc_info: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _hit(self, number: int, _frame: object) -> None:
        if self.code:
            os.write(2, self.last_words().encode(errors="replace"))  # a buffered stream may be in the middle of a write
            os._exit(self.code)
        self.code = 128 + number
        if self.on_first is None:
            raise KeyboardInterrupt
        self.on_first()
