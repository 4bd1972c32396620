"""Mends arguments where the schema makes the meaning certain.

Two habits of models are known: JSON inside a string where something else than a string is wanted, and null for a
field that may be absent. Both are mended only at a place that failed, and only where the schema has no other reading.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

Schema = dict[str, Any]
Path = tuple[str | int, ...]


def kind(value: Any) -> str:
    """The JSON Schema type of a decoded value; a number without fraction is an `integer`."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return "integer"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def admits(schemas: list[Schema], value: Any) -> bool:
    """Whether one of `schemas` takes values of this kind. A schema that names no type takes all."""
    return any(_admits(schema, kind(value)) for schema in schemas)


def takes(schema: Schema, path: Path, value: Any) -> bool:
    """Whether the schema takes a value of this kind at `path`, also where it says nothing of that place."""
    wanted = _at(schema, path)
    return not wanted or admits(wanted, value)


def locate(value: Any, labels: Sequence[Any]) -> Path:
    """The path of a fault without the labels of union members that pydantic puts between the keys."""
    path: list[str | int] = []
    for label in labels:
        if isinstance(value, dict | list):
            with contextlib.suppress(LookupError, TypeError):  # a label, and no step in the value
                value = value[label]
                path.append(label)
    return tuple(path)


def mend(given: dict[str, Any], path: Path, schema: Schema) -> bool:
    """Mends what stands at `path` in `given`, in place. Says whether anything changed."""
    container: Any = given
    for key in path[:-1]:
        container = container[key]
    key, value = path[-1], container[path[-1]]
    if takes(schema, path, value):
        return False
    wanted = _at(schema, path)
    if isinstance(value, str):
        decoded = _decoded(value)
        if isinstance(decoded, str) or not admits(wanted, decoded):
            return False
        container[key] = decoded
        return True
    if value is None and isinstance(container, dict) and _may_be_absent(schema, path):
        del container[key]
        return True
    return False


def _decoded(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return text


def _admits(schema: Schema, found: str) -> bool:
    if "const" in schema or "enum" in schema:
        kinds = {kind(value) for value in schema.get("enum", [schema.get("const")])}
    elif "type" in schema:
        kinds = {schema["type"]} if isinstance(schema["type"], str) else set(schema["type"])
    else:
        return True
    return found in kinds or (found == "integer" and "number" in kinds)


def _may_be_absent(schema: Schema, path: Path) -> bool:
    objects = [one for one in _at(schema, path[:-1]) if "properties" in one]
    return bool(objects) and all(
        path[-1] in one["properties"] and path[-1] not in one.get("required", ()) for one in objects
    )


def _at(schema: Schema, path: Path) -> list[Schema]:
    """What the schema says of the place at `path`: several readings where it has unions, none where it is silent."""
    level = _readings(schema, schema)
    for key in path:
        level = [reading for one in level for reading in _readings(_below(one, key), schema)]
    return level


def _readings(schema: Any, root: Schema) -> list[Schema]:
    """`schema` with references followed and unions taken apart."""
    found, waiting, seen = [], [schema], set()
    while waiting:
        one = waiting.pop()
        if not isinstance(one, dict) or id(one) in seen:
            continue
        seen.add(id(one))
        parts = [part for word in ("anyOf", "oneOf", "allOf") for part in one.get(word, ())]
        if "$ref" in one:
            parts.append(root.get("$defs", {}).get(one["$ref"].removeprefix("#/$defs/")))
        waiting += parts
        if not parts:
            found.append(one)
    return found


def _below(schema: Schema, key: str | int) -> Any:
    if isinstance(key, str):
        return schema.get("properties", {}).get(key, schema.get("additionalProperties"))
    first = schema.get("prefixItems", ())
    return first[key] if key < len(first) else schema.get("items")
