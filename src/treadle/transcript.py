"""Transcripts: repairing them, cutting them, and building them from an event log."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from treadle.events import (
    ModelFinish,
    ModelRetry,
    ReasoningDelta,
    RunFinish,
    RunStart,
    StepFinish,
    StepStart,
    TextDelta,
    ToolCallDelta,
    ToolFinish,
)
from treadle.messages import (
    AssistantMessage,
    AssistantPart,
    Message,
    ModelRef,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolMessage,
    ToolResultPart,
    UserMessage,
)
from treadle.usage import StopReason

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from treadle.events import Compaction, Event

_Messages = TypeVar("_Messages", tuple[Message, ...], list[Message])

MISSING_RESULT = "No result: the run was interrupted before this call was answered."
CUT_CALL = "Not run: the call was cut off before its arguments were complete. Ask for it again, whole."


def repair(messages: _Messages) -> _Messages:
    """A valid transcript with the same content: every call has one result, right behind it and in call order.

    Missing results become visible error results; results that answer no call are dropped. Results are paired within a
    step, so an id may come back in a later one. Pure, and `repair(repair(x)) == repair(x)`. A tuple gives a tuple, a
    list a list.
    """
    repaired: list[Message] = []
    waiting: list[Message] = []  # everything since the last assistant message
    asked: AssistantMessage | None = None
    for message in messages:
        if isinstance(message, AssistantMessage):
            repaired += _settle(asked, waiting)
            repaired.append(message)
            asked, waiting = message, []
        else:
            waiting.append(message)
    repaired += _settle(asked, waiting)
    if isinstance(messages, tuple):
        return tuple(repaired)
    return repaired


def _settle(asked: AssistantMessage | None, following: Sequence[Message]) -> list[Message]:
    """What follows one assistant message, with its calls answered first."""
    others: list[Message] = [message for message in following if not isinstance(message, ToolMessage)]
    if asked is None or not (calls := asked.calls):
        return others
    given = [message for message in following if isinstance(message, ToolMessage)]
    if len(given) == 1 and following[0] is given[0] and _answers(calls, given[0]):
        return [given[0], *others]
    found: defaultdict[str, list[ToolResultPart]] = defaultdict(list)
    for message in given:
        for result in message.results:
            found[result.call_id].append(result)
    results = [found[call.id].pop(0) if found[call.id] else missing_result(call) for call in calls]
    return [ToolMessage(tuple(results)), *others]


def _answers(calls: Sequence[ToolCallPart], message: ToolMessage) -> bool:
    return [call.id for call in calls] == [result.call_id for result in message.results]


def missing_result(call: ToolCallPart) -> ToolResultPart:
    """The error result of a call that nobody answered."""
    return ToolResultPart(call.id, call.name, MISSING_RESULT if call.finished else CUT_CALL, is_error=True)


def trim(messages: _Messages, keep: int) -> tuple[_Messages, _Messages]:
    """Splits a transcript into its last messages, at most `keep`, and the dropped ones before them.

    The kept ones never begin with results whose calls were dropped; both together are the transcript. A tuple gives
    tuples, a list lists.
    """
    if keep < 0:
        raise ValueError(f"keep must not be negative, and is {keep}")
    start = max(len(messages) - keep, 0)
    while start < len(messages) and isinstance(messages[start], ToolMessage):
        start += 1
    return messages[start:], messages[:start]


_SUMMARY = "Summary of the conversation so far, whose messages are left out:\n\n"


def compacted(messages: _Messages, compaction: Compaction) -> _Messages:
    """The conversation with the summary in the place of the messages that it stands for."""
    summary = UserMessage((TextPart(_SUMMARY + compaction.summary),))
    if isinstance(messages, tuple):
        return (summary, *messages[compaction.messages :])
    return [summary, *messages[compaction.messages :]]


Delta: TypeAlias = TextDelta | ReasoningDelta | ToolCallDelta


class Fold:
    """Builds a transcript from a run's events, one at a time.

    `messages` grows as steps end. `deltas` holds the fragments of an answer that is not finished; whoever feeds
    deltas may append to it directly.
    """

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.deltas: list[Delta] = []
        self._model: ModelRef | None = None
        self._results: dict[int, ToolResultPart] = {}
        self._stop = StopReason.ERROR

    def feed(self, event: Event) -> None:
        """Takes the next event of the log."""
        match event:
            case TextDelta() | ReasoningDelta() | ToolCallDelta():
                self.deltas.append(event)
            case RunStart():
                self._begin(event)
            case StepStart():
                self.messages += event.input
            case ModelFinish():
                self.deltas.clear()
                self.messages.append(event.message)
            case ModelRetry():
                self.deltas.clear()
            case ToolFinish() if not event.result.hosted:
                self._results[event.index] = event.result
            case StepFinish():
                self._take_results()
            case RunFinish():
                self._stop = event.stop

    def _begin(self, event: RunStart) -> None:
        if event.resumed:
            self._stop = StopReason.ERROR
            if event.history:  # all that the log of the paused run told; without one, it goes on
                self.messages.clear()
        self.messages += event.history
        self.messages += event.input
        self._model = event.model

    def _take_results(self) -> None:
        if not self._results:
            return
        results = [self._results[index] for index in sorted(self._results)]
        self._results = {}
        asked, earlier = self.messages[-2:] if len(self.messages) > 1 else (None, None)
        if isinstance(asked, AssistantMessage) and isinstance(earlier, ToolMessage):  # those of a step that was paused
            self.messages.pop()
            results = _in_call_order(asked.calls, [*earlier.results, *results])
        self.messages.append(ToolMessage(tuple(results)))

    def finish(self) -> tuple[Message, ...]:
        """The transcript so far as a valid next request: what was cut off is there, and marked as such.

        That of a paused run has its calls still open.
        """
        self._take_results()
        messages = list(self.messages)
        if self._stop is StopReason.PAUSED:
            return tuple(messages)
        if parts := _partial_parts(self.deltas):
            messages.append(AssistantMessage(parts, self._stop, self._model))
        return repair(tuple(messages))


def _in_call_order(calls: Sequence[ToolCallPart], results: Sequence[ToolResultPart]) -> list[ToolResultPart]:
    found: defaultdict[str, list[ToolResultPart]] = defaultdict(list)
    for result in results:
        found[result.call_id].append(result)
    return [found[call.id].pop(0) for call in calls if found[call.id]]


def fold(events: Iterable[Event]) -> tuple[Message, ...]:
    """The transcript that a log, or any beginning of one, tells: a valid next request."""
    building = Fold()
    for event in events:
        building.feed(event)
    return building.finish()


def _partial_parts(deltas: Iterable[Delta]) -> tuple[AssistantPart, ...]:
    """The parts of an answer that broke off, from its fragments."""
    pieces: dict[tuple[str, int], list[Delta]] = {}
    block, last = 0, ""
    for delta in deltas:
        kind = type(delta).__name__
        if isinstance(delta, ToolCallDelta):
            key = (kind, delta.index)
        else:
            block += kind != last
            key = (kind, block)
        last = kind
        pieces.setdefault(key, []).append(delta)
    return tuple(part for group in pieces.values() if (part := _partial_part(group)) is not None)


def _partial_part(group: Sequence[Delta]) -> AssistantPart | None:
    first = group[0]
    if isinstance(first, ToolCallDelta):
        calls = [delta for delta in group if isinstance(delta, ToolCallDelta)]
        name = next((delta.name for delta in calls if delta.name), "unnamed")
        call_id = next((delta.call_id for delta in calls if delta.call_id), f"call_{first.index}")
        return ToolCallPart(call_id, name, "".join(delta.args for delta in calls), finished=False)
    text = "".join(delta.text for delta in group if not isinstance(delta, ToolCallDelta))
    if not text:
        return None
    return TextPart(text) if isinstance(first, TextDelta) else ReasoningPart(text)
