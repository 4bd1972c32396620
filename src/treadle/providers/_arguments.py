"""Tool calls on their way: whether arguments are whole, and names and arguments in a form that servers take."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from treadle.providers._rendered import encode

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}", re.ASCII)
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])


def is_object(text: str) -> bool:
    """Whether `text` is a JSON object, and nothing else."""
    try:
        _object.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return "\\ud" in text.lower() and _is_lax_object(text)
    return True


def _is_lax_object(text: str) -> bool:
    """Whether it is one with lone surrogates in it: JSON may escape them, msgspec refuses them."""
    try:
        return isinstance(json.loads(text, parse_constant=_refuse), dict)
    except (ValueError, RecursionError):
        return False


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def is_cut(text: str) -> bool:
    """Whether `text` is JSON that ends too early."""
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        return "truncated" in str(error) and not is_object(text)  # msgspec calls half a surrogate pair truncated
    except (UnicodeEncodeError, RecursionError):
        return False
    return False


def legal_name(name: str) -> str:
    """A name that the server takes, also for a call that the model made up."""
    return name if _LEGAL_NAME.fullmatch(name) else re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:64] or "unnamed"


def legal_arguments(args: str) -> str:
    """Arguments as a JSON object, as servers insist. What the model wrote instead stays to be seen in it."""
    if is_object(args):
        return args
    if args.strip() in ("", "null", '"null"', '""'):
        return "{}"
    try:
        inner = msgspec.json.decode(args)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        inner = None
    if isinstance(inner, str) and is_object(inner):
        return inner
    return encode({"unparsed_arguments": args}).decode()
