"""Events and answers of the Responses API as they come over the wire.

Only what we read is decoded, straight into structs; items and whole answers stay bytes until they are needed. What is
no clean JSON, or has another shape somewhere, is read again leniently, field by field.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

import msgspec

from treadle.providers._lenient import fitting, lenient
from treadle.providers._rendered import encode


class Event(msgspec.Struct, gc=False):
    """One event of the stream."""

    type: str = ""
    delta: str | None = None
    output_index: int | None = None
    content_index: int | None = None
    summary_index: int | None = None
    item: msgspec.Raw = msgspec.Raw()
    response: msgspec.Raw = msgspec.Raw()
    text: str | None = None
    refusal: str | None = None
    arguments: str | None = None
    error: Any = None


class Response(msgspec.Struct, gc=False):
    """A whole answer: what the last event of a stream holds, or all that comes without one."""

    status: str | None = None
    output: list[msgspec.Raw] | None = None
    usage: Any = None
    error: Any = None
    incomplete_details: Any = None


_Kind = TypeVar("_Kind", Event, Response)
_event = msgspec.json.Decoder(Event)
_response = msgspec.json.Decoder(Response)


def decode_event(data: bytes) -> tuple[Event | None, bool]:
    """The event in `data` (None where there is no JSON object), and whether it was clean.

    Strings of an event that is not clean may hold lone surrogates.
    """
    try:
        return _event.decode(data), True
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return _salvage(Event, data), False


def decode_response(data: bytes | msgspec.Raw) -> Response | None:
    """The answer in `data`; None where there is no JSON object."""
    try:
        return _response.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return _salvage(Response, bytes(data))


def decode_item(data: bytes | msgspec.Raw) -> dict[str, Any] | None:
    """One item of the output as it came, or made valid where it was not; None where it is no object."""
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        value = msgspec.json.decode(encode(lenient(bytes(data))))
    return value if isinstance(value, dict) else None


def _salvage(kind: type[_Kind], data: bytes) -> _Kind | None:
    """Fields that fit are kept, fields of another shape are left out."""
    value = lenient(data)
    if not isinstance(value, dict):
        return None
    fields: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        given = value.get(field.name)
        if given is None:
            continue
        if field.type is msgspec.Raw:
            fields[field.name] = _raw(given)
        elif field.name == "output":
            fields[field.name] = [_raw(item) for item in given] if isinstance(given, list) else None
        elif (found := fitting(given, field.type)) is not None:
            fields[field.name] = found
    return kind(**fields)


def _raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(json.dumps(value).encode())
