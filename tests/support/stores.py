"""A store in memory, which fails or waits where a test says so."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from typing import TYPE_CHECKING

from treadle.errors import NoSuchSessionError, StoreError
from treadle.events import RunStart
from treadle.messages import clean
from treadle.sessions import SessionInfo, StoredEvent, check_session_id, new_session_id

if TYPE_CHECKING:
    import builtins
    from collections.abc import AsyncIterator, Sequence

    from treadle.events import Event


class MemoryStore:
    """Sees the sessions of its twin. `fails_at` counts appends, from 0. `gate`, once set to an event, holds every append until it is set."""

    def __init__(self, twin: MemoryStore | None = None) -> None:
        self.sessions: dict[str, list[StoredEvent]] = {} if twin is None else twin.sessions
        self.origins: dict[str, tuple[str, float]] = {} if twin is None else twin.origins
        self.claimed: dict[str, MemoryStore] = {} if twin is None else twin.claimed
        self.durable: list[int] = []  # the `seq` behind each durable append
        self.appends = itertools.count()
        self.fails_at: int | None = None
        self.gate: asyncio.Event | None = None
        self.waiting = asyncio.Event()

    def events(self, session: str) -> list[Event]:
        return [stored.event for stored in self.sessions[session]]

    async def append(self, session: str, events: Sequence[Event], *, durable: bool = False) -> int:
        if self.gate is not None:
            self.waiting.set()
            await self.gate.wait()
        if self.fails_at is not None and next(self.appends) >= self.fails_at:
            raise StoreError("no room is left")
        if self.claimed.get(check_session_id(session), self) is not self:
            raise StoreError(f"session {session!r} is in use")
        log = self.sessions.setdefault(session, [])
        log += [StoredEvent(seq, time.time(), clean(event)) for seq, event in enumerate(events, len(log))]
        if durable:
            self.durable.append(len(log) - 1)
        return len(log) - 1

    async def read(self, session: str, after: int = -1) -> AsyncIterator[StoredEvent]:
        if check_session_id(session) not in self.sessions:
            raise NoSuchSessionError(f"there is no session {session!r}")
        for stored in list(self.sessions[session]):
            if stored.seq > after:
                yield stored

    async def list(self) -> builtins.list[SessionInfo]:
        found = [
            SessionInfo(
                session,
                self.origins[session][1] if session in self.origins else log[0].time,
                max(log[-1].time if log else 0.0, self.origins.get(session, ("", 0.0))[1]),
                next((one.event.input[0].content[0].text for one in log if isinstance(one.event, RunStart)), ""),
                len(log),
                self.origins[session][0] if session in self.origins else None,
            )
            for session, log in self.sessions.items()
        ]
        return sorted(found, key=lambda info: info.updated, reverse=True)

    async def fork(self, session: str, at: int | None = None, new: str | None = None) -> str:
        new = check_session_id(new or new_session_id())
        log = [stored async for stored in self.read(session)]
        if new in self.sessions or (at is not None and not 0 <= at <= len(log)):
            raise StoreError(f"{session!r} cannot be forked at {at} into {new!r}")
        self.sessions[new] = log[:at]
        self.origins[new] = session, time.time()
        return new

    @contextlib.asynccontextmanager
    async def claim(self, session: str) -> AsyncIterator[None]:
        if check_session_id(session) in self.claimed:
            raise StoreError(f"session {session!r} is in use")
        self.claimed[session] = self
        try:
            yield
        finally:
            del self.claimed[session]
