"""Usage and stop: what an answer cost, and why it ended."""

from __future__ import annotations

from typing import Any

from treadle.errors import ModelError, ModelResponseError, OverloadedError
from treadle.providers._counts import cost_usd, count, inner
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
    if not given or not any(count(given, key) is not None for key in ("prompt_tokens", "completion_tokens")):
        return None
    prompt, output = count(given, "prompt_tokens") or 0, count(given, "completion_tokens") or 0
    details, written = inner(given, "prompt_tokens_details"), inner(given, "completion_tokens_details")
    read = min(count(details, "cached_tokens") or count(given, "prompt_cache_hit_tokens") or 0, prompt)
    stored = min(count(details, "cache_write_tokens") or 0, prompt - read)
    reasoning = count(written, "reasoning_tokens") or count(given, "reasoning_tokens") or 0
    if reasoning and count(given, "total_tokens") == prompt + output + reasoning:
        output += reasoning  # xAI counts reasoning apart
    return Usage(prompt - read - stored, output, read, stored, min(reasoning, output), cost_usd=cost_usd(given))
