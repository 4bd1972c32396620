"""Two read-only tools: what is in a directory, and what is in a file."""

from __future__ import annotations

import heapq
import os
import stat
from pathlib import Path
from typing import IO, TYPE_CHECKING

from treadle.errors import ToolError
from treadle.toolkit._confined import check_platform, kind, open_inside, shown
from treadle.toolkit._text import read_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from treadle.tools import Tool

MAX_ENTRIES = 1000


def read_only_tools(root: str | os.PathLike[str] = ".") -> list[Tool]:
    """`list_directory` and `read_file`, which see nothing outside `root`.

    Links are followed as long as they stay inside. Raises `ConfigError` on systems that cannot confine paths.
    """
    from treadle.tools import tool

    check_platform()
    top = Path(root).resolve()

    @tool(effect="read", idempotent=True)
    def list_directory(path: str = ".") -> str:
        """List a directory: an entry a line, sorted; directories end with a slash, files show their size.

        Args:
            path: The directory, relative to the working directory.
        """
        descriptor, status = open_inside(top, path)
        try:
            if not stat.S_ISDIR(status.st_mode):
                raise ToolError(f"{shown(path)} is a file; read_file shows what is in it")
            return _listing(descriptor)
        finally:
            os.close(descriptor)

    @tool(effect="read", idempotent=True)
    def read_file(path: str, start_line: int = 1, end_line: int | None = None) -> str:
        """Read a text file, or some of its lines. A note at the end says when there is more.

        Args:
            path: The file, relative to the working directory.
            start_line: The first line to read, counted from 1.
            end_line: The last line to read; to the end of the file if left out.
        """
        with _open_file(top, path) as file:
            return read_lines(file, shown(path), start_line, end_line)

    return [list_directory, read_file]


def _open_file(root: Path, path: str) -> IO[bytes]:
    descriptor, status = open_inside(root, path)
    if stat.S_ISDIR(status.st_mode):
        os.close(descriptor)
        raise ToolError(f"{shown(path)} is a directory; list_directory shows what is in it")
    return os.fdopen(descriptor, "rb")


def _listing(directory: int) -> str:
    counter = _Counter()
    with os.scandir(directory) as entries:
        first = heapq.nsmallest(MAX_ENTRIES, counter.count(entry.name for entry in entries))
    lines = [_line(name, directory) for name in first]
    if counter.total > len(first):
        lines.append(f"[the first {len(first)} of {counter.total} entries, by name]")
    return "\n".join(lines) or "(empty directory)"


class _Counter:
    def __init__(self) -> None:
        self.total = 0

    def count(self, names: Iterable[str]) -> Iterator[str]:
        for name in names:
            self.total += 1
            yield name


def _line(name: str, directory: int) -> str:
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            return f"{shown(name)}\tlink to {shown(os.readlink(name, dir_fd=directory))}"
    except OSError:
        return f"{shown(name)}\tunreadable"
    if stat.S_ISDIR(status.st_mode):
        return f"{shown(name)}/"
    if stat.S_ISREG(status.st_mode):
        return f"{shown(name)}\t{status.st_size} bytes"
    return f"{shown(name)}\t{kind(status)}"
