"""MCP servers as toolsets."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import math
import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from treadle.errors import ConfigError, MCPError, ToolError
from treadle.events import Effect
from treadle.mcp import _bridge
from treadle.mcp._connection import Connection
from treadle.mcp._names import Names, name_of
from treadle.mcp._spec import MAX_TOLD, Command, Endpoint, Spec, Timeouts, log
from treadle.mcp._values import Prompt, Resource, ServerInfo
from treadle.messages import FilePart, TextPart

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import TypedDict, Unpack

    from treadle.mcp._elicit import Elicit
    from treadle.mcp._spec import Transport
    from treadle.tools import Tool, ToolContext, ToolOutput

    class ServerOptions(TypedDict, total=False):
        """What the two kinds of servers have in common; see `MCPServer`."""

        allow: Iterable[str] | None
        deny: Iterable[str]
        effect: Effect | str | None
        elicit: Elicit | None
        required: bool
        protocol: str
        connect_timeout_seconds: float
        list_timeout_seconds: float
        call_timeout_seconds: float
        close_timeout_seconds: float


PROTOCOLS = ("auto", "legacy", "2026-07-28")
_MAX_PROGRESS = 1_000  # notes of one call that are passed on


class MCPServer:
    """An MCP server whose tools an agent may use: `Agent(..., toolsets=[MCPServer.stdio(...)])`.

    Made by `stdio` or `http`; nothing is started before it is needed. It is connected while somebody uses it: runs
    enter and leave it by themselves, and all runs of an event loop share one connection. `async with server:` around
    several runs keeps it between them.

    `name` appears in messages, and before a tool's name where two sources offer one. `allow` and `deny` are patterns of
    the server's own tool names. A tool that says it only reads has the effect `read`, any other one `external`;
    `effect` overrides that for servers whose word should not count. `elicit` answers the server's questions; without
    it the server is told that nobody can be asked. A server that cannot be reached costs its tools and a warning in the
    log; where it is `required`, the run fails. `protocol` is `auto`, `legacy` (up to 2025-11-25) or `2026-07-28`.
    All timeouts are finite.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        name: str,
        allow: Iterable[str] | None = None,
        deny: Iterable[str] = (),
        effect: Effect | str | None = None,
        elicit: Elicit | None = None,
        required: bool = False,
        protocol: str = "auto",
        connect_timeout_seconds: float = 30.0,
        list_timeout_seconds: float = 30.0,
        call_timeout_seconds: float = 60.0,
        close_timeout_seconds: float = 5.0,
    ) -> None:
        self.name: str = name
        self.required: bool = required
        _check(name, allow=allow, deny=deny, effect=effect, protocol=protocol)
        timeouts = Timeouts(
            connect=_seconds(name, "connect_timeout_seconds", connect_timeout_seconds),
            list=_seconds(name, "list_timeout_seconds", list_timeout_seconds),
            call=_seconds(name, "call_timeout_seconds", call_timeout_seconds),
            close=_seconds(name, "close_timeout_seconds", close_timeout_seconds),
        )
        self._spec = Spec(name, transport, timeouts, protocol, elicit)
        self._bridge = _bridge.Bridge(
            name,
            Names(),
            self._call,
            allow=None if allow is None else tuple(allow),
            deny=tuple(deny),
            effect=None if effect is None else Effect(effect),
        )
        self._connections: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Connection] = (
            weakref.WeakKeyDictionary()
        )
        self._lock = threading.Lock()  # runs on several event loops may use one server

    @classmethod
    def stdio(
        cls,
        command: str | os.PathLike[str],
        args: Sequence[str | os.PathLike[str]] = (),
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        name: str | None = None,
        **options: Unpack[ServerOptions],
    ) -> Self:
        """A server that is started as a child process, one for each event loop.

        It sees `env`, and of our own environment only what a program needs to start: no keys and no tokens. It and its
        children are ended with the connection.
        """
        command = os.fspath(command)
        if isinstance(args, str) or not all(isinstance(word, str | os.PathLike) for word in args):
            raise ConfigError(f"MCP server {command}: args is a list of strings, one for each argument")
        words = tuple(os.fspath(word) for word in args)
        transport = Command(command, words, dict(env or {}), None if cwd is None else os.fspath(cwd))
        return cls(transport, name=name_of(command, words) if name is None else name, **options)

    @classmethod
    def http(
        cls,
        url: str,
        *,
        token: str | None = None,
        auth: Any = None,
        headers: Mapping[str, str] | None = None,
        name: str | None = None,
        **options: Unpack[ServerOptions],
    ) -> Self:
        """A server at a URL, over Streamable HTTP.

        `token` is sent as a bearer token. `auth` is an `OAuth`, or an `httpx2.Auth`.
        """
        if not url.lower().startswith(("http://", "https://")):
            raise ConfigError(f"MCP server {url!r}: an address starts with http:// or https://")
        if token is not None and auth is not None:
            raise ConfigError(f"MCP server {url}: give token or auth, not both")
        sent = dict(headers or {}) | ({} if token is None else {"Authorization": f"Bearer {token}"})
        return cls(Endpoint(url, sent, auth), name=name or _host(url) or "server", **options)

    def __repr__(self) -> str:
        return f"<MCPServer {self.name}>"

    # As a toolset

    async def __aenter__(self) -> Self:
        if importlib.util.find_spec("mcp") is None:
            raise ConfigError('MCP servers need the extra "mcp": pip install "treadle[mcp]"')
        with self._lock:
            loop = asyncio.get_running_loop()
            connection = self._connections.get(loop)
            if connection is None:
                connection = self._connections[loop] = Connection(self._spec)
            connection.users += 1
        connection.start()
        return self

    async def __aexit__(self, *exc_info: Any) -> None:
        with self._lock:
            loop = asyncio.get_running_loop()
            connection = self._connections[loop]
            connection.users -= 1
            if connection.users:
                return
            del self._connections[loop]
        await connection.close()

    async def tools(self) -> tuple[Tool[..., Any], ...]:
        """The tools as of now; none, and a warning in the log, where the server cannot be reached."""
        connection = self._connection()
        try:
            listed = await connection.tools()
        except MCPError as error:
            if self.required:
                raise
            if str(error) != connection.warned:
                connection.warned = str(error)
                log.warning("%s; its tools are left out", error)
            return ()
        connection.warned = None
        if connection.bridged is None or connection.bridged[0] is not listed:
            connection.bridged = (listed, self._bridge.tools(listed))
        return connection.bridged[1]

    @property
    def missing(self) -> str | None:
        """Why its tools are left out at the moment; None where they are not."""
        connection = self._connections.get(asyncio.get_running_loop())
        return None if connection is None else connection.warned

    # For programs

    async def ready(self) -> ServerInfo:
        """Waits for the connection. Raises `MCPError`, with the last that the server wrote to its standard error."""
        session = (await self._connection().link()).session
        info = session.server_info
        name, version = ("", "") if info is None else (info.name, info.version)
        return ServerInfo(name, version, session.protocol_version or "", session.instructions)

    async def resources(self) -> tuple[Resource, ...]:
        """What the server lets read. Raises `MCPError`."""
        found = await self._connection().request(lambda link: link.listed("resources"))
        return tuple(Resource(str(each.uri), each.name, each.description, each.mime_type) for each in found)

    async def read_resource(self, uri: str) -> tuple[TextPart | FilePart, ...]:
        """The contents of a resource. Raises `MCPError`."""
        found = await self._connection().request(lambda link: link.ask(uri, "read_resource", uri))
        texts = (getattr(each, "text", None) for each in found.contents)
        return tuple(
            TextPart(text) if text is not None else _part(_bridge.resource(each))
            for each, text in zip(found.contents, texts, strict=True)
        )

    async def prompts(self) -> tuple[Prompt, ...]:
        """The prompts that the server offers. Raises `MCPError`."""
        found = await self._connection().request(lambda link: link.listed("prompts"))
        return tuple(
            Prompt(each.name, each.description, {one.name: bool(one.required) for one in each.arguments or ()})
            for each in found
        )

    async def prompt(self, name: str, /, **arguments: str) -> tuple[tuple[str, TextPart | FilePart], ...]:
        """The pieces of a prompt, each with its role: `user` or `assistant`. Raises `MCPError`."""
        found = await self._connection().request(lambda link: link.ask(name, "get_prompt", name, arguments))
        return tuple((message.role, _part(_bridge.content(message.content))) for message in found.messages)

    # Inside

    def _connection(self) -> Connection:
        connection = self._connections.get(asyncio.get_running_loop())
        if connection is None:
            raise MCPError(f"MCP server {self.name} is not open: use it inside of `async with server:`")
        return connection

    async def _call(self, name: str, arguments: dict[str, Any], context: ToolContext[Any]) -> ToolOutput:
        told = 0

        async def tell(progress: float, total: float | None, message: str | None) -> None:
            nonlocal told
            told += 1
            if told <= _MAX_PROGRESS:
                context.progress((message or "")[:MAX_TOLD], progress, total)

        try:
            waits = None if context.run is None else context.run.waits
            return _bridge.output(await self._connection().call(name, arguments, tell, waits))
        except MCPError as error:
            raise ToolError(str(error)) from error


def _host(url: str) -> str | None:
    with contextlib.suppress(ValueError):
        return urlsplit(url).hostname
    return None


def _part(shown: str | FilePart) -> TextPart | FilePart:
    return TextPart(shown) if isinstance(shown, str) else shown


def _check(name: str, *, allow: Any, deny: Any, effect: Any, protocol: str) -> None:
    if not isinstance(name, str) or not name.strip():
        raise ConfigError("the name of an MCP server is a string that is not empty")
    if isinstance(allow, str) or isinstance(deny, str):
        raise ConfigError(f"MCP server {name}: allow and deny are lists of patterns")
    if effect is not None and effect not in tuple(Effect):
        raise ConfigError(f"MCP server {name}: effect is 'read', 'write' or 'external', not {effect!r}")
    if protocol not in PROTOCOLS:
        raise ConfigError(f"MCP server {name}: protocol is one of {', '.join(PROTOCOLS)}, not {protocol!r}")


def _seconds(name: str, option: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ConfigError(f"MCP server {name}: {option} is a number of seconds above 0, not {value!r}")
    return float(value)
