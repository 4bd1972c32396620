"""The real program in tmux: what a terminal with a scrollback that flows anew makes of it. Every wait is bounded."""

from __future__ import annotations

import os
import select
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from support.program import BOUND

INSTALLED = shutil.which("tmux") is not None
# What the pane's program is started by: its end is to be seen, and what it left stays.
_KEEPER = "{command}; echo left with $?; read nothing"


class Tmux:
    """One window. Its server is this object's own: its socket lies in a folder of its own, and no settings are read."""

    def __init__(
        self, command: list[str], folder: Path, environ: Mapping[str, str], *, columns: int = 80, lines: int = 24
    ) -> None:
        self._own = Path(tempfile.mkdtemp(prefix="tmux"))  # a socket's path must be short
        self._socket = str(self._own / "s")
        fifo = self._own / "written"
        os.mkfifo(fifo)
        self._written = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
        kept = _KEEPER.format(command=shlex.join(command))
        size = ["-x", str(columns), "-y", str(lines)]
        start = ["-f", "/dev/null", "start-server", ";", "set", "-g", "history-limit", "20000", ";"]
        self._run(*start, "new-session", "-d", *size, "-c", str(folder), "sh", "-c", kept, environ={**environ})
        self._run("pipe-pane", "-O", f"cat > {fifo}")

    def _run(self, *arguments: str, environ: Mapping[str, str] | None = None) -> str:
        done = subprocess.run(
            ["tmux", "-S", self._socket, *arguments], capture_output=True, timeout=BOUND, check=False, env=environ
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    def type(self, text: str) -> None:
        """Types a text, and sees its end."""
        self._run("send-keys", "-l", text)
        self.wait(lambda: text[-6:] in self.shown, f"{text!r} was typed")

    def say(self, text: str) -> None:
        """Types a line, sees it, and sends it."""
        self.type(text)
        self.press("Enter")

    def press(self, *keys: str) -> None:
        """Keys by tmux's names, like `Enter` or `C-c`."""
        self._run("send-keys", *keys)

    def resize(self, columns: int, lines: int) -> None:
        self._run("resize-window", "-x", str(columns), "-y", str(lines))

    @property
    def shown(self) -> str:
        return self._run("capture-pane", "-p")

    @property
    def text(self) -> str:
        """The scrollback and the screen, lines that were only wrapped joined."""
        return self._run("capture-pane", "-p", "-J", "-S", "-")

    @property
    def alternate(self) -> bool:
        return self._run("display", "-p", "#{alternate_on}").strip() != "0"

    def wait(self, condition: Callable[[], object], what: str) -> None:
        """Looks again whenever the program has written something."""
        deadline = time.monotonic() + BOUND
        while not condition():
            left = deadline - time.monotonic()
            assert left > 0, f"not in {BOUND:.0f} s: {what}\n{self.text}"
            if select.select([self._written], [], [], min(left, 0.2))[0]:
                os.read(self._written, 65_536)

    def has(self, *texts: str) -> None:
        self.wait(lambda: all(text in self.text for text in texts), f"{texts}")

    def close(self) -> None:
        subprocess.run(["tmux", "-S", self._socket, "kill-server"], capture_output=True, timeout=BOUND, check=False)
        os.close(self._written)
        shutil.rmtree(self._own, ignore_errors=True)
