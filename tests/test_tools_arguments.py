"""What models send as arguments, and what comes of it."""

from __future__ import annotations

import datetime as dt
import enum
import json
from typing import Any, Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict

from treadle.errors import ToolError, ToolInputError
from treadle.tools import Tool, tool


@tool
def now() -> str:
    """The time."""
    return "now"


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")
    size: int = 3
    names: list[str] = []
    required: bool = True


class Level(enum.IntEnum):
    LOW = 1


@tool
def find(
    city: str,
    limit: int = 10,
    items: list[str] | None = None,
    meta: dict[str, Any] | None = None,
    inner: Inner = Inner(),  # noqa: B008
    either: str | list[int] = "",
    number: float = 0.0,
    on: bool = False,
    kind: Literal[1, 2] = 1,
    level: Level = Level.LOW,
    scores: dict[str, int] | None = None,
    day: dt.date | None = None,
) -> None:
    """Finds."""


def given_to(made: Tool[..., Any], args: str) -> dict[str, Any]:
    """The parsed arguments that were sent, without the defaults."""
    defaults = find.parse('{"city": "-"}') if made is find else {}
    return {name: value for name, value in made.parse(args).items() if name not in defaults or value != defaults[name]}


def refused(args: str, made: Tool[..., Any] = find) -> str:
    with pytest.raises(ToolInputError) as caught:
        made.parse(args)
    text = str(caught.value)
    assert text.startswith(f"The arguments of {made.name} were not accepted:\n- ")
    text.encode()
    return text


@pytest.mark.parametrize(
    "args", ["", " ", "\n\t ", "null", ' "null" ', '""', '"  "', "{}", '"{}"', "\ufeff", "\ufeff{}", '"\\"{}\\""']
)
async def test_empty_or_null_arguments_are_none_at_all(args: str):
    assert now.parse(args) == {}
    assert await now.invoke(args) == "now"


@pytest.mark.parametrize(
    ("args", "fault"),
    [
        ("[1]", "they must be one JSON object, not an array: [1]"),
        ('"x"', 'they must be one JSON object, not a string: "x"'),
        ('"[1]"', "they must be one JSON object, not an array: [1]"),
        ("3", "they must be one JSON object, not an integer: 3"),
        ("true", "they must be one JSON object, not a boolean: true"),
        ('{"city":"a"} tail', 'they are not valid JSON: extra data at character 14, near "tail"'),
        ("{'city': 1}", "expecting property name enclosed in double quotes at character 2, near \"'city': 1}\""),
        ('{"city":"a"', "the text ends too early (expecting ',' delimiter, character 12)"),
        ('{"city":"a', "the text ends too early (unterminated string starting at, character 9)"),
        ('{"city":', "the text ends too early (expecting value, character 9)"),
        ("{", "the text ends too early"),
        ("nonsense", 'expecting value at character 1, near "nonsense"'),
        ('{"city": undefined}', "expecting value at character 10"),
        ("[" * 10_000, "they are nested too deeply"),
        ('{"city":' * 10_000, "they are nested too deeply"),
        ('{"limit":' + "9" * 5_000 + "}", "too many digits"),
    ],
)
def test_what_is_not_one_object_is_refused_with_the_place(args: str, fault: str):
    text = refused(args)
    assert fault in text
    assert "Expected arguments: city, limit (optional), items (optional)" in text


def test_a_tool_without_arguments_says_so():
    assert refused('{"a": 1}', now).endswith("- a: no such argument\nExpected arguments: none, send {}")


@pytest.mark.parametrize("encodings", [1, 2, 3])
def test_doubly_encoded_arguments_are_unwrapped(encodings: int):
    args = '{"city":"Oslo"}'
    for _ in range(encodings):
        args = json.dumps(args)
    assert find.parse(args)["city"] == "Oslo"


@pytest.mark.parametrize(
    ("name", "sent", "arrives"),
    [
        ("items", '["a","b"]', ["a", "b"]),
        ("items", "[]", []),
        ("items", "null", None),
        ("meta", '{"a": "1"}', {"a": "1"}),
        ("inner", '{"size": 4}', Inner(size=4)),
        ("inner", {"size": "4", "names": '["a"]'}, Inner(size=4, names=["a"])),
        ("inner", '{"size": "4", "names": "[\\"a\\"]"}', Inner(size=4, names=["a"])),
        ("limit", "5", 5),
        ("limit", 5.0, 5),
        ("number", "5.5", 5.5),
        ("on", "true", True),
        ("kind", "2", 2),
        ("level", "1", Level.LOW),
        ("scores", {"a": "1"}, {"a": 1}),
        ("day", "2026-01-02", dt.date(2026, 1, 2)),
        ("either", "[1]", "[1]"),
        ("either", [1], [1]),
        ("city", '{"k":1}', '{"k":1}'),
        ("city", "5", "5"),
        ("city", "null", "null"),
        ("city", " \u00e9\ud83d\ude00\n", " é😀\n".encode("utf-16", "surrogatepass").decode("utf-16")),
    ],
)
def test_what_the_schema_makes_certain_is_taken(name: str, sent: Any, arrives: Any):
    found = find.parse(json.dumps({"city": "-"} | {name: sent}))[name]
    assert found == arrives
    assert type(found) is type(arrives)


