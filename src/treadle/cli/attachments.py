"""The prompt, and the files that go with it."""

from __future__ import annotations

import base64
import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.errors import ConfigError
from treadle.messages import FilePart, TextPart

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_TEXT_BYTES = 1024 * 1024
MAX_MEDIA_BYTES = 20 * 1024 * 1024


def user_input(prompt: str, files: Iterable[str]) -> list[TextPart | FilePart]:
    """The files and then the prompt, which `-` reads from standard input. Raises `ConfigError`."""
    text = _standard_input() if prompt == "-" else prompt
    if not text.strip():
        raise ConfigError("the prompt is empty")
    return [*(attachment(path) for path in files), TextPart(text)]


def _standard_input() -> str:
    if sys.stdin is None:
        raise ConfigError("standard input is closed, and the prompt should come from it")
    return sys.stdin.buffer.read().decode(errors="replace")


def attachment(path: str) -> TextPart | FilePart:
    """An image, PDF or audio file as a file part; a text file as text below its name. Raises `ConfigError`."""
    media_type = _media_type(path)
    most = MAX_MEDIA_BYTES if media_type else MAX_TEXT_BYTES
    try:
        data = _read(path, most + 1)
    except OSError as error:
        raise ConfigError(f"--file {path}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"--file {path!r}: {error}") from None
    if len(data) > most:
        raise ConfigError(f"--file {path}: larger than {most // 1024} KiB, the most that is sent along")
    if media_type:
        return FilePart(media_type, base64.b64encode(data).decode(), name=Path(path).name)
    return TextPart(f"File {path}:\n\n{_text(path, data)}")


def _media_type(path: str) -> str | None:
    import mimetypes

    media_type = mimetypes.guess_type(path)[0] or ""
    is_media = media_type.startswith(("image/", "audio/")) and media_type != "image/svg+xml"
    return media_type if is_media or media_type == "application/pdf" else None


def _read(path: str, most: int) -> bytes:
    # Without O_NONBLOCK a pipe would wait for its writer.
    with os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("not a regular file")
        return file.read(most)


def _text(path: str, data: bytes) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise ConfigError(f"--file {path}: neither UTF-8 text nor an image, PDF or audio file by its name")
    return text
