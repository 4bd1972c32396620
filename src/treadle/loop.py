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

from treadle._config import ToolTable, request_of
from treadle._model_events import complete, may_pass
from treadle._referee import Referee
from treadle._tool_calls import PhaseSettings, ToolPhase
from treadle.errors import ContextOverflowError, ModelContractError, RunError, text_of
from treadle.events import (
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
from treadle.transcript import Fold
from treadle.usage import StopReason

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

    from treadle._config import AgentConfig, RunInput
    from treadle.events import Event
    from treadle.messages import ToolResultPart
    from treadle.model import ModelRequest

_log = logging.getLogger("treadle")


class Loop:
    """One run. However it ends, every call is answered and the log ends with `run_finish`.

    An asynchronous iterator over the events. `done` is set when the run's work has ended, `error` is what it raises.
    """

    def __init__(self, agent: AgentConfig, given: RunInput) -> None:
        self._agent = agent
        self._given = given
        self._table = given.table
        self._seq = 0
        self._fold = Fold()
        self._referee = Referee(agent, given)
        self._attempts = Attempts(agent.model, agent.retry)
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
        self._timers: list[asyncio.TimerHandle] = []
        self._interrupt: StopReason | None = None
        self._interrupted_task: asyncio.Task[Any] | None = None
        self._cancelling = 0
        self.pulled_by: asyncio.Task[Any] | None = None
        self.stop: StopReason | None = None
        self.error: RunError | None = None
        self.done: asyncio.Event = asyncio.Event()

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

    async def _end(self, error: BaseException | None) -> None:
        """Cancels what still works, closes the log, and raises what only the pulling task must see."""
        self._inside = True
        for timer in self._timers:
            timer.cancel()
        passing = self._judge(error)
        try:
            await self._clean_up()
        finally:
            try:
                # A run that nobody ever pulled did nothing, and has no log.
                tail = deque(self._closing_events() if self.pulled_by is not None else ())
                self._tail = tail if self.stop is not StopReason.CANCELLED else deque()
                if self.error is not None:
                    self.error.step, self.error.result = len(self._records), self.result()
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
        yield self._emit(RunFinish(self._referee.usage, len(self._records), self.stop, error, self.limit))

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
        )
        return result if self._given.spec is not None else msgspec.structs.replace(result, output=result.text)

    # The steps

    async def _run_steps(self) -> AsyncGenerator[Event, None]:
        agent, given = self._agent, self._given
        self._set_timers()
        yield self._emit(RunStart(agent.name, model_ref(agent.model), given.new, given.history))
        await self._prepare()
        while self.stop is None:
            yield self._emit(StepStart(len(self._records), self._referee.correction))
            stream = open_stream(agent.model, await self._request(), self._attempts.stream)
            try:
                async for event in stream:
                    if (passed := self._pass(event)) is not None:
                        yield passed
            finally:
                await close_stream(stream)
            yield self._emit(self._take_answer())
            assert self._phase is not None
            while (tool_event := await self._phase.next_event()) is not None:
                yield self._emit(tool_event)
            yield self._emit(self._close_step())
            self.stop = await self._referee.decide(self._records)

    def _set_timers(self) -> None:
        loop = asyncio.get_running_loop()
        if (seconds := self._agent.limits.seconds) is not None:
            self._timers.append(loop.call_later(seconds, self.interrupt, StopReason.BUDGET))
        if (deadline := self._attempts.start()) is not None:
            self._timers.append(loop.call_at(deadline, self.interrupt, StopReason.ERROR))

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

    async def _request(self) -> ModelRequest:
        agent, given = self._agent, self._given
        if agent.toolsets:
            tools = list(given.table.source)
            for toolset in agent.toolsets:
                tools += await toolset.tools()
            if tools != list(self._table.source):
                self._table = ToolTable(tools)
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
        refusals = self._referee.admit(finish)
        agent, given = self._agent, self._given
        settings = PhaseSettings(
            given.run_id, len(self._records), given.deps, agent.parallelism, agent.max_result_bytes
        )
        self._results = {}
        self._phase = ToolPhase(finish.message.calls, self._table.by_name, settings, self._referee.repeats, refusals)
        return finish

    def _close_step(self) -> StepFinish:
        """Files the record of the step that is going on."""
        finish = self._answer
        assert finish is not None
        record = StepRecord(
            len(self._records),
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
        return StepFinish(record.index, record.usage, record.stop)


def _is_cancelled() -> bool:
    """Whether somebody cancelled the task that runs this; a `CancelledError` alone may come from anywhere."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def _run_error(error: BaseException) -> RunError:
    failure = RunError(text_of(error) or type(error).__name__)
    failure.__cause__ = error
    return failure
