"""Adding to the file of a session."""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from typing import TYPE_CHECKING, BinaryIO

from treadle.errors import StoreError
from treadle.sessions import StoredEvent
from treadle.store._files import opened, refusal, sync_directory
from treadle.store._lines import FORMAT, Header, encode_lines

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from treadle.events import Event


class Writer:
    """Adds events to one file, which is made by the first of them. For threads.

    After a failure nothing more is added: what was written is then sure only for the one who reads the file again.
    """

    def __init__(self, path: Path, session: str, next_seq: int) -> None:
        self._path = path
        self._session = session
        self._next_seq = next_seq
        self._file: BinaryIO | None = None
        self._before = b""  # what the first write must put before its lines
        self._new = False
        self._closed: str | None = None
        self._mutex = threading.Lock()

    def append(self, events: Sequence[Event], *, durable: bool) -> int:
        """Adds the events by one write. Returns the `seq` of the last."""
        with self._mutex, refusal(self._path):
            if self._closed is not None:
                raise StoreError(f"{self._path}: {self._closed}; claim the session again")
            now = time.time()
            stored = [StoredEvent(seq, now, event) for seq, event in enumerate(events, self._next_seq)]
            lines = encode_lines(stored)
            try:
                self._write(lines, now, durable=durable)
            except OSError:
                self._closed = "an earlier write failed"
                raise
            self._next_seq += len(stored)
            return self._next_seq - 1

    def _write(self, lines: bytes, now: float, *, durable: bool) -> None:
        if self._file is None and not lines:
            return
        file = self._open(now) if self._file is None else self._file
        number = file.fileno()
        if lines:
            _write_whole(number, self._before + lines)
            self._before = b""
        if durable:
            os.fsync(number)
            if self._new:
                sync_directory(self._path)
                self._new = False

    def _open(self, now: float) -> BinaryIO:
        file = self._file = opened(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        try:  # the claim again, for where somebody took its file away
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._closed = "somebody else is adding to it"
            raise StoreError(
                f"{self._path}: {self._closed}; wait until their run has ended, or fork the session"
            ) from None
        size = os.fstat(file.fileno()).st_size
        if not size:
            self._new = True
            self._before = encode_lines((Header(FORMAT, self._session, now),))
        elif os.pread(file.fileno(), 1, size - 1) != b"\n":
            self._before = b"\n"
        return file

    def close(self) -> None:
        """Nothing is added any more."""
        with self._mutex:
            self._closed = self._closed or "its claim has ended"
            if self._file is not None:
                self._file.close()


def _write_whole(number: int, data: bytes) -> None:
    """Writes at the end of a file. What went in of a write that fails is taken back."""
    start = os.fstat(number).st_size
    try:
        written = os.write(number, data)
        while written < len(data):  # a disk that is full takes a part first, and says why when asked again
            written += os.write(number, data[written:])
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(number, start)
        raise
