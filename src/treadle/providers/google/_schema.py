"""JSON Schema in Google's dialect of it.

The `Schema` of the Gemini API (v1, v1beta and Vertex, as of 2026-11) takes one type and `nullable`, enums of text
only, neither `const` nor `$ref`, few formats, and nothing it does not know. What it cannot say of a value is said in
the description. References are written out where they stand, and recursion is cut.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import unquote

_MAX_DEPTH = 24  # levels of a schema
_MAX_NODES = 2000  # schemas in a schema: references written out may multiply
_MAX_LAPS = 2  # how often a reference may stand inside itself
_FORMATS = frozenset({"date-time", "enum", "int32", "int64", "float", "double"})
_KEPT = {
    "string": ("minLength", "maxLength", "pattern"),
    "number": ("minimum", "maximum"),
    "integer": ("minimum", "maximum"),
    "boolean": (),
    "array": ("minItems", "maxItems"),
    "object": ("minProperties", "maxProperties"),
}
_ANYTHING: list[dict[str, Any]] = [{"type": kind} for kind in ("string", "number", "boolean", "object")]


def google_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """`schema` in the dialect. Whatever is in it, the outcome is finite and one that the API can read."""
    return _Translation(schema).node(schema, (), 0)


class _Translation:
    """One schema on its way. `laps` are the references that lead to a node."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._nodes = 0

    def node(self, given: Any, laps: tuple[str, ...], depth: int) -> dict[str, Any]:
        self._nodes += 1
        schema, laps, whole = self._resolved(given, laps, depth)
        if not whole or self._nodes > _MAX_NODES:
            return _cut(schema)
        schema, nullable = _without_null(schema)
        union = schema.get("anyOf", schema.get("oneOf"))
        if isinstance(union, list) and union and "type" not in schema:
            rest = {key: value for key, value in schema.items() if key not in ("anyOf", "oneOf")}
            found = self._union([_as_dict(branch) for branch in union], rest, laps, depth + 1)
        else:
            found = self._any_of([self._plain(kind, laps, depth) for kind in _kinds(schema)], schema)
        return {**found, "nullable": True} if nullable else found

    def _union(
        self, branches: list[dict[str, Any]], rest: dict[str, Any], laps: tuple[str, ...], depth: int
    ) -> dict[str, Any]:
        if len(branches) == 1:
            return self.node({**branches[0], **rest}, laps, depth)
        return self._any_of([self.node(branch, laps, depth) for branch in branches], rest)

    def _any_of(self, found: list[dict[str, Any]], schema: dict[str, Any]) -> dict[str, Any]:
        return found[0] if len(found) == 1 else {"anyOf": found, **_described(schema)}

    def _resolved(self, given: Any, laps: tuple[str, ...], depth: int) -> tuple[dict[str, Any], tuple[str, ...], bool]:
        """The schema with its references followed and its `allOf` joined; whether it may be looked into."""
        schema = _as_dict(given)
        while isinstance(ref := schema.get("$ref"), str):
            target, rest = self._target(ref), {key: value for key, value in schema.items() if key != "$ref"}
            schema = {**target, **rest}
            if laps.count(ref) >= _MAX_LAPS:
                return {key: value for key, value in schema.items() if key != "$ref"}, laps, False
            laps = (*laps, ref)
        if depth > _MAX_DEPTH:
            return schema, laps, False
        if isinstance(parts := schema.get("allOf"), list):
            schema = {key: value for key, value in schema.items() if key != "allOf"}
            for part in parts:
                inner, laps, whole = self._resolved(part, laps, depth + 1)
                if not whole:
                    return schema, laps, False
                schema = _joined(schema, inner)
        return schema, laps, True

    def _target(self, ref: str) -> dict[str, Any]:
        place: Any = self._root
        for step in ref.removeprefix("#").split("/")[1:]:
            key = unquote(step).replace("~1", "/").replace("~0", "~")
            place = place.get(key) if isinstance(place, dict) else None
        return _as_dict(place) if ref.startswith("#") else {}

    def _plain(self, schema: dict[str, Any], laps: tuple[str, ...], depth: int) -> dict[str, Any]:
        """A schema of one kind of value."""
        kind = _kind(schema)
        if kind is None:
            return {"anyOf": [dict(item) for item in _ANYTHING], **_described(schema)}
        found: dict[str, Any] = {"type": kind, **_described(schema, _notes(schema, kind))}
        found |= {key: schema[key] for key in _KEPT[kind] if _fits(key, schema.get(key))}
        found |= _enum(schema, kind)
        if kind == "array":
            found["items"] = self._items(schema, laps, depth)
        elif kind == "object" and isinstance(fields := schema.get("properties"), dict) and fields:
            found["properties"] = {str(name): self.node(item, laps, depth + 1) for name, item in fields.items()}
            needed = schema.get("required")
            if names := [name for name in fields if isinstance(needed, list) and name in needed]:
                found["required"] = names
        return found

    def _items(self, schema: dict[str, Any], laps: tuple[str, ...], depth: int) -> dict[str, Any]:
        """The one schema for all items. A tuple's items are any of those it names."""
        named = schema.get("prefixItems")
        items = [self.node(item, laps, depth + 1) for item in named] if isinstance(named, list) else []
        if "items" in schema and schema["items"] is not False:
            items.append(self.node(schema["items"], laps, depth + 1))
        different = [item for place, item in enumerate(items) if item not in items[:place]]
        if len(different) > 1:
            return {"anyOf": different}
        return different[0] if different else {"anyOf": [dict(item) for item in _ANYTHING]}


