"""What was typed at the prompt, across sessions: a private file with a JSON string in each line."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

MAX_ENTRIES = 2_000
MAX_FILE_BYTES = 4 * 1024 * 1024
MAX_ENTRY_BYTES = 256 * 1024  # a longer one is not kept: it could not be had back whole


class HistoryFile:
    """Entries in order, the newest last. A file that cannot be read or written costs the history and nothing else."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> list[str]:
        """The newest `MAX_ENTRIES`. Lines that are damaged are left out."""
        with contextlib.suppress(OSError), self._path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - MAX_FILE_BYTES))
            return [entry for line in file.read().splitlines()[-MAX_ENTRIES:] if (entry := _entry(line))]
        return []

    def add(self, entry: str) -> None:
        """Adds an entry, and halves the file where it has become too large."""
        line = json.dumps(entry).encode() + b"\n"
        if len(line) > MAX_ENTRY_BYTES:
            return
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "r+b", buffering=0) as file:
                fcntl.flock(file, fcntl.LOCK_EX)  # several clients write into it
                os.fchmod(descriptor, 0o600)
                size = os.fstat(descriptor).st_size
                if size + len(line) > MAX_FILE_BYTES:
                    file.seek(size // 2)
                    rest = file.read().partition(b"\n")[2]
                    file.truncate(0)
                    line = rest + line
                elif size:
                    file.seek(size - 1)
                    line = b"\n" * (file.read(1) != b"\n") + line  # behind a line that was cut off
                file.write(line)


def _entry(line: bytes) -> str | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, str) else None
