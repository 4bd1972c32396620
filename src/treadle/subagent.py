"""Sub-agents: an agent as a tool of another one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from treadle.errors import LimitExceeded, RunError, RunPaused, text_of
from treadle.events import Effect, Parent
from treadle.tools import Tool, ToolOutput

if TYPE_CHECKING:
    from collections.abc import Callable

    from treadle.result import RunResult
    from treadle.run import Run
    from treadle.tools import RunLink, ToolContext

_EFFECTS = (Effect.READ, Effect.WRITE, Effect.EXTERNAL)  # the weakest first
_SCHEMA = {
    "type": "object",
    "properties": {
        "prompt": {"type": "string", "description": "The whole task: nothing else of this conversation is known there."}
    },
    "required": ["prompt"],
    "additionalProperties": False,
}


def subagent_tool(
    name: str,
    description: str,
    start: Callable[[str, ToolContext[Any], Parent], Run[Any]],
    *,
    effect: Effect,
    forward_events: bool,
) -> Tool[..., Any]:
    """A tool that starts a run of its own for each call. Its result is the run's answer and nothing else."""

    async def ask(arguments: dict[str, Any], context: ToolContext[Any]) -> ToolOutput:
        run = start(arguments["prompt"], context, Parent(context.run_id, context.call_id))
        try:
            result = await _finished(run, context.run if forward_events else None)
        except RunError as error:
            if error.result is None:
                raise
            _settle(error.result, context.run)
            return _stopped_short(error.result, error)
        except BaseException:
            _settle(run.so_far(), context.run)  # cancelled with its caller: what it used was used
            raise
        _settle(result, context.run)
        if not result.complete:
            return _stopped_short(result, None)
        return ToolOutput(result.output)

    made = Tool.raw(name, description, _SCHEMA, ask, effect=effect)
    made.subagent = True
    return made


def strongest_effect(tools: tuple[Tool[..., Any], ...], *, unknown: bool) -> Effect:
    """What an agent with these tools may do. `unknown` says that it has others besides."""
    if unknown:
        return Effect.EXTERNAL
    return max((tool.effect for tool in tools), key=_EFFECTS.index, default=Effect.READ)


async def _finished(run: Run[Any], link: RunLink | None) -> RunResult[Any]:
    async with run:
        if link is not None and link.tell is not None:
            async for event in run:
                link.tell(event)
        return await run.result()


def _settle(result: RunResult[Any], link: RunLink | None) -> None:
    if link is not None:
        link.spend(result.usage)


def _stopped_short(result: RunResult[Any], error: RunError | None) -> ToolOutput:
    """What there is of an answer, and why there is no more."""
    if isinstance(error, LimitExceeded):
        why = f"it reached its limit on {error.limit.replace('_', ' ')}"
    elif isinstance(error, RunPaused):
        why = "it waits for an approval that nobody can give here"
    elif error is not None:
        why = text_of(error) or type(error).__name__
    else:
        why = f"its answer ended with {result.stop.value}"
    told = f"[The sub-agent stopped short: {why}.]"
    return ToolOutput(f"{result.text}\n{told}" if result.text else told, is_error=True)