def _as_dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _without_null(schema: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """The schema of what is not null, with an enum for `const`; and whether null is allowed."""
    schema = dict(schema)
    nullable = schema.pop("nullable", None) is True
    if "const" in schema:
        schema["enum"] = [schema.pop("const")]
    if isinstance(schema.get("type"), str):
        schema["type"] = [schema["type"]]
    for key in ("enum", "anyOf", "oneOf", "type"):
        values = schema.get(key)
        if isinstance(values, list) and (others := [item for item in values if not _is_null(key, item)]) != values:
            nullable = True
            schema[key] = others
            if not others:  # nothing but null
                schema["type"] = ["string"]
    return schema, nullable


def _is_null(key: str, item: Any) -> bool:
    """Whether an item of an enum, of a union or of several types stands for null."""
    if key == "type":
        return bool(item == "null")
    return item is None if key == "enum" else isinstance(item, dict) and item.get("type") == "null"


def _kinds(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """A schema of one type, or several of one type each: those of its enum, if it has one, else those it names."""
    if isinstance(values := schema.get("enum"), list) and values:
        groups: dict[str, list[Any]] = {}
        for value in values:
            groups.setdefault(_kind_of_value(value), []).append(value)
        return [{**schema, "type": kind, "enum": group} for kind, group in groups.items()]
    if isinstance(kinds := schema.get("type"), list) and kinds:
        return [{**schema, "type": kind} for kind in kinds]
    return [schema]


def _kind_of_value(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    kinds = {int: "integer", float: "number", str: "string", dict: "object", list: "array"}
    return next((name for kind, name in kinds.items() if isinstance(value, kind)), "string")


def _kind(schema: dict[str, Any]) -> str | None:
    """The one type of a schema, also where it only shows in what else is said."""
    kind = schema.get("type")
    if isinstance(kind, str) and kind.lower() in _KEPT:
        return kind.lower()
    if "properties" in schema or "additionalProperties" in schema:
        return "object"
    return "array" if "items" in schema or "prefixItems" in schema else None


def _cut(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema that is not looked into any further."""
    kind = _kind(schema) or "object"
    found = {"type": kind, **_described(schema)}
    return {**found, "items": {"type": "object"}} if kind == "array" else found


def _described(schema: dict[str, Any], notes: tuple[str, ...] = ()) -> dict[str, Any]:
    given = schema.get("description")
    text = " ".join([*([given] if isinstance(given, str) and given.strip() else []), *notes])
    return {"description": text} if text else {}


def _notes(schema: dict[str, Any], kind: str) -> tuple[str, ...]:
    """What the dialect cannot say otherwise."""
    notes = []
    values = schema.get("enum")
    if isinstance(values, list) and values and "enum" not in _enum(schema, kind):
        notes.append(f"One of: {', '.join(json.dumps(value, ensure_ascii=False) for value in values)}.")
    if isinstance(form := schema.get("format"), str) and form not in _FORMATS:
        notes.append(f"Format: {form}.")
    for key, word in (("exclusiveMinimum", "Greater than"), ("exclusiveMaximum", "Less than")):
        if _fits(key, schema.get(key)):
            notes.append(f"{word} {schema[key]}.")
    return tuple(notes)


def _enum(schema: dict[str, Any], kind: str) -> dict[str, Any]:
    """The enum, where it is one of text, and the format, where it is known."""
    values, form = schema.get("enum"), schema.get("format")
    found = {"format": form} if isinstance(form, str) and form in _FORMATS else {}
    if kind == "string" and isinstance(values, list) and values and all(isinstance(v, str) and v for v in values):
        return {**found, "enum": list(dict.fromkeys(values))}
    return found


def _fits(key: str, value: Any) -> bool:
    if key == "pattern":
        return isinstance(value, str)
    whole = int if key.startswith(("min", "max")) and key not in ("minimum", "maximum") else int | float
    return isinstance(value, whole) and not isinstance(value, bool)


def _joined(one: dict[str, Any], two: dict[str, Any]) -> dict[str, Any]:
    """Both schemas as one, for `allOf`: a value must fit both."""
    joined = {**two, **one}
    for key in ("properties", "$defs"):
        if key in one and key in two:
            joined[key] = {**_as_dict(two[key]), **_as_dict(one[key])}
    if isinstance(one.get("required"), list) and isinstance(two.get("required"), list):
        joined["required"] = [*one["required"], *(name for name in two["required"] if name not in one["required"])]
    return joined
