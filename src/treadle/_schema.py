"""Signatures to JSON Schema, and checks of what a model sends, by pydantic.

Each parameter has an adapter of its own, so that no name is reserved (a pydantic model could not have a field `json`
or `_x`). The only module of the core that needs pydantic when it is imported.
"""

from __future__ import annotations

import datetime as dt
import decimal
import functools
import operator
import pathlib
import sys
import types
import typing
import uuid
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, Required

import msgspec
from pydantic import TypeAdapter
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import to_jsonable_python

from treadle._signature import EMPTY, Parameter, Signature
from treadle.errors import ConfigError, first_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydantic.json_schema import JsonSchemaMode

Schema = dict[str, Any]
_SCHEMAS = ("additionalProperties", "items", "not", "propertyNames", "contains", "if", "then", "else")
_SCHEMA_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SCHEMA_MAPS = ("properties", "$defs", "patternProperties", "dependentSchemas")
_STANDARD_GENERICS = {list, dict, tuple, set, frozenset, typing.Union, types.UnionType}
_STANDARD_TYPES: tuple[Any, ...] = (
    *(str, int, float, bool, list, dict, types.NoneType, types.EllipsisType, ..., Any),
    *(dt.datetime, dt.date, dt.time, dt.timedelta, decimal.Decimal, uuid.UUID, pathlib.Path),
)


class Field:
    """One parameter: checks values, and knows its default."""

    __slots__ = ("_adapter", "_default", "name", "required")

    def __init__(self, name: str, adapter: TypeAdapter[Any], default: Any) -> None:
        self.name = name
        self.required = default is EMPTY and adapter.get_default_value() is None
        self._adapter = adapter
        self._default = default

    def check(self, json_text: bytes) -> Any:
        """The value as declared. Raises `ValidationError`."""
        return self._adapter.validate_json(json_text)

    def default(self) -> Any:
        """What the function gets where the argument is absent."""
        value: Any = self._default
        if value is EMPTY:
            some = self._adapter.get_default_value()
            return None if some is None else some.value
        if type(value) in (list, dict, set):
            return value.copy()  # calls that run at the same time must not share it
        return value


class Compiled(msgspec.Struct, frozen=True):
    """A signature ready for use."""

    input_schema: Schema
    fields: dict[str, Field]


class _Part(msgspec.Struct, frozen=True):
    """A parameter's adapter; its schema too where that needs no definitions which others may share."""

    adapter: TypeAdapter[Any]
    schema: Schema | None


class _Generator(GenerateJsonSchema):
    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 - as pydantic has it

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - pydantic's signature
        return False

    def encode_default(self, dft: Any) -> Any:
        return super().encode_default(_in_order(dft))


def compile_signature(signature: Signature, tool: str) -> Compiled:
    """The input schema and the checks of a tool. Raises `ConfigError` naming the parameter that has no JSON form."""
    properties, fields, parts = {}, {}, {}
    for parameter in signature.parameters:
        annotation, default, description = _read(parameter, tool)
        try:
            part = parts[parameter.name] = _part(annotation, signature.namespace)
        except Exception as error:
            raise _no_schema(tool, parameter.name, error) from error
        properties[parameter.name] = {"description": description} if description else {}
        fields[parameter.name] = Field(parameter.name, part.adapter, default)
    schemas, definitions = _generate(parts, tool)
    for parameter in signature.parameters:
        name = parameter.name
        properties[name] |= without_titles(schemas[name]) | _shown_default(parameter.default)
    result: Schema = {"type": "object", "properties": properties}
    if required := [field.name for field in fields.values() if field.required]:
        result["required"] = required
    result["additionalProperties"] = False
    if definitions:
        result["$defs"] = {name: without_titles(definition) for name, definition in definitions.items()}
    try:
        return Compiled(_copy(result), fields)
    except Exception as error:
        raise ConfigError(f"tool {tool}: the schema is not JSON: {first_line(error)}") from error


def adapter_and_schema(annotation: Any) -> tuple[TypeAdapter[Any], Schema]:
    """What reads a type from JSON, and the JSON Schema of it. Raises what pydantic raises."""
    part = _part(annotation, {})
    return part.adapter, _copy(part.schema or without_titles(part.adapter.json_schema(schema_generator=_Generator)))


def output_schema(returns: Any, namespace: dict[str, Any]) -> Schema | None:
    """The schema of what a tool returns, or None where that has no JSON Schema."""
    try:
        part = _part(returns, namespace, "serialization")
        schema = part.schema or part.adapter.json_schema(mode="serialization", schema_generator=_Generator)
        return without_titles(_copy(schema)) or None
    except Exception:  # noqa: BLE001 - a result is shown to the model whether or not its type has a schema
        return None


def without_titles(schema: Any) -> Any:
    """Drops the titles that pydantic derives from names, which cost tokens and say nothing. Changes it in place."""
    if isinstance(schema, dict):
        schema.pop("title", None)
        parts = [schema.get(word) for word in _SCHEMAS]
        for word in _SCHEMA_LISTS:
            parts += schema.get(word, ())
        for word in _SCHEMA_MAPS:
            parts += schema.get(word, {}).values()
        for part in parts:
            without_titles(part)
    return schema


def _copy(schema: Schema) -> Schema:
    """A copy made of nothing but JSON values."""
    copy: Schema = msgspec.json.decode(msgspec.json.encode(schema))
    return copy


