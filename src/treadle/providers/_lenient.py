"""JSON that is not quite JSON: what some servers send, read as far as it goes."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec

from treadle.messages import encodable


def lenient(data: bytes) -> Any:
    """The JSON value in `data`, with all that JSON does not allow; None where there is none.

    Its strings may hold lone surrogates. NaN and infinity are null: no value that is kept could say them.
    """
    try:
        text = data.decode("utf-8", "replace").removeprefix("\ufeff")
        return json.loads(text, strict=False, parse_constant=_null, parse_float=_finite)
    except (ValueError, RecursionError):
        return None


def fitting(value: Any, kind: Any) -> Any:
    """`value` as a `kind`, None where it is none."""
    try:
        return msgspec.convert(value, kind, strict=False)
    except (msgspec.ValidationError, UnicodeEncodeError, RecursionError):  # text that is no text cannot be looked at
        return None


def whole_pairs(text: str) -> tuple[str, str]:
    """`text` as valid text, and half a surrogate pair at its end, which waits for its other half in the next piece."""
    half = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
    return encodable(text.removesuffix(half)), half


def _null(_: str) -> None:
    return None


def _finite(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None
