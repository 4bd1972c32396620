"""Typed answers: the schema a model must fill, and reading what it wrote."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

import msgspec

from treadle.errors import ConfigError, ToolInputError, first_line
from treadle.tools import Tool

if TYPE_CHECKING:
    from pydantic import TypeAdapter

FINAL_TOOL = "final_answer"
MAX_BAD_ANSWERS = 2
ASK_FOR_TOOL = f"Give the answer by calling the tool {FINAL_TOOL}, with arguments of its schema."


class OutputSpec:
    """What `Agent(output=...)` asks for. Values that are no JSON object travel in one with the key `value`."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind

    @functools.cached_property
    def _adapter_and_schema(self) -> tuple[TypeAdapter[Any], dict[str, Any]]:
        from treadle import _schema

        return _schema.adapter_and_schema(self.kind)

    @property
    def _adapter(self) -> TypeAdapter[Any]:
        return self._adapter_and_schema[0]

    @property
    def _inner_schema(self) -> dict[str, Any]:
        return self._adapter_and_schema[1]

    def check_type(self) -> None:
        """Raises `ConfigError` for a type that cannot be read from JSON or told as a schema."""
        from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError

        if inspect.isroutine(self.kind):  # pydantic would take it, as a type of arguments
            raise ConfigError(f"output={self.kind!r} is a function: give the type that it returns")
        try:
            _ = self.schema
        except (PydanticUserError, PydanticUndefinedAnnotation) as error:
            raise ConfigError(
                f"output={self.kind!r} is no type that JSON can be read into: {first_line(error)}"
            ) from error

    @functools.cached_property
    def wrapped(self) -> bool:
        """Whether the value stands under `value`, since the type itself is no JSON object."""
        return self._inner_schema.get("type") != "object"

    @functools.cached_property
    def schema(self) -> dict[str, Any]:
        """JSON Schema of the answer: always an object."""
        inner = dict(self._inner_schema)
        if not self.wrapped:
            return inner
        definitions = inner.pop("$defs", None)
        schema = {
            "type": "object",
            "properties": {"value": inner},
            "required": ["value"],
            "additionalProperties": False,
        }
        return {**schema, "$defs": definitions} if definitions else schema

    @functools.cached_property
    def tool(self) -> Tool[..., Any]:
        """The tool that takes the answer where the model has no schema feature."""
        description = "Give the final answer. Call this once, when you are done."
        return Tool.raw(FINAL_TOOL, description, self.schema, self._accept, effect="read")

    def _accept(self, arguments: dict[str, Any]) -> str:
        self.check(arguments)
        return "The answer was taken."

    def check(self, arguments: dict[str, Any]) -> Any:
        """The value in a decoded answer. Raises `ToolInputError` with a text that the model can act on."""
        from pydantic import ValidationError

        if self.wrapped and "value" not in arguments:
            raise ToolInputError('The answer must be a JSON object with the key "value".')
        text = msgspec.json.encode(arguments["value"] if self.wrapped else arguments)
        try:
            return self._adapter.validate_json(text)
        except ValidationError as error:
            faults = "; ".join(
                f"{'.'.join(str(place) for place in fault['loc']) or 'answer'}: {fault['msg']}"
                for fault in error.errors(include_url=False)[:10]
            )
            raise ToolInputError(f"The answer does not fit its schema: {faults}") from error

    def parse(self, text: str) -> Any:
        """The value in an answer's text. A fence around the whole is removed, nothing else is guessed."""
        try:
            value = msgspec.json.decode(unfenced(text).encode())
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
            raise ToolInputError(
                f"The answer must be one JSON object of the schema and nothing else, and is not: {error}"
            ) from error
        if not isinstance(value, dict):
            if not self.wrapped:
                raise ToolInputError(f"The answer must be a JSON object, and is {type(value).__name__}.")
            value = {"value": value}
        return self.check(value)


def unfenced(text: str) -> str:
    """`text` without a byte order mark, and without one Markdown fence around the whole of it."""
    text = text.lstrip("\ufeff").strip()
    if not text.startswith("```"):
        return text
    first, _, rest = text.partition("\n")
    if first.strip("`").strip().lower() not in ("", "json"):
        return text
    return rest.removesuffix("```").strip()
