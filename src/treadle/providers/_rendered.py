"""Messages as the bytes of a request: each is encoded once and kept as long as it lives."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import msgspec

from treadle.messages import mended

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from treadle.messages import Message


def _plain(value: Any) -> Any:
    """The agent's default limit is a kind of `int`, which msgspec does not take for one."""
    if isinstance(value, int):
        return int(value)
    raise TypeError(f"{type(value).__name__} is no JSON")


_encoder = msgspec.json.Encoder(enc_hook=_plain)


def encode(value: Any) -> bytes:
    """JSON of plain data. What is not valid text is replaced; NaN and infinity become null."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return _encoder.encode(mended(value))


def marked(message: bytes, mark: bytes) -> bytes:
    """A message whose content is in parts, with a cache mark behind the last field of the last one."""
    end = b"}]}"
    return b'%b,"cache_control":%b%b' % (message[: -len(end)], mark, end) if message.endswith(end) else message


class _Entry:
    """The bytes of one message behind one other: how results are written depends on what was asked."""

    __slots__ = ("before", "data", "message")

    def __init__(self, message: weakref.ref[Message], before: weakref.ref[Message] | None, data: bytes) -> None:
        self.message, self.before, self.data = message, before, data


class RenderedMessages:
    """Keeps the JSON of what `render(message, before)` gives for each message, until the message dies.

    `render` returns the provider's own messages for one of ours: none, one or several. A request that goes on where
    the last one with the same first message ended costs no look at the messages they share.
    """

    def __init__(self, render: Callable[[Message, Message | None], Iterable[Any]]) -> None:
        self._render = render
        self._entries: dict[int, _Entry] = {}
        # By the id of the first message: the ids and the bytes of the last request. No id in it is of a dead message.
        self._last: dict[int, tuple[tuple[int, ...], list[bytes]]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def pieces(self, messages: Sequence[Message]) -> list[bytes]:
        """JSON of each message, none of it empty: joined by commas they are the inside of an array."""
        if not messages:
            return []
        ids = tuple(map(id, messages))
        known, pieces = self._last.get(ids[0], ((), []))
        if ids[: len(known)] != known:
            known, pieces = (), []
        pieces = pieces.copy()  # another thread may be looking at the old ones
        before = messages[len(known) - 1] if known else None
        for message in messages[len(known) :]:
            entry = self._entries.get(id(message))
            if entry is None or (None if entry.before is None else entry.before()) is not before:
                entry = self._add(message, before)
            if entry.data:
                pieces.append(entry.data)
            before = message
        self._last[ids[0]] = ids, pieces
        return pieces.copy()

    def _add(self, message: Message, before: Message | None) -> _Entry:
        key, entries, last = id(message), self._entries, self._last
        data = b",".join([encode(item) for item in self._render(message, before)])

        def forget(dead: weakref.ref[Message]) -> None:
            last.clear()
            if (entry := entries.get(key)) is not None and entry.message is dead:
                del entries[key]

        entry = _Entry(weakref.ref(message, forget), None if before is None else weakref.ref(before), data)
        entries[key] = entry
        return entry
