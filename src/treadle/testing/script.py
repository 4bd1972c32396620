"""Scripts: what a scripted model answers, written down as plain values."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from treadle.errors import ConfigError, ModelError
from treadle.events import (
    ModelEvent,
    ModelFinish,
    ModelRetry,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolFinish,
    ToolStart,
)
from treadle.messages import (
    AssistantMessage,
    AssistantPart,
    ModelRef,
    ProviderPart,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from treadle.usage import StopReason, Usage

if TYPE_CHECKING:
    from treadle.model import ModelRequest


class Call(msgspec.Struct, frozen=True):
    """A call in a script. Without an id of its own it gets the script's next: `call_1`, `call_2`, ..."""

    name: str
    args: str
    id: str | None = None
    finished: bool = True

    def with_id(self, call_id: str) -> Call:
        """The same call with this id."""
        return msgspec.structs.replace(self, id=call_id)

    def cut_off(self) -> Call:
        """The same call as a model leaves it that stopped in the middle of the arguments (`finished=False`)."""
        return msgspec.structs.replace(self, finished=False)


class Failure(msgspec.Struct, frozen=True):
    """Where a script raises. Made by `error`."""

    cause: BaseException | str
    options: dict[str, Any]

    def exception(self, model: ModelRef) -> BaseException:
        """What to raise. A text becomes a fresh `ModelError`, since one exception cannot be in two places at once."""
        if isinstance(self.cause, str):
            return ModelError(self.cause, provider=model.provider, model=model.name, **self.options)
        return self.cause.with_traceback(None)


_Part: TypeAlias = TextPart | ReasoningPart | ToolCallPart | ToolResultPart | ProviderPart
Piece: TypeAlias = "str | Call | AssistantPart | ModelEvent | Failure | asyncio.Event | Dynamic"
Dynamic: TypeAlias = "Callable[[ModelRequest], StepLike | Awaitable[StepLike | None] | None]"
StepLike: TypeAlias = "Piece | Sequence[Piece] | Step"


class Step(msgspec.Struct, frozen=True, eq=False):
    """One answer of a script. Made by `step`."""

    pieces: tuple[Piece, ...]
    usage: Usage | UnsetType | None = UNSET
    stop: StopReason | None = None
    raw_stop: str | None = None
    delay_seconds: float = 0.0
    finish: bool = True

    @staticmethod
    def of(value: StepLike) -> Step:
        """`value` as a step: a list holds the pieces, anything else is the only piece."""
        if isinstance(value, Step):
            return value
        if isinstance(value, Sequence) and not isinstance(value, str):
            return Step(tuple(value))
        return Step((value,))


def call(name: str, args: Mapping[str, Any] | None = None, /, **named: Any) -> Call:
    """A call with these arguments, as compact JSON. A mapping serves for names that Python cannot write."""
    return Call(name, msgspec.json.encode({**(args or {}), **named}).decode())


def call_text(name: str, text: str, /) -> Call:
    """A call whose arguments are `text` as it stands, whether or not that is JSON."""
    return Call(name, text)


def think(text: str, signature: str | None = None) -> ReasoningPart:
    """A block of reasoning."""
    return ReasoningPart(text, signature)


def error(
    failure: BaseException | str,
    /,
    *,
    status: int | None = None,
    retryable: bool | None = None,
    retry_after_seconds: float | None = None,
) -> Failure:
    """Raises: an exception as it is, a text as a `ModelError` with these attributes (not retryable unless told).

    In a list it raises after the pieces before it were yielded.
    """
    if not isinstance(failure, BaseException | str):
        raise ConfigError(f"error(...) takes an exception or a text, not {failure!r}")
    options = {"status": status, "retryable": retryable, "retry_after_seconds": retry_after_seconds}
    if not isinstance(failure, str) and any(value is not None for value in options.values()):
        raise ConfigError("error(...) sets attributes only on a text: set them on the exception itself")
    return Failure(failure, options)


def step(
    *pieces: Piece,
    usage: Usage | UnsetType | None = UNSET,
    stop: StopReason | str | None = None,
    raw_stop: str | None = None,
    delay_seconds: float = 0.0,
    finish: bool = True,
) -> Step:
    """One answer with more to say than its pieces.

    `usage=None` reports none; left out, it is the model's. `stop` is `tool_calls` for an answer with calls and `end`
    for any other. `delay_seconds` pass before the first piece. `finish=False` breaks the contract of the seam: the
    answer ends without its `ModelFinish`.
    """
    return Step(pieces, usage, None if stop is None else StopReason(stop), raw_stop, float(delay_seconds), finish)


def is_dynamic(step: StepLike) -> bool:
    """Whether the step, or a piece of it, is a function of the request."""
    return any(callable(piece) for piece in Step.of(step).pieces)


