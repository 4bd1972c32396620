"""A chat of one's own: it streams the answers, keeps the conversation, and goes on with it the next time.

python examples/sessions.py offline:demo notes
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from treadle import Agent, Model, RunError, StoreError, TextDelta, ToolStart, compact
from treadle.sessions import Store, load
from treadle.store import JsonLinesStore
from treadle.toolkit import Workspace


def make(model: Model | str) -> Agent[Any, str]:
    """Reads files, and sums older messages up before 100,000 tokens are full."""
    return Agent(model, tools=Workspace().read_only(), wrap_model=compact(at_tokens=100_000))


async def turn(agent: Agent[Any, str], prompt: str, store: Store, session: str) -> None:
    """One prompt and its answer, shown as they come."""
    try:
        async with agent.stream(prompt, store=store, session=session) as run:
            async for event in run:
                match event:
                    case TextDelta(text=text):
                        print(plain(text), end="", flush=True)
                    case ToolStart(name=name, args=args):
                        print(plain(f"[{name} {args}]"))
        print()
    except (RunError, StoreError) as error:  # what had been done is in the session, and the next prompt goes on
        print(plain(f"error: {error}"))


def plain(text: str) -> str:
    """A model's text without what would steer the terminal."""
    return "".join(letter for letter in text if letter.isprintable() or letter in "\n\t")


async def main(model: str, session: str) -> None:
    store = JsonLinesStore("sessions")
    if any(info.id == session for info in await store.list()):
        print(f"going on after {len(await load(store, session))} messages")
    agent = make(model)
    while True:
        try:
            prompt = await asyncio.to_thread(input, "> ")
        except EOFError:
            return
        if prompt.strip():
            await turn(agent, prompt, store, session)


if __name__ == "__main__":
    asyncio.run(main(*(sys.argv[1:] or ("offline:demo", "notes"))))
