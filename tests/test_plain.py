"""Plain types, described and checked without pydantic, against pydantic itself."""

from __future__ import annotations

import inspect
import subprocess
import sys
from typing import Annotated, Any, Literal, Union

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle import _plain, _schema, _signature
from treadle._signature import EMPTY, Parameter, Signature
from treadle.errors import ToolInputError
from treadle.tools import Tool, tool

SCALARS = st.sampled_from([str, int, float, bool, type(None), Any])
WORDS = st.lists(st.text("abc ", min_size=1, max_size=3), min_size=1, max_size=3)
TYPES = st.recursive(
    SCALARS | st.sampled_from([list, dict]) | WORDS.map(lambda words: Literal[tuple(words)]),
    lambda inner: (
        inner.map(lambda one: list[one])
        | inner.map(lambda one: dict[str, one])
        | st.lists(inner, min_size=2, max_size=3).map(lambda several: Union[tuple(several)])  # noqa: UP007 - made of a tuple
    ),
    max_leaves=5,
)
DEFAULTS = st.just(EMPTY) | st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
PARAMETERS = st.lists(
    st.builds(Parameter, st.sampled_from(["a", "b", "json", "_x"]), TYPES, DEFAULTS, st.text("what is it", max_size=9)),
    max_size=3,
    unique_by=lambda parameter: parameter.name,
)


def _bytes(value: Any) -> bytes:
    return msgspec.json.encode(value)


@settings(max_examples=150)
@given(PARAMETERS)
def test_plain_arguments_have_the_schema_that_pydantic_gives_byte_for_byte(parameters):
    signature = Signature(tuple(parameters), None, EMPTY, "", {})
    plain = _plain.input_schema(signature)
    if plain is not None:
        assert _bytes(plain) == _bytes(_schema.compile_signature(signature, "t").input_schema)


@settings(max_examples=150)
@given(TYPES.filter(lambda one: one not in (Any, type(None))))
def test_plain_results_have_the_schema_that_pydantic_gives_byte_for_byte(returns):
    plain = _plain.schema_of(returns)
    if plain is not None:
        assert _bytes(plain) == _bytes(_schema.output_schema(returns, {}))


@pytest.mark.parametrize(
    "annotation",
    [
        bytes,
        set[int],
        tuple[int, str],
        dict[int, str],
        list[bytes],
        int | bytes,
        Literal[1],
        Annotated[int, "how many"],
    ],
    ids=repr,
)
def test_what_is_not_plain_is_left_to_pydantic(annotation):
    assert _plain.schema_of(annotation) is None


@pytest.mark.parametrize("default", [(), [], {}, 1 << 63, float("nan"), float("inf"), "\ud800", object], ids=str)
def test_a_default_that_json_may_not_show_as_it_is_is_left_to_pydantic(default):
    parameter = Parameter("a", str, default, "")
    assert _plain.input_schema(Signature((parameter,), None, EMPTY, "", {})) is None


def test_the_schema_is_the_same_before_and_after_the_first_call():
    def search(query: str, tags: list[str] | None = None, how: Literal["all", "any"] = "all") -> list[str]:
        """Searches.

        Args:
            query: What for.
        """
        return [query, *(tags or ()), how]

    before, after = tool(search), tool(search)
    after.parse('{"query": "x"}')
    assert isinstance(before, Tool)
    assert _bytes(before.input_schema) == _bytes(after.input_schema)
    assert before.spec == after.spec


def test_a_tool_of_plain_types_needs_pydantic_only_for_values_that_are_not_of_them():
    program = inspect.cleandoc(
        """
        import sys
        from treadle.tools import tool
        @tool
        def add(a: int, tags: list[str] | None = None) -> dict[str, int]:
            "Adds."
            return {"sum": a}
        assert add.spec.input_schema["required"] == ["a"] and add.spec.output_schema
        for args in ('{"a": 4, "tags": ["x"]}', '{"a": "4"}'):
            print(add.parse(args), "pydantic" in sys.modules)
        """
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "{'a': 4, 'tags': ['x']} False\n{'a': 4, 'tags': None} True\n"


def test_nothing_that_pydantic_would_describe_otherwise_counts_as_plain():
    class Text(str):
        __slots__ = ()

    assert _plain.schema_of(Text) is None
    assert _plain.schema_of(type("Odd", (type,), {"__eq__": lambda *_: True, "__hash__": None})) is None
    assert _signature.EMPTY is inspect.Parameter.empty


@pytest.mark.parametrize("annotation", [str, list[int], dict[str, Any], str | None, Literal["a", "b"]], ids=str)
def test_what_most_tools_take_is_plain(annotation):
    assert _plain.schema_of(annotation) is not None


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | WORDS.map("".join),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=5,
)


@settings(max_examples=300)
@given(TYPES, JSON)
def test_a_value_that_is_exactly_of_its_type_is_what_pydantic_would_make_of_it(kind, value):
    if _plain.is_exactly(kind, value):
        checked = _schema.adapter_and_schema(kind)[0].validate_json(_bytes(value))
        assert repr(checked) == repr(value)


@pytest.mark.parametrize(
    ("args", "right"),
    [
        ('{"a": 1, "b": ["x"]}', {"a": 1, "b": ["x"], "c": "all"}),
        ('{"a": "1"}', {"a": 1, "b": None, "c": "all"}),
        ('{"a": 1.0, "c": "any"}', {"a": 1, "b": None, "c": "any"}),
        ('{"a": 1, "c": "most"}', "c: "),
        ('{"a": true}', "a: must not be a boolean"),
        ('{"b": []}', "a: required, but missing"),
        ('{"a": 1, "d": 2}', "d: "),
    ],
)
def test_arguments_of_plain_types_are_checked_as_any_others(args, right):
    @tool
    def plain(a: int, b: list[str] | None = None, c: Literal["all", "any"] = "all") -> str:
        return f"{a}{b}{c}"

    if isinstance(right, dict):
        assert plain.parse(args) == right
    else:
        with pytest.raises(ToolInputError, match=right):
            plain.parse(args)
