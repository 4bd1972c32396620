"""The way beneath a directory, one name after the other, for systems without `openat2`.

Every name is opened relative to the directory above it and without following links; links are resolved here by the
same rule. `..` goes back to the directory that was come through. So nothing that somebody swaps in between leads out.
"""

from __future__ import annotations

import errno
import os
from collections import deque

MAX_LINKS = 40
MAX_DEPTH = 64  # directories open at once
_PASS = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_CLOEXEC", 0)


def open_beneath(directory: int, path: str, flags: int) -> int:
    """A descriptor of the directory `path`; EXDEV where it leads out of `directory`, by an absolute link too."""
    return _Way(directory, path, flags | os.O_CLOEXEC).end()


class _Way:
    def __init__(self, top: int, path: str, flags: int) -> None:
        self._top, self._path, self._flags = top, path, flags
        self._open: list[int] = []
        self._todo: deque[str] = deque()
        self._links = 0

    def end(self) -> int:
        try:
            self._go_on(self._path)
            while self._todo:
                self._take(self._todo.popleft())
            return os.open(".", self._flags | os.O_DIRECTORY, dir_fd=self._here)
        finally:
            for descriptor in self._open:
                os.close(descriptor)

    @property
    def _here(self) -> int:
        return self._open[-1] if self._open else self._top

    def _go_on(self, path: str) -> None:
        if path.startswith("/"):
            raise self._error(errno.EXDEV)
        self._todo.extendleft(reversed([name for name in path.split("/") if name not in ("", ".")]))

    def _take(self, name: str) -> None:
        if name != "..":
            self._down(name)
        elif self._open:
            os.close(self._open.pop())
        else:
            raise self._error(errno.EXDEV)

    def _down(self, name: str) -> None:
        if len(self._open) == MAX_DEPTH:
            raise self._error(errno.ENAMETOOLONG)
        try:
            below = os.open(name, _PASS | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=self._here)
        except OSError as error:
            if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                raise
            self._follow(name, error)
        else:
            self._open.append(below)

    def _follow(self, name: str, error: OSError) -> None:
        try:
            target = os.readlink(name, dir_fd=self._here)
        except OSError:
            raise error from None  # no link either
        self._links += 1
        if self._links > MAX_LINKS:
            raise self._error(errno.ELOOP)
        self._go_on(target)

    def _error(self, code: int) -> OSError:
        return OSError(code, os.strerror(code), self._path)
