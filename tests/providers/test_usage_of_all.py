"""One definition of usage, whatever words and sums a vendor has. (B086)"""

from __future__ import annotations

from typing import Any

import pytest

from support import chat, claude, google, responses
from treadle.usage import Usage

# The same request everywhere: 100 tokens read, 30 of them from the cache and 10 into it; 50 written, 20 of them thought.
WHOLE = Usage(60, 50, 30, 10, 20)
UNSTORED = Usage(70, 50, 30, 0, 20)
CHAT = {
    "prompt_tokens": 100,
    "completion_tokens": 50,
    "total_tokens": 150,
    "prompt_tokens_details": {"cached_tokens": 30, "cache_write_tokens": 10},
    "completion_tokens_details": {"reasoning_tokens": 20},
}
RESPONSES = {
    "input_tokens": 100,
    "output_tokens": 50,
    "total_tokens": 150,
    "input_tokens_details": {"cached_tokens": 30, "cache_write_tokens": 10},
    "output_tokens_details": {"reasoning_tokens": 20},
}
ANTHROPIC = {
    "input_tokens": 60,
    "cache_read_input_tokens": 30,
    "cache_creation_input_tokens": 10,
    "output_tokens": 50,
    "output_tokens_details": {"thinking_tokens": 20},
}
GOOGLE = {
    "promptTokenCount": 95,
    "toolUsePromptTokenCount": 5,
    "cachedContentTokenCount": 30,
    "candidatesTokenCount": 30,
    "thoughtsTokenCount": 20,
    "totalTokenCount": 150,
}


def without(given: dict[str, Any], *keys: str, **more: Any) -> dict[str, Any]:
    return {**{key: value for key, value in given.items() if key not in keys}, **more}


async def chat_usage(*told: Any) -> Usage | None:
    chunks = [{"choices": [], "usage": counts} for counts in told]
    return (await chat.finish(chat.text("t"), chat.chunk(finish="stop"), *chunks)).usage


async def responses_usage(*told: Any) -> Usage | None:
    said = responses.message("t")
    early = [responses.event("in_progress", response=responses.document(usage=counts)) for counts in told[:-1]]
    last = {"usage": told[-1]} if told else {}
    return (await responses.finish(*early, responses.done(0, said), responses.completed(said, **last))).usage


async def anthropic_usage(*told: Any) -> Usage | None:
    first = {"type": "message_start", "message": {"id": "m", "content": [], "usage": told[0] if told else None}}
    last = told[-1] if told else None
    end = [
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": last},
        {"type": "message_stop"},
    ]
    return (await claude.finish(first, *claude.text("t"), *end)).usage


async def google_usage(*told: Any) -> Usage | None:
    chunks = [google.chunk(google.text("t"), usageMetadata=counts) for counts in told or (None,)]
    return (await google.finish(*chunks, google.STOP)).usage


@pytest.mark.parametrize(
    ("usage_of", "told", "expected"),
    [
        pytest.param(chat_usage, CHAT, WHOLE, id="openai-chat"),
        pytest.param(
            chat_usage,
            without(CHAT, "prompt_tokens_details", prompt_cache_hit_tokens=30, prompt_cache_miss_tokens=70),
            UNSTORED,
            id="deepseek",
        ),
        pytest.param(chat_usage, without(CHAT, completion_tokens=30), WHOLE, id="xai-leaves-reasoning-out"),
        pytest.param(
            chat_usage, without(CHAT, "completion_tokens_details", reasoning_tokens=20), WHOLE, id="perplexity"
        ),
        pytest.param(responses_usage, RESPONSES, WHOLE, id="openai"),
        pytest.param(responses_usage, without(RESPONSES, output_tokens=30), WHOLE, id="reasoning-apart"),
        pytest.param(anthropic_usage, ANTHROPIC, WHOLE, id="anthropic"),
        pytest.param(
            anthropic_usage,
            without(ANTHROPIC, iterations=[without(ANTHROPIC, "output_tokens_details")]),
            WHOLE,
            id="anthropic-iterations",
        ),
        pytest.param(google_usage, GOOGLE, UNSTORED, id="google"),
        pytest.param(
            google_usage,
            without(GOOGLE, candidatesTokenCount=50, totalTokenCount=150),
            UNSTORED,
            id="google-proxy-that-counts-thoughts-twice",
        ),
    ],
)
async def test_one_request_has_one_usage(usage_of: Any, told: dict[str, Any], expected: Usage) -> None:
    used = await usage_of(told)
    assert used == expected
    assert used.total_tokens == 150
    assert used.cache_hit_rate == 30 / (expected.input_tokens + 30)


EVERY = [
    pytest.param(chat_usage, CHAT, ("prompt_tokens", "completion_tokens"), id="chat"),
    pytest.param(responses_usage, RESPONSES, ("input_tokens", "output_tokens"), id="responses"),
    pytest.param(anthropic_usage, ANTHROPIC, ("input_tokens", "output_tokens"), id="anthropic"),
    pytest.param(google_usage, GOOGLE, ("promptTokenCount", "candidatesTokenCount"), id="google"),
]
each_wire = pytest.mark.parametrize(("usage_of", "told", "counts"), EVERY)


@each_wire
async def test_usage_that_is_absent_or_says_nothing_is_unknown_and_not_zero(
    usage_of: Any, told: dict[str, Any], counts: Any
) -> None:
    assert await usage_of() is None
    for nothing in (None, {}, dict.fromkeys(told), {"service_tier": "x"}):
        assert await usage_of(nothing) is None


@each_wire
async def test_null_and_absent_details_count_as_nothing(usage_of: Any, told: dict[str, Any], counts: Any) -> None:
    plain = dict(zip(counts, (100, 50), strict=True))
    assert await usage_of(plain) == Usage(100, 50)
    assert await usage_of({**dict.fromkeys(told), **plain}) == Usage(100, 50)
    assert await usage_of({**plain, "new_details": {"a": 1}, "new_count": 7}) == Usage(100, 50)


@each_wire
async def test_running_totals_are_not_added_up(usage_of: Any, told: dict[str, Any], counts: Any) -> None:
    read, written = counts
    totals = [{read: 25, written: number} for number in (10, 50, 100)]
    assert await usage_of(*totals) == Usage(25, 100)
    assert await usage_of({read: 25, written: 1}, {read: 25, written: 15}) == Usage(25, 15)


@each_wire
@pytest.mark.parametrize("odd", [-1, "7", True, 1e300, [], {}, 2**60])
async def test_odd_counts_are_no_error(usage_of: Any, told: dict[str, Any], counts: Any, odd: Any) -> None:
    read, written = counts
    used = await usage_of({read: odd, written: 5})
    assert used is None or used.output_tokens == 5
    for key in told:
        used = await usage_of({read: 100, written: 50, key: odd})
        assert used is None or 0 <= used.total_tokens < 2**55


async def test_the_start_of_an_anthropic_answer_tells_what_was_read_and_its_end_what_was_written() -> None:
    used = await anthropic_usage({"input_tokens": 25, "output_tokens": 1}, {"output_tokens": 15})
    assert used == Usage(25, 15)
