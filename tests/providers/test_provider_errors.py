"""What servers answer instead of an answer, and what it becomes."""

from __future__ import annotations

import asyncio
import email.utils
import json
import time
from typing import Any

import pytest

from support.chat import collect, model
from support.loopback import BOUND, STALL, Loopback, Reply
from treadle.errors import (
    AuthenticationError,
    ContextOverflowError,
    InvalidRequestError,
    ModelError,
    ModelResponseError,
    OverloadedError,
    RateLimitError,
)
from treadle.providers._errors import page_summary, retry_after_seconds
from treadle.usage import StopReason


async def refused(status: int, body: Any, headers: dict[str, str] | None = None, **options: Any) -> ModelError:
    """The error of an answer with this status and body."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    reply = Reply((raw,), status=status, content_type="application/json", headers=headers or {}, whole=True)
    async with Loopback(reply) as server:
        with pytest.raises(ModelError) as caught:
            await collect(model(server, **options))
    error = caught.value
    assert "\n" not in str(error)
    assert "sk-test-secret" not in str(error)
    assert (error.provider, error.model) == (options.get("provider", "openai-chat"), "m")
    return error


@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (400, InvalidRequestError, False),
        (401, AuthenticationError, False),
        (402, RateLimitError, False),
        (403, AuthenticationError, False),
        (404, InvalidRequestError, False),
        (408, OverloadedError, True),
        (409, OverloadedError, True),
        (413, ContextOverflowError, False),
        (422, InvalidRequestError, False),
        (425, OverloadedError, True),
        (429, RateLimitError, True),
        (500, OverloadedError, True),
        (501, InvalidRequestError, False),
        (502, OverloadedError, True),
        (503, OverloadedError, True),
        (504, OverloadedError, True),
        (529, OverloadedError, True),
    ],
)
async def test_each_status_has_its_class(status: int, kind: type[ModelError], retryable: bool) -> None:
    error = await refused(status, {"error": {"message": "No.\nReally."}})
    assert type(error) is kind
    assert (error.status, error.retryable) == (status, retryable)
    assert str(error).startswith(f"openai-chat:m: {status}: No. Really.")


@pytest.mark.parametrize(
    ("status", "text", "code"),
    [
        (
            400,
            "This model's maximum context length is 128000 tokens. However, your messages resulted in 1",
            "context_length_exceeded",
        ),
        (400, "whatever", "context_length_exceeded"),
        (400, "prompt too long; exceeded max context length by 1119046 tokens (ref: x)", None),
        (400, "This endpoint's maximum context length is 200000 tokens. However, you requested", 400),
        (
            400,
            "the request exceeds the available context size. try increasing the context size",
            "exceed_context_size_error",
        ),
        (400, "Prompt contains 40000 tokens, too large for model with 32768 maximum context length", "3051"),
        (400, "Please reduce the length of the messages or completion.", None),
        (400, "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).", None),
        (400, "prompt is too long: 210000 tokens > 200000 maximum", None),
        (422, "Input is too long for requested model.", None),
        (500, "The decoder prompt is longer than the maximum model length: context length exceeded", None),
    ],
)
async def test_every_wording_of_a_full_context_is_an_overflow(status: int, text: str, code: Any) -> None:
    error = await refused(status, {"error": {"message": text, "code": code, "type": "invalid_request_error"}})
    assert type(error) is ContextOverflowError


@pytest.mark.parametrize(
    ("status", "body", "kind", "retryable"),
    [
        (
            429,
            {"error": {"code": "insufficient_quota", "message": "You exceeded your current quota"}},
            RateLimitError,
            False,
        ),
        (429, {"error": {"code": "RateLimitReached", "message": "slow"}}, RateLimitError, True),
        (
            413,
            {"error": {"code": "rate_limit_exceeded", "message": "Request too large: tokens per minute"}},
            RateLimitError,
            True,
        ),
        (
            400,
            {"code": "invalid-argument", "error": "Incorrect API key provided. You can obtain one"},
            AuthenticationError,
            False,
        ),
        (400, {"error": {"message": "API key not valid. Please pass a valid API key."}}, AuthenticationError, False),
        (
            400,
            {"error": {"message": "bad tool", "code": "tool_use_failed", "failed_generation": "{"}},
            ModelResponseError,
            True,
        ),
        (
            500,
            {"error": {"code": 500, "message": "Failed to parse input at pos 0: <x>", "type": "server_error"}},
            ModelResponseError,
            True,
        ),
        (
            400,
            {"object": "error", "message": "Logprobs are not enabled", "type": "invalid_request", "code": "3051"},
            InvalidRequestError,
            False,
        ),
        (422, {"detail": [{"loc": ["body"], "msg": "Extra inputs are not permitted"}]}, InvalidRequestError, False),
        (400, [{"error": {"message": "in a list", "status": "INVALID_ARGUMENT"}}], InvalidRequestError, False),
    ],
)
async def test_codes_and_words_tell_more_than_the_status(
    status: int, body: Any, kind: type[ModelError], retryable: bool
) -> None:
    error = await refused(status, body)
    assert (type(error), error.retryable, error.status) == (kind, retryable, status)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"error": "plain"}, "plain"),
        ({"message": "flat"}, "flat"),
        ({"detail": "told"}, "told"),
        ({"detail": [{"msg": "one"}, {"msg": "two"}]}, "one; two"),
        (
            {"error": {"message": "Provider returned error", "metadata": {"raw": "the real one"}}},
            "Provider returned error; the real one",
        ),
        (b"upstream\nconnect error", "upstream connect error"),
        (
            b"<html><head><title>502 Bad\nGateway</title></head><body>x</body></html>",
            "a page instead of JSON: 502 Bad Gateway",
        ),
        (b"<!doctype html><style>p{}</style><p>Sorry", "a page instead of JSON: Sorry"),
        (b"", "no reason given"),
        ({}, "no reason given"),
        ({"odd": 1}, '{"odd": 1}'),
        (b"\xff\xfe", "\ufffd\ufffd"),
        ([[[[[[[["deep"]]]]]]]], "deep"),
    ],
)
async def test_the_reason_is_found_wherever_it_stands(body: Any, text: str) -> None:
    assert str(await refused(502, body)) == f"openai-chat:m: 502: {text}"


async def test_long_reasons_are_cut() -> None:
    assert len(str(await refused(400, {"error": {"message": "x" * 100_000}}))) < 700


async def test_a_key_that_the_server_repeats_is_hidden() -> None:
    error = await refused(401, {"error": {"message": "Incorrect API key provided: sk-test-secret."}})
    assert "Incorrect API key provided: ***." in str(error)


async def test_a_missing_model_says_what_to_do() -> None:
    body = {"error": {"message": "model 'm' not found", "type": "not_found_error"}}
    assert str(await refused(404, body, provider="ollama")).endswith("(pull it: ollama pull m)")
    assert "check the model name and base_url" in str(await refused(404, body))


async def test_a_redirect_says_where_to() -> None:
    error = await refused(308, b"", {"location": "https://elsewhere/v1"})
    assert "redirected to https://elsewhere/v1; set base_url" in str(error)
    assert not error.retryable


@pytest.mark.parametrize("name", ["x-request-id", "request-id", "apim-request-id"])
async def test_the_id_of_the_request_is_kept(name: str) -> None:
    assert (await refused(500, {}, {name: "req_1"})).request_id == "req_1"


async def test_retry_after_is_kept() -> None:
    assert (await refused(429, {}, {"retry-after": "7"})).retry_after_seconds == 7.0
    assert (await refused(503, {}, {"retry-after": "1", "retry-after-ms": "0"})).retry_after_seconds == 1.0


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "2"}, 2.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "86400"}, 86400.0),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        *(
            ({"retry-after": odd}, None)
            for odd in ("-5", "nan", "inf", "²", "", "soon", "1_0", "1e3", "Sun, 99 Foo 2026")
        ),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}, None),
    ],
)
def test_only_sensible_waits_are_taken(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_seconds(headers) == seconds


def test_a_date_ahead_is_a_wait() -> None:
    found = retry_after_seconds({"retry-after": email.utils.formatdate(time.time() + 100, usegmt=True)})
    assert found is not None
    assert 90 < found <= 100


async def test_a_blocked_prompt_is_the_stop_refusal_and_no_error() -> None:
    body = json.dumps(
        {"error": {"code": "content_filter", "message": "The response was filtered", "status": 400}}
    ).encode()
    async with Loopback(Reply((body,), status=400, content_type="application/json", whole=True)) as server:
        (finish,) = await collect(model(server))
    assert (finish.stop, finish.raw_stop, finish.message.content) == (StopReason.REFUSAL, "content_filter", ())


async def test_a_refused_request_leaves_the_connection_usable() -> None:
    async with Loopback(Reply((b"{}",), status=503, content_type="application/json")) as server:
        asked = model(server)
        for _ in range(3):
            with pytest.raises(OverloadedError):
                await collect(asked)
        assert server.connections == 1


@pytest.mark.parametrize("start", [b"<html><title", b"<style>", b"<script "])
def test_a_page_of_megabytes_is_not_searched_for_ever(start: bytes) -> None:
    assert "a page instead of JSON" in page_summary(start * 400_000)


async def test_a_refusal_without_end_is_read_only_so_far() -> None:
    endless = (b"<html><title>Busy</title>" + b"x" * 65_536,) * 100
    async with Loopback(Reply((*endless, STALL), status=503, content_type="text/html")) as server:
        with pytest.raises(OverloadedError, match="Busy"):
            await asyncio.wait_for(collect(model(server)), BOUND)


@pytest.mark.parametrize(
    "body",
    [b"your key sk-test-secret is bad\n\n", b'data: {"x": "sk-test-secret\n\n', b"<html>sk-test-secret</html>"],
)
async def test_a_key_that_the_server_repeats_is_never_shown(body: bytes) -> None:
    kind = "text/html" if body.startswith(b"<") else "text/event-stream"
    async with Loopback(Reply((body,), content_type=kind)) as server:
        with pytest.raises(ModelError) as raised:
            await collect(model(server))
    assert "sk-test-secret" not in str(raised.value)
    async with Loopback(Reply((b"{}",), status=400, headers={"x-request-id": "sk-test-secret"})) as server:
        with pytest.raises(ModelError) as raised:
            await collect(model(server))
    assert raised.value.request_id == "***"


async def test_an_event_or_a_document_without_end_is_refused_at_a_bound() -> None:
    piece = b"x" * (8 * 1024 * 1024)
    for kind in ("text/event-stream", "application/json"):
        async with Loopback(Reply((b"data: " + piece, *[piece] * 9, STALL), content_type=kind)) as server:
            with pytest.raises(ModelResponseError, match="64 MiB"):
                await asyncio.wait_for(collect(model(server)), BOUND)