def _read(parameter: Parameter, tool: str) -> tuple[Any, Any, str]:
    """Annotation, default and description, wherever they were written.

    `Annotated[T, "text"]` and `Doc` (PEP 727) describe, `x: int = Field(3, ge=1)` says the same as an annotated field.
    """
    annotation, default, description = parameter.annotation, parameter.default, parameter.description
    marks = [*getattr(annotation, "__metadata__", ())]
    if isinstance(default, FieldInfo):
        marks, default = [*marks, default], EMPTY
    kept = []
    for mark in marks:
        text = mark if isinstance(mark, str) else getattr(mark, "documentation", None)
        if isinstance(text, str):
            description = text
            continue
        if isinstance(mark, FieldInfo) and (mark.alias or mark.validation_alias):
            raise ConfigError(
                f"tool {tool}: parameter {parameter.name} has an alias: name it as the model should see it"
            )
        kept.append(mark)
    if marks:
        bare = annotation.__origin__ if hasattr(annotation, "__metadata__") else annotation
        annotation = Annotated[bare, *kept] if kept else bare
    return annotation, default, description


def _part(annotation: Any, namespace: dict[str, Any], mode: JsonSchemaMode = "validation") -> _Part:
    if _is_standard(annotation):
        return _standard_part(annotation, repr(annotation), mode)
    adapter: TypeAdapter[Any] = TypeAdapter(_with_readable_dicts(annotation))
    if not adapter.pydantic_complete:
        # Dataclasses and typed dictionaries of an enclosing function may name each other: pydantic needs its names.
        adapter.rebuild(_types_namespace=namespace, raise_errors=True)
    return _Part(adapter, None)


def _with_readable_dicts(annotation: Any, made: dict[Any, Any] | None = None) -> Any:
    """Before Python 3.12 pydantic refuses `typing.TypedDict`, and takes the same from `typing_extensions`."""
    if sys.version_info >= (3, 12):
        return annotation
    made = {} if made is None else made
    if isinstance(annotation, type) and type(annotation).__module__ == "typing" and typing.is_typeddict(annotation):
        return made[annotation] if annotation in made else _readable_dict(annotation, made)
    if not (args := typing.get_args(annotation)) or typing.get_origin(annotation) is Literal:
        return annotation
    changed = tuple(_with_readable_dicts(one, made) for one in args)
    if changed == args:
        return annotation
    if isinstance(annotation, types.UnionType):
        return functools.reduce(operator.or_, changed)
    origin: Any = typing.get_origin(annotation)
    return annotation.copy_with(changed) if hasattr(annotation, "copy_with") else origin[changed]


def _readable_dict(given: Any, made: dict[Any, Any]) -> Any:
    import typing_extensions

    hints = typing.get_type_hints(given, include_extras=True)
    marks: dict[str, Any] = {}
    for name, hint in hints.items():
        mark = typing.get_origin(hint)
        if mark not in (Required, NotRequired):
            mark = Required if name in given.__required_keys__ else NotRequired
        else:
            hints[name] = typing.get_args(hint)[0]
        marks[name] = mark
    create: Any = typing_extensions.TypedDict
    made[given] = copy = create(given.__name__, {name: mark[Any] for name, mark in marks.items()})
    copy.__doc__ = given.__doc__
    # The types come second: they may lead back here.
    copy.__annotations__ = {name: marks[name][_with_readable_dicts(hint, made)] for name, hint in hints.items()}
    return copy


def _is_standard(annotation: Any) -> bool:
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        return all(type(value) in (str, int, bool, types.NoneType) for value in args)
    if args:
        return origin in _STANDARD_GENERICS and all(map(_is_standard, args))
    return any(annotation is one for one in _STANDARD_TYPES)


@functools.lru_cache(maxsize=512)
def _standard_part(annotation: Any, spelling: str, mode: JsonSchemaMode) -> _Part:  # noqa: ARG001 - part of the key
    """Nine of ten parameters have a type like `str` or `list[int] | None`: made once, most of the cost is saved.

    `spelling` tells apart what compares equal, `int | str` and `str | int`: a schema must not depend on what was
    asked for before.
    """
    adapter: TypeAdapter[Any] = TypeAdapter(annotation)
    return _Part(adapter, adapter.json_schema(mode=mode, schema_generator=_Generator))


def _generate(parts: dict[str, _Part], tool: str) -> tuple[dict[str, Schema], Schema]:
    """The schema of each parameter, and the definitions that they refer to: two classes may have the same name."""
    schemas = {name: _copy(part.schema) for name, part in parts.items() if part.schema is not None}
    others = [name for name in parts if name not in schemas]
    if not others:
        return schemas, {}
    try:
        found, definitions = _generate_together(parts, others)
    except Exception:
        for name in others:
            try:
                _generate_together(parts, [name])
            except Exception as error:
                raise _no_schema(tool, name, error) from error
        raise
    return schemas | found, definitions


def _generate_together(parts: dict[str, _Part], names: Sequence[str]) -> tuple[dict[str, Schema], Schema]:
    inputs: Any = [(name, "validation", parts[name].adapter) for name in names]
    found, rest = TypeAdapter.json_schemas(inputs, schema_generator=_Generator)
    return {name: schema for (name, _), schema in found.items()}, rest.get("$defs", {})


def _shown_default(default: Any) -> Schema:
    if default is EMPTY or isinstance(default, FieldInfo):
        return {}
    try:
        shown = _copy(to_jsonable_python(_in_order(default)))
        return {"default": shown} if shown is not None or default is None else {}  # NaN turns into null
    except Exception:  # noqa: BLE001 - a default without JSON form still applies; the model need not see it
        return {}


def _in_order(default: Any) -> Any:
    """A set in an order that is the same in every process, so that equal tools have equal schemas."""
    return sorted(default, key=repr) if isinstance(default, set | frozenset) else default


def _no_schema(tool: str, parameter: str, error: Exception) -> ConfigError:
    return ConfigError(f"tool {tool}: parameter {parameter} cannot be described to a model: {first_line(error)}")
