"""Runs the calls of all clients of a server: each in a task of its own, by the rules of its tool."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from typing import TYPE_CHECKING, Any

import anyio
import msgspec
from mcp.shared.exceptions import MCPError as ProtocolError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, CallToolResult, ListToolsResult

from treadle._offers import Offers
from treadle.errors import ConfigError, ToolError, ToolInputError, first_line, text_of
from treadle.mcp._serve_progress import Narrator, Progress
from treadle.mcp._serve_wire import Offer, failure
from treadle.mcp._spec import log
from treadle.tools import RunLink, ToolContext, ToolOutput

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from treadle.tools import Tool
    from treadle.toolsets import Toolset

CANCEL_GRACE_SECONDS = 5.0


class Turns:
    """Lets up to `most` calls run at once, in the order they came, and a sequential one only by itself."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._running = 0
        self._alone = False
        self._waiting: deque[tuple[bool, asyncio.Future[None]]] = deque()

    @contextlib.asynccontextmanager
    async def turn(self, *, alone: bool) -> AsyncIterator[None]:
        ticket = (alone, asyncio.get_running_loop().create_future())
        self._waiting.append(ticket)
        self._advance()
        try:
            await ticket[1]
            yield
        finally:
            if ticket in self._waiting:
                self._waiting.remove(ticket)
            else:
                self._running -= 1
                self._alone = False
            self._advance()

    def _advance(self) -> None:
        while self._waiting:
            alone, future = self._waiting[0]
            if self._running >= (1 if alone or self._alone else self._most):
                return
            self._waiting.popleft()
            self._running += 1
            self._alone = alone
            if not future.done():
                future.set_result(None)


class Calls:
    """The handlers of `tools/list` and `tools/call`. Clients of all connections share them."""

    def __init__(
        self, tools: Sequence[Tool[..., Any]], toolsets: Sequence[Toolset], *, deps: Any, parallelism: int
    ) -> None:
        self._offers = Offers(tools, toolsets)
        self._table: dict[str, Offer] = {}
        for tool in tools:
            _ = Offer(tool).told  # raises here what is wrong with a tool
        self._deps = deps
        self._turns = Turns(parallelism)

    async def list_tools(self, _context: Any, _params: Any) -> ListToolsResult:
        return ListToolsResult(tools=[offer.told for offer in (await self._current()).values()])

    async def call_tool(self, context: Any, params: Any) -> CallToolResult:
        table = await self._current()
        offer = table.get(params.name)
        if offer is None:
            known = ", ".join(table) or "none"
            told = (f"There is no tool {params.name!r:.80}. The tools are: {known}.", *self._offers.missing)
            raise ProtocolError(INVALID_PARAMS, "\n".join(told))
        try:
            arguments = offer.tool.parse(msgspec.json.encode(params.arguments or {}).decode())
        except ToolInputError as error:
            return failure(str(error))
        async with self._turns.turn(alone=offer.tool.sequential):
            return await self._run(offer, arguments, context.session.report_progress)

    async def _current(self) -> dict[str, Offer]:
        try:
            found = await self._offers.ask()
        except Exception as error:
            log.warning("a toolset did not tell its tools: %s", first_line(error))
            raise ProtocolError(INTERNAL_ERROR, f"the tools are not to be had now: {first_line(error)}") from error
        if found is not None:
            self._table = {}
            for tool in found:
                self._add(tool)
        return self._table

    def _add(self, tool: Tool[..., Any]) -> None:
        try:
            offer = Offer(tool)
            _ = offer.told
        except ConfigError as error:
            log.warning("left out a tool of a toolset: %s", error)
        else:
            self._table.setdefault(tool.name, offer)

    async def _run(self, offer: Offer, arguments: dict[str, Any], send: Any) -> CallToolResult:
        """Waits for the tool, which cancelling the wait cancels as well."""
        progress = Progress(send)
        task = asyncio.create_task(_answer(offer.tool, arguments, self._context(offer.tool.name, progress)))
        try:
            await asyncio.wait([task])
            await progress.close()
        except BaseException:
            progress.abandon()
            await _stop(task)
            raise
        return offer.result(task.result())

    def _context(self, name: str, progress: Progress) -> ToolContext[Any]:
        narrator = Narrator(progress.tell)
        link = RunLink(lambda _usage: None, lambda: None, None, approves=False, tell=narrator.feed)
        return ToolContext(
            run_id=f"mcp_{os.urandom(8).hex()}",
            step=0,
            call_id="call_0",
            name=name,
            index=0,
            deps=self._deps,
            on_progress=progress.tell,
            run=link,
        )


async def _answer(tool: Tool[..., Any], arguments: dict[str, Any], context: ToolContext[Any]) -> Any:
    """What the tool returns; all its failures are outputs that tell of them."""
    limit = asyncio.timeout(tool.timeout_seconds)
    try:
        async with limit:
            return await tool.call(arguments, context)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return ToolOutput("The tool cancelled itself.", is_error=True)
    except TimeoutError as error:
        if limit.expired():
            text = f"The tool gave no answer within {tool.timeout_seconds:g} seconds and was stopped."
            return ToolOutput(text, is_error=True)
        return ToolOutput(_told(error), is_error=True)
    except Exception as error:  # noqa: BLE001 - whatever a tool raises is its result
        return ToolOutput(_told(error), is_error=True)


def _told(error: Exception) -> str:
    text = text_of(error)
    if isinstance(error, ToolError) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


async def _stop(task: asyncio.Task[Any]) -> None:
    """Cancels a call and lets it end in peace: the scope around it would go on cancelling whatever it awaits."""
    task.cancel()
    with anyio.CancelScope(shield=True):
        _, pending = await asyncio.wait([task], timeout=CANCEL_GRACE_SECONDS)
    if pending:
        log.warning("a tool call did not end when cancelled and was left behind")
    elif not task.cancelled():
        task.exception()  # or asyncio complains that nobody looked