async def resolve(step: StepLike, request: ModelRequest) -> Step:
    """The step with the pieces that its functions give for `request`."""
    if callable(step):
        return await resolve(await _ask(step, request), request)
    found = Step.of(step)
    pieces: list[Piece] = []
    for piece in found.pieces:
        if callable(piece):
            given = await _ask(piece, request)
            if isinstance(given, Step):
                raise ConfigError("a function in a list gives pieces: make it a whole step to give step(...)")
            pieces += (await resolve(given, request)).pieces
        else:
            pieces.append(piece)
    return msgspec.structs.replace(found, pieces=tuple(pieces))


async def _ask(function: Dynamic, request: ModelRequest) -> StepLike:
    given = function(request)
    if inspect.isawaitable(given):
        given = await given
    return () if given is None else given


class Segment(msgspec.Struct, frozen=True):
    """Events to yield in one go, and what comes after them: seconds or an event to wait for, a failure, or nothing."""

    events: tuple[ModelEvent, ...]
    then: float | asyncio.Event | Failure | None = None


def plan(step: Step, model: ModelRef, usage: Usage | None, ids: Iterator[str]) -> tuple[Segment, ...]:
    """Everything the step yields, built beforehand so that a delta costs nothing but its yield."""
    draft = _Draft(ids)
    if step.delay_seconds:
        draft.segments.append(Segment((), step.delay_seconds))
    for piece in step.pieces:
        draft.add(piece)
    if step.finish and not draft.ended:
        draft.events.append(draft.finish(step, model, usage))
    return (*draft.segments, Segment(tuple(draft.events)))


class _Draft:
    """An answer in the making."""

    def __init__(self, ids: Iterator[str]) -> None:
        self.segments: list[Segment] = []
        self.events: list[ModelEvent] = []
        self.ended = False
        self._ids = ids
        self._content: list[AssistantPart] = []
        self._texts: list[str] = []  # neighbouring strings, one part in the end
        self._calls = 0
        self._hosted: dict[str, int] = {}

    def add(self, piece: Piece) -> None:
        if self.segments and isinstance(self.segments[-1].then, Failure):
            raise ConfigError("nothing can follow error(...) in a step: make what follows a step of its own")
        match piece:
            case str():
                self._add_text(piece)
            case Call(name=name, args=args, id=own, finished=finished):
                self._add_part(ToolCallPart(next(self._ids) if own is None else own, name, args, finished=finished))
            case TextPart() | ReasoningPart() | ToolCallPart() | ToolResultPart() | ProviderPart():
                self._add_part(piece)
            case asyncio.Event() | Failure():
                self.segments.append(Segment(tuple(self.events), piece))
                self.events.clear()
                self.ended = self.ended or isinstance(piece, Failure)
            case ModelFinish():
                self.events.append(piece)
                self.ended = True
            case TextDelta() | ReasoningDelta() | ToolCallDelta() | ModelRetry() | ToolStart() | ToolFinish():
                self.events.append(piece)
            case _:
                raise ConfigError(
                    f"a script cannot hold {piece!r}: use text, call(...), call_text(...), think(...), error(...), "
                    "a part, a model event, an asyncio.Event to wait for, or a function of the request"
                )

    def _add_text(self, text: str) -> None:
        if text:
            self._texts.append(text)
            self.events.append(TextDelta(text))

    def _add_part(self, part: _Part) -> None:
        self._close_text()
        self._content.append(part)
        self.events += self._events_of(part)

    def _close_text(self) -> None:
        if self._texts:
            self._content.append(TextPart("".join(self._texts)))
            self._texts.clear()

    def _events_of(self, part: _Part) -> list[ModelEvent]:
        match part:
            case TextPart(text=text):
                return [TextDelta(text)] if text else []
            case ReasoningPart(text=text):
                return [ReasoningDelta(text)] if text else []
            case ToolCallPart(id=call_id, name=name, args=args, hosted=True):
                index = self._hosted.setdefault(call_id, len(self._hosted))
                return [ToolStart(call_id, index, name, args, hosted=True)]
            case ToolCallPart(id=call_id, name=name, args=args):
                self._calls += 1
                return [ToolCallDelta(self._calls - 1, call_id, name, args)]
            case ToolResultPart(call_id=call_id, name=name, is_error=is_error, hosted=True):
                index = self._hosted.setdefault(call_id, len(self._hosted))
                return [ToolFinish(call_id, index, name, part, is_error)]
            case ToolResultPart():
                raise ConfigError("a script holds hosted results only: the loop makes those of local calls")
        return []

    def finish(self, step: Step, model: ModelRef, usage: Usage | None) -> ModelFinish:
        self._close_text()
        stop = step.stop or (StopReason.TOOL_CALLS if self._calls else StopReason.END)
        message = AssistantMessage(tuple(self._content), stop, model)
        return ModelFinish(message, usage if step.usage is UNSET else step.usage, stop, step.raw_stop, model)
