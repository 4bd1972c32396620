"""What the Gemini models take, told from their names (ai.google.dev/gemini-api/docs/thinking, 2026-11).

A name without a version we know of gets everything: the server has the last word.
"""

from __future__ import annotations

import re

import msgspec


class Traits(msgspec.Struct, frozen=True, kw_only=True):
    """What differs from model to model.

    `modern` models (Gemini 3 and later) have levels of thinking, and take a schema and a hosted search beside tools.
    `signed` ones want each step's first call signed, and take files inside of results.
    """

    modern: bool = True
    signed: bool = False
    tools: bool = True
    reasoning: bool = True
    min_reasoning_budget: int = 0


def traits_of(name: str) -> Traits:
    """The traits of the model with that name, or of the one that a path ends with."""
    version = _version(name)
    if version is None:
        return Traits()
    return Traits(
        modern=version >= (3, 0),
        signed=version >= (3, 0),
        tools="-image" not in name,
        reasoning=version >= (2, 5) or "thinking" in name,
        min_reasoning_budget=128 if re.search(r"gemini-2\.5-pro", name) else 0,
    )


def _version(name: str) -> tuple[int, int] | None:
    """(3, 1) for `gemini-3.1-pro`, (3, 0) for what goes by `latest`; None for what is no Gemini model."""
    if found := re.search(r"gemini-(\d+)(?:\.(\d+))?", name):
        return int(found[1]), int(found[2] or 0)
    return (3, 0) if re.search(r"gemini-[a-z-]*latest", name) else None
