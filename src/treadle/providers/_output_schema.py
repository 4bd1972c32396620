"""Whether an output schema can be enforced strictly, and its strict form.

Strict means that the provider closes every object and writes every field (OpenAI's structured outputs, as of
2026-11). A schema that this would change in meaning is sent as it is, not strict.
"""

from __future__ import annotations

from typing import Any

_NUMBERS = {"multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minItems", "maxItems"}
_PLAIN = _NUMBERS | {"type", "title", "description", "enum", "const", "required", "additionalProperties", "$ref"}
_PLAIN |= {"format", "pattern"}
_FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})
_MAX_DEPTH = 10  # levels that strict schemas may have


class _NotStrict(Exception):
    pass


def strict_schema(schema: dict[str, Any]) -> dict[str, Any] | None:
    """The strict form of `schema`, or None where it has none."""
    if schema.get("type") != "object":
        return None
    try:
        return _strict(schema, 0)
    except _NotStrict:
        return None


def _strict(schema: Any, depth: int) -> dict[str, Any]:
    if not isinstance(schema, dict) or not schema or depth > _MAX_DEPTH:
        raise _NotStrict
    strict: dict[str, Any] = {}
    for key, value in schema.items():
        if key in ("$defs", "properties"):
            strict[key] = {name: _strict(item, depth + 1) for name, item in value.items()}
        elif key == "anyOf":
            strict[key] = [_strict(item, depth + 1) for item in value]
        elif key == "items":
            strict[key] = _strict(value, depth + 1)
        elif key in _PLAIN:
            strict[key] = value
        elif key != "default":
            raise _NotStrict
    if schema.get("format", "date") not in _FORMATS:
        raise _NotStrict
    return _closed(strict) if schema.get("type") == "object" else strict


def _closed(schema: dict[str, Any]) -> dict[str, Any]:
    """The object with every field required. A field that may be missing must be one that may be null."""
    fields: dict[str, Any] = schema.get("properties", {})
    if not fields or schema.get("additionalProperties", False) is not False:
        raise _NotStrict
    for name in set(fields) - set(schema.get("required", ())):
        kinds = [fields[name], *fields[name].get("anyOf", ())]
        if not any(kind.get("type") == "null" or "null" in _types(kind) for kind in kinds):
            raise _NotStrict
    return {**schema, "required": list(fields), "additionalProperties": False}


def _types(schema: dict[str, Any]) -> list[str]:
    kinds = schema.get("type")
    return kinds if isinstance(kinds, list) else []
