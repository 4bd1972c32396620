"""What a setting may be: each check gives the value as it is used, and raises `ValueError` with what it should be."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

MODES = ("ask", "auto-edit", "plan")
YOLO = "yolo"
_MOST = 10**15
_SWITCHES = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


def text(value: Any) -> str:
    """A line of text."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError("is a text")
    if not value.isprintable():
        raise ValueError("is one line without control characters")
    return value.strip()


def address(value: Any) -> str:
    """An address of the web, without credentials."""
    found = re.fullmatch(r"https?://([^\s/?#]+)\S*", text(value))
    if found is None:
        raise ValueError("is an address like http://127.0.0.1:8000/v1")
    if "@" in found[1]:
        raise ValueError("is an address without a user or a password in it")
    return found[0]


def switch(value: Any) -> bool:
    """True or false."""
    if value is not True and value is not False:
        raise ValueError("is true or false")
    return bool(value)


def count(value: Any) -> int:
    """A whole number from 1 on."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MOST:
        raise ValueError("is a whole number from 1 on")
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not -_MOST <= value <= _MOST:  # no NaN either
        raise ValueError("is a number")
    return float(value)


def positive(value: Any) -> float:
    """A number above 0."""
    if (number := _number(value)) <= 0:
        raise ValueError("is a number above 0")
    return number


def share(value: Any) -> float:
    """A number between 0 and 1."""
    if not 0 < (number := _number(value)) < 1:
        raise ValueError("is a share between 0 and 1")
    return number


def one_of(*words: str) -> Callable[[Any], str]:
    """A check for one of some words."""

    def check(value: Any) -> str:
        if value not in words:
            raise ValueError(f"is one of {', '.join(words)}")
        return str(value)

    return check


def mode(value: Any) -> str:
    """A mode that files and variables may choose."""
    if value == YOLO:
        raise ValueError("is yolo by the flag --mode yolo only, for one run at a time")
    return one_of(*MODES)(value)


def texts(value: Any) -> tuple[str, ...]:
    """A list of texts."""
    if not isinstance(value, list | tuple) or not all(isinstance(one, str) and one.strip() for one in value):
        raise ValueError("is a list of texts")
    if not all(one.isprintable() for one in value):
        raise ValueError("is a list of texts without control characters")
    return tuple(one.strip() for one in value)


def variables(value: Any) -> tuple[str, ...]:
    """A list of names of environment variables."""
    names = texts(value)
    if bad := [name for name in names if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name)]:
        raise ValueError(f"is a list of names of environment variables, and {bad[0]!r:.40} is none")
    return names


def from_text(value: Any) -> Any:
    """What the text of a variable or a flag stands for, for a check that takes no text; itself where it is none."""
    if not isinstance(value, str):
        return value
    if re.fullmatch(r"\d{1,15}", value, re.ASCII):
        return int(value)
    return float(value) if re.fullmatch(r"\d{1,15}\.\d{1,15}", value, re.ASCII) else value


def switch_from_text(value: Any) -> Any:
    """As `from_text`, of a switch."""
    return _SWITCHES.get(value.lower(), value) if isinstance(value, str) else value
