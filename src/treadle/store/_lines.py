"""The file of a session: a header, then one event a line. Reading it past whatever is torn in it.

    {"format":1,"session":"monday","created":1780000000.0,"forked_from":null,"forked_at":null}
    {"seq":0,"time":1780000000.1,"event":{"type":"run_start",...}}

Every line begins with a text that cannot stand inside JSON text, where quotes are escaped, so that a line which was
added behind a torn one, without a break between them, is found again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from treadle.errors import StoreError
from treadle.messages import mended
from treadle.sessions import StoredEvent

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

FORMAT = 1
_BLANK = b"\0 \t\r\n"


class Header(msgspec.Struct, frozen=True):
    """The first line. `forked_at` is the `seq` at which a fork begins to differ from where it came from."""

    format: int
    session: str
    created: float
    forked_from: str | None = None
    forked_at: int | None = None


class _Format(msgspec.Struct):
    format: int


class Line(NamedTuple):
    """A line as it is read. `bad` are its bytes as they are, where some of them make no sense."""

    found: Header | StoredEvent | None
    raw: bytes
    bad: bytes


class _Envelope(msgspec.Struct):
    seq: int
    time: float
    event: msgspec.Raw


_events = msgspec.json.Decoder(StoredEvent)
_formats = msgspec.json.Decoder(_Format)
_headers = msgspec.json.Decoder(Header)
_envelopes = msgspec.json.Decoder(_Envelope)
_encoder = msgspec.json.Encoder()
_TORN = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def encode_lines(values: Iterable[Header | StoredEvent]) -> bytes:
    """The lines, each with its end. Raises `StoreError` for what JSON cannot hold."""
    lines = []
    for value in values:
        try:
            lines.append(_encoder.encode(value) + b"\n")
        except UnicodeEncodeError:
            lines.append(_encoder.encode(mended(msgspec.to_builtins(value))) + b"\n")
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise StoreError(f"an event holds what JSON cannot: {error}") from error
    return b"".join(lines)


def read_lines(file: Iterable[bytes], path: Path) -> Iterator[Line]:
    """The lines that hold something. Raises `StoreError` for what a later version wrote."""
    for number, raw in enumerate(file, 1):
        line = raw.strip(_BLANK)
        bad = raw if b"\0" in raw else b""
        found = None
        if line:
            found = _decode(line, number, path)
            start = max(line.rfind(b'{"seq":'), line.rfind(b'{"format":'))
            if found is None and start > 0:
                line = line[start:]
                found = _decode(line, number, path)
                bad = raw
        if found is not None:
            yield Line(found, line + b"\n", bad)
        elif line or bad:
            yield Line(None, b"", raw)


def _decode(line: bytes, number: int, path: Path) -> Header | StoredEvent | None:
    """What a line holds; None where it is torn."""
    if line.startswith(b'{"format":'):
        try:
            written = _formats.decode(line).format  # all that is known of the header of a later version
            if written <= FORMAT:
                return _headers.decode(line)
        except _TORN:
            return None
        raise StoreError(f"{path} was written by a later version of treadle (format {written}): update it")
    try:
        return _events.decode(line)
    except _TORN:
        pass
    try:
        _envelopes.decode(line)
    except _TORN:
        return None
    raise StoreError(f"line {number} of {path} holds an event that this version of treadle does not know: update it")
