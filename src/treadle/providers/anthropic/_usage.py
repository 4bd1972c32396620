"""Usage and stop: what an answer cost, and why it ended."""

from __future__ import annotations

from typing import Any

from treadle.providers._counts import count, inner
from treadle.usage import StopReason, Usage

PAUSED = "pause_turn"

_STOPS = {
    "end_turn": StopReason.END,
    "stop_sequence": StopReason.END,
    "max_tokens": StopReason.MAX_TOKENS,
    "model_context_window_exceeded": StopReason.CONTEXT,
    "refusal": StopReason.REFUSAL,
    "tool_use": StopReason.TOOL_CALLS,
}
_CUT = (StopReason.MAX_TOKENS, StopReason.CONTEXT)


def stop_of(word: str | None, *, calls: bool) -> StopReason:
    """The stop that a stop reason means. Calls that are there count, unless the answer was cut or refused."""
    stop = StopReason.END if word is None else _STOPS.get(word, StopReason.OTHER)
    if calls and stop not in (*_CUT, StopReason.REFUSAL):
        return StopReason.TOOL_CALLS
    return StopReason.END if stop is StopReason.TOOL_CALLS else stop


def is_cut_off(stop: StopReason) -> bool:
    """Whether the answer ended before the model was done."""
    return stop in _CUT


def usage_of(told: dict[str, Any]) -> Usage | None:
    """The usage of one request. None where no count is told.

    Where the answer took several passes (compaction, an advisor, a fallback), `iterations` has them all and the counts
    beside it only some.
    """
    iterations = told.get("iterations")
    passes = [item for item in iterations if isinstance(item, dict)] if isinstance(iterations, list) else []
    if not passes and all(count(told, key) is None for key in ("input_tokens", "output_tokens")):
        return None
    total = Usage()
    for item in passes or [told]:
        total += _usage(item)
    thinking = count(inner(told, "output_tokens_details"), "thinking_tokens") or 0
    return total + Usage(reasoning_tokens=min(thinking, total.output_tokens))


def _usage(told: dict[str, Any]) -> Usage:
    """`input_tokens` leaves out what was read from and written to the cache."""
    return Usage(
        count(told, "input_tokens") or 0,
        count(told, "output_tokens") or 0,
        count(told, "cache_read_input_tokens") or 0,
        count(told, "cache_creation_input_tokens") or 0,
    )
