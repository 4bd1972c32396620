"""Chunks of Chat Completions as they come over the wire.

Only what we read is decoded, straight into structs. A chunk that is no clean JSON, or has another shape somewhere, is
read again leniently, field by field.
"""

from __future__ import annotations

from typing import Any

import msgspec

from treadle.providers._lenient import fitting, lenient

DETAILS = "reasoning_details"
EXTRA = "extra_content"


class Function(msgspec.Struct, gc=False):
    """What a call is called and its arguments: JSON text, from some servers the value itself."""

    name: str | None = None
    arguments: str | dict[str, Any] | list[Any] | None = None


class CallPiece(msgspec.Struct, gc=False):
    """A piece of a tool call. Google's compatible endpoint keeps signatures in `extra_content`."""

    index: int | None = None
    id: str | None = None
    function: Function | None = None
    extra_content: Any = None


class Delta(msgspec.Struct, gc=False):
    """What a chunk adds, or the whole message of an answer that is not streamed."""

    content: str | list[Any] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_details: list[Any] | None = None
    refusal: str | None = None
    tool_calls: list[CallPiece] | None = None
    function_call: Function | None = None
    annotations: list[Any] | None = None


class Choice(msgspec.Struct, gc=False):
    """One candidate's share of a chunk."""

    index: int | None = None
    delta: Delta | None = None
    message: Delta | None = None
    finish_reason: str | None = None
    native_finish_reason: str | None = None


class Chunk(msgspec.Struct, gc=False):
    """One event of the stream, or a whole answer."""

    id: str | None = None
    choices: list[Choice] | None = None
    usage: dict[str, Any] | None = None
    error: Any = None
    x_groq: dict[str, Any] | None = None
    citations: Any = None
    search_results: Any = None


_decoder = msgspec.json.Decoder(Chunk)
_NESTED: dict[str, type[msgspec.Struct]] = {
    "choices": Choice,
    "delta": Delta,
    "message": Delta,
    "tool_calls": CallPiece,
    "function": Function,
    "function_call": Function,
}


def decode_chunk(data: bytes) -> tuple[Chunk | None, bool]:
    """The chunk in `data` (None where there is no JSON object), and whether it was clean.

    Strings of a chunk that is not clean may hold lone surrogates.
    """
    try:
        return _decoder.decode(data), True
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        value = lenient(data)
    return (_salvage(Chunk, value) if isinstance(value, dict) else None), False


def _salvage(kind: type[Any], value: Any) -> Any:
    """`value` as a `kind`: fields that fit are kept, fields of another shape are left out."""
    fields: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind) if isinstance(value, dict) else ():
        given = value.get(field.name)
        inner = _NESTED.get(field.name)
        if given is None:
            continue
        if inner is not None:
            items = [_salvage(inner, item) for item in (given if isinstance(given, list) else [given])]
            fields[field.name] = items if field.name in ("choices", "tool_calls") else next(iter(items), None)
        elif (found := fitting(given, field.type)) is not None:
            fields[field.name] = found
    return kind(**fields)
