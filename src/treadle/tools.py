"""Tools: functions that a model may call."""

from __future__ import annotations

import asyncio
import copy
import functools
import inspect
import math
import os
import re
import types
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Generic, cast, overload

import msgspec

from treadle import _arguments, _plain, _results, _signature
from treadle._results import ToolOutput as ToolOutput  # noqa: PLC0414 - a public name of this module
from treadle._threads import ordinary, run_in_thread
from treadle.errors import ConfigError, ToolError
from treadle.events import Effect as Effect  # noqa: PLC0414 - as above
from treadle.events import Event
from treadle.messages import FilePart, encodable
from treadle.model import ToolSpec
from treadle.usage import Remaining, Usage

if TYPE_CHECKING:
    from typing_extensions import ParamSpec, TypeVar

    from treadle._schema import Compiled

    P = ParamSpec("P", default=...)
    R = TypeVar("R", default=Any)
    Deps = TypeVar("Deps", default=Any)
else:
    from typing import ParamSpec, TypeVar

    P = ParamSpec("P")
    R = TypeVar("R")
    Deps = TypeVar("Deps")

Schema = dict[str, Any]
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_MAX_SCHEMA_DEPTH = 100
_TEXT_OR_NOTHING: tuple[Any, ...] = (_signature.EMPTY, Any, str, None, types.NoneType, ToolOutput, FilePart)


class RunLink(msgspec.Struct, frozen=True, eq=False):
    """What a sub-agent needs of the run that called it: where its usage goes, what is left, and who decides there.

    `budget` is the run's share of its tree's; `approves` says whether the run has an approval policy. `tell` puts an
    event into its log. `waits` is around time in which a person is asked, which counts towards no limit.
    """

    spend: Callable[[Usage], None]
    remaining: Callable[[], Remaining | None]
    budget: Any
    approves: bool
    tell: Callable[[Event], None] | None = None
    waits: Callable[[], AbstractContextManager[None]] | None = None


