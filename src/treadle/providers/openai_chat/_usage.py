"""Usage and stop: what an answer cost, and why it ended."""

from __future__ import annotations

from typing import Any

from treadle.errors import ModelError, ModelResponseError, OverloadedError
from treadle.usage import StopReason, Usage

_STOPS = {
    "length": StopReason.MAX_TOKENS,
    "max_tokens": StopReason.MAX_TOKENS,
    "max_output_tokens": StopReason.MAX_TOKENS,
    "model_length": StopReason.MAX_TOKENS,
    "content_filter": StopReason.REFUSAL,
    "safety": StopReason.REFUSAL,
    "sensitive": StopReason.REFUSAL,
    "refusal": StopReason.REFUSAL,
    "prohibited_content": StopReason.REFUSAL,
    "context_length_exceeded": StopReason.CONTEXT,
    "model_context_window_exceeded": StopReason.CONTEXT,
}
# An answer with these words is whole. So is one that ends with [DONE] and gives no reason at all (Snowflake, 2026-11).
_ENDS = frozenset(
    {"", "stop", "end", "eos", "eos_token", "end_turn", "stop_sequence", "completed", "tool_calls", "function_call"}
)
_FAILURES: dict[str, type[ModelError]] = {
    "error": OverloadedError,
    "abort": OverloadedError,
    "network_error": OverloadedError,
    "insufficient_system_resource": OverloadedError,
    "malformed_function_call": ModelResponseError,
}
_TICKS_PER_USD = 10_000_000_000  # xAI, 2026-11


def is_output_limit(word: str | None) -> bool:
    """Whether a finish reason says that the output limit was reached."""
    return _STOPS.get((word or "").lower()) is StopReason.MAX_TOKENS


def failure_of(word: str) -> type[ModelError] | None:
    """The error that a finish reason stands for, if it is one."""
    return _FAILURES.get(word.lower())


def stop_of(word: str, *, calls: bool) -> StopReason:
    """The stop that a finish reason means. Calls that are there count, whatever it says of the end."""
    if (stop := _STOPS.get(word.lower())) is not None:
        return stop
    if calls:
        return StopReason.TOOL_CALLS
    return StopReason.END if word.lower() in _ENDS else StopReason.OTHER


def usage_of(given: dict[str, Any] | None) -> Usage | None:
    """Cached tokens are part of `prompt_tokens` everywhere. None where no count is told."""
    if not given or not any(_count(given, key) is not None for key in ("prompt_tokens", "completion_tokens")):
        return None
    prompt, output = _count(given, "prompt_tokens") or 0, _count(given, "completion_tokens") or 0
    details, written = _inner(given, "prompt_tokens_details"), _inner(given, "completion_tokens_details")
    read = min(_count(details, "cached_tokens") or _count(given, "prompt_cache_hit_tokens") or 0, prompt)
    stored = min(_count(details, "cache_write_tokens") or 0, prompt - read)
    reasoning = _count(written, "reasoning_tokens") or _count(given, "reasoning_tokens") or 0
    if reasoning and _count(given, "total_tokens") == prompt + output + reasoning:
        output += reasoning  # xAI counts reasoning apart
    return Usage(prompt - read - stored, output, read, stored, min(reasoning, output), cost_usd=_cost(given))


def _inner(given: dict[str, Any], key: str) -> dict[str, Any]:
    value = given.get(key)
    return value if isinstance(value, dict) else {}


def _count(given: dict[str, Any], key: str) -> int | None:
    value = given.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**53:
        return None
    return int(value)


def _cost(given: dict[str, Any]) -> float | None:
    """The provider's own figure: OpenRouter a number, Perplexity a table, xAI ticks (0 ticks say nothing)."""
    cost = given.get("cost")
    if isinstance(cost, dict):
        cost = cost.get("total_cost")
    if isinstance(cost, int | float) and not isinstance(cost, bool) and 0 <= cost < 1e9:
        return float(cost)
    ticks = _count(given, "cost_in_usd_ticks")
    return ticks / _TICKS_PER_USD if ticks else None
