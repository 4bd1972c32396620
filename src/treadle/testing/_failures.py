"""Exceptions as JSON data, and back."""

from __future__ import annotations

import builtins
from typing import Any

from treadle import errors
from treadle.errors import TreadleError, text_of

_TOO_GENERAL = (BaseException, Exception)


class ReplayedError(TreadleError):
    """Stands for an error of a class that a recording cannot bring back. `kind` is the name of the class."""

    def __init__(self, message: str, *, kind: str = "") -> None:
        super().__init__(message)
        self.kind: str = kind


def failure_value(error: Exception) -> dict[str, Any]:
    """The class of `error`, what it says, and its fields, so far as these are plain.

    `as` is the nearest class that can be made again, where that is not its own.
    """
    args = list(error.args) if all(map(_is_plain, error.args)) else [text_of(error)]
    fields = {name: value for name, value in vars(error).items() if not name.startswith("_") and _is_plain(value)}
    value: dict[str, Any] = {"type": _name(type(error)), "args": args, "fields": fields}
    known = next((_name(kind) for kind in type(error).__mro__ if _class_of(_name(kind)) is kind), None)
    if known is None:
        value["args"] = [text_of(error)]
    return value if known == value["type"] else value | {"as": known}


def failure_from(value: dict[str, Any]) -> Exception:
    """The exception of a `failure_value`. Only the classes of Treadle and Python are made again."""
    kind = _class_of(value.get("as", value["type"]) or "")
    args = value["args"]
    try:
        error = ReplayedError(f"{value['type']}: {args[0]}", kind=value["type"]) if kind is None else kind(*args)
    except (TypeError, ValueError):  # a class that takes other arguments than it keeps
        error = ReplayedError(f"{value['type']}: {args}", kind=value["type"])
    for name, field in value["fields"].items():
        try:
            setattr(error, name, field)
        except (AttributeError, TypeError):
            continue
    return error


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, str | bool | int | float)


def _name(kind: type[BaseException]) -> str:
    own = kind.__module__ in ("builtins", errors.__name__)
    return kind.__qualname__ if own else f"{kind.__module__}.{kind.__qualname__}"


def _class_of(name: str) -> type[Exception] | None:
    kind = getattr(errors, name, None) or getattr(builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, Exception) and kind not in _TOO_GENERAL:
        return kind
    return None
