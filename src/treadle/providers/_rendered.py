"""Messages as the bytes of a request: each is encoded once and kept as long as it lives."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import msgspec

from treadle.messages import encodable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from treadle.messages import Message

_encoder = msgspec.json.Encoder()


def encode(value: Any) -> bytes:
    """JSON of plain data. What is not valid text is replaced; NaN and infinity become null."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return _encoder.encode(_mend(value))


def _mend(value: Any) -> Any:
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, dict):
        return {_mend(key): _mend(item) for key, item in value.items()}
    return [_mend(item) for item in value] if isinstance(value, list | tuple) else value


class _Entry:
    """The bytes of one message behind one other: how results are written depends on what was asked."""

    __slots__ = ("before", "data", "message")

    def __init__(self, message: weakref.ref[Message], before: weakref.ref[Message] | None, data: bytes) -> None:
        self.message, self.before, self.data = message, before, data


class RenderedMessages:
    """Keeps what `render(message, before)` gives for each message, joined as JSON, until the message dies.

    `render` returns the provider's own messages for one of ours: none, one or several.
    """

    def __init__(self, render: Callable[[Message, Message | None], Iterable[Any]]) -> None:
        self._render = render
        self._entries: dict[int, _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def join(self, messages: Sequence[Message]) -> bytes:
        """The messages as the inside of a JSON array."""
        entries, pieces, before = self._entries, [], None
        for message in messages:
            entry = entries.get(id(message))
            if entry is None or (None if entry.before is None else entry.before()) is not before:
                entry = self._add(message, before)
            if entry.data:
                pieces.append(entry.data)
            before = message
        return b",".join(pieces)

    def _add(self, message: Message, before: Message | None) -> _Entry:
        key, entries = id(message), self._entries
        data = b",".join([encode(item) for item in self._render(message, before)])

        def forget(dead: weakref.ref[Message]) -> None:
            if (entry := entries.get(key)) is not None and entry.message is dead:
                del entries[key]

        entry = _Entry(weakref.ref(message, forget), None if before is None else weakref.ref(before), data)
        entries[key] = entry
        return entry
