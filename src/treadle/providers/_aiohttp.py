"""aiohttp in the place of httpx2's own connections: a third of its CPU time for each piece of a stream.

Everything above it stays httpx2's: requests, redirects, authentication, unpacking. Loaded by `aiohttp_transport`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NoReturn
from urllib.request import getproxies, proxy_bypass

import aiohttp
import httpx2
from aiohttp import http_exceptions
from multidict import CIMultiDict
from yarl import URL

from treadle.errors import ConfigError
from treadle.providers._connection import IDLE_CONNECTION_SECONDS, default_tls
from treadle.providers._per_loop import PerLoop

if TYPE_CHECKING:
    import ssl

# Headers may be as long as httpx2 takes them.
_HEADER_BYTES = 65_536
# aiohttp adds these on its own where a request lacks them; httpx2 has decided already.
_DECIDED = frozenset({"accept", "accept-encoding", "content-type", "user-agent"})
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})

# What breaks, in httpx2's words. The first that fits counts.
_FAILURES: dict[type[Exception], type[httpx2.TransportError]] = {
    aiohttp.SocketTimeoutError: httpx2.ReadTimeout,
    aiohttp.ServerTimeoutError: httpx2.ConnectTimeout,
    aiohttp.ClientProxyConnectionError: httpx2.ProxyError,
    aiohttp.ClientHttpProxyError: httpx2.ProxyError,
    aiohttp.ClientConnectorError: httpx2.ConnectError,
    aiohttp.ServerFingerprintMismatch: httpx2.ConnectError,
    aiohttp.ServerDisconnectedError: httpx2.RemoteProtocolError,
    aiohttp.ClientPayloadError: httpx2.RemoteProtocolError,
    aiohttp.ClientResponseError: httpx2.RemoteProtocolError,
    http_exceptions.HttpProcessingError: httpx2.RemoteProtocolError,
    aiohttp.NonHttpUrlClientError: httpx2.UnsupportedProtocol,
    aiohttp.InvalidURL: httpx2.UnsupportedProtocol,
    aiohttp.ClientConnectionError: httpx2.ReadError,
    aiohttp.ClientError: httpx2.TransportError,
    ConnectionError: httpx2.ReadError,
    ValueError: httpx2.LocalProtocolError,
}
_FOREIGN = tuple(_FAILURES)


class AiohttpTransport(httpx2.AsyncBaseTransport):
    """One aiohttp session for each event loop that uses it. Sessions close with the transport or with their loop."""

    def __init__(self, tls: ssl.SSLContext | None, *, trust_env: bool) -> None:
        self._tls = tls
        self._sessions = PerLoop(self._new_session, lambda session: session.close())
        self._proxies = getproxies() if trust_env else {}

    def _new_session(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            ssl=self._tls or default_tls(), limit=0, keepalive_timeout=IDLE_CONNECTION_SECONDS
        )
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),  # httpx2's client has the cookies
            auto_decompress=False,
            skip_auto_headers=_DECIDED,
            max_line_size=_HEADER_BYTES,
            max_field_size=_HEADER_BYTES,
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Sends the request. The answer's body is still to come."""
        session = await self._sessions.get()
        # aiohttp knows that a server has closed an idle connection once the loop has looked at its socket. Code that
        # blocked the loop may have kept it from that; after two rounds it has looked.
        for _ in range(2):
            await asyncio.sleep(0)
        proxy = self._proxy(request.url)
        try:
            answer = await session.request(
                request.method,
                _address(request.url),
                headers=_headers(request),
                data=request.stream if _has_body(request) else None,
                allow_redirects=False,
                timeout=_timeout(request),
                server_hostname=request.extensions.get("sni_hostname"),
                proxy=proxy,
            )
        except _FOREIGN as error:
            _raise_translated(error)
        reason = (answer.reason or "").encode("ascii", "ignore")
        return httpx2.Response(
            answer.status,
            headers=list(answer.raw_headers),
            stream=_Body(answer),
            extensions={"http_version": b"HTTP/1.1", "reason_phrase": reason},
        )

    def _proxy(self, url: httpx2.URL) -> str | None:
        """The proxy that the environment names for this address. A server on this machine is behind none."""
        if not self._proxies or url.host in _LOOPBACK:
            return None
        proxy = self._proxies.get(url.scheme) or self._proxies.get("all")
        if proxy is None or proxy_bypass(url.netloc.decode("ascii")):
            return None
        scheme = proxy.partition("://")[0].lower() if "://" in proxy else ""
        if scheme not in ("", "http", "https"):
            raise ConfigError(f"aiohttp knows no {scheme} proxy: name an http one in {url.scheme.upper()}_PROXY")
        return proxy if scheme else f"http://{proxy}"

    async def aclose(self) -> None:
        """Closes the session of the running event loop."""
        await self._sessions.close()


class _Body(httpx2.AsyncByteStream):
    """The body as it arrives. An iterator and no generator: nothing of it has to be finished when it is left."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self._answer = answer
        self._read = answer.content.readany

    def __aiter__(self) -> _Body:
        return self

    async def __anext__(self) -> bytes:
        try:
            data = await self._read()
        except _FOREIGN as error:
            _raise_translated(error)
        if not data:
            raise StopAsyncIteration
        return data

    async def aclose(self) -> None:
        """Gives back the connection of a whole body; closes that of any other."""
        self._read = _nothing
        self._answer.close()


async def _nothing() -> bytes:
    return b""


def _raise_translated(error: Exception) -> NoReturn:
    kind = next(ours for theirs, ours in _FAILURES.items() if isinstance(error, theirs))
    # The whole text of a refusal would show the address, which may hold a password.
    text = error.message if isinstance(error, aiohttp.ClientResponseError) else str(error)
    raise kind(text or type(error).__name__) from error


def _address(url: httpx2.URL) -> URL:
    """The address exactly as httpx2 writes it: a signature may stand on each of its characters."""
    path, _, query = url.raw_path.decode("ascii").partition("?")
    return URL.build(
        scheme=url.scheme, authority=url.netloc.decode("ascii"), path=path, query_string=query, encoded=True
    )


def _headers(request: httpx2.Request) -> CIMultiDict[str]:
    # aiohttp does the framing of a body without a length itself.
    return CIMultiDict(
        (name.decode("ascii"), value.decode())
        for name, value in request.headers.raw
        if name.lower() != b"transfer-encoding"
    )


def _has_body(request: httpx2.Request) -> bool:
    return request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers


def _timeout(request: httpx2.Request) -> aiohttp.ClientTimeout:
    """`connect` is for looking up, reaching and greeting the server, `read` for each silence of it.

    There is no `pool`, as no connection is waited for, and `write` has no counterpart.
    """
    limits = request.extensions.get("timeout", {})
    return aiohttp.ClientTimeout(total=None, connect=limits.get("connect"), sock_read=limits.get("read"))
