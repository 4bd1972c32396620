"""Puts streamed reasoning blocks together (OpenRouter's `reasoning_details`): they come in pieces and go back whole."""

from __future__ import annotations

from typing import Any


class Details:
    """The blocks of one answer, in their order. Type and index say to which one a piece belongs."""

    __slots__ = ("_blocks", "_places", "_texts")

    def __init__(self) -> None:
        self._blocks: list[dict[str, Any]] = []
        self._places: dict[str, dict[str, Any]] = {}
        self._texts: dict[tuple[int, str], list[str]] = {}  # by block and field: joined once, at the end

    def __bool__(self) -> bool:
        return bool(self._blocks)

    def add(self, piece: dict[str, Any], *, whole: bool) -> None:
        """A piece of a block, or a `whole` one, which stays as it is."""
        if whole:
            self._blocks.append(piece)
            return
        place = f"{piece.get('type')}/{piece.get('index')}"
        known = self._places.get(place)
        if known is None or _begins_another(known, piece):
            self._places[place] = dict(piece)
            self._blocks.append(self._places[place])
            return
        for key, value in piece.items():
            if key in ("text", "summary") and isinstance(value, str) and isinstance(known.get(key), str):
                self._texts.setdefault((id(known), key), [known[key]]).append(value)
            elif value is not None:
                known[key] = value

    def whole(self) -> list[dict[str, Any]]:
        """All blocks, as they go back."""
        for block in self._blocks:
            for key in ("text", "summary"):
                if (pieces := self._texts.get((id(block), key))) is not None:
                    block[key] = "".join(pieces)
        return self._blocks


def _begins_another(known: dict[str, Any], piece: dict[str, Any]) -> bool:
    """Whether a piece at the place of a known block is none of it: another id, or more behind what closes a block."""
    if known.get("id") and piece.get("id") and known["id"] != piece["id"]:
        return True
    return bool((known.get("signature") or known.get("data")) and (piece.get("text") or piece.get("data")))
