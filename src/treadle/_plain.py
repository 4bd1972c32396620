"""Signatures made of plain types, described and checked without pydantic.

Importing pydantic takes 60 to 100 ms, more than all else on the way to a model's first word, and most tools take only
text, numbers and lists of them. Their schema is made here, byte for byte as `_schema` makes it, and arguments that are
exactly of their types are taken as they are. All else is pydantic's: other types, and values that need a conversion or
an explanation.
"""

from __future__ import annotations

import math
import types
import typing
from typing import Any, Literal

from treadle._signature import EMPTY, Parameter, Signature

Schema = dict[str, Any]
_SCALARS: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean", types.NoneType: "null"}
_LARGEST = 1 << 63


def input_schema(signature: Signature) -> Schema | None:
    """The schema of a tool's arguments; None where one of them is not plain."""
    properties: Schema = {}
    for parameter in signature.parameters:
        schema = _property(parameter)
        if schema is None:
            return None
        properties[parameter.name] = schema
    result: Schema = {"type": "object", "properties": properties}
    if required := [one.name for one in signature.parameters if one.default is EMPTY]:
        result["required"] = required
    result["additionalProperties"] = False
    return result


def arguments(signature: Signature, given: dict[str, Any]) -> dict[str, Any] | None:
    """`given` with defaults filled in, where every value is exactly of its type; else None. For plain signatures."""
    values = {}
    for parameter in signature.parameters:
        if parameter.name in given:
            values[parameter.name] = value = given[parameter.name]
            if not is_exactly(parameter.annotation, value):
                return None
        elif parameter.default is EMPTY:
            return None
        else:
            values[parameter.name] = parameter.default
    return values if given.keys() <= values.keys() else None


def is_exactly(annotation: Any, value: Any) -> bool:
    """Whether a JSON value is of a plain type as it is."""
    kind = type(value)
    if annotation is Any or annotation is kind:
        return True
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        return kind is str and value in args
    if origin in (typing.Union, types.UnionType):
        return any(is_exactly(one, value) for one in args)
    if kind is list and origin is list:
        return not args or all(is_exactly(args[0], item) for item in value)
    return kind is dict and origin is dict and (not args or all(is_exactly(args[1], item) for item in value.values()))


def _property(parameter: Parameter) -> Schema | None:
    schema, default = schema_of(parameter.annotation), parameter.default
    if schema is None or not (default is EMPTY or _is_shown_as_it_is(default)):
        return None
    described = {"description": parameter.description} if parameter.description else {}
    return described | schema | ({} if default is EMPTY else {"default": default})


def _is_shown_as_it_is(default: Any) -> bool:
    if type(default) is int:
        return -_LARGEST < default < _LARGEST
    if type(default) is float:
        return math.isfinite(default)
    return default is None or type(default) is bool or (type(default) is str and default.isprintable())


def schema_of(annotation: Any) -> Schema | None:
    """The schema of one plain type; None for any other."""
    for kind, name in _SCALARS.items():
        if annotation is kind:
            return {"type": name}
    if annotation is Any:
        return {}
    origin, args = typing.get_origin(annotation) or annotation, typing.get_args(annotation)
    if origin is Literal:
        return _literal(args)
    if origin in (typing.Union, types.UnionType):
        found = [schema_of(one) for one in sorted(args, key=lambda one: one is types.NoneType)]  # null comes last
        return None if None in found or any(found.count(one) > 1 for one in found) else {"anyOf": found}
    if origin is list:
        items = schema_of(args[0]) if args else {}
        return None if items is None else {"items": items, "type": "array"}
    if origin is dict and (not args or args[0] is str):
        values = schema_of(args[1]) if args else {}
        return None if values is None else {"additionalProperties": values or True, "type": "object"}
    return None


def _literal(values: tuple[Any, ...]) -> Schema | None:
    if not all(type(value) is str for value in values) or len(set(values)) < len(values):
        return None
    allowed: Schema = {"const": values[0]} if len(values) == 1 else {"enum": list(values)}
    return allowed | {"type": "string"}
