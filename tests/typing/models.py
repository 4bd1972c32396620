"""Seams that users implement: a checker accepts a right one and refuses a wrong one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from treadle import Agent, AssistantMessage, Capabilities, Model, ModelFinish, TextDelta, TextPart, Tool, Toolset, tool
from treadle.testing import ScriptedModel, call

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from treadle import ModelEvent, ModelRequest


class Echo:
    provider = "example"
    name = "echo"
    capabilities = Capabilities()

    async def stream(self, request: ModelRequest, /) -> AsyncIterator[ModelEvent]:
        yield TextDelta(text="hello")
        yield ModelFinish(message=AssistantMessage((TextPart("hello"),)))


class NoName:
    provider = "example"
    capabilities = Capabilities()

    async def stream(self, request: ModelRequest, /) -> AsyncIterator[ModelEvent]:
        yield TextDelta(text="hello")


class Group:
    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: Any) -> None:
        return None

    async def tools(self) -> list[Tool[..., Any]]:
        @tool
        def look() -> str:
            """Look."""
            return "nothing"

        return [look]


def seams() -> None:
    right: Model = Echo()
    wrong: Model = NoName()  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    group: Toolset = Group()
    Agent(right, toolsets=[group])
    Agent(wrong)
    Agent(ScriptedModel(["one ", "two"], call("look")), toolsets=[Group()])
