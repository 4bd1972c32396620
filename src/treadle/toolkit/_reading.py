"""The tools that look and change nothing."""

from __future__ import annotations

import base64
import contextlib
from typing import IO, TYPE_CHECKING

from treadle.errors import ToolError
from treadle.messages import FilePart
from treadle.toolkit import _finding
from treadle.toolkit._encoding import HEAD_BYTES, image_type, is_whole_image
from treadle.toolkit._names import explained, shown
from treadle.toolkit._text import read_lines
from treadle.tools import ToolOutput

if TYPE_CHECKING:
    from collections.abc import Iterator

    from treadle.toolkit._place import Entry
    from treadle.toolkit.root import Root

MAX_ENTRIES = 1000
MAX_IMAGE_BYTES = 5 * 1024 * 1024 * 3 // 4  # Anthropic takes 5 MiB of base64 (2026)
MAX_CONTEXT_LINES = 20


@contextlib.contextmanager
def told(path: str) -> Iterator[None]:
    """What goes wrong with `path` inside becomes a text for the model."""
    try:
        yield
    except (OSError, UnicodeError) as error:
        raise ToolError(explained(error, path)) from None


class Reading:
    """The functions behind the reading tools. Their docstrings are what a model reads."""

    def __init__(self, root: Root, *, number_lines: bool, search_seconds: float, ripgrep: bool) -> None:
        self._root = root
        self._number_lines = number_lines
        self._search_seconds = search_seconds
        self._ripgrep = _finding.ripgrep(root) if ripgrep else None

    def list_directory(self, path: str = ".") -> str:
        """List a directory: an entry a line, sorted; directories end with a slash, files show their size.

        Args:
            path: The directory, relative to the working directory.
        """
        with told(path):
            try:
                entries, total = self._root.scandir(path, limit=MAX_ENTRIES)
            except NotADirectoryError:
                self._root.open(path).close()
                raise ToolError(f"{shown(path)} is a file; read_file shows what is in it") from None
        lines = [_line(entry) for entry in entries]
        if total > MAX_ENTRIES:
            lines.append(f"[the first {MAX_ENTRIES} of {total} entries, by name]")
        return "\n".join(lines) or "(empty directory)"

    def read_file(self, path: str, start_line: int = 1, end_line: int | None = None) -> ToolOutput:
        """Read a text file, or some of its lines, or look at an image. A note at the end says when there is more.

        Args:
            path: The file, relative to the working directory.
            start_line: The first line to read, counted from 1.
            end_line: The last line to read; to the end of the file if left out.
        """
        with told(path), self._root.open(path) as file:
            media_type = image_type(file.peek(HEAD_BYTES))
            if media_type is not None:
                return _image(file, path, media_type)
            return ToolOutput(read_lines(file, shown(path), start_line, end_line, numbered=self._number_lines))

    async def find_files(self, pattern: str, path: str = ".") -> str:
        """Find files and directories by name: a path a line, sorted. What .gitignore and .ignore exclude is left out.

        Args:
            pattern: A glob pattern. Without a slash it is about the name (*.py), with one about the path below `path`
                (src/**/test_*.py).
            path: The directory to look in, relative to the working directory.
        """
        return await _finding.find(self._root, self._search_seconds, pattern=pattern, path=path)

    async def search_content(
        self,
        pattern: str,
        path: str = ".",
        literal: bool = False,  # noqa: FBT001, FBT002 - a model names its arguments
        glob: str | None = None,
        context_lines: int = 0,
    ) -> str:
        """Search in files, line by line. Shows matching lines with their numbers, by file.

        What .gitignore and .ignore exclude is left out, and so are binary files.

        Args:
            pattern: A regular expression as in Python; (?i) in front ignores case.
            path: The file or directory to search, relative to the working directory.
            literal: Take the pattern as plain text.
            glob: Search only files that match this pattern, like *.py or src/**.
            context_lines: How many lines to show before and after each match.
        """
        if not 0 <= context_lines <= MAX_CONTEXT_LINES:
            raise ToolError(f"context_lines is 0 to {MAX_CONTEXT_LINES}")
        return await _finding.search(
            self._root,
            self._search_seconds,
            pattern=pattern,
            path=path,
            literal=literal,
            glob=glob,
            context_lines=context_lines,
            ripgrep=self._ripgrep,
        )


def _line(entry: Entry) -> str:
    name = shown(entry.name)
    if entry.kind == "directory":
        return f"{name}/"
    if entry.kind == "file":
        return f"{name}\t{entry.size} bytes"
    if entry.target is not None:
        return f"{name}\tlink to {shown(entry.target)}"
    return f"{name}\t{entry.kind}"


def _image(file: IO[bytes], path: str, media_type: str) -> ToolOutput:
    data = file.read(MAX_IMAGE_BYTES + 1)
    if len(data) > MAX_IMAGE_BYTES:
        raise ToolError(f"{shown(path)} is an image ({media_type}) of more than {MAX_IMAGE_BYTES / 2**20:g} MiB")
    if not is_whole_image(data, media_type):
        raise ToolError(f"{shown(path)} begins like an image ({media_type}) and is not a whole one")
    part = FilePart(media_type, data=base64.b64encode(data).decode(), name=path.rpartition("/")[2])
    return ToolOutput(f"{shown(path)} is an image: {media_type}, {len(data)} bytes", files=(part,))
