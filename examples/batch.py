"""Runs many prompts at once, a few at a time, and prints a table. One that fails does not stop the others.

python examples/batch.py offline:demo "Read README.md." "List the files in examples."
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass

from treadle import Agent, Model, RunError, Usage
from treadle.toolkit import Workspace

AT_ONCE = 4


@dataclass
class Row:
    """What became of one prompt."""

    prompt: str
    outcome: str
    usage: Usage
    answer: str


async def run_all(model: Model | str, prompts: list[str]) -> list[Row]:
    """One row for each prompt, in their order."""
    agent = Agent(model, tools=Workspace().read_only())
    room = asyncio.Semaphore(AT_ONCE)

    async def run_one(prompt: str) -> Row:
        async with room:
            try:
                result = await agent.run(prompt)
            except RunError as error:
                # What a failed run used is known as well, and counts.
                spent = Usage() if error.result is None else error.result.usage
                return Row(prompt, type(error).__name__, spent, str(error))
        return Row(prompt, result.stop, result.usage, result.text)

    return await asyncio.gather(*[run_one(prompt) for prompt in prompts])


def table(rows: list[Row]) -> str:
    """The rows as text, with the sum below."""
    lines = [f"{'outcome':<15} {'tokens':>7}  {'prompt':<32} answer"]
    for row in rows:
        answer = " ".join(row.answer.split())
        lines.append(f"{row.outcome:<15} {row.usage.total_tokens:>7}  {row.prompt:<32.32} {answer:.60}")
    total = sum((row.usage for row in rows), Usage())
    return "\n".join([*lines, f"{'sum':<15} {total.total_tokens:>7}"])


def main() -> None:
    model, *prompts = sys.argv[1:]
    print(table(asyncio.run(run_all(model, prompts))))


if __name__ == "__main__":
    main()
