"""Chunks of `streamGenerateContent` as they come over the wire.

Only what we read is decoded, straight into structs. A chunk that is no clean JSON, or has another shape somewhere, is
read again leniently, field by field.
"""

from __future__ import annotations

from typing import Any

import msgspec

from treadle.messages import mended
from treadle.providers._lenient import fitting, lenient
from treadle.providers._rendered import encode


class PartialArg(msgspec.Struct, gc=False, rename="camel"):
    """A piece of a call's arguments and its place in them. A null value is told by the key alone."""

    json_path: str = "$"
    string_value: str | None = None
    number_value: int | float | None = None
    bool_value: bool | None = None
    null_value: Any = msgspec.UNSET


class FunctionCall(msgspec.Struct, gc=False, rename="camel"):
    """A call, or a piece of one. The bytes of `args` are kept as they came."""

    id: str | None = None
    name: str | None = None
    args: msgspec.Raw = msgspec.Raw()
    partial_args: list[PartialArg] | None = None
    will_continue: bool | None = None


class Part(msgspec.Struct, gc=False, rename="camel"):
    """A piece of the answer. Parts that are neither text nor a call are read again, whole, by `raw_parts`."""

    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    function_call: FunctionCall | None = None


class Content(msgspec.Struct, gc=False):
    """What a chunk adds."""

    parts: list[Part] | None = None


class Candidate(msgspec.Struct, gc=False, rename="camel"):
    """One answer's share of a chunk."""

    content: Content | None = None
    finish_reason: str | None = None
    finish_message: str | None = None
    index: int | None = None
    grounding_metadata: dict[str, Any] | None = None
    url_context_metadata: dict[str, Any] | None = None
    citation_metadata: dict[str, Any] | None = None


class Counts(msgspec.Struct, gc=False, rename="camel"):
    """Running totals: those of the last chunk count."""

    prompt_token_count: int | None = None
    candidates_token_count: int | None = None
    thoughts_token_count: int | None = None
    cached_content_token_count: int | None = None
    tool_use_prompt_token_count: int | None = None
    total_token_count: int | None = None


class Feedback(msgspec.Struct, gc=False, rename="camel"):
    """What became of the prompt."""

    block_reason: str | None = None


class Chunk(msgspec.Struct, gc=False, rename="camel"):
    """One event of the stream, or a whole answer."""

    candidates: list[Candidate] | None = None
    usage_metadata: Counts | None = None
    prompt_feedback: Feedback | None = None
    response_id: str | None = None
    error: Any = None


_decoder = msgspec.json.Decoder(Chunk)
_NESTED: dict[str, type[msgspec.Struct]] = {
    "candidates": Candidate,
    "content": Content,
    "parts": Part,
    "function_call": FunctionCall,
    "partial_args": PartialArg,
    "usage_metadata": Counts,
    "prompt_feedback": Feedback,
}
_LISTS = frozenset({"candidates", "parts", "partial_args"})


def decode_chunk(data: bytes) -> Chunk | None:
    """The chunk in `data`; None where there is no JSON object."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        value = decode_any(data)
        return _salvage(Chunk, value) if isinstance(value, dict) else None


def decode_any(data: bytes) -> Any:
    """The JSON value in `data`, read leniently and with all its text valid; None where there is none."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return mended(lenient(data))


def decode_array(data: bytes) -> list[bytes] | None:
    """The JSON of each item of an array, as it stands there; None where the array is broken."""
    try:
        return [bytes(item) for item in msgspec.json.decode(data, type=list[msgspec.Raw])]
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        value = decode_any(data)
        return [encode(item) for item in value] if isinstance(value, list) else None


def raw_parts(data: bytes) -> list[Any]:
    """The parts in `data` as plain JSON values, in the order in which `Chunk` has them."""
    value = decode_any(data)
    candidates = value.get("candidates") if isinstance(value, dict) else None
    for candidate in candidates if isinstance(candidates, list) else ():
        content = candidate.get("content") if isinstance(candidate, dict) and not candidate.get("index") else None
        parts = content.get("parts") if isinstance(content, dict) else None
        if isinstance(parts, list):
            return parts
    return []


def _salvage(kind: type[Any], value: Any) -> Any:
    """`value` as a `kind`: fields that fit are kept, fields of another shape are left out."""
    fields: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind) if isinstance(value, dict) else ():
        given = value.get(field.encode_name)
        inner = _NESTED.get(field.name)
        if given is None:
            continue
        if inner is not None:
            items = [_salvage(inner, item) for item in (given if isinstance(given, list) else [given])]
            fields[field.name] = items if field.name in _LISTS else next(iter(items), None)
        elif field.type is msgspec.Raw:
            fields[field.name] = msgspec.Raw(encode(given))
        elif (found := fitting(given, field.type)) is not None:
            fields[field.name] = found
    return kind(**fields)
