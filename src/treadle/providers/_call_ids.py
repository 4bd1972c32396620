"""Ids of calls for servers that want no two equal in a whole conversation."""

from __future__ import annotations

import hashlib
import weakref
from typing import TYPE_CHECKING

from treadle.messages import encodable

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable

    from treadle.messages import Message


class _Place:
    """How deep in its conversation a message stands, and which call id was first used how deep."""

    __slots__ = ("depth", "first_uses", "message")

    def __init__(self, message: weakref.ref[Message], depth: int, first_uses: dict[str, int]) -> None:
        self.message, self.depth, self.first_uses = message, depth, first_uses


class CallIds:
    """The ids of one model's calls. One that is not `legal`, or came up earlier, is replaced by one with `prefix`."""

    def __init__(self, legal: re.Pattern[str], prefix: str) -> None:
        self._legal, self._prefix = legal, prefix
        self._places: dict[int, _Place] = {}

    def enter(self, message: Message, before: Message | None) -> None:
        """Remembers where a message stands. It keeps its place: its results find the same ids later."""
        key, places = id(message), self._places
        if key in places:
            return
        last = None if before is None else places.get(id(before))

        def forget(dead: weakref.ref[Message]) -> None:
            if (place := places.get(key)) is not None and place.message is dead:
                del places[key]

        depth, first_uses = (0, {}) if last is None else (last.depth + 1, last.first_uses)
        places[key] = _Place(weakref.ref(message, forget), depth, first_uses)

    def of(self, message: Message, call_ids: Iterable[str]) -> list[str]:
        """The ids of an answer's calls as they go out. The results of these calls ask again, and get the same ones."""
        place, ids = self._places.get(id(message)), list[str]()
        depth, first_uses = (0, dict[str, int]()) if place is None else (place.depth, place.first_uses)
        for number, call_id in enumerate(call_ids):
            found = call_id
            if not self._legal.fullmatch(call_id) or call_id in ids or first_uses.setdefault(call_id, depth) != depth:
                salted = encodable(f"{depth}/{number}/{call_id}")
                found = f"{self._prefix}{hashlib.sha256(salted.encode()).hexdigest()[:24]}"
            ids.append(found)
        return ids
