"""From the text a model sends as arguments to the values a function takes.

`ToolInputError` is the only error, and its text is written for the model: which tool, what is wrong, what is expected.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import msgspec

from treadle import _plain, _repair
from treadle.errors import ToolInputError
from treadle.messages import encodable

if TYPE_CHECKING:
    from collections.abc import Callable

    from treadle._schema import Compiled, Field
    from treadle._signature import Signature

MAX_FAULTS = 10
_MAX_SHOWN = 80
_MAX_ROUNDS = 4
_BLANK = " \t\r\n\ufeff"
_TOO_DEEP = "they are nested too deeply"
# One JSON escape at a time, so that an escaped backslash is never taken for the start of another escape.
_ESCAPE = re.compile(r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)", re.DOTALL)


def parse(text: str, tool: str, compiled: Compiled) -> dict[str, Any]:
    """The arguments in `text`, checked and with their declared types, defaults filled in."""
    return _parse(text, tool, lambda: compiled.input_schema, lambda given: _fit(given, compiled))


def parse_plain(text: str, tool: str, signature: Signature, compiled: Callable[[], Compiled]) -> dict[str, Any]:
    """The same for a plain signature, compiled only where the values are not of their types already."""

    def fit(given: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
        values = _plain.arguments(signature, given)
        return _fit(given, compiled()) if values is None else (values, [])

    return _parse(text, tool, lambda: compiled().input_schema, fit)


def parse_raw(text: str, tool: str, schema: dict[str, Any]) -> dict[str, Any]:
    """The arguments in `text` for a schema from elsewhere: required keys and the types of the top level are checked."""
    return _parse(text, tool, lambda: schema, lambda given: _fit_raw(given, schema))


def _parse(text: str, tool: str, schema: Callable[[], dict[str, Any]], fit: Any) -> dict[str, Any]:
    try:
        given = _object(text)
        values, lines = fit(given)
    except _NotAnObject as error:
        values, lines = {}, [str(error)]
    except RecursionError:
        values, lines = {}, [_TOO_DEEP]
    except Exception as error:  # noqa: BLE001 - a validator of the user's own may raise anything
        values, lines = {}, [f"they could not be checked: {_short(str(error) or type(error).__name__, 300)}"]
    if lines:
        raise ToolInputError(_text(tool, schema(), lines))
    arguments: dict[str, Any] = values
    return arguments


def _text(tool: str, schema: dict[str, Any], lines: list[str]) -> str:
    left = len(lines) - MAX_FAULTS
    lines = [*lines[:MAX_FAULTS], *([f"and {left} more"] if left > 0 else [])]
    properties, required = _mapping(schema.get("properties")), _list(schema.get("required"))
    names = [name if name in required else f"{name} (optional)" for name in properties]
    expected = ", ".join(names) if names else "none, send {}"
    return "\n".join([f"The arguments of {tool} were not accepted:", *[f"- {line}" for line in lines],
                      f"Expected arguments: {expected}"])  # fmt: skip


# The outer form: one JSON object, in whatever wrapping.


class _NotAnObject(ValueError):
    pass


def _object(text: str) -> dict[str, Any]:
    value = _decode(text)
    for _ in range(_MAX_ROUNDS):
        if value is None:
            return {}
        if isinstance(value, dict):
            return value
        if not isinstance(value, str):
            break
        try:
            value = _decode(value)
        except _NotAnObject:
            break
    raise _NotAnObject(f"they must be one JSON object, not {_article(_repair.kind(value))}: {_show(value)}")


def _decode(text: str) -> Any:
    if not text or not text.strip(_BLANK):
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return decode_leniently(text)


def decode_leniently(text: str) -> Any:
    """Takes what msgspec refuses and models send: a BOM, line breaks inside strings, lone surrogates, NaN (as null)."""
    import json

    text = _ESCAPE.sub(_without_lone_surrogate, encodable(text)).strip(_BLANK)
    try:
        return json.loads(text, strict=False, parse_float=_finite, parse_constant=_finite)
    except json.JSONDecodeError as error:
        raise _NotAnObject(_json_fault(text, error.msg, error.pos)) from None
    except RecursionError:
        raise _NotAnObject(_TOO_DEEP) from None
    except ValueError:
        raise _NotAnObject("they hold a number with too many digits") from None


def _finite(number: str) -> float | None:
    value = float(number)
    return value if math.isfinite(value) else None


def _without_lone_surrogate(match: re.Match[str]) -> str:
    escape = match[0]
    is_surrogate = len(escape) == 6 and escape[1] == "u" and escape[2] in "dD" and escape[3] in "89abcdefABCDEF"
    return "\\ufffd" if is_surrogate else escape


def _json_fault(text: str, message: str, position: int) -> str:
    if position >= len(text) or message.startswith("Unterminated"):
        return f"they are not valid JSON: the text ends too early ({message.lower()}, character {position + 1})"
    near = _show(text[position : position + 20])
    return f"they are not valid JSON: {message.lower()} at character {position + 1}, near {near}"


# The inner form: every argument as its type wants it.


def _fit(given: dict[str, Any], compiled: Compiled) -> tuple[dict[str, Any], list[str]]:
    values, lines = {}, _unknown(given, compiled.fields)
    for name, field in compiled.fields.items():
        if name in given:
            value, faults = _fit_one(field, {name: given[name]}, compiled.input_schema)
            values[name] = value
            lines += faults
        elif field.required:
            lines.append(f"{name}: required, but missing")
        else:
            values[name] = field.default()
    return values, lines


def _fit_one(field: Field, given: dict[str, Any], schema: dict[str, Any]) -> tuple[Any, list[str]]:
    from pydantic import ValidationError

    name, errors = field.name, []
    if isinstance(given[name], bool) and not _repair.takes(schema, (name,), given[name]):
        return None, [f"{name}: must not be a boolean; got {_show(given[name])}"]  # pydantic would make it 0 or 1
    for _ in range(_MAX_ROUNDS):  # a string may hold JSON whose strings hold JSON
        if name not in given:
            return field.default(), []
        try:
            return field.check(msgspec.json.encode(given[name])), []
        except ValidationError as error:
            errors = error.errors(include_url=False, include_context=False)
        paths = {_repair.locate(given, (name, *one["loc"])) for one in errors if "[key]" not in one["loc"]}
        mended = [_repair.mend(given, path, schema) for path in sorted(paths, key=len, reverse=True)]
        if not any(mended):
            break
    return None, list(dict.fromkeys(_line(given, (name, *one["loc"]), one["type"], one["msg"]) for one in errors))


def _line(given: dict[str, Any], labels: _repair.Path, fault: str, message: str) -> str:
    path = _repair.locate(given, labels)
    if fault == "json_invalid":  # it was valid a moment ago: what pydantic cannot take is its depth
        return f"{_dotted(path)}: nested too deeply"
    if fault == "missing":
        return f"{_dotted((*path, labels[-1]))}: required, but missing"
    value: Any = given
    for key in path:
        value = value[key]
    if fault == "extra_forbidden":
        return f"{_dotted(path)}: no such field"
    return f"{_dotted(path)}: {_short(message, 300)}; got {_show(value)}"


def _unknown(given: dict[str, Any], fields: dict[str, Field]) -> list[str]:
    lines = []
    for name in given:
        if name in fields:
            continue
        import difflib

        near = difflib.get_close_matches(name, fields, n=1)
        lines.append(f"{_short(name, _MAX_SHOWN)}: no such argument" + (f"; did you mean {near[0]}?" if near else ""))
    return lines


def _fit_raw(given: dict[str, Any], schema: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    properties, required = _mapping(schema.get("properties")), _list(schema.get("required"))
    values, lines = {}, [f"{name}: required, but missing" for name in required if name not in given]
    for name, value in given.items():
        declared = _mapping(properties.get(name)).get("type")
        kinds = [declared] if isinstance(declared, str) else _list(declared)
        if not kinds or _repair.admits([{"type": kinds}], value):
            values[name] = value
        elif value is not None or name in required:  # null for what may be absent: take it as absent
            wanted = " or ".join(map(_article, kinds))
            lines.append(f"{name}: must be {wanted}, not {_article(_repair.kind(value))}: {_show(value)}")
    return values, lines


# Words.


def _dotted(path: _repair.Path) -> str:
    text = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)
    return _short(text.removeprefix("."), 200)


def _show(value: Any) -> str:
    try:
        return _short(msgspec.json.encode(value).decode(), _MAX_SHOWN)
    except Exception:  # noqa: BLE001 - too deep, or not encodable: any words will do
        return f"({type(value).__name__})"


def _short(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 3]}..."


def _article(word: str) -> str:
    return word if word == "null" else f"an {word}" if word[:1] in "aeio" else f"a {word}"


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list | tuple) else []
