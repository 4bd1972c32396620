"""The request: how a model thinks, and what of it the model does not take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from treadle.errors import ConfigError
from treadle.providers.anthropic._models import MIN_BUDGET

if TYPE_CHECKING:
    from treadle.model import Reasoning
    from treadle.providers._faults import Faults
    from treadle.providers.anthropic._models import Traits

_DEFAULT_BUDGET = 8_192  # for models that cannot choose it, where nobody chose


def check_reasoning(reasoning: Reasoning, traits: Traits, faults: Faults) -> None:
    """Adds what the model does not take."""
    budget = reasoning.budget_tokens
    if not traits.reasoning:
        faults.add("reasoning", "no reasoning: leave it out")
        return
    if reasoning.effort is not None and not traits.effort:
        faults.add("effort", "no reasoning effort: give budget_tokens instead")
    if budget is not None and not traits.budget:
        faults.add("min_reasoning_budget", "no reasoning budget: give an effort instead")
    elif budget is not None and budget < MIN_BUDGET:
        faults.add("min_reasoning_budget", f"no reasoning budget below {MIN_BUDGET} tokens")


def thinking(reasoning: Reasoning, traits: Traits, limit: int) -> dict[str, Any]:
    """How the model thinks. Newer models choose by themselves, within the effort; older ones have a budget."""
    budget = reasoning.budget_tokens
    if reasoning.effort == "none":
        return {"type": "disabled"}
    display = {"display": "summarized"} if reasoning.show else {}
    if budget is None and traits.adaptive:
        return {"type": "adaptive", **display}
    if budget is None:
        budget = max(MIN_BUDGET, min(_DEFAULT_BUDGET, limit // 2))
    if budget >= limit:
        raise ConfigError(
            f"a reasoning budget of {budget} tokens leaves no room for an answer: "
            f"set max_output_tokens above it (it is {limit})"
        )
    return {"type": "enabled", "budget_tokens": budget, **display}
