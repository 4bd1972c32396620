"""Looking at what a model yielded and at what it sent."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from treadle.events import ModelFinish, ModelRetry, ReasoningDelta, TextDelta, ToolCallDelta, ToolFinish, ToolStart
from treadle.messages import ReasoningPart, ToolCallPart, ToolResultPart
from treadle.usage import StopReason, Usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from treadle.events import ModelEvent

_Event = TypeVar("_Event")
_KINDS = (TextDelta, ReasoningDelta, ToolCallDelta, ModelRetry, ModelFinish, ToolStart, ToolFinish)


def only(events: Iterable[object], kind: type[_Event]) -> list[_Event]:
    """The events of one kind."""
    return [event for event in events if isinstance(event, kind)]


def whole(events: Sequence[ModelEvent]) -> ModelFinish:
    """The end of an answer, checked against all that came before it: the rules of the model seam."""
    assert events, "the model yielded nothing: an answer ends with one ModelFinish"
    strangers = [event for event in events if not isinstance(event, _KINDS)]
    assert not strangers, f"a model may not yield {strangers[0]!r:.200}"
    finishes = only(events, ModelFinish)
    assert len(finishes) == 1, f"an answer has exactly one ModelFinish, and this one has {len(finishes)}"
    finish = events[-1]
    assert isinstance(finish, ModelFinish), f"nothing follows the ModelFinish, but here came {events[-1]!r:.200}"
    assert isinstance(finish.stop, StopReason)
    assert finish.usage is None or isinstance(finish.usage, Usage)
    _compare_texts(events, finish)
    _compare_calls(events, finish)
    _compare_hosted(events, finish)
    return finish


def _compare_texts(events: Sequence[ModelEvent], finish: ModelFinish) -> None:
    told = "".join([event.text for event in only(events, TextDelta)])
    assert told == finish.message.text, "the text deltas joined are the text of the message"
    told = "".join([event.text for event in only(events, ReasoningDelta)])
    thought = "".join([part.text for part in only(finish.message.content, ReasoningPart)])
    assert told == thought, "the reasoning deltas joined are the reasoning of the message"


def _compare_calls(events: Sequence[ModelEvent], finish: ModelFinish) -> None:
    calls = finish.message.calls
    ids = [call.id for call in calls]
    assert all(ids), "each call has an id: invent one where the provider sends none"
    assert all(call.name for call in calls), "each call has a name"
    assert len(set(ids)) == len(ids), f"two calls of one answer have the same id: {ids}"
    deltas = only(events, ToolCallDelta)
    places = {event.index for event in deltas}
    assert places <= set(range(len(calls))), f"there are deltas of calls {places} and {len(calls)} calls"
    for index, call in enumerate(calls):
        told = [event for event in deltas if event.index == index]
        if told:
            assert "".join([event.args for event in told]) == call.args, "the deltas of a call joined are its arguments"
            assert {(event.call_id, event.name) for event in told} == {(call.id, call.name)}


def _compare_hosted(events: Sequence[ModelEvent], finish: ModelFinish) -> None:
    parts = [part for part in only(finish.message.content, ToolCallPart) if part.hosted]
    starts = only(events, ToolStart)
    assert all(event.hosted for event in starts), "a model starts no tool but hosted ones"
    told = [(event.call_id, event.name, event.args) for event in starts]
    assert told == [(part.id, part.name, part.args) for part in parts], "hosted calls are the same in events and parts"
    results = only(finish.message.content, ToolResultPart)
    assert all(part.hosted for part in results), "a model gives no results but those of hosted calls"
    assert [event.result for event in only(events, ToolFinish)] == results, "hosted results are the same in both"


def nodes(body: bytes) -> list[Any]:
    """Every value in a JSON body, however deep. A body of another sort is one text."""
    try:
        value = json.loads(body.decode())
    except UnicodeDecodeError as error:
        raise AssertionError(f"the request is not valid UTF-8: {error}") from error
    except ValueError:
        return [body.decode()]
    return list(_nodes(value))


def _nodes(value: Any) -> Iterator[Any]:
    yield value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _nodes(item)


def carries(body: bytes, text: str) -> bool:
    """Whether some string of a request holds `text`."""
    return any(text in node for node in nodes(body) if isinstance(node, str))


def carries_value(body: bytes, value: Any) -> bool:
    """Whether a request holds a JSON value, as it is or as the text of one."""
    return any(node == value or (isinstance(node, str) and _parsed(node) == value) for node in nodes(body))


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def why_not_extended(before: bytes, after: bytes) -> str | None:
    """What of `before` did not stay, byte for byte, in the request `after`; None where all did.

    Both are JSON. Objects keep their keys in order. Lists, and what stands last in them, may only grow at the end.
    Every other value stays as it was.
    """
    return _difference(before, after, "")


def _difference(before: bytes, after: bytes, path: str) -> str | None:
    if before == after:
        return None
    if before[:1] == after[:1] == b"{":
        old, new = _fields(before), _fields(after)
        if list(old) != list(new):
            return f"the keys of {path or 'the body'} were {list(old)} and are {list(new)}"
        found = (_difference(value, new[key], f"{path}.{key}") for key, value in old.items())
        return next((text for text in found if text is not None), None)
    if before[:1] == after[:1] == b"[":
        return _list_difference(_items(before), _items(after), path)
    return f"{path} was {before[:200]!r} and is {after[:200]!r}"


def _list_difference(before: list[bytes], after: list[bytes], path: str) -> str | None:
    if len(before) > len(after):
        return f"{path} had {len(before)} items and has {len(after)}"
    for at, (old, new) in enumerate(zip(before, after, strict=False)):
        if old != new:
            is_last = at == len(before) - 1
            return _difference(old, new, f"{path}[{at}]") if is_last else f"{path}[{at}] was {old!r} and is {new!r}"
    return None


def _fields(data: bytes) -> dict[str, bytes]:
    return {key: bytes(value) for key, value in msgspec.json.decode(data, type=dict[str, msgspec.Raw]).items()}


def _items(data: bytes) -> list[bytes]:
    return [bytes(value) for value in msgspec.json.decode(data, type=list[msgspec.Raw])]
