"""What a function says of itself: parameters with resolved types, the injected context, the docstring.

Types are resolved where the tool is defined, because only there the names of an enclosing function can be seen.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import sys
import types
import typing
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from treadle import _docstrings
from treadle.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

EMPTY = inspect.Parameter.empty
_CANNOT: dict[Any, str] = {
    inspect.Parameter.POSITIONAL_ONLY: "is positional-only, and a model passes arguments by name: remove the '/'",
    inspect.Parameter.VAR_POSITIONAL: "takes any number of arguments: take a list instead, for instance {0}: list[str]",
    inspect.Parameter.VAR_KEYWORD: "takes any name: take a dictionary instead, for instance {0}: dict[str, str]",
}


class Parameter(msgspec.Struct, frozen=True):
    """One argument a model may give. `default` is `EMPTY` where there is none."""

    name: str
    annotation: Any
    default: Any
    description: str


class Signature(msgspec.Struct, frozen=True):
    """A function as a tool. `context` names the injected parameter, `namespace` the types of enclosing functions."""

    parameters: tuple[Parameter, ...]
    context: str | None
    returns: Any
    description: str
    namespace: dict[str, Any]


def underlying(function: Any) -> Any:
    """The plain function behind a partial, a bound method, a callable object or a wrapper."""
    while isinstance(function, functools.partial):
        function = function.func
    if not inspect.isroutine(function):
        function = type(function).__call__
    return inspect.unwrap(getattr(function, "__func__", function))


def read(function: Callable[..., Any], name: str, context_type: type) -> Signature:
    """Reads `function` as the tool `name`. Raises `ConfigError` for what cannot be described to a model."""
    try:
        declared = inspect.signature(function).parameters
    except (TypeError, ValueError, NameError) as error:
        raise ConfigError(f"tool {name}: the signature cannot be read: {error}") from None
    bound = function.keywords if isinstance(function, functools.partial) else {}
    target = underlying(function)
    namespace = _enclosing_names(target)
    description, documented = _docstrings.read(_docstring(function, target))
    stated = {one.name: one.annotation for one in declared.values() if not isinstance(one.annotation, str)}
    hints = stated | _resolve(target, namespace, [*declared, "return"], name, context_type)
    parameters, contexts = [], []
    for parameter in declared.values():
        if parameter.name in bound:
            continue
        _refuse_unusable(parameter, hints, name)
        annotation = hints[parameter.name]
        if _is_context(annotation, context_type):
            contexts.append(parameter.name)
        else:
            text = documented.get(parameter.name, "")
            parameters.append(Parameter(parameter.name, annotation, parameter.default, text))
    if len(contexts) > 1:
        raise ConfigError(f"tool {name}: {' and '.join(contexts)} are both a ToolContext: keep one")
    returns = hints.get("return", EMPTY)
    kept = {each: value for each, value in namespace.items() if _may_name_a_type(value)}
    return Signature(tuple(parameters), contexts[0] if contexts else None, returns, description, kept)


def _may_name_a_type(value: Any) -> bool:
    """A tool lives long: the other locals of the functions around it must not live with it."""
    return isinstance(value, type | types.ModuleType) or typing.get_origin(value) is not None


def _docstring(function: Any, target: Any) -> str | None:
    if isinstance(function, functools.partial):
        return _docstring(function.func, target)
    text = function.__doc__ if inspect.isroutine(function) else target.__doc__ or type(function).__doc__
    return text if isinstance(text, str) else None


def _refuse_unusable(parameter: inspect.Parameter, hints: dict[str, Any], tool: str) -> None:
    if fix := _CANNOT.get(parameter.kind):
        raise ConfigError(f"tool {tool}: parameter {parameter.name} {fix.format(parameter.name)}")
    if hints.get(parameter.name, EMPTY) is not EMPTY:
        return
    fix = f"write its type, for instance {parameter.name}: str"
    if parameter.name in ("self", "cls"):
        fix = "make a tool of the bound method, for instance tool(thing.method)"
    raise ConfigError(f"tool {tool}: parameter {parameter.name} has no annotation: {fix}")


def _enclosing_names(target: Any) -> dict[str, Any]:
    """The local names of the functions and classes that enclose `target` and are running now, inner ones first."""
    qualname, module = getattr(target, "__qualname__", ""), getattr(target, "__globals__", None)
    names: dict[str, Any] = {}
    frame = sys._getframe(1) if "." in qualname else None  # noqa: SLF001 - the only way to see local names
    while frame is not None:
        scope = frame.f_code.co_qualname
        if frame.f_globals is module and qualname.startswith((f"{scope}.<locals>.", f"{scope}.")):
            names = {**frame.f_locals, **names}
        frame = frame.f_back
    return names


def _resolve(target: Any, namespace: dict[str, Any], names: list[str], tool: str, context_type: type) -> dict[str, Any]:
    """The type of each parameter and of the result; a result type that cannot be resolved is left out."""
    try:
        return typing.get_type_hints(target, localns=namespace or None, include_extras=True)
    except Exception:  # noqa: BLE001 - which one it was is found out below
        annotations = getattr(target, "__annotations__", {})
    scope = getattr(target, "__globals__", {})
    hints = {}
    for name in names:
        if name not in annotations:
            continue
        try:
            hints[name] = _evaluate(annotations[name], scope, namespace)
        except Exception as error:  # noqa: BLE001 - an annotation is code, and may raise anything
            lenient = _Lenient({**vars(builtins), **scope, **namespace})
            if _is_context(guess := _guess(annotations[name], scope, lenient), context_type):
                hints[name] = guess
            elif name != "return":
                raise ConfigError(
                    f"tool {tool}: the annotation {annotations[name]!r} of parameter {name} cannot be resolved: "
                    f"{error}; import the name where it exists when the program runs"
                ) from None
    return hints


def _evaluate(annotation: Any, scope: dict[str, Any], namespace: dict[str, Any]) -> Any:
    holder: Any = types.SimpleNamespace(__annotations__={"it": annotation})
    return typing.get_type_hints(holder, scope, namespace, include_extras=True)["it"]


class _Lenient(dict[str, Any]):
    """Takes unknown names for `Any`: `ToolContext[Deps]` is plain enough when only a type checker knows `Deps`."""

    def __missing__(self, name: str) -> Any:
        return Any


def _guess(annotation: Any, scope: dict[str, Any], namespace: dict[str, Any]) -> Any:
    try:
        return _evaluate(annotation, scope, namespace)
    except Exception:  # noqa: BLE001 - as above
        return None


def _is_context(annotation: Any, context_type: type) -> bool:
    annotation = getattr(annotation, "__value__", annotation)
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return _is_context(args[0], context_type)
    if origin in (typing.Union, types.UnionType):
        rest = [arg for arg in args if arg is not types.NoneType]
        return len(rest) == 1 and _is_context(rest[0], context_type)
    found = origin or annotation
    return isinstance(found, type) and issubclass(found, context_type)


def plain_function(function: Any) -> Callable[..., Any]:
    """`function`, if a tool can be made of it. Raises `ConfigError`."""
    if isinstance(function, staticmethod):
        function = function.__func__
    if isinstance(function, list | tuple):
        raise ConfigError("a list of tools is no tool: put a * in front of it, like tools=[*these, that]")
    if isinstance(function, type | classmethod) or not callable(function):
        raise ConfigError(f"a tool is made of a function, and {function!r:.80} is none: write one that calls it")
    plain: Callable[..., Any] = function
    return plain


def name_of(function: Any) -> str:
    """The name to call `function` by: that of its class for an object."""
    while isinstance(function, functools.partial):
        function = function.func
    return str(getattr(function, "__name__", type(function).__name__))


def is_async(function: Any) -> bool:
    """Whether calling it only makes a coroutine or an asynchronous generator, and so never blocks."""
    while isinstance(function, functools.partial):
        function = function.func
    if not inspect.isroutine(function):
        function = type(function).__call__
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def takes_context(function: Callable[..., Any], name: str) -> bool:
    """Whether `function(arguments)` wants the context as well. Raises `ConfigError` where it fits neither way."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    places = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    variadic = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    needed = sum(p.default is p.empty for p in places)
    if needed > 2 or not (places or variadic):
        raise ConfigError(f"tool {name}: the function takes (arguments) or (arguments, context)")
    return needed == 2 or (len(places) > 1 and places[1].name == "context")
