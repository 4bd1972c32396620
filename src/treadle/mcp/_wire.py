"""Requests to a server, in both eras of the protocol, with answers that are taken as leniently as can be.

The SDK checks every answer against the protocol's schema and gives up the whole of it for one fault. Here a tool that
does not fit costs that tool, and a piece of content of an unknown kind is kept as JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import mcp_types as types
import msgspec
from mcp.client.session import ClientRequestContext
from mcp.shared.exceptions import MCPError as ProtocolError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp_types import methods
from mcp_types.version import KNOWN_PROTOCOL_VERSIONS, LATEST_MODERN_VERSION
from pydantic import TypeAdapter, ValidationError

from treadle.errors import first_line
from treadle.mcp._spec import MAX_TOLD, log, printable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from mcp import ClientSession
    from mcp.shared.dispatcher import ProgressFnT

    from treadle.mcp._spec import Life

MAX_PAGES = 100
_EMPTY = {"content": [], "resultType": "complete"}
_MAX_ROUNDS = 10  # of questions in one call
_STATE_ONLY_SECONDS = 0.1
_CALLED: TypeAdapter[Any] = TypeAdapter(types.CallToolResult | types.InputRequiredResult)


class Wire(JSONRPCDispatcher[Any]):
    """The SDK's dispatcher, which mends answers before the session looks at them."""

    def __init__(self, read_stream: Any, write_stream: Any, name: str) -> None:
        super().__init__(read_stream, write_stream)
        self._name = name
        self.version: str | None = None

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: Any = None, **more: Any
    ) -> dict[str, Any]:
        raw = await super().send_raw_request(method, params, opts, **more)
        version = self.version or LATEST_MODERN_VERSION
        if method == "tools/list" and isinstance(raw.get("tools"), list) and not _fits(method, version, raw):
            return {**raw, "tools": [tool for tool in raw["tools"] if self._is_tool(tool, version, raw)]}
        if method == "tools/call" and isinstance(raw.get("content"), list) and not _fits(method, version, raw):
            return _mended(raw, version)
        return raw

    def _is_tool(self, tool: Any, version: str, raw: dict[str, Any]) -> bool:
        fault = _fault("tools/list", version, {**raw, "tools": [tool]})
        if fault is not None:
            name = tool.get("name") if isinstance(tool, dict) else tool
            log.warning(
                "MCP server %s: left out the tool %.80r, which does not fit the protocol: %s", self._name, name, fault
            )
        return fault is None


def _fault(method: str, version: str, raw: dict[str, Any]) -> str | None:
    try:
        methods.validate_server_result(method, version, raw)
    except ValidationError as error:
        return told(error)
    except KeyError:
        return None  # the session will tell
    except ValueError as error:
        return first_line(error) if version in KNOWN_PROTOCOL_VERSIONS else None
    return None


def _fits(method: str, version: str, raw: dict[str, Any]) -> bool:
    return _fault(method, version, raw) is None


def _mended(raw: dict[str, Any], version: str) -> dict[str, Any]:
    """A result with everything in it that does not fit as text."""
    whole = {**raw, "content": [_block(block, version) for block in raw["content"]]}
    structured = whole.get("structuredContent")
    if structured is None or _fits("tools/call", version, {**_EMPTY, "structuredContent": structured}):
        return whole
    del whole["structuredContent"]
    return {**whole, "content": [*whole["content"], _text(structured)]}


def _block(block: Any, version: str) -> Any:
    """A piece of content as it is, or as text where the protocol does not know it."""
    return block if _fits("tools/call", version, {**_EMPTY, "content": [block]}) else _text(block)


def _text(value: Any) -> dict[str, Any]:
    return {"type": "text", "text": msgspec.json.encode(value).decode()}


def told(error: ValidationError) -> str:
    """The first fault in a line."""
    first = error.errors(include_url=False, include_input=False)[0]
    return printable(f"{'.'.join(map(str, first['loc']))}: {first['msg']}"[:MAX_TOLD])


