"""Values of every sort as the text a model reads."""

from __future__ import annotations

import asyncio
import collections
import datetime as dt
import decimal
import enum
import fractions
import json
import math
import numbers
import pathlib
import types
import uuid
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import msgspec
import pydantic
import pydantic.dataclasses
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle import _results
from treadle._results import NO_OUTPUT, ToolOutput, cap, collect, collect_async, render
from treadle.messages import FilePart, TextPart

FILE = FilePart("image/png", data=b"x")


class Color(enum.Enum):
    RED = "red"


class Word(enum.StrEnum):
    A = "a"


class Level(enum.IntEnum):
    LOW = 1


class Text(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "not this"


class Whole(int):
    pass


class Part(float):
    pass


@dataclass
class Point:
    x: int
    tags: set[str] = field(default_factory=set)
    kind: ClassVar[str] = "point"


class Model(pydantic.BaseModel):
    id: uuid.UUID
    by: Any = pydantic.Field(default=None, serialization_alias="By")

    @pydantic.field_serializer("id")
    def short(self, value: uuid.UUID) -> str:
        return f"id-{value.int}"


@pydantic.dataclasses.dataclass
class Checked:
    at: dt.date


class Record(msgspec.Struct, tag_field="type", tag="record", rename="camel"):
    first_name: str
    inner: Any = None


class Pair(NamedTuple):
    left: int
    right: str


class Bare:
    pass


class Broken:
    def __repr__(self) -> str:
        raise RuntimeError


class View(collections.UserDict[str, Any]):
    pass


class Number:
    """As numpy's: registered, but no subclass of int."""

    def __int__(self) -> int:
        return 7


class Real:
    def __float__(self) -> float:
        return 0.5


numbers.Integral.register(Number)
numbers.Real.register(Real)


class Attr:
    """As a class made by attrs."""

    __attrs_attrs__ = (types.SimpleNamespace(name="a"),)

    def __init__(self) -> None:
        self.a = 1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, NO_OUTPUT),
        ("", ""),
        ("plain\n", "plain\n"),
        ('{"k":1}', '{"k":1}'),
        ("lone \ud800 pair \ud83d\ude00", "lone � pair 😀"),
        (Text("text"), "text"),
        (Word.A, "a"),
        (Color.RED, "red"),
        (Level.LOW, "1"),
        (5, "5"),
        (True, "true"),
        (1.5, "1.5"),
        (math.nan, "null"),
        (-math.inf, "null"),
        (2**64, "18446744073709551616"),
        (-(2**70), "-1180591620717411303424"),
        (Whole(3), "3"),
        (Part(0.5), "0.5"),
        (Part(math.nan), "null"),
        (b"caf\xc3\xa9\n", "café\n"),
        (bytearray(b"a"), "a"),
        (memoryview(b"a"), "a"),
        (b"\xff\x00", '{"base64":"/wA="}'),
        (b"a\x00", '{"base64":"YQA="}'),
        ([], "[]"),
        ({}, "{}"),
        ([b"a", b"\xff"], '["a",{"base64":"/w=="}]'),
        ({"x": math.nan, "y": math.inf}, '{"x":null,"y":null}'),
        ({math.nan: 1, math.inf: 2, -math.inf: 3, 1.5: 4}, '{"NaN":1,"Infinity":2,"-Infinity":3,"1.5":4}'),
        ({1: "a", None: "b", False: "c"}, '{"1":"a","null":"b","false":"c"}'),
        ({(1, 2): "a", Color.RED: "b", b"k": "c"}, '{"[1,2]":"a","red":"b","k":"c"}'),
        ({dt.date(2026, 1, 2): uuid.UUID(int=1)}, '{"2026-01-02":"00000000-0000-0000-0000-000000000001"}'),
        ({"b": 1, "a": 2}, '{"b":1,"a":2}'),
        ({"\ud800": "\udc00"}, '{"�":"�"}'),
        ({3, 1, 2}, "[1,2,3]"),
        (frozenset(["b", "a", 1]), '["a","b",1]'),
        ((1, "a"), '[1,"a"]'),
        ([Text("t"), Whole(3), Part(0.5)], '["t",3,0.5]'),
        (Pair(1, "a"), '[1,"a"]'),
        (dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC), '"2026-01-02T03:04:05Z"'),
        (dt.date(2026, 1, 2), '"2026-01-02"'),
        (dt.time(1, 2), '"01:02:00"'),
        (dt.timedelta(hours=1), '"PT3600S"'),
        (decimal.Decimal("0.10"), '"0.10"'),
        (fractions.Fraction(1, 2), "0.5"),
        (uuid.UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        (pathlib.PurePosixPath("a/b"), '"a/b"'),
        (pathlib.PurePosixPath("a\udcff"), '"a�"'),
        (Point(1, {"b", "a"}), '{"x":1,"tags":["a","b"]}'),
        (Model(id=uuid.UUID(int=1)), '{"id":"id-1","By":null}'),
        ([Model(id=uuid.UUID(int=1), by=math.nan)], '[{"id":"id-1","By":null}]'),
        (Model(id=uuid.UUID(int=1), by={2, 1}), '{"id":"id-1","By":[1,2]}'),
        (Checked(dt.date(2026, 1, 2)), '{"at":"2026-01-02"}'),
        (Record("a", {1}), '{"type":"record","firstName":"a","inner":[1]}'),
        (Attr(), '{"a":1}'),
        (View(a=1), '{"a":1}'),
        (collections.OrderedDict(b=1), '{"b":1}'),
        (collections.deque([1, 2]), "[1,2]"),
        (types.MappingProxyType({"a": 1}), '{"a":1}'),
        ({"a": 1}.keys(), '["a"]'),
        (range(3), "[0,1,2]"),
        (iter([1, 2]), "[1,2]"),
        ((number for number in (1, 2)), "[1,2]"),
        (map(str, [1]), '["1"]'),
        (Number(), "7"),
        (Real(), "0.5"),
        (1 + 2j, '"(1+2j)"'),
        (Bare(), '"<test_results.Bare object>"'),
        ([Broken()], '["<Broken>"]'),
        (Bare, "\"<class 'test_results.Bare'>\""),
        (Color, "\"<enum 'Color'>\""),
        ({"$defs": {"A": {}}, "p": {"$ref": "#/$defs/A"}}, '{"$defs":{"A":{}},"p":{"$ref":"#/$defs/A"}}'),
        (ToolOutput("text", is_error=False), "text"),
        (ToolOutput({"a": 1}), '{"a":1}'),
        (ToolOutput(None), NO_OUTPUT),
        (ToolOutput(ToolOutput([1])), "[1]"),
    ],
    ids=lambda value: str(type(value).__name__),
)
def test_each_sort_of_value_has_its_text(value: Any, text: str):
    output = render(value)
    shown = output.content.replace(f"{__name__}.", "test_results.")
    assert (shown, output.files, output.is_error) == (text, (), False)


