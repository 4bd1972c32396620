"""Usage and stop: what an answer cost, and why it ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.errors import InvalidRequestError, ModelError, ModelResponseError
from treadle.usage import StopReason, Usage

if TYPE_CHECKING:
    from treadle.providers.google._wire import Counts

# Finish reasons as of 2026-11; what is not here is no end of its own: `other`, or `tool_calls` where there are some.
_STOPS = {
    "MAX_TOKENS": StopReason.MAX_TOKENS,
    "CONTINUATION": StopReason.MAX_TOKENS,
    **dict.fromkeys(
        ("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "MODEL_ARMOR", "ESCALATION"),
        StopReason.REFUSAL,
    ),
    **dict.fromkeys(
        ("IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION", "PUP_LIMITED_DISABLED"), StopReason.REFUSAL
    ),
}
_FAILURES: dict[str, tuple[type[ModelError], bool]] = {
    "MALFORMED_FUNCTION_CALL": (ModelResponseError, True),
    "MALFORMED_RESPONSE": (ModelResponseError, True),
    "MISSING_THOUGHT_SIGNATURE": (InvalidRequestError, False),
}
_UNEXPECTED = "UNEXPECTED_TOOL_CALL"


def failure_of(word: str, *, calls: bool) -> tuple[type[ModelError], bool] | None:
    """The error that a finish reason stands for, and whether a retry may help.

    A call to a tool that was not declared mostly comes with the call: then the run answers it as any unknown tool.
    """
    if word == _UNEXPECTED and not calls:
        return ModelResponseError, True
    return _FAILURES.get(word)


def stop_of(word: str, *, calls: bool) -> StopReason:
    """The stop that a finish reason means. Calls come with `STOP`."""
    if (stop := _STOPS.get(word)) is not None:
        return stop
    if calls:
        return StopReason.TOOL_CALLS
    return StopReason.END if word == "STOP" else StopReason.OTHER


def usage_of(counts: Counts | None) -> Usage | None:
    """Cached tokens are part of the prompt; what hosted tools read and what was thought is counted beside it."""
    if counts is None:
        return None
    prompt, answer = _count(counts.prompt_token_count), _count(counts.candidates_token_count)
    read = min(_count(counts.cached_content_token_count), prompt)
    fetched, thoughts = _count(counts.tool_use_prompt_token_count), _count(counts.thoughts_token_count)
    output = answer + thoughts
    if thoughts and counts.total_token_count == prompt + fetched + answer and thoughts <= answer:
        output = answer  # a proxy that counts thoughts among the answer's tokens
    return Usage(prompt - read + fetched, output, read, reasoning_tokens=thoughts)


def tells(counts: Counts) -> bool:
    """Whether there is any count in it: Vertex sends the mere kind of traffic first."""
    return counts.prompt_token_count is not None or counts.candidates_token_count is not None


def _count(value: int | None) -> int:
    return value if value is not None and 0 <= value < 2**53 else 0
