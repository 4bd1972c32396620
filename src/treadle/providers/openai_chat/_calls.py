"""Puts streamed tool calls together, from servers that disagree on how a call is cut into pieces.

Some give every parallel call the index 0, some leave the index out or let it wander, some repeat id or name in every
piece, some send them in pieces of their own, some send no id at all. No piece is ever dropped.
"""

from __future__ import annotations

import hashlib
from typing import Any

from treadle.providers._arguments import is_object


class OpenCall:
    """A call whose arguments are still coming in. `place` is its place among the answer's calls."""

    __slots__ = ("args", "extra", "id", "index", "name", "place", "sent_id")

    def __init__(self, place: int, index: int | None) -> None:
        self.place, self.index = place, index
        self.id = self.name = self.sent_id = ""
        self.args: list[str] = []
        self.extra: Any = None

    @property
    def complete(self) -> bool:
        """Whether the arguments so far are a whole JSON object."""
        return is_object("".join(self.args))


class CallPieces:
    """The calls of one answer. `seed` makes the invented ids of different answers differ."""

    def __init__(self) -> None:
        self.calls: list[OpenCall] = []
        self.seed = ""

    def take(self, index: int | None, sent_id: str, name: str, args: str) -> OpenCall:
        """The call that a piece belongs to, with the piece added."""
        call = self._find(index, sent_id, name, args)
        if call is None:
            call = OpenCall(len(self.calls), index)
            self.calls.append(call)
        if not call.id or (sent_id and not call.sent_id):
            call.sent_id = sent_id
            call.id = self._free_id(sent_id, call)
        if name and call.name != name:
            call.name += name
        if args:
            call.args.append(args)
        return call

    def _find(self, index: int | None, sent_id: str, name: str, args: str) -> OpenCall | None:
        known = self._by_id(sent_id, index) if sent_id else None
        if known is not None:
            moved = None not in (index, known.index) and index != known.index
            if name and (
                (moved and name != known.name) or ((moved or args.lstrip().startswith("{")) and known.complete)
            ):
                return None
            return known
        call = self._by_index(index, name or sent_id)
        if call is None or (sent_id and call.sent_id) or (name and _begins_another(call, index, name, args)):
            return None
        return call

    def _by_id(self, sent_id: str, index: int | None) -> OpenCall | None:
        same = [call for call in self.calls if call.sent_id == sent_id]
        return next((call for call in same if call.index == index), same[-1] if same else None)

    def _by_index(self, index: int | None, named: str) -> OpenCall | None:
        """The open call that `index` points to. A piece that names nothing belongs to the last one in any case."""
        found = None
        if index is not None:
            found = next((call for call in reversed(self.calls) if call.index == index), None)
        if found is None and self.calls and (index is None or not named):
            found = self.calls[-1]
        return found

    def _free_id(self, sent_id: str, call: OpenCall) -> str:
        """The sent id, or an invented one, made unique within the answer."""
        base = sent_id or f"call_{hashlib.sha256(f'{self.seed}/{call.place}'.encode()).hexdigest()[:24]}"
        taken = {other.id for other in self.calls if other is not call}
        found, number = base, 2
        while found in taken:
            found, number = f"{base}_{number}", number + 1
        return found


def _begins_another(call: OpenCall, index: int | None, name: str, args: str) -> bool:
    """Whether a piece with a name and without a known id is a call of its own, and not more of `call`."""
    if name != call.name and call.name and (call.args or index is None):
        return True
    return args.lstrip().startswith("{") and call.complete  # looked at only then: it reads all arguments so far
