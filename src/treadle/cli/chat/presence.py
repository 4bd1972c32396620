"""Which sessions are open in a client: a lock that ends with its process."""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import TYPE_CHECKING

from treadle.errors import StoreError

if TYPE_CHECKING:
    from pathlib import Path


class Presence:
    """The one session that this client has open. Others see that it is taken, and by whom."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._descriptor: int | None = None
        self._path: Path | None = None

    def move_to(self, session: str) -> None:
        """Opens `session` in place of the one before. Raises `StoreError` where another client has it open."""
        path = self._directory / f"{session}.open"
        if path == self._path:
            return
        try:
            self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            while (descriptor := _locked(path, session)) is None:
                pass
        except OSError as error:
            raise StoreError(f"{self._directory} cannot be written: {error.strerror}") from None
        os.truncate(descriptor, 0)
        os.write(descriptor, str(os.getpid()).encode())
        self.leave()
        self._descriptor, self._path = descriptor, path

    def leave(self) -> None:
        """Gives the session free."""
        if self._descriptor is not None and self._path is not None:
            with contextlib.suppress(OSError):
                self._path.unlink()
            os.close(self._descriptor)
            self._descriptor = self._path = None


def _locked(path: Path, session: str) -> int | None:
    """The lock file, held; None where its holder has just taken it away."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(descriptor, 20).decode(errors="replace").strip() or "unknown"
        os.close(descriptor)
        raise StoreError(f"session {session} is open in another client, process {holder}") from None
    with contextlib.suppress(FileNotFoundError):
        if path.stat().st_ino == os.fstat(descriptor).st_ino:
            return descriptor
    os.close(descriptor)
    return None
