"""The rules of the `Store` seam as a pytest suite."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from treadle.errors import NoSuchSessionError, StoreError
from treadle.events import Event, RunFinish, RunStart, StepFinish, TextDelta, ToolFinish
from treadle.messages import ModelRef, ToolResultPart, UserMessage
from treadle.usage import StopReason, Usage

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from pathlib import Path

    from treadle.sessions import Store, StoredEvent

_Result = TypeVar("_Result")
_UNSAFE = ("", "..", "../x", "a/b", ".hidden", "-x", "nul\0", "line\n", "ü", "x" * 129, None)


def _run(text: str = "Hello there.") -> list[Event]:
    start = RunStart(agent=None, model=ModelRef("example", "one"), input=(UserMessage(text),), run_id="run_1", seq=0)
    return [
        start,
        TextDelta("größer 🌍 \u2028\0", run_id="run_1", seq=1),
        StepFinish(index=0, usage=None, stop=StopReason.END, run_id="run_1", seq=2),
        RunFinish(usage=Usage(1, 2), steps=1, stop=StopReason.END, run_id="run_1", seq=3),
    ]


class StoreConformance:
    """Every rule that a `Store` must keep. Subclass it as `TestSomething` and write `store(directory)`.

    It gives a store on that place, and is called several times: stores on one place must see each other's sessions.
    The tests are plain functions, each with event loops of its own; no plugin for asyncio is needed.
    """

    seconds: float = 20.0

    def store(self, directory: Path, /) -> Store:
        """A store that keeps its sessions in `directory`, or in whatever is known under that name."""
        raise NotImplementedError(f"{type(self).__name__} needs a method store(self, directory) that gives a Store")

    def _do(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        return asyncio.run(asyncio.wait_for(work, self.seconds))

    def _read(self, store: Store, session: str = "one", after: int = -1) -> list[StoredEvent]:
        async def read() -> list[StoredEvent]:
            return [stored async for stored in store.read(session, after)]

        return self._do(read())

    def test_events_come_back_as_they_went_in_numbered_from_0(self, tmp_path: Path) -> None:
        store, events = self.store(tmp_path), _run()
        assert self._do(store.append("one", events[:1])) == 0
        assert self._do(store.append("one", events[1:], durable=True)) == 3
        stored = self._read(store)
        assert [one.event for one in stored] == events
        assert [one.seq for one in stored] == [0, 1, 2, 3]
        assert sorted(one.time for one in stored) == [one.time for one in stored]

    def test_another_store_on_the_same_place_goes_on_with_a_session(self, tmp_path: Path) -> None:
        self._do(self.store(tmp_path).append("one", _run()))
        other = self.store(tmp_path)
        assert self._do(other.append("one", _run("And?"))) == 7
        assert [one.event for one in self._read(self.store(tmp_path))] == [*_run(), *_run("And?")]

    def test_reading_may_begin_behind_any_event(self, tmp_path: Path) -> None:
        store = self.store(tmp_path)
        self._do(store.append("one", _run()))
        for after in range(-1, 5):
            assert [one.seq for one in self._read(store, after=after)] == list(range(after + 1, 4))

    def test_an_unknown_session_is_told(self, tmp_path: Path) -> None:
        store = self.store(tmp_path)
        with pytest.raises(NoSuchSessionError, match="nowhere"):
            self._read(store, "nowhere")
        with pytest.raises(NoSuchSessionError, match="nowhere"):
            self._do(store.fork("nowhere"))
        assert self._do(store.list()) == []

    @pytest.mark.parametrize("session", _UNSAFE)
    def test_an_unsafe_id_is_refused_in_one_line(self, tmp_path: Path, session: Any) -> None:
        store = self.store(tmp_path)
        self._do(store.append("one", _run()))

        async def claimed() -> None:
            async with store.claim(session):
                pass

        async def forked() -> None:
            await store.fork("one", new=session)

        async def appended() -> None:
            await store.append(session, _run())

        async def read() -> None:
            async for _ in store.read(session):
                pass

        for attempt in (appended, read, claimed, *([forked] if session else [])):
            with pytest.raises(StoreError) as refused:
                self._do(attempt())
            assert len(str(refused.value).splitlines()) == 1
        assert [info.id for info in self._do(store.list())] == ["one"]

    def test_text_that_is_no_unicode_is_mended(self, tmp_path: Path) -> None:
        store = self.store(tmp_path)
        self._do(store.append("one", [TextDelta("a\ud83dz")]))
        assert self._read(store)[0].event == TextDelta("a\ufffdz")

    def test_what_cannot_be_stored_leaves_nothing_behind(self, tmp_path: Path) -> None:
        store = self.store(tmp_path)
        self._do(store.append("one", _run()))
        result = ToolResultPart("call_1", "look", "x", raw={"value": object()})
        with pytest.raises(Exception):  # noqa: B017, PT011 - whatever it is, it is told
            self._do(store.append("one", [_run()[1], ToolFinish("call_1", 0, "look", result)]))
        assert self._do(store.append("one", _run("More"))) == 7
        assert [one.event for one in self._read(store)] == [*_run(), *_run("More")]

    def test_the_list_shows_each_session_and_the_latest_first(self, tmp_path: Path) -> None:
        store = self.store(tmp_path)
        for session in ("one", "two", "three"):
            self._do(store.append(session, _run(f"This is {session}.")))
        self._do(store.append("one", _run("Later.")))
        found = self._do(store.list())
        assert [(info.id, info.title, info.events) for info in found] == [
            ("one", "This is one.", 8),
            ("three", "This is three.", 4),
            ("two", "This is two.", 4),
        ]
        assert all(info.created <= info.updated and info.forked_from is None for info in found)

    @pytest.mark.parametrize("at", [None, 0, 1, 4])
    def test_a_fork_has_the_events_before_and_goes_its_own_way(self, tmp_path: Path, at: int | None) -> None:
        store, events = self.store(tmp_path), _run()
        self._do(store.append("one", events))
        assert self._do(store.fork("one", at, "two")) == "two"
        assert [one.event for one in self._read(store, "two")] == events[:at]
        assert self._do(store.append("two", _run("Elsewhere"))) == len(events[:at]) + 3
        assert [one.event for one in self._read(store)] == events
        assert [info.forked_from for info in self._do(store.list()) if info.id == "two"] == ["one"]

    def test_a_fork_gets_an_id_and_takes_none_that_is_there(self, tmp_path: Path) -> None:
        store = self.store(tmp_path)
        self._do(store.append("one", _run()))
        new = self._do(store.fork("one"))
        assert new != "one"
        assert [info.id for info in self._do(store.list())] == [new, "one"]
        assert len(self._read(store, new)) == 4
        for at, name in ((None, new), (None, "one"), (-1, "two"), (5, "two")):
            with pytest.raises(StoreError):
                self._do(store.fork("one", at, name))
        assert len(self._read(store)) == len(self._read(store, new)) == 4

    def test_one_at_a_time_may_add_to_a_session(self, tmp_path: Path) -> None:
        store, other = self.store(tmp_path), self.store(tmp_path)

        async def work() -> None:
            async with store.claim("one"), store.claim("two"):
                await store.append("one", _run())
                for rival in (store, other):
                    with pytest.raises(StoreError, match="one"):
                        async with rival.claim("one"):
                            pass
                with pytest.raises(StoreError, match="one"):
                    await other.append("one", _run())
                assert [info.id for info in await other.list()] == ["one"]
                assert len([stored async for stored in other.read("one")]) == 4
                assert await other.fork("one", 2, "three") == "three"

        self._do(work())
        assert self._do(other.append("one", _run())) == 7

    def test_a_claim_ends_with_a_failure_too_and_may_end_in_another_task(self, tmp_path: Path) -> None:
        store = self.store(tmp_path)

        async def work() -> None:
            with pytest.raises(ZeroDivisionError):
                async with store.claim("one"):
                    raise ZeroDivisionError
            claim = store.claim("one")
            await claim.__aenter__()
            await asyncio.create_task(_left(claim))
            async with store.claim("one"):
                await store.append("one", _run())

        self._do(work())
        assert len(self._read(store)) == 4


async def _left(claim: Any) -> None:
    await claim.__aexit__(None, None, None)
