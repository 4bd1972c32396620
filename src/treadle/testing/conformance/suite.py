"""What every test of the suite stands on: the methods to override, what is skipped and why, and the stage."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, TypeVar, get_args

import pytest

from treadle.messages import UserMessage
from treadle.model import Capabilities, Model, ModelRequest, Reasoning, ToolSpec
from treadle.testing.conformance.answers import Answer, Failure, Spoken, TokenCount
from treadle.testing.conformance.leaks import assert_no_tasks, note_lost, watched
from treadle.testing.conformance.looking import whole
from treadle.testing.conformance.server import Reply, Seen, Server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence

    from treadle.events import ModelEvent, ModelFinish

Feature: TypeAlias = Literal[
    "script",  # it can be told what to answer
    "wire",  # it asks the suite's server
    "streaming",  # it gives what it has before the answer is whole
    "call_ids",  # the wire carries the ids of calls
    "exact_arguments",  # the wire carries arguments as text
    "cut_calls",  # the wire can break off in the middle of a call
    "signatures",  # reasoning comes with something opaque that must go back
    "reasoning_replay",  # the text of reasoning goes back
    "opaque_parts",  # there are other blocks that must go back as they came
    "hosted_events",  # the wire tells of hosted calls, not only of what came out
    "usage",
    "unknown_usage",  # an answer without usage is possible
    "cache_reads",
    "cache_writes",
    "reasoning_tokens",
    "max_tokens",  # the stops
    "refusal",
    "context",
    "other",
    "errors_in_stream",
    "retry_after",
    "idle_timeout",
    "raw_utf8",  # the wire carries text as UTF-8
    "closed_generators",  # it leaves no async generator to the garbage collector, as httpx does
    "several_loops",  # one model serves several event loops, one after the other
    "extra_body",
    "extra_headers",
]
"""What a model may lack without lacking a capability."""

STREAMS_VARIABLE = "TREADLE_CONFORMANCE_STREAMS"
"""Sets how many streams are open at once in every suite, where that is less; so does `pytest --conformance-streams`."""

_REQUESTS_VARIABLE = "TREADLE_MODEL_REQUESTS"
_Result = TypeVar("_Result")

ADD = ToolSpec(
    "add",
    "Add two numbers.",
    {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    },
)
LOOK = ToolSpec(
    "look",
    "Look for words.",
    {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"], "additionalProperties": False},
)
NOW = ToolSpec("now", "Tell the time.", {"type": "object", "properties": {}, "additionalProperties": False})
HELLO = Answer(("Hello ", "there."))


class Suite:
    """The stage of the suite. See `ModelConformance`."""

    lacks: ClassVar[Mapping[Feature, str]] = {}
    seconds: ClassVar[float] = 20.0
    streams: ClassVar[int] = 1_000

    def model(self, server: Server, /) -> Model:
        """A new model of the kind under test, that talks to `server`. Called while the event loop runs."""
        raise NotImplementedError(f"{type(self).__name__} needs a method model(self, server) that gives a Model")

    def wire(self, spoken: Spoken, /) -> Reply:
        """How the server says this, in the wire format of the model."""
        raise NotImplementedError(f"{type(self).__name__} needs a method wire(self, spoken), or lacks 'wire'")

    def kept(self, body: bytes, /) -> bytes:
        """The part of a request, as JSON, that later requests must extend. All of it, unless overridden."""
        return body

    def request(self, *texts: str, **changes: Any) -> ModelRequest:
        """A request with what the user says, and with whatever fields of a `ModelRequest` are given."""
        messages = tuple([UserMessage(text) for text in texts or ("Say hello.",)])
        return ModelRequest(**{"instructions": "You are a friend.", "messages": messages, **changes})

    # What is skipped

    def needs(self, *names: str) -> Capabilities:
        """Skips the test unless the model has these features and capabilities. Gives the capabilities."""
        for name in names:
            if name in self.lacks:
                pytest.skip(f"lacks {name}: {self.lacks[name]}")  # type: ignore[index]
        capabilities = self.capabilities
        for name in names:
            able = name in get_args(Feature) or getattr(capabilities, name)
            if able is False or able is None:
                pytest.skip(f"Capabilities({name}={able})")
        return capabilities

    @property
    def capabilities(self) -> Capabilities:
        """Those of the model."""

        async def ask() -> Capabilities:
            async with made(self, Server()) as model:
                return model.capabilities

        return asyncio.run(ask())

    def has(self, *names: Feature) -> bool:
        """Whether the model lacks none of these features."""
        return not any(name in self.lacks for name in names)

    def reasoning_request(self, *texts: str, **changes: Any) -> ModelRequest:
        """A request that asks to think, with reasoning shown."""
        return self.request(*texts, reasoning=Reasoning(show=True), **changes)

    # The stage

    def play(
        self,
        scene: Callable[[Server, Model], Coroutine[Any, Any, _Result]],
        *spoken: Spoken,
        replies: Sequence[Reply] | Callable[[Seen], Reply] | None = None,
        idle_timeout_seconds: float = 60.0,
        port: int = 0,
        seconds: float | None = None,
        denied: bool = False,
    ) -> _Result:
        """Runs a scene in an event loop of its own, between a model and a server that says `spoken`, one by one.

        `replies` replaces what `wire` makes of that. Whatever the scene leaves behind fails the test: tasks,
        errors that nobody saw, connections and generators that nobody closed. Requests to the suite's own server are
        allowed whatever the environment says, unless they are `denied`.
        """
        __tracebackhide__ = True
        given = self._written(spoken) if replies is None else replies

        async def run(lost: list[str]) -> _Result:
            note_lost(lost, generators=self.has("closed_generators"))
            async with Server(spoken, given, idle_timeout_seconds=idle_timeout_seconds, port=port) as server:
                async with made(self, server) as model:
                    try:
                        result = await self._bounded(scene(server, model), seconds or self.seconds)
                    finally:
                        if server.connections and not self.has("wire"):
                            raise AssertionError("a model that lacks 'wire' asked the suite's server")
                await assert_no_tasks(server)
                return result

        with _requests(denied=denied, on_loopback=self.has("wire")), watched() as lost, asyncio.Runner() as runner:
            result = runner.run(run(lost))
        assert not lost, f"left behind: {'; '.join(lost)}"
        return result

    async def _bounded(self, scene: Coroutine[Any, Any, _Result], seconds: float) -> _Result:
        bound = asyncio.timeout(seconds)
        try:
            async with bound:
                return await scene
        except TimeoutError:
            if bound.expired():
                raise AssertionError(f"nothing happened for {seconds:g} seconds") from None
            raise

    def _written(self, spoken: Sequence[Spoken]) -> tuple[Reply, ...]:
        return tuple([self.said(item) for item in spoken]) if self.has("wire") else ()

    def said(self, spoken: Spoken) -> Reply:
        """What `wire` makes of it, checked."""
        reply = self.wire(spoken)
        assert isinstance(reply, Reply), f"wire() gives a Reply, and gave {reply!r:.200}"
        status = spoken.status if isinstance(spoken, Failure) and not spoken.in_stream else 200
        assert reply.status == status, f"wire() must answer {spoken!r:.200} with status {status}, not {reply.status}"
        return reply

    def ask(
        self, *spoken: Answer | Failure | TokenCount, request: ModelRequest | None = None, **stage: Any
    ) -> list[ModelEvent]:
        """The events of one request to a server that says `spoken`."""

        async def scene(_: Server, model: Model) -> list[ModelEvent]:
            return await collect(model, request or self.request())

        return self.play(scene, *(spoken or (HELLO,)), **stage)

    def finish(self, *spoken: Answer, request: ModelRequest | None = None, **stage: Any) -> ModelFinish:
        """The end of one answer, checked against everything before it."""
        return whole(self.ask(*spoken, request=request, **stage))


async def collect(model: Model, request: ModelRequest) -> list[ModelEvent]:
    """All events of one answer."""
    return [event async for event in model.stream(request)]


async def leave(stream: AsyncIterator[Any]) -> None:
    """Closes a stream as the loop does that had enough of it."""
    if (aclose := getattr(stream, "aclose", None)) is not None:
        await aclose()


async def close(model: Model) -> None:
    """Lets a model go."""
    if (aclose := getattr(model, "aclose", None)) is not None:
        await aclose()


@contextlib.asynccontextmanager
async def made(suite: Suite, server: Server) -> AsyncIterator[Model]:
    """A model for the time of a block."""
    model = suite.model(server)
    try:
        yield model
    finally:
        await close(model)


@contextlib.contextmanager
def _requests(*, denied: bool, on_loopback: bool) -> Iterator[None]:
    """Sets the switch that forbids model requests. What leaves this machine is for its owner to allow."""
    with pytest.MonkeyPatch.context() as patch:
        if denied:
            patch.setenv(_REQUESTS_VARIABLE, "deny")
        elif on_loopback:
            patch.delenv(_REQUESTS_VARIABLE, raising=False)
        yield
