"""JSON Schema in Google's dialect: one type, text enums, no references; checked by the vendor's own `Schema`."""

from __future__ import annotations

import datetime as dt
import json
from enum import Enum
from typing import Any, Literal

import pytest
from google.genai import types as genai_types
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from treadle.providers.google._schema import google_schema

ANYTHING = [{"type": kind} for kind in ("string", "number", "boolean", "object")]
SPARE = {"title", "default", "$schema", "additionalProperties"}


def assert_legal(schema: dict[str, Any]) -> None:
    """What the API takes: the vendor's model of it, and the rules that the model does not know."""
    genai_types.Schema.model_validate(schema)
    check(schema)


def check(schema: dict[str, Any]) -> None:
    known = {"type", "anyOf", "nullable", "description", "enum", "format", "items", "properties", "required"}
    known |= {"minimum", "maximum", "minItems", "maxItems", "minLength", "maxLength", "pattern"}
    assert set(schema) <= known | {"minProperties", "maxProperties"}
    assert ("type" in schema) != ("anyOf" in schema)
    assert schema.get("type", "string") in ("string", "number", "integer", "boolean", "array", "object")
    assert ("items" in schema) == (schema.get("type") == "array")
    assert schema.get("nullable", True) is True
    if "enum" in schema:
        assert schema["type"] == "string"
        assert all(isinstance(value, str) and value for value in schema["enum"])
    assert set(schema.get("required", ())) <= set(schema.get("properties", ()))
    for inner in [*schema.get("anyOf", ()), *schema.get("properties", {}).values()]:
        check(inner)
    if "items" in schema:
        check(schema["items"])


def translated(schema: dict[str, Any]) -> dict[str, Any]:
    before = json.dumps(schema)
    found = google_schema(schema)
    assert json.dumps(schema) == before
    assert_legal(found)
    return found


