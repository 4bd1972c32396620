"""What a tool returned, as the text a model reads.

| returned                            | the model reads                                                              |
|-------------------------------------|------------------------------------------------------------------------------|
| `str`                               | the text, verbatim                                                           |
| `None`                              | `(no output)`                                                                |
| `ToolOutput`                        | its content by this table, with its files and its `is_error`                 |
| file parts, or a list of parts      | the files; texts among them joined by line breaks                            |
| bytes                               | the text if they are printable UTF-8, else `{"base64": "..."}`               |
| anything else                       | JSON:                                                                        |
| - mappings                          | objects; keys become strings, a key that is NaN becomes `"NaN"`              |
| - sets                              | arrays, sorted by their JSON text                                            |
| - lists, tuples, iterables          | arrays; of an iterator the first 10,000 items and a note that there are more |
| - pydantic models                   | as they serialise themselves, by alias                                       |
| - dataclasses, attrs, structs       | objects of their fields                                                      |
| - NaN and infinities                | `null`                                                                       |
| - datetimes, UUIDs, paths, decimals | strings (ISO 8601 for times and durations); an enum member is its value      |
| - any other object                  | its repr, without the memory address                                         |
| a value that holds itself, is nested over 100 levels deep, or has over a million items | an error that says so     |

Text is made encodable: lone surrogates become U+FFFD.
"""

from __future__ import annotations

import base64
import contextlib
import math
import numbers
import os
import re
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping
from enum import Enum
from typing import Any

import msgspec

from treadle.messages import FilePart, TextPart, encodable

NO_OUTPUT = "(no output)"
MAX_ITEMS = 10_000
MAX_DEPTH = 100
MAX_VALUES = 1_000_000
_MORE = f"[cut: only the first {MAX_ITEMS} items are shown]"
_AS_THEY_ARE = frozenset({float, bool, type(None)})  # msgspec writes null for NaN and the infinities
_ADDRESS = re.compile(r" at 0x[0-9A-Fa-f]+")


class ToolOutput(msgspec.Struct, frozen=True):
    """What a tool may return instead of a plain value, to add files or to report a failure without raising."""

    content: Any = ""
    files: tuple[FilePart, ...] = ()
    is_error: bool = False

    def __post_init__(self) -> None:
        files = (self.files,) if isinstance(self.files, FilePart) else tuple(self.files)
        if not all(isinstance(file, FilePart) for file in files):
            raise TypeError("ToolOutput(files=...) holds FilePart values only")
        msgspec.structs.force_setattr(self, "files", files)


class _Unshowable(ValueError):
    pass


def render(value: Any) -> ToolOutput:
    """`value` as text, by the table above. Never raises: what cannot be shown is an error output that says why."""
    try:
        return _render(value)
    except KeyboardInterrupt:
        raise
    except _Unshowable as error:
        return _failure(str(error))
    except RecursionError:
        return _failure("it is nested too deeply")
    except BaseException as error:  # noqa: BLE001 - a repr, an iterator or a serialiser of the tool's own may raise anything
        return _failure(f"{type(error).__name__} while it was read")


def cap(text: str, max_bytes: int) -> str:
    """`text` cut to `max_bytes` of UTF-8 on a character boundary, and a line that says so. 0 never cuts."""
    if max_bytes <= 0 or len(text) * 4 <= max_bytes:
        return text
    data = encodable(text).encode()
    if len(data) <= max_bytes:
        return text
    kept = data[:max_bytes].decode("utf-8", "ignore")
    return f"{kept}\n[cut: {len(data)} bytes, first {len(kept.encode())} shown]"


def collect(items: Iterator[Any]) -> list[Any]:
    """The first `MAX_ITEMS` items, and a note where there are more."""
    found: list[Any] = []
    for item in items:
        if len(found) == MAX_ITEMS:
            found.append(_MORE)
            break
        found.append(item)
    if close := getattr(items, "close", None):
        close()
    return found


async def collect_async(items: AsyncIterator[Any]) -> list[Any]:
    """`collect` for what an asynchronous generator yields."""
    found: list[Any] = []
    try:
        async for item in items:
            if len(found) == MAX_ITEMS:
                found.append(_MORE)
                break
            found.append(item)
    finally:
        if close := getattr(items, "aclose", None):
            await close()
    return found


def _failure(reason: str) -> ToolOutput:
    return ToolOutput(f"The tool ran, but its result cannot be shown: {reason}.", is_error=True)


def _render(value: Any) -> ToolOutput:
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, str):
        return ToolOutput(_text(value))
    if value is None:
        return ToolOutput(NO_OUTPUT)
    if isinstance(value, ToolOutput):
        inner = _render(value.content)
        return ToolOutput(inner.content, value.files + inner.files, value.is_error or inner.is_error)
    if isinstance(value, FilePart | TextPart):
        value = [value]
    if isinstance(value, list | tuple) and value and all(isinstance(part, FilePart | TextPart) for part in value):
        texts = [_text(part.text) for part in value if isinstance(part, TextPart)]
        return ToolOutput("\n".join(texts), tuple([part for part in value if isinstance(part, FilePart)]))
    if isinstance(value, bytes | bytearray | memoryview):
        shown = _bytes(bytes(value))
        return ToolOutput(shown if isinstance(shown, str) else _json(shown))
    return ToolOutput(_json(_Plain().convert(value)))


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _text(text: str) -> str:
    return encodable(str.__str__(text))