def test_a_huge_number_is_no_harm():
    assert render(10**5_000).content.startswith('"0x')


def test_a_repr_loses_its_address():
    text = render([Bare(), lambda: 1, asyncio.sleep]).content
    assert " at 0x" not in text
    assert "Bare object>" in text


@pytest.mark.parametrize(
    ("value", "text", "files"),
    [
        (FILE, "", 1),
        ([FILE, FILE], "", 2),
        ([TextPart("a"), FILE, TextPart("b\ud800")], "a\nb�", 1),
        ((FILE,), "", 1),
        (TextPart("a"), "a", 0),
        (ToolOutput("a", (FILE,)), "a", 1),
        (ToolOutput([FILE], (FILE,)), "", 2),
    ],
)
def test_files_travel_beside_the_text(value: Any, text: str, files: int):
    assert render(value) == ToolOutput(text, (FILE,) * files)


def test_a_reported_failure_stays_one():
    assert render(ToolOutput("no", is_error=True)).is_error
    assert render(ToolOutput(ToolOutput("no", is_error=True))).is_error


def circular_dict() -> Any:
    value: dict[str, Any] = {}
    value["self"] = value
    return value


def circular_list() -> Any:
    value: list[Any] = []
    value.append([value])
    return value


def circular_point() -> Any:
    value = Point(1)
    value.tags = [value]  # type: ignore[assignment]
    return value


def circular_model() -> Any:
    value = Model(id=uuid.UUID(int=1))
    value.by = [value]
    return value


@pytest.mark.parametrize("make", [circular_dict, circular_list, circular_point, circular_model])
def test_a_value_that_holds_itself_is_an_error(make: Any):
    assert render(make()) == ToolOutput("The tool ran, but its result cannot be shown: it holds itself.", is_error=True)


def test_a_value_that_comes_twice_holds_nothing():
    twice = [1]
    assert render([twice, twice]).content == "[[1],[1]]"


@pytest.mark.parametrize("depth", [100, 101, 2_000, 100_000])
def test_a_very_deep_value_is_an_error(depth: int):
    value: Any = []
    for _ in range(depth - 1):
        value = [value]
    output = render(value)
    assert output.is_error == (depth > 100)
    assert "nested more than 100 levels" in output.content or depth == 100


def test_a_value_that_unfolds_without_end_is_an_error():
    value: Any = [1, 1]
    for _ in range(60):
        value = [value, value]
    assert "more than 1000000 items" in render(value).content


def test_an_endless_iterator_is_cut():
    import itertools

    found = json.loads(render({"all": itertools.count()}).content)["all"]
    assert (len(found), found[-1]) == (10_001, "[cut: only the first 10000 items are shown]")


