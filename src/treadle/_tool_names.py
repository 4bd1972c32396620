"""Tool names that every provider takes."""

from __future__ import annotations

import hashlib
import re

LONGEST = 64
_DIGITS = 8


def legal_name(text: str) -> str:
    """`text` with other characters as underscores; with its hash where it is too long, or nothing readable is left."""
    name = re.sub(r"[^a-zA-Z0-9_-]+", "_", text)
    return hashed_name(text) if len(name) > LONGEST or not name.strip("_-") else name


def hashed_name(text: str) -> str:
    """A legal name for `text` and, as good as certain, for no other."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
    name = re.sub(r"[^a-zA-Z0-9_-]+", "_", text)[: LONGEST - _DIGITS - 1].strip("_-")
    return f"{name or 'tool'}_{digest}"
