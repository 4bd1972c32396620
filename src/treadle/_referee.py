"""Which calls may run, and why a run ends."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from treadle.errors import OutputError, ToolInputError
from treadle.limits import Repeats
from treadle.messages import TextPart, UserMessage, encodable
from treadle.output import ASK_FOR_TOOL, FINAL_TOOL, MAX_BAD_ANSWERS
from treadle.transcript import CUT_CALL
from treadle.usage import StopReason, Usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from treadle._budget import Budget
    from treadle._config import AgentConfig, RunInput
    from treadle.events import ModelFinish
    from treadle.messages import Message
    from treadle.result import StepRecord

MAX_CUT_STEPS = 2
_NO_TOOLS_AFTER = frozenset({StopReason.REFUSAL, StopReason.CONTEXT, StopReason.CANCELLED, StopReason.ERROR})


class Referee:
    """Keeps the counts of one run, and judges by them.

    `limit` names the limit that stopped the run, `output` is the typed answer once there is one, and `correction` what
    the model must be told before the next request.
    """

    def __init__(self, agent: AgentConfig, given: RunInput, budget: Budget) -> None:
        self._agent = agent
        self._given = given
        self._budget = budget
        self._cut_steps = 0
        self._bad_answers = 0
        self.repeats = Repeats()
        self.usage = Usage()
        self.limit: str | None = None
        self.output: Any = None
        self.correction: tuple[Message, ...] = ()

    def spend(self, usage: Usage) -> None:
        """Counts what a sub-agent used."""
        self.usage += usage

    def admit(self, finish: ModelFinish) -> dict[int, str]:
        """Counts an answer. Returns its calls that must not run, by index, with the text that answers them."""
        calls = finish.message.calls
        self.usage += finish.usage or Usage(cost_partial=True)  # not reported is unknown, and not free
        self._cut_steps = self._cut_steps + 1 if any(not call.finished for call in calls) else 0
        if finish.stop in _NO_TOOLS_AFTER:
            return dict.fromkeys(range(len(calls)), f"Not run: the answer ended with {finish.stop.value}.")
        limit, refusals = self._budget.exhausted, dict[int, str]()
        for index, call in enumerate(calls):
            if not call.finished:
                refusals[index] = CUT_CALL
            elif self._given.final_tool and call.name == FINAL_TOOL:
                continue  # the answer itself, however it comes, is no use of anything
            elif limit is not None:
                refusals[index] = f"Not run: the limit of the run on {limit} is used up."
            elif not self._budget.take_call():
                refusals[index] = "Not run: the run may make no more tool calls."
                self.limit = "tool_calls"
        return refusals

    async def decide(self, records: Sequence[StepRecord]) -> StopReason | None:
        """Why the run ends after its latest step, or None to go on. Raises `OutputError` after too many bad answers."""
        record = records[-1]
        self.correction = ()
        self.repeats.end_step()
        if record.stop in _NO_TOOLS_AFTER:
            return record.stop
        stop = _plain_end(record) if self._given.spec is None else self._typed_end(record)
        if stop is not None:
            return stop
        for condition in self._agent.stop_when:
            verdict = condition(records)
            if await verdict if inspect.isawaitable(verdict) else verdict:
                self.limit = None
                return StopReason.STOP_CONDITION
        if self._cut_steps >= MAX_CUT_STEPS:
            return StopReason.MAX_TOKENS
        return self._over_limit(len(records))

    def _over_limit(self, steps: int) -> StopReason | None:
        most = self._agent.limits.steps
        if self.limit is None:
            if self.repeats.exceeded:
                self.limit = "repeated_calls"
            elif (limit := self._budget.exhausted) is not None:
                self.limit = limit
            elif most is not None and steps >= most:
                self.limit = "steps"
                return StopReason.MAX_STEPS
        return None if self.limit is None else StopReason.BUDGET

    def _typed_end(self, record: StepRecord) -> StopReason | None:
        """`end` where the step holds a valid answer. A bad one goes back to the model, a bounded number of times."""
        if record.stop is StopReason.MAX_TOKENS and not record.calls:
            return record.stop
        try:
            answered = self._take_call(record) if record.calls else self._take_text(record.text)
        except ToolInputError as error:
            self._bad_answers += 1
            if self._bad_answers > MAX_BAD_ANSWERS:
                text = f"the model gave {self._bad_answers} answers that do not fit the output: {error}"
                raise OutputError(text) from error
            return None
        return StopReason.END if answered else None

    def _take_text(self, text: str) -> bool:
        given = self._given
        assert given.spec is not None
        try:
            self.output = given.spec.parse(text)
        except ToolInputError as error:
            fault = f"{error} {ASK_FOR_TOOL}" if given.final_tool else str(error)
            self.correction = (UserMessage((TextPart(encodable(fault)),)),)
            raise
        return True

    def _take_call(self, record: StepRecord) -> bool:
        """Whether a call of the final tool gave the answer. What is wrong with one stands in its result already."""
        spec = self._given.spec
        assert spec is not None
        faults = []
        for call, result in zip(record.calls, record.results, strict=True):
            if call.name == FINAL_TOOL and self._given.final_tool:
                if not result.is_error:
                    self.output = spec.check(spec.tool.parse(call.args))
                    return True
                faults += [result.content] if call.finished else []
        if faults:
            raise ToolInputError(faults[0])
        return False


def _plain_end(record: StepRecord) -> StopReason | None:
    if record.calls:
        return None
    return StopReason.OTHER if record.stop is StopReason.TOOL_CALLS else record.stop
