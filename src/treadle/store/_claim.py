"""Who may add to a session: a file that one process holds locked, and that goes with it."""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import TYPE_CHECKING

from treadle.errors import StoreError

if TYPE_CHECKING:
    from pathlib import Path


class Claim:
    """A lock file that is held. The system gives it free when the process ends, however that comes."""

    def __init__(self, path: Path, number: int) -> None:
        self._path = path
        self._number = number

    def release(self) -> None:
        """Gives the session free, and leaves nothing behind."""
        with contextlib.suppress(OSError):
            if _is_there(self._path, self._number):  # and not one that somebody else made, where this was taken away
                self._path.unlink()
        os.close(self._number)


def claim_file(path: Path, session: str) -> Claim:
    """Locks the file. Raises `StoreError` where somebody holds it, in this process or in another one."""
    while True:
        number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(number)
            os.close(number)
            raise StoreError(
                f"session {session!r} is in use by {holder}: wait until its run has ended, or fork the session"
            ) from None
        except BaseException:
            os.close(number)
            raise
        if _is_there(path, number):
            with contextlib.suppress(OSError):  # the name is a help only; a full disk tells itself soon enough
                os.ftruncate(number, 0)
                os.pwrite(number, b"%d\n" % os.getpid(), 0)
            return Claim(path, number)
        os.close(number)  # its holder took the file away meanwhile


def _is_there(path: Path, number: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(number))
    except FileNotFoundError:
        return False


def _holder(number: int) -> str:
    text = os.pread(number, 20, 0).strip()
    if not text.isdigit():
        return "another process"
    return f"this process ({os.getpid()})" if int(text) == os.getpid() else f"process {int(text)}"
