"""Names: how they are shown, and which must not be written to."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

_PASS = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
PROTECTED_NAMES = (".git", ".treadle", ".mcp.json", ".claude")


class RefusedError(OSError):
    """What a `Root` refuses by its own rules. `strerror` says why, in words that follow the name of the path."""

    def __init__(self, code: int, reason: str, path: str) -> None:
        super().__init__(code, reason, path)


def shown(name: str) -> str:
    """`name` as it can be told apart from every other name: quoted and escaped unless it is plain."""
    plain = name.isprintable() and name == name.strip() and not set(name) & set("\\'\"") and name
    return name if plain else repr(name)


def brief(path: str) -> str:
    """`path` as `shown`, and not longer than a line."""
    return shown(path if len(path) <= 200 else f"{path[:200]}...")


_KINDS = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "directory",
    stat.S_IFIFO: "pipe",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
    stat.S_IFLNK: "link",
}


def kind(status: os.stat_result) -> str:
    """What sort of file `status` describes, in a word."""
    return _KINDS.get(stat.S_IFMT(status.st_mode), "special file")


def folded(name: str) -> str:
    """`name` as the most forgiving file system compares it: no case, no invisible characters, no dots at the end."""
    visible = "".join(char for char in unicodedata.normalize("NFKC", name) if unicodedata.category(char) != "Cf")
    return unicodedata.normalize("NFC", visible.casefold()).rstrip(". ")


def same(one: os.stat_result, other: os.stat_result) -> bool:
    """Whether both describe one file, whatever its names."""
    return (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)


def status_of(name: str, directory: int) -> os.stat_result | None:
    """What `name` in `directory` is, a link being a link; None where there is nothing."""
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return None


class Protection:
    """Knows the names that nothing is written to or below, and recognises them under other names by their inode.

    The Python environment of this process counts as one of them: what is written there, the process itself would run.
    """

    def __init__(self, names: Collection[str], top: os.stat_result) -> None:
        self._names = tuple(names)
        self._folded = frozenset(map(folded, names))
        self._top = top
        self._environment = os.stat(sys.prefix)  # noqa: PTH116 - the searcher starts faster without pathlib

    def names_one(self, parts: Iterable[str]) -> bool:
        return any(folded(part) in self._folded for part in parts)

    def covers(self, directory: int, name: str) -> bool:
        """Whether `name` in `directory` is protected, or lies in something that is, all the way up to the top."""
        if not self._names:
            return False
        status = status_of(name, directory)
        if folded(name) in self._folded or self._is_one(status, directory) or _is_repository(directory, name):
            return True
        passed = [] if status is None else [status]
        here = os.dup(directory)
        try:
            while not same(status := os.fstat(here), self._top):
                if _is_repository(here):
                    return True
                passed.append(status)
                above = os.open("..", _PASS, dir_fd=here)
                os.close(here)
                here = above
                if same(os.fstat(here), status) or self._is_one(status, here):
                    return True  # beyond the root of all: it was moved out meanwhile
            return _is_repository(here) or any(same(one, kept) for kept in self._kept(here) for one in passed)
        finally:
            os.close(here)

    def _kept(self, top: int) -> Iterator[os.stat_result]:
        """What is protected wherever it is: the environment, and what links with protected names at the top lead to."""
        yield self._environment
        for name in self._names:
            with contextlib.suppress(OSError, ValueError):
                yield os.stat(name, dir_fd=top)

    def _is_one(self, status: os.stat_result | None, directory: int) -> bool:
        if status is None:
            return False
        found = (status_of(name, directory) for name in self._names)
        return any(one is not None and same(one, status) for one in found)


def _is_repository(directory: int, coming: str = "") -> bool:
    """Whether this is what `.git` usually names, or would be with `coming`: a repository, or a worktree's part."""

    def has(name: str) -> bool:
        return folded(name) == folded(coming) or status_of(name, directory) is not None

    return has("HEAD") and (has("commondir") or (has("objects") and has("refs")))


_REASONS = {
    errno.ENOENT: "no such file or directory; list_directory shows what there is",
    errno.ENOTDIR: "a part of this path is not a directory",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.ELOOP: "too many links; perhaps they lead in a circle",
    errno.ENAMETOOLONG: "the path is too long or too deep",
    errno.EISDIR: "is a directory; list_directory shows what is in it",
    errno.ENOSPC: "there is no space left on the device; nothing was changed",
}


def explained(error: OSError | UnicodeError, path: str) -> str:
    """What went wrong with `path`, for the model."""
    if isinstance(error, RefusedError):
        return f"{brief(path)} {error.strerror}"
    if isinstance(error, UnicodeError):
        return f"{brief(path)} is no file name on this system"
    code = error.errno or 0
    return f"{brief(path)}: {_REASONS.get(code) or os.strerror(code)}"
