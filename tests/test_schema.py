"""Signatures to JSON Schema."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import json
import math
import pathlib
import typing
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Generic, Literal, NamedTuple, NotRequired, TypeVar

import msgspec
import pytest
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from treadle.errors import ConfigError, ToolInputError
from treadle.messages import FilePart
from treadle.tools import Tool, ToolOutput, tool


class Node(BaseModel):
    name: str
    children: list[Node] = []


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclass
class Point:
    """A place."""

    x: int
    y: int = 0
    tags: list[str] = field(default_factory=list)


class Options(TypedDict):
    deep: bool
    title: NotRequired[str]


class Pair(NamedTuple):
    left: int
    right: str


T = TypeVar("T")


class Box(BaseModel, Generic[T]):
    content: T


class Cat(BaseModel):
    kind: Literal["cat"]


class NoSchema(typing.TypedDict):  # pydantic wants the one of typing_extensions before Python 3.12
    callback: Callable[[], int]


class Dog(BaseModel):
    kind: Literal["dog"]


def one(annotation: Any, default: Any = ...) -> Tool[..., Any]:
    """A tool with the one parameter `it`."""

    def go(it: Any) -> None: ...

    go.__annotations__ = {"it": annotation}
    if default is not ...:
        go.__defaults__ = (default,)
    return tool(go)


def schema_of(annotation: Any, default: Any = ...) -> dict[str, Any]:
    return one(annotation, default).input_schema["properties"]["it"]


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (str, {"type": "string"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (None, {"type": "null"}),
        (Any, {}),
        (list, {"type": "array", "items": {}}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (dict[str, Any], {"type": "object", "additionalProperties": True}),
        (str | None, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        (str | int, {"anyOf": [{"type": "string"}, {"type": "integer"}]}),
        (Literal[1, 2], {"type": "integer", "enum": [1, 2]}),
        (Literal["a"], {"type": "string", "const": "a"}),
        (dt.datetime, {"type": "string", "format": "date-time"}),
        (dt.date, {"type": "string", "format": "date"}),
        (uuid.UUID, {"type": "string", "format": "uuid"}),
        (pathlib.Path, {"type": "string", "format": "path"}),
        (
            tuple[int, str],
            {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 2, "maxItems": 2},
        ),
        (Annotated[int, Field(ge=1, le=5)], {"type": "integer", "minimum": 1, "maximum": 5}),
        (Annotated[str, Field(title="T", pattern="^a")], {"type": "string", "pattern": "^a"}),
    ],
)
def test_types_have_their_standard_schema(annotation: Any, schema: dict[str, Any]):
    assert schema_of(annotation) == schema


@pytest.mark.parametrize("first", [int | str, str | int])
def test_equal_unions_of_another_order_keep_their_own(first: Any):
    assert [part["type"] for part in schema_of(list[first])["items"]["anyOf"]] == [
        {int: "integer", str: "string"}[part] for part in typing.get_args(first)
    ]


def test_one_and_true_stay_apart():
    assert schema_of(Literal[1]) != schema_of(Literal[True])


def test_a_tool_without_arguments():
    def now() -> str: ...

    assert tool(now).input_schema == {"type": "object", "properties": {}, "additionalProperties": False}


def test_a_recursive_type_keeps_its_references():
    found = one(Node).input_schema
    assert found == {
        "type": "object",
        "properties": {"it": {"$ref": "#/$defs/Node"}},
        "required": ["it"],
        "additionalProperties": False,
        "$defs": {
            "Node": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "children": {"type": "array", "items": {"$ref": "#/$defs/Node"}, "default": []},
                },
                "required": ["name"],
            }
        },
    }
    node = one(Node).parse('{"it": {"name": "a", "children": [{"name": "b"}]}}')["it"]
    assert node == Node(name="a", children=[Node(name="b")])


def test_two_classes_of_one_name_stay_apart():
    def other() -> Any:
        class Node(BaseModel):
            weight: int

        return Node

    def go(a: Any, b: Any) -> None: ...

    go.__annotations__ = {"a": Node, "b": other()}
    found = tool(go).input_schema
    assert len(found["$defs"]) == 2
    assert found["properties"]["a"] != found["properties"]["b"]


def test_only_generated_titles_are_dropped():
    class Book(BaseModel):
        model_config = ConfigDict(title="A book")
        title: str = Field(title="The title", examples=["title"])
        data: dict[str, Any] = {"title": "kept"}

    def go(title: str, book: Any) -> None: ...

    go.__annotations__["book"] = Book
    found = tool(go).input_schema
    assert found["properties"]["title"] == {"type": "string"}
    assert found["$defs"]["Book"]["properties"] == {
        "title": {"type": "string", "examples": ["title"]},
        "data": {"type": "object", "additionalProperties": True, "default": {"title": "kept"}},
    }
    assert "A book" not in json.dumps(found)


def test_no_parameter_name_is_reserved():
    def go(
        json: str, schema: int, copy: int, model_config: int, validate: int, _private: int, kwargs: int, dict: int
    ) -> None: ...

    made = tool(go)
    names = ["json", "schema", "copy", "model_config", "validate", "_private", "kwargs", "dict"]
    assert list(made.input_schema["properties"]) == names
    assert made.parse(json.dumps(dict.fromkeys(names[1:], 1) | {"json": "{}"})) == dict.fromkeys(names[1:], 1) | {
        "json": "{}"
    }


@pytest.mark.parametrize(
    ("annotation", "default", "shown"),
    [
        (int, 3, 3),
        (str | None, None, None),
        (Color, Color.RED, "red"),
        (dt.date, dt.date(2026, 1, 2), "2026-01-02"),
        (pathlib.Path, pathlib.Path("a"), "a"),
        (tuple[int, ...], (1, 2), [1, 2]),
        (Point, Point(1), {"x": 1, "y": 0, "tags": []}),
    ],
)
def test_defaults_are_shown_as_json(annotation: Any, default: Any, shown: Any):
    made = one(annotation, default)
    assert made.input_schema["properties"]["it"]["default"] == shown
    assert "required" not in made.input_schema
    assert made.parse("{}")["it"] is default


def test_a_default_without_json_form_applies_and_is_not_shown():
    for default in (object(), math.nan, math.inf, "\ud800"):
        made = one(int, default)
        assert made.input_schema["properties"]["it"] == {"type": "integer"}
        assert made.parse("{}")["it"] is default


def test_a_mutable_default_is_not_shared_by_calls():
    made = one(list[int], [])
    made.parse("{}")["it"].append(1)
    assert made.parse("{}") == {"it": []}


@pytest.mark.parametrize("inside", [True, False])
def test_defaults_of_a_field(inside: bool):
    for given, expected in ((Field(default=3), 3), (Field(default_factory=lambda: 3), 3)):
        made = one(Annotated[int, given]) if inside else one(int, given)
        assert made.parse("{}") == {"it": expected}
        assert "required" not in made.input_schema
    assert one(int, Field(ge=3)).input_schema["required"] == ["it"]


@pytest.mark.parametrize("given", [Field(alias="from"), Field(validation_alias="from")])
def test_an_alias_is_refused(given: Any):
    with pytest.raises(ConfigError, match="parameter it has an alias"):
        one(Annotated[int, given]).input_schema  # noqa: B018


@pytest.mark.parametrize(
    "annotation", [Callable[[], int], list[Callable[[], int]], msgspec.Struct, pytest.Item, NoSchema]
)
def test_a_type_without_json_form_is_refused_by_the_parameters_name(annotation: Any):
    made = one(annotation)
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"tool go: parameter it cannot be described to a model: [^\n]+$"):
            made.spec  # noqa: B018


def test_the_parameter_at_fault_is_named_among_others():
    def go(a: Node, b: Callable[[], int], c: Point) -> None: ...

    with pytest.raises(ConfigError, match="parameter b cannot"):
        tool(go).spec  # noqa: B018


@pytest.mark.parametrize(
    ("annotation", "sent", "arrives"),
    [
        (dt.datetime, "2026-01-02T03:04:05Z", dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)),
        (dt.date, "2026-01-02", dt.date(2026, 1, 2)),
        (dt.timedelta, "PT1H", dt.timedelta(hours=1)),
        (decimal.Decimal, "0.10", decimal.Decimal("0.10")),
        (decimal.Decimal, 0.1, decimal.Decimal("0.1")),
        (uuid.UUID, "00000000-0000-0000-0000-000000000001", uuid.UUID(int=1)),
        (pathlib.Path, "a/b", pathlib.Path("a/b")),
        (bytes, "abc", b"abc"),
        (Color, "red", Color.RED),
        (Level, 2, Level.HIGH),
        (Level, "2", Level.HIGH),
        (Literal[1, 2], "2", 2),
        (Point, {"x": 1}, Point(1)),
        (Options, {"deep": True}, {"deep": True}),
        (Pair, [1, "a"], Pair(1, "a")),
        (Box[int], {"content": 1}, Box[int](content=1)),
        (set[int], [1, 1], {1}),
        (tuple[int, ...], [1, 2], (1, 2)),
        (Sequence[str], ["a"], ["a"]),
        (Mapping[str, int], {"a": 1}, {"a": 1}),
        (Annotated[Cat | Dog, Field(discriminator="kind")], {"kind": "dog"}, Dog(kind="dog")),
        (float, 3, 3.0),
        (int, 3.0, 3),
        (bool, "true", True),
        (int, 2**70, 2**70),
    ],
)
def test_declared_types_arrive(annotation: Any, sent: Any, arrives: Any):
    found = one(annotation).parse(json.dumps({"it": sent}))["it"]
    assert found == arrives
    assert type(found) is type(arrives)


@pytest.mark.parametrize(
    ("returns", "schema"),
    [
        (None, None),
        (str, None),
        (Any, None),
        (ToolOutput, None),
        (FilePart, None),
        (list[FilePart], None),
        (object, None),
        (Callable[[], int], None),
        (bool, {"type": "boolean"}),
        (list[str], {"type": "array", "items": {"type": "string"}}),
        (str | None, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        (
            Options,
            {
                "type": "object",
                "properties": {"deep": {"type": "boolean"}, "title": {"type": "string"}},
                "required": ["deep"],
            },
        ),
    ],
)
def test_output_schema(returns: Any, schema: Any):
    def go() -> None: ...

    go.__annotations__["return"] = returns
    assert tool(go).output_schema == schema


def test_no_output_schema_without_annotation():
    def go(a: int): ...

    assert tool(go).output_schema is None


def test_schemas_are_deterministic_and_not_shared():
    first, second = one(Node), one(Node)
    assert json.dumps(first.spec.input_schema) == json.dumps(second.spec.input_schema)
    one(list[int]).input_schema["properties"]["it"]["items"]["type"] = "spoiled"
    assert schema_of(list[int]) == {"type": "array", "items": {"type": "integer"}}


def test_a_validator_of_the_users_own_speaks_to_the_model():
    from pydantic import AfterValidator

    def even(value: int) -> int:
        if value % 2:
            raise ValueError("must be even")
        return value

    with pytest.raises(ToolInputError, match="it: Value error, must be even; got 3"):
        one(Annotated[int, AfterValidator(even)]).parse('{"it": 3}')


def test_a_schema_that_is_no_text_is_refused():
    with pytest.raises(ConfigError, match="tool go: the schema is not JSON"):
        one(Annotated[int, Field(description="\ud800")]).spec  # noqa: B018


def test_a_validator_that_breaks_is_still_an_input_error():
    from pydantic import AfterValidator

    def breaks(value: int) -> int:
        raise RecursionError if value else RuntimeError("out of order")

    made = one(Annotated[int, AfterValidator(breaks)])
    with pytest.raises(ToolInputError, match="could not be checked: out of order"):
        made.parse('{"it": 0}')
    with pytest.raises(ToolInputError, match="nested too deeply"):
        made.parse('{"it": 3}')
