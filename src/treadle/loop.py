"""The loop: asks the model, runs the tools it calls, and tells every step as an event.

It is pulled: while the model streams, an event passes straight through to the consumer, and only the tool phase uses
tasks. Nothing of asyncio that binds a task to a scope is held across a yield, since a consumer may stop at any of
them: one timer interrupts the run's own waiting, and nobody else's.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections import deque
from typing import TYPE_CHECKING, Any

import msgspec

from treadle._budget import Budget, BudgetExhausted, Meter
from treadle._checks import check_fit
from treadle._config import ToolTable, request_of
from treadle._guard import Guard, PersonClock
from treadle._input import take_input
from treadle._model_events import complete, may_pass
from treadle._offers import Offers
from treadle._referee import Referee
from treadle._tool_calls import PhaseSettings, ToolPhase
from treadle.errors import ContextOverflowError, ModelContractError, RunError, text_of
from treadle.events import (
    Compaction,
    ModelFinish,
    ReasoningDelta,
    RunFinish,
    RunStart,
    StepFinish,
    StepStart,
    TextDelta,
    ToolFinish,
    stamp,
)
from treadle.messages import clean, encodable
from treadle.model import close_stream, model_ref, open_stream
from treadle.result import RunContext, RunResult, StepRecord
from treadle.retry import Attempts
from treadle.tools import RunLink
from treadle.transcript import Fold
from treadle.usage import Remaining, StopReason, Usage
from treadle.wraps import wrapped_model

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping

    from treadle._config import AgentConfig, Resumption, RunInput
    from treadle._input import Input
    from treadle.events import Event, ModelEvent, PendingCall
    from treadle.messages import Message, ToolCallPart, ToolResultPart
    from treadle.model import ModelRequest
    from treadle.wraps import WrapTool

_log = logging.getLogger("treadle")

_ROUGHLY_SECONDS = 0.05


class Loop:
    """One run. However it ends, every call is answered and the log ends with `run_finish`.

    An asynchronous iterator over the events. `done` is set when the run's work has ended, `error` is what it raises.
    """

    def __init__(self, agent: AgentConfig, given: RunInput) -> None:
        self._agent = agent
        self._given = given
        self._table = given.table
        self._offers = Offers(given.table.source, agent.toolsets)
        self._seq = given.resumed.seq if given.resumed is not None else 0
        self._fold = Fold()
        self._budget = Budget(agent.limits, given.budget)
        self._referee = Referee(agent, given, self._budget)
        self._attempts = Attempts(agent.model, agent.retry)
        ask = self._send
        if self._budget.bounds_requests:
            ask = Meter(agent.model, self._budget, ask).stream
        self._ask = wrapped_model(agent.wrap_model, ask)
        self._clock = PersonClock(given.waits)
        final = given.spec.tool if given.spec is not None and given.final_tool else None
        self._guard = Guard(agent.hooks, agent.approve, self._clock, final)
        guarded = agent.hooks is not None or agent.approve is not None or given.resumed is not None
        self._wraps: tuple[WrapTool, ...] = (*agent.wrap_tool, self._guard) if guarded else agent.wrap_tool
        self._toolsets = contextlib.AsyncExitStack()
        self._instructions: str | None = None
        self._finish: ModelFinish | None = None  # what the model just gave, not looked at yet
        self._answer: ModelFinish | None = None  # the answer of the step that is going on, and its calls
        self._phase: ToolPhase | None = None
        self._results: dict[int, ToolResultPart] = {}
        self._records: list[StepRecord] = []
        self._steps = self._run_steps()
        self._inside = False
        self._tail: deque[Event] | None = None
        self._seconds_left: Callable[[], float] | None = None
        self._timers: dict[StopReason, asyncio.TimerHandle] = {}
        self._interrupt: StopReason | None = None
        self._interrupted_task: asyncio.Task[Any] | None = None
        self._cancelling = 0
        self.steering: list[Message] = []
        self.closing: tuple[Event, ...] = ()  # what it said when it ended, also where nobody takes it
        self.pulled_by: asyncio.Task[Any] | None = None
        self.stop: StopReason | None = None
        self.pending: tuple[PendingCall, ...] = ()
        self.error: RunError | None = None
        self.done: asyncio.Event = asyncio.Event()

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self._given.run_id

    @property
    def limit(self) -> str | None:
        """The name of the limit that stopped the run."""
        return self._referee.limit

    # Pulling, interrupting, ending

    def __aiter__(self) -> Loop:
        return self

    async def __anext__(self) -> Event:
        if self._tail is None:
            if self._inside:
                raise RuntimeError("another task is already waiting for this run's next event")
            task = self.pulled_by = asyncio.current_task()
            self._cancelling = 0 if task is None else task.cancelling()
            self._inside = True
            error: BaseException | None = None
            try:
                if self._interrupt is None:
                    return await self._steps.__anext__()
            except StopAsyncIteration:
                pass
            except BaseException as caught:  # noqa: BLE001 - every way out is told in the log first
                error = caught
            finally:
                self._inside = False
            await self._end(error)
        if self._tail:
            return self._tail.popleft()
        raise StopAsyncIteration if self.error is None else self.error

    def steer(self, given: Input) -> None:
        """Checks `given`, and keeps it for the next step."""
        _, new = take_input(given, (), self._agent.model)
        check_fit(self._agent, self._given.settings, new, self._table.specs)
        self.steering += new

    async def close(self) -> None:
        """Stops the run where it is, and returns when its model call and its tools have ended."""
        if self._inside:
            self.interrupt(StopReason.CANCELLED)
            await self.done.wait()
        elif self._tail is None:
            self._interrupt = self._interrupt or StopReason.CANCELLED
            await self._end(None)

    def interrupt(self, stop: StopReason) -> None:
        """Ends the run with `stop`: at once where somebody waits for its next event, else at the next pull."""
        if self._interrupt is None and self.stop is None:
            self._interrupt = stop
            if self._inside and self.pulled_by is not None:
                self._interrupted_task = self.pulled_by
                self.pulled_by.cancel()

    async def fail(self, error: Exception) -> None:
        """Ends the run with what went wrong outside of it."""
        if self._tail is None:
            await self._end(error)

    async def _end(self, error: BaseException | None) -> None:
        """Cancels what still works, closes the log, and raises what only the pulling task must see."""
        self._inside = True
        for timer in self._timers.values():
            timer.cancel()
        passing = self._judge(error)
        try:
            await self._clean_up()
        finally:
            try:
                # A run that nobody ever pulled did nothing, and has no log.
                tail = deque(self._closing_events() if self.pulled_by is not None else ())
                self._tail = tail if self.stop is not StopReason.CANCELLED else deque()
                self.closing = tuple(tail)
                if self.error is not None:
                    self.error.step, self.error.result = self._step, self.result()
            finally:  # whoever waits for the end must not wait for ever
                self._tail = self._tail or deque()
                self._inside = False
                self.done.set()
        if passing is not None:
            raise passing

    async def _clean_up(self) -> None:
        """Ends the model's stream, the tools and the toolsets: each of them, whatever the one before it does."""
        try:
            async with contextlib.AsyncExitStack() as stack:
                stack.push_async_exit(self._toolsets)
                if self._phase is not None:
                    stack.push_async_callback(self._phase.stop, self._why_unanswered())
                await self._steps.aclose()
        except Exception:  # noqa: BLE001 - the answer is whole, whatever a closing toolset says
            _log.warning("a model or a toolset failed while it was closed", exc_info=True)

    def _judge(self, error: BaseException | None) -> BaseException | None:
        """Settles why the run ended. Returns what is not the run's own and must pass through."""
        cancelled_by_us = True
        if self._interrupted_task is not None:
            cancelled_by_us = self._interrupted_task.uncancel() <= self._cancelling
        if self._interrupt is not None and cancelled_by_us and not isinstance(error, KeyboardInterrupt):
            self.stop = self._interrupt
            self._referee.limit = "seconds" if self.stop is StopReason.BUDGET else None
            if self.stop is StopReason.ERROR:  # nothing else ends a run like this from outside
                self.error = _run_error(self._attempts.out_of_time())
            return None
        if error is None:
            return None
        if isinstance(error, BudgetExhausted):
            self.stop, self._referee.limit = StopReason.BUDGET, error.limit
            return None
        if isinstance(error, asyncio.CancelledError) and _is_cancelled():
            self.stop = StopReason.CANCELLED
            return error
        if not isinstance(error, Exception | asyncio.CancelledError):
            self.stop = StopReason.CANCELLED
            return error
        self.stop = StopReason.CONTEXT if isinstance(error, ContextOverflowError) else StopReason.ERROR
        self.error = error if isinstance(error, RunError) else _run_error(error)
        return None

    def _why_unanswered(self) -> str:
        if self.limit == "seconds":
            return "Stopped: the time limit of the run was reached."
        return "Stopped: the run was cancelled." if self.stop is StopReason.CANCELLED else "Stopped: the run failed."

    def _closing_events(self) -> Iterator[Event]:
        if self._phase is not None:
            for event in self._phase.leftover():
                yield self._emit(event)
        if self._answer is not None:
            yield self._emit(self._close_step())
        assert self.stop is not None
        error = None if self.error is None else encodable(text_of(self.error))
        usage, steps = self._referee.usage, len(self._records)
        yield self._emit(RunFinish(usage, steps, self.stop, error, self.limit, self.pending))

    def result(self) -> RunResult[Any]:
        """What there is of the run."""
        given = (*self._given.history, *self._given.new)
        messages = self._fold.finish() or given
        new = messages[len(given) :]
        result: RunResult[Any] = RunResult(
            self._given.run_id,
            self._referee.output,
            messages,
            new,
            tuple(self._records),
            self._referee.usage,
            self.stop or StopReason.CANCELLED,
            self.pending,
            self._seq,
        )
        return result if self._given.spec is not None else msgspec.structs.replace(result, output=result.text)

    # The steps

    @property
    def _step(self) -> int:
        """The index of the step that goes on, or is next."""
        return len(self._records) + (0 if self._given.resumed is None else self._given.resumed.step)

    async def _run_steps(self) -> AsyncGenerator[Event, None]:
        agent, given = self._agent, self._given
        resumed = given.resumed
        self._set_timers()
        ref = model_ref(agent.model)
        history = given.history
        if given.stored:
            self._fold.messages += history
            history = ()
        start = RunStart(agent.name, ref, given.new, history, given.parent, resumed=resumed is not None)
        yield self._emit(start)
        await self._prepare()
        while self.stop is None:
            await self._update_tools()
            added = (*self._referee.correction, *self._take_steering())
            yield self._emit(StepStart(self._step, added, self._offers.missing))
            if resumed is None:
                stream = self._ask(self._request())
                try:
                    async for event in stream:
                        if (passed := self._pass(event)) is not None:
                            yield passed
                finally:
                    await close_stream(stream)
                yield self._emit(self._take_answer())
            else:
                self._reopen(resumed)
                resumed = None
            assert self._phase is not None
            while (tool_event := await self._phase.next_event()) is not None:
                yield self._emit(tool_event)
            self.pending = self._phase.pending(self._fold.messages)
            yield self._emit(self._close_step())
            self.stop = StopReason.PAUSED if self.pending else await self._referee.decide(self._records)
            if self.stop is StopReason.END and self.steering:
                self.stop = None

    def _take_steering(self) -> tuple[Message, ...]:
        taken, self.steering = tuple(self.steering), []
        return taken

    def _send(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        return open_stream(self._agent.model, request, self._attempts.stream)

    def _set_timers(self) -> None:
        if (seconds := self._agent.limits.seconds) is not None:
            self._seconds_left = self._arm(seconds, StopReason.BUDGET)
        if (seconds := self._attempts.start()) is not None:
            self._arm(seconds, StopReason.ERROR)

    def _arm(self, seconds: float, stop: StopReason) -> Callable[[], float]:
        """Interrupts the run after `seconds`, and returns what tells how many are left.

        Time in which somebody is asked for a decision does not count.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds

        def left() -> float:
            return end + self._clock.waited(loop.time()) - loop.time()

        def ring() -> None:
            if left() <= 0:
                self.interrupt(stop)
            else:
                self._timers[stop] = loop.call_later(max(left(), _ROUGHLY_SECONDS), ring)

        self._timers[stop] = loop.call_later(seconds, ring)
        return left

    async def _prepare(self) -> None:
        """Enters the toolsets and settles the instructions, once for the run, so that the prefix stays stable."""
        for toolset in self._agent.toolsets:
            await self._toolsets.enter_async_context(toolset)
        instructions = self._agent.instructions
        if callable(instructions):
            instructions = instructions(RunContext(self._given.run_id, self._given.deps))
            if inspect.isawaitable(instructions):
                instructions = await instructions
            if instructions is not None and not isinstance(instructions, str):
                raise TypeError(f"the instructions function must return a string, and gave {type(instructions)}")
        self._instructions = None if instructions is None else encodable(instructions)

    async def _update_tools(self) -> None:
        """Asks the toolsets what there is."""
        if self._agent.toolsets and (tools := await self._offers.ask()) is not None:
            self._table = ToolTable(tools)

    def _request(self) -> ModelRequest:
        agent, given = self._agent, self._given
        schema = given.spec.schema if given.spec is not None and not given.final_tool else None
        return request_of(
            agent,
            self._instructions,
            tuple(self._fold.messages),
            self._table.specs,
            output_schema=schema,
            settings=given.settings,
        )

    def _pass(self, event: Any) -> Event | None:
        """One event of the model's, stamped; None for one that consumers do not see (yet)."""
        if self._finish is not None:
            raise ModelContractError("the model went on after its model_finish")
        kind = type(event)
        if kind is TextDelta:
            text = event.text
            if not isinstance(text, str):
                raise ModelContractError(f"the model yielded a text_delta whose text is {text!r:.80}")
            text = text if text.isascii() else encodable(text)
            stamped = TextDelta(text, run_id=self._given.run_id, seq=self._seq)
            self._seq += 1
            self._fold.deltas.append(stamped)
            if self._agent.taps:
                self._tap(stamped)
            return stamped
        if kind is ModelFinish:
            self._finish = event
            return None
        if not may_pass(event):
            raise ModelContractError(f"the model yielded {event!r:.200}: only deltas and hosted tool events may come")
        if kind is ReasoningDelta and not (self._agent.reasoning is not None and self._agent.reasoning.show):
            return None
        if kind is Compaction:
            self._referee.spend(event.usage or Usage())
        emitted: Event = self._emit(clean(event))
        return emitted

    def _emit(self, event: Any) -> Any:
        """Gives an event its place in the log, and shows it to the fold and to the taps."""
        event = stamp(event, self._given.run_id, self._seq)
        self._seq += 1
        self._fold.feed(event)
        if type(event) is ToolFinish and not event.result.hosted:
            self._results[event.index] = event.result
        if self._agent.taps:
            self._tap(event)
        return event

    def _tap(self, event: Event) -> None:
        for tap in self._agent.taps:
            try:
                tap(event)
            except (Exception, asyncio.CancelledError, GeneratorExit):  # noqa: BLE001 - taps can change nothing
                _log.exception("a tap raised on %s; the run goes on", type(event).__name__)

    def _take_answer(self) -> ModelFinish:
        """Checks and completes the step's answer, and sets up its tool phase."""
        finish, self._finish = self._finish, None
        finish = self._answer = complete(finish, self._agent.model)
        calls, refusals = dict(enumerate(finish.message.calls)), self._referee.admit(finish)
        self._results = {}
        self._open_phase(calls, refusals)
        return finish

    def _reopen(self, resumed: Resumption) -> None:
        """Sets up the tool phase of a paused step again, for the calls that were left open."""
        message = resumed.message
        self._answer = ModelFinish(message, stop=message.stop or StopReason.TOOL_CALLS, model=message.model)
        self._results = dict(resumed.results)
        self._guard.decisions = resumed.decisions
        self._open_phase(resumed.calls, {})

    def _open_phase(self, calls: Mapping[int, ToolCallPart], refusals: Mapping[int, str]) -> None:
        agent, given = self._agent, self._given
        settings = PhaseSettings(
            given.run_id,
            self._step,
            given.deps,
            agent.parallelism,
            agent.max_result_bytes,
            RunLink(
                self._referee.spend,
                self._remaining,
                self._budget,
                approves=agent.approve is not None,
                waits=self._clock.waits,
            ),
            self._wraps,
            self._offers.missing,
        )
        self._phase = ToolPhase(calls, self._table.by_name, settings, self._referee.repeats, refusals)
        self._guard.tell = self._phase.tell

    def _close_step(self) -> StepFinish:
        """Files the record of the step that is going on."""
        finish = self._answer
        assert finish is not None
        record = StepRecord(
            self._step,
            finish.stop,
            finish.raw_stop,
            finish.usage,
            finish.message.text,
            finish.message.calls,
            tuple(self._results[index] for index in sorted(self._results)),
            finish.model,
        )
        self._records.append(record)
        self._answer = self._phase = None
        self._guard.decisions = {}
        return StepFinish(record.index, record.usage, record.stop, self._remaining())

    def _remaining(self) -> Remaining | None:
        """What the limits leave; None where there are none but that on steps."""
        seconds = self._seconds_left and self._seconds_left()  # a tool's thread may ask
        if seconds is None and not self._budget.is_limited:
            return None
        return msgspec.structs.replace(self._budget.remaining(), seconds=seconds)


def _is_cancelled() -> bool:
    """Whether somebody cancelled the task that runs this; a `CancelledError` alone may come from anywhere."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def _run_error(error: BaseException) -> RunError:
    failure = RunError(text_of(error) or type(error).__name__)
    failure.__cause__ = error
    return failure
