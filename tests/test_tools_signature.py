"""Signatures: postponed annotations, local names, the injected context, and what is refused."""

from __future__ import annotations

import gc
import typing
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional

import pytest
from pydantic import BaseModel
from typing_extensions import TypedDict

from treadle import tools
from treadle.errors import ConfigError
from treadle.tools import Tool, ToolContext, tool

if TYPE_CHECKING:
    from elsewhere import OnlyForCheckers


class Cfg(BaseModel):
    level: int = 1


def properties(made: Tool[..., Any]) -> dict[str, Any]:
    return made.input_schema["properties"]


def test_postponed_annotations_with_a_class_of_the_module():
    @tool
    def go(ctx: ToolContext, n: int, mode: Literal["a", "b"] = "a", cfg: Cfg | None = None) -> None: ...

    assert go.input_schema == {
        "type": "object",
        "properties": {
            "n": {"type": "integer"},
            "mode": {"type": "string", "enum": ["a", "b"], "default": "a"},
            "cfg": {"anyOf": [{"$ref": "#/$defs/Cfg"}, {"type": "null"}], "default": None},
        },
        "required": ["n"],
        "additionalProperties": False,
        "$defs": {"Cfg": {"type": "object", "properties": {"level": {"type": "integer", "default": 1}}}},
    }
    assert go.parse('{"n": 1, "cfg": {"level": "3"}}') == {"n": 1, "mode": "a", "cfg": Cfg(level=3)}


def test_postponed_annotations_with_a_class_local_to_a_function():
    class Cfg(BaseModel):  # hides the one of the module
        depth: int

    @tool
    def go(ctx: ToolContext, n: int, cfg: Cfg | None = None) -> Cfg: ...

    assert go.parse('{"n": 1, "cfg": {"depth": 3}}')["cfg"] == Cfg(depth=3)
    assert go.output_schema == {"type": "object", "properties": {"depth": {"type": "integer"}}, "required": ["depth"]}


def test_names_of_outer_functions_are_found_while_they_run():
    class Outer(BaseModel):
        a: int

    def make() -> Tool[..., Any]:
        class Inner(BaseModel):
            b: int

        def go(outer: Outer, inner: Inner) -> None: ...

        return tool(go)

    assert make().parse('{"outer": {"a": 1}, "inner": {"b": 2}}')["outer"] == Outer(a=1)


def test_names_of_a_caller_that_does_not_enclose_the_function_are_not_taken():
    Cfg = int  # noqa: F841, N806 - must not be seen

    made = module_level()
    assert properties(made)["cfg"] == {"$ref": "#/$defs/Cfg"}


def module_level() -> Tool[..., Any]:
    def go(cfg: Cfg) -> None: ...

    return tool(go)


def test_names_inside_a_class_body():
    class Service:
        Mode = Literal["fast", "slow"]

        @tool
        @staticmethod
        def go(mode: Mode) -> None: ...

    assert properties(Service.go)["mode"] == {"type": "string", "enum": ["fast", "slow"]}


def test_local_dataclasses_that_name_each_other():
    @dataclass
    class Leaf:
        size: int

    @dataclass
    class Tree:
        leaves: list[Leaf]
        label: Label

    class Label(TypedDict):
        text: str

    @tool
    def go(tree: Tree) -> None: ...

    found = go.parse('{"tree": {"leaves": [{"size": 1}], "label": {"text": "x"}}}')
    assert found["tree"] == Tree([Leaf(1)], {"text": "x"})


def test_a_tool_does_not_keep_the_locals_around_it_alive():
    class Big:
        pass

    def make() -> tuple[Any, Tool[..., Any]]:
        big = Big()

        def go(a: int) -> None: ...

        return weakref.ref(big), tool(go)

    reference, made = make()
    gc.collect()
    assert reference() is None
    assert made.name == "go"


def test_a_name_that_cannot_be_resolved_is_refused_where_the_tool_is_defined():
    def go(good: int, bad: list[OnlyForCheckers]) -> None: ...

    with pytest.raises(
        ConfigError, match=r"tool go: .*OnlyForCheckers.*parameter bad.*'OnlyForCheckers' is not defined"
    ):
        tool(go)