@pytest.mark.parametrize(
    ("name", "sent", "fault"),
    [
        ("limit", True, "limit: must not be a boolean"),
        ("city", False, "city: must not be a boolean"),
        ("city", 5, "city: Input should be a valid string; got 5"),
        ("city", ["a"], 'city: Input should be a valid string; got ["a"]'),
        ("city", {"k": 1}, 'city: Input should be a valid string; got {"k":1}'),
        ("city", None, "city: Input should be a valid string; got null"),
        ("limit", 5.5, "limit: Input should be a valid integer, got a number with a fractional part; got 5.5"),
        ("limit", "5.5", 'limit: Input should be a valid integer, unable to parse string as an integer; got "5.5"'),
        ("limit", "ten", 'got "ten"'),
        ("limit", [], "limit: Input should be a valid integer; got []"),
        ("items", "a", 'items: Input should be a valid array; got "a"'),
        ("items", '{"a": 1}', "items: Input should be a valid array"),
        ("items", [1], "items[0]: Input should be a valid string; got 1"),
        ("inner", {"size": "x"}, "inner.size: Input should be a valid integer"),
        ("inner", {"sise": 1}, "inner.sise: no such field"),
        ("kind", "3", "kind: Input should be 1 or 2"),
        ("scores", {"a": None}, "scores.a: Input should be a valid integer; got null"),
        ("on", "perhaps", "on: Input should be a valid boolean"),
        ("day", "yesterday", "day: Input should be a valid date"),
        ("either", 5, "either: Input should be a valid string; got 5\n- either: Input should be a valid array; got 5"),
    ],
)
def test_what_is_not_certain_is_refused_with_path_and_value(name: str, sent: Any, fault: str):
    assert f"- {fault}" in refused(json.dumps({"city": "-"} | {name: sent})) or fault.startswith("got")


@pytest.mark.parametrize("name", ["limit", "inner", "either", "number", "on", "kind", "level"])
def test_null_takes_the_default_where_the_type_has_no_null(name: str):
    default = find.parse('{"city": "-"}')[name]
    assert find.parse(json.dumps({"city": "-", name: None}))[name] == default


def test_null_takes_the_default_of_a_nested_field_too():
    sent = {"city": "-", "inner": {"size": None, "names": None, "required": False}}
    assert find.parse(json.dumps(sent))["inner"] == Inner(required=False)


def test_null_for_a_nested_field_without_default_stays_a_fault():
    class Strict(BaseModel):
        size: int

    @tool
    def go(strict: Strict, many: list[Strict] | None = None) -> None: ...

    assert "strict.size: Input should be a valid integer; got null" in refused('{"strict": {"size": null}}', go)
    assert "many[1].size: required, but missing" in refused('{"strict": {"size": 1}, "many": [{"size": 1}, {}]}', go)


def test_a_string_is_not_decoded_where_one_branch_of_a_union_takes_it():
    class ByList(BaseModel):
        ids: list[int]

    class ByName(BaseModel):
        ids: str
        weight: int

    @tool
    def go(how: ByList | ByName) -> None: ...

    assert go.parse('{"how": {"ids": "[1]", "weight": 1}}')["how"] == ByName(ids="[1]", weight=1)
    assert "how.weight" in refused('{"how": {"ids": "[1]", "weight": "x"}}', go)


def test_all_faults_are_listed_up_to_a_bound():
    text = refused(json.dumps({f"x{number}": 1 for number in range(30)} | {"limit": "x"}))
    assert text.count("\n- x") == 10
    assert "\n- and 22 more\n" in text


def test_a_near_name_is_suggested():
    assert "- citty: no such argument; did you mean city?" in refused('{"citty": "a"}')
    assert "- city: required, but missing" in refused('{"citty": "a"}')


