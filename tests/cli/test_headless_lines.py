"""Lines of standard input: whole, bounded, and read without holding up the loop."""

from __future__ import annotations

import asyncio
import os
import threading

import pytest

from treadle.cli.lines import MAX_LINE_BYTES, lines


class Pipe:
    """A stream, and what is written into it from another thread."""

    def __init__(self, *pieces: bytes) -> None:
        self._read, self._write = os.pipe()
        self._thread = threading.Thread(target=self._fill, args=(pieces,))
        self._thread.start()

    def _fill(self, pieces: tuple[bytes, ...]) -> None:
        for piece in pieces:
            view = memoryview(piece)
            while view:
                view = view[os.write(self._write, view) :]
        os.close(self._write)

    def fileno(self) -> int:
        return self._read

    def close(self) -> None:
        self._thread.join(60)
        os.close(self._read)


async def read(*pieces: bytes) -> list[bytes | None]:
    pipe = Pipe(*pieces)
    try:
        async with asyncio.timeout(60):
            return [line async for line in lines(pipe)]
    finally:
        pipe.close()


@pytest.mark.parametrize(
    ("pieces", "found"),
    [
        ((), []),
        ((b"one\ntwo\n",), [b"one", b"two"]),
        ((b"on", b"e\nt", b"wo"), [b"one", b"two"]),
        ((b"\n\n", b"x"), [b"", b"", b"x"]),
        ((b"a" * 200_000 + b"\nb\n",), [b"a" * 200_000, b"b"]),
        ((b"x\n" * 1000,), [b"x"] * 1000),
    ],
)
async def test_every_line_comes_whole_and_in_order(pieces, found):
    assert await read(*pieces) == found


async def test_a_line_that_is_too_long_is_told_and_costs_no_other():
    found = await read(b"a\n", b"x" * (MAX_LINE_BYTES + 1), b"\nb\n", b"y" * MAX_LINE_BYTES, b"\n")
    assert found[:3] == [b"a", None, b"b"] and found[3:] == [b"y" * MAX_LINE_BYTES]


async def test_a_pipe_that_does_not_wait_is_waited_for():
    first, second = os.pipe()
    os.set_blocking(first, False)
    stream = type("Stream", (), {"fileno": lambda self: first})()
    found = aiter(lines(stream))
    asked = asyncio.ensure_future(anext(found))
    await asyncio.sleep(0)
    os.write(second, b"late\n")
    assert await asyncio.wait_for(asked, 60) == b"late"
    os.close(second)
    assert [line async for line in found] == []
    os.close(first)


async def test_no_standard_input_is_its_end():
    assert [line async for line in lines(None)] == []