@pytest.mark.parametrize("annotation", ["int +", "1 / 0", "typing.Missing", "list[int"])
def test_an_annotation_that_is_no_type_is_refused(annotation: str):
    def go(good: int, bad: Any) -> None: ...

    go.__annotations__["bad"] = annotation
    with pytest.raises(ConfigError, match="of parameter bad cannot be resolved"):
        tool(go)


def test_a_result_type_that_cannot_be_resolved_is_no_harm():
    @tool
    def go(a: int) -> OnlyForCheckers: ...

    assert (properties(go), go.output_schema) == ({"a": {"type": "integer"}}, None)


class Services:
    pass


def _bare(a: int, here: ToolContext) -> None: ...
def _of_a_type(here: ToolContext[Services], a: int) -> None: ...
def _optional(a: int, here: ToolContext[Services] | None = None) -> None: ...
def _old_optional(a: int, here: Optional[ToolContext[Services]] = None) -> None: ...  # noqa: UP045
def _annotated(a: int, here: Annotated[ToolContext[Services], "the call"]) -> None: ...
def _keyword(a: int, *, here: ToolContext[Services]) -> None: ...
def _quoted(a: int, here: "ToolContext[Services]") -> None: ...  # noqa: UP037
def _by_module(a: int, here: tools.ToolContext[Services]) -> None: ...
def _unknown_dependencies(a: int, here: ToolContext[OnlyForCheckers]) -> None: ...
def _unknown_optional(a: int, here: ToolContext[OnlyForCheckers] | None = None) -> None: ...


CONTEXT_FORMS = [
    *(_bare, _of_a_type, _optional, _old_optional, _annotated, _keyword, _quoted, _by_module),
    *(_unknown_dependencies, _unknown_optional),
]


@pytest.mark.parametrize("function", CONTEXT_FORMS)
def test_the_context_is_never_part_of_the_schema(function: Any):
    made = tool(function)
    assert properties(made) == {"a": {"type": "integer"}}
    assert made.parse('{"a": 1}') == {"a": 1}


def test_the_context_is_found_without_postponed_annotations():
    namespace: dict[str, Any] = {"ToolContext": ToolContext}
    exec("def go(a: int, here: ToolContext[int] | None = None, *, b: 'list[int]' = ()): ...", namespace)
    assert list(properties(tool(namespace["go"]))) == ["a", "b"]


def test_two_contexts_are_refused():
    def go(one: ToolContext, two: ToolContext[int]) -> None: ...

    with pytest.raises(ConfigError, match="one and two are both a ToolContext: keep one"):
        tool(go)


def _positional_only(a: int, /) -> None: ...
def _variadic(*paths: str) -> None: ...
def _keywords(**options: str) -> None: ...
def _untyped(a: int, b) -> None: ...
def _untyped_all(a: int, b) -> OnlyForCheckers: ...
def _method(self, a: int) -> None: ...


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (_positional_only, "tool _positional_only: parameter a is positional-only.*remove the '/'"),
        (_variadic, r"parameter paths takes any number.*paths: list\[str\]"),
        (_keywords, r"parameter options takes any name.*options: dict\[str, str\]"),
        (_untyped, "parameter b has no annotation: write its type, for instance b: str"),
        (_untyped_all, "parameter b has no annotation"),
        (
            _method,
            r"parameter self has no annotation: make a tool of the bound method, for instance tool\(thing.method\)",
        ),
    ],
)
def test_what_no_model_can_pass_is_refused_with_the_fix(function: Any, text: str):
    with pytest.raises(ConfigError, match=text):
        tool(function)


def test_a_signature_that_cannot_be_read_is_refused():
    with pytest.raises(ConfigError, match="tool max: the signature cannot be read"):
        tool(max)


def test_a_changed_signature_counts():
    import inspect

    def go(*args: Any, **kwargs: Any) -> str:
        return str(kwargs)

    go.__signature__ = inspect.Signature([inspect.Parameter("n", inspect.Parameter.KEYWORD_ONLY, annotation=int)])  # type: ignore[attr-defined]
    assert properties(tool(go)) == {"n": {"type": "integer"}}


def test_typing_aliases_of_a_type_checker_are_followed():
    alias: Any = typing.NewType("alias", int)

    def go(a: Any) -> None: ...

    go.__annotations__["a"] = alias
    assert properties(tool(go)) == {"a": {"type": "integer"}}
