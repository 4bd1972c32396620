"""Which output schemas can be strict (B037)."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from treadle.providers._output_schema import strict_schema


class Inner(BaseModel):
    """A nested model."""

    name: str
    when: str | None


class Closed(BaseModel):
    """All of it can be said strictly."""

    inner: Inner
    many: list[Inner]
    note: str | None = None


class Free(BaseModel):
    """A free dictionary cannot."""

    inner: Inner
    meta: dict[str, Any]


class Defaulted(BaseModel):
    """An optional field that may not be null cannot, without a change of meaning."""

    count: int = 3


class Node(BaseModel):
    """Refers to itself."""

    name: str
    children: list[Node]


def objects(schema: Any) -> list[dict[str, Any]]:
    """All object schemas in a schema."""
    if isinstance(schema, list):
        return [found for item in schema for found in objects(item)]
    if not isinstance(schema, dict):
        return []
    inner = [found for item in schema.values() for found in objects(item)]
    return [schema, *inner] if schema.get("type") == "object" else inner


@pytest.mark.parametrize("kind", [Closed, Inner])
def test_a_schema_of_closed_objects_is_strict_with_every_field_required(kind: type[BaseModel]) -> None:
    strict = strict_schema(kind.model_json_schema())
    assert strict is not None
    for found in objects(strict):
        assert found["additionalProperties"] is False
        assert found["required"] == list(found["properties"])
    assert "default" not in str(strict)


@pytest.mark.parametrize("kind", [Free, Defaulted])
def test_what_strict_would_change_is_not_strict(kind: type[BaseModel]) -> None:
    assert strict_schema(kind.model_json_schema()) is None


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": {"type": "string"}},
        {"type": "object"},
        {"type": "object", "properties": {}},
        {"type": "object", "properties": {"a": {}}, "required": ["a"]},
        {"type": "object", "properties": {"a": {"oneOf": [{"type": "string"}]}}, "required": ["a"]},
        {"type": "object", "properties": {"a": {"type": "string", "format": "binary"}}, "required": ["a"]},
        {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": True},
        Node.model_json_schema(),
    ],
)
def test_what_strict_cannot_say_is_not_strict(schema: dict[str, Any]) -> None:
    assert strict_schema(schema) is None


def test_a_very_deep_schema_is_not_strict_and_no_error() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(5_000):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    assert strict_schema(schema) is None