# Requests


async def negotiate(session: ClientSession, protocol: str, life: Life, probe_seconds: float) -> None:
    """Settles the protocol's version.

    `auto` asks for the newest, and after an error, or when there is no answer for `probe_seconds`, for an older one:
    old servers refuse the question, or never answer it. Whichever answer comes first is taken.
    """
    if protocol != "auto":
        await (session.discover() if protocol == LATEST_MODERN_VERSION else session.initialize())
        return
    tries: list[asyncio.Task[Any]] = [asyncio.create_task(session.discover())]
    try:
        await asyncio.wait(tries, timeout=probe_seconds)
        if tries[0].done() and not life.usable:
            await tries[0]  # raises: there is nobody to ask again
        if not _succeeded(tries[0]):
            tries.append(asyncio.create_task(session.initialize()))
        while not any(map(_succeeded, tries)):
            pending = [attempt for attempt in tries if not attempt.done()]
            if not pending:
                await tries[-1]  # raises
            await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for attempt in tries:
            attempt.cancel()
        await asyncio.gather(*tries, return_exceptions=True)


def _succeeded(attempt: asyncio.Task[Any]) -> bool:
    return attempt.done() and not attempt.cancelled() and attempt.exception() is None


async def pages(fetch: Callable[..., Awaitable[Any]], field: str, name: str) -> list[Any]:
    """What a paged list holds. A cursor that comes again ends it, and so does a hundredth page."""
    items: list[Any] = []
    seen: set[str] = set()
    cursor: str | None = None
    while True:
        page = await fetch(params=types.PaginatedRequestParams(cursor=cursor))
        items += getattr(page, field)
        cursor = page.next_cursor
        if not cursor:
            return items
        if cursor in seen or len(seen) + 2 > MAX_PAGES:
            why = "comes round again" if cursor in seen else f"has more than {MAX_PAGES} pages"
            log.warning("MCP server %s: its list of %s %s and was cut", name, field, why)
            return items
        seen.add(cursor)


async def call_tool(session: ClientSession, name: str, arguments: dict[str, Any], progress: ProgressFnT) -> Any:
    """The `CallToolResult`. What the server asks for in between is asked by way of the session."""
    answers: Any = None
    state: str | None = None
    for _ in range(_MAX_ROUNDS):
        params = types.CallToolRequestParams(
            name=name, arguments=arguments, input_responses=answers, request_state=state
        )
        result = await _send(session, types.CallToolRequest(params=params), progress)
        if isinstance(result, types.CallToolResult):
            return result
        if result.input_requests:
            answers = {key: await _answer(session, key, asked) for key, asked in result.input_requests.items()}
        else:
            answers = None
            await asyncio.sleep(_STATE_ONLY_SECONDS)
        state = result.request_state
    raise ProtocolError(types.INTERNAL_ERROR, f"the server asked for more {_MAX_ROUNDS} times in one call")


async def _send(session: ClientSession, request: types.CallToolRequest, progress: ProgressFnT) -> Any:
    try:
        return await session.send_request(request, _CALLED, progress_callback=progress)
    except ProtocolError as error:
        if error.code != types.HEADER_MISMATCH:
            raise
    # A tool whose schema mirrors arguments into headers has changed: the session learns of it from a new list.
    with contextlib.suppress(ProtocolError, ValidationError):
        await pages(session.list_tools, "tools", "?")
    return await session.send_request(request, _CALLED, progress_callback=progress)


async def _answer(session: ClientSession, key: str, asked: Any) -> Any:
    meta = asked.params.meta if asked.params else None
    answer = await session.dispatch_input_request(
        ClientRequestContext(session=session, request_id=key, meta=meta), asked
    )
    if isinstance(answer, types.ErrorData):
        raise ProtocolError.from_error_data(answer)
    return answer
