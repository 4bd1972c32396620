"""What the server plays, and what a client must come back with.

A scenario is named by the model name of its requests:

    text-5000    one answer of 5,000 text deltas
    tools-8x10   10 steps of 8 parallel calls, then a short answer
    scale-800    800 steps of one call, then a short answer: the history grows all the way
    paced-15     one answer of 15 text deltas, one per interval of the server

Only the standard library is used here: every client imports this module, in its own environment.
"""

from __future__ import annotations

from typing import NamedTuple

PROMPT = "Look up what happened last night."
FINAL_WORDS = ("Done:", " every", " call", " is", " answered.")
WORDS = (" the", " deploy", " of", " the", " event", " log", " was", " rolled", " back", " at", " two.")

TOOL_NAME = "lookup"
TOOL_DESCRIPTION = "Find events that match a question."
TOOL_ARGS = '{"query": "deploys last night", "limit": 10, "region": "eu-west-1"}'
TOOL_PARAMETERS = {
    "type": "object",
    "properties": {"query": {"type": "string"}, "limit": {"type": "integer"}, "region": {"type": "string"}},
    "required": ["query", "limit", "region"],
}


class Scenario(NamedTuple):
    """`deltas` text deltas (text and paced), or `steps` steps of `calls` calls each (tools and scale)."""

    name: str
    kind: str
    deltas: int = 0
    calls: int = 0
    steps: int = 0


class Tally:
    """What this process has seen: text deltas, their characters, runs of the tool."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forgets what was seen, for instance in a warm-up."""
        self.deltas = 0
        self.chars = 0
        self.tool_runs = 0

    def text(self, text: str) -> None:
        """Counts one text delta."""
        self.deltas += 1
        self.chars += len(text)


tally = Tally()


async def lookup(query: str, limit: int, region: str) -> str:
    """Find events that match a question.

    Args:
        query: What to look for.
        limit: How many to return at most.
        region: Where to look.
    """
    tally.tool_runs += 1
    return f"{query} in {region}: {limit} events, first 02:14 deploy 4711, last 05:58 rollback."[:98].ljust(98, ".")


def parse(name: str) -> Scenario:
    """The scenario of that name. Raises `ValueError` for any other name."""
    kind, _, size = name.partition("-")
    if kind in ("text", "paced"):
        return Scenario(name, kind, deltas=int(size))
    if kind == "scale":
        return Scenario(name, kind, calls=1, steps=int(size))
    if kind == "tools":
        calls, _, steps = size.partition("x")
        return Scenario(name, kind, calls=int(calls), steps=int(steps))
    raise ValueError(f"unknown scenario {name!r}: use text-N, paced-N, tools-CxN or scale-N")


def words(scenario: Scenario) -> list[str]:
    """The text deltas of the scenario's last answer."""
    if not scenario.deltas:
        return list(FINAL_WORDS)
    return [WORDS[i % len(WORDS)] for i in range(scenario.deltas)]


def check(scenario: Scenario, answer: str, runs: int = 1) -> None:
    """Raises `SystemExit` unless `runs` runs of the scenario gave the right answer, deltas and tool runs."""
    expected = words(scenario)
    wanted = (len(expected) * runs, len("".join(expected)) * runs, scenario.calls * scenario.steps * runs)
    seen = (tally.deltas, tally.chars, tally.tool_runs)
    if answer != "".join(expected):
        raise SystemExit(f"{scenario.name}: wrong answer {answer[:80]!r}")
    if seen != wanted:
        raise SystemExit(f"{scenario.name}: saw (deltas, characters, tool runs) {seen}, expected {wanted}")
