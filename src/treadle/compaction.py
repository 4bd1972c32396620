"""Compaction: near the end of a model's context, older messages are summarised by the model itself.

    agent = Agent(model, wrap_model=compact(at_tokens=150_000))

What is cut is told by a `Compaction` event; the transcript and the log keep every message. A cut never parts a call
from its result, and the summary stays the same from step to step, so that the rest is a shared prefix again.
"""

from __future__ import annotations

import logging
from operator import is_
from typing import TYPE_CHECKING, Any, TypeGuard

import msgspec

from treadle._config import request_of
from treadle.errors import ConfigError, ContextOverflowError
from treadle.events import Compaction, ModelFinish, ModelRetry
from treadle.messages import FilePart, Message, TextPart, ToolMessage, UserMessage, encodable
from treadle.model import close_stream
from treadle.retry import Attempts
from treadle.transcript import compacted, trim
from treadle.usage import StopReason, Usage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence

    from treadle.agent import Agent
    from treadle.events import ModelEvent
    from treadle.model import ModelRequest
    from treadle.wraps import ModelNext

_log = logging.getLogger("treadle")

ASK = """\
The conversation is about to be cut: what you write now takes the place of everything above. Call no tools. Write down
all that is needed to go on without it: what the user asked for and decided, word for word where wording matters; what
was done and found, with names of files, commands, values and errors; what does not work and why; what is open, and the
next step."""
_TOKENS_PER_BYTE = 0.3  # until the first answer tells better
_LEAST, _MOST = 0.05, 1.0  # a provider may count far off, for instance hosted tools
_FILE_BYTES = 6_000  # what an image or a page weighs beside text, whatever its size
_KNOWN = 4_096
_ATTEMPTS = 3


class _Cut(msgspec.Struct, frozen=True):
    """`event` stands for `messages`, wherever a conversation begins with just these."""

    messages: tuple[Message, ...]
    event: Compaction


class _Answer:
    """The answer to a request. `refused` is what a model says that finds the request too long, unless it is `last`.

    What was `wasted` on requests that no event tells of counts in the usage of the answer.
    """

    def __init__(
        self, request: ModelRequest, call_next: ModelNext, wasted: Sequence[Usage], *, last: bool = False
    ) -> None:
        self.request: ModelRequest = request
        self.usage: Usage | None = None
        self.refused: ContextOverflowError | ModelFinish | None = None
        self._call_next = call_next
        self._wasted = wasted
        self._last = last

    async def events(self) -> AsyncGenerator[ModelEvent, None]:
        stream, began = self._call_next(self.request), self._last
        try:
            async for event in stream:
                if not began and _is_overflow(event):
                    self.refused = event
                    return
                began = began or type(event) is not ModelRetry
                if type(event) is ModelFinish:
                    self.usage = event.usage
                    yield _with_usage(event, self._wasted)
                else:
                    yield event
        except ContextOverflowError as error:
            if began:
                raise
            self.refused = error
        finally:
            await close_stream(stream)