def _bytes(data: bytes) -> Any:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\x00"
    if all(char.isprintable() or char in "\t\r\n" for char in text):
        return text
    return {"base64": base64.b64encode(data).decode()}


def _integer(value: int) -> Any:
    try:
        return msgspec.Raw(int.__repr__(int(value)).encode())  # of any size
    except ValueError:  # more digits than Python is willing to write
        return hex(value)


class _Plain:
    """Turns values into what JSON has. Keeps the way down to the current value, and counts."""

    def __init__(self) -> None:
        self._above: set[int] = set()
        self._count = 0

    def convert(self, value: Any) -> Any:
        kind = type(value)
        if kind is str:
            return value if value.isascii() else encodable(value)
        if kind in _AS_THEY_ARE or (kind is int and -(2**63) <= value < 2**63):
            return value
        if isinstance(value, Enum):
            return self.convert(value.value)
        if isinstance(value, str):
            return _text(value)
        if isinstance(value, int):
            return _integer(value)
        if isinstance(value, float):
            return float(value)
        if isinstance(value, bytes | bytearray | memoryview):
            return _bytes(bytes(value))
        return self._enter(value)

    def _enter(self, value: Any) -> Any:
        """One level down."""
        if id(value) in self._above:
            raise _Unshowable("it holds itself")
        if len(self._above) == MAX_DEPTH:
            raise _Unshowable(f"it is nested more than {MAX_DEPTH} levels deep")
        self._above.add(id(value))
        shown = self._container(value)
        self._above.discard(id(value))
        return shown

    def _container(self, value: Any) -> Any:
        if isinstance(value, dict | Mapping):
            return self._mapping(value)
        if isinstance(value, list | tuple):
            return self._items(value)
        if isinstance(value, set | frozenset):
            return sorted(self._items(value), key=msgspec.json.encode)
        fields = _fields(value)
        if fields is None:
            return self._other(value)
        return self._mapping(fields) if isinstance(fields, dict) else self.convert(fields)

    def _mapping(self, mapping: Mapping[Any, Any]) -> dict[str, Any]:
        self._add(len(mapping))
        convert = self.convert
        return {
            key if type(key) is str and key.isascii() else self._key(key): convert(value)
            for key, value in mapping.items()
        }

    def _items(self, items: Collection[Any]) -> list[Any]:
        self._add(len(items))
        convert = self.convert
        return [convert(item) for item in items]

    def _add(self, count: int) -> None:
        self._count += count
        if self._count > MAX_VALUES:
            raise _Unshowable(f"it has more than {MAX_VALUES} items")

    def _key(self, key: Any) -> str:
        if isinstance(key, float) and not math.isfinite(key):
            return "NaN" if math.isnan(key) else "Infinity" if key > 0 else "-Infinity"
        shown = self.convert(key)
        return shown if isinstance(shown, str) else _json(shown)

    def _other(self, value: Any) -> Any:
        with contextlib.suppress(Exception):  # a kind that msgspec does not know, or one outside its range
            return msgspec.to_builtins(value)  # times, durations, UUIDs, decimals
        if isinstance(value, os.PathLike):
            return _text(os.fsdecode(value))
        if isinstance(value, numbers.Integral):
            return self.convert(int(value))
        if isinstance(value, numbers.Real):
            return float(value)
        if isinstance(value, Iterable) and not isinstance(value, type):
            return self._items(collect(iter(value)))
        return bare(value)


def bare(value: Any) -> str:
    """An object nobody can read otherwise: its repr, without the memory address."""
    try:
        return encodable(_ADDRESS.sub("", repr(value)))
    except Exception:  # noqa: BLE001 - a broken repr says nothing of the result
        return f"<{type(value).__name__}>"


def _fields(value: Any) -> Any:
    """What a record holds: as a pydantic model serialises itself, or by the names of its fields; None for the rest."""
    kind = type(value)
    if hasattr(kind, "__pydantic_serializer__"):
        return _serialised(value)
    if isinstance(value, msgspec.Struct):
        config, names = kind.__struct_config__, zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True)
        tag = {config.tag_field: config.tag} if config.tag is not None else {}
        return tag | {encoded: getattr(value, name) for encoded, name in names}
    if hasattr(kind, "__dataclass_fields__"):
        import dataclasses

        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if hasattr(kind, "__attrs_attrs__"):
        return {field.name: getattr(value, field.name) for field in kind.__attrs_attrs__}
    return None


def _serialised(value: Any) -> Any:
    try:
        return type(value).__pydantic_serializer__.to_python(
            value, mode="json", by_alias=True, warnings=False, fallback=bare
        )
    except Exception:  # noqa: BLE001 - bytes that are no text, a field that holds its own model
        return dict(vars(value))
