"""What a model request cost, and why a step or a run ended."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class StopReason(StrEnum):
    """Why a step or a run ended."""

    END = "end"
    TOOL_CALLS = "tool_calls"
    MAX_TOKENS = "max_tokens"
    CONTEXT = "context"
    REFUSAL = "refusal"
    PAUSED = "paused"
    STOP_CONDITION = "stop_condition"
    MAX_STEPS = "max_steps"
    BUDGET = "budget"
    CANCELLED = "cancelled"
    ERROR = "error"
    OTHER = "other"

    @property
    def complete(self) -> bool:
        """Whether the answer is whole. False for everything that stopped short."""
        return self is StopReason.END or self is StopReason.STOP_CONDITION


class Usage(msgspec.Struct, frozen=True, gc=False):
    """Tokens and money of one request, or of many added up.

    `input_tokens` excludes cached tokens; `reasoning_tokens` is a part of `output_tokens`. `cost_usd` is the provider's
    own figure, never an estimate. `cost_partial` marks a sum that lacks the cost of some request.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cost_usd: float | None = None
    cost_partial: bool = False

    @property
    def total_tokens(self) -> int:
        """Input, output, cache reads and cache writes together."""
        return self.input_tokens + self.output_tokens + self.cache_read_tokens + self.cache_write_tokens

    @property
    def cache_hit_rate(self) -> float:
        """Cached share of the input that was read, from 0.0 to 1.0; 0.0 when nothing was read."""
        read = self.input_tokens + self.cache_read_tokens
        return self.cache_read_tokens / read if read else 0.0

    @property
    def cost_complete(self) -> bool:
        """Whether every request that used tokens reported its cost."""
        return not self.cost_partial and (self.cost_usd is not None or self.total_tokens == 0)

    def __add__(self, other: Usage) -> Usage:
        cost = _add_costs(self.cost_usd, other.cost_usd)
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            cost,
            self.cost_partial
            or other.cost_partial
            or (cost is not None and not (self.cost_complete and other.cost_complete)),
        )


class Remaining(msgspec.Struct, frozen=True, gc=False):
    """What a run may still use, with all agents above it; None where there is no limit. Below zero: a provider billed
    more than the most that was asked of it.
    """

    tokens: int | None = None
    usd: float | None = None
    tool_calls: int | None = None
    seconds: float | None = None


def _add_costs(one: float | None, two: float | None) -> float | None:
    if one is None or two is None:
        return two if one is None else one
    return one + two
