"""A run that is part of a session: its history comes from the store, its events go there before anybody sees them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from typing import TYPE_CHECKING, Any

import msgspec

from treadle._threads import to_its_end
from treadle.errors import NoSuchSessionError, RunError, StoreError, text_of
from treadle.events import (
    ModelFinish,
    ModelRetry,
    ReasoningDelta,
    RunFinish,
    StepFinish,
    SubagentEvent,
    TextDelta,
    ToolCallDelta,
)
from treadle.result import RunResult
from treadle.sessions import SessionFold, read_session
from treadle.usage import StopReason, Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from treadle._input import Input
    from treadle.events import Event, PendingCall
    from treadle.loop import Loop
    from treadle.messages import Message
    from treadle.sessions import Store


class SessionLoop:
    """A `Loop` that is made once its session is claimed and read, and that `Run` drives like any other.

    Its claim lasts from the first pull until the closing events are stored. What cannot be stored ends the run.
    """

    def __init__(self, run_id: str, store: Store, session: str, make: Callable[[SessionFold], Loop]) -> None:
        self._run_id = run_id
        self._store = store
        self._session = session
        self._make = make
        self._loop: Loop | None = None
        self._claim = contextlib.AsyncExitStack()
        self._filter = DeltaFilter()
        self._early: list[Input] = []  # steered before there is a loop
        self._idle = asyncio.Event()
        self._idle.set()
        self._closing = False
        self._settled = False
        self._failure: Exception | None = None
        self.pulled_by: asyncio.Task[Any] | None = None
        self.done: asyncio.Event = asyncio.Event()

    # What `Run` looks at

    @property
    def run_id(self) -> str:
        """Empty for a run that is resumed, until it has begun."""
        return self._run_id if self._loop is None else self._loop.run_id

    @property
    def error(self) -> Exception | None:
        """What the run raises: that its session could not be claimed, read or written goes first."""
        return self._failure or (None if self._loop is None else self._loop.error)

    @property
    def stop(self) -> StopReason | None:
        """Why the run ended."""
        return None if self._loop is None else self._loop.stop

    @property
    def limit(self) -> str | None:
        """The name of the limit that stopped the run."""
        return None if self._loop is None else self._loop.limit

    @property
    def pending(self) -> tuple[PendingCall, ...]:
        """The calls that wait for decisions."""
        return () if self._loop is None else self._loop.pending

    @property
    def steering(self) -> list[Message]:
        """What is to be sent with the next step."""
        return [] if self._loop is None else self._loop.steering

    def steer(self, given: Input) -> None:
        """Adds to the conversation before the next step; checked at the first pull where that is still to come."""
        if self._loop is None:
            self._early.append(given)
        else:
            self._loop.steer(given)

    def result(self) -> RunResult[Any]:
        """What there is of the run."""
        if self._loop is not None:
            return self._loop.result()
        return RunResult(self._run_id, None, (), (), (), Usage(), StopReason.CANCELLED)

    # Pulling and ending

    def __aiter__(self) -> SessionLoop:
        return self

    async def __anext__(self) -> Event:
        if not self._idle.is_set():
            raise RuntimeError("another task is already waiting for this run's next event")
        self.pulled_by = asyncio.current_task()
        self._idle.clear()
        try:
            loop = self._loop or await self._begin()
            return await self._pull(loop)
        finally:
            try:
                if self._closing:
                    await self._leave()
            finally:
                self._idle.set()

    async def close(self) -> None:
        """Stops the run where it is, and returns when it has ended and is stored. Raises where that fails."""
        self._closing = True
        known = self._failure
        if self._idle.is_set():
            await self._leave()
        else:  # the task that is inside leaves it in order
            if self._loop is not None:
                await self._loop.close()
            await self._idle.wait()
        if self._failure is not None and known is None:
            raise self._failure

    async def _leave(self) -> None:
        try:
            if self._loop is not None:
                await self._loop.close()
        finally:
            await self._settle()

    async def _begin(self) -> Loop:
        """Claims and reads the session, and makes the loop."""
        if self.done.is_set() or self._closing:
            raise StopAsyncIteration if self.error is None else self.error
        try:
            await self._claim.enter_async_context(self._store.claim(self._session))
            try:
                told = await read_session(self._store, self._session)
            except NoSuchSessionError:
                told = SessionFold()
            loop = self._make(told)
            for given in self._early:
                loop.steer(given)
        except BaseException as error:
            self._failure = error if isinstance(error, Exception) else None
            await self._settle()
            raise
        self._loop = loop
        return loop

    async def _pull(self, loop: Loop) -> Event:
        try:
            event = await loop.__anext__()
        except BaseException as ending:
            await self._settle()
            if self._failure is not None and isinstance(ending, Exception):  # not what passes through, as a cancel does
                raise self._failure from self._failure.__cause__
            raise
        if loop.done.is_set():
            await self._settle()
        elif kept := self._filter.feed(event):
            try:
                await self._append(kept, durable=type(event) is StepFinish)
            except asyncio.CancelledError:
                await self._leave()
                raise
            if self._failure is not None:
                await loop.fail(self._failure)
                return await self._pull(loop)
        return event

    async def _settle(self) -> None:
        """Stores what the run said last, and gives the session free. Once."""
        if self._settled:
            return
        self._settled = True
        try:
            if self._loop is not None and self._failure is None:
                kept = [one for event in self._loop.closing for one in self._filter.feed(event)]
                await self._append(kept, durable=True)
            if isinstance(self._failure, RunError):
                self._failure.result = self.result()
        finally:
            await self._claim.aclose()
            self.done.set()

    async def _append(self, events: Sequence[Event], *, durable: bool) -> None:
        """Stores events, to the end of it also where the waiting is cancelled meanwhile. Notes a failure."""
        task, cancelled = await to_its_end(self._write(events, durable=durable))
        cause = StoreError("the store was cancelled") if task.cancelled() else task.exception()
        if cause is not None:
            result = self.result()
            text = f"the session {self._session!r} could not be stored: {text_of(cause) or type(cause).__name__}"
            self._failure = RunError(text, step=len(result.steps), result=result)
            self._failure.__cause__ = cause
        if cancelled is not None:
            raise cancelled

    async def _write(self, events: Sequence[Event], *, durable: bool) -> None:
        await self._store.append(self._session, events, durable=durable)


_DELTAS = (TextDelta, ReasoningDelta, ToolCallDelta)


class DeltaFilter:
    """What of a run's events is worth keeping: all, but for the fragments of answers that came in whole.

    Those of an answer that broke off come out joined, before the `run_finish` behind them. Sub-agents have answers of
    their own.
    """

    def __init__(self) -> None:
        self._open: dict[tuple[str, ...], list[Event]] = {}

    def feed(self, event: Event) -> list[Event]:
        """The events to keep now."""
        path, inner = _unwrapped(event)
        if isinstance(inner, _DELTAS):
            self._open.setdefault(path, []).append(event)
            return []
        if isinstance(inner, ModelFinish | ModelRetry):
            self._open.pop(path, None)
        elif isinstance(inner, RunFinish):
            ended = [below for below in self._open if below[: len(path)] == path]
            return [*itertools.chain.from_iterable(_joined(self._open.pop(below)) for below in ended), event]
        return [event]


def _unwrapped(event: Event) -> tuple[tuple[str, ...], Event]:
    """What a sub-agent's event is inside, and the calls that lead there."""
    path: tuple[str, ...] = ()
    while isinstance(event, SubagentEvent):
        path, event = (*path, event.call_id), event.event
    return path, event


def _joined(deltas: Iterable[Event]) -> Iterator[Event]:
    """Neighbouring fragments of the same thing as one."""
    for _, group in itertools.groupby(deltas, key=_thing):
        first, *others = group
        inner = [_unwrapped(event)[1] for event in (first, *others)]
        field = "args" if isinstance(inner[0], ToolCallDelta) else "text"
        text = "".join([getattr(fragment, field) for fragment in inner])
        yield _changed(first, **{field: text})


def _thing(event: Event) -> tuple[type, object]:
    _, inner = _unwrapped(event)
    return type(inner), (inner.index, inner.call_id, inner.name) if isinstance(inner, ToolCallDelta) else None


def _changed(event: Event, **changes: str) -> Event:
    """The event with a change in what is innermost."""
    if isinstance(event, SubagentEvent):
        return msgspec.structs.replace(event, event=_changed(event.event, **changes))
    return msgspec.structs.replace(event, **changes)
