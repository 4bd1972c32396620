"""The schema of an answer in the form that the Messages API enforces (structured outputs, as of 2026-11).

It takes a part of JSON Schema, closes every object, and refuses recursion. Limits that it does not know stand in the
descriptions instead; they are checked when the answer is read.
"""

from __future__ import annotations

from typing import Any

from treadle.providers._rendered import encode

_PLAIN = frozenset({"type", "title", "enum", "const", "required", "default"})
_NESTED_LISTS = {"anyOf": "anyOf", "oneOf": "anyOf", "allOf": "allOf"}
_TOLD = frozenset(
    {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength"}
    | {"pattern", "format", "minItems", "maxItems", "uniqueItems", "examples"}
)
_DROPPED = frozenset({"discriminator", "deprecated", "readOnly", "writeOnly", "$schema"})
_FORMATS = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"}
)  # fmt: skip
_MAX_DEPTH = 50


class _NotSupported(Exception):
    pass


def output_format(schema: dict[str, Any]) -> dict[str, Any] | None:
    """What `output_config.format` takes, or None for a schema that it cannot hold."""
    try:
        return {"type": "json_schema", "schema": _Writer(schema).write(schema)}
    except _NotSupported:
        return None


class _Writer:
    def __init__(self, root: dict[str, Any]) -> None:
        self._definitions: dict[str, Any] = root.get("$defs", {})
        self._inside: list[str] = []

    def write(self, schema: Any) -> dict[str, Any]:
        if not isinstance(schema, dict) or not schema or len(self._inside) > _MAX_DEPTH:
            raise _NotSupported
        if isinstance(name := schema.get("$ref"), str):
            self._follow(name)
        written: dict[str, Any] = {}
        told: list[str] = []
        for key, value in schema.items():
            if key in ("$defs", "properties"):
                written[key] = {name: self.write(item) for name, item in value.items()}
            elif key in _NESTED_LISTS:
                written[_NESTED_LISTS[key]] = [self.write(item) for item in value]
            elif key == "items":
                written[key] = self.write(value)
            elif key in _PLAIN or key == "$ref" or _is_taken(key, value):
                written[key] = value
            elif key in _TOLD:
                told.append(f"{key}: {encode(value).decode()}")
            elif key not in (*_DROPPED, "description", "additionalProperties"):
                raise _NotSupported
        return _closed(schema, _described(schema, written, told))

    def _follow(self, reference: str) -> None:
        """Looks into a definition, for recursion only: it is written where it stands."""
        name = reference.removeprefix("#/$defs/")
        if name in self._inside or name not in self._definitions:
            raise _NotSupported
        self._inside.append(name)
        self.write(self._definitions[name])
        self._inside.pop()


def _is_taken(key: str, value: Any) -> bool:
    return (key == "format" and value in _FORMATS) or (key == "minItems" and value in (0, 1))


def _described(schema: dict[str, Any], written: dict[str, Any], told: list[str]) -> dict[str, Any]:
    texts = [schema["description"]] if schema.get("description") else []
    texts += [f"({', '.join(told)})"] if told else []
    return {**written, "description": " ".join(texts)} if texts else written


def _closed(schema: dict[str, Any], written: dict[str, Any]) -> dict[str, Any]:
    """An object without other keys than its own. One that is meant to have others has no such form."""
    if schema.get("additionalProperties", False) is not False:
        raise _NotSupported
    if schema.get("type") == "object":
        if "properties" not in schema:
            raise _NotSupported
        return {**written, "additionalProperties": False}
    return written
