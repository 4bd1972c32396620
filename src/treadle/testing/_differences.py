"""Where two requests differ, told in few words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from treadle.testing._secrets import MARK

if TYPE_CHECKING:
    from collections.abc import Iterator

_SHOWN_CHARACTERS = 100
_BEFORE = 20  # characters shown before the first that differs
_MISSING: Any = object()


def fits(recorded: Any, now: Any) -> bool:
    """Whether `now` is what was recorded. What is masked in the recording may be any text."""
    if isinstance(recorded, str) and isinstance(now, str):
        return recorded == now or (MARK in recorded and _fits_text(recorded.split(MARK), now))
    if recorded is now:
        return True
    if isinstance(recorded, dict) and isinstance(now, dict):
        return recorded.keys() == now.keys() and all(fits(value, now[key]) for key, value in recorded.items())
    if isinstance(recorded, list) and isinstance(now, list):
        return len(recorded) == len(now) and all(map(fits, recorded, now))
    return bool(recorded == now) and isinstance(recorded, bool) == isinstance(now, bool)


def _fits_text(pieces: list[str], text: str) -> bool:
    first, *middle, last = pieces
    if len(text) < len(first) + len(last) or not (text.startswith(first) and text.endswith(last)):
        return False
    at, end = len(first), len(text) - len(last)
    for piece in middle:
        if (found := text.find(piece, at, end)) < 0:
            return False
        at = found + len(piece)
    return True


def differences(recorded: Any, now: Any, path: str = "") -> Iterator[str]:
    """One line for each place where they differ: its path, what was recorded, what is there now."""
    if fits(recorded, now):
        return
    if isinstance(recorded, dict) and isinstance(now, dict) and _are_alike(recorded, now):
        for key in [*recorded, *(key for key in now if key not in recorded)]:
            below = f"{path}.{key}" if path else key
            yield from differences(recorded.get(key, _MISSING), now.get(key, _MISSING), below)
    elif isinstance(recorded, list) and isinstance(now, list):
        yield from _in_lists(recorded, now, path)
    elif recorded is _MISSING:
        yield f"{path}: not recorded, now {_shown(now)}"
    elif now is _MISSING:
        yield f"{path}: recorded {_shown(recorded)}, now missing"
    else:
        start = _first_difference(recorded, now) if isinstance(recorded, str) and isinstance(now, str) else 0
        yield f"{path}: recorded {_shown(recorded, start)}, now {_shown(now, start)}"


def _are_alike(recorded: dict[str, Any], now: dict[str, Any]) -> bool:
    """False for two kinds of part: a call in the place of a text is one change."""
    return recorded.keys() == now.keys() or recorded.get("type") == now.get("type")


def _in_lists(recorded: list[Any], now: list[Any], path: str) -> Iterator[str]:
    before, after = _by_name(recorded), _by_name(now)
    if before is None or after is None:
        before = {_place(index, item): item for index, item in enumerate(recorded)}
        after = {_place(index, item): item for index, item in enumerate(now)}
    elif before.keys() == after.keys() and [*before] != [*after]:
        yield f"{path}: recorded in the order {', '.join(before)}, now {', '.join(after)}"
    for place in [*before, *(place for place in after if place not in before)]:
        yield from differences(before.get(place, _MISSING), after.get(place, _MISSING), f"{path}[{place}]")


def _by_name(items: list[Any]) -> dict[str, Any] | None:
    """Tools and servers by their names; None for lists of anything else."""
    found: dict[str, Any] = {}
    for item in items:
        function = item.get("function", item) if isinstance(item, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        if not isinstance(name, str) or name in found:
            return None
        found[name] = item
    return found


def _place(index: int, item: Any) -> str:
    """Messages are told with their role: `0 user`."""
    role = item.get("role") if isinstance(item, dict) else None
    return f"{index} {role}" if isinstance(role, str) else str(index)


def _first_difference(one: str, two: str) -> int:
    pairs = zip(one, two, strict=False)
    return next((index for index, (a, b) in enumerate(pairs) if a != b), min(len(one), len(two)))


def _shown(value: Any, start: int = 0) -> str:
    """A value, cut to what matters: text from shortly before `start`."""
    if not isinstance(value, str):
        text = repr(value)
        return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
    begin = 0 if start < _SHOWN_CHARACTERS // 2 else start - _BEFORE
    end = begin + _SHOWN_CHARACTERS
    return f"{'...' if begin else ''}{value[begin:end]!r}{'...' if len(value) > end else ''}"
