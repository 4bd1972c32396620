"""Matching over events is exhaustive, and the checker knows each one's fields."""

from __future__ import annotations

from typing import assert_never, assert_type

from treadle import (
    Agent,
    ApprovalRequest,
    Compaction,
    Event,
    LimitExceeded,
    ModelError,
    ModelFinish,
    ModelRetry,
    ReasoningDelta,
    RunError,
    RunFinish,
    RunResult,
    RunStart,
    StepFinish,
    StepStart,
    StopReason,
    SubagentEvent,
    TextDelta,
    ToolCallDelta,
    ToolFinish,
    ToolProgress,
    ToolResultPart,
    ToolStart,
    Usage,
)


def describe(event: Event) -> str:
    match event:
        case RunStart(model=model):
            return model.name
        case StepStart(index=index) | StepFinish(index=index):
            return f"{index}"
        case TextDelta(text=text) | ReasoningDelta(text=text):
            return text
        case ToolCallDelta(args=args):
            return args
        case ModelRetry(error=error):
            return error
        case Compaction(summary=summary):
            return summary
        case ModelFinish(usage=usage):
            assert_type(usage, Usage | None)
            return event.message.text
        case ApprovalRequest(name=name) | ToolStart(name=name):
            return name
        case ToolProgress(message=message):
            return message
        case ToolFinish(result=result):
            assert_type(result, ToolResultPart)
            return result.content
        case RunFinish(stop=stop):
            assert_type(stop, StopReason)
            return stop
        case SubagentEvent(event=inner):
            return describe(inner)
        case _:
            assert_never(event)


async def events_of_a_run() -> None:
    agent = Agent("openai-chat:some-model")
    async with agent.stream("Hi") as run:
        async for event in run:
            assert_type(event.seq, int)
            describe(event)


async def errors_carry_what_there_is() -> None:
    try:
        await Agent("openai-chat:some-model").run("Hi")
    except LimitExceeded as error:
        assert_type(error.limit, str)
    except RunError as error:
        if isinstance(error.result, RunResult):
            assert_type(error.result.usage, Usage)
        if isinstance(error.__cause__, ModelError):
            assert_type(error.__cause__.retryable, bool)
