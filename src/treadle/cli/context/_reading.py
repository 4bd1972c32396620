"""Files that the context is made of: only regular ones are read, no more of them than asked, and none is waited for.

What a repository says is read beneath its directory, which no link leaves; what it offers, skills and commands, from
what was read and hashed when trust in it was looked at. The user's own files may be links to anywhere.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, NamedTuple, Protocol

from treadle.cli.terminal import neutral, one_line

if TYPE_CHECKING:
    from pathlib import Path

    from treadle.toolkit import Root

MAX_ENTRIES = 200


class Readable(Protocol):
    """A directory to read from. `path` is where it is. Failures are `OSError`s."""

    @property
    def path(self) -> str: ...

    def read(self, name: str, limit: int) -> bytes:
        """The first `limit` bytes of a regular file below."""
        ...


class Place(Readable, Protocol):
    """A directory to look into as well."""

    def names(self, name: str) -> list[str]:
        """The names in a directory below, sorted."""
        ...


class Beneath:
    """What somebody else may have written, beneath a directory that no link leaves."""

    def __init__(self, root: Root) -> None:
        self.path: str = root.path
        self._root = root

    def read(self, name: str, limit: int) -> bytes:
        return self._root.read(name, limit)


class Own:
    """The user's own files."""

    def __init__(self, path: Path) -> None:
        self.path: str = str(path)

    def read(self, name: str, limit: int) -> bytes:
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
        with os.fdopen(os.open(os.path.join(self.path, name), flags), "rb") as file:  # noqa: PTH118 - text in, text out
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise OSError(0, "is not a regular file")
            return file.read(limit)

    def names(self, name: str) -> list[str]:
        return sorted(os.listdir(os.path.join(self.path, name)))  # noqa: PTH118, PTH208 - as above


class Text(NamedTuple):
    """A file's text, `cut` where it was longer than allowed."""

    text: str
    cut: bool


def read_text(place: Readable, name: str, limit: int, notes: list[str]) -> Text | None:
    """A text of at most `limit` bytes; None where there is none. Why one that is there cannot be read is noted."""
    try:
        data = place.read(name, limit + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        notes.append(note(f"{place.path}/{name}", getattr(error, "strerror", None) or str(error)))
        return None
    if b"\0" in data:
        notes.append(note(f"{place.path}/{name}", "left out, it is no text in UTF-8"))
        return None
    cut = len(data) > limit
    text = data[:limit].decode("utf-8-sig", errors="ignore" if cut and _only_end_broken(data[:limit]) else "replace")
    return Text(text.replace("\r\n", "\n"), cut)


def list_names(place: Place, name: str, notes: list[str]) -> list[str]:
    """The names in a directory; none where there is no directory. Why one cannot be read is noted."""
    try:
        return place.names(name)[:MAX_ENTRIES]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except (OSError, ValueError) as error:
        notes.append(note(f"{place.path}/{name}", getattr(error, "strerror", None) or str(error)))
        return []


def shown(path: str | os.PathLike[str]) -> str:
    """A path for a model, on one line whatever is in it."""
    return neutral(os.fspath(path)).replace("\n", "\\n").replace("\t", "\\t")


def note(path: str, why: str) -> str:
    """A line about a file that was left out, whatever it is called."""
    return one_line(f"{path}: {why}", 400)


def _only_end_broken(data: bytes) -> bool:
    """Whether nothing but a character that was cut in two is wrong with `data`."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.end == len(data) and error.reason == "unexpected end of data"
    return True
