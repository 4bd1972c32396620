"""Bytes of the web as text: which kind of document they are, and in which character set."""

from __future__ import annotations

import codecs
import json
import re

from treadle.errors import ToolError

_HTML = ("text/html", "application/xhtml+xml")
_MAGIC = (
    (b"%PDF-", "a PDF document"),
    (b"\x89PNG\r\n", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"PK\x03\x04", "a ZIP archive or an Office document"),
    (b"\x1f\x8b\x08", "a gzip archive"),
)
_NO_TEXT = {"image": "an image", "audio": "a sound file", "video": "a video", "font": "a font"}
_TEXT = re.compile(r"text/.*|.*[+/](?:json|xml|yaml|x-yaml|toml|javascript|x-javascript|ndjson|x-ndjson)")
_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # begins like UTF-16's
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# Names on the web mean more than the same names elsewhere (WHATWG Encoding Standard, 2025), and fewer are known:
# Python's UTF-7, punycode or unicode_escape are no character sets of pages.
_MEANT = {
    "ascii": "cp1252", "iso8859-1": "cp1252", "iso8859-9": "cp1254", "iso8859-11": "cp874", "tis-620": "cp874",
    "shift_jis": "cp932", "gb2312": "gb18030", "gbk": "gb18030", "euc_kr": "cp949", "big5": "big5hkscs",
}  # fmt: skip
_KNOWN = re.compile(
    r"utf-8|utf-16(-[lb]e)?|utf-32(-[lb]e)?|cp125\d|cp(874|866|932|949)|iso8859-\d+|koi8-[ru]|mac-(roman|cyrillic)"
    r"|gb18030|big5hkscs|euc_jp|iso2022_jp"
)
_META = re.compile(rb"<meta\s[^>]*?charset\s*=\s*[\"']?\s*([\w.:+-]+)", re.IGNORECASE)
_XML = re.compile(rb"\s*<\?xml\s[^>]*?encoding\s*=\s*[\"']([\w.:+-]+)")
_PROLOGUE = 8192  # where a page has to say its character set; a browser looks at 1024 bytes


def media_type(content_type: str) -> str:
    """The media type alone, in small letters."""
    return content_type.partition(";")[0].strip().lower()


def read_document(data: bytes, content_type: str) -> tuple[str, bool]:
    """The text of `data`, and whether that is HTML. Raises `ToolError` with its kind for what is no text.

    The character set is the byte order mark's, else the header's, else the one that the document names, else UTF-8.
    """
    media = media_type(content_type)
    if (refused := _binary(data, media)) is not None:
        raise ToolError(f"this is {refused}, which cannot be read as text")
    encoding, sure = _encoding(data, content_type, media)
    wide = encoding.startswith(("utf-16", "utf-32"))
    if (not wide and b"\0" in data[:_PROLOGUE]) or not (sure or _TEXT.fullmatch(media) or _is_utf8(data)):
        raise ToolError(f"this is binary data ({media or 'of no stated type'}), which cannot be read as text")
    text = data.decode(encoding, "replace").removeprefix("\ufeff")
    return text, media in _HTML or (not _TEXT.fullmatch(media) and _looks_like_html(text))


def _binary(data: bytes, media: str) -> str | None:
    for magic, name in _MAGIC:
        if data[:_PROLOGUE].lstrip().startswith(magic):
            return name
    if media == "application/pdf":
        return "a PDF document"
    kind = _NO_TEXT.get(media.partition("/")[0])
    return None if kind is None or media.endswith("+xml") else f"{kind} ({media})"


def _encoding(data: bytes, content_type: str, media: str) -> tuple[str, bool]:
    """The character set, and whether somebody named it."""
    for mark, encoding in _BOMS:
        if data.startswith(mark):
            return encoding, True
    declared = re.search(r"charset\s*=\s*[\"']?([\w.:+-]+)", content_type, re.IGNORECASE)
    for label in (declared[1] if declared else "", _label_inside(data, media)):
        if encoding := _codec(label):
            return encoding, True
    if media.endswith(("/json", "+json")):  # its first two characters tell UTF-16 and UTF-32
        return json.detect_encoding(data), False
    return "utf-8", False


def _label_inside(data: bytes, media: str) -> str:
    beginning = data[:_PROLOGUE]
    found = _XML.match(beginning)
    if found is None and media in (*_HTML, ""):
        found = _META.search(re.sub(rb"<!--.*?-->", b"", beginning, flags=re.DOTALL))
    label = "" if found is None else found[1].decode("ascii", "replace")
    return "utf-8" if label.lower().startswith("utf-16") else label  # it could not have been read otherwise


def _codec(label: str) -> str:
    """Python's codec for a label of the web, or nothing for one that is unknown."""
    for name in (label, label.lower().removeprefix("x-")):
        try:
            codec = codecs.lookup(name).name if 0 < len(name) <= 40 else ""
        except LookupError:
            continue
        codec = _MEANT.get(codec, codec)
        if _KNOWN.fullmatch(codec):
            return codec
    return ""


def _is_utf8(data: bytes) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data)  # a cut may lie inside a character
    except UnicodeDecodeError:
        return False
    return True


def _looks_like_html(text: str) -> bool:
    return text[:1024].lstrip().lower().startswith(("<!doctype html", "<html"))
