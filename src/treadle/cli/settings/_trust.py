"""Which directories are trusted, and with which content."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from treadle.cli.settings._project import Project, read_project
from treadle.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from treadle.cli.settings._paths import Paths

_VERSION = 1
_MAX_BYTES = 32 << 20


class TrustStatus(NamedTuple):
    """What is known of a directory. `changes` are lines for a person: what was added, changed or removed."""

    state: Literal["trusted", "unknown", "changed"]
    changes: tuple[str, ...] = ()


class Trust:
    """The directories that the user trusts, by real path, each with a hash of every file that the trust is in.

    Kept in a file that only the user may read and write; one that somebody else could have written is not believed.
    """

    def __init__(self, paths: Paths) -> None:
        self._file = paths.trust_file

    def look(self, root: Path) -> Project:
        """What there is to trust in `root`, read once, and whether it is trusted as it is."""
        project = read_project(root)
        status = self._status(project)
        project.trusted, project.changes = status.state == "trusted", status.changes
        return project

    def status(self, root: Path | Project) -> TrustStatus:
        """Whether `root` is trusted, was never, or has changed since."""
        return self._status(root if isinstance(root, Project) else read_project(root))

    def trust(self, root: Path | Project) -> Project:
        """Remembers the content of `root`; of a `Project` what was read of it, whatever is there by now.

        Gives the project as a trusted one. Raises `ConfigError` where it holds too much, or nothing can be written.
        """
        project = root if isinstance(root, Project) else read_project(root)
        if project.problem:
            raise ConfigError(f"{project.path} cannot be trusted: {project.problem}")
        with self._changing() as known:
            known[project.path] = {"trusted": int(time.time()), "files": project.digests}
        project.trusted, project.changes = True, ()
        return project

    def forget(self, root: Path) -> bool:
        """Takes the trust back; whether there was any."""
        with self._changing() as known:
            return known.pop(os.path.realpath(root), None) is not None

    def directories(self) -> list[str]:
        """Everything that is trusted, with whatever content."""
        return sorted(self._read())

    def _status(self, project: Project) -> TrustStatus:
        before = self._read().get(project.path)
        if before is None or project.problem:
            return TrustStatus("unknown")
        if before == project.digests:
            return TrustStatus("trusted")
        return TrustStatus("changed", tuple(_changes(before, project.digests)))

    def _read(self) -> dict[str, dict[str, str]]:
        return {path: entry["files"] for path, entry in self._entries().items()}

    def _entries(self) -> dict[str, dict[str, Any]]:
        """All entries; none where the file is missing, damaged, or may be somebody else's."""
        try:
            with os.fdopen(os.open(self._file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
                status = os.fstat(file.fileno())
                own = status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
                if not own or not stat.S_ISREG(status.st_mode):
                    return {}
                found = json.loads(file.read(_MAX_BYTES))
        except (OSError, ValueError, RecursionError):
            return {}
        return _sound(found)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[dict[str, dict[str, Any]]]:
        """The entries, to change, alone; written when the context ends."""
        try:
            with locked(self._file):
                entries = self._entries()
                yield entries
                data = json.dumps({"version": _VERSION, "directories": entries}, indent=1, sort_keys=True)
                write_private(self._file, data.encode())
        except OSError as error:
            raise ConfigError(f"{self._file} cannot be written: {error.strerror or error}") from None


def _sound(found: Any) -> dict[str, dict[str, Any]]:
    """The entries of a file that has the shape that it is written in; of any other none."""
    entries = found.get("directories") if isinstance(found, dict) and found.get("version") == _VERSION else None
    if not isinstance(entries, dict):
        return {}
    return {
        path: entry
        for path, entry in entries.items()
        if isinstance(entry, dict) and isinstance(entry.get("files"), dict)
    }


def _changes(before: dict[str, str], now: dict[str, str]) -> Iterator[str]:
    for path in sorted(before.keys() | now.keys()):
        if path not in before:
            yield f"added: {path}"
        elif path not in now:
            yield f"removed: {path}"
        elif before[path] != now[path]:
            yield f"changed: {path}"


@contextlib.contextmanager
def locked(file: Path) -> Iterator[None]:
    """The right to change `file`, whose directory is made; other processes wait."""
    import fcntl

    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(file.with_name(f".{file.name}.lock"), flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def write_private(file: Path, data: bytes) -> None:
    """Puts `data` in the place of `file`, whole or not at all, for the user alone to read."""
    import tempfile

    descriptor, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)  # 0600
    try:
        with os.fdopen(descriptor, "wb") as new:
            new.write(data)
            new.flush()
            os.fsync(new.fileno())
        Path(name).replace(file)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
