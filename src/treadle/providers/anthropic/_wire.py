"""Events of the Messages API as they come over the wire.

Only what we read is decoded, straight into structs. An event that is no clean JSON, or has another shape somewhere, is
read again leniently, field by field.
"""

from __future__ import annotations

from typing import Any

import msgspec

from treadle.providers._lenient import fitting, lenient
from treadle.providers._rendered import encode

PROVIDER = "anthropic"
NOTHING = msgspec.Raw(b"null")

# Kinds of our own `ProviderPart`s; all others are named after the block they hold.
CITATIONS = "citations"  # of the text before it, as they came
STOP_DETAILS = "stop_details"  # why an answer was refused; never sent
CONTAINER = "container"  # where code ran; goes back beside the messages


class Delta(msgspec.Struct, gc=False):
    """What an event adds to a block, or at the end to the whole message."""

    text: str | None = None
    thinking: str | None = None
    partial_json: str | None = None
    signature: str | None = None
    citation: Any = None
    stop_reason: str | None = None
    stop_details: Any = None
    container: Any = None


class Message(msgspec.Struct, gc=False):
    """A message: its head in a stream, the whole of it in an answer that is not streamed."""

    id: str | None = None
    content: list[msgspec.Raw] = []
    usage: dict[str, Any] | None = None
    stop_reason: str | None = None
    stop_details: Any = None
    container: Any = None


class Event(msgspec.Struct, gc=False):
    """One event of the stream."""

    type: str = ""
    index: int = -1
    delta: Delta | None = None
    content_block: msgspec.Raw = NOTHING
    message: Message | None = None
    usage: dict[str, Any] | None = None
    error: Any = None
    request_id: str | None = None


class _Input(msgspec.Struct, gc=False):
    input: msgspec.Raw = msgspec.Raw(b"")


_decoder = msgspec.json.Decoder(Event)
_message_decoder = msgspec.json.Decoder(Message)
_input_decoder = msgspec.json.Decoder(_Input)
_any_decoder = msgspec.json.Decoder()


def decode_event(data: bytes) -> tuple[Event | None, bool]:
    """The event in `data` (None where there is no JSON object), and whether it was clean.

    Strings of an event that is not clean may hold lone surrogates.
    """
    try:
        return _decoder.decode(data), True
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        value = decode_any(data)
    return (_salvage(Event, value) if isinstance(value, dict) else None), False


def decode_message(data: bytes) -> Message | None:
    """The message that is the whole of a body; None where there is no JSON object."""
    try:
        return _message_decoder.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        value = decode_any(data)
    found: Message | None = _salvage(Message, value) if isinstance(value, dict) else None
    return found


def decode_any(data: bytes | msgspec.Raw) -> Any:
    """The JSON value in `data`, strictly if that goes; None where there is none."""
    try:
        return _any_decoder.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return lenient(bytes(data))


def input_text(block: msgspec.Raw) -> str:
    """The JSON text of a block's `input`, as it came."""
    try:
        return bytes(_input_decoder.decode(block).input).decode()
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        value = decode_any(block)
    return encode(value["input"]).decode() if isinstance(value, dict) and "input" in value else ""


_NESTED: dict[str, type[msgspec.Struct]] = {"delta": Delta, "message": Message}


def _salvage(kind: type[Any], value: Any) -> Any:
    """`value` as a `kind`: fields that fit are kept, fields of another shape are left out."""
    fields: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind) if isinstance(value, dict) else ():
        given = value.get(field.name)
        if given is None:
            continue
        if field.name in _NESTED:
            fields[field.name] = _salvage(_NESTED[field.name], given)
        elif field.name == "content_block":
            fields[field.name] = msgspec.Raw(encode(given))
        elif field.name == "content" and isinstance(given, list):
            fields[field.name] = [msgspec.Raw(encode(item)) for item in given]
        elif (found := fitting(given, field.type)) is not None:
            fields[field.name] = found
    return kind(**fields)
