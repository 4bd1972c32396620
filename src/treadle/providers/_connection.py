"""The way to a provider and back: one pool per event loop, the bytes of an answer, what can break.

Every adapter goes through here. `httpx2` is imported with the first request, never before.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
from typing import TYPE_CHECKING, Any, Self

from treadle.errors import (
    ModelConnectionError,
    ModelError,
    ModelRequestsDenied,
    ModelResponseError,
    StreamIdleError,
)
from treadle.model import interceptor
from treadle.providers._errors import Refusal, one_line, read_refusal
from treadle.providers._event_stream import MAX_EVENT_BYTES, OversizedAnswer, collect
from treadle.providers._per_loop import PerLoop

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Callable, Mapping
    from types import TracebackType

    import httpx2

CONNECT_SECONDS = 10.0
# httpx2 looks at every idle connection when a request begins or ends: few idle ones keep that cheap.
IDLE_CONNECTIONS = 32
IDLE_CONNECTION_SECONDS = 60.0
# How long the end of a body may take once its last event is in. A connection whose body ended can be used again.
END_OF_BODY_SECONDS = 0.05
# A refusal may be an endless page: how much of it is read, and how long.
REFUSAL_BYTES = 262_144
REFUSAL_SECONDS = 10.0
_SIGNATURES = ("authorization", "x-amz-security-token")


# The pool


async def shared_client() -> httpx2.AsyncClient:
    """The pool of the running loop. It closes itself with the loop."""
    return await _clients.get()


def _new_client() -> httpx2.AsyncClient:
    from http.cookiejar import CookieJar, DefaultCookiePolicy

    import httpx2

    return httpx2.AsyncClient(
        verify=default_tls(),
        limits=httpx2.Limits(
            max_connections=None,
            max_keepalive_connections=IDLE_CONNECTIONS,
            keepalive_expiry=IDLE_CONNECTION_SECONDS,
        ),
        timeout=httpx2.Timeout(None, connect=CONNECT_SECONDS),
        # A server on this machine is not behind the proxy that the environment names.
        mounts=dict.fromkeys(("all://127.0.0.1", "all://localhost", "all://[::1]")),
        # Models with different keys share the pool, so no cookie of one may reach another.
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
    )


_clients: PerLoop[httpx2.AsyncClient] = PerLoop(_new_client, lambda client: client.aclose())


@functools.cache
def default_tls() -> ssl.SSLContext:
    """Reading the certificates costs 15 ms, so every loop's pool shares them."""
    import httpx2

    return httpx2.create_ssl_context()


# One endpoint


class Connection:
    """Sends one model's requests and translates what goes wrong.

    `headers` is called with the first request and raises where a key is missing. `refused` makes the error of an
    answer with a status of 300 and above. `auth` signs each request, instead of the client's own.
    """

    def __init__(
        self,
        *,
        provider: str,
        model: str,
        headers: Callable[[], dict[str, str]],
        refused: Callable[[Refusal], ModelError],
        client: httpx2.AsyncClient | None = None,
        idle_timeout_seconds: float = 120.0,
        auth: httpx2.Auth | None = None,
    ) -> None:
        self._provider, self._model = provider, model
        self._make_headers = headers
        self._headers: dict[str, str] | None = None
        self._refused = refused
        self._client = client
        self._signed: dict[str, Any] = {} if auth is None else {"auth": auth}
        self._sent: Mapping[str, str] = {}
        self._idle_seconds = idle_timeout_seconds
        self._urls: dict[str, httpx2.URL] = {}

    def sign_with(self, auth: httpx2.Auth) -> None:
        """Lets `auth` sign each request from now on."""
        self._signed = {"auth": auth}

    def secrets(self) -> list[str]:
        """What the last request was signed with. Some servers repeat it in what they refuse."""
        found = [self._sent.get(name, "") for name in _SIGNATURES]
        return [secret for value in found if len(secret := value.partition(" ")[2] or value) > 7]

    async def post(self, url: str, body: bytes, extra_headers: Mapping[str, str] | None = None) -> Answer:
        """The beginning of an answer with a status below 300. Raises `ModelError` for every failure.

        Whoever gets the answer closes it.
        """
        check_allowed()
        headers = self._headers = self._headers if self._headers is not None else self._make_headers()
        client = self._client if self._client is not None else await shared_client()
        try:
            request = self._request(client, url, body, _merged(headers, extra_headers))
            try:
                answer = Answer(await client.send(request, stream=True, **self._signed))
            finally:  # sent or not: by now it is signed
                self._sent = request.headers
                if (listener := interceptor.get()) is not None:
                    listener.sent(str(request.url), request.headers)
            if answer.status < 300:
                return answer
            raise self._refused(await _refusal(answer))
        except ModelError as error:  # what signs does not know for whom
            error.provider, error.model = error.provider or self._provider, error.model or self._model
            raise
        except Exception as error:
            if (failure := self.failure(error)) is None:
                raise
            raise failure from error

    def _request(self, client: httpx2.AsyncClient, url: str, body: bytes, headers: Mapping[str, str]) -> httpx2.Request:
        if url not in self._urls:
            import httpx2

            self._urls[url] = httpx2.URL(url)
        timeout = {**client.timeout.as_dict(), "read": self._idle_seconds}
        return client.build_request(
            "POST", self._urls[url], content=body, headers=headers, extensions={"timeout": timeout}
        )

    def failure(self, error: BaseException) -> ModelError | None:
        """`error` of the network as ours, or None for anything else."""
        for kind, (ours, why, retryable) in _failures().items():
            if isinstance(error, kind):
                detail = one_line(str(error)) or type(error).__name__
                text = why.format(idle=self._idle_seconds, connect=CONNECT_SECONDS, detail=detail, place=_place(error))
                return ours(
                    f"{self._provider}:{self._model}: {text}",
                    provider=self._provider,
                    model=self._model,
                    retryable=retryable,
                )
        return None


