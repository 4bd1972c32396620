"""Usage and stop: what an answer cost, and why it ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from treadle.providers._counts import cost_usd, count, inner
from treadle.providers.openai._items import APPROVAL_REQUEST, FUNCTION_CALL, MESSAGE, kind_of, refuses, unanswered
from treadle.usage import StopReason, Usage

if TYPE_CHECKING:
    from treadle.providers.openai._wire import Response

_INCOMPLETE = {
    "max_output_tokens": StopReason.MAX_TOKENS,
    "max_tokens": StopReason.MAX_TOKENS,
    "length": StopReason.MAX_TOKENS,
    "content_filter": StopReason.REFUSAL,
    "context_length_exceeded": StopReason.CONTEXT,
    "model_context_window_exceeded": StopReason.CONTEXT,
}


def stop_of(response: Response | None, items: list[dict[str, Any]]) -> tuple[StopReason, str]:
    """Why an answer ended, and the provider's own word for it."""
    status = (response.status if response is not None else None) or "completed"
    if status == "incomplete":
        details = response.incomplete_details if response is not None else None
        reason = details.get("reason") if isinstance(details, dict) else None
        word = reason if isinstance(reason, str) and reason else status
        return _INCOMPLETE.get(word.lower(), StopReason.OTHER), word
    kinds = {kind_of(item) for item in items}
    if FUNCTION_CALL in kinds:
        return StopReason.TOOL_CALLS, status
    if any(refuses(item) for item in items):
        return StopReason.REFUSAL, status
    if APPROVAL_REQUEST in kinds:
        return StopReason.PAUSED, status
    # What a message follows was answered on the provider's side, as xAI answers its own custom tools (2026-11).
    last_said = max((place for place, item in enumerate(items) if kind_of(item) == MESSAGE), default=-1)
    waits = bool(unanswered(items[last_said + 1 :]))
    return StopReason.OTHER if waits or status != "completed" else StopReason.END, status


def usage_of(given: Any) -> Usage | None:
    """Cached tokens are part of `input_tokens` everywhere. None where no count is told."""
    if not isinstance(given, dict) or all(count(given, key) is None for key in ("input_tokens", "output_tokens")):
        return None
    sent, output = count(given, "input_tokens") or 0, count(given, "output_tokens") or 0
    details = inner(given, "input_tokens_details")
    read = min(count(details, "cached_tokens") or 0, sent)
    stored = min(count(details, "cache_write_tokens") or 0, sent - read)
    reasoning = count(inner(given, "output_tokens_details"), "reasoning_tokens") or 0
    if reasoning and count(given, "total_tokens") == sent + output + reasoning:
        output += reasoning  # some count reasoning apart
    return Usage(sent - read - stored, output, read, stored, min(reasoning, output), cost_usd=cost_usd(given))
