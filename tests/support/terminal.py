"""The real program in a terminal of its own: a pseudo-terminal with an emulator behind it. Every wait is bounded."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import pyte
import pytest

from support.emulator import Emulator
from support.program import BOUND

KEYS = {
    "enter": "\r",
    "alt-enter": "\x1b\r",
    "tab": "\t",
    "escape": "\x1b",
    "backspace": "\x7f",
    "up": "\x1b[A",
    "down": "\x1b[B",
    "right": "\x1b[C",
    "left": "\x1b[D",
    **{f"ctrl-{letter}": chr(ord(letter) - 96) for letter in "abcdefghijklmnopqrstuvwxyz"},
}
_PASTE = 2004 << 5  # pyte shifts the private modes
_ALTERNATES = {mode << 5 for mode in (47, 1047, 1049)}
_MICE = {mode << 5 for mode in (1000, 1002, 1003, 1006, 1015)}
_START = 'exec "$@" <"$0" >"$0" 2>&1'  # the first terminal that a new session opens becomes its own


LONG = pytest.mark.skipif(not os.environ.get("TREADLE_LONG_TESTS"), reason="a long form, of `make fuzz`")


class Modes(NamedTuple):
    """What a program can leave behind in a terminal."""

    echo: bool
    canonical: bool
    cursor: bool
    paste: bool
    alternate: bool
    mouse: bool


FRESH = Modes(echo=True, canonical=True, cursor=True, paste=False, alternate=False, mouse=False)
"""A terminal as a shell wants it."""


def environment(home: Path, **more: str) -> dict[str, str]:
    """What a program sees that was started by a person who has set nothing; measuring goes on."""
    kept = {name: value for name, value in os.environ.items() if name.startswith("COV") or name == "PATH"}
    return {
        **kept,
        "HOME": str(home),
        "TREADLE_HOME": str(home / ".treadle-home"),
        "TERM": "xterm-256color",
        "LANG": "C.UTF-8",
        "PYTHONUTF8": "1",
        "OPENAI_API_KEY": "test-key",
        **more,
    }


class Terminal:
    """A program with a terminal around it. What it wrote is in `raw` as bytes, and on `screen` as a person sees it."""

    def __init__(
        self, command: list[str], folder: Path, environ: Mapping[str, str], *, columns: int = 80, lines: int = 24
    ) -> None:
        self.raw = bytearray()
        self.screen = Emulator(columns, lines, self.feed)
        self._stream = pyte.ByteStream(self.screen)
        self._master, self._slave = os.openpty()
        self._size(columns, lines)
        os.set_blocking(self._master, False)
        shell = ["sh", "-c", _START, os.ttyname(self._slave), *command]
        self.process = subprocess.Popen(shell, cwd=folder, env=environ, start_new_session=True)
        self.folder = folder

    # What a person does

    def feed(self, keys: str | bytes) -> None:
        """Sends bytes as a keyboard would, and reads meanwhile, so that nobody waits for the other."""
        left = memoryview(keys.encode() if isinstance(keys, str) else keys)
        deadline = time.monotonic() + BOUND
        while left:
            assert time.monotonic() < deadline, f"the program reads nothing more:\n{self}"
            _, writable, _ = select.select([self._master], [self._master], [], 1)
            if writable:
                with contextlib.suppress(BlockingIOError):
                    left = left[os.write(self._master, left[:4096]) :]
            self.read(0)

    def press(self, *keys: str) -> None:
        self.feed("".join(KEYS[key] for key in keys))

    def say(self, line: str) -> None:
        """Types a line, sees it, and sends it."""
        self.feed(line)
        self.wait(lambda: line[-8:] in self.shown, f"{line!r} was typed")
        self.press("enter")

    def paste(self, text: str) -> None:
        self.feed(f"\x1b[200~{text}\x1b[201~")

    def resize(self, columns: int, lines: int) -> None:
        self.read(0)
        self.screen.resize(lines, columns)
        self._size(columns, lines)  # the kernel sends SIGWINCH to the foreground group

    def cooked(self) -> None:
        """Takes the terminal over as a shell does that has stopped the program."""
        modes = termios.tcgetattr(self._slave)
        modes[3] |= termios.ECHO | termios.ICANON
        termios.tcsetattr(self._slave, termios.TCSANOW, modes)
        self.take(b"\r\n$ ")

    def hang_up(self) -> None:
        """Closes the window: the program gets SIGHUP, and nobody reads it any more."""
        for descriptor in (self._master, self._slave):
            os.close(descriptor)
        self._master = self._slave = -1

    # What a person sees

    @property
    def shown(self) -> str:
        """The screen."""
        return "\n".join(self.screen.text())

    @property
    def text(self) -> str:
        """The screen with all that has scrolled out of it."""
        return "\n".join([*self.screen.history, *self.screen.text()])

    @property
    def modes(self) -> Modes:
        flags, mode = termios.tcgetattr(self._slave)[3], self.screen.mode
        return Modes(
            echo=bool(flags & termios.ECHO),
            canonical=bool(flags & termios.ICANON),
            cursor=not self.screen.cursor.hidden,
            paste=_PASTE in mode,
            alternate=bool(mode & _ALTERNATES),
            mouse=bool(mode & _MICE),
        )

    def __str__(self) -> str:
        state = "runs" if self.process.poll() is None else f"ended with {self.process.returncode}"
        frame = "-" * self.screen.columns
        return f"{frame}\n{self.text}\n{frame}\n{self.screen.columns}x{self.screen.lines}, {state}"

    # Waiting

    def wait(self, condition: Callable[[], object], what: str, bound: float = BOUND) -> None:
        """Reads until `condition` holds."""
        deadline = time.monotonic() + bound
        while not condition():
            left = deadline - time.monotonic()
            assert left > 0, f"not in {bound:.0f} s: {what}\n{self}"
            if not self.read(min(left, 0.1)) and self.process.poll() is not None and not self.read(0.05):
                assert condition(), f"ended before: {what}\n{self}"

    def sees(self, *texts: str) -> None:
        """Waits until all of `texts` are on the screen at once."""
        self.wait(lambda: all(text in self.shown for text in texts), f"{texts} on the screen")

    def has(self, *texts: str) -> None:
        """Waits until all of `texts` are on the screen or above it."""
        self.wait(lambda: all(text in self.text for text in texts), f"{texts} in the text")

    def loses(self, text: str) -> None:
        self.wait(lambda: text not in self.shown, f"{text!r} gone from the screen")

    def matches(self, pattern: str) -> re.Match[str]:
        self.wait(lambda: re.search(pattern, self.shown), f"{pattern} on the screen")
        found = re.search(pattern, self.shown)
        assert found
        return found

    def rests(self, seconds: float = 0.3) -> None:
        """Waits until nothing was written for a while, but not for long: only for what cannot be waited for by its text."""
        deadline = time.monotonic() + 10 * seconds
        while self.read(seconds) and time.monotonic() < deadline:
            pass

    def ends(self, bound: float = BOUND) -> int:
        """The exit code."""
        deadline = time.monotonic() + bound
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"it does not end\n{self}"
            if self._master < 0:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(0.1)
            else:
                self.read(0.05)
        while self._master >= 0 and self.read(0):
            pass
        return self.process.returncode

    def read(self, seconds: float) -> bool:
        """Whether something came within that time, which is then shown."""
        if not select.select([self._master], [], [], seconds)[0]:
            return False
        try:
            piece = os.read(self._master, 65_536)
        except (BlockingIOError, OSError):
            return False
        self.take(piece)
        return bool(piece)

    def take(self, piece: bytes) -> None:
        """Shows what the program wrote."""
        self.raw += piece
        self._stream.feed(piece)

    def _size(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    # Afterwards

    def left_behind(self) -> list[str]:
        """The command lines of processes that still work in the folder, the program itself aside. Linux only."""
        return [line for pid, line in working_in(self.folder) if pid != self.process.pid]

    def restored(self, code: int | None = None) -> None:
        """Waits for the end, after which the terminal and the machine are as they were before."""
        ended = self.ends()
        assert code is None or ended == code, f"left with {ended}\n{self}"
        assert self.modes == FRESH, f"{self.modes}\n{self}"
        self.alone()

    def alone(self) -> None:
        """Waits until nothing that the program started works on. What watches over a command ends it a moment later."""
        deadline = time.monotonic() + BOUND
        while left := self.left_behind():
            assert time.monotonic() < deadline, left
            select.select([], [], [], 0.02)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(BOUND)
        for pid, _ in working_in(self.folder):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self._master >= 0:
            self.hang_up()


def working_in(folder: Path) -> list[tuple[int, str]]:
    """The processes, zombies aside, whose working directory is `folder` or below it."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (process / "cwd").readlink().is_relative_to(folder) and (line := (process / "cmdline").read_bytes()):
                found.append((int(process.name), line.replace(b"\0", b" ").decode(errors="replace").strip()))
    return found


def python(*arguments: str) -> list[str]:
    return [sys.executable, *arguments]


# What may reach a terminal

_ALLOWED = re.compile(
    rb"""
      \x1b\[[0-9;]*m              # colours and weights
    | \x1b\[[0-9]*[ABCDGJK]       # moves of the cursor, and erasing from there
    | \x1b\[\?(?:25|7|12|2004|2026|1)[hl]  # cursor, wrapping, blinking, paste, synchronised output, cursor keys
    | \x1b\[[0-6]?\ q             # the cursor's shape
    | \x1b\[6n                    # where is the cursor?
    """,
    re.VERBOSE,
)
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def strange(raw: bytes | bytearray) -> list[str]:
    """What of the program's output a terminal might obey that no client of a chat needs, each with what follows it.

    Neither erasing the whole screen or the scrollback nor absolute positions are needed on the terminal's own screen.
    """
    erasing = re.compile(rb"\x1b\[[23]J").findall(raw)
    rest = _ALLOWED.sub(b"", raw).decode(errors="replace").replace("\r", "").replace("\b", "")
    return [*map(repr, erasing), *(repr(rest[found.start() :][:40]) for found in _CONTROL.finditer(rest))]
