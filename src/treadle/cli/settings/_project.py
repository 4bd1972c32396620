"""What a project asks the program to use: read once, so that what is used is what was shown and hashed."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import BufferedReader

    from treadle.toolkit import Root

CONFIG = ".treadle/config.toml"
MCP = ".mcp.json"
# Text that a model is told (AGENTS.md, CLAUDE.md) is not here: it starts nothing and allows nothing, it is marked as
# the repository's own words, and it changes too often for a question about it to be read.
WATCHED = (".treadle", MCP, ".agents/skills", ".claude/skills")
MAX_FILES = 2_000
MAX_DEPTH = 16
MAX_ALL_BYTES = 64 << 20
KEPT_BYTES = (256 << 10) + 1  # of each file; nobody uses more of one, and all of it is hashed


class ProjectFile(msgspec.Struct, frozen=True):
    """A file as it was read: its beginning, and a hash over all of it. A link is its target's name, never followed."""

    data: bytes
    digest: str
    size: int
    is_link: bool = False


class Project:
    """The files of a directory that need trust, as they were when this was made.

    `root` is the real path, `files` are by path relative to it, sorted. `trusted` is what `Trust.look` found. Where
    there is too much to read, `problem` says so, there are no files, and it cannot be trusted. `path`, `read` and
    `names` make it a place to read skills and commands from; failures are `OSError`s as those of a file system.
    """

    root: Path
    files: dict[str, ProjectFile]
    problem: str
    trusted: bool
    changes: tuple[str, ...]

    def __init__(self, root: Path, files: dict[str, ProjectFile], problem: str = "") -> None:
        self.root = root
        self.files = files
        self.problem = problem
        self.trusted = False
        self.changes = ()

    @property
    def path(self) -> str:
        """Where the directory is."""
        return str(self.root)

    @property
    def digests(self) -> dict[str, str]:
        """What trust is bound to: every path, with what is there."""
        return {path: file.digest for path, file in self.files.items()}

    def read(self, name: str, limit: int = -1) -> bytes:
        """The first `limit` bytes of a file, of which no more than 256 KiB and one byte were kept."""
        file = self.files.get(os.path.normpath(name))
        if file is None or file.is_link:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        return file.data if limit < 0 else file.data[:limit]

    def names(self, name: str) -> list[str]:
        """The names in a directory, sorted."""
        inside = f"{os.path.normpath(name)}/"
        found = {path[len(inside) :].split("/")[0] for path in self.files if path.startswith(inside)}
        if not found:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        return sorted(found)

    def content(self, path: str | os.PathLike[str]) -> bytes | None:
        """What was read of an absolute path in the directory; None for any other file."""
        inside = os.path.relpath(path, self.root)
        file = self.files.get(inside)
        return None if file is None or file.is_link else file.data


def read_project(root: Path) -> Project:
    """Reads what needs trust in `root`. Raises `ConfigError` if there is no such directory."""
    from treadle.toolkit import Root

    with Root(root) as held:
        found: dict[str, ProjectFile] = {}
        left = MAX_ALL_BYTES
        try:
            for path in _paths(held):
                if (file := _read(held, path, left)) is not None:
                    found[path] = file
                    left -= file.size
        except _TooMuchError as error:
            return Project(Path(held.path), {}, str(error))
        return Project(Path(held.path), dict(sorted(found.items())))


class _TooMuchError(Exception):
    pass


def _paths(root: Root) -> Iterator[str]:
    """The paths of what is watched, but directories."""
    todo = [(name, 0) for name in reversed(WATCHED)]
    count = 0
    while todo:
        path, depth = todo.pop()
        count += 1
        if count > MAX_FILES:
            raise _TooMuchError(f"there are more than {MAX_FILES:,} files that would have to be trusted")
        if depth == 0 and _leads_through_link(root, path):
            yield path.rpartition("/")[0]  # as a link, which is not followed
        elif (inside := _listed(root, path, depth)) is None:
            yield path
        else:
            todo += [(f"{path}/{name}", depth + 1) for name in reversed(inside)]


def _leads_through_link(root: Root, path: str) -> bool:
    above = path.rpartition("/")[0]
    return bool(above) and _is_link(root, above)


def _is_link(root: Root, path: str) -> bool:
    try:
        return stat.S_ISLNK(root.stat(path, follow=False).st_mode)
    except OSError:
        return False


def _listed(root: Root, path: str, depth: int) -> list[str] | None:
    """The names in a directory; None for what is none."""
    if _is_link(root, path):
        return None
    try:
        listing = root.scandir(path, limit=MAX_FILES + 1)
    except NotADirectoryError:
        return None
    except OSError:
        return []
    if depth == MAX_DEPTH and listing.total:
        raise _TooMuchError(f"the directories that would have to be trusted are more than {MAX_DEPTH} deep")
    return [entry.name for entry in listing.entries]


def _read(root: Root, path: str, left: int) -> ProjectFile | None:
    """The file as it is; None where there is none, or something that is no file."""
    try:
        with root.locate(path, follow=False) as place:
            if place.status is None:
                return None
            if stat.S_ISLNK(place.status.st_mode):
                target = os.fsencode(os.readlink(place.name, dir_fd=place.directory))
                return ProjectFile(target, f"link:{hashlib.sha256(target).hexdigest()}", len(target), is_link=True)
        with root.open(path) as file:
            return _hashed(file, left)
    except OSError:
        return None


def _hashed(file: BufferedReader, left: int) -> ProjectFile:
    digest, kept, size = hashlib.sha256(), b"", 0
    while chunk := file.read(1 << 16):
        digest.update(chunk)
        size += len(chunk)
        if size > left:
            raise _TooMuchError(f"there are more than {MAX_ALL_BYTES >> 20} MiB that would have to be trusted")
        if len(kept) < KEPT_BYTES:
            kept += chunk
    return ProjectFile(kept[:KEPT_BYTES], digest.hexdigest(), size)
