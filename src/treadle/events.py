"""The event log: what a run did, as numbered values in order.

The loop alone stamps `run_id` and `seq` (from 0, without gaps). Transcript, usage, server-sent events, terminal and
traces are folds over this log. `tool_start` comes in call order, `tool_finish` as calls finish, `run_finish` last.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import msgspec

from treadle.messages import SCHEMA_VERSION, AssistantMessage, Message, ModelRef, ToolResultPart
from treadle.usage import Remaining, StopReason, Usage

if TYPE_CHECKING:
    from collections.abc import Iterable


class Effect(StrEnum):
    """What a tool does to the world: reads it, writes what is ours, or acts on something outside."""

    READ = "read"
    WRITE = "write"
    EXTERNAL = "external"


class _Event(msgspec.Struct, frozen=True, gc=False, kw_only=True, tag_field="type"):
    run_id: str = ""
    seq: int = -1


class Parent(msgspec.Struct, frozen=True, gc=False):
    """The call that started a sub-agent's run."""

    run_id: str
    call_id: str


class RunStart(_Event, frozen=True, gc=False, tag="run_start"):
    """A run began. `input` is new and repaired; `history` came from the caller, repaired as well.

    `resumed`: a paused run goes on, with its whole transcript as `history`, calls still open.
    """

    agent: str | None
    model: ModelRef
    input: tuple[Message, ...]
    history: tuple[Message, ...] = ()
    parent: Parent | None = None
    version: int = SCHEMA_VERSION
    resumed: bool = False


class StepStart(_Event, frozen=True, gc=False, tag="step_start"):
    """A model request is about to be sent. `index` counts the steps of the run from 0.

    `input` is what the loop itself adds to the conversation first, for instance what was wrong with the last answer.
    `missing` says of each toolset that has lost its tools why.
    """

    index: int
    input: tuple[Message, ...] = ()
    missing: tuple[str, ...] = ()


class TextDelta(_Event, frozen=True, gc=False, tag="text_delta"):
    """A fragment of the answer's text."""

    text: str


class ReasoningDelta(_Event, frozen=True, gc=False, tag="reasoning_delta"):
    """A fragment of the model's thinking; only where `Reasoning(show=True)` asks for it."""

    text: str


class ToolCallDelta(_Event, frozen=True, gc=False, tag="tool_call_delta"):
    """A fragment of a call's arguments. `index` tells the calls of one answer apart, from 0."""

    index: int
    call_id: str
    name: str
    args: str


class ModelRetry(_Event, frozen=True, gc=False, tag="model_retry"):
    """The request failed and is sent again. Deltas of the failed attempt are void."""

    attempt: int
    delay_seconds: float
    error: str


class Compaction(_Event, frozen=True, gc=False, tag="compaction"):
    """Older messages were summarised: from here on the model reads `summary` in their place. The log keeps them.

    `messages` says how many of the run's conversation, from its first one. `usage` is what the summary took.
    """

    summary: str
    messages: int
    usage: Usage | None = None


class ModelFinish(_Event, frozen=True, gc=False, tag="model_finish"):
    """The whole answer of one request. `usage` is None where the provider reports none."""

    message: AssistantMessage
    usage: Usage | None = None
    stop: StopReason = StopReason.END
    raw_stop: str | None = None
    model: ModelRef | None = None

    def __post_init__(self) -> None:
        if type(self.stop) is not StopReason:
            msgspec.structs.force_setattr(self, "stop", StopReason(self.stop))


class ApprovalRequest(_Event, frozen=True, gc=False, tag="approval_request"):
    """A call waits for somebody's decision."""

    call_id: str
    name: str
    args: str
    reason: str | None = None


class ToolStart(_Event, frozen=True, gc=False, tag="tool_start"):
    """A call began. `index` is its place among the step's calls; `effect` is None for an unknown tool."""

    call_id: str
    index: int
    name: str
    args: str
    effect: Effect | None = None
    hosted: bool = False


class ToolProgress(_Event, frozen=True, gc=False, tag="tool_progress"):
    """What a running tool says of itself."""

    call_id: str
    message: str
    progress: float | None = None
    total: float | None = None


class ToolFinish(_Event, frozen=True, gc=False, tag="tool_finish"):
    """A call ended. `refused`: it never ran. `discarded`: it ran, but the run stopped and threw its outcome away."""

    call_id: str
    index: int
    name: str
    result: ToolResultPart
    is_error: bool = False
    refused: bool = False
    discarded: bool = False
    duration_seconds: float = 0.0


class StepFinish(_Event, frozen=True, gc=False, tag="step_finish"):
    """A step ended: the answer is in and every call it asked for is answered. `remaining` is what the limits leave."""

    index: int
    usage: Usage | None
    stop: StopReason
    remaining: Remaining | None = None


class PendingCall(msgspec.Struct, frozen=True):
    """A call that waits for a decision. `key` binds a decision to this call of this run: `Allow(key=pending.key)`."""

    call_id: str
    name: str
    args: str
    reason: str | None = None
    key: str | None = None


class RunFinish(_Event, frozen=True, gc=False, tag="run_finish"):
    """A run ended; always the last event. `usage` covers sub-agents; `limit` names the limit that stopped it.

    `pending` holds the calls that a paused run waits for.
    """

    usage: Usage
    steps: int
    stop: StopReason
    error: str | None = None
    limit: str | None = None
    pending: tuple[PendingCall, ...] = ()


class SubagentEvent(_Event, frozen=True, gc=False, tag="subagent_event"):
    """An event of a sub-agent, forwarded into its caller's log."""

    call_id: str
    event: Event


Event: TypeAlias = (
    RunStart
    | StepStart
    | TextDelta
    | ReasoningDelta
    | ToolCallDelta
    | ModelRetry
    | Compaction
    | ModelFinish
    | ApprovalRequest
    | ToolStart
    | ToolProgress
    | ToolFinish
    | StepFinish
    | RunFinish
    | SubagentEvent
)

# What a model may yield: deltas, hosted tool events, `ModelRetry` and `Compaction` from what is wrapped around it, and
# one `ModelFinish` at the end.
ModelEvent: TypeAlias = (
    TextDelta | ReasoningDelta | ToolCallDelta | ModelRetry | Compaction | ModelFinish | ToolStart | ToolFinish
)

_AnyEvent = TypeVar("_AnyEvent", bound=_Event)
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Event)


def encode_event(event: Event) -> bytes:
    """JSON of one event, on one line."""
    return _encoder.encode(event)


def encode_events(events: Iterable[Event]) -> bytes:
    """JSON lines, one event a line."""
    return _encoder.encode_lines(events)


def decode_event(data: bytes | str) -> Event:
    """The event in `data`. Raises `msgspec.ValidationError` for an unknown type."""
    return _decoder.decode(data)


def stamp(event: _AnyEvent, run_id: str, seq: int) -> _AnyEvent:
    """A copy of `event` with its place in the log."""
    return msgspec.structs.replace(event, run_id=run_id, seq=seq)
