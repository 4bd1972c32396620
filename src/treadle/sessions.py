"""Sessions: conversations over many runs, each an append-only log of events in a `Store`.

    result = await agent.run("...", store=store, session="monday")

What the next request of a session begins with is a fold over its log, like everything else.
"""

from __future__ import annotations

import os
import re
import time
from typing import TYPE_CHECKING, Protocol

import msgspec

from treadle.errors import NoSuchSessionError, StoreError
from treadle.events import Compaction, Event, PendingCall, RunFinish, RunStart, StepFinish
from treadle.messages import AssistantMessage
from treadle.transcript import Fold, compacted, repair
from treadle.usage import StopReason

if TYPE_CHECKING:
    import builtins
    from collections.abc import AsyncIterator, Iterable, Sequence
    from contextlib import AbstractAsyncContextManager

    from treadle.messages import Message

_SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class StoredEvent(msgspec.Struct, frozen=True):
    """An event with its place in its session. `seq` counts from 0; `time` is in Unix seconds."""

    seq: int
    time: float
    event: Event


class SessionInfo(msgspec.Struct, frozen=True):
    """What a list of sessions shows. Times are in Unix seconds, `events` is the `seq` that comes next.

    `title` is how the first user message begins, on one line and without control characters.
    """

    id: str
    created: float
    updated: float
    title: str
    events: int
    forked_from: str | None = None


class Store(Protocol):
    """Where sessions are kept. Every method raises `StoreError` for what it cannot do, and for an unsafe session id."""

    async def append(self, session: str, events: Sequence[Event], *, durable: bool = False) -> int:
        """Adds events, all or none, and returns the `seq` of the last one. An unknown session begins with them.

        Once it returns they outlive this process, and with `durable` also this machine's power. Refused while
        somebody else holds the claim.
        """
        ...

    def read(self, session: str, after: int = -1) -> AsyncIterator[StoredEvent]:
        """The events whose `seq` is greater than `after`, also while they are added to. See `NoSuchSessionError`."""
        ...

    async def list(self) -> builtins.list[SessionInfo]:
        """All sessions, the one that was made or added to last first."""
        ...

    async def fork(self, session: str, at: int | None = None, new: str | None = None) -> str:
        """Copies the events with a `seq` below `at`, or all, into a session `new`, which must not be there yet.

        Returns its id.
        """
        ...

    def claim(self, session: str) -> AbstractAsyncContextManager[None]:
        """The right to add to a session, for one holder at a time. Others are told who has it.

        It ends with the process that holds it. It may be left in another task than the one that entered it.
        """
        ...


class PausedRun(msgspec.Struct, frozen=True):
    """The run that a session waits in. `step` is the index of its step, `next_seq` the number of its next event."""

    run_id: str
    pending: tuple[PendingCall, ...]
    step: int
    next_seq: int


class SessionFold:
    """What a session's log tells, event by event, in time that grows with the log and not with its square."""

    def __init__(self, *, originals: bool = False) -> None:
        self._originals = originals  # summaries change nothing
        self._settled: list[Message] = []  # nothing that follows changes these
        self._latest: tuple[Message, ...] = ()  # behind them; from an answer on, unless they are all
        self._run: Fold | None = None
        self._run_id = ""
        self._step = 0
        self._compaction: Compaction | None = None
        self.paused: PausedRun | None = None

    def feed(self, event: Event) -> None:
        """Takes the next event of the log."""
        match event:
            case RunStart():
                self._begin(event)
                return
            case Compaction() if self._originals:
                pass
            case Compaction() if self._run is None or event.run_id != self._run_id:  # made between two runs
                self._latest = repair(compacted(self.messages(), event))
                self._settled, self.paused = [], None
            case Compaction():
                self._compaction = event
            case RunFinish() if event.stop is StopReason.PAUSED:
                self.paused = PausedRun(event.run_id, event.pending, self._step, event.seq + 1)
            case StepFinish():
                self._step = event.index
        if self._run is not None:
            self._run.feed(event)

    def _begin(self, event: RunStart) -> None:
        self._end()
        if event.history:
            self._settled, self._latest = [], event.history
        if not event.resumed:
            start = _last_answer(self._latest)
            self._settled += repair(self._latest[:start])
            self._latest = repair((*self._latest[start:], *event.input))
        self._run, self._run_id = Fold(), event.run_id
        self._compaction = self.paused = None
        self._run.feed(msgspec.structs.replace(event, history=self._latest, input=()))

    def _end(self) -> None:
        if self._run is None:
            return
        self._latest, self._run = self._run.finish(), None
        if self._compaction is not None:
            self._latest, self._settled = compacted((*self._settled, *self._latest), self._compaction), []
        if self.paused is None:
            self._latest = repair(self._latest)

    def messages(self) -> tuple[Message, ...]:
        """The conversation so far, as the next run begins with it. A paused run's calls are open in it."""
        self._end()
        return (*self._settled, *self._latest)


def _last_answer(messages: Sequence[Message]) -> int:
    """Where the last answer stands, from which on results may still be paired; 0 where there is none."""
    places = range(len(messages) - 1, -1, -1)
    return next((place for place in places if isinstance(messages[place], AssistantMessage)), 0)


def conversation(events: Iterable[Event], *, originals: bool = False) -> tuple[Message, ...]:
    """What the next request of a session begins with, from its log or from any beginning of it.

    Summaries stand for what was compacted; with `originals` all that was said is there in their place. Calls that were
    never answered have error results, unless the last run paused on them: then they are open, as `Agent.resume` takes
    them.
    """
    fold = SessionFold(originals=originals)
    for event in events:
        fold.feed(event)
    return fold.messages()


async def load(store: Store, session: str, *, originals: bool = False) -> tuple[Message, ...]:
    """The `conversation` of a stored session. Raises `NoSuchSessionError` for one that is not there."""
    return (await read_session(store, session, originals=originals)).messages()


async def paused(store: Store, session: str) -> PausedRun | None:
    """The run in which a stored session waits for decisions, as `Agent.resume(store=, session=)` goes on with it."""
    return (await read_session(store, session)).paused


async def read_session(store: Store, session: str, *, originals: bool = False) -> SessionFold:
    """All that a session tells."""
    fold = SessionFold(originals=originals)
    async for stored in store.read(session):
        fold.feed(stored.event)
    return fold


def new_session_id() -> str:
    """An id for a new session, which sorts by time: `20260131-094500-3f9a1c`."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(3).hex()}"


def check_session_id(session: str) -> str:
    """The id, which is also a safe file name. Raises `StoreError` for any other."""
    if not isinstance(session, str) or not _SESSION_ID.fullmatch(session):
        raise StoreError(
            f"a session id is 1 to 128 letters, digits, '.', '_' or '-' and begins with a letter or digit, "
            f"and this one is {session!r:.80}"
        )
    return session


__all__ = [
    "NoSuchSessionError",
    "PausedRun",
    "SessionInfo",
    "Store",
    "StoreError",
    "StoredEvent",
    "check_session_id",
    "conversation",
    "load",
    "new_session_id",
    "paused",
]
