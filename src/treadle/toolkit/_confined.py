"""Opening paths inside one directory, and nowhere else.

Every component is opened by itself, relative to the directory above it and without following links; links are resolved
here, by the same rule. So nothing that somebody swaps in between leads outside, which no check of a path can promise.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from typing import TYPE_CHECKING

from treadle.errors import ConfigError, ToolError

if TYPE_CHECKING:
    from pathlib import Path

MAX_DEPTH = 64
MAX_LINKS = 40
MAX_LENGTH = 4096


def shown(name: str) -> str:
    """`name` as it can be told apart from every other name: quoted and escaped unless it is plain."""
    plain = name.isprintable() and name == name.strip() and not set(name) & set("\\'\"") and name
    return name if plain else repr(name)


def _brief(path: str) -> str:
    return shown(path if len(path) <= 200 else f"{path[:200]}...")


def check_platform() -> None:
    """Raises `ConfigError` where the system cannot open a file relative to a directory."""
    if os.open not in os.supports_dir_fd or not hasattr(os, "O_NOFOLLOW"):
        raise ConfigError("the file tools need a system that opens files relative to a directory; this one does not")


def open_inside(root: Path, path: str) -> tuple[int, os.stat_result]:
    """A descriptor of the file or directory `path` inside `root`, and its status. The caller closes it.

    Anything but a regular file or a directory is refused without opening it. Raises `ToolError` with a text for the
    model.
    """
    if "\0" in path or len(path) > MAX_LENGTH:
        raise ToolError(f"a path has at most {MAX_LENGTH} characters and no NUL among them")
    walk = _Walk(root, path)
    try:
        return walk.finish()
    except OSError as error:
        raise ToolError(f"{_brief(path)}: {_reason(error)}") from None
    except UnicodeError:
        raise ToolError(f"{_brief(path)} is no file name on this system") from None
    finally:
        walk.close()


class _Walk:
    """A way down from `root`: the open directories so far, and the components still to go."""

    def __init__(self, root: Path, path: str) -> None:
        self.root, self.path = root, path
        self.open: list[int] = []
        self.links = 0
        self.todo: deque[str] = deque()

    def close(self) -> None:
        for descriptor in self.open:
            os.close(descriptor)

    def finish(self) -> tuple[int, os.stat_result]:
        self.open.append(os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        self.go_on(self.path)
        while self.todo:
            name = self.todo.popleft()
            if name == "..":
                self.up()
                continue
            status = os.stat(name, dir_fd=self.open[-1], follow_symlinks=False)
            if stat.S_ISLNK(status.st_mode):
                self.follow(name)
            elif stat.S_ISDIR(status.st_mode):
                self.down(name)
            else:
                return self.open_file(name, status)
        descriptor = os.dup(self.open[-1])
        return descriptor, os.fstat(descriptor)

    def go_on(self, path: str) -> None:
        """Puts the components of `path` in front; an absolute one has to lie in the root, and starts there."""
        parts = [part for part in path.split("/") if part not in ("", ".")]
        if path.startswith("/"):
            above = list(self.root.parts[1:])
            if parts[: len(above)] != above:
                raise self.outside()
            parts = parts[len(above) :]
            while len(self.open) > 1:
                os.close(self.open.pop())
        self.todo.extendleft(reversed(parts))

    def up(self) -> None:
        if len(self.open) == 1:
            raise self.outside()
        os.close(self.open.pop())

    def down(self, name: str) -> None:
        if len(self.open) > MAX_DEPTH:
            raise ToolError(f"{_brief(self.path)} lies more than {MAX_DEPTH} directories deep")
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        self.open.append(os.open(name, flags, dir_fd=self.open[-1]))

    def follow(self, name: str) -> None:
        self.links += 1
        if self.links > MAX_LINKS:
            raise OSError(errno.ELOOP, "")
        self.go_on(os.readlink(name, dir_fd=self.open[-1]))

    def open_file(self, name: str, status: os.stat_result) -> tuple[int, os.stat_result]:
        if self.todo:
            raise OSError(errno.ENOTDIR, "")
        self.check_regular(status)
        # What was a file a moment ago may be a pipe now: never wait for a writer, and look again.
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC
        descriptor = os.open(name, flags, dir_fd=self.open[-1])
        try:
            status = os.fstat(descriptor)
            self.check_regular(status)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor, status

    def check_regular(self, status: os.stat_result) -> None:
        if not stat.S_ISREG(status.st_mode):
            raise ToolError(f"{_brief(self.path)} is a {kind(status)}, not a regular file")

    def outside(self) -> ToolError:
        return ToolError(
            f"{_brief(self.path)} leads out of the working directory; name a path inside it, like README.md"
        )


_KINDS = {
    stat.S_IFDIR: "directory",
    stat.S_IFIFO: "pipe",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
    stat.S_IFLNK: "link",
}


def kind(status: os.stat_result) -> str:
    """What sort of file `status` describes, in a word."""
    return _KINDS.get(stat.S_IFMT(status.st_mode), "file")


_REASONS = {
    errno.ENOENT: "no such file or directory; list_directory shows what there is",
    errno.ENOTDIR: "a part of this path is not a directory",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.ELOOP: "too many links; perhaps they lead in a circle",
    errno.ENAMETOOLONG: "the name is too long",
}


def _reason(error: OSError) -> str:
    return _REASONS.get(error.errno or 0, os.strerror(error.errno or 0))
