"""Files that only their owner may read, and what goes wrong with them in words."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import time
from typing import TYPE_CHECKING, BinaryIO

from treadle.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_ADVICE = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space",
    errno.EFBIG: "fork the session, or allow larger files",
    errno.EROFS: "choose a directory that you may write to",
    errno.EACCES: "choose a directory that you may read and write",
    errno.EPERM: "choose a directory that you may read and write",
}
_UNFINISHED_SECONDS = 0.05


@contextlib.contextmanager
def refusal(path: Path) -> Iterator[None]:
    """Makes what the system says of a file a `StoreError` of one line, which says what to do where that is known."""
    try:
        yield
    except OSError as error:
        advice = _ADVICE.get(error.errno or 0)
        text = f"{path}: {error.strerror or error}"
        raise StoreError(text if advice is None else f"{text}; {advice}") from error


def opened(path: Path, flags: int = os.O_RDONLY) -> BinaryIO:
    """The file, private where this makes it, and never what a symbolic link points to."""
    number = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)  # no pipe is waited for
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise OSError(errno.EINVAL, "is no regular file")
    return os.fdopen(number, "rb" if flags == os.O_RDONLY else "ab")


def replace(path: Path, lines: Iterable[bytes]) -> None:
    """Writes a file that is whole from the moment it is there."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with opened(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND) as file:
            file.writelines(lines)
            file.flush()
            os.fsync(file.fileno())
        part.rename(path)
        sync_directory(path)
    finally:
        part.unlink(missing_ok=True)


def sync_directory(path: Path) -> None:
    """Makes it last that a file is there."""
    number = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def growing(file: BinaryIO) -> Iterator[bytes]:
    """The lines that a file has now, though somebody may add to it: a half one is looked at again a moment later."""
    left = os.fstat(file.fileno()).st_size
    while left > 0 and (line := file.readline()):
        left -= len(line)
        if not line.endswith(b"\n"):
            time.sleep(_UNFINISHED_SECONDS)
            line += file.readline()
        yield line
