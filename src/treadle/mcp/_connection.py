"""What one event loop has of a server: at most one live session, made anew when it was lost."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from treadle.errors import MCPError
from treadle.mcp._spec import SessionRefusedError, log

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from mcp.shared.dispatcher import ProgressFnT

    from treadle._guard import Waits
    from treadle.mcp._link import Link
    from treadle.mcp._spec import Spec
    from treadle.tools import Tool

    Listed = Sequence[Any]

T = TypeVar("T")

AGAIN_SECONDS = (1.0, 60.0)
"""How long a server that could not be reached is left alone: at first, and at most."""


class Connection:
    """Opened by its first user, closed by its last.

    Everybody waits for the first attempt to connect, and for the one after a session that was lost. After an attempt
    that failed, `tools` waits no more: a new attempt goes on beside the run.
    """

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self.users = 0
        self._protocol = spec.protocol
        self.warned: str | None = None  # what its tools are left out for, told already
        self.bridged: tuple[Listed, tuple[Tool[..., Any], ...]] | None = None
        self._attempt: asyncio.Task[Link] | None = None
        self._links: set[Link] = set()  # that are not left yet
        self._listed: Listed = ()
        self._failure = ""
        self._beside = False  # the attempt that goes on comes after a failed one: no run waits for it
        self._again_at = 0.0
        self._pause = AGAIN_SECONDS[0]
        self._refreshing = asyncio.Lock()

    def start(self) -> asyncio.Task[Link]:
        """The attempt that gave the session there is, or one that goes on, or a new one where it is time for that."""
        attempt = self._attempt
        if attempt is not None:
            if not attempt.done() or (not _has_failed(attempt) and attempt.result().usable):
                return attempt
            if _has_failed(attempt) and asyncio.get_running_loop().time() < self._again_at:
                return attempt
            self._beside = _has_failed(attempt)
        self._attempt = asyncio.create_task(self._connect(), name=f"mcp-{self._spec.name}-connect")
        self._attempt.add_done_callback(_has_failed)  # or asyncio complains that nobody looked
        return self._attempt

    async def link(self) -> Link:
        """The live session. Raises `MCPError`."""
        attempt = self.start()
        try:
            return await asyncio.shield(attempt)
        except MCPError as error:
            raise MCPError(str(error)) from error.__cause__  # it is told to many
        except asyncio.CancelledError:
            if attempt.cancelled():
                raise MCPError(f"MCP server {self._spec.name}: the connection was closed") from None
            raise

    async def tools(self) -> Listed:
        """The SDK's tools as of now. Raises `MCPError`; while an attempt after a failed one goes on, at once."""
        if not self.start().done() and self._beside:
            raise MCPError(self._failure)
        link = await self.link()
        async with self._refreshing:
            if link.stale:
                try:
                    self._listed = await link.tools()
                except (MCPError, SessionRefusedError) as error:
                    log.warning("%s; its tools stay as they were", error)
        return self._listed

    async def call(self, name: str, arguments: dict[str, Any], progress: ProgressFnT, waits: Waits | None) -> Any:
        """The SDK's result of a call. Raises `MCPError`. Time in which a person is asked is in `waits`."""
        return await self.request(lambda link: link.call(name, arguments, progress, waits))

    async def request(self, send: Callable[[Link], Awaitable[T]]) -> T:
        """Sends a request, and once more over a new session if the server did not take it."""
        try:
            return await send(await self.link())
        except SessionRefusedError:
            log.info("MCP server %s did not take a request; it is sent again over a new session", self._spec.name)
        try:
            return await send(await self.link())
        except SessionRefusedError as error:
            raise MCPError(f"MCP server {self._spec.name}: {error}") from error

    async def close(self) -> None:
        """Returns when the session is left and the server's process, if it was ours, is gone."""
        if self._attempt is not None:
            self._attempt.cancel()
        links = tuple(self._links)
        for link in links:  # whoever cancels the waiting cancels nothing else
            link.leave()
        await asyncio.gather(*[link.gone() for link in links])

    async def _connect(self) -> Link:
        """A session with its tools listed. The one before it is left as soon as its last call has ended."""
        from treadle.mcp._link import Link

        for old in self._links:
            old.retire()
        link = self._new(Link, self._protocol)
        try:
            try:
                await link.ready()
            except MCPError:
                if not (link.probing and link.life.over.is_set() and self._spec.transport.restartable):
                    raise
                # Some old servers end when the first message is none that they know.
                link = self._new(Link, "legacy")
                await link.ready()
                self._protocol = "legacy"
            self._listed = await link.tools()
        except BaseException as error:
            link.leave()
            if isinstance(error, MCPError | SessionRefusedError):
                raise self._failed(error) from error
            raise
        self._pause = AGAIN_SECONDS[0]
        return link

    def _new(self, kind: type[Link], protocol: str) -> Link:
        link = kind(self._spec, protocol)
        self._links.add(link)
        link.left.add_done_callback(lambda _: self._links.discard(link))
        return link

    def _failed(self, error: Exception) -> MCPError:
        failure = error if isinstance(error, MCPError) else MCPError(f"MCP server {self._spec.name}: {error}")
        self._failure = str(failure)
        self._again_at = asyncio.get_running_loop().time() + self._pause
        self._pause = min(self._pause * 2, AGAIN_SECONDS[1])
        return failure


def _has_failed(attempt: asyncio.Task[Any]) -> bool:
    return attempt.done() and (attempt.cancelled() or attempt.exception() is not None)
