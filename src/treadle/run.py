"""A run in the hands of its consumer."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Generic, Self

from treadle.errors import ConfigError, LimitExceeded, RunConsumedError, RunError, RunPaused
from treadle.events import TextDelta
from treadle.result import OutputT, RunResult, StepRecord

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable

    from treadle._input import Input
    from treadle._session_loop import SessionLoop
    from treadle.events import Event
    from treadle.loop import Loop
    from treadle.messages import Message

__all__ = ["Run", "RunResult", "StepRecord"]

_log = logging.getLogger("treadle")


class Run(Generic[OutputT]):
    """One run of an agent: `async with agent.stream(...) as run`.

    Nothing is sent before the first event or the result is asked for. Leaving the context stops the model call and
    the tools, and waits until they have ended. The work is done by the task that pulls: cancelling that task cancels
    the run.
    """

    def __init__(self, loop: Loop | SessionLoop) -> None:
        self._loop = loop
        self._consumed = False
        self._closed = False
        self._left = asyncio.Event()  # set when the iterator is dropped, as `break` does

    @property
    def id(self) -> str:
        """The id in all its events; empty for a session's run that is resumed, until its first event."""
        return self._loop.run_id

    async def __aenter__(self) -> Run[OutputT]:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._closed = True
        try:
            await self._loop.close()
        except RunError:
            if exc_info[0] is None:
                raise
            _log.warning("a run that was left could not be stored", exc_info=True)

    def __aiter__(self) -> AsyncIterator[Event]:
        """The events, once. Raises `RunConsumedError` the second time, and what broke the run at the end."""
        if self._consumed or self._closed:
            raise RunConsumedError(
                "the events of this run were already taken: iterate once, or keep them with a tap"
                if self._consumed
                else "this run is closed: iterate inside `async with agent.stream(...)`"
            )
        self._consumed = True
        return _Events(self._loop, self._left)

    async def text_stream(self) -> AsyncIterator[str]:
        """Only the answer's text, as it comes. Counts as the one iteration."""
        async for event in self:
            if type(event) is TextDelta:
                yield event.text

    def steer(self, input: Input) -> None:  # noqa: A002 - the word of the whole API
        """Adds to the conversation before the run's next step; a run that would end by itself goes on with it.

        It is the `input` of that `step_start`. What a run has not taken when it ends, at a limit for instance, is left
        in `unsent`. Raises `ConfigError` for a run that has ended, and what `stream` raises for its input.
        """
        if self._closed or self._loop.done.is_set():
            raise ConfigError("this run has ended: give it to the next one")
        self._loop.steer(input)

    @property
    def unsent(self) -> tuple[Message, ...]:
        """What `steer` was given and the model has not been sent yet."""
        return tuple(self._loop.steering)

    async def result(self) -> RunResult[OutputT]:
        """The outcome. Takes what is left of the events, unless another task is taking them; then it waits.

        Raises `LimitExceeded` for a limit, `RunError` for a run that broke or was cancelled, each with `.result`.
        """
        loop = self._loop
        while not (loop.done.is_set() or self._closed):
            if not self._may_drain():
                await _first_of(loop.done, self._left)
                continue
            self._consumed = True
            self._left.clear()
            async for _ in loop:
                pass
        return self._outcome()

    def so_far(self) -> RunResult[OutputT]:
        """What there is of the run, whether it has ended or not. Raises nothing."""
        return self._loop.result()

    def _may_drain(self) -> bool:
        """Whether nobody is in the middle of taking events, as far as one can tell."""
        return self._left.is_set() or self._loop.pulled_by in (None, asyncio.current_task())

    def _outcome(self) -> RunResult[OutputT]:
        loop = self._loop
        if loop.error is not None:
            raise loop.error
        result = loop.result()
        if loop.limit is not None:
            text = f"the run stopped at its limit {loop.limit} after {len(result.steps)} step(s)"
            raise LimitExceeded(text, limit=loop.limit, step=len(result.steps), result=result)
        if loop.pending:
            names = ", ".join(call.name for call in loop.pending)
            text = f"the run is paused: {names} must be decided on, then call agent.resume(error.result, decisions)"
            raise RunPaused(text, pending=loop.pending, step=len(result.steps), result=result)
        if loop.stop is None or loop.stop == "cancelled":
            raise RunError("the run was cancelled before it had a result", step=len(result.steps), result=result)
        return result


class _Events:
    """The one iteration over a run. That it is gone tells that its reader has left."""

    def __init__(self, loop: Loop | SessionLoop, left: asyncio.Event) -> None:
        self._loop = loop
        self._left = left

    def __del__(self) -> None:
        self._left.set()

    def __aiter__(self) -> Self:
        return self

    def __anext__(self) -> Awaitable[Event]:
        return self._loop.__anext__()


async def _first_of(*events: asyncio.Event) -> None:
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
