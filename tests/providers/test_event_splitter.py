"""Bytes to events, by the rules of the event stream format."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.providers._event_stream import EventSplitter


def split(body: bytes, *sizes: int) -> list[tuple[bytes, bytes]]:
    """The events of a body that comes in pieces of these sizes, over and over."""
    splitter, events, at, turn = EventSplitter(), [], 0, 0
    while at < len(body):
        size = (sizes or (len(body),))[turn % max(len(sizes), 1)]
        events += splitter.feed(body[at : at + size])
        at, turn = at + size, turn + 1
    return [*events, *splitter.finish()]


@pytest.mark.parametrize(
    ("body", "events"),
    [
        (b"data: a\n\n", [(b"", b"a")]),
        (b"data:a\n\ndata:  b\n\n", [(b"", b"a"), (b"", b" b")]),
        (b"event: ping\ndata: {}\n\n", [(b"ping", b"{}")]),
        (b"data: {}\nevent:ping\n\n", [(b"ping", b"{}")]),
        (b"data: a\ndata: b\n\n", [(b"", b"a\nb")]),
        (b"data: a\r\n\r\ndata: b\r\r", [(b"", b"a"), (b"", b"b")]),
        (b"data: a\r\n\ndata: b\n\r\n", [(b"", b"a"), (b"", b"b")]),
        (b": hello\n\n:\n\ndata: a\n: in between\nid: 4\nretry: 10\nother\n\n", [(b"", b"a")]),
        (b"\xef\xbb\xbfdata: a\n\n", [(b"", b"a")]),
        (b"data:\n\ndata: \n\nevent: x\n\n", []),
        (b"\n\n\n\ndata: a\n\n\n\n\n", [(b"", b"a")]),
        (b"data: a", [(b"", b"a")]),
        (b"data: a\n\nevent: last\ndata: b\n", [(b"", b"a"), (b"last", b"b")]),
        ("data: é\u2028\x85x\n\n".encode(), [(b"", "é\u2028\x85x".encode())]),
        (b"data: a: b\n\n", [(b"", b"a: b")]),
        (b"", []),
    ],
)
def test_events_are_found_however_they_are_cut(body: bytes, events: list[tuple[bytes, bytes]]) -> None:
    assert split(body) == events
    for size in range(1, 9):
        assert split(body, size) == events


@given(
    st.lists(
        st.sampled_from([b"data: x", b"data:", b": c", b"event: e", b"\n", b"\r", b"\r\n", b"\n\n", b"z"]), max_size=20
    ),
    st.lists(st.integers(1, 5), min_size=1, max_size=5),
)
def test_any_cut_gives_the_same_events(pieces: list[bytes], sizes: list[int]) -> None:
    body = b"".join(pieces)
    assert split(body, *sizes) == split(body)


def test_an_event_is_told_as_soon_as_its_blank_line_is_there() -> None:
    splitter = EventSplitter()
    assert splitter.feed(b"data: a\r\n\r") == [(b"", b"a")]
    assert splitter.feed(b"\ndata: b\n\n") == [(b"", b"b")]


def test_a_long_event_in_small_pieces_takes_time_in_proportion() -> None:
    splitter = EventSplitter()
    for _ in range(200_000):
        assert splitter.feed(b"data: xxxxxxxxxxxxxxxx"[:16]) == []
    assert len(splitter.feed(b"\n\n")[0][1]) > 3_000_000