class ToolContext(msgspec.Struct, Generic[Deps], frozen=True, kw_only=True, eq=False):
    """What a tool may know of the call it serves. A parameter with this annotation is filled in, and no model sees it.

    `step` counts the run's model requests from 0, `index` the calls of the step. `deps` is what the run was given.
    `on_progress` takes what `progress` reports; it is called from the tool's own thread and must be thread-safe. `run`
    joins a sub-agent to the run; None outside of one.
    """

    run_id: str
    step: int
    call_id: str
    name: str
    index: int
    deps: Deps
    on_progress: Callable[[str, float | None, float | None], None] | None = None
    run: RunLink | None = None

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt at this call, and for no other call."""
        return f"{self.run_id}:{self.step}:{self.index}"

    @property
    def remaining(self) -> Remaining:
        """What the limits of the run leave at this moment; all None where there are none."""
        return (None if self.run is None else self.run.remaining()) or Remaining()

    def progress(self, message: str, progress: float | None = None, total: float | None = None) -> None:
        """Tells whoever follows the run how far the tool is. May be called from any thread."""
        if self.on_progress is not None:
            self.on_progress(encodable(message), progress, total)


class _Policy(msgspec.Struct, frozen=True):
    """How the runtime treats a tool. Built by `_policy`, which checks it."""

    effect: Effect
    idempotent: bool
    sequential: bool
    timeout_seconds: float | None


class Tool(Generic[P, R]):
    """A function with what a model and the runtime must know of it. Read-only; calls may run at the same time.

    Made by `tool` or `Tool.raw`. Calling it calls the plain function. `source` is the file of the function.
    `subagent` says that it is an agent, made by `Agent.as_tool`.
    """

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str,
        description: str,
        policy: _Policy,
        signature: _signature.Signature | None = None,
        schemas: tuple[Schema, Schema | None] | None = None,
    ) -> None:
        self.__wrapped__ = function
        self.__doc__ = getattr(function, "__doc__", None)
        self.__name__: str = _legal(name)
        self._name = self.__name__
        self._description = encodable(description)
        self._policy = policy
        self._signature = signature
        self._schemas = schemas
        self.subagent: bool = False
        self._compiled: Compiled | None = None
        self._spec: ToolSpec | None = None
        self._in_loop = _signature.is_async(function)
        self._takes_context = signature is None and _signature.takes_context(function, name)
        code = getattr(_signature.underlying(function), "__code__", None)
        self._source = None if code is None or code.co_filename.startswith("<") else code.co_filename

    @staticmethod
    def raw(
        name: str,
        description: str,
        schema: Schema,
        fn: Callable[..., Any],
        *,
        effect: Effect | str = Effect.EXTERNAL,
        idempotent: bool | None = None,
        sequential: bool = False,
        timeout_seconds: float | None = None,
        output_schema: Schema | None = None,
    ) -> Tool[..., Any]:
        """A tool whose schema comes from outside Python.

        The model sees `schema` as it is, cut below 100 levels. `fn(arguments)` gets a dictionary of which only the
        required keys and the types of the top level are checked. Where `fn` has a second parameter that is named
        `context` or has no default, it gets the `ToolContext` as well.
        """
        if not isinstance(schema, dict):
            raise ConfigError(f"tool {name}: schema is a dictionary with a JSON Schema, not {type(schema).__name__}")
        fn = _signature.plain_function(fn)
        schemas = (_copy(schema), None if output_schema is None else _copy(output_schema))
        try:
            msgspec.json.encode(schemas)
        except Exception as error:
            raise ConfigError(f"tool {name}: the schema is not JSON: {error}") from error
        policy = _policy(name, effect, idempotent=idempotent, sequential=sequential, timeout_seconds=timeout_seconds)
        return Tool(fn, name=name, description=description, policy=policy, schemas=schemas)

    @property
    def name(self) -> str:
        return self._name

    @property
    def description(self) -> str:
        return self._description

    @property
    def effect(self) -> Effect:
        return self._policy.effect

    @property
    def idempotent(self) -> bool:
        """Whether running the same call twice does no more than running it once."""
        return self._policy.idempotent

    @property
    def sequential(self) -> bool:
        """Whether the tool must have its step for itself."""
        return self._policy.sequential

    @property
    def timeout_seconds(self) -> float | None:
        return self._policy.timeout_seconds

    @property
    def source(self) -> str | None:
        return self._source

    @property
    def input_schema(self) -> Schema:
        """JSON Schema of the arguments. Built, and pydantic imported, when first needed. Not to be changed."""
        return self.spec.input_schema

    @property
    def output_schema(self) -> Schema | None:
        """JSON Schema of the result; None for text, for no result, and for what JSON Schema cannot express."""
        return self.spec.output_schema

    @property
    def spec(self) -> ToolSpec:
        """What a model is told of the tool. Raises `ConfigError` for a parameter that has no JSON form."""
        if self._spec is None:
            given, returned = self._schemas or (self._plain_schema or self._checks().input_schema, self._returned())
            self._spec = ToolSpec(self.name, self.description, given, returned)
        return self._spec

    def parse(self, args: str) -> dict[str, Any]:
        """The arguments in a model's JSON text, with their declared types and defaults.

        Raises `ToolInputError`, whose text tells the model what is wrong.
        """
        if self._schemas is not None:
            return _arguments.parse_raw(args, self.name, self._schemas[0])
        signature = cast("_signature.Signature", self._signature)
        if self._plain_schema is not None:
            return _arguments.parse_plain(args, self.name, signature, self._checks)
        return _arguments.parse(args, self.name, self._checks())

    async def call(self, arguments: dict[str, Any], context: ToolContext[Any]) -> Any:
        """Runs the function with parsed arguments; a synchronous one in a daemon thread of its own.

        The function's own errors propagate; what would end the loop or the thread comes out as an ordinary error. What
        a generator yields is collected: at most 10,000 items. No timeout applies. A cancelled call abandons its thread.
        """
        try:
            value = self._run(arguments, context) if self._in_loop else await self._run_outside(arguments, context)
            if inspect.isawaitable(value):
                value = await value
            if isinstance(value, AsyncIterator):
                value = await _results.collect_async(value)
        except SystemExit as error:
            raise ordinary(error) from error
        return value

    def with_name(self, name: str) -> Tool[P, R]:
        """The same tool under another name."""
        other = copy.copy(self)
        vars(other).update(_name=_legal(name), __name__=name, _spec=None)
        return other

    async def invoke(self, args: str | Mapping[str, Any] = "{}", *, deps: Any = None) -> Any:
        """Runs the tool outside a run, with a model's JSON text or the decoded object. Returns the function's value.

        Raises `ToolInputError` for arguments that do not fit, `ToolError` after `timeout_seconds`, and whatever the
        function raises.
        """
        arguments = self.parse(args if isinstance(args, str) else msgspec.json.encode(args).decode())
        run_id = f"invoke-{os.urandom(12).hex()}"
        context = ToolContext(run_id=run_id, step=0, call_id="call_0", name=self.name, index=0, deps=deps)
        limit = asyncio.timeout(self.timeout_seconds)
        try:
            async with limit:
                return await self.call(arguments, context)
        except TimeoutError:
            if limit.expired():
                raise ToolError(f"{self.name} did not end within {self.timeout_seconds:g} seconds") from None
            raise

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.__wrapped__(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Tool {self.name}>"

    def _run(self, arguments: dict[str, Any], context: ToolContext[Any]) -> Any:
        function: Callable[..., Any] = self.__wrapped__
        if self._signature is None:
            return function(arguments, context) if self._takes_context else function(arguments)
        if self._signature.context is not None:
            arguments = {**arguments, self._signature.context: context}
        return function(**arguments)

    async def _run_outside(self, arguments: dict[str, Any], context: ToolContext[Any]) -> Any:
        def work() -> Any:
            value = self._run(arguments, context)
            return _results.collect(value) if isinstance(value, Iterator) else value

        return await run_in_thread(work)

    @functools.cached_property
    def _plain_schema(self) -> Schema | None:
        return _plain.input_schema(cast("_signature.Signature", self._signature))

    def _checks(self) -> Compiled:
        if self._compiled is None:
            from treadle import _schema

            self._compiled = _schema.compile_signature(cast("_signature.Signature", self._signature), self.name)
        return self._compiled

    def _returned(self) -> Schema | None:
        signature = cast("_signature.Signature", self._signature)
        if signature.returns in _TEXT_OR_NOTHING:
            return None
        if (plain := _plain.schema_of(signature.returns)) is not None:
            return plain
        from treadle import _schema

        return _schema.output_schema(signature.returns, signature.namespace)


@overload
def tool(
    function: Callable[P, R],
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    effect: Effect | str = Effect.EXTERNAL,
    idempotent: bool | None = None,
    sequential: bool = False,
    timeout_seconds: float | None = None,
) -> Tool[P, R]: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    effect: Effect | str = Effect.EXTERNAL,
    idempotent: bool | None = None,
    sequential: bool = False,
    timeout_seconds: float | None = None,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    effect: Effect | str = Effect.EXTERNAL,
    idempotent: bool | None = None,
    sequential: bool = False,
    timeout_seconds: float | None = None,
) -> Any:
    """Makes a tool of a function: `@tool`, `@tool(effect="read", ...)`, or `tool(function, effect="read", ...)`.

    Name, description and parameters come from the function's name, docstring (Google, NumPy or Sphinx style) and
    annotations. `effect` is `read`, `write` or `external`; `idempotent` is true for a `read` unless said otherwise;
    a `sequential` tool has its step for itself. Raises `ConfigError` for what cannot be described to a model.
    """
    if function is None:
        return functools.partial(
            tool, name=name, description=description, effect=effect, idempotent=idempotent, sequential=sequential,
            timeout_seconds=timeout_seconds,
        )  # fmt: skip
    if isinstance(function, Tool):
        raise ConfigError(f"{function.name} is a tool already")
    function = _signature.plain_function(function)
    name = _signature.name_of(function) if name is None else name
    policy = _policy(name, effect, idempotent=idempotent, sequential=sequential, timeout_seconds=timeout_seconds)
    signature = _signature.read(function, _legal(name), ToolContext)
    text = signature.description if description is None else description
    return Tool(function, name=name, description=text, policy=policy, signature=signature)


def _legal(name: str) -> str:
    if isinstance(name, str) and _NAME.fullmatch(name):
        return name
    better = re.sub(r"[^a-zA-Z0-9_-]+", "_", str(name))[:64].strip("_") or "my_tool"
    raise ConfigError(
        f"tool name {name!r}: providers take 1 to 64 letters, digits, '_' and '-' (ASCII): give name={better!r}"
    )


def _policy(
    name: str, effect: Effect | str, *, idempotent: bool | None, sequential: bool, timeout_seconds: float | None
) -> _Policy:
    if effect not in tuple(Effect):
        raise ConfigError(f"tool {name}: effect is 'read', 'write' or 'external', not {effect!r}")
    is_number = isinstance(timeout_seconds, int | float)
    if timeout_seconds is not None and not (is_number and 0 < timeout_seconds < math.inf):
        raise ConfigError(f"tool {name}: timeout_seconds is a number above 0, or None for no limit")
    effect = Effect(effect)
    return _Policy(effect, effect is Effect.READ if idempotent is None else idempotent, sequential, timeout_seconds)


def _copy(schema: Any, above: tuple[int, ...] = ()) -> Any:
    """A deep copy that ends: where it is too deep for JSON encoders, or holds itself, it allows everything."""
    if isinstance(schema, str):
        return encodable(schema)
    if not isinstance(schema, dict | list | tuple):
        return schema
    if len(above) == _MAX_SCHEMA_DEPTH or id(schema) in above:
        return {} if isinstance(schema, dict) else []
    above = (*above, id(schema))
    if isinstance(schema, dict):
        return {_copy(key): _copy(value, above) for key, value in schema.items()}
    return [_copy(value, above) for value in schema]
