"""Bytes of the web as text: character sets, and what is no text."""

from __future__ import annotations

import pytest

from treadle import ToolError
from treadle.toolkit._documents import read_document

HTML = "<html><head>{}</head><body>{}</body></html>"


def text_of(data: bytes, content_type: str) -> str:
    return read_document(data, content_type)[0]


# Character sets


@pytest.mark.parametrize(
    ("encoding", "content_type", "word"),
    [
        ("gbk", "text/html; charset=gbk", "汉字"),
        ("gb18030", "text/html; charset=GB2312", "汉字"),
        ("cp932", 'text/plain; charset="shift_jis"', "日本語①"),
        ("cp932", "text/plain; charset=x-sjis", "日本語①"),
        ("cp949", "text/plain; charset=euc-kr", "한국어"),
        ("euc_jp", "text/plain; charset=EUC-JP", "日本語"),
        ("iso2022_jp", "text/plain; charset=iso-2022-jp", "日本語"),
        ("big5", "text/plain; charset=big5", "漢字"),
        ("koi8-r", "text/plain; charset=koi8-r", "Привет"),
        ("cp1251", "text/html;charset=windows-1251", "Привет"),
        ("cp1252", "text/html; charset=iso-8859-1", "“quoted” – €"),
        ("cp1252", "text/plain; charset=us-ascii", "café"),
        ("utf-16-le", "text/plain; charset=utf-16", "wide"),
        ("utf-16-be", "application/json; charset=utf-16be", '{"a": "é"}'),
        ("utf-8", "text/plain; charset=no-such-thing", "é"),
        ("utf-8", "text/plain; charset=utf-7", "+AGE- é"),
        ("utf-8", "text/plain; charset=unicode_escape", "\\x41 é"),
        ("utf-8", "text/plain; charset=rot13", "é"),
        ("utf-8", "text/plain; charset=", "é"),
        ("utf-8", f"text/plain; charset={'x' * 5000}", "é"),
        ("utf-8", "text/plain", "é"),
        ("utf-16-le", "application/json", '{"a": "é"}'),
        ("utf-32-be", "application/ld+json", '{"a": "é"}'),
    ],
)
def test_the_header_names_the_character_set_where_it_is_a_known_one(encoding: str, content_type: str, word: str):
    assert text_of(word.encode(encoding), content_type) == word


@pytest.mark.parametrize(
    ("encoding", "meta"),
    [
        ("shift_jis", '<meta charset="shift_jis">'),
        ("shift_jis", '<META http-equiv="Content-Type" content="text/html; charset=Shift_JIS">'),
        ("euc_jp", "<!-- <meta charset=utf-8> --><meta name=x><meta charset=euc-jp>"),
        ("utf-8", "<meta charset=utf-16>"),
        ("utf-8", "<meta charset=nonsense>"),
        ("utf-8", ""),
    ],
)
def test_without_a_header_the_page_itself_names_it(encoding: str, meta: str):
    page = HTML.format(meta, "日本語")
    assert text_of(page.encode(encoding), "text/html") == page


def test_an_xml_declaration_names_it_too():
    page = '<?xml version="1.0" encoding="windows-1251"?><p>Привет</p>'
    assert text_of(page.encode("cp1251"), "application/xml") == page


def test_the_header_wins_over_the_page_and_a_byte_order_mark_over_both():
    page = HTML.format("<meta charset=koi8-r>", "é")
    assert "é" in text_of(page.encode("cp1252"), "text/html; charset=windows-1252")
    for encoding in ("utf-8-sig", "utf-16", "utf-32"):
        assert text_of(page.encode(encoding), "text/html; charset=koi8-r") == page


def test_bytes_that_do_not_fit_the_character_set_are_replaced():
    assert text_of(b"caf\xe9 ok", "text/plain; charset=utf-8") == "caf\ufffd ok"
    assert text_of(b"caf\xe9 ok", "text/html") == "caf\ufffd ok"


# Kinds


@pytest.mark.parametrize(
    ("data", "content_type", "kind"),
    [
        (b"%PDF-1.7 ...", "application/pdf", "a PDF document"),
        (b"\n%PDF-1.7 ...", "text/html", "a PDF document"),
        (b"broken", "application/pdf", "a PDF document"),
        (b"\x89PNG\r\n\x1a\n", "text/html; charset=utf-8", "a PNG image"),
        (b"\xff\xd8\xff\xe0", "", "a JPEG image"),
        (b"GIF89a", "text/plain", "a GIF image"),
        (b"PK\x03\x04", "application/vnd.openxmlformats", "a ZIP archive or an Office document"),
        (b"\x1f\x8b\x08", "application/octet-stream", "a gzip archive"),
        (b"????", "image/webp", r"an image \(image/webp\)"),
        (b"ID3", "audio/mpeg", r"a sound file \(audio/mpeg\)"),
        (b"....", "video/mp4", r"a video \(video/mp4\)"),
        (b"wOF2", "font/woff2", r"a font \(font/woff2\)"),
        (b"\x7fELF\0\0", "text/plain", r"binary data \(text/plain\)"),
        (b"a\0b", "", "binary data .of no stated type"),
        (b"\xde\xad\xbe\xef", "application/octet-stream", r"binary data \(application/octet-stream\)"),
    ],
)
def test_what_is_no_text_is_declined_by_its_name(data: bytes, content_type: str, kind: str):
    with pytest.raises(ToolError, match=f"this is {kind}"):
        read_document(data, content_type)


@pytest.mark.parametrize(
    ("data", "content_type", "is_html"),
    [
        (b"<p>x", "text/html; charset=utf-8", True),
        (b"<p>x", "Application/XHTML+XML", True),
        (b"  <!DOCTYPE html><p>x", "", True),
        (b"<html>", "application/octet-stream", True),
        (b"<!doctype html>", "text/plain", False),
        (b"# Title", "text/markdown", False),
        (b"{}", "application/problem+json", False),
        (b"<svg/>", "image/svg+xml", False),
        (b"key: value", "application/x-something", False),
        ("é".encode()[:1], "text/plain", False),
        ("wort é".encode()[:-1], "application/octet-stream", False),
        (b"", "", False),
    ],
)
def test_text_is_read_and_html_is_told_from_the_rest(data: bytes, content_type: str, is_html: bool):
    assert read_document(data, content_type)[1] is is_html
