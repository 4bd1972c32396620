"""What a run leaves behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from treadle.events import PendingCall
from treadle.messages import AssistantMessage, Message, ModelRef, ToolCallPart, ToolResultPart
from treadle.usage import StopReason, Usage

if TYPE_CHECKING:
    from typing_extensions import TypeVar as _TypeVar

    DepsT = _TypeVar("DepsT", default=None)
    OutputT = _TypeVar("OutputT", default=str)
else:
    DepsT = TypeVar("DepsT")
    OutputT = TypeVar("OutputT")


class RunContext(msgspec.Struct, Generic[DepsT], frozen=True):
    """What a function of instructions knows of its run."""

    run_id: str
    deps: DepsT


class StepRecord(msgspec.Struct, frozen=True):
    """One step: what the model said, and its local calls with their results, in call order.

    `usage` is None where the provider reported none.
    """

    index: int
    stop: StopReason
    raw_stop: str | None
    usage: Usage | None
    text: str
    calls: tuple[ToolCallPart, ...]
    results: tuple[ToolResultPart, ...]
    model: ModelRef | None


class RunResult(msgspec.Struct, Generic[OutputT], frozen=True):
    """The outcome of a run.

    `messages` is the whole transcript with the input, `new_messages` what this run added behind the input; both are
    valid next requests. `text` is what the last answer says. `output` is the typed answer: the text itself by default,
    and None where a run with a type stopped before it had one. `pending` holds the calls that a paused run waits for:
    its messages are no valid next request, but what `Agent.resume` takes. `next_seq` is the number of the next event.
    """

    id: str
    output: OutputT
    messages: tuple[Message, ...]
    new_messages: tuple[Message, ...]
    steps: tuple[StepRecord, ...]
    usage: Usage
    stop: StopReason
    pending: tuple[PendingCall, ...] = ()
    next_seq: int = 0

    @property
    def complete(self) -> bool:
        """Whether the answer is whole."""
        return self.stop.complete

    @property
    def text(self) -> str:
        """The text of the last answer, without reasoning; of a cut-off one, what there is."""
        for message in reversed(self.new_messages):
            if isinstance(message, AssistantMessage):
                return message.text
        return ""
