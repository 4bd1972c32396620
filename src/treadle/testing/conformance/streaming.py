"""Streams as networks bring them: in any pieces, slowly, left in the middle, a thousand at once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
import sys
from typing import TYPE_CHECKING

import pytest

from treadle.events import TextDelta
from treadle.messages import ReasoningPart, ToolCallPart
from treadle.testing.conformance.answers import Answer
from treadle.testing.conformance.looking import whole
from treadle.testing.conformance.server import STALL, Reply, Seen
from treadle.testing.conformance.suite import ADD, HELLO, LOOK, STREAMS_VARIABLE, Suite, collect, leave
from treadle.usage import StopReason, Usage

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator
    from typing import Any

    from treadle.model import Model
    from treadle.testing.conformance.server import Server

_WORDS = Answer(tuple(f"word{number} " for number in range(24)))
_SIZES = tuple(random.Random(7).choices(range(1, 40), k=97))  # noqa: S311 - the same in every run
_SPLITS = {"1": (1,), "3": (3,), "7": (7,), "random": _SIZES}
_BYTES_PER_STREAM = 300_000  # both sides of a stream together; a client of its own for each takes more than a megabyte
_SPARE_FILES = 100
_BEGIN_AT_ONCE = 50  # so that both sides on one slow processor keep up with the limits for connecting


class StreamTests(Suite):
    """The tests of how an answer arrives."""

    @pytest.mark.parametrize("sizes", _SPLITS.values(), ids=list(_SPLITS))
    def test_an_answer_is_the_same_in_whatever_pieces_it_comes(self, sizes: tuple[int, ...]) -> None:
        capabilities = self.needs("wire")
        pieces: list[Any] = ["Größer ", "als 🌍 – ", "naïve\u2028é"]
        if capabilities.reasoning:
            pieces.insert(0, ReasoningPart("Ich überlege: 🤔", "c2lnbmF0dXJl"))
        if capabilities.tools:
            pieces.append(ToolCallPart("call00001", "look", '{"q": "日本語 ☕"}'))
        answer = Answer(tuple(pieces), StopReason.TOOL_CALLS if capabilities.tools else StopReason.END)
        request = self.request(tools=(ADD, LOOK)) if capabilities.tools else self.request()
        reply = self.said(answer)
        if self.has("raw_utf8"):
            assert "🌍".encode() in reply.data, "wire() writes text as UTF-8, so that characters can be split"
        at_once = self.finish(request=request, replies=[reply.sending(reply.data)])
        in_pieces = self.finish(request=request, replies=[reply.in_pieces(sizes)])
        assert at_once.message.text == "Größer als 🌍 – naïve\u2028é"
        assert in_pieces == at_once, "the pieces in which the bytes come change nothing"

    def test_text_is_told_before_the_answer_is_whole(self) -> None:
        self.needs("wire", "streaming")
        going_on = asyncio.Event()
        reply = self.said(_WORDS)
        half = len(reply.events) // 2

        async def scene(_: Server, model: Model) -> None:
            events = []
            async for event in model.stream(self.request()):
                events.append(event)
                if isinstance(event, TextDelta):
                    going_on.set()
            assert whole(events).message.text == _WORDS.text

        self.play(scene, replies=[reply.sending(*reply.events[:half], going_on, *reply.events[half:])])

    def test_a_slow_answer_may_take_longer_than_a_silence_may(self) -> None:
        self.needs("wire", "idle_timeout")
        reply = self.said(Answer(("One ", "two ", "three.")))
        head, tail = reply.events[:-4], reply.events[-4:]
        body = [part for event in tail for part in (event, 0.25)]
        finish = self.finish(replies=[reply.sending(*head, *body)], idle_timeout_seconds=0.8)
        assert finish.message.text == "One two three."

    def test_leaving_early_closes_the_connection(self) -> None:
        self.needs("wire", "streaming")

        async def scene(server: Server, model: Model) -> None:
            stream = aiter(model.stream(self.request()))
            await anext(stream)
            await leave(stream)
            await server.left.wait()

        self._stalled(scene)

    def test_a_cancel_in_the_middle_closes_the_connection(self) -> None:
        self.needs("wire", "streaming")

        async def scene(server: Server, model: Model) -> None:
            reading = asyncio.Event()

            async def read() -> None:
                async for _ in model.stream(self.request()):
                    reading.set()

            await _cancelled(asyncio.ensure_future(read()), reading)
            await server.left.wait()
            whole(await collect(model, self.request()))

        self._stalled(scene)

    def test_a_cancel_before_the_answer_closes_the_connection(self) -> None:
        self.needs("wire")
        asked = asyncio.Event()

        def answer(_: Seen) -> Reply:
            asked.set()
            return Reply((STALL,), head=False)

        async def scene(server: Server, model: Model) -> None:
            await _cancelled(asyncio.ensure_future(collect(model, self.request())), asked)
            await server.left.wait()

        self.play(scene, replies=answer)

    def test_connections_do_not_pile_up(self) -> None:
        self.needs("wire")
        hello = self.said(HELLO)

        async def scene(server: Server, model: Model) -> None:
            for _ in range(5):
                whole(await collect(model, self.request()))
            await server.until_open(1)

        self.play(scene, replies=[hello])

    def test_many_streams_at_once_stay_apart(self) -> None:
        """All are open at the same time, on one model."""
        self.needs("wire")
        count = min(self.streams, int(os.environ.get(STREAMS_VARIABLE) or self.streams))
        came: list[Seen] = []
        all_there = asyncio.Event()
        memory: list[int] = []

        def answer(seen: Seen) -> Reply:
            came.append(seen)
            if len(came) == count:
                memory.append(_resident_bytes())
                all_there.set()
            found = re.search(rb"marker-(\d+)-", seen.body)
            assert found, "the words of the user are not in the request"
            number = int(found[1])
            reply = self.wire(Answer((f"number {number}, ", "größer ", f"and {number} again"), usage=Usage(number, 1)))
            return reply.sending(all_there, *reply.events)

        async def ask(model: Model, number: int) -> None:
            finish = whole(await collect(model, self.request(f"marker-{number}-")))
            assert finish.message.text == f"number {number}, größer and {number} again", "streams got mixed up"
            assert finish.usage is None or finish.usage.input_tokens == number or not self.has("usage")

        async def scene(server: Server, model: Model) -> None:
            asking: list[asyncio.Task[None]] = []
            for number in range(count):
                asking.append(asyncio.ensure_future(ask(model, number)))
                if len(asking) % _BEGIN_AT_ONCE == 0:
                    await _first_of(server.until_asked(len(asking)), asking)
            await asyncio.gather(*asking)

        with _open_files(2 * count + _SPARE_FILES):
            before = _resident_bytes()
            self.play(scene, replies=answer, seconds=4 * self.seconds)
        used = (memory[0] - before) // count
        assert used < _BYTES_PER_STREAM, f"each open stream takes {used} bytes"

    def _stalled(self, scene: Any) -> None:
        """Runs a scene with an answer that stalls half way; the next answers are whole."""
        reply = self.said(_WORDS)
        half = reply.events[: len(reply.events) // 2]
        self.play(scene, replies=[reply.sending(*half, STALL), reply])


async def _first_of(waits: Coroutine[Any, Any, None], tasks: list[asyncio.Task[None]]) -> None:
    """Waits, unless one of the tasks ends before: then it failed, and whoever gathers them will see that."""
    waiting = asyncio.ensure_future(waits)
    await asyncio.wait({waiting, *tasks}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()


async def _cancelled(task: asyncio.Task[Any], when: asyncio.Event) -> None:
    """Cancels a task as soon as `when` comes."""
    waiting = asyncio.ensure_future(when.wait())
    await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled(), f"a cancelled request is cancelled, and not {task!r:.300}"


def _resident_bytes() -> int:
    """The memory of this process; 0 where the system does not tell."""
    with contextlib.suppress(OSError), open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - no path
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


@contextlib.contextmanager
def _open_files(count: int) -> Iterator[None]:
    """Allows so many open files, or skips the test where the system does not."""
    if sys.platform == "win32":
        yield
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if resource.RLIM_INFINITY != hard < count:
        pytest.skip(f"{count} open files are needed and {hard} allowed: see ulimit -n, or set `streams`")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