class Compact:
    """A wrap for `Agent(wrap_model=...)`, for any number of runs at once. See `compact`."""

    def __init__(self, at_tokens: int, keep_tokens: int, focus: str | None) -> None:
        self.at_tokens: int = at_tokens
        self.keep_tokens: int = keep_tokens
        self._focus = focus
        self._ratio = _TOKENS_PER_BYTE
        self._weights: dict[int, tuple[Message, int]] = {}
        self._cuts: dict[int, _Cut] = {}
        self._fixed: tuple[tuple[Any, ...], int] = ((None, ()), 0)

    async def __call__(self, request: ModelRequest, call_next: ModelNext) -> AsyncGenerator[ModelEvent, None]:
        """One answer, with a `Compaction` before it where the request was too long."""
        wasted: list[Usage] = []
        if self._bytes(self._shortened(request)) * self._ratio > self.at_tokens and (keep := self._room(request)) >= 0:
            async for event in self._compact(request, call_next, keep, wasted):
                yield event
        answer = _Answer(self._shortened(request), call_next, wasted)
        async for event in answer.events():
            yield event
        if (refused := answer.refused) is not None:
            told, size = False, self._bytes(answer.request)  # the estimate was wrong, or the model's context is smaller
            keep = min(size / 4, self.keep_tokens / self._ratio)
            async for event in self._compact(request, call_next, keep, wasted):
                told = told or type(event) is Compaction
                yield event
            if told:
                answer = _Answer(self._shortened(request), call_next, wasted, last=True)
                async for event in answer.events():
                    yield event
            elif isinstance(refused, ContextOverflowError):
                raise refused
            else:
                yield _with_usage(refused, wasted)
        self._learn(answer)

    def _room(self, request: ModelRequest) -> float:
        """How many bytes of messages to keep, so that what is left grows for a while before it is too long again.

        Less than none where instructions and tools alone are too long: no summary helps then.
        """
        whole, messages = self._bytes(request), sum(map(self._weight, request.messages))
        return min(self.keep_tokens / self._ratio, (self.at_tokens / self._ratio - (whole - messages)) / 2)

    def _shortened(self, request: ModelRequest) -> ModelRequest:
        """The request with the latest summary that stands for a beginning of its messages."""
        cut = self._cut(request.messages)
        return request if cut is None else _with(request, compacted(request.messages, cut.event))

    def _cut(self, messages: Sequence[Message]) -> _Cut | None:
        for index in range(len(messages) - 1, -1, -1):
            found = self._cuts.get(id(messages[index]))
            if found is not None and len(found.messages) == index + 1 and all(map(is_, found.messages, messages)):
                return found
        return None

    async def _compact(
        self, request: ModelRequest, call_next: ModelNext, keep: float, wasted: list[Usage]
    ) -> AsyncIterator[ModelEvent]:
        """Summarises what is before the latest `keep` bytes. Where that fails the request stays as long as it is."""
        messages, cut = request.messages, self._cut(request.messages)
        start = 0 if cut is None else cut.event.messages
        end = self._boundary(messages, start, keep)
        if end is None:
            return
        older = messages[:end] if cut is None else compacted(messages[:end], cut.event)
        summary = Summary()
        async for event in summary.stream(_with(request, older), call_next, self._focus):
            yield event
        if summary.text:
            told = Compaction(summary.text, end, summary.usage)
            _keep(self._cuts, id(messages[end - 1]), _Cut(messages[:end], told))
            yield told
        elif summary.usage is not None:
            wasted.append(summary.usage)

    def _boundary(self, messages: Sequence[Message], start: int, keep: float) -> int | None:
        """Where the kept messages begin: behind `start`, and never at results. None where nothing can be cut."""
        weight, end = 0, len(messages)
        while end > start and (weight := weight + self._weight(messages[end - 1])) <= keep:
            end -= 1
        end = min(end, len(messages) - 1)
        following = end
        while following < len(messages) and isinstance(messages[following], ToolMessage):
            following += 1
        if following == len(messages):  # the latest step is kept whole, however long it is
            following = end
            while following > start and isinstance(messages[following], ToolMessage):
                following -= 1
        return following if following > start else None

    def _bytes(self, request: ModelRequest) -> int:
        """The size of a request. That of instructions and tools is looked at anew where they are others."""
        fixed = (request.instructions, request.tools)
        if not all(map(is_, fixed, self._fixed[0])):
            self._fixed = (fixed, len(msgspec.json.encode(fixed)))
        return self._fixed[1] + sum(map(self._weight, request.messages))

    def _learn(self, answer: _Answer) -> None:
        """How many tokens a byte is, by what the provider counted."""
        if answer.usage is not None and (read := answer.usage.total_tokens - answer.usage.output_tokens) > 0:
            self._ratio = min(max(read / self._bytes(answer.request), _LEAST), _MOST)

    def _weight(self, message: Message) -> int:
        known = self._weights.get(id(message))
        if known is None or known[0] is not message:
            known = (message, _bytes(message))
            _keep(self._weights, id(message), known)
        return known[1]


