"""Which encoding a file is in, so that it can be shown and written back without changing a byte that was not meant."""

from __future__ import annotations

import codecs
from typing import NamedTuple

HEAD_BYTES = 8192
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # begins like the mark of UTF-16
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


class Encoding(NamedTuple):
    """A codec and the mark in front. `latin-1` stands for every other encoding of a byte for a character."""

    codec: str
    mark: bytes = b""

    @property
    def known(self) -> bool:
        return self.codec != "latin-1"

    def decode(self, data: bytes) -> str:
        """The text of a whole file, without its mark. Raises `UnicodeError` if that could not be written back."""
        body = data[len(self.mark) :]
        text = body.decode(self.codec)
        if text.encode(self.codec) != body:
            raise UnicodeError("the bytes cannot be kept")
        return text

    def encode(self, text: str) -> bytes:
        """The file again. Raises `UnicodeError` for what the encoding does not have."""
        return self.mark + text.encode(self.codec)


def encoding_of(head: bytes) -> Encoding | None:
    """The encoding that the beginning of a file tells of; None for a binary file."""
    for mark, codec in _MARKS:
        if head.startswith(mark):
            return Encoding(codec, mark)
    if b"\0" in head:
        return None
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head, final=len(head) < HEAD_BYTES)
    except UnicodeDecodeError:
        return Encoding("latin-1")
    return Encoding("utf-8")


def encoding_of_all(data: bytes) -> Encoding | None:
    """`encoding_of` a whole file: what is no UTF-8 anywhere is not taken for UTF-8."""
    encoding = encoding_of(data[:HEAD_BYTES])
    if encoding == Encoding("utf-8"):
        try:
            data.decode()
        except UnicodeDecodeError:
            return Encoding("latin-1")
    return encoding


_IMAGES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


def image_type(head: bytes) -> str | None:
    """The media type of an image that models can see."""
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return next((media_type for magic, media_type in _IMAGES if head.startswith(magic)), None)


def is_whole_image(data: bytes, media_type: str) -> bool:
    """Whether an image has its end. Providers refuse a whole request for one that has not."""
    if media_type == "image/png":
        return b"IEND" in data
    if media_type == "image/jpeg":
        return b"\xff\xd9" in data
    if media_type == "image/gif":
        return data.rstrip(b"\0").endswith(b";")
    return len(data) >= 8 + int.from_bytes(data[4:8], "little")
