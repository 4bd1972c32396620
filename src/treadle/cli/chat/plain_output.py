"""Where plain lines go: what is said in the conversation, and aside what is meant for whoever is there."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, cast

from treadle.cli.exits import Exit
from treadle.cli.terminal import neutral

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TextIO

UNBROKEN = 10_000  # columns, where the output is not a terminal: lines that are searched are not broken
_GONE = (errno.EPIPE, errno.EIO)  # of a pipe, and of a terminal


class PlainOutput:
    """Writes finished lines and a prompt, and neither an escape sequence nor a carriage return.

    `side` is `out` itself where that is a terminal. `lost` takes the exit code once a stream cannot be written to.
    """

    def __init__(self, out: TextIO, side: TextIO) -> None:
        self.lost: Callable[[int], object] = lambda _: None
        self._out, self._side = out, side
        self._empty = True
        self._standing = ""  # the prompt behind which the cursor stands

    @property
    def shows_typing(self) -> bool:
        """Whether what a person types stands between the lines."""
        return self._out.isatty()

    def width(self, *, aside: bool = False) -> int:
        """The columns there are."""
        stream = self._side if aside else self._out
        return max(1, shutil.get_terminal_size().columns) if stream.isatty() else UNBROKEN

    def lines(self, lines: Sequence[str], *, aside: bool = False) -> None:
        """Prints lines."""
        stream = self._side if aside else self._out
        if stream is self._side:
            self.end_prompt()
        text = "".join(f"{neutral(line)}\n" for line in lines)
        if stream is not self._out or self._empty:  # an empty line sets apart only what is below something
            text = text.lstrip("\n")
        self._empty = self._empty and stream is not self._out
        self._write(stream, text)

    def prompt(self, text: str) -> None:
        """Shows what is awaited, once."""
        if not self._standing:
            self._standing = text
            self._write(self._side, text)

    def entered(self) -> None:
        """A line was typed behind the prompt, and ended."""
        self._standing = ""

    def end_prompt(self) -> None:
        """Goes on below the prompt."""
        if self._standing:
            self._standing = ""
            self._write(self._side, "\n")

    def _write(self, stream: TextIO, text: str) -> None:
        try:
            stream.write(text)
            stream.flush()
        except OSError as error:
            self._point_to_nowhere(stream)
            self.lost(Exit.CLOSED_PIPE if error.errno in _GONE else Exit.FAILED)
            if error.errno not in _GONE and stream is not self._side:
                self.lines([f"treadle: cannot write what is said: {error.strerror}"], aside=True)

    @staticmethod
    def _point_to_nowhere(stream: TextIO) -> None:
        """What is in its buffer, and the interpreter's last flush, do not fail again."""
        with contextlib.suppress(OSError, ValueError), Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), stream.fileno())


def streams_of_this_process() -> PlainOutput:
    """Standard output; prompts go where somebody sees them."""
    for stream in (sys.stdout, sys.stderr):
        if (reconfigure := getattr(stream, "reconfigure", None)) is not None:
            reconfigure(errors="replace")
    nowhere = cast("TextIO", _Nowhere())
    out, side = sys.stdout or nowhere, sys.stderr or nowhere
    return PlainOutput(out, out if out.isatty() else side)


class _Nowhere(io.TextIOBase):
    """A stream in the place of one that was closed before the start."""

    def write(self, text: str) -> int:
        return len(text)