def _place(error: BaseException) -> str:
    """Where a request went: the server alone, since an address may hold secrets."""
    try:
        url: httpx2.URL = error.request.url  # type: ignore[attr-defined]
    except (AttributeError, RuntimeError):  # an error of no request
        return ""
    return f" to {url.host}" + (f":{url.port}" if url.port is not None else "")


def _merged(headers: Mapping[str, str], extra: Mapping[str, str] | None) -> Mapping[str, str]:
    """The caller's headers win, however they are spelled."""
    if not extra:
        return headers
    theirs = {name.lower() for name in extra}
    return {**{name: value for name, value in headers.items() if name.lower() not in theirs}, **extra}


@functools.cache
def _failures() -> dict[type[BaseException], tuple[type[ModelError], str, bool]]:
    """The one table of what breaks on the way. The first that fits counts."""
    import httpx2

    broke = "the connection broke before the answer's end ({detail})"
    return {
        httpx2.ReadTimeout: (StreamIdleError, "nothing came for {idle:g} seconds", True),
        httpx2.ConnectTimeout: (ModelConnectionError, "no connection{place} within {connect:g} seconds", True),
        httpx2.TimeoutException: (ModelConnectionError, "the request could not be sent in time", True),
        httpx2.ConnectError: (
            ModelConnectionError,
            "cannot connect{place} ({detail}); is base_url right, and is it up?",
            True,
        ),
        httpx2.ProxyError: (ModelConnectionError, "the proxy refused ({detail})", True),
        httpx2.InvalidURL: (ModelConnectionError, "cannot use this base_url ({detail})", False),
        httpx2.UnsupportedProtocol: (ModelConnectionError, "cannot use this base_url ({detail})", False),
        httpx2.LocalProtocolError: (ModelConnectionError, "the request is not valid HTTP ({detail})", False),
        httpx2.DecodingError: (ModelResponseError, "the answer cannot be unpacked ({detail})", True),
        OversizedAnswer: (ModelResponseError, f"one event is larger than {MAX_EVENT_BYTES >> 20} MiB", False),
        httpx2.HTTPError: (ModelConnectionError, broke, True),
        httpx2.StreamError: (ModelConnectionError, broke, True),
        OSError: (ModelConnectionError, broke, True),
        RecursionError: (ModelResponseError, "the answer is nested too deeply", False),
    }


def check_allowed() -> None:
    """Raises `ModelRequestsDenied` where `TREADLE_MODEL_REQUESTS=deny` is set."""
    if os.environ.get("TREADLE_MODEL_REQUESTS", "").strip().lower() == "deny":
        raise ModelRequestsDenied("model requests are switched off: TREADLE_MODEL_REQUESTS=deny is set")


class Answer:
    """An answer whose body is still to come. `chunks` are its bytes as they arrive, unpacked."""

    def __init__(self, response: httpx2.Response) -> None:
        self._response = response
        self.status: int = response.status_code
        self.headers: Mapping[str, str] = response.headers
        self.content_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        self.chunks: AsyncIterator[bytes]
        if "content-encoding" in response.headers or response.is_stream_consumed:
            self.chunks = response.aiter_bytes()
        else:
            self.chunks = aiter(response.stream)  # type: ignore[arg-type]  # an AsyncClient's stream is asynchronous

    async def read(self) -> bytes:
        """The whole body. Raises `OversizedAnswer` for one that is no plain answer any more."""
        body = bytearray()
        async for chunk in self.chunks:
            collect(body, chunk)
        return bytes(body)

    async def finish(self) -> None:
        """Reads the end of a body whose content is all in, so that the connection can be used again."""
        await self._run_out(END_OF_BODY_SECONDS)
        await self._response.aclose()

    async def close(self) -> None:
        """Ends the answer where it is; at once, and with nothing left behind.

        The byte iterators in httpx2 are nested generators. Closed from outside they would leave their inner ones to
        the garbage collector, which starts a task for each; read against the closed connection they end by themselves.
        """
        await self._response.aclose()
        await self._run_out(END_OF_BODY_SECONDS)

    async def _run_out(self, seconds: float) -> None:
        with contextlib.suppress(Exception):
            async with asyncio.timeout(seconds):
                async for _ in self.chunks:
                    pass

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


async def _refusal(answer: Answer) -> Refusal:
    body = bytearray()
    async with answer:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REFUSAL_SECONDS):
                async for chunk in answer.chunks:
                    body += chunk
                    if len(body) >= REFUSAL_BYTES:
                        break
                else:
                    await answer.finish()
    return read_refusal(answer.status, answer.headers, bytes(body[:REFUSAL_BYTES]))
