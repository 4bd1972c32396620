"""The tool phase of one step: starts the calls in order, answers every one exactly once."""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING, Any

import msgspec

from treadle._guard import CallPaused
from treadle._results import cap, render
from treadle.approval import call_key, place_of
from treadle.errors import ToolError, ToolInputError, text_of
from treadle.events import PendingCall, SubagentEvent, ToolFinish, ToolProgress, ToolStart
from treadle.hooks import MAX_INJECTED_BYTES
from treadle.limits import Repeats
from treadle.messages import ToolCallPart, ToolResultPart, encodable
from treadle.tools import RunLink, ToolContext, ToolOutput
from treadle.wraps import ToolRequest, WrapTool, wrapped_tool

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from treadle.events import Event
    from treadle.messages import Message
    from treadle.tools import Tool

_log = logging.getLogger("treadle")

CANCEL_GRACE_SECONDS = 5.0
_MARKER_BYTES = 200
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
    link: RunLink
    wraps: tuple[WrapTool, ...] = ()
    missing: tuple[str, ...] = ()


class ToolPhase:
    """Runs the calls of one step as tasks and queues their events.

    Up to `parallelism` calls run at once, started in call order; a sequential tool runs alone. `refusals` maps the
    index of a call that must not run to the reason that answers it. Starting goes on while the consumer is busy.

    Where there are wraps, every call goes into them at once, and waits behind them for its turn to start. A call that
    they answer themselves is refused; one that they pause is left open, in `pending`.
    """

    def __init__(
        self,
        calls: Mapping[int, ToolCallPart],
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
        self._to_start = deque(calls)
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._running: set[int] = set()
        self._started: dict[int, float] = {}
        self._answered: set[int] = set()
        self._turns: dict[int, tuple[ToolRequest, asyncio.Future[None]]] = {}
        self._answers: dict[int, ToolOutput] = {}  # of calls that never came to their tool
        self._paused: dict[int, str | None] = {}
        self._exclusive = False
        self._stopping = False
        self._interrupt: KeyboardInterrupt | None = None
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._entered = not settings.wraps

    def pending(self, messages: Sequence[Message]) -> tuple[PendingCall, ...]:
        """The calls that wait for a decision, the last ones of `messages`."""
        if not self._paused:
            return ()
        place = place_of(messages)
        found = ((index, self._calls[index], self._paused[index]) for index in sorted(self._paused))
        return tuple(
            PendingCall(call.id, call.name, call.args, reason, call_key(self._settings.run_id, place, index, call))
            for index, call, reason in found
        )

    async def next_event(self) -> Event | None:
        """The next event, or None once every call is answered or paused."""
        if not self._entered:
            self._enter_wraps()
        self._start_ready()
        while not self._queue:
            if self._interrupt is not None:
                raise self._interrupt
            if not self._tasks:
                return None
            self._waiter = self._loop.create_future()
            await self._waiter
        return self._queue.popleft()

    def _start_ready(self) -> None:
        while not self._stopping and self._to_start:
            index = self._to_start[0]
            call = self._calls[index]
            tool = self._tools.get(call.name)
            if index in self._paused:
                self._to_start.popleft()
                continue
            output = self._answers.get(index) or self._refused(index, call, tool)
            if output is None:
                assert tool is not None
                if not self._has_room(tool) or not self._begin(index, call, tool):
                    return
                continue
            self._start(index, call, tool)
            self._finish(index, call, output, refused=True)

    def _has_room(self, tool: Tool[..., Any]) -> bool:
        if tool.sequential or self._exclusive:
            return not self._running
        return len(self._running) < self._settings.parallelism

    def _begin(self, index: int, call: ToolCallPart, tool: Tool[..., Any]) -> bool:
        """Lets a call begin. False where it is still in its wraps."""
        args = call.args
        if index not in self._tasks:
            request = self._request(index, call, tool)
            self._tasks[index] = self._loop.create_task(self._run(index, self._answer, request))
        elif index in self._turns:
            request, turn = self._turns[index]
            args = request.args
            if not turn.done():
                turn.set_result(None)
        else:
            return False
        self._exclusive = tool.sequential
        self._running.add(index)
        self._start(index, call, tool, args)
        return True

    def _refused(self, index: int, call: ToolCallPart, tool: Tool[..., Any] | None) -> ToolOutput | None:
        if index in self._refusals:
            return ToolOutput(self._refusals[index], is_error=True)
        if tool is not None:
            return None
        told = (f"There is no tool {call.name!r}. {known_tools(self._tools)}", *self._settings.missing)
        return ToolOutput("\n".join(told), is_error=True)

    def _start(self, index: int, call: ToolCallPart, tool: Tool[..., Any] | None, args: str | None = None) -> None:
        self._to_start.popleft()
        self._started[index] = perf_counter()
        args = call.args if args is None else args
        self.tell(ToolStart(call.id, index, call.name, args, tool.effect if tool else None))

    def _request(self, index: int, call: ToolCallPart, tool: Tool[..., Any]) -> ToolRequest:
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
            run=msgspec.structs.replace(
                settings.link, tell=lambda event: self._progress(index, SubagentEvent(call.id, event))
            ),
        )
        return ToolRequest(call_id=call.id, index=index, name=call.name, args=call.args, tool=tool, context=context)

    def _enter_wraps(self) -> None:
        """Sends all calls that may run into the wraps. Nobody need be asked about arguments that do not fit."""
        self._entered = True
        for index, call in self._calls.items():
            tool = self._tools.get(call.name)
            if tool is None or index in self._refusals:
                continue
            try:
                tool.parse(call.args)
            except ToolInputError:
                continue
            request = self._request(index, call, tool)
            through = wrapped_tool(self._settings.wraps, functools.partial(self._take_turn, index))
            self._tasks[index] = self._loop.create_task(self._run(index, through, request))

    async def _take_turn(self, index: int, request: ToolRequest) -> ToolOutput:
        """The innermost of the wraps: the tool itself, when its turn has come. Its failures are results here."""
        if index not in self._started:
            _, turn = self._turns.setdefault(index, (request, self._loop.create_future()))
            self._start_ready()
            await turn
        output = await self._settled(self._answer(request), index)
        return ToolOutput(cap(output.content, self._settings.max_result_bytes), output.files, output.is_error)

    async def _run(self, index: int, answer: Callable[[ToolRequest], Awaitable[Any]], request: ToolRequest) -> None:
        """One call, in a task of its own."""
        try:
            output = await self._settled(answer(request), index)
        except KeyboardInterrupt as interrupt:
            self._interrupt = interrupt
            self._wake()
            return
        except CallPaused as paused:
            self._paused[index] = paused.reason
        else:
            if index not in self._started:
                self._answers[index] = output
            elif not self._stopping:
                self._finish(index, self._calls[index], output)
        del self._tasks[index]
        self._running.discard(index)
        if not self._stopping:
            self._start_ready()
            self._wake()

    async def _settled(self, answer: Awaitable[Any], index: int) -> ToolOutput:
        """Whatever a tool does, as a result.

        Only `KeyboardInterrupt` is the program's and no result: it comes out where the events are taken.
        """
        try:
            return render(await answer)
        except KeyboardInterrupt:
            raise
        except CallPaused:
            if index in self._started:
                return ToolOutput("The call was paused when it had run already.", is_error=True)
            raise
        except asyncio.CancelledError:
            if self._stopping:
                raise
            return ToolOutput("The tool cancelled itself.", is_error=True)
        except BaseException as error:  # noqa: BLE001 - SystemExit in a task would end the whole event loop
            return ToolOutput(_describe(error), is_error=True)

    async def _answer(self, request: ToolRequest) -> Any:
        tool, arguments = request.tool, request.arguments
        if tool.timeout_seconds is None:
            return await tool.call(arguments, request.context)
        try:
            async with asyncio.timeout(tool.timeout_seconds) as timeout:
                return render(await tool.call(arguments, request.context))
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
        most = self._settings.max_result_bytes
        if most and self._settings.wraps:
            most += MAX_INJECTED_BYTES + _MARKER_BYTES  # the tool's own part is cut already
        result = ToolResultPart(call.id, call.name, cap(content, most), output.is_error, output.files)
        duration = 0.0 if refused else perf_counter() - self._started[index]
        self.tell(ToolFinish(call.id, index, call.name, result, output.is_error, refused, discarded, duration))

    def _progress(self, index: int, event: ToolProgress | SubagentEvent) -> None:
        if threading.get_ident() == self._thread:
            if index not in self._answered:
                self.tell(event)
            return
        try:
            self._loop.call_soon_threadsafe(self._progress, index, event)
        except RuntimeError:
            return  # the event loop is closed: nobody listens any more

    def tell(self, event: Event) -> None:
        """Puts an event into the log."""
        self._queue.append(event)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def stop(self, reason: str) -> None:
        """Cancels what runs, waits for it to end, and answers every open call with `reason`."""
        self._stopping = True
        try:
            for task in self._tasks.values():
                task.cancel()
            await self._wait_for_end()
        finally:
            self._answer_open(reason)

    async def _wait_for_end(self) -> None:
        """Waits for the cancelled tasks, also while somebody goes on cancelling the waiting itself."""
        deadline = self._loop.time() + CANCEL_GRACE_SECONDS
        cancelled: asyncio.CancelledError | None = None
        while tasks := [task for task in self._tasks.values() if not task.done()]:
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
        for index, call in self._calls.items():
            if index in self._answered:
                continue
            ran = index in self._started
            if not ran:
                self._to_start = deque((index,))
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
