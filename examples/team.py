"""An editor that sends a reader ahead, in one budget, and waits for somebody before it changes anything.

python examples/team.py anthropic:MODEL "Which pages disagree about the number of treadles? Mend them."
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

from treadle import Agent, Allow, Deny, Limits, Pause, RunPaused, approve_effects
from treadle.toolkit import Workspace

if TYPE_CHECKING:
    from collections.abc import Callable

    from treadle import Decision, Model, PendingCall, RunResult


def make(model: Model | str, root: str = ".") -> Agent[Any, str]:
    """The reader has a run of its own for each question. What it uses comes out of the editor's limits."""
    reader = Agent(
        model, name="reader", instructions="You find things and quote them.", tools=Workspace(root).read_only()
    )
    ask_reader = reader.as_tool(
        "reader", description="Finds things in the files.", limits=Limits(steps=10), approve=approve_effects("read")
    )
    return Agent(
        model,
        name="editor",
        instructions="You keep the files right. Let the reader look first.",
        tools=[ask_reader],
        toolsets=[Workspace(root)],
        approve=approve_effects("read", otherwise=lambda request: Pause(f"{request.name} changes a file.")),
        limits=Limits(steps=20, tokens=500_000),
    )


async def finish(agent: Agent[Any, str], prompt: str, decide: Callable[[PendingCall], Decision]) -> RunResult[str]:
    """Runs to the end. Each pause could as well be stored, and decided on tomorrow by another process."""
    try:
        return await agent.run(prompt)
    except RunPaused as paused:
        waiting = paused
    while True:
        assert waiting.result is not None
        try:
            return await agent.resume(waiting.result, {call.call_id: decide(call) for call in waiting.pending})
        except RunPaused as paused:
            waiting = paused


def ask(call: PendingCall) -> Decision:
    answer = input(f"{call.reason} {call.args!r} Allow it? [y/N] ").strip()  # repr: the model wrote it
    return Allow(key=call.key) if answer == "y" else Deny(answer or "No.", key=call.key)


if __name__ == "__main__":
    result = asyncio.run(finish(make(sys.argv[1]), sys.argv[2], ask))
    print(result.text, f"({result.usage.total_tokens} tokens)", sep="\n")
