"""Values of the vendors' own types: whatever their API may send, as JSON."""

from __future__ import annotations

import enum
import types
import typing
from typing import Any, Literal

import pydantic

# How much of a value is told: the fields it must have, all of them, or all of them with null where that is allowed.
FORMS = ("least", "most", "null")
_DEPTH = 6


def members(kind: Any) -> list[Any]:
    """The classes of a union, also of an annotated one."""
    kind = _bare(kind)
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return [member for part in typing.get_args(kind) for member in members(part)]
    return [kind]


def sample(kind: Any, form: str, depth: int = 0) -> Any:
    """A value of a type."""
    kind = _bare(kind)
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        return args[0]
    if origin in (typing.Union, types.UnionType):
        if form == "null" and type(None) in args:
            return None
        return sample(next(arg for arg in args if arg is not type(None)), form, depth)
    if origin in (list, tuple) or kind is list:
        return [sample(args[0], form, depth + 1)] if args and depth < _DEPTH else []
    if origin is dict or kind in (dict, object, Any):
        return {"a": 1}
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return next(iter(kind)).value
    if isinstance(kind, type) and issubclass(kind, pydantic.BaseModel):
        return _object(kind, form, depth)
    return {str: "x", int: 1, float: 1.5, bool: True, bytes: "eA==", type(None): None}.get(kind, "x")


def _object(kind: type[pydantic.BaseModel], form: str, depth: int) -> dict[str, Any]:
    found = {}
    for name, field in kind.model_fields.items():
        if (form != "least" or field.is_required()) and depth < _DEPTH:
            found[field.alias or name] = sample(field.annotation, form, depth + 1)
    return found


def _bare(kind: Any) -> Any:
    """Without annotations and names."""
    while True:
        if typing.get_origin(kind) is typing.Annotated:
            kind = typing.get_args(kind)[0]
        elif hasattr(kind, "__value__"):
            kind = kind.__value__
        else:
            return kind


def tag(kind: Any) -> str:
    """The `type` of a class."""
    return str(sample(kind, "least")["type"])
