"""A web without a network: every connection goes to one loopback server, whatever address was asked for."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

import httpcore2

if TYPE_CHECKING:
    import ssl

PUBLIC = "93.184.215.14"
OTHER = "151.101.1.69"
PUBLIC_6 = "2606:2800:21f:cb07:6820:80da:af6b:8b2c"


class FakeNetwork(httpcore2.AsyncNetworkBackend):
    """Looks names up in a table and connects to `origin` only. `dialled` and `looked_up` are what it was asked for.

    A list of lists in the table is a name whose answers change. Of `unreachable` addresses nobody answers.
    """

    def __init__(self, origin: str, names: dict[str, Any] | None = None, unreachable: tuple[str, ...] = ()) -> None:
        self._port = int(origin.rpartition(":")[2])
        self._names = {"site.example": [PUBLIC], "other.example": [OTHER], **(names or {})}
        self._unreachable = unreachable
        self.dialled: list[tuple[str, int]] = []
        self.looked_up: list[str] = []
        self.tls: list[tuple[str | None, ssl.SSLContext]] = []

    async def resolve(self, host: str) -> list[str]:
        self.looked_up.append(host)
        if host not in self._names:
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        answers = self._names[host]
        if answers and isinstance(answers[0], list):
            return answers.pop(0)
        return answers

    async def connect_tcp(self, host: str, port: int, *_: Any, **__: Any) -> httpcore2.AsyncNetworkStream:
        self.dialled.append((host, port))
        if host in self._unreachable:
            raise httpcore2.ConnectError("nobody there")
        return _Plain(await httpcore2.AnyIOBackend().connect_tcp("127.0.0.1", self._port), self.tls)

    async def connect_unix_socket(self, *_: Any, **__: Any) -> httpcore2.AsyncNetworkStream:
        raise AssertionError("a socket of this machine was asked for")

    async def sleep(self, seconds: float) -> None: ...


class _Plain(httpcore2.AsyncNetworkStream):
    """A stream that stays plain and remembers how TLS would have begun."""

    def __init__(self, stream: httpcore2.AsyncNetworkStream, tls: list[Any]) -> None:
        self._stream, self._tls = stream, tls

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, *_: Any, **__: Any
    ) -> httpcore2.AsyncNetworkStream:
        self._tls.append((server_hostname, ssl_context))
        return self

    async def read(self, max_bytes: int, *_: Any, **__: Any) -> bytes:
        return await self._stream.read(max_bytes)

    async def write(self, buffer: bytes, *_: Any, **__: Any) -> None:
        await self._stream.write(buffer)

    async def aclose(self) -> None:
        await self._stream.aclose()
