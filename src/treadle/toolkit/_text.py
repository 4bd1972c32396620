"""Lines of a text file, read in bounded pieces whatever the file's size."""

from __future__ import annotations

import codecs
from typing import IO

import msgspec

from treadle.errors import ToolError

MAX_TEXT_BYTES = 48 * 1024  # below the cap of a tool result, so that the note at the end is always read
MAX_SCAN_BYTES = 64 * 1024 * 1024


def read_lines(file: IO[bytes], name: str, start: int, end: int | None) -> str:
    """The lines from `start` to `end` (counted from 1, both included), with a note where that is not the whole file."""
    if start < 1 or (end is not None and end < start):
        raise ToolError(f"start_line is at least 1, and end_line not below it; got {start} and {end}")
    if b"\0" in file.read(8192):
        raise ToolError(f"{name} is a binary file, or text in another encoding than UTF-8, and cannot be read as text")
    file.seek(0)
    lines = _collect(_Pieces(file), start, end)
    if lines.total == 0 or lines.text == codecs.BOM_UTF8:
        return "(empty file)"
    if lines.last < start:
        raise ToolError(f"{name} ends before line {start}; its lines: {lines.count()}")
    text, note = _decode(lines), _note(lines, start, end)
    return text if not note else f"{text}\n[{note}]" if not text.endswith("\n") else f"{text}[{note}]"


class _Pieces:
    """A file's lines, a longer one than `MAX_TEXT_BYTES` in several pieces. `number` is the line of the last piece."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._new_line = True
        self.number = 0
        self.size = 0

    def read(self) -> bytes:
        piece = self._file.readline(MAX_TEXT_BYTES)
        self.size += len(piece)
        self.number += self._new_line and piece != b""
        self._new_line = piece.endswith(b"\n")
        return piece


class _Lines(msgspec.Struct):
    """What was read: lines up to `last`, the last one perhaps cut; `total` counts the file's lines as far as known."""

    last: int
    text: bytes
    cut: bool
    total: int
    total_known: bool

    def count(self) -> str:
        return str(self.total) if self.total_known else f"more than {self.total}"


def _collect(pieces: _Pieces, start: int, end: int | None) -> _Lines:
    """Takes the asked lines as far as they fit, and counts the others."""
    text, last, taking, cut = bytearray(), start - 1, True, False
    while pieces.size < MAX_SCAN_BYTES:
        if not (piece := pieces.read()):
            return _Lines(last, bytes(text), cut, pieces.number, total_known=True)
        cut = cut or (text != b"" and pieces.number == last)
        if taking and pieces.number >= start:
            taking = (end is None or pieces.number <= end) and len(text) + len(piece) <= MAX_TEXT_BYTES
            if taking:
                text += piece
                last = pieces.number
                taking = piece.endswith(b"\n")
    return _Lines(last, bytes(text), cut, pieces.number, total_known=False)


def _decode(lines: _Lines) -> str:
    decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
    return decoder.decode(lines.text, final=not lines.cut)  # a cut may lie inside a character, which then goes


def _note(lines: _Lines, start: int, end: int | None) -> str:
    notes = []
    if start > 1 or lines.last != lines.total or not lines.total_known or lines.cut:
        notes.append(f"lines {start}-{lines.last} of {lines.count()}")
    if lines.cut:
        notes.append(f"line {lines.last} is cut after {MAX_TEXT_BYTES} bytes")
    if lines.last < min(lines.total, end or lines.total):
        notes.append(f"go on with start_line={lines.last + 1}")
    if not _is_utf8(lines):
        notes.append("not valid UTF-8: what could not be read is shown as \ufffd")
    return "; ".join(notes)


def _is_utf8(lines: _Lines) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(lines.text, final=not lines.cut)
    except UnicodeDecodeError:
        return False
    return True
