"""What a provider says when it refuses, and which error that is. The wordings of all providers in one place."""

from __future__ import annotations

import email.utils
import json
import re
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from treadle.errors import (
    AuthenticationError,
    ContextOverflowError,
    InvalidRequestError,
    ModelError,
    ModelResponseError,
    OverloadedError,
    RateLimitError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

_REQUEST_IDS = ("x-request-id", "request-id", "apim-request-id", "x-ms-request-id", "x-amzn-requestid", "cf-ray")
_MAX_TEXT = 600  # characters of the provider's own text in an error
_MAX_READ = 8_192  # characters of a refusal that are looked at: patterns must not run over megabytes


class Refusal(NamedTuple):
    """A provider's refusal. `words` are its codes and types in lower case; `status` comes from the body if it can."""

    status: int | None
    text: str
    words: frozenset[str] = frozenset()
    request_id: str | None = None
    retry_after_seconds: float | None = None
    in_stream: bool = False


class _Kind(NamedTuple):
    error: type[ModelError]
    retryable: bool


_OVERLOADED = _Kind(OverloadedError, retryable=True)
_INVALID = _Kind(InvalidRequestError, retryable=False)
_RATE_LIMIT = _Kind(RateLimitError, retryable=True)
_NO_CREDIT = _Kind(RateLimitError, retryable=False)
_AUTHENTICATION = _Kind(AuthenticationError, retryable=False)
_OVERFLOW = _Kind(ContextOverflowError, retryable=False)
_BAD_ANSWER = _Kind(ModelResponseError, retryable=True)

_BY_STATUS = {
    401: _AUTHENTICATION,
    402: _NO_CREDIT,
    403: _AUTHENTICATION,
    408: _OVERLOADED,
    409: _OVERLOADED,
    425: _OVERLOADED,
    429: _RATE_LIMIT,
    498: _OVERLOADED,  # Groq: flex capacity exceeded
    501: _INVALID,
}

# Codes and types, the telling ones first: OpenAI, Azure, Anthropic, Google, Groq, llama.cpp, as of 2026-11.
_BY_WORD = {
    "insufficient_quota": _NO_CREDIT,
    "billing_hard_limit_reached": _NO_CREDIT,
    "billing_error": _NO_CREDIT,
    "context_length_exceeded": _OVERFLOW,
    "model_context_window_exceeded": _OVERFLOW,
    "exceed_context_size_error": _OVERFLOW,
    "tool_use_failed": _BAD_ANSWER,  # the model wrote a broken call; it may well do better next time
    "rate_limit_exceeded": _RATE_LIMIT,
    "rate_limit_error": _RATE_LIMIT,
    "ratelimitreached": _RATE_LIMIT,
    "resource_exhausted": _RATE_LIMIT,
    "invalid_api_key": _AUTHENTICATION,
    "api_key_invalid": _AUTHENTICATION,
    "authentication_error": _AUTHENTICATION,
    "permission_error": _AUTHENTICATION,
    "permission_denied": _AUTHENTICATION,
    "unauthenticated": _AUTHENTICATION,
    "overloaded_error": _OVERLOADED,
}
# Only where a status does not settle it: an error inside a stream.
_BY_STREAM_WORD = {
    "invalid_request_error": _INVALID,
    "invalid_argument": _INVALID,
    "not_found_error": _INVALID,
    "request_too_large": _OVERFLOW,
}

_OVERFLOW_TEXT = re.compile(
    r"maximum context|context length|context window|context size|max(imum)? context|context limit"
    r"|prompt (is )?too long|input (is )?too long|too many (input |prompt )?tokens|reduce the length of"
    r"|token count .{0,40}exceeds"
    r"|(exceeds?|larger than|longer than) .{0,40}(context|maximum (input|prompt|number of tok))",
    re.IGNORECASE,
)
_KEY_TEXT = re.compile(
    r"(incorrect|invalid|missing|expired|no valid) (api[ -]?key|authentication|credentials)"
    r"|api[ -]?key (is )?(not valid|invalid)",
    re.IGNORECASE,
)
_CREDIT_TEXT = re.compile(r"credit balance is too low", re.IGNORECASE)
_PARSE_TEXT = re.compile(
    r"failed to parse (input|tool|model|messages? output)|does not match the expected", re.IGNORECASE
)


def model_error(
    refusal: Refusal, *, provider: str, model: str, hint: str = "", secret: str | None = None
) -> ModelError:
    """The error of a refusal: one line that says who refused and why. `secret` never shows in it."""
    kind, retryable = _classify(refusal._replace(text=refusal.text[:_MAX_READ]))
    text, request_id = masked(refusal.text[:_MAX_READ], secret), refusal.request_id
    status = "" if refusal.status is None else f"{refusal.status}: "
    return kind(
        f"{provider}:{model}: {status}{one_line(text) or 'no reason given'}{f' ({hint})' if hint else ''}",
        provider=provider,
        model=model,
        status=refusal.status,
        request_id=None if request_id is None else masked(request_id, secret),
        retryable=retryable,
        retry_after_seconds=refusal.retry_after_seconds,
    )


def _classify(refusal: Refusal) -> _Kind:
    status, text = refusal.status, refusal.text
    for word, kind in _BY_WORD.items():
        if word in refusal.words:
            return kind
    if status in (None, 400, 413, 422, 500) and _OVERFLOW_TEXT.search(text):
        return _OVERFLOW
    if status in (None, 400) and _CREDIT_TEXT.search(text):
        return _NO_CREDIT
    if status == 400 and _KEY_TEXT.search(text):
        return _AUTHENTICATION
    if status in (None, 500) and _PARSE_TEXT.search(text):
        return _BAD_ANSWER
    if status is None:
        return next((kind for word, kind in _BY_STREAM_WORD.items() if word in refusal.words), _OVERLOADED)
    if status == 413:
        return _OVERFLOW
    return _BY_STATUS.get(status, _OVERLOADED if status >= 500 else _INVALID)


def masked(text: str, secret: str | None) -> str:
    """`text` without the key, which some servers repeat."""
    return text.replace(secret, "***") if secret else text


def one_line(text: str) -> str:
    """`text` on one line, not too long, and with nothing in it that a terminal would obey or could not show."""
    text = " ".join(text[:_MAX_READ].split())
    if not text.isprintable():
        text = "".join([char if char.isprintable() else "\ufffd" for char in text])
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}..."


