"""One session with a server, entered and left by a task of its own.

The SDK's scopes must be left by the task that entered them, and runs come and go in tasks of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any

import mcp_types as types
from mcp import ClientSession
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost, listen
from mcp.shared.exceptions import MCPError as ProtocolError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

import treadle
from treadle.errors import MCPError, first_line
from treadle.mcp._elicit import answer
from treadle.mcp._spec import MAX_TOLD, REFUSED, Life, SessionRefusedError, log, printable
from treadle.mcp._wire import Wire, call_tool, negotiate, pages, told

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from mcp.shared.dispatcher import ProgressFnT

    from treadle._guard import Waits
    from treadle.mcp._spec import Spec

_GONE_SECONDS = 1.0
_LOST = ("Connection closed", "SSE stream ")  # the SDK's own words; many servers use its code for any error of theirs
_SHOWN = 500  # characters of what an error has besides its message
_LISTEN_AGAIN_SECONDS = (1.0, 60.0)

# The SDK logs a traceback for whatever a server gets wrong: for those who listen, and not at anybody's terminal.
for _name in ("mcp", "client"):
    logging.getLogger(_name).addHandler(logging.NullHandler())

_tasks: set[asyncio.Task[None]] = set()  # asyncio itself holds them weakly


class Link:
    """A session that is being opened, open, or over. `stale` says that the list of tools has changed."""

    def __init__(self, spec: Spec, protocol: str) -> None:
        self._spec = spec
        self._protocol = protocol
        self.life = Life(spec.name, spec.timeouts)
        self.stale = False
        self.probing = False  # it ended in the middle of the question for the newest protocol
        self._session: ClientSession | None = None
        self._calls = 0
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._own(), name=f"mcp-{spec.name}")
        _tasks.add(self._task)
        self._task.add_done_callback(_tasks.discard)

    @property
    def left(self) -> asyncio.Task[None]:
        """Done when the session is left and nothing of it remains."""
        return self._task

    @property
    def usable(self) -> bool:
        return self.life.usable

    @property
    def session(self) -> ClientSession:
        if self._session is None:
            raise self.life.error("it is not connected")
        return self._session

    async def ready(self) -> None:
        """Waits for the session. Raises `MCPError`."""
        seconds = self._spec.timeouts.connect
        try:
            async with self.life.limit(seconds):
                await asyncio.shield(self._ready)
        except TimeoutError:
            self._task.cancel()
            raise self.life.error(f"it did not answer within {seconds:g} seconds") from None

    def retire(self) -> None:
        """Leaves the session, unless somebody is in the middle of a request."""
        if not self._calls:
            self.life.end("the server did not take a request")

    def leave(self) -> None:
        """Leaves the session now."""
        self.life.end("the connection was closed")
        if not self._ready.done():
            self._task.cancel()

    async def gone(self) -> None:
        """Waits until the session is left and its process, if it was ours, is gone: not for ever."""
        seconds = self._spec.timeouts.close
        await asyncio.wait({self._task}, timeout=seconds + _GONE_SECONDS)
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=_GONE_SECONDS)
        if not self._task.done():
            log.warning("MCP server %s did not let go within %g seconds and was left behind", self.life.name, seconds)

    # Requests

    async def tools(self) -> list[Any]:
        """The SDK's tools, of all pages."""
        self.stale = False
        return await self.listed("tools")

    async def listed(self, what: str) -> list[Any]:
        """All `tools`, `resources` or `prompts`; none where the server says that it has none."""
        session = self.session
        if session.server_capabilities is None or getattr(session.server_capabilities, what) is None:
            return []
        seconds = self._spec.timeouts.list
        async with self._asking(f"its list of {what}", seconds):
            return await pages(getattr(session, f"list_{what}"), what, self.life.name)

    async def call(self, name: str, arguments: dict[str, Any], progress: ProgressFnT, waits: Waits | None) -> Any:
        """The SDK's result. Raises `MCPError`, or `SessionRefusedError` for a call that may be sent again.

        It is not checked against the tool's output schema: a pattern in there can keep the event loop for ever.
        """
        async with self._asking(name, self._spec.timeouts.call, waits):
            return await call_tool(self.session, name, arguments, progress)

    async def ask(self, what: str, method: str, *arguments: Any) -> Any:
        """The answer to any other request of the session's."""
        async with self._asking(what, self._spec.timeouts.call):
            return await getattr(self.session, method)(*arguments)

    @contextlib.asynccontextmanager
    async def _asking(self, what: str, seconds: float, waits: Waits | None = None) -> AsyncIterator[None]:
        """Bounds a request in time and tells its failures in our terms."""
        self._calls += 1
        try:
            async with self.life.limit(seconds, waits):
                yield
        except TimeoutError:
            raise self.life.error(f"no answer to {what} within {seconds:g} seconds") from None
        except ValidationError as error:
            raise self.life.error(f"the answer to {what} does not fit the protocol: {told(error)}") from error
        except ProtocolError as error:
            if error.code == REFUSED:
                raise SessionRefusedError(str(error)) from error
            if error.code == types.CONNECTION_CLOSED and error.message.startswith(_LOST):
                raise await self._lost(what, error) from error
            data = f" {error.data}"[:_SHOWN] if error.data else ""
            told_by_it = printable(f"{error.message[:MAX_TOLD]}{data}")
            raise MCPError(f"MCP server {self.life.name}: {told_by_it}") from error
        except MCPError:
            raise
        except Exception as error:  # the SDK's own: nothing that a server writes may break a run
            raise self.life.error(f"the answer to {what} cannot be read: {first_line(error)}") from error
        finally:
            self._calls -= 1
            if self.life.refused:
                self.retire()

    async def _lost(self, what: str, error: ProtocolError) -> MCPError:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GONE_SECONDS):
                await self.life.over.wait()
        why = self.life.fault or error.message
        return self.life.error(f"the connection was lost ({why}); whether {what} took effect is not known")

    # The owner

    async def _own(self) -> None:
        fault: str | MCPError = "the connection was closed"
        try:
            async with self._spec.transport.open(self.life) as (read, write):
                await self._serve(Wire(read, write, self.life.name))
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            fault = "the connection broke"
        except Exception as error:  # noqa: BLE001 - it is told to whoever waits
            fault = self._fault(error)
        finally:
            self.life.end(str(fault))
            if not self._ready.done():
                self._ready.set_exception(
                    fault if isinstance(fault, MCPError) else self.life.error(self.life.fault or fault)
                )
                self._ready.exception()  # nobody may wait any more

    async def _serve(self, wire: Wire) -> None:
        spec = self._spec
        async with ClientSession(
            dispatcher=wire,
            client_info=types.Implementation(name="treadle", version=treadle.__version__),
            message_handler=self._hear,
            logging_callback=self._log,
            elicitation_callback=None if spec.elicit is None else self._elicit,
        ) as session:
            self.probing = self._protocol == "auto"
            await negotiate(session, self._protocol, self.life, spec.transport.probe_seconds)
            self.probing = False
            self._session, wire.version = session, session.protocol_version
            if not self._ready.done():
                self._ready.set_result(None)
            listener = asyncio.create_task(self._listen(session))
            try:
                await self.life.over.wait()
            finally:
                listener.cancel()
                await asyncio.gather(listener, return_exceptions=True)

    def _fault(self, error: BaseException) -> str | MCPError:
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, ValidationError):
            return f"its answer does not fit the protocol: {told(error)}"
        return error if isinstance(error, MCPError) else first_line(error)

    # What the server says on its own account

    async def _hear(self, message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self.stale = True

    async def _log(self, params: types.LoggingMessageNotificationParams) -> None:
        log.debug("MCP server %s says: %.500s", self.life.name, params.data)

    async def _elicit(self, context: Any, params: Any) -> Any:  # noqa: ARG002 - the SDK's signature
        assert self._spec.elicit is not None
        return await answer(self._spec.elicit, self.life, params)

    async def _listen(self, session: ClientSession) -> None:
        """Hears of changed tools where the newest protocol is spoken; older servers tell it unasked."""
        capabilities = session.server_capabilities
        tools = None if capabilities is None else capabilities.tools
        if session.protocol_version not in MODERN_PROTOCOL_VERSIONS or tools is None or not tools.list_changed:
            return
        pause, longest = _LISTEN_AGAIN_SECONDS
        while True:
            try:
                async with listen(session, tools_list_changed=True) as changes:
                    async for _ in changes:
                        self.stale = True
            except (SubscriptionLost, ProtocolError) as error:
                log.debug("MCP server %s: hears of no changes for %g s: %s", self.life.name, pause, error)
            except ListenNotSupportedError:
                return
            await asyncio.sleep(pause)
            pause, self.stale = min(pause * 2, longest), True
