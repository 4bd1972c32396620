"""Puts calls together: most come whole, some as arguments by JSON path, and many without an id."""

from __future__ import annotations

import hashlib
import itertools
import re
from typing import TYPE_CHECKING, Any

import msgspec

from treadle.providers._rendered import encode
from treadle.providers.google._wire import decode_any

if TYPE_CHECKING:
    from treadle.providers.google._wire import FunctionCall, PartialArg

# A step of a path: `.name`, `[3]`, `['name']` or `["name"]`.
_STEP = re.compile(r"""\.([^.\[\]]+)|\[(\d{1,6})\]|\['((?:[^'\\]|\\.)*)'\]|\["((?:[^"\\]|\\.)*)"\]""", re.ASCII)
_MAX_DEPTH = 100  # steps of a path
_MAX_GAP = 1000  # places of an array that may be left out before one that is told


class OpenCall:
    """A call. `place` is its place among the answer's calls; while it is open its arguments are still coming in."""

    __slots__ = ("_tree", "args", "id", "is_cut", "is_open", "name", "place", "signature")

    def __init__(self, place: int, call_id: str, name: str, signature: str | None) -> None:
        self.place, self.id, self.name, self.signature = place, call_id, name, signature
        self.args = ""
        self.is_open, self.is_cut = True, False
        self._tree: dict[str, Any] = {}

    def add(self, pieces: list[PartialArg]) -> None:
        for piece in pieces:
            _put(self._tree, _steps(piece.json_path), piece)

    def close(self, whole: bytes = b"", *, cut: bool = False) -> None:
        """`whole` is the arguments' own JSON where the provider gave it; absent arguments are an empty object."""
        self.is_open, self.is_cut = False, cut
        told = whole not in (b"", b"null")
        if told and not self._tree:
            self.args = whole.decode("utf-8", "replace")
            return
        base = decode_any(whole) if told else {}
        self.args = encode({**(base if isinstance(base, dict) else {}), **self._tree}).decode()


class Calls:
    """The calls of one answer. `seed` makes the invented ids of different answers differ."""

    def __init__(self) -> None:
        self.all: list[OpenCall] = []
        self.seed = ""

    @property
    def last_open(self) -> OpenCall | None:
        """The call that still waits for its last piece."""
        return self.all[-1] if self.all and self.all[-1].is_open else None

    def take(self, piece: FunctionCall, signature: str | None) -> tuple[OpenCall | None, OpenCall | None]:
        """The call that `piece` leaves unfinished before it, and the one it belongs to: a name begins another.

        A piece that says nothing and continues nothing belongs to none.
        """
        last = self.last_open
        named = bool(piece.name) and not (last is not None and piece.id and piece.id == last.id)
        call, left = last, None
        if last is None or named:
            if not (piece.name or piece.id or piece.args or piece.partial_args):
                return None, None
            call, left = OpenCall(len(self.all), self._free_id(piece.id), piece.name or "unnamed", signature), last
            self.all.append(call)
        assert call is not None
        call.signature = call.signature or signature
        call.add(piece.partial_args or [])
        if not piece.will_continue:
            call.close(bytes(piece.args))
        return left, call

    def _free_id(self, sent_id: str | None) -> str:
        """The sent id, or an invented one, made unique within the answer."""
        place = len(self.all)
        base = sent_id or invented_id("call", self.seed, place)
        taken = {other.id for other in self.all}
        found, number = base, 2
        while found in taken:
            found, number = f"{base}_{number}", number + 1
        return found


def invented_id(kind: str, seed: str, place: int) -> str:
    """An id that is the same whenever the same answer is read, and another one in every other answer."""
    return f"{kind}_{hashlib.sha256(f'{seed}/{place}'.encode()).hexdigest()[:24]}"


def _steps(path: str) -> list[str | int]:
    """`$.a[0]['b c']` as its steps."""
    steps: list[str | int] = []
    for name, index, single, double in _STEP.findall(path):
        steps.append(int(index) if index else name or re.sub(r"\\(.)", r"\1", single or double))
    return steps


def _put(tree: dict[str, Any], steps: list[str | int], piece: PartialArg) -> None:
    """Sets the value at a place, or makes the text there longer. What is in its way gives way."""
    if not steps or isinstance(steps[0], int):
        return
    if len(steps) > _MAX_DEPTH:
        raise ValueError(f"the arguments are nested {len(steps)} deep")
    place: Any = tree
    for step, following in itertools.pairwise(steps):
        inside = _get(place, step)
        kind = list if isinstance(following, int) else dict
        if type(inside) is not kind:
            inside = kind()
            _set(place, step, inside)
        place = inside
    _set(place, steps[-1], _value(piece, _get(place, steps[-1])))


def _value(piece: PartialArg, known: Any) -> Any:
    if piece.string_value is not None:
        return known + piece.string_value if isinstance(known, str) else piece.string_value
    if piece.number_value is not None:
        return piece.number_value
    return known if piece.bool_value is None and piece.null_value is msgspec.UNSET else piece.bool_value


def _get(place: Any, step: str | int) -> Any:
    if isinstance(step, int):
        return place[step] if step < len(place) else None
    return place.get(step)


def _set(place: Any, step: str | int, value: Any) -> None:
    if isinstance(step, int):
        if step - len(place) > _MAX_GAP:
            raise ValueError(f"the arguments skip to place {step} of an array")
        place += [None] * (step + 1 - len(place))
    place[step] = value
