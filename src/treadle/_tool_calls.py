"""The tool phase of one step: starts the calls in order, answers every one exactly once."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING, Any

import msgspec

from treadle._results import cap, render
from treadle.errors import ToolError, text_of
from treadle.events import ToolFinish, ToolProgress, ToolStart
from treadle.limits import Repeats
from treadle.messages import ToolCallPart, ToolResultPart, encodable
from treadle.tools import ToolContext, ToolOutput

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from treadle.events import Event
    from treadle.tools import Tool

_log = logging.getLogger("treadle")

CANCEL_GRACE_SECONDS = 5.0
CHANGE_COURSE = (
    "This same call has now failed {count} times in a row. Do not repeat it: change the arguments or go on differently."
)


class PhaseSettings(msgspec.Struct, frozen=True):
    """What all calls of a step share."""

    run_id: str
    step: int
    deps: Any
    parallelism: int
    max_result_bytes: int


class ToolPhase:
    """Runs the calls of one step as tasks and queues their events.

    Up to `parallelism` calls run at once, started in call order; a sequential tool runs alone. `refusals` maps the
    index of a call that must not run to the reason that answers it. Starting goes on while the consumer is busy.
    """

    def __init__(
        self,
        calls: Sequence[ToolCallPart],
        tools: Mapping[str, Tool[..., Any]],
        settings: PhaseSettings,
        repeats: Repeats,
        refusals: Mapping[int, str],
    ) -> None:
        self._calls = calls
        self._tools = tools
        self._settings = settings
        self._repeats = repeats
        self._refusals = refusals
        self._queue: deque[Event] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._running: dict[int, asyncio.Task[None]] = {}
        self._started: dict[int, float] = {}
        self._answered: set[int] = set()
        self._exclusive = False
        self._stopping = False
        self._interrupt: KeyboardInterrupt | None = None
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    async def next_event(self) -> Event | None:
        """The next event, or None once every call is answered."""
        self._start_ready()
        while not self._queue:
            if self._interrupt is not None:
                raise self._interrupt
            if not self._running:
                return None
            self._waiter = self._loop.create_future()
            await self._waiter
        return self._queue.popleft()

    def _start_ready(self) -> None:
        while not self._stopping and (index := len(self._started)) < len(self._calls):
            call = self._calls[index]
            tool = self._tools.get(call.name)
            if refusal := self._refusal(index, call, tool):
                self._start(index, call, tool)
                self._finish(index, call, ToolOutput(refusal, is_error=True), refused=True)
                continue
            assert tool is not None
            if not self._has_room(tool):
                return
            self._exclusive = tool.sequential
            self._running[index] = self._loop.create_task(self._run(index, call, tool))
            self._start(index, call, tool)

    def _has_room(self, tool: Tool[..., Any]) -> bool:
        if tool.sequential or self._exclusive:
            return not self._running
        return len(self._running) < self._settings.parallelism

    def _refusal(self, index: int, call: ToolCallPart, tool: Tool[..., Any] | None) -> str | None:
        if index in self._refusals:
            return self._refusals[index]
        if tool is not None:
            return None
        return f"There is no tool {call.name!r}. {known_tools(self._tools)}"

    def _start(self, index: int, call: ToolCallPart, tool: Tool[..., Any] | None) -> None:
        self._started[index] = perf_counter()
        self._push(ToolStart(call.id, index, call.name, call.args, tool.effect if tool else None))

    async def _run(self, index: int, call: ToolCallPart, tool: Tool[..., Any]) -> None:
        """One call, in a task of its own: whatever the tool does becomes a result.

        Only `KeyboardInterrupt` is the program's and no result: it comes out where the events are taken.
        """
        try:
            output = await self._answer(index, call, tool)
        except KeyboardInterrupt as interrupt:
            self._interrupt = interrupt
            self._wake()
            return
        except asyncio.CancelledError:
            if self._stopping:
                raise
            output = ToolOutput("The tool cancelled itself.", is_error=True)
        except BaseException as error:  # noqa: BLE001 - SystemExit in a task would end the whole event loop
            output = ToolOutput(_describe(error), is_error=True)
        del self._running[index]
        if not self._stopping:
            self._finish(index, call, output)
            self._start_ready()

    async def _answer(self, index: int, call: ToolCallPart, tool: Tool[..., Any]) -> ToolOutput:
        arguments = tool.parse(call.args)
        settings = self._settings
        context: ToolContext[Any] = ToolContext(
            run_id=settings.run_id,
            step=settings.step,
            call_id=call.id,
            name=call.name,
            index=index,
            deps=settings.deps,
            on_progress=lambda message, progress, total: self._progress(
                index, ToolProgress(call.id, message, progress, total)
            ),
        )
        if tool.timeout_seconds is None:
            return render(await tool.call(arguments, context))
        try:
            async with asyncio.timeout(tool.timeout_seconds) as timeout:
                return render(await tool.call(arguments, context))
        except TimeoutError:
            if timeout.expired():
                text = f"The tool gave no answer within {tool.timeout_seconds:g} seconds and was stopped."
                return ToolOutput(text, is_error=True)
            raise

    def _finish(
        self, index: int, call: ToolCallPart, output: ToolOutput, *, refused: bool = False, discarded: bool = False
    ) -> None:
        self._answered.add(index)
        content = encodable(output.content)
        if not output.is_error:
            self._repeats.succeeded(call.name, call.args)
        elif not discarded and (count := self._repeats.failed(call.name, call.args)) >= Repeats.ORDER_AT:
            content = f"{content}\n{CHANGE_COURSE.format(count=count)}"
        result = ToolResultPart(
            call.id, call.name, cap(content, self._settings.max_result_bytes), output.is_error, output.files
        )
        duration = 0.0 if refused else perf_counter() - self._started[index]
        self._push(ToolFinish(call.id, index, call.name, result, output.is_error, refused, discarded, duration))

    def _progress(self, index: int, event: ToolProgress) -> None:
        if threading.get_ident() == self._thread:
            if index not in self._answered:
                self._push(event)
            return
        try:
            self._loop.call_soon_threadsafe(self._progress, index, event)
        except RuntimeError:
            return  # the event loop is closed: nobody listens any more

    def _push(self, event: Event) -> None:
        self._queue.append(event)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def stop(self, reason: str) -> None:
        """Cancels what runs, waits for it to end, and answers every open call with `reason`."""
        self._stopping = True
        try:
            for task in self._running.values():
                task.cancel()
            await self._wait_for_end()
        finally:
            self._answer_open(reason)

    async def _wait_for_end(self) -> None:
        """Waits for the cancelled tasks, also while somebody goes on cancelling the waiting itself."""
        deadline = self._loop.time() + CANCEL_GRACE_SECONDS
        cancelled: asyncio.CancelledError | None = None
        while tasks := [task for task in self._running.values() if not task.done()]:
            left = deadline - self._loop.time()
            if left <= 0:
                _log.warning("%d tool call(s) did not end when cancelled and were left behind", len(tasks))
                break
            try:
                await asyncio.wait(tasks, timeout=left)
            except asyncio.CancelledError as again:
                cancelled = again
        if cancelled is not None:
            raise cancelled

    def _answer_open(self, reason: str) -> None:
        for index, call in enumerate(self._calls):
            if index in self._answered:
                continue
            ran = index in self._started
            if not ran:
                self._start(index, call, self._tools.get(call.name))
            self._finish(index, call, ToolOutput(reason, is_error=True), refused=not ran, discarded=ran)

    def leftover(self) -> list[Event]:
        """The events that nobody has taken yet."""
        events = list(self._queue)
        self._queue.clear()
        return events


def known_tools(tools: Mapping[str, Any]) -> str:
    """A sentence that lists the tools there are."""
    return f"The tools are: {', '.join(sorted(tools))}." if tools else "There are no tools."


def _describe(error: BaseException) -> str:
    text = text_of(error)
    if isinstance(error, ToolError) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
