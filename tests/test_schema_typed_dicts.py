"""Typed dictionaries of both modules, nested and recursive, on every Python."""

from __future__ import annotations

import typing
from typing import Annotated, NotRequired

import pytest
import typing_extensions
from pydantic import Field

from treadle import Agent, tool
from treadle.testing import ScriptedModel


class Inner(typing.TypedDict):
    """What is inside."""

    size: Annotated[int, Field(ge=1)]


class Outer(typing.TypedDict, total=False):
    name: typing.Required[str]
    inner: Inner
    several: list[Inner]


class Modern(typing_extensions.TypedDict):
    name: NotRequired[str]


class Tree(typing.TypedDict):
    leaf: str
    branches: list[Tree]


@tool
async def grow(tree: Tree) -> str:
    return tree["branches"][0]["leaf"]


async def test_a_recursive_one_has_a_finite_schema() -> None:
    assert grow.input_schema["$defs"]["Tree"]["properties"]["branches"]["items"] == {"$ref": "#/$defs/Tree"}
    assert await grow.invoke('{"tree": {"leaf": "a", "branches": [{"leaf": "b", "branches": []}]}}') == "b"


@tool
async def take(
    outer: Outer, many: dict[str, Inner] | None = None, pair: tuple[Inner, ...] = (), modern: Modern | None = None
) -> str:
    return f"{outer} {many} {pair} {modern}"


def test_a_typed_dict_of_the_standard_library_becomes_a_schema() -> None:
    schema = take.input_schema
    definitions = schema["$defs"]
    assert definitions["Outer"]["required"] == ["name"]
    assert definitions["Inner"]["properties"]["size"] == {"minimum": 1, "type": "integer"}
    assert definitions["Inner"]["description"] == "What is inside."


async def test_its_values_arrive_checked() -> None:
    arguments = '{"outer": {"name": "a", "several": [{"size": 2}]}, "many": {"x": {"size": 1}}, "pair": [{"size": 3}]}'
    text = await take.invoke(arguments)
    assert text == "{'name': 'a', 'several': [{'size': 2}]} {'x': {'size': 1}} ({'size': 3},) None"
    with pytest.raises(Exception, match="size"):
        await take.invoke('{"outer": {"name": "a", "inner": {"size": 0}}}')


async def test_it_may_be_the_output_of_an_agent() -> None:
    result = await Agent(ScriptedModel('{"name": "a", "inner": {"size": 1}}'), output=Outer).run("go")
    assert result.output == {"name": "a", "inner": {"size": 1}}
