"""OAuth for servers at a URL: the SDK's flow, with tokens that outlive the process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import tempfile
import time
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Any

from treadle.errors import ConfigError, MCPError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from treadle.mcp._spec import Life

_CALLBACK_SECONDS = 300.0
_MAX_REQUEST = 16 * 1024
_PAGE = b"<!doctype html><title>Treadle</title><p>Done. You can close this page."


def default_store() -> Path:
    """Where tokens are kept: `treadle/mcp-tokens.json` in the user's state folder."""
    folder = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(folder) / "treadle" / "mcp-tokens.json"


class OAuth:
    """Authorisation by the person in front of the program: `MCPServer.http(url, auth=OAuth())`.

    The first connection opens a browser at `open_url` and waits at a port of this machine for it to come back; tokens
    and the client's registration are then kept in `store`, a file that only the user can read, and refreshed by
    themselves. `port` 0 takes any free one; a client that was registered by hand (`client_id`, `client_secret`) names
    the port it was registered with. A `client_metadata_url` serves instead of a registration where the server takes it.
    Time that the person takes counts for no timeout but `wait_seconds`.
    """

    def __init__(
        self,
        *,
        store: str | os.PathLike[str] | None = None,
        scopes: Sequence[str] = (),
        client_id: str | None = None,
        client_secret: str | None = None,
        client_metadata_url: str | None = None,
        client_name: str = "Treadle",
        port: int = 0,
        open_url: Callable[[str], object | Awaitable[object]] = webbrowser.open,
        wait_seconds: float = _CALLBACK_SECONDS,
    ) -> None:
        if isinstance(scopes, str):
            raise ConfigError("OAuth: scopes is a list of strings")
        if client_secret is not None and client_id is None:
            raise ConfigError("OAuth: a client_secret goes with a client_id")
        self.store: Path = default_store() if store is None else Path(store)
        self.scopes: tuple[str, ...] = tuple(scopes)
        self.client_id: str | None = client_id
        self.client_secret: str | None = client_secret
        self.client_metadata_url: str | None = client_metadata_url
        self.client_name: str = client_name
        self.port: int = port
        self.open_url: Callable[[str], object | Awaitable[object]] = open_url
        self.wait_seconds: float = wait_seconds

    def __repr__(self) -> str:
        return f"<OAuth {self.store}>"

    def provider(self, url: str, life: Life) -> Any:
        """The `httpx2.Auth` of one connection."""
        from treadle.mcp._oauth_flow import Flow

        return Flow(self, url, life)


class TokenFile:
    """What is known of each server, by its URL, in one JSON file of mode 0600. Written whole or not at all."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, url: str) -> dict[str, Any]:
        found = self._all().get(url)
        return found if isinstance(found, dict) else {}

    def update(self, url: str, **values: Any) -> None:
        """Sets fields of a server's entry; None takes one out."""
        with self._locked():
            entries = self._all()
            entry = {**entries.get(url, {}), **values}
            entries[url] = {key: value for key, value in entry.items() if value is not None}
            self._write(entries)

    def _all(self) -> dict[str, Any]:
        try:
            found = json.loads(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise MCPError(f"the stored tokens in {self._path} cannot be read: {error}") from error
        return found if isinstance(found, dict) else {}

    def _write(self, entries: dict[str, Any]) -> None:
        handle, name = tempfile.mkstemp(dir=self._path.parent, prefix=f".{self._path.name}.")  # of mode 0600
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(entries, file, indent=1)
            Path(name).replace(self._path)
        except BaseException:
            Path(name).unlink()
            raise

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """One writer at a time, also of several processes, where the system has such locks."""
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            import fcntl
        except ImportError:
            yield
            return
        with open(self._path.with_name(f".{self._path.name}.lock"), "a", opener=_private) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def expires_at(seconds: float | None) -> float | None:
    """The moment at which a token ends: what is stored must hold in a later process."""
    return None if seconds is None else time.time() + seconds


class Callback:
    """A loopback server for the one request with which the browser comes back."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._query: asyncio.Future[str] | None = None
        self._server: asyncio.Server | None = None

    async def start(self) -> int:
        """Listens. Returns the port."""
        self._query = asyncio.get_running_loop().create_future()
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", self._port, limit=_MAX_REQUEST)
        return int(self._server.sockets[0].getsockname()[1])

    async def query(self, seconds: float) -> str:
        """The query of the request. Raises `TimeoutError`."""
        assert self._query is not None
        async with asyncio.timeout(seconds):
            return await self._query

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        if self._query is not None:
            self._query.cancel()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert self._query is not None
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            target = head.split(b" ", 2)[1].decode("ascii", "replace")
            path, _, query = target.partition("?")
            found = path == "/callback" and not self._query.done()
            status = b"200 OK" if found else b"404 Not Found"
            writer.write(b"HTTP/1.1 " + status + b"\r\ncontent-type: text/html\r\nconnection: close\r\n\r\n")
            writer.write(_PAGE if found else b"")
            await writer.drain()
            if found:
                self._query.set_result(query)
        except (OSError, ValueError, IndexError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return
        finally:
            writer.close()
