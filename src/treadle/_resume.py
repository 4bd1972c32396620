"""What a paused run left open, and the decisions that let it go on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle._config import Resumption
from treadle.approval import Allow, Deny, Edit, Pause, call_key
from treadle.errors import ConfigError
from treadle.messages import AssistantMessage, ToolMessage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from treadle.approval import Decision
    from treadle.events import PendingCall
    from treadle.messages import Message, ToolCallPart, ToolResultPart


def read_paused(
    run_id: str,
    messages: Sequence[Message],
    decisions: Mapping[str, Decision],
    pending: Sequence[PendingCall] | None,
    seq: int,
) -> Resumption:
    """The step that waits at the end of `messages`. Raises `ConfigError` for decisions that do not belong to it."""
    asked, results = _last_step(messages)
    step = sum(isinstance(message, AssistantMessage) for message in messages) - 1
    calls = {index: call for index, call in enumerate(asked.calls) if index not in results and call.finished}
    if not calls:
        raise ConfigError("there is nothing to resume: every call is answered")
    known = None if pending is None else {call.call_id: call for call in pending}
    for index, call in calls.items():
        if call.id not in decisions:
            raise ConfigError(f"no decision on {call.name}, call {call.id!r}: give one for every pending call")
        if known is not None and not _same(known.get(call.id), call):
            raise ConfigError(f"{call.name}, call {call.id!r}, is not what was paused: its name or arguments changed")
        _check(decisions[call.id], call, call_key(run_id, step, index, call.name, call.args))
    if strange := set(decisions) - {call.id for call in calls.values()}:
        raise ConfigError(f"no call {min(strange)!r} waits for a decision: it was answered, or is another run's")
    return Resumption(asked, calls, results, dict(decisions), step, seq)


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


def _same(pending: PendingCall | None, call: ToolCallPart) -> bool:
    return pending is not None and (pending.name, pending.args) == (call.name, call.args)


def _check(decision: Decision, call: ToolCallPart, key: str) -> None:
    if not isinstance(decision, Allow | Deny | Edit | Pause):
        raise ConfigError(f"{decision!r:.80} is no decision on {call.name}: give Allow(), Deny(reason) or Edit(args)")
    if decision.key is not None and decision.key != key:
        raise ConfigError(
            f"the decision on {call.name}, call {call.id!r}, was made for another call or other arguments"
        )