def test_long_values_and_names_are_cut():
    text = refused(json.dumps({"limit": "y" * 10_000, "n" * 10_000: 1, "inner": {"k" * 10_000: 1}}))
    assert len(text) < 1_500


def test_the_last_of_two_equal_keys_counts():
    assert find.parse('{"city": "a", "city": "b"}')["city"] == "b"


def test_line_breaks_inside_strings_are_taken():
    assert find.parse('{"city": "a\nb\tc"}')["city"] == "a\nb\tc"


@pytest.mark.parametrize(
    ("sent", "arrives"),
    [
        (r"\ud83d", "�"),
        (r"a\udc00b", "a�b"),
        (r"\ud83d\ude00", "😀"),
        (r"\ude00\ud83d", "��"),
        (r"\\ud83d", r"\ud83d"),
        (r"\\\ud83d", "\\�"),
        (r"\ud83d\ud83d\ude00", "�😀"),
        ("\ud83d", "�"),
        ("\ud83d\ude00", "😀"),
    ],
)
def test_lone_surrogates_become_the_replacement_character(sent: str, arrives: str):
    assert find.parse(f'{{"city": "{sent}"}}')["city"] == arrives
    assert find.parse(json.dumps({"city": "-", "meta": {"k": "v"}}).replace("k", sent))["meta"] == {arrives: "v"}


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity", "1e400"])
def test_numbers_that_json_does_not_have(word: str):
    assert find.parse(f'{{"city": "-", "number": {word}}}')["number"] == 0.0
    assert find.parse(f'{{"city": "-", "meta": {{"a": {word}}}}}')["meta"] == {"a": None}


def test_an_input_error_is_a_tool_error():
    assert issubclass(ToolInputError, ToolError)


def test_a_very_deep_value_is_taken_or_refused():
    class Node(BaseModel):
        child: Node | None = None

    @tool
    def go(node: Node, anything: Any = None) -> None: ...

    for depth in (10, 90, 300, 900):
        nested = '{"child":' * depth + "null" + "}" * depth
        for args in (f'{{"node": {nested}}}', f'{{"node": {{}}, "anything": {nested}}}'):
            if depth < 100:
                assert go.parse(args)
            else:
                assert "nested too deeply" in refused(args, go)
    assert "not an array: [[[[" in refused("[" * 900 + "]" * 900)


RAW = Tool.raw(
    "raw",
    "",
    {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": ["array", "null"]}}, "required": ["a"]},
    lambda arguments: None,
)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["5", "[1]", '{"size": "1"}', "null"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["size", "names", "a"]) | st.text(), inner, max_size=4)
    ),
    max_leaves=8,
)
NAMES = st.sampled_from([*find.input_schema["properties"], "a", "b"])


@pytest.mark.parametrize("made", [find, now, RAW], ids=lambda made: made.name)
@given(st.text() | st.text(alphabet='{}[]":,\\ud8c012 \ufeff\ud83d') | JSON.map(json.dumps))
@example('{"city": "\\ud800\\u0000"}')
def test_no_text_raises_anything_but_an_input_error(made: Tool[..., Any], args: str):
    try:
        assert isinstance(made.parse(args), dict)
    except ToolInputError as error:
        str(error).encode()


@pytest.mark.parametrize("made", [find, RAW], ids=lambda made: made.name)
@given(st.dictionaries(NAMES, JSON))
def test_no_object_raises_anything_but_an_input_error(made: Tool[..., Any], sent: dict[str, Any]):
    try:
        made.parse(json.dumps({"city": "-"} | sent))
    except ToolInputError as error:
        str(error).encode()


@given(st.text(), st.integers(), st.lists(st.text()), st.dictionaries(st.text(), st.integers()))
def test_good_arguments_arrive_unchanged(city: str, limit: int, items: list[str], scores: dict[str, int]):
    sent = {"city": city, "limit": limit, "items": items, "scores": scores}
    found = find.parse(json.dumps(sent))
    assert {name: found[name] for name in sent} == sent
    text = dict.fromkeys(sent, None) | {name: json.dumps(value) for name, value in sent.items() if name != "city"}
    assert find.parse(json.dumps(text | {"city": city})) == found


def test_unwrapping_has_an_end():
    args = "{}"
    for _ in range(6):
        args = json.dumps(args)
    assert "not a string" in refused(args, now)

    nested: Any = "1"
    for _ in range(6):
        nested = json.dumps([nested])

    @tool
    def go(deep: list[list[list[list[list[list[int]]]]]]) -> None: ...

    assert "deep[0][0][0]" in refused(json.dumps({"deep": nested}), go)
