"""A model that answers from a script."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING

from treadle.messages import AssistantMessage, FilePart, ModelRef, TextPart, UserMessage
from treadle.model import Capabilities
from treadle.testing.script import Failure, Segment, Step, StepLike, is_dynamic, plan, resolve
from treadle.usage import Usage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from treadle.events import ModelEvent
    from treadle.messages import Message
    from treadle.model import ModelRequest

_EVERYTHING = Capabilities(
    tools=True,
    reasoning=True,
    effort=True,
    min_reasoning_budget=1,
    hosted_mcp=True,
    hosted_web_search=True,
    output_schema=True,
    cost=True,
    token_counting=True,
    files=True,
)
_USAGE = Usage(input_tokens=10, output_tokens=5)
_SHOWN_MESSAGES = 3
_SHOWN_CHARACTERS = 120


class ScriptedModel:
    """A model that answers from a script, one step for each request, and never touches the network.

        ScriptedModel(call("add", a=1, b=2), [think("Easy."), "It is ", "three."])

    A step is a text, a `call(...)`, `call_text(...)`, `think(...)` or `error(...)`, or a list of these: the finished
    message holds them in this order, with neighbouring texts joined. Each text is one delta. A list may also hold:

    - a part of a message, for instance a hosted call and its result, or a `ProviderPart`;
    - an `asyncio.Event`: the answer waits until it is set;
    - a model event, passed on as it is and no part of the message (a `ModelFinish` replaces the step's own);
    - a function of the request, sync or async, that gives pieces; asked before the first event is yielded.

    A function as a whole step gives a step. `step(...)` sets a step's usage, stop and delay.

    Steps are handed out in the order of the requests, whoever makes them. `by_position=True` chooses them by the number
    of assistant messages in the request instead, so that each of many conversations gets the whole script; an
    `error(...)` then comes again when its request does.

    `usage` is reported by every step that sets none. `capabilities` left out are all there are. `requests` holds what
    was asked, in order; `record=False` keeps it empty, for runs of thousands of steps.
    """

    def __init__(
        self,
        *steps: StepLike,
        provider: str = "scripted",
        name: str = "scripted",
        capabilities: Capabilities | None = None,
        usage: Usage | None = _USAGE,
        by_position: bool = False,
        record: bool = True,
    ) -> None:
        self.provider = provider
        self.name = name
        self.capabilities: Capabilities = _EVERYTHING if capabilities is None else capabilities
        self.requests: list[ModelRequest] = []
        self._script = steps
        self._ref = ModelRef(provider, name)
        self._usage = usage
        self._by_position = by_position
        self._record = record
        self._asked = 0
        self._used: set[int] = set()
        self._overrun: str | None = None
        self._ids = (f"call_{number}" for number in count(1))
        # Built here, so that a mistake in the script shows where the script stands.
        self._plans = [None if is_dynamic(given) else self._plan(Step.of(given)) for given in steps]

    async def stream(self, request: ModelRequest, /) -> AsyncGenerator[ModelEvent, None]:
        """The next step of the script. Raises `AssertionError` when there is none."""
        index = self._take(request)
        segments = self._plans[index] or self._plan(await resolve(self._script[index], request))
        for segment in segments:
            for event in segment.events:
                yield event
            if segment.then is not None:
                await self._pause(segment.then)

    async def count_tokens(self, request: ModelRequest, /) -> int:
        """A made-up count: the words in the request's instructions and messages."""
        texts = [request.instructions or "", *map(_shown, request.messages)]
        return sum(len(text.split()) for text in texts)

    @property
    def unused(self) -> tuple[StepLike, ...]:
        """The steps that no request asked for yet."""
        return tuple(step for index, step in enumerate(self._script) if index not in self._used)

    def assert_used_up(self) -> None:
        """Raises `AssertionError` unless every step was asked for, and nothing beyond them."""
        if self._overrun:
            raise AssertionError(self._overrun)
        if unused := self.unused:
            raise AssertionError(
                f"{len(unused)} of {len(self._script)} steps of the script were not asked for, "
                f"the first of them {_shorten(repr(unused[0]))}"
            )

    async def _pause(self, then: float | asyncio.Event | Failure) -> None:
        if isinstance(then, Failure):
            raise then.exception(self._ref)
        await (then.wait() if isinstance(then, asyncio.Event) else asyncio.sleep(then))

    def _plan(self, step: Step) -> tuple[Segment, ...]:
        return plan(step, self._ref, self._usage, self._ids)

    def _take(self, request: ModelRequest) -> int:
        """The index of the step that answers `request`."""
        if self._record:
            self.requests.append(request)
        index = _position(request) if self._by_position else self._asked
        self._asked += 1
        if index >= len(self._script):
            last = " | ".join(_shorten(_shown(message)) for message in request.messages[-_SHOWN_MESSAGES:])
            self._overrun = f"the script has {len(self._script)} steps, but step {index + 1} was asked for by: {last}"
            raise AssertionError(self._overrun)
        self._used.add(index)
        return index


def _position(request: ModelRequest) -> int:
    return sum(isinstance(message, AssistantMessage) for message in request.messages)


def _shown(message: Message) -> str:
    match message:
        case UserMessage(content=content):
            words = [f"[{part.media_type}]" if isinstance(part, FilePart) else part.text for part in content]
            return f"user: {' '.join(words)}"
        case AssistantMessage(content=content, calls=calls):
            words = [part.text for part in content if isinstance(part, TextPart)]
            words += [f"{call.name}({call.args})" for call in calls]
            return f"assistant: {' '.join(words)}"
        case _:
            return f"tool: {' '.join(result.content for result in message.results)}"


def _shorten(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
