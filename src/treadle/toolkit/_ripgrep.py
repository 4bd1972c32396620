"""Ripgrep as an aid: it says which files have a text in them, and no more. Started before anything slow is loaded."""

from __future__ import annotations

import os

_OPTIONS = (
    *("--no-config", "--files-with-matches", "--null", "--fixed-strings", "--text", "--hidden", "--no-messages"),
    *("--no-ignore-global", "--no-ignore-exclude", "--no-ignore-parent", "--no-require-git", "--glob=!.git"),
)


class Ripgrep:
    """A running `rg` over the directory that is open as `base`, and that this process goes to.

    It gets a plain text, never a pattern, and leaves out no file that is not left out here as well.
    """

    def __init__(self, program: str, base: int, needle: str) -> None:
        os.fchdir(base)
        os.close(base)
        command = [program, *_OPTIONS, f"--regexp={needle}", "--", "./"]
        self._reading, writing = os.pipe()
        actions = [(os.POSIX_SPAWN_DUP2, writing, 1), (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)]
        try:
            self._pid: int | None = os.posix_spawn(program, command, {}, file_actions=actions)
        except OSError:
            self._pid = None
        finally:
            os.close(writing)

    def names(self) -> list[str] | None:
        """The files, relative to the directory; None if ripgrep failed. To be asked once."""
        with os.fdopen(self._reading, "rb") as output:
            names = output.read().split(b"\0")
        if self._pid is None or os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1]) not in (0, 1):
            return None
        return [os.fsdecode(name.removeprefix(b"./")) for name in names if name]
