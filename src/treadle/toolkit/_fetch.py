"""One page from the web, by way of the guarded network. Imports the HTTP client, so it is imported late itself."""

from __future__ import annotations

import functools
import re
from contextlib import aclosing
from typing import TYPE_CHECKING, cast

import httpcore2
import httpx2
import msgspec

from treadle.errors import ToolError
from treadle.toolkit._guard import GuardedNetwork

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator

MAX_REDIRECTS = 5
MAX_URL = 8192
_REDIRECTS = (301, 302, 303, 307, 308)
_HEADERS = {
    "accept": "text/markdown, text/html;q=0.9, application/xhtml+xml;q=0.9, text/*;q=0.8, */*;q=0.5",
    "accept-encoding": "gzip, deflate",
    "user-agent": "treadle",
}
# Several codings over one another could be unpacked for hours without a byte of output.
_CODINGS = ("", "identity", "gzip", "deflate")
_HOST = re.compile(r"[A-Za-z0-9_.-]{1,253}|[0-9A-Fa-f:.]{2,45}")


class Answer(msgspec.Struct, frozen=True):
    """What came from `url`, after redirects. `cut`: there was more than `data`."""

    url: str
    content_type: str
    data: bytes
    cut: bool


async def fetch(url: str, network: httpcore2.AsyncNetworkBackend | None, max_bytes: int) -> Answer:
    """The first `max_bytes` of what is at `url`, unpacked. Raises `ToolError` with the reason where nothing is."""
    target = read_url(url)
    system = cast("httpcore2.AsyncNetworkBackend", httpcore2.AnyIOBackend())  # an alias that checkers do not follow
    guarded = GuardedNetwork(network if network is not None else system)
    pool = httpcore2.AsyncConnectionPool(ssl_context=_tls(), network_backend=guarded)
    try:
        async with pool:
            for _ in range(MAX_REDIRECTS + 1):
                found = await _one(pool, target, max_bytes)
                if isinstance(found, Answer):
                    return found
                target = found
    except (httpcore2.NetworkError, httpcore2.TimeoutException, httpcore2.ProtocolError, OSError) as error:
        raise ToolError(f"{_origin(target)}: {_reason(error)}") from error
    except (httpx2.HTTPError, httpx2.StreamError) as error:
        raise ToolError(f"{_origin(target)} sent an answer that cannot be read: {_detail(error)}") from error
    raise ToolError(f"{shown(url)} was redirected more than {MAX_REDIRECTS} times")


def read_url(text: str) -> httpx2.URL:
    """`text` as an address that may be asked for; whether its host is public is seen when connecting."""
    try:
        if len(text) > MAX_URL:
            raise ToolError(f"the url is longer than {MAX_URL} characters")
        url = httpx2.URL(text.strip())
    except (httpx2.InvalidURL, UnicodeError) as error:
        raise ToolError(f"{shown(text)} is no valid url: {_detail(error)}") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise ToolError(f"{shown(text)} cannot be fetched: a url begins with https:// or http:// and a host")
    if url.userinfo:
        raise ToolError("web_fetch sends no user names or passwords: leave out what stands before the @")
    if not _HOST.fullmatch(url.raw_host.decode("ascii")) or not (url.port is None or 0 < url.port < 65536):
        raise ToolError(f"{shown(text)} has a host or port that cannot be")
    return url


async def _one(pool: httpcore2.AsyncConnectionPool, url: httpx2.URL, max_bytes: int) -> Answer | httpx2.URL:
    """One request: the answer, or where it is redirected to."""
    # Nothing but this request: no client, and so no cookies, credentials, proxies or netrc of the environment.
    ours = httpx2.Request("GET", url, headers=_HEADERS)
    asked = httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
    theirs = await pool.handle_async_request(httpcore2.Request("GET", asked, headers=ours.headers.raw))
    answer = httpx2.Response(theirs.status, headers=theirs.headers, stream=_Body(theirs), request=ours)
    try:
        if answer.status_code in _REDIRECTS and "location" in answer.headers:
            return _next(url, answer.headers["location"])
        if answer.status_code != 200:
            raise ToolError(f"{shown(str(url))} answered {answer.status_code} {answer.reason_phrase}".rstrip())
        if answer.headers.get("content-encoding", "").strip().lower() not in _CODINGS:
            raise ToolError(f"{shown(str(url))} is packed in a way that was not asked for")
        data, cut = await _read(answer, max_bytes)
        return Answer(str(url), answer.headers.get("content-type", ""), data, cut)
    finally:
        await answer.aclose()


def _next(url: httpx2.URL, location: str) -> httpx2.URL:
    try:
        return read_url(str(url.join(location)))
    except (ToolError, httpx2.InvalidURL, UnicodeError, ValueError) as error:
        raise ToolError(f"{shown(str(url))} redirects to where web_fetch does not follow: {_detail(error)}") from None


async def _read(answer: httpx2.Response, max_bytes: int) -> tuple[bytes, bool]:
    data = bytearray()
    async with aclosing(answer.aiter_bytes()) as chunks:  # at most a megabyte each, however much was packed into it
        async for chunk in chunks:
            data += chunk
            if len(data) > max_bytes:
                return bytes(data[:max_bytes]), True
    return bytes(data), False


class _Body(httpx2.AsyncByteStream):
    def __init__(self, answer: httpcore2.Response) -> None:
        self._answer = answer

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._answer.aiter_stream():
            yield piece

    async def aclose(self) -> None:
        await self._answer.aclose()


@functools.cache
def _tls() -> ssl.SSLContext:
    """Reading the certificates costs 15 ms."""
    return httpx2.create_ssl_context()


def _reason(error: Exception) -> str:
    if isinstance(error, httpcore2.ConnectTimeout):
        return "no connection in time"
    if isinstance(error, httpcore2.ConnectError):
        return f"cannot connect ({_detail(error)})"
    return f"the connection broke ({_detail(error)})"


def _detail(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


def _origin(url: httpx2.URL) -> str:
    return shown(f"{url.scheme}://{url.netloc.decode('ascii')}")


def shown(url: str) -> str:
    """`url` in one line of bearable length."""
    text = "".join(char if char.isprintable() else "?" for char in url.strip())
    return text if len(text) <= 300 else f"{text[:300]}..."