def test_a_collected_generator_is_closed():
    closed = []

    def count() -> Any:
        try:
            yield from range(20_000)
        finally:
            closed.append(True)

    assert len(collect(count())) == 10_001
    assert closed == [True]


async def test_an_asynchronous_iterator_is_cut_and_closed():
    closed = []

    async def count() -> Any:
        try:
            for number in range(20_000):
                yield number
        finally:
            closed.append(True)

    class Countdown:
        left = 3

        def __aiter__(self) -> Any:
            return self

        async def __anext__(self) -> int:
            if not self.left:
                raise StopAsyncIteration
            self.left -= 1
            return self.left

    assert (len(await collect_async(count())), closed) == (10_001, [True])
    assert await collect_async(Countdown()) == [2, 1, 0]


def raising(error: BaseException) -> Any:
    class Hostile:
        def __iter__(self) -> Any:
            raise error

    class HostileModel(msgspec.Struct):
        inner: Any

    def generator() -> Any:
        yield 1
        raise error

    return [Hostile(), generator(), {"a": Hostile()}, HostileModel(Hostile()), ToolOutput(Hostile())]


@pytest.mark.parametrize(
    "error",
    [ValueError("x"), SystemExit(1), GeneratorExit(), RecursionError(), asyncio.CancelledError(), StopIteration()],
)
def test_a_hostile_value_is_an_error_result(error: BaseException):
    for value in raising(error):
        output = render(value)
        assert output.is_error or output.content.startswith("[1")
        assert "cannot be shown" in output.content or not output.is_error


def test_keyboard_interrupt_gets_through():
    with pytest.raises(KeyboardInterrupt):
        render(raising(KeyboardInterrupt())[0])


def test_a_model_that_cannot_serialise_itself_is_shown_by_its_fields():
    class Wrong(pydantic.BaseModel):
        data: bytes

        @pydantic.model_serializer
        def fails(self) -> Any:
            raise ValueError("no")

    assert render(Wrong(data=b"\xff")).content == '{"data":{"base64":"/w=="}}'


def test_a_model_with_a_wrong_value_gives_no_warning():
    value = Model(id=uuid.UUID(int=1))
    value.by = Bare()
    assert "Bare object>" in render(value).content


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.complex_numbers()
    | st.text()
    | st.characters(categories=["Cs"])
    | st.binary()
    | st.datetimes(timezones=st.none() | st.timezones())
    | st.timedeltas()
    | st.decimals()
    | st.uuids()
    | st.builds(Bare)
    | st.builds(Broken)
    | st.just(FILE),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.none() | st.floats() | st.text() | st.binary() | st.tuples(st.integers()), inner, max_size=4
        )
        | st.builds(Record, st.text(), inner)
        | st.builds(Point, inner, inner)
        | st.builds(lambda value: Model(id=uuid.UUID(int=1), by=value), inner)
        | st.builds(ToolOutput, inner)
        | st.lists(inner, max_size=3).map(iter)
        | st.frozensets(st.floats() | st.text() | st.none(), max_size=4)
    ),
    max_leaves=12,
)


@given(ANYTHING)
def test_every_value_becomes_encodable_text(value: Any):
    output = render(value)
    assert type(output.content) is str
    output.content.encode()
    assert not output.is_error


@given(ANYTHING.filter(lambda value: not isinstance(value, str | bytes | ToolOutput | FilePart | list | type(None))))
def test_what_is_no_text_becomes_json(value: Any):
    msgspec.json.decode(render(value).content)


# The cut.


@pytest.mark.parametrize(
    ("text", "limit", "shown"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "abc\n[cut: 4 bytes, first 3 shown]"),
        ("é" * 3, 5, "éé\n[cut: 6 bytes, first 4 shown]"),
        ("😀", 3, "\n[cut: 4 bytes, first 0 shown]"),
        ("abcd", 0, "abcd"),
        ("x" * 10_485_760, 65_536, "x" * 65_536 + "\n[cut: 10485760 bytes, first 65536 shown]"),
    ],
)
def test_text_is_cut_on_a_character_boundary_with_a_notice(text: str, limit: int, shown: str):
    assert cap(text, limit) == shown


@given(st.text() | st.text(st.characters(categories=["Cs", "Lo"])), st.integers(0, 200))
def test_a_cut_text_is_a_prefix_within_the_limit(text: str, limit: int):
    shown = cap(text, limit)
    if shown == text:
        return
    kept, _, notice = shown.rpartition("\n[cut: ")
    clean = _results.encodable(text)
    assert clean.startswith(kept)
    assert limit - 4 < len(kept.encode()) <= limit < len(clean.encode())
    assert notice == f"{len(clean.encode())} bytes, first {len(kept.encode())} shown]"
