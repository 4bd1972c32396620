"""The two wrap points of an agent: around each request to the model, and around each local tool call.

A wrap is `async def wrap(request, call_next)`: it may look at the request, replace it, answer in its stead, or look at
what `call_next(request)` gives. The first wrap is the outermost one. Approval and hooks are built on the same point.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import msgspec

from treadle._results import render
from treadle.model import close, close_stream
from treadle.tools import Tool, ToolContext

if TYPE_CHECKING:
    from treadle.events import Effect, ModelEvent
    from treadle.model import ModelRequest
    from treadle.tools import ToolOutput


class ToolRequest(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One local call on its way to its tool. Read-only: `replace` it.

    `args` is JSON text that the tool takes; the transcript keeps what the model wrote. `denied` says that a call of
    this tool was denied before in this run.
    """

    call_id: str
    index: int
    name: str
    args: str
    tool: Tool[..., Any]
    context: ToolContext[Any]
    denied: bool = False

    @property
    def effect(self) -> Effect:
        """What the tool says that it does."""
        return self.tool.effect

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments as the tool gets them, with their types and defaults. Raises `ToolInputError`."""
        return self.tool.parse(self.args)

    def replace(self, *, args: str | Mapping[str, Any]) -> ToolRequest:
        """The same call with other arguments: JSON text or what becomes it."""
        text = args if isinstance(args, str) else msgspec.json.encode(args).decode()
        return msgspec.structs.replace(self, args=text)


ModelNext: TypeAlias = Callable[["ModelRequest"], "ModelAnswer"]
ToolNext: TypeAlias = Callable[[ToolRequest], Awaitable["ToolOutput"]]
WrapModel: TypeAlias = Callable[
    ["ModelRequest", ModelNext], "AsyncIterator[ModelEvent] | Awaitable[AsyncIterator[ModelEvent]]"
]
WrapTool: TypeAlias = Callable[[ToolRequest, ToolNext], Awaitable[Any]]


class ModelAnswer:
    """The answer to a request, still to come: iterate over its events. Awaiting it sends nothing and gives it back, so
    that a wrap which only changes the request may `return await call_next(request)`.
    """

    def __init__(self, stream: AsyncIterator[ModelEvent]) -> None:
        self._stream = stream

    def __aiter__(self) -> AsyncIterator[ModelEvent]:
        return aiter(self._stream)

    def __await__(self) -> Generator[Any, None, Self]:
        return self
        yield

    async def aclose(self) -> None:
        """Ends the answer where it is."""
        await close(self._stream)


def wrapped_model(
    wraps: Sequence[WrapModel], stream: Callable[[ModelRequest], AsyncIterator[ModelEvent]]
) -> Callable[[ModelRequest], AsyncIterator[ModelEvent]]:
    """`stream` with the wraps around it."""
    for wrap in reversed(wraps):
        stream = functools.partial(_through, wrap, stream)
    return stream


async def _through(
    wrap: WrapModel, stream: Callable[[ModelRequest], AsyncIterator[ModelEvent]], request: ModelRequest
) -> AsyncIterator[ModelEvent]:
    answers: list[ModelAnswer] = []

    def call_next(request: ModelRequest) -> ModelAnswer:
        answers.append(ModelAnswer(stream(request)))
        return answers[-1]

    answer = wrap(request, call_next)
    try:
        if inspect.isawaitable(answer):
            answer = await answer
        async for event in answer:
            yield event
    finally:
        for opened in (answer, *answers):  # a wrap that stops reading leaves its answer open
            await close_stream(opened)


def wrapped_tool(wraps: Sequence[WrapTool], call: ToolNext) -> ToolNext:
    """`call` with the wraps around it."""
    for wrap in reversed(wraps):
        call = functools.partial(_around, wrap, call)
    return call


async def _around(wrap: WrapTool, call: ToolNext, request: ToolRequest) -> ToolOutput:
    return render(await wrap(request, call))
