"""The decorator, raw tools, and running one tool outside a run."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from treadle.errors import ConfigError, ToolError, ToolInputError
from treadle.events import Effect
from treadle.model import ToolSpec
from treadle.tools import Tool, ToolContext, ToolOutput, tool


def context(**changes: Any) -> ToolContext[Any]:
    given = {"run_id": "r1", "step": 2, "call_id": "c1", "name": "t", "index": 3, "deps": None}
    return ToolContext(**(given | changes))


async def call(made: Tool[..., Any], arguments: dict[str, Any] | None = None, **changes: Any) -> Any:
    return await asyncio.wait_for(made.call(arguments or {}, context(**changes)), 10)


@tool
def add(a: int, b: int = 2) -> int:
    """Adds two numbers."""
    return a + b


def test_a_decorated_function_says_what_it_is():
    assert add.name == "add"
    assert add.description == "Adds two numbers."
    assert add.effect is Effect.EXTERNAL
    assert not add.idempotent
    assert not add.sequential
    assert add.timeout_seconds is None
    assert add.source == __file__
    assert add.spec == ToolSpec("add", "Adds two numbers.", add.input_schema, {"type": "integer"})
    assert add.spec is add.spec
    assert repr(add) == "<Tool add>"


def test_a_decorated_function_is_still_the_plain_function():
    assert add(1) == 3
    assert add(1, b=5) == 6
    assert list(inspect.signature(add).parameters) == ["a", "b"]
    assert add.__doc__ == "Adds two numbers."


def test_options_of_the_decorator():
    @tool(name="other", description="Else.", effect="write", idempotent=True, sequential=True, timeout_seconds=1.5)
    def named(a: int) -> int:
        """Not this."""
        return a

    found = (named.name, named.description, named.effect, named.idempotent, named.sequential, named.timeout_seconds)
    assert found == ("other", "Else.", Effect.WRITE, True, True, 1.5)


def test_the_decorator_takes_a_function_and_options_at_once():
    assert tool(lambda: 1, name="one", effect=Effect.READ).effect is Effect.READ


def test_reading_is_idempotent_unless_said_otherwise():
    assert tool(lambda: 1, name="a", effect="read").idempotent
    assert not tool(lambda: 1, name="a", effect="read", idempotent=False).idempotent
    assert not tool(lambda: 1, name="a", effect="write").idempotent


@pytest.mark.parametrize("attribute", ["name", "description", "effect", "input_schema", "spec", "timeout_seconds"])
def test_a_tool_is_read_only(attribute: str):
    with pytest.raises(AttributeError):
        setattr(add, attribute, "x")


@pytest.mark.parametrize(
    ("name", "better"),
    [
        ("a.b", "a_b"),
        ("read/file", "read_file"),
        ("größe", "gr_e"),
        ("x" * 90, "x" * 64),
        ("", "my_tool"),
        ("a b", "a_b"),
        ("a\n", "a"),
    ],
)
def test_an_illegal_name_is_refused_with_a_legal_one(name: str, better: str):
    with pytest.raises(ConfigError, match=f"give name='{better}'"):
        tool(name=name)(lambda: 1)
    with pytest.raises(ConfigError, match=f"give name='{better}'"):
        Tool.raw(name, "", {"type": "object"}, lambda arguments: 1)


def test_a_lambda_wants_a_name():
    with pytest.raises(ConfigError, match="give name='lambda'"):
        tool(lambda: 1)


@pytest.mark.parametrize("effect", ["reads", "", None, 3])
def test_an_unknown_effect_is_refused(effect: Any):
    with pytest.raises(ConfigError, match="effect is 'read', 'write' or 'external'"):
        tool(name="a", effect=effect)(lambda: 1)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), "3"])
def test_an_impossible_timeout_is_refused(seconds: Any):
    with pytest.raises(ConfigError, match="timeout_seconds is a number above 0"):
        tool(name="a", timeout_seconds=seconds)(lambda: 1)


class Counter:
    """Counts."""

    def __init__(self) -> None:
        self.total = 0

    def __call__(self, by: int) -> int:
        """Counts on."""
        self.total += by
        return self.total

    def method(self, by: int) -> int:
        """Counts on, too."""
        return self(by)

    @staticmethod
    def static(by: int) -> int:
        return by


@pytest.mark.parametrize(
    ("function", "name", "description"),
    [
        (Counter(), "Counter", "Counts on."),
        (Counter().method, "method", "Counts on, too."),
        (Counter.__dict__["static"], "static", ""),
        (functools.partial(Counter().method), "method", "Counts on, too."),
    ],
)
async def test_objects_methods_partials_and_static_methods_work(function: Any, name: str, description: str):
    made = tool(function)
    assert (made.name, made.description) == (name, description)
    assert list(made.input_schema["properties"]) == ["by"]
    assert made.source == __file__
    assert await made.invoke('{"by": 3}') == 3


async def test_what_a_partial_binds_is_out_of_the_models_reach():
    def send(text: str, *, to: str, times: int = 1) -> str:
        return f"{text} {to} {times}"

    made = tool(functools.partial(send, to="Ada"))
    assert list(made.input_schema["properties"]) == ["text", "times"]
    assert await made.invoke('{"text": "hi"}') == "hi Ada 1"
    with pytest.raises(ToolInputError, match="to: no such argument"):
        made.parse('{"text": "hi", "to": "Eve"}')


async def test_a_wrapped_function_shows_the_signature_below():
    def loud(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> str:
            return str(function(*args, **kwargs)).upper()

        return wrapper

    @tool
    @loud
    def greet(name: str) -> str:
        """Greets."""
        return f"hi {name}"

    assert (greet.name, greet.description, list(greet.input_schema["properties"])) == ("greet", "Greets.", ["name"])
    assert await greet.invoke('{"name": "ada"}') == "HI ADA"


@pytest.mark.parametrize("thing", [3, "name", None, Counter, classmethod(lambda cls: 1), object()])
def test_what_is_no_function_is_refused(thing: Any):
    with pytest.raises(ConfigError, match="a tool is made of a function"):
        tool(thing, name="a") if thing is not None else tool(name="a")(Counter)


def test_a_tool_of_a_tool_is_refused():
    with pytest.raises(ConfigError, match="add is a tool already"):
        tool(add)


def test_a_builtin_that_cannot_be_described_is_refused():
    with pytest.raises(ConfigError, match="tool len: parameter obj is positional-only"):
        tool(len)


def test_importing_and_decorating_loads_no_pydantic():
    program = (
        "import sys\nfrom treadle.tools import tool\n"
        "@tool\ndef f(a: int, b: 'list[str]') -> dict[str, int]:\n    'One line.'\n"
        "assert f.name == 'f'\n"
        "print([m for m in ('pydantic', 'httpx2', 'docstring_parser') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


# Calls.


async def test_an_async_function_runs_where_it_is_awaited():
    @tool
    async def where(a: int) -> Any:
        return asyncio.current_task(), a

    assert await where.call({"a": 1}, context()) == (asyncio.current_task(), 1)


async def test_a_sync_function_runs_in_a_thread_with_the_callers_context():
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")
    variable.set("set")

    @tool
    def look() -> Any:
        import threading

        variable.set("changed")
        return variable.get(), threading.current_thread().daemon

    assert await call(look) == ("changed", True)
    assert variable.get() == "set"


async def test_a_sync_function_may_return_an_awaitable():
    async def later() -> str:
        return "late"

    def returns_awaitable() -> Any:
        return later()

    assert await call(tool(returns_awaitable)) == "late"


async def test_what_generators_yield_is_collected_outside_the_loop():
    import threading

    @tool
    def count() -> Iterator[str]:
        yield "a"
        yield threading.current_thread().name

    @tool
    async def count_async() -> AsyncIterator[int]:
        for number in range(3):
            yield number

    assert await call(count) == ["a", "treadle-tool"]
    assert await call(count_async) == [0, 1, 2]


async def test_an_endless_generator_is_cut():
    import itertools

    def endless() -> Any:
        return itertools.count()

    found = await call(tool(endless))
    assert found[9_999:] == [9_999, "[cut: only the first 10000 items are shown]"]


async def test_a_functions_own_error_propagates():
    def broken() -> None:
        raise KeyError("gone")

    async def broken_async() -> None:
        raise KeyError("gone")

    for function in (broken, broken_async):
        with pytest.raises(KeyError, match="gone"):
            await call(tool(function))


@pytest.mark.parametrize("asynchronous", [True, False])
@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (SystemExit(3), "SystemExit: 3"),
        (StopIteration("x"), "StopIteration"),
    ],
)
async def test_what_would_end_the_loop_comes_out_as_an_ordinary_error(
    raised: BaseException, expected: str, asynchronous: bool
):
    def ends() -> None:
        raise raised

    async def ends_async() -> None:
        raise raised

    with pytest.raises(Exception, match=expected) as caught:
        await call(tool(ends_async if asynchronous else ends))
    assert caught.value.__cause__ is raised


@pytest.mark.parametrize("raised", [asyncio.CancelledError("own"), GeneratorExit("own")])
async def test_a_sync_function_cannot_cancel_its_caller(raised: BaseException):
    def ends() -> None:
        raise raised

    with pytest.raises(ToolError, match=f"{type(raised).__name__}: own"):
        await call(tool(ends))


async def test_the_context_is_injected_wherever_it_stands():
    @tool
    def show(a: int, here: ToolContext[str], b: int = 2) -> Any:
        return a, here.deps, b

    assert list(show.input_schema["properties"]) == ["a", "b"]
    assert await call(show, {"a": 1}, deps="db") == (1, "db", 2)


def test_the_context_knows_its_call():
    assert context().idempotency_key == "r1:2:3"


def test_progress_goes_to_the_sink_in_encodable_form():
    heard: list[Any] = []
    context(on_progress=lambda *said: heard.append(said)).progress("half\ud800", 1, total=2)
    context().progress("nobody listens")
    assert heard == [("half�", 1, 2)]


# One tool outside a run.


async def test_invoke_parses_and_calls():
    assert await add.invoke('{"a": "40"}') == 42
    with pytest.raises(ToolInputError, match="a: required, but missing"):
        await add.invoke()


async def test_each_invocation_has_its_own_idempotency_key():
    @tool
    def key(context: ToolContext[str]) -> str:
        return f"{context.deps} {context.idempotency_key}"

    first, second = await key.invoke(deps="x"), await key.invoke(deps="x")
    assert first.startswith("x invoke-")
    assert first != second


async def test_invoke_keeps_the_timeout():
    @tool(timeout_seconds=0.01)
    async def never() -> None:
        await asyncio.Event().wait()

    with pytest.raises(ToolError, match=r"never did not end within 0.01 seconds"):
        await asyncio.wait_for(never.invoke(), 10)


async def test_a_tools_own_timeout_error_stays_one():
    @tool(timeout_seconds=60)
    async def gives_up() -> None:
        raise TimeoutError("the server")

    with pytest.raises(TimeoutError, match="the server"):
        await gives_up.invoke()


# Raw tools.

SCHEMA = {
    "type": "object",
    "properties": {"q": {"type": "string", "title": "Q"}, "n": {"type": ["integer", "null"]}, "any": {}},
    "required": ["q"],
}


async def test_a_raw_tool_shows_the_schema_as_it_is():
    made = Tool.raw(
        "look", "Looks.", SCHEMA, lambda arguments: arguments, effect="read", output_schema={"type": "object"}
    )
    assert made.spec == ToolSpec("look", "Looks.", SCHEMA, {"type": "object"})
    assert made.idempotent
    assert made.source == __file__
    assert await made.invoke('{"q": "x", "extra": [1]}') == {"q": "x", "extra": [1]}


def test_a_raw_schema_is_a_copy():
    schema: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}}}
    made = Tool.raw("a", "", schema, lambda arguments: None)
    schema["properties"]["a"]["type"] = "integer"
    assert made.input_schema["properties"]["a"] == {"type": "string"}


def _with_context(arguments: Any, given: Any) -> Any:
    return given.call_id


def _with_optional_context(arguments: Any, context: Any = None) -> Any:
    return context.call_id


async def _asynchronous(arguments: Any, given: Any) -> Any:
    return given.call_id


def _with_other_default(arguments: Any, verbose: Any = "c1") -> Any:
    return verbose


def _variadic(*args: Any) -> Any:
    return "c1" if len(args) == 1 else args


@pytest.mark.parametrize("fn", [_with_context, _with_optional_context, _asynchronous, _with_other_default, _variadic])
async def test_a_raw_function_gets_the_context_where_it_asks_for_it(fn: Any):
    assert await call(Tool.raw("a", "", SCHEMA, fn)) == "c1"


async def test_a_raw_function_without_a_readable_signature_gets_the_arguments():
    assert await call(Tool.raw("a", "", SCHEMA, max), {"x": 1, "y": 2}) == "y"


@pytest.mark.parametrize("fn", [lambda: 1, lambda a, b, c: 1])
def test_a_raw_function_of_another_shape_is_refused(fn: Any):
    with pytest.raises(ConfigError, match=r"takes \(arguments\) or \(arguments, context\)"):
        Tool.raw("a", "", SCHEMA, fn)


@pytest.mark.parametrize("schema", [None, True, [], "{}"])
def test_a_raw_schema_is_a_dictionary(schema: Any):
    with pytest.raises(ConfigError, match="schema is a dictionary"):
        Tool.raw("a", "", schema, lambda arguments: 1)


def test_a_raw_schema_that_is_no_json_is_refused():
    with pytest.raises(ConfigError, match="the schema is not JSON"):
        Tool.raw("a", "", {"type": object()}, lambda arguments: 1)


def test_a_raw_function_must_be_one():
    with pytest.raises(ConfigError, match="a tool is made of a function"):
        Tool.raw("a", "", SCHEMA, "nothing")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("args", "fault"),
    [
        ("{}", "q: required, but missing"),
        ('{"q": 5}', "q: must be a string, not an integer: 5"),
        ('{"q": null}', "q: must be a string, not null"),
        ('{"q": "x", "n": 1.5}', "n: must be an integer or null, not a number: 1.5"),
        ('{"q": "x", "n": true}', "n: must be an integer or null, not a boolean: true"),
        ("[1]", "one JSON object, not an array"),
    ],
)
def test_a_raw_tool_reports_simple_faults(args: str, fault: str):
    with pytest.raises(ToolInputError, match="The arguments of a were not accepted") as caught:
        Tool.raw("a", "", SCHEMA, lambda arguments: 1).parse(args)
    assert fault in str(caught.value)
    assert "Expected arguments: q, n (optional), any (optional)" in str(caught.value)


def test_null_for_an_argument_that_may_be_absent_counts_as_absent():
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string", "default": "x"}, "b": {"type": ["string", "null"]}},
    }
    assert Tool.raw("a", "", schema, lambda arguments: 1).parse('{"a": null, "b": null}') == {"b": None}


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object", "properties": None, "required": None},
        {"properties": {"q": True}, "required": [3]},
        {"properties": {"q": {"type": [1, None]}}},
        {"properties": {"q": {"$ref": "#/nowhere"}}},
    ],
)
def test_an_odd_raw_schema_does_no_harm(schema: dict[str, Any]):
    assert Tool.raw("a", "", schema, lambda arguments: 1).parse('{"q": "x"}') == {"q": "x"}


def test_a_very_deep_raw_schema_is_cut_and_does_not_harm_its_neighbour():
    import msgspec

    deep: dict[str, Any] = {"type": "string"}
    for _ in range(2_000):
        deep = {"type": "object", "properties": {"a": deep}}
    made = Tool.raw("deep", "", deep, lambda arguments: arguments)
    assert msgspec.json.decode(msgspec.json.encode(made.spec.input_schema)) == made.spec.input_schema
    assert made.parse('{"a": {}}') == {"a": {}}
    assert add.input_schema["type"] == "object"


def test_a_raw_schema_that_holds_itself_is_cut():
    schema: dict[str, Any] = {"type": "object", "properties": {}}
    schema["properties"] |= {"a": schema, "b": schema, "c": {"$ref": "#"}}
    found = Tool.raw("a", "", schema, lambda arguments: 1).input_schema
    assert found == {"type": "object", "properties": {"a": {}, "b": {}, "c": {"$ref": "#"}}}


def test_lone_surrogates_in_a_raw_schema_are_made_encodable():
    made = Tool.raw("a", "\ud800", {"type": "object", "description": "x\udfff"}, lambda arguments: 1)
    assert (made.description, made.input_schema["description"]) == ("�", "x�")


def test_a_tool_output_takes_one_file_or_several():
    from treadle.messages import FilePart

    file = FilePart("image/png", data=b"x")
    assert ToolOutput("a", files=file).files == (file,)  # type: ignore[arg-type]
    assert ToolOutput("a", files=[file, file]).files == (file, file)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="FilePart"):
        ToolOutput("a", files=["x.png"])  # type: ignore[arg-type]