class Summary:
    """What a model makes of the conversation of a request. `text` is empty where it gave none."""

    def __init__(self) -> None:
        self.text: str = ""
        self.usage: Usage | None = None

    async def stream(
        self, request: ModelRequest, send: Callable[[ModelRequest], AsyncIterator[ModelEvent] | Any], focus: str | None
    ) -> AsyncGenerator[ModelRetry, None]:
        """Asks for it, and passes retries on. A conversation that is too long loses its older half, until it fits."""
        messages = request.messages
        for _ in range(_ATTEMPTS):
            stream = send(_asking(request, messages, focus))
            try:
                async for event in stream:
                    if type(event) is ModelRetry:
                        yield event
                    elif type(event) is ModelFinish and not _is_overflow(event):
                        self._take(event)
                        return
            except ContextOverflowError:
                pass
            finally:
                await close_stream(stream)
            messages, _dropped = trim(messages, len(messages) // 2)
        _log.warning("the conversation is too long even to be summarised")

    def _take(self, finish: ModelFinish) -> None:
        self.text, self.usage = encodable(finish.message.text.strip()), finish.usage or Usage(cost_partial=True)
        if not self.text:
            _log.warning("the model gave no summary: its answer ended with %s", finish.stop.value)


def compact(at_tokens: int, *, keep_tokens: int | None = None, focus: str | None = None) -> Compact:
    """A wrap that summarises older messages once a request is longer than `at_tokens`, or the model refuses its length.

    The latest messages of about `keep_tokens` (a quarter of `at_tokens` by default) stay as they are. Sizes are
    estimated, by what the provider counted before. `focus` tells the model what else must not get lost. The summary is
    one more request of the same run: it counts in its usage and its budget.
    """
    keep = at_tokens // 4 if keep_tokens is None else keep_tokens
    for name, value in (("at_tokens", at_tokens), ("keep_tokens", keep)):
        if type(value) is not int or value < (1 if name == "at_tokens" else 0):
            raise ConfigError(f"compact({name}=...) is a number of tokens, and is {value!r:.80}")
    if keep >= at_tokens:
        raise ConfigError(f"compact(keep_tokens={keep}) must be less than at_tokens={at_tokens}")
    return Compact(at_tokens, keep, focus)


async def summarize(
    agent: Agent[Any, Any], messages: Sequence[Message], *, instructions: str | None = None, focus: str | None = None
) -> Compaction:
    """A summary of the whole conversation by the agent's model, as an event that is not yet part of a log.

    `treadle.transcript.compacted(messages, event)` is the conversation that goes on with it. `instructions` stand in
    for those of an agent that makes its own in each run. Raises `ModelError` as a request does, and `ConfigError` where
    there is nothing to summarise.
    """
    if not messages:
        raise ConfigError("there is nothing to summarise: the conversation is empty")
    given = instructions if instructions is not None or callable(agent.instructions) else agent.instructions
    request = request_of(agent, given, tuple(messages), agent.tool_specs, output_schema=None, settings=agent.settings)
    summary = Summary()
    async for _ in summary.stream(request, Attempts(agent.model, agent.retry).stream, focus):
        pass
    if not summary.text:
        raise ContextOverflowError(
            "the model gave no summary of the conversation: try another model",
            provider=agent.model.provider,
            model=agent.model.name,
        )
    return Compaction(summary.text, len(messages), summary.usage)


def _asking(request: ModelRequest, messages: tuple[Message, ...], focus: str | None) -> ModelRequest:
    """The same request, so that its prefix is shared, with the order to summarise behind it."""
    text = ASK if focus is None else f"{ASK}\n\n{encodable(focus)}"
    settings = request.settings and msgspec.structs.replace(request.settings, tool_choice=None)
    asked = _with(request, (*messages, UserMessage((TextPart(text),))))
    return msgspec.structs.replace(asked, output_schema=None, settings=settings)


def _with(request: ModelRequest, messages: tuple[Message, ...]) -> ModelRequest:
    return msgspec.structs.replace(request, messages=messages)


def _with_usage(finish: ModelFinish, more: Sequence[Usage]) -> ModelFinish:
    if not more:
        return finish
    return msgspec.structs.replace(finish, usage=sum(more, finish.usage or Usage(cost_partial=True)))


def _is_overflow(event: ModelEvent) -> TypeGuard[ModelFinish]:
    return type(event) is ModelFinish and event.stop is StopReason.CONTEXT and not event.message.content


def _bytes(message: Message) -> int:
    """The length of a message as JSON, but for the content of its files."""
    files = [part for part in getattr(message, "content", ()) if isinstance(part, FilePart)]
    if isinstance(message, ToolMessage):
        files = [file for result in message.results for file in result.files]
    data = sum(len(file.data or "") for file in files)
    return len(msgspec.json.encode(message)) - data + _FILE_BYTES * len(files)


def _keep(known: dict[int, Any], key: int, value: Any) -> None:
    """Adds to a memory that forgets its oldest entries."""
    known[key] = value
    if len(known) > _KNOWN:
        del known[next(iter(known))]
