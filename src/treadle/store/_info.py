"""What a list shows of a session, from the first and the last lines of its file."""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING

from treadle.events import RunStart
from treadle.messages import TextPart, UserMessage
from treadle.sessions import SessionInfo, StoredEvent
from treadle.store._lines import Header, read_lines

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO

    from treadle.messages import Message

_FIRST_LINES = 64
_LAST_BYTES = 65_536
_TITLE = 80


def session_info(file: BinaryIO, path: Path) -> SessionInfo:
    """Reads no more of the file than it must."""
    header: Header | None = None
    first: StoredEvent | None = None
    title = ""
    for line in itertools.islice(read_lines(file, path), _FIRST_LINES):
        if isinstance(line.found, Header):
            header = line.found
        elif line.found is not None:
            first = first or line.found
            if isinstance(line.found.event, RunStart):
                title = title_of((*line.found.event.history, *line.found.event.input))
                break
    last = _last(file, path)
    changed = os.fstat(file.fileno()).st_mtime
    created = header.created if header is not None else first.time if first is not None else changed
    return SessionInfo(
        path.stem,
        created,
        created if last is None else max(created, last.time),  # a fork is younger than its events
        title,
        0 if last is None else last.seq + 1,
        None if header is None else header.forked_from,
    )


def _last(file: BinaryIO, path: Path) -> StoredEvent | None:
    """The last event, found from the end of the file."""
    size, length = os.fstat(file.fileno()).st_size, _LAST_BYTES
    while True:
        start = max(size - length, 0)
        file.seek(start)
        if start:
            file.readline()  # the rest of a line
        found = [line.found for line in read_lines(file, path) if isinstance(line.found, StoredEvent)]
        if found or not start:
            return found[-1] if found else None
        length *= 8


def title_of(messages: tuple[Message, ...]) -> str:
    """How the first words of the user begin, on one line that is safe to show."""
    said = next((message for message in messages if isinstance(message, UserMessage)), None)
    if said is None:
        return ""
    text = " ".join([part.text[: 10 * _TITLE] for part in said.content if isinstance(part, TextPart)])
    line = "".join([letter for letter in " ".join(text.split()) if letter.isprintable()])
    return line if len(line) <= _TITLE else f"{line[: _TITLE - 1].rstrip()}…"
