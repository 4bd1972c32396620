"""The file of a recording: JSON lines behind a header that names its kind and version."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from treadle.errors import TreadleError
from treadle.messages import mended
from treadle.testing._secrets import in_all_texts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from treadle.testing._secrets import Secrets

VERSION = 1
_HEADER = "treadle_recording"
_KINDS = {"model": "record and replay", "http": "recording_transport and replaying_transport"}


class RecordingError(TreadleError):
    """A recording cannot be written or read: it is missing, cut off, of another version, or holds nothing."""


def _number(value: Any) -> Any:
    """A kind of `int` as plain `int`, for msgspec."""
    if isinstance(value, int):
        return int(value)
    raise TypeError(f"{type(value).__name__} is no JSON")


_encoder = msgspec.json.Encoder(order="sorted", enc_hook=_number)


def encode(value: Any) -> bytes:
    """JSON with sorted keys. Text that is not valid Unicode is mended."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return _encoder.encode(mended(msgspec.to_builtins(value, enc_hook=_number)))


def plain(value: Any) -> Any:
    """`value` as it is after a round trip through JSON."""
    return msgspec.json.decode(encode(value))


class RecordingWriter:
    """Writes beside `path`, line by line; `publish` puts the whole in its place, `abandon` leaves the old one there.

    Whatever is written goes through `secrets` first. The file can be read by its owner only.
    """

    def __init__(self, path: str | os.PathLike[str], kind: str, secrets: Secrets) -> None:
        self.path: Path = Path(path).resolve()
        self._secrets = secrets
        self._lines = 0
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            number, name = tempfile.mkstemp(prefix=f"{self.path.name}.", suffix=".partial", dir=self.path.parent)
        except OSError as error:
            raise RecordingError(f"cannot record to {path}: {error.strerror}") from error
        self._file = os.fdopen(number, "wb")
        self._partial = Path(name)
        self._write({_HEADER: VERSION, "kind": kind})

    def append(self, value: dict[str, Any]) -> None:
        """Adds a line. What is written stays readable if the process dies."""
        self._write(value)
        self._lines += 1

    def _write(self, value: dict[str, Any]) -> None:
        self._file.write(self._masked(encode(value)) + b"\n")
        self._file.flush()

    def _masked(self, line: bytes) -> bytes:
        if not self._secrets.show_in(line.decode()):
            return line
        return encode(in_all_texts(msgspec.json.decode(line), self._secrets.mask))

    def publish(self) -> None:
        """Replaces the file at `path`. Raises `RecordingError` where nothing was recorded."""
        if not self._lines:
            self._discard()
            raise RecordingError(f"nothing was recorded to {self.path.name}: no model was asked in its block")
        self._finish()
        self._partial.replace(self.path)

    def abandon(self) -> Path | None:
        """Keeps what stands at `path`. Returns where the lines until here are; None where there are none."""
        if not self._lines:
            self._discard()
            return None
        self._finish()
        return self._partial.replace(self.path.with_name(f"{self.path.name}.partial"))

    def _finish(self) -> None:
        """Closes the file. Some of it may have turned out to be secret after it was written."""
        self._file.close()
        lines = self._partial.read_bytes().splitlines()
        if lines != (masked := [self._masked(line) for line in lines]):
            self._partial.write_bytes(b"".join(line + b"\n" for line in masked))

    def _discard(self) -> None:
        self._file.close()
        with contextlib.suppress(OSError):
            self._partial.unlink()


def read_recording(path: str | os.PathLike[str], kind: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """The lines behind the header, each with its number. Raises `RecordingError` for what is no whole recording."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        hint = "" if Path(path).exists() else f"; make it with {_KINDS[kind].partition(' ')[0]}({str(path)!r})"
        raise RecordingError(f"no recording can be read at {path}: {error.strerror}{hint}") from error
    lines = data.split(b"\n")
    whole = not lines[-1]
    if whole:
        lines.pop()
    for number, line in enumerate(lines, 1):
        try:
            value = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            if number == len(lines) and not whole and number > 1:
                raise RecordingError(
                    f"{path}: line {number}, the last, is cut off: the recording was interrupted; record it again, "
                    "or delete that line"
                ) from error
            raise RecordingError(f"{path}: line {number} is not JSON: {error}") from error
        if number == 1:
            _check_header(path, value, kind)
        elif isinstance(value, dict):
            yield number, value
        else:
            raise RecordingError(f"{path}: line {number} is no exchange but {line[:80]!r}")
    if not lines:
        raise RecordingError(f"{path} is empty: record it again")


def _check_header(path: Any, value: Any, kind: str) -> None:
    if not isinstance(value, dict) or _HEADER not in value:
        raise RecordingError(f"{path} is no recording: its first line names no {_HEADER}")
    if value[_HEADER] != VERSION:
        raise RecordingError(
            f"{path} is a recording of version {value[_HEADER]!r}, and this Treadle reads {VERSION}: "
            "update Treadle, or record it again"
        )
    if (found := value.get("kind")) != kind:
        reader = _KINDS.get(str(found), "something else")
        raise RecordingError(f"{path} is a recording of the kind {found!r}, which is for {reader}")
