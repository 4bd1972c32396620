"""The request: how much a model shall reason, in the words of its server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from treadle.model import Reasoning
    from treadle.providers._faults import Faults
    from treadle.providers.openai_chat._dialects import Dialect


def reasoning_fields(reasoning: Reasoning, dialect: Dialect, faults: Faults) -> dict[str, Any]:
    """What the request says of it. A budget wins over an effort."""
    if not dialect.reasoning:
        faults.add("reasoning", "no reasoning: leave out reasoning")
        return {}
    if reasoning.effort == "none" and dialect.reasoning_off is not None:
        return dialect.reasoning_off
    _check(reasoning, dialect, faults)
    asked: dict[str, Any] = {}
    if reasoning.budget_tokens is not None:
        asked[dialect.reasoning_budget] = reasoning.budget_tokens
    elif reasoning.effort is not None:
        asked["effort" if dialect.reasoning_object else "reasoning_effort"] = reasoning.effort
    if dialect.reasoning_object:
        return {"reasoning": asked or {"enabled": True}}
    return {**dialect.reasoning_on, **asked}


def _check(reasoning: Reasoning, dialect: Dialect, faults: Faults) -> None:
    smallest = dialect.min_reasoning_budget
    if reasoning.effort is not None and not dialect.effort:
        faults.add("effort", "no reasoning effort: leave out effort")
    if reasoning.budget_tokens is None:
        return
    if smallest is None:
        faults.add("min_reasoning_budget", "no reasoning budget: leave out budget_tokens")
    elif reasoning.budget_tokens < smallest:
        faults.add("min_reasoning_budget", f"no reasoning budget below {smallest} tokens")
