"""A server over Streamable HTTP, and who may talk to it."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import ipaddress
import re
import socket
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import uvicorn
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from treadle.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping

    from mcp.server.lowlevel.server import Server

    Message = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]
    App = Callable[[Message, Receive, Send], Awaitable[None]]

PATH = "/mcp"
MAX_BODY_BYTES = 4 * 1024 * 1024
BODY_SECONDS = 30.0
GRACE_SECONDS = 2
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_HOST = re.compile(r"(?:\[([0-9a-fA-F:.]+)\]|([A-Za-z0-9._-]+))(?::\d{1,5})?")


async def serve_http(
    server: Server[Any],
    *,
    host: str,
    port: int,
    hosts: Iterable[str],
    token: str | None,
    on_ready: Callable[[str], object] | None,
) -> None:
    """Serves until it is cancelled."""
    manager = StreamableHTTPSessionManager(app=server, max_request_body_size=MAX_BODY_BYTES)
    guard = Guard(manager.handle_request, names(host, hosts), by_address=not is_loopback(host), token=token)
    config = uvicorn.Config(
        guard,
        lifespan="off",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    http = _Uvicorn(config)
    with _listening(host, port) as listening:
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(http.end)  # last: open streams end with the manager
            await stack.enter_async_context(manager.run())
            http.start(listening)
            if on_ready is not None:
                on_ready(f"http://{_shown(host)}:{listening.getsockname()[1]}{PATH}")
            await http.ended()


class _Uvicorn(uvicorn.Server):
    """Runs in a task, and leaves signals to the program that it is a part of."""

    _task: asyncio.Task[None] | None = None

    def start(self, listening: socket.socket) -> None:
        self._task = asyncio.create_task(self.serve(sockets=[listening]))

    async def ended(self) -> None:
        """Waits; a cancelled wait makes it end."""
        assert self._task is not None
        try:
            await asyncio.shield(self._task)
        finally:
            self.should_exit = True

    async def end(self) -> None:
        self.should_exit = True
        if self._task is not None:
            await self._task

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Guard:
    """Lets through what is meant for us: the right path, host, origin, token and kind of content.

    `names` are the host names we answer to. A page whose name was pointed at our address, or any other page, shows by
    `Host` or `Origin`; no header lets pages read across origins. `by_address` takes any address as a host: one that
    was typed in as numbers was not redirected by a name server.
    """

    def __init__(
        self,
        app: App,
        names: frozenset[str],
        *,
        by_address: bool,
        token: str | None,
        body_seconds: float = BODY_SECONDS,
    ) -> None:
        self._app = app
        self._body_seconds = body_seconds
        self._names = names
        self._by_address = by_address
        self._token = None if token is None else token.encode()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        refusal = self._refusal(scope)
        if refusal is None:
            try:
                await self._app(scope, _bounded(receive, self._body_seconds), send)
            except _TooSlowError:
                refusal = 408, "The request took too long to come.", {"connection": "close"}
        if refusal is not None:
            await _answer(send, *refusal)

    def _refusal(self, scope: Message) -> tuple[int, str, dict[str, str]] | None:
        def header(name: bytes) -> list[str]:
            return [value.decode("latin-1") for key, value in scope["headers"] if key == name]

        hosts = header(b"host")
        if len(hosts) != 1 or not self._is_ours(hosts[0]):
            return 403, "This server does not answer to that Host.", {}
        if not all(map(self._may_come_from, header(b"origin"))):
            return 403, "Requests of that Origin are not taken.", {}
        if self._token is not None and not self._has_token(header(b"authorization")):
            return 401, "A bearer token is needed.", {"www-authenticate": "Bearer"}
        if scope["path"].removesuffix("/") != PATH:
            return 404, f"The address ends with {PATH}.", {}
        if scope["method"] not in ("GET", "POST", "DELETE"):
            return 405, "There is POST, GET and DELETE.", {"allow": "POST, GET, DELETE"}
        if scope["method"] == "POST" and not all(map(_is_json, header(b"content-type") or [""])):
            return 415, "The content type is application/json.", {}
        return None

    def _is_ours(self, host: str) -> bool:
        found = _HOST.fullmatch(host)
        if found is None:
            return False
        name = (found[1] or found[2]).lower()
        return name in self._names or (self._by_address and _is_address(name))

    def _may_come_from(self, origin: str) -> bool:
        try:
            parts = urlsplit(origin)
            return parts.scheme in ("http", "https") and (parts.hostname or "") in self._names
        except ValueError:
            return False

    def _has_token(self, given: list[str]) -> bool:
        assert self._token is not None
        kind, _, token = (given[0] if len(given) == 1 else "").partition(" ")
        return hmac.compare_digest(token.strip().encode("latin-1"), self._token) and kind.lower() == "bearer"


class _TooSlowError(Exception):
    pass


async def _answer(send: Send, status: int, text: str, headers: dict[str, str]) -> None:
    body = text.encode()
    headers = {"content-type": "text/plain", "content-length": str(len(body)), **headers}
    sent = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": sent})
    await send({"type": "http.response.body", "body": body})


def names(host: str, hosts: Iterable[str]) -> frozenset[str]:
    """The names a server answers to, in small letters and without brackets."""
    bound = set() if _is_address(host) and ipaddress.ip_address(host).is_unspecified else {host.lower()}
    return LOOPBACK | bound | {name.lower().strip("[]") for name in hosts}


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    return host.lower() == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_json(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() == "application/json"


def _bounded(receive: Receive, seconds: float) -> Receive:
    """`receive` that raises `_TooSlowError` where a request's body does not come to its end in time."""
    deadline = asyncio.get_running_loop().time() + seconds
    whole = False

    async def receive_in_time() -> Message:
        nonlocal whole
        if whole:
            return await receive()
        try:
            async with asyncio.timeout_at(deadline):
                message = await receive()
        except TimeoutError:
            raise _TooSlowError from None
        whole = not message.get("more_body", False)
        return message

    return receive_in_time


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise ConfigError(f"cannot listen on {_shown(host)}:{port}: {error.strerror or error}") from error


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host