# Reading refusals


def read_refusal(status: int, headers: Mapping[str, str], body: bytes) -> Refusal:
    """The refusal in an HTTP answer, whatever its body looks like."""
    try:
        value = json.loads(body.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        value = page_summary(body)
    if 300 <= status < 400:
        value = f"redirected to {headers.get('location', 'nowhere')}; set base_url to where the API really is"
    found = refusal_in(value)
    request_id = next((headers[name] for name in _REQUEST_IDS if name in headers), None)
    wait = retry_after_seconds(headers)
    return found._replace(
        status=status,
        request_id=request_id,
        retry_after_seconds=found.retry_after_seconds if wait is None else wait,
        in_stream=False,
    )


def refusal_in(value: Any) -> Refusal:
    """The refusal that a JSON value tells: an error object, what holds one, or plain text."""
    words, texts, statuses = set[str](), list[str](), list[int]()
    _collect(value, words, texts, statuses, 0)
    text = "; ".join(list(dict.fromkeys(texts))[:3]) or (
        "" if value in (None, "", {}, []) else json.dumps(value, default=str)
    )
    status = next((status for status in statuses if 100 <= status <= 599), None)
    return Refusal(status, text, frozenset(words), retry_after_seconds=_retry_delay(value), in_stream=True)


def _retry_delay(value: Any, depth: int = 0) -> float | None:
    """Google's way to say when to come back: `"retryDelay": "48s"` in the details of an error."""
    if depth > 8:
        return None
    if isinstance(value, list):
        return next((found for item in value[:10] if (found := _retry_delay(item, depth + 1)) is not None), None)
    if not isinstance(value, dict):
        return None
    delay = value.get("retryDelay")
    if isinstance(delay, str) and (found := _number(delay.removesuffix("s"))) is not None:
        return found
    return _retry_delay([value.get("error"), value.get("details")], depth + 1)


_TEXTS = ("message", "msg", "failed_generation", "raw")
_WORDS = ("code", "type", "status", "reason")
_STATUSES = ("status_code", "code", "status", "raw_status_code")
_INSIDE = ("error", "errors", "detail", "details", "innererror", "metadata")


def _collect(value: Any, words: set[str], texts: list[str], statuses: list[int], depth: int) -> None:
    """Gathers codes, texts and statuses out of the shapes that errors come in; the outermost status counts."""
    if depth > 8:
        return
    if isinstance(value, str):
        texts.append(value)
    elif isinstance(value, list):
        for item in value[:10]:
            _collect(item, words, texts, statuses, depth + 1)
    elif isinstance(value, dict):
        words |= {str(value[key]).lower() for key in _WORDS if isinstance(value.get(key), str)}
        statuses += [number for key in _STATUSES if (number := _status(value.get(key))) is not None]
        texts += [value[key] for key in _TEXTS if isinstance(value.get(key), str)]
        for key in _INSIDE:
            if value.get(key):
                _collect(value[key], words, texts, statuses, depth + 1)


def _status(value: Any) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return int(value) if isinstance(value, str) and re.fullmatch(r"[1-5]\d\d", value, re.ASCII) else None


def page_summary(body: bytes) -> str:
    """A body that is no JSON, as one line. Pages for people are cut down to their title."""
    text = body[:_MAX_READ].decode("utf-8", "replace")
    if "<" not in text[:200]:
        return one_line(text)
    title = re.search(r"<title[^>]*>(.*?)</title>", text, re.IGNORECASE | re.DOTALL)
    shown = (
        title[1] if title else re.sub(r"<(style|script).*?</\1>|<[^>]*>", " ", text, flags=re.DOTALL | re.IGNORECASE)
    )
    return f"a page instead of JSON: {one_line(shown)[:200]}"


def retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    """When to come back, from `retry-after-ms` or `retry-after` (seconds or a date). None where it makes no sense."""
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds:
        return milliseconds / 1000
    value = headers.get("retry-after")
    if value is None or (seconds := _number(value)) is not None:
        return milliseconds if value is None else seconds
    try:
        ahead = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
    except (ValueError, TypeError, OverflowError):
        return None
    return ahead if ahead > 0 else None


def _number(value: str | None) -> float | None:
    return float(value) if value is not None and re.fullmatch(r"\s*\d{1,12}(\.\d+)?\s*", value, re.ASCII) else None
