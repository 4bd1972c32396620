"""What a paused run left open, and the decisions that let it go on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from treadle._config import Resumption
from treadle.approval import Allow, Deny, Edit, Pause, call_key, place_of
from treadle.errors import ConfigError
from treadle.messages import AssistantMessage, ToolMessage
from treadle.sessions import PausedRun

if TYPE_CHECKING:
    from collections.abc import Sequence

    from treadle.approval import Decision
    from treadle.events import PendingCall
    from treadle.messages import Message, ToolCallPart, ToolResultPart
    from treadle.result import RunResult
    from treadle.sessions import SessionFold


def read_paused(
    run_id: str,
    messages: Sequence[Message],
    decisions: Mapping[str, Decision],
    paused: PausedRun | None,
) -> Resumption:
    """The step that waits at the end of `messages`. Raises `ConfigError` for decisions that do not belong to it.

    `paused` is what the paused run told of itself, where that is known.
    """
    if not isinstance(decisions, Mapping):
        raise ConfigError(f"decisions are a dictionary by call id, and are {decisions!r:.80}")
    asked, results = _last_step(messages)
    place = place_of(messages)
    calls = {index: call for index, call in enumerate(asked.calls) if index not in results and call.finished}
    if not calls:
        raise ConfigError("there is nothing to resume: every call is answered")
    told = None if paused is None else iter(paused.pending)
    for index, call in calls.items():
        if call.id not in decisions:
            raise ConfigError(f"no decision on {call.name}, call {call.id!r}: give one for every pending call")
        key = call_key(run_id, place, index, call)
        if told is not None:
            pending = next(told, None)
            if pending is None or not _same(pending, call):
                raise ConfigError(
                    f"{call.name}, call {call.id!r}, is not what was paused: its name or arguments changed"
                )
            key = pending.key or key
        _check(decisions[call.id], call, key)
    if strange := set(decisions) - {call.id for call in calls.values()}:
        raise ConfigError(f"no call {min(strange)!r} waits for a decision: it was answered, or is another run's")
    step, seq = (place, 0) if paused is None else (paused.step, paused.next_seq)
    return Resumption(asked, calls, results, dict(decisions), step, seq)


def paused_run(result: RunResult[Any]) -> PausedRun:
    """What a paused run tells by its result."""
    step = result.steps[-1].index if result.steps else place_of(result.messages)
    return PausedRun(result.id, result.pending, step, result.next_seq)


def paused_in(told: SessionFold, run_id: str | None) -> tuple[str, tuple[Message, ...], PausedRun]:
    """The run in which a session waits, as its log tells. Raises `ConfigError` where there is none, or another one."""
    messages, paused = told.messages(), told.paused
    if paused is None:
        raise ConfigError("there is nothing to resume: the last run of the session did not pause")
    if run_id not in (None, paused.run_id):
        raise ConfigError(f"the session is paused in {paused.run_id!r}, and not in the given {run_id!r:.80}")
    return paused.run_id, messages, paused


def _last_step(messages: Sequence[Message]) -> tuple[AssistantMessage, dict[int, ToolResultPart]]:
    """The last answer, and which of its calls have results."""
    end = len(messages) - 1
    given = messages[end] if messages and isinstance(messages[end], ToolMessage) else None
    asked = messages[end - 1 if given is not None else end] if messages else None
    if not isinstance(asked, AssistantMessage):
        raise ConfigError("there is nothing to resume: the messages do not end with calls of the model")
    waiting = list(given.results) if isinstance(given, ToolMessage) else []
    results: dict[int, ToolResultPart] = {}
    for index, call in enumerate(asked.calls):
        found = next((result for result in waiting if result.call_id == call.id), None)
        if found is not None:
            waiting.remove(found)
            results[index] = found
    return asked, results


def _same(pending: PendingCall, call: ToolCallPart) -> bool:
    return (pending.call_id, pending.name, pending.args) == (call.id, call.name, call.args)


def _check(decision: Decision, call: ToolCallPart, key: str) -> None:
    if not isinstance(decision, Allow | Deny | Edit | Pause):
        raise ConfigError(f"{decision!r:.80} is no decision on {call.name}: give Allow(), Deny(reason) or Edit(args)")
    if decision.key is not None and decision.key != key:
        raise ConfigError(
            f"the decision on {call.name}, call {call.id!r}, was made for another call or other arguments"
        )
