"""Our tools and their results in the protocol's words."""

from __future__ import annotations

import base64
import functools
from enum import Enum
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import mcp_types as types
import msgspec
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError, best_match
from referencing import Registry
from referencing.exceptions import Unresolvable

from treadle._results import render
from treadle.events import Effect
from treadle.tools import ToolOutput

if TYPE_CHECKING:
    from collections.abc import Iterator

    from treadle.messages import FilePart
    from treadle.tools import Tool


class Offer:
    """A tool as it is told to clients. Raises `ConfigError` for one that has no schema."""

    def __init__(self, tool: Tool[..., Any]) -> None:
        self.tool = tool
        self._inner = tool.output_schema
        self._wrapped = self._inner is not None and self._inner.get("type") != "object"

    @functools.cached_property
    def told(self) -> types.Tool:
        tool = self.tool
        return types.Tool(
            name=tool.name,
            description=tool.description or None,
            input_schema={**tool.input_schema, "type": "object"},
            output_schema=self._output_schema,
            annotations=hints(tool),
        )

    @functools.cached_property
    def _output_schema(self) -> dict[str, Any] | None:
        """The schema of the structured result, an object in every version of the protocol: others stand in `result`."""
        if self._inner is None or not self._wrapped:
            return self._inner
        inner = dict(self._inner)
        schema: dict[str, Any] = {"type": "object", "properties": {"result": inner}, "required": ["result"]}
        return schema | {key: inner.pop(key) for key in ("$defs", "definitions") if key in inner}

    @functools.cached_property
    def _validator(self) -> Draft202012Validator:
        assert self._output_schema is not None
        return Draft202012Validator(self._output_schema, registry=Registry())  # which fetches nothing

    def result(self, value: Any) -> types.CallToolResult:
        """What a client gets for what the tool returned."""
        output = render(value)
        content = _content(output)
        if output.is_error or self._inner is None:
            return types.CallToolResult(content=content, is_error=output.is_error)
        faults = []
        for reading in _readings(value, output.content):
            structured = {"result": reading} if self._stands_in_result(reading) else reading
            fault = self._fault(structured)
            if fault is None:
                return types.CallToolResult(content=content, structured_content=structured)
            faults.append(fault)
        return failure(f"The tool ran, but its result does not fit its own schema: {faults[0]}")

    def _stands_in_result(self, reading: Any) -> bool:
        """Whether the value goes under `result`: by our doing, or by that of a server whose tool this is."""
        assert self._inner is not None
        return self._wrapped or (not isinstance(reading, dict) and self._inner.get("required") == ["result"])

    def _fault(self, structured: Any) -> str | None:
        if not isinstance(structured, dict):
            return "it is no JSON object"
        try:
            error: ValidationError | None = best_match(self._validator.iter_errors(structured))
        except (SchemaError, Unresolvable, RecursionError) as broken:
            return f"the schema is broken: {broken}"
        return None if error is None else f"{error.json_path}: {error.message:.300}"


def hints(tool: Tool[..., Any]) -> types.ToolAnnotations:
    """What a tool's effect says to clients. An effect on what is ours may still overwrite something."""
    reads = tool.effect is Effect.READ
    return types.ToolAnnotations(
        read_only_hint=reads,
        destructive_hint=not reads,
        idempotent_hint=tool.idempotent,
        open_world_hint={Effect.WRITE: False, Effect.EXTERNAL: True}.get(tool.effect),
    )


def failure(text: str) -> types.CallToolResult:
    """A result that tells of an error; the model on the other side reads it."""
    return types.CallToolResult(content=[types.TextContent(text=text)], is_error=True)


def _content(output: ToolOutput) -> list[Any]:
    text = [types.TextContent(text=output.content)] if output.content or not output.files else []
    return [*text, *(_file(file, index) for index, file in enumerate(output.files))]


def _file(file: FilePart, index: int) -> Any:
    kind = file.media_type.partition("/")[0]
    if file.data is None:
        assert file.url is not None
        return types.ResourceLink(name=file.name or file.url, uri=file.url, mime_type=file.media_type)
    if kind == "image":
        return types.ImageContent(data=file.data, mime_type=file.media_type)
    if kind == "audio":
        return types.AudioContent(data=file.data, mime_type=file.media_type)
    uri = f"attachment:///{quote(file.name or f'file-{index + 1}')}"
    if kind == "text":
        try:
            text = base64.b64decode(file.data).decode()
        except ValueError:
            pass
        else:
            contents = types.TextResourceContents(uri=uri, mime_type=file.media_type, text=text)
            return types.EmbeddedResource(resource=contents)
    return types.EmbeddedResource(
        resource=types.BlobResourceContents(uri=uri, mime_type=file.media_type, blob=file.data)
    )


def _readings(value: Any, text: str) -> Iterator[Any]:
    """The JSON values that a result may stand for, the likeliest first; more than one where a tool wrote text itself.

    Tools of other servers do: their structured value is the text, its last line, or has its lines for items.
    """
    value = value.value if isinstance(value, Enum) else value
    if value is None or isinstance(value, str):
        yield None if value is None else text
    elif not isinstance(value, ToolOutput) or not isinstance(value.content, str):
        yield text if isinstance(value, bytes | bytearray | memoryview) else _decoded(text)
    else:
        lines = text.split("\n")
        yield _decoded(text)
        yield _decoded(lines[-1])
        yield text
        yield lines
        yield [_decoded(line) for line in lines]


def _decoded(text: str) -> Any:
    """The JSON value that `text` is; else the text."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text
