"""Where the client draws, and where everything else that is printed goes."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import sys
import threading
from collections import deque
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TextIO

    from treadle.cli.chat.conversation import Face
    from treadle.cli.chat.inline import SteadyOutput

_AT_ONCE = 50  # lines


def terminal_output() -> SteadyOutput:
    """What draws on the terminal of this process. It asks the terminal nothing."""
    from prompt_toolkit.data_structures import Size

    from treadle.cli.chat.inline import SteadyOutput

    def size() -> Size:
        try:
            columns, rows = os.get_terminal_size(sys.__stdout__.fileno() if sys.__stdout__ else 1)
        except OSError:
            columns, rows = 80, 24
        return Size(rows=rows or 24, columns=columns or 80)

    return SteadyOutput(sys.stdout, size, term=os.environ.get("TERM"), enable_cpr=False)


@contextlib.contextmanager
def printed_above(face: Face) -> Iterator[None]:
    """Whatever prints meanwhile, a tool for instance, prints above the prompt."""
    loop = asyncio.get_running_loop()
    lines = _Lines(loop.call_soon_threadsafe, face.output)
    stream = cast("TextIO", lines)
    with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
        try:
            yield
        finally:
            lines.finish()


class _Lines(io.TextIOBase):
    """Takes text of any thread and gives whole lines on, some at a time, so that the loop has time for keys."""

    def __init__(self, soon: Callable[[Callable[[], None]], object], say: Callable[[str], object]) -> None:
        super().__init__()
        self._soon = soon
        self._say = say
        self._rest = ""
        self._lines: deque[str] = deque()
        self._lock = threading.Lock()

    def finish(self) -> None:
        """Gives on what is left, also a line without its end."""
        if self._rest:
            self.write("\n")
        while self._lines:
            self._give()

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        with self._lock:
            waiting = bool(self._lines)
            *lines, self._rest = (self._rest + text).split("\n")
            self._lines += lines
        if lines and not waiting:
            self._ask()
        return len(text)

    def _ask(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._soon(self._give)

    def _give(self) -> None:
        with self._lock:
            lines = [self._lines.popleft() for _ in range(min(_AT_ONCE, len(self._lines)))]
            more = bool(self._lines)
        if lines:
            self._say("".join(f"{line}\n" for line in lines))
        if more:
            self._ask()
