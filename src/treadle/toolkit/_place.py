"""What stands at the end of a path."""

from __future__ import annotations

import errno
import os
import stat
from typing import NamedTuple

from treadle.toolkit._names import RefusedError, kind

_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NOCTTY", 0)


class Entry(NamedTuple):
    """One thing in a directory. `kind` is file, directory, link, pipe, socket or device; `target` a link's text."""

    name: str
    kind: str
    size: int
    target: str | None = None


class Listing(NamedTuple):
    """The first entries of a directory by name, and how many there are in all."""

    entries: list[Entry]
    total: int


class Place(NamedTuple):
    """Where a path ends: an open directory, a name in it, and what that is now, if anything."""

    directory: int
    name: str
    status: os.stat_result | None
    linked: bool = False


def open_regular(place: Place, path: str) -> int:
    """A descriptor of the regular file at `place`, to read."""
    if place.status is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    check_regular(place.status, path)
    # What was a file a moment ago may be a pipe now: never wait for a writer, and look again.
    descriptor = os.open(place.name, _READ | os.O_CLOEXEC, dir_fd=place.directory)
    try:
        check_regular(os.fstat(descriptor), path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def check_regular(status: os.stat_result, path: str) -> None:
    """Raises for what is no regular file."""
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(status.st_mode):
        raise RefusedError(errno.EINVAL, f"is a {kind(status)}, not a regular file", path)


def entry_of(name: str, directory: int) -> Entry | None:
    """What `name` in `directory` is; None if it is gone."""
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        target = os.readlink(name, dir_fd=directory) if stat.S_ISLNK(status.st_mode) else None
    except FileNotFoundError:
        return None
    except OSError:
        return Entry(name, "unreadable", 0)
    return Entry(name, kind(status), status.st_size, target)
