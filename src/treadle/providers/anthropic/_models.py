"""What the Claude models take, told from their names. As of 2026-11, by Anthropic's migration guides and recordings.

A name without a version we know of gets everything: the server has the last word.
"""

from __future__ import annotations

import re

import msgspec

MIN_BUDGET = 1_024

_VERSION = re.compile(r"claude-(?:[a-z]+-)?(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)")


class Traits(msgspec.Struct, frozen=True, kw_only=True):
    """What differs from model to model.

    `adaptive`: thinks as much as it sees fit. `budget`: takes `budget_tokens`. `sampling`: takes temperature and top_p.
    `max_output_tokens` is the model's own maximum where that is below the agent's default.
    """

    reasoning: bool = True
    adaptive: bool = True
    budget: bool = True
    effort: bool = True
    sampling: bool = True
    output_schema: bool = True
    max_output_tokens: int | None = None


def traits_of(name: str) -> Traits:
    """The traits of the model with that name, also in the spellings of Bedrock and Vertex."""
    if "mythos-preview" in name:
        return Traits(budget=False, sampling=False)
    found = _VERSION.search(name)
    if found is None:
        return Traits()
    version = int(found[1]), int(found[2] or 0)
    opus = "opus" in name
    return Traits(
        reasoning=version >= (3, 7),
        adaptive=version >= (4, 6),
        budget=(3, 7) <= version <= (4, 6),
        effort=version >= (4, 6) or (opus and version >= (4, 5)),
        sampling=version < (4, 7),
        output_schema=version >= (4, 5) or (opus and version >= (4, 1)),
        max_output_tokens=_max_output(version),
    )


def _max_output(version: tuple[int, int]) -> int | None:
    if version >= (3, 7):
        return None
    return 8_192 if version >= (3, 5) else 4_096
