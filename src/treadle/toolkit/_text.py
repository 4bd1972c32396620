"""Lines of a text file, read in bounded pieces whatever the file's size."""

from __future__ import annotations

import codecs
from typing import IO, TYPE_CHECKING

from treadle.errors import ToolError
from treadle.toolkit._encoding import HEAD_BYTES, encoding_of

if TYPE_CHECKING:
    from treadle.toolkit._encoding import Encoding

MAX_TEXT_BYTES = 48 * 1024  # below the cap of a tool result, so that the note at the end is always read
MAX_COUNT_BYTES = 64 * 1024 * 1024  # how far lines are counted behind what is shown
MAX_SKIP_BYTES = 8 * 1024**3  # and in front of it
_CHUNK = 256 * 1024
_NUMBER_BYTES = 8


def read_lines(file: IO[bytes], name: str, start: int, end: int | None, *, numbered: bool = False) -> str:
    """The lines from `start` to `end` (counted from 1, both included), with a note where that is not the whole file.

    A carriage return stays part of its line. `numbered` puts each line's number and a tab in front.
    """
    if start < 1 or (end is not None and end < start):
        raise ToolError(f"start_line is at least 1, and end_line not below it; got {start} and {end}")
    encoding = encoding_of(file.read(HEAD_BYTES))
    if encoding is None:
        raise ToolError(f"{name} is a binary file, or text in an encoding that cannot be told, and not shown as text")
    file.seek(len(encoding.mark))
    window = _Window(_Source(file, encoding), start, end, _NUMBER_BYTES if numbered else 0)
    window.read()
    if window.source.total == 0:
        return "(empty file)"
    if window.last < start:
        raise ToolError(f"{name} ends before line {start}; its lines: {window.count()}")
    text = window.text.decode(errors="replace")
    if numbered:
        text = "".join(f"{number:>6}\t{line}" for number, line in enumerate(_split(text), start))
    note = _note(window, encoding, start)
    return text if not note else f"{text}\n[{note}]" if not text.endswith("\n") else f"{text}[{note}]"


def _split(text: str) -> list[str]:
    lines = text.split("\n")
    ended = [f"{line}\n" for line in lines[:-1]]
    return [*ended, lines[-1]] if lines[-1] else ended


class _Source:
    """A file's text in chunks of UTF-8, counting lines as they go by."""

    def __init__(self, file: IO[bytes], encoding: Encoding) -> None:
        self._file = file
        self._decoder = None
        if encoding.codec != "utf-8":
            self._decoder = codecs.getincrementaldecoder(encoding.codec)("replace")
        self.size = 0
        self.ended = False
        self._newlines = 0
        self._last = b"\n"

    @property
    def total(self) -> int:
        """The lines so far, the last one perhaps without its end."""
        return self._newlines + (self._last != b"\n")

    def chunk(self) -> bytes:
        """The next piece; empty at the end."""
        text = b""
        while not text and not self.ended:
            data = self._file.read(_CHUNK)
            self.size += len(data)
            self.ended = not data
            text = data if self._decoder is None else self._decoder.decode(data, final=self.ended).encode()
        self._newlines += text.count(b"\n")
        self._last = text[-1:] or self._last
        return text


class _Window:
    """The asked lines as far as they fit, up to line `last`; `cut` if that one is not whole."""

    def __init__(self, source: _Source, start: int, end: int | None, extra: int) -> None:
        self.source = source
        self.text = bytearray()
        self.last = start - 1
        self.cut = False
        self._start, self._end, self._extra = start, end, extra

    def count(self) -> str:
        return str(self.source.total) if self.source.ended else f"more than {self.source.total}"

    def wants_more(self) -> bool:
        """Whether asked lines are missing."""
        total = self.source.total
        return self.last < min(total, self._end or total)

    def read(self) -> None:
        self._collect(self._skip())
        limit = self.source.size + MAX_COUNT_BYTES
        while self.source.size < limit and self.source.chunk():
            pass

    def _skip(self) -> bytes:
        """Goes to the first asked line; what of it was read already."""
        before = self._start - 1
        seen = 0
        while seen < before:
            if self.source.size >= MAX_SKIP_BYTES:
                raise ToolError(f"line {self._start} lies more than {MAX_SKIP_BYTES >> 30} GiB into the file")
            chunk = self.source.chunk()
            if not chunk:
                return b""
            seen += (found := chunk.count(b"\n"))
            if seen >= before:
                return chunk[_behind(chunk, found - (seen - before)) :]
        return b""

    def _collect(self, buffer: bytes) -> None:
        room = MAX_TEXT_BYTES
        while self._end is None or self.last < self._end:
            line, buffer = self._line(buffer, room)
            if not line:
                return
            cost = len(line) + self._extra
            if cost > room or (not line.endswith(b"\n") and not self.source.ended):
                self._cut(line)
                return
            self.text += line
            self.last += 1
            room -= cost

    def _line(self, buffer: bytes, room: int) -> tuple[bytes, bytes]:
        """The next line, or so much of it that it does not fit; and what was read behind it."""
        while (index := buffer.find(b"\n")) < 0 and len(buffer) <= room:
            chunk = self.source.chunk()
            if not chunk:
                return buffer, b""
            buffer += chunk
        return (buffer, b"") if index < 0 else (buffer[: index + 1], buffer[index + 1 :])

    def _cut(self, line: bytes) -> None:
        """A line that does not fit is shown in part only if nothing else is."""
        if not self.text:
            self.text += line[:MAX_TEXT_BYTES].decode(errors="ignore").encode()
            self.last += 1
            self.cut = True


def _behind(chunk: bytes, count: int) -> int:
    """Where the first `count` lines of `chunk` end."""
    position = 0
    for _ in range(count):
        position = chunk.index(b"\n", position) + 1
    return position


def _note(window: _Window, encoding: Encoding, start: int) -> str:
    notes = []
    total, known = window.source.total, window.source.ended
    if start > 1 or window.last != total or not known or window.cut:
        notes.append(f"lines {start}-{window.last} of {window.count()}")
    if window.cut:
        notes.append(f"line {window.last} is cut after {MAX_TEXT_BYTES} bytes")
    if window.wants_more():
        notes.append(f"go on with start_line={window.last + 1}")
    if not encoding.known:
        notes.append("not UTF-8: shown as Latin-1, so that what is not ASCII may look wrong")
    elif not _is_utf8(window.text):
        notes.append("not valid UTF-8: what could not be read is shown as \ufffd")
    return "; ".join(notes)


def _is_utf8(text: bytes | bytearray) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
