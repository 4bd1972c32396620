"""A server at a URL: Streamable HTTP by the SDK, over a client whose failures cost one request and not the session."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import httpx2
import msgspec
from mcp.client.streamable_http import streamable_http_client

from treadle.errors import first_line
from treadle.mcp._spec import MAX_MESSAGE_BYTES, REFUSED, log, printable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from treadle.mcp._spec import Endpoint, Life

_INTERNAL_ERROR = -32603
_SHOWN = 300


@contextlib.asynccontextmanager
async def http(endpoint: Endpoint, life: Life) -> AsyncIterator[tuple[Any, Any]]:
    """The streams of a new connection."""
    auth = endpoint.auth
    if auth is not None and not isinstance(auth, httpx2.Auth):
        auth = auth.provider(endpoint.url, life)
    # Reading has no limit of its own: calls have theirs, and a stream of notices may be silent for hours.
    timeout = httpx2.Timeout(life.timeouts.connect, read=None)
    async with (
        Client(life, headers=dict(endpoint.headers), auth=auth, timeout=timeout) as client,
        streamable_http_client(endpoint.url, http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES) as streams,
    ):
        yield streams


class Client(httpx2.AsyncClient):
    """Answers a request that failed with an error message of the protocol.

    In the SDK's transport an exception of one request ends all others; and of an HTTP error without such a message in
    its body it tells the caller nothing.
    """

    def __init__(self, life: Life, **options: Any) -> None:
        super().__init__(**options)
        self._life = life

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """As the base class; what it raises comes as a response of status 503."""
        try:
            response = await super().send(request, **options)
            if request.method == "POST":
                response = await self._checked(request, response)
        except httpx2.HTTPError as error:
            if request.method != "POST":
                raise
            unsent = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)
            self._life.refused |= unsent
            code = REFUSED if unsent else _INTERNAL_ERROR
            what = f"{request.url.host} cannot be reached" if unsent else "the request failed"
            return _failure(request, 503, f"{what}: {_cause(error)}", code)
        except Exception as error:
            if request.method != "POST":
                raise
            fault = f"authorisation failed: {first_line(error)}"
            self._life.end(fault)
            return _failure(request, 401, fault)
        return response

    async def _checked(self, request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
        """The response, read where it is no stream, so that a connection that breaks is one request's failure."""
        if response.status_code < 400 and (response.is_redirect or not _is_json(response)):
            return response  # which the SDK reads; it follows no redirect to another host
        body = await self._body(response)
        if response.status_code < 400:
            return _rebuilt(request, response, body)
        told = _message_of(body)
        if "mcp-session-id" in request.headers and (
            response.status_code == 404 or (response.status_code == 400 and "session" in told.lower())
        ):
            self._life.refused = True
            log.info("MCP server %s does not know the session any more", self._life.name)
            return _failure(request, response.status_code, told, REFUSED)
        if _is_json(response) and _is_rpc_error(body):
            return _rebuilt(request, response, body)
        hint = " (give token= or auth=)" if response.status_code == 401 and self.auth is None else ""
        text = f"HTTP {response.status_code} {response.reason_phrase}{hint}: {told}".rstrip(": ")
        return _failure(request, response.status_code, text)

    @staticmethod
    async def _body(response: httpx2.Response) -> bytes:
        pieces, size = [], 0
        try:
            async for piece in response.aiter_bytes():
                pieces.append(piece)
                size += len(piece)
                if size > MAX_MESSAGE_BYTES:
                    raise httpx2.DecodingError(f"the answer has more than {MAX_MESSAGE_BYTES // 1024**2} MiB")
        finally:
            await response.aclose()
        return b"".join(pieces)


def _is_json(response: httpx2.Response) -> bool:
    return response.headers.get("content-type", "").lower().startswith("application/json")


def _is_rpc_error(body: bytes) -> bool:
    with contextlib.suppress(msgspec.MsgspecError):
        value = msgspec.json.decode(body)
        return isinstance(value, dict) and value.get("jsonrpc") == "2.0" and isinstance(value.get("error"), dict)
    return False


def _message_of(body: bytes) -> str:
    with contextlib.suppress(msgspec.MsgspecError):
        value = msgspec.json.decode(body)
        error = value.get("error") if isinstance(value, dict) else None
        if isinstance(error, dict) and isinstance(error.get("message"), str):
            return printable(error["message"][:_SHOWN])
    return printable(body[:_SHOWN].decode(errors="replace")).strip()


def _cause(error: Exception) -> str:
    return first_line(error) if str(error) else type(error).__name__


def _rebuilt(request: httpx2.Request, response: httpx2.Response, body: bytes) -> httpx2.Response:
    headers = [pair for pair in response.headers.multi_items() if pair[0] not in ("content-encoding", "content-length")]
    return httpx2.Response(response.status_code, headers=headers, content=body, request=request)


def _failure(request: httpx2.Request, status: int, text: str, code: int = _INTERNAL_ERROR) -> httpx2.Response:
    error = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": text}}
    return httpx2.Response(status, json=error, request=request)
