"""How many requests reach a server, and when, counted there: every adapter, and agents with the vendors' own failures."""

import email.utils
import itertools
import time

import pytest

from support import chat, claude, google, responses
from support.loopback import BREAK, Loopback, Reply
from treadle import (
    Agent,
    ModelConnectionError,
    ModelRetry,
    OverloadedError,
    RateLimitError,
    Retry,
    RunError,
    fallback,
    retry,
)

AT_ONCE = Retry(base_seconds=0)

WIRES = {
    "chat": (chat.model, lambda: chat.sse(chat.text("hello"), chat.chunk(finish="stop"), chat.DONE)),
    "anthropic": (claude.model, lambda: claude.answer(*claude.text("hello"))),
    "google": (google.model, lambda: google.sse(google.chunk(google.text("hello")), google.chunk(finish="STOP"))),
    "openai": (
        responses.model,
        lambda: responses.sse(responses.text("hello"), responses.completed(responses.message("hello"))),
    ),
}
IN_STREAM = {
    "chat": lambda: chat.sse({"error": {"code": 429, "message": "slow down"}}),
    "anthropic": lambda: claude.sse({"type": "error", "error": {"type": "overloaded_error", "message": "slow down"}}),
    "google": lambda: google.sse({"error": {"code": 503, "status": "UNAVAILABLE", "message": "slow down"}}),
    "openai": lambda: responses.sse(
        responses.event("error", code="rate_limit_exceeded", message="slow down", param=None)
    ),
}


@pytest.fixture(params=WIRES)
def wire(request):
    return request.param


def good(wire):
    return Reply((WIRES[wire][1](),))


def refusal(status, **headers):
    return Reply((b'{"error": {"message": "slow down"}}',), status, "application/json", headers, whole=True)


async def run(wire, *replies, agent_retry=AT_ONCE, wrap=lambda model: model):
    """The outcome of a run at a server that gives these replies, what it retried, and how often it was asked."""
    retries = []
    async with Loopback(*replies) as server:
        agent = Agent(
            wrap(WIRES[wire][0](server)),
            retry=agent_retry,
            taps=[lambda event: retries.append(event) if isinstance(event, ModelRetry) else None],
        )
        try:
            outcome = (await agent.run("hello")).text
        except RunError as error:
            outcome = error.__cause__
        return outcome, retries, len(server.requests)


async def test_a_busy_server_is_asked_again(wire):
    outcome, retries, asked = await run(wire, refusal(503), refusal(500), good(wire))
    assert (outcome, len(retries), asked) == ("hello", 2, 3)


async def test_a_server_that_stays_busy_is_asked_three_times(wire):
    outcome, retries, asked = await run(wire, refusal(503))
    assert isinstance(outcome, OverloadedError)
    assert (outcome.attempt, len(retries), asked) == (3, 2, 3)


async def test_a_failure_inside_a_200_is_tried_again(wire):
    outcome, retries, asked = await run(wire, Reply((IN_STREAM[wire](),)), good(wire))
    assert (outcome, len(retries), asked) == ("hello", 1, 2)


@pytest.mark.parametrize("pieces", [(), (b": keepalive\n\n", BREAK), (BREAK,)], ids=["empty", "cut", "dead"])
async def test_an_answer_that_broke_off_before_it_began_is_tried_again(wire, pieces):
    outcome, retries, asked = await run(wire, Reply(pieces), good(wire))
    assert (outcome, len(retries), asked) == ("hello", 1, 2)


async def test_an_answer_that_broke_off_after_it_began_is_not(wire):
    body = WIRES[wire][1]()
    whole = next(cut for cut in itertools.count(body.index(b"hello")) if body[cut : cut + 2] in (b"\n\n", b"\r\n"))
    outcome, retries, asked = await run(wire, Reply((body[: whole + 4], BREAK)), good(wire))
    assert isinstance(outcome, ModelConnectionError) and outcome.retryable
    assert (len(retries), asked) == (0, 1)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
async def test_what_would_fail_again_is_asked_once(wire, status):
    outcome, retries, asked = await run(wire, refusal(status), good(wire))
    assert outcome.status == status
    assert (len(retries), asked) == (0, 1)


async def test_no_retry_means_one_request(wire):
    outcome, _, asked = await run(wire, refusal(429), good(wire), agent_retry=None)
    assert isinstance(outcome, RateLimitError) and asked == 1


async def test_layers_do_not_multiply(wire):
    twice = Retry(attempts=2, base_seconds=0)
    wraps = [
        lambda model: retry(model, twice),
        lambda model: retry(retry(model, twice), Retry(attempts=9, base_seconds=0)),
    ]
    for wrap in wraps:
        _, _, asked = await run(wire, refusal(503), wrap=wrap)
        assert asked == 2


async def test_the_next_provider_answers_for_one_that_is_down(wire):
    async with Loopback(refusal(401)) as down, Loopback(good(wire)) as up:
        agent = Agent(fallback(chat.model(down), WIRES[wire][0](up)))
        assert (await agent.run("hello")).text == "hello"
        assert len(down.requests) == len(up.requests) == 1


def date(seconds):
    return email.utils.formatdate(time.time() + seconds, usegmt=True)


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("headers", "least", "most"),
    [
        ({"retry-after": "0"}, 0, 0),
        ({"retry-after-ms": "30"}, 0.03, 0.033),
        ({"retry-after": "1", "retry-after-ms": "20"}, 0.02, 0.022),
        ({"retry-after": "-5"}, 0.02, 0.04),
        ({"retry-after": "nan"}, 0.02, 0.04),
        ({"retry-after": "\u00b2"}, 0.02, 0.04),
        ({"retry-after": "soon"}, 0.02, 0.04),
        ({"retry-after": date(-100)}, 0.02, 0.04),
        ({}, 0.02, 0.04),
    ],
    ids=["zero", "ms", "both", "negative", "nan", "superscript", "word", "past date", "none"],
)
async def test_the_wait_is_what_the_server_asks_for_or_the_usual_one(status, headers, least, most):
    usual = Retry(base_seconds=0.04)
    outcome, (told,), asked = await run("chat", refusal(status, **headers), good("chat"), agent_retry=usual)
    assert (outcome, asked) == ("hello", 2)
    assert least <= told.delay_seconds <= most


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("value", ["86400", date(86_400)], ids=["seconds", "date"])
async def test_a_wait_that_is_too_long_fails_at_once_and_tells_how_long(wire, status, value):
    outcome, retries, asked = await run(wire, refusal(status, **{"retry-after": value}), good(wire))
    assert outcome.status == status and 80_000 < outcome.retry_after_seconds <= 86_400  # a slow suite has come far
    assert (len(retries), asked) == (0, 1)
