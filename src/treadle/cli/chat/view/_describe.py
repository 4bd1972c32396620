"""Words for calls, amounts and times."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from treadle.cli.calls import COMMAND
from treadle.cli.terminal import LONGEST, one_line

if TYPE_CHECKING:
    from treadle.cli.chat.view._cells import Line

_PARSED = 200_000  # characters of arguments; of more only the beginning is looked at
_LONG = 60  # characters of one argument among others
_FIRST = ("command", "path", "file", "pattern", "query", "url", "prompt", "name")


def named(name: str, args: str, *, hosted: bool = False) -> Line:
    """A call in a line: a command as it would be typed, of others the name and the arguments in short."""
    given = arguments(args)
    if name == COMMAND and given is not None and isinstance(given.get("command"), str):
        return [("dim", "$ "), ("tool", one_line(given["command"], LONGEST))]
    rest = one_line(args) if given is None else one_line(_brief(given), LONGEST)
    return [
        ("tool", one_line(name)),
        *([("dim", " (hosted)")] if hosted else []),
        *([("", f" {rest}")] if rest else []),
    ]


def arguments(args: str, most: int = _PARSED) -> dict[str, Any] | None:
    """The arguments of a call, if they are such and no longer than `most`."""
    if len(args) > most:
        return None
    try:
        given = json.loads(args or "{}")
    except (ValueError, RecursionError):
        return None
    return given if isinstance(given, dict) else None


def _brief(given: dict[str, Any]) -> str:
    """What a call is about comes first, without its name."""
    first = next((name for name in _FIRST if isinstance(given.get(name), str)), None)
    others = [f"{name}={_value(value)}" for name, value in given.items() if name != first]
    return " ".join([*([one_line(given[first])] if first is not None else []), *others])


def _value(value: Any) -> str:
    if isinstance(value, str) and "\n" in value.strip("\n"):
        return f"({lines_of(value)})"
    if isinstance(value, list | dict) and value:
        return f"({counted(len(value), 'item')})"
    return one_line(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), _LONG)


def lines_of(text: str) -> str:
    """How many lines a text has, in words."""
    return counted(text.count("\n") + (text != "" and not text.endswith("\n")), "line")


def counted(number: int, word: str) -> str:
    """A number and what it counts."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """A time in words that stay short."""
    if seconds < 9.95:
        return f"{max(0.0, seconds):.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def amount(number: int) -> str:
    """A count of tokens or characters in few signs."""
    if number < 1000:
        return str(number)
    if number < 999_500:
        return f"{number / 1000:.{0 if number >= 99_950 else 1}f}k"
    return f"{number / 1_000_000:.1f}M"