@pytest.mark.parametrize(
    ("given_schema", "expected"),
    [
        ({"type": "string", "title": "X", "default": "a"}, {"type": "string"}),
        ({"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}, {"type": "string", "nullable": True}),
        ({"type": ["string", "null"]}, {"type": "string", "nullable": True}),
        ({"type": ["string", "integer"]}, {"anyOf": [{"type": "string"}, {"type": "integer"}]}),
        ({"type": "null"}, {"type": "string", "nullable": True}),
        ({"enum": ["a", "b"]}, {"type": "string", "enum": ["a", "b"]}),
        ({"type": "string", "enum": ["a", None]}, {"type": "string", "enum": ["a"], "nullable": True}),
        ({"enum": [1, 2], "type": "integer"}, {"type": "integer", "description": "One of: 1, 2."}),
        ({"enum": [1, 2], "description": "How."}, {"type": "integer", "description": "How. One of: 1, 2."}),
        ({"const": "a"}, {"type": "string", "enum": ["a"]}),
        ({"const": 3, "type": "integer"}, {"type": "integer", "description": "One of: 3."}),
        ({"const": None}, {"type": "string", "nullable": True}),
        ({"enum": ["null", "a"]}, {"type": "string", "enum": ["null", "a"]}),
        ({"enum": ["", "a"]}, {"type": "string", "description": 'One of: "", "a".'}),
        (
            {"enum": ["a", 1]},
            {"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "integer", "description": "One of: 1."}]},
        ),
        ({"type": "array"}, {"type": "array", "items": {"anyOf": ANYTHING}}),
        ({"type": "array", "items": {}}, {"type": "array", "items": {"anyOf": ANYTHING}}),
        ({"type": "array", "items": True}, {"type": "array", "items": {"anyOf": ANYTHING}}),
        (
            {"prefixItems": [{"type": "string"}, {"type": "integer"}, {"type": "string"}], "maxItems": 3},
            {"type": "array", "maxItems": 3, "items": {"anyOf": [{"type": "string"}, {"type": "integer"}]}},
        ),
        ({"type": "string", "format": "date-time"}, {"type": "string", "format": "date-time"}),
        ({"type": "string", "format": "uri"}, {"type": "string", "description": "Format: uri."}),
        (
            {"type": "integer", "exclusiveMinimum": 0, "maximum": 9},
            {"type": "integer", "description": "Greater than 0.", "maximum": 9},
        ),
        ({}, {"anyOf": ANYTHING}),
        ({"additionalProperties": {"type": "integer"}}, {"type": "object"}),
        (
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a", "b"]},
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
        ),
        (
            {"allOf": [{"properties": {"a": {"type": "string"}}}, {"properties": {"b": {"type": "string"}}}]},
            {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}},
        ),
        (
            {"type": "object", "properties": {"a": {"type": "string"}}, "anyOf": [{"required": ["a"]}]},
            {"type": "object", "properties": {"a": {"type": "string"}}},
        ),
        ({"$ref": "#/$defs/X", "$defs": {"X": {"type": "integer"}}}, {"type": "integer"}),
        ({"$ref": "#/$defs/a~1b%20c", "$defs": {"a/b c": {"type": "integer"}}}, {"type": "integer"}),
        ({"$ref": "https://elsewhere/x.json"}, {"anyOf": ANYTHING}),
        ({"$ref": "#/$defs/Gone"}, {"anyOf": ANYTHING}),
    ],
    ids=lambda value: json.dumps(value)[:60],
)
def test_each_word_of_json_schema_has_its_form(given_schema: dict[str, Any], expected: dict[str, Any]) -> None:
    found = translated(given_schema)
    assert {key: found[key] for key in sorted(found)} == {key: expected[key] for key in sorted(expected)}


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Address(BaseModel):
    street: str = Field(description="With the number")
    zip: str | None = None


class Person(BaseModel):
    """Somebody."""

    name: str
    home: Address | None = Field(default=None, description="Where")
    others: list[Address]
    level: Literal[1, 2] = 1
    colour: Colour
    mood: Literal["good", "bad"] | None = None
    either: int | str
    extra: dict[str, Any] = {}
    born: dt.date
    pair: tuple[int, str]


def test_a_model_of_everything_is_legal_and_says_what_it_means() -> None:
    fields = translated(Person.model_json_schema())["properties"]
    assert fields["home"]["nullable"] is True
    assert fields["home"]["description"] == "Where"
    assert fields["home"]["properties"]["zip"] == {"type": "string", "nullable": True}
    assert fields["others"]["items"]["properties"]["street"]["description"] == "With the number"
    assert fields["level"] == {"type": "integer", "description": "One of: 1, 2."}
    assert fields["colour"] == {"type": "string", "enum": ["red", "blue"]}
    assert fields["mood"] == {"type": "string", "enum": ["good", "bad"], "nullable": True}
    assert fields["either"] == {"anyOf": [{"type": "integer"}, {"type": "string"}]}
    assert fields["extra"] == {"type": "object"}


class Node(BaseModel):
    name: str
    children: list[Node] = []


def test_recursion_is_written_out_a_few_times_and_cut() -> None:
    found = translated(Node.model_json_schema())
    inner = found["properties"]["children"]["items"]
    assert inner["properties"]["name"] == {"type": "string"}
    assert len(json.dumps(found)) < 1000


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}},
        {"$ref": "#"},
        {"$defs": {"A": {"anyOf": [{"$ref": "#/$defs/A"}]}}, "$ref": "#/$defs/A"},
        {"$defs": {"A": {"allOf": [{"$ref": "#/$defs/A"}]}}, "$ref": "#/$defs/A"},
        {"$defs": {"A": {"items": {"$ref": "#/$defs/A"}, "type": "array"}}, "$ref": "#/$defs/A"},
    ],
)
def test_a_schema_that_is_only_itself_ends(schema: dict[str, Any]) -> None:
    assert len(json.dumps(translated(schema))) < 1000


def test_references_that_multiply_stay_bounded() -> None:
    names = [f"N{number}" for number in range(12)]
    fields = {name: {"$ref": f"#/$defs/{name}"} for name in names}
    schema = {"$ref": "#/$defs/N0", "$defs": {name: {"type": "object", "properties": fields} for name in names}}
    assert len(json.dumps(translated(schema))) < 200_000


def test_a_schema_2000_levels_deep_is_cut() -> None:
    for wrap in (lambda inner: {"type": "object", "properties": {"in": inner}}, lambda inner: {"allOf": [inner]}):
        schema: dict[str, Any] = {"type": "string"}
        for _ in range(2000):
            schema = wrap(schema)
        found = google_schema(schema)
        assert_legal(found)
        assert len(json.dumps(found)) < 3000


words = st.sampled_from(["type", "enum", "const", "anyOf", "oneOf", "allOf", "items", "properties", "required", "$ref"])
scalars = st.none() | st.booleans() | st.integers() | st.text(max_size=3)
kinds = st.sampled_from(["string", "integer", "null", "array", "object", "odd", "#", "#/$defs/A"])
schemas: st.SearchStrategy[Any] = st.recursive(
    scalars | kinds,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words | st.text(max_size=2), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(words, schemas, max_size=4))
def test_whatever_comes_in_what_goes_out_is_legal(schema: dict[str, Any]) -> None:
    assert_legal(google_schema(schema))
