"""The network as `web_fetch` may use it: public addresses, and nothing else.

Whatever is checked earlier than the connection can change before it: a name may lead somewhere else the next time it
is looked up, a redirect may lead anywhere. So a name is looked up once, here, where the connection is made; every
answer has to be public; and the connection goes to an address that was looked at. The Host header and TLS still use
the name.
"""

from __future__ import annotations

import functools
import ipaddress
import re
import socket
from typing import TYPE_CHECKING, Any

import httpcore2

from treadle._threads import run_in_thread
from treadle.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
CONNECT_SECONDS = 5.0  # for each address of a name
MAX_ADDRESSES = 4

# Of IPv6 only what is given out as global unicast can be public at all: no loopback, no link-local or unique local
# address, none with an IPv4 address inside (mapped, compatible, NAT64), no multicast.
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
# The IANA registries of special-purpose addresses (as of 2025), and two more.
_SPECIAL = tuple(
    map(
        ipaddress.ip_network,
        (
            "0.0.0.0/8",  # this host
            "10.0.0.0/8",  # private
            "100.64.0.0/10",  # carriers' own
            "127.0.0.0/8",  # loopback
            "168.63.129.16/32",  # Azure's platform service, of all places a public address
            "169.254.0.0/16",  # link-local, metadata services
            "172.16.0.0/12",  # private
            "192.0.0.0/24",  # protocol assignments
            "192.0.2.0/24",  # documentation
            "192.31.196.0/24",  # AS112
            "192.52.193.0/24",  # AMT
            "192.88.99.0/24",  # 6to4 relays
            "192.168.0.0/16",  # private
            "192.175.48.0/24",  # AS112
            "198.18.0.0/15",  # benchmarks
            "198.51.100.0/24",  # documentation
            "203.0.113.0/24",  # documentation
            "224.0.0.0/3",  # multicast, reserved, broadcast
            "2001::/23",  # protocol assignments, Teredo and ORCHID among them
            "2001:db8::/32",  # documentation
            "2002::/16",  # 6to4, which has an IPv4 address inside
            "2620:4f:8000::/48",  # AS112
            "3fff::/20",  # documentation
        ),
    )
)


def is_public(address: Address) -> bool:
    """Whether `address` is one of the public internet, and of nobody's own network."""
    if isinstance(address, ipaddress.IPv6Address) and (address not in _GLOBAL_UNICAST or address.scope_id):
        return False
    return address.is_global and not any(address in network for network in _SPECIAL)


class GuardedNetwork(httpcore2.AsyncNetworkBackend):
    """Lets `inner` connect to public addresses only; it is asked for addresses, never for names.

    Where `inner` has an `async resolve(host) -> list[str]`, that looks names up instead of the system.
    """

    def __init__(self, inner: httpcore2.AsyncNetworkBackend) -> None:
        self._inner = inner
        self._resolve: Callable[[str], Awaitable[list[str]]] = getattr(inner, "resolve", _ask_system)

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - as its seam has it
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        seconds = CONNECT_SECONDS if timeout is None else min(timeout, CONNECT_SECONDS)
        failure: Exception | None = None
        for address in await self._addresses(host):
            try:
                return await self._inner.connect_tcp(str(address), port, seconds, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
        raise failure or ToolError(f"{host} has no address")

    async def connect_unix_socket(self, *_: Any, **__: Any) -> httpcore2.AsyncNetworkStream:
        raise ToolError("web_fetch connects to the web only")

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)

    async def _addresses(self, host: str) -> list[Address]:
        literal = as_literal(host)
        found = [literal] if literal is not None else await self._look_up(host)
        if not all(is_public(address) for address in found):
            raise ToolError(f"{host} is or leads to a private or special address; web_fetch reads the public web only")
        return found[:MAX_ADDRESSES]

    async def _look_up(self, host: str) -> list[Address]:
        try:
            return [ipaddress.ip_address(answer) for answer in dict.fromkeys(await self._resolve(host))]
        except (OSError, UnicodeError):
            raise ToolError(f"no host is named {host}") from None
        except ValueError:
            raise ToolError(f"{host} has an address that cannot be read") from None


def as_literal(host: str) -> Address | None:
    """The address that `host` spells, or None for a name. Raises `ToolError` for what only looks like an address.

    As in a browser, a host whose last part is a number is an IPv4 address, in whatever spelling: `2130706433`,
    `0x7f.1`, `0177.0.0.1`. It never reaches a resolver, which would read it as well.
    """
    host = host.removesuffix(".")
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        if not re.fullmatch(r"(?:.*\.)?(?:[0-9]+|0[xX][0-9a-fA-F]*)", host):
            return None
    try:
        return ipaddress.IPv4Address(socket.inet_aton(host))
    except OSError:
        raise ToolError(f"{host} is no valid address") from None


async def _ask_system(host: str) -> list[str]:
    look_up = functools.partial(socket.getaddrinfo, host, None, type=socket.SOCK_STREAM)
    return [str(answer[4][0]) for answer in await run_in_thread(look_up)]
