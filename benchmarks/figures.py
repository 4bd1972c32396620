"""The lines of the report: how each figure is computed, and what Treadle must reach."""

from __future__ import annotations

import itertools
import math
import statistics
from typing import TYPE_CHECKING, Any, NamedTuple

from clients import CLIENTS, CONTESTS, Contest

if TYPE_CHECKING:
    from collections.abc import Callable

    from plan import Sizes

Results = dict[str, dict[str, list[dict[str, Any]]]]
"""Metric, client, then the figures of each round."""

US = 1e6
MS = 1e3
KB = 1 / 1024
MB = 1 / 1024 / 1024

DELTA_RUNS = ("text-1000", "text-2000", 1000)
STEP_RUNS = ("tools-1x50", "tools-1x100", 50)


class Goal(NamedTuple):
    """The most that Treadle may take: `limit` as it stands, or times what H took in the same round."""

    limit: float
    of_h: bool = False

    def __str__(self) -> str:
        return f"<= {self.limit:g} H" if self.of_h else f"<= {self.limit:g}"


class Row(NamedTuple):
    """One line. `samples(client)` gives one value per round; `digits` follow the decimal point."""

    title: str
    samples: Callable[[str], list[float]]
    digits: int
    goal: Goal | None = None


class Match(NamedTuple):
    """One line of a contest: `samples(client)` gives one value per round."""

    contest: Contest
    title: str
    samples: Callable[[str], list[float]]
    digits: int
    goal: Goal


class Count(NamedTuple):
    """One line of the operation counts: `value(client)`, and how it is written."""

    title: str
    value: Callable[[str], float]
    form: str
    goal: Goal | None = None


def median(values: list[float]) -> float:
    """The median; not a number where there are no values."""
    return statistics.median(values) if values else math.nan


def rows(results: Results, sizes: Sizes) -> list[Row]:
    """All lines that were measured for at least one client."""
    every = [*_network_rows(results, sizes), *_start_rows(results), *_in_process_rows(results)]
    if sizes.long_steps:
        every.append(Row(f"{sizes.long_steps:,} growing steps, CPU s", _samples(results, "long", "seconds", 1), 1))
    return [row for row in every if any(row.samples(client) for client in CLIENTS)]


def _samples(results: Results, metric: str, key: str, factor: float) -> Callable[[str], list[float]]:
    return lambda client: [one[key] * factor for one in results[metric][client]]


def _network_rows(results: Results, sizes: Sizes) -> list[Row]:
    runs = sizes.paced[0]
    delta = _samples(results, "delta", "seconds", US / sizes.deltas)
    step = _samples(results, "step", "seconds", MS / sizes.steps)
    step8 = _samples(results, "step8", "seconds", MS / sizes.steps_parallel)
    return [
        Row(f"text delta, burst of {sizes.deltas:,}, us CPU", delta, 1, Goal(1.2, of_h=True)),
        Row(f"step of 1 call, {sizes.steps} steps, ms CPU", step, 2, Goal(1.5, of_h=True)),
        Row(f"step of 8 calls, {sizes.steps_parallel} steps, ms CPU", step8, 2, Goal(1.5, of_h=True)),
        *_scale_rows(results, sizes.scale),
        Row(f"paced delta, {runs} runs, us CPU", _samples(results, "paced", "seconds", US), 0, Goal(1.15, of_h=True)),
        Row(f"memory per run, {runs} runs, KB", _samples(results, "paced", "bytes", KB), 1, Goal(45)),
    ]


def matches(results: Results, sizes: Sizes) -> list[Match]:
    """All lines of all wires where Treadle was measured."""
    lines: list[tuple[str, Callable[[str], list[float]], int, Goal]] = [
        ("text delta, us CPU", _samples(results, "delta", "seconds", US / sizes.deltas), 1, Goal(1.2, of_h=True)),
        ("step of 1 call, ms CPU", _samples(results, "step", "seconds", MS / sizes.steps), 2, Goal(1.5, of_h=True)),
        ("process start to first delta, ms CPU", _samples(results, "first", "seconds", MS), 0, Goal(300)),
        ("process start to first delta, MB", _samples(results, "first", "bytes", MB), 1, Goal(45)),
    ]
    return [Match(contest, *line) for line in lines for contest in CONTESTS if line[1](contest.ours)]


def over_aiohttp(results: Results, sizes: Sizes) -> list[Row]:
    """The lines of Treadle on aiohttp's connections. Its goal is a multiple of F."""
    delta, step = _samples(results, "delta", "seconds", US / sizes.deltas), _samples(results, "step", "seconds", MS)
    return [
        Row("text delta, us CPU", delta, 1, Goal(4)),
        Row("step of 1 call, ms CPU", lambda client: [value / sizes.steps for value in step(client)], 2),
    ]


def _scale_rows(results: Results, sizes: tuple[int, ...]) -> list[Row]:
    def exponent(low: int, high: int) -> Callable[[str], list[float]]:
        def values(client: str) -> list[float]:
            pairs = zip(results[f"scale-{low}"][client], results[f"scale-{high}"][client], strict=False)
            return [math.log(b["seconds"] / a["seconds"]) / math.log(high / low) for a, b in pairs]

        return values

    totals = [
        Row(
            f"{steps} growing steps, CPU s",
            _samples(results, f"scale-{steps}", "seconds", 1),
            2,
            Goal(1.5) if steps == 800 else None,
        )
        for steps in sizes
    ]
    exponents = [
        Row(f"exponent of CPU, {low} to {high} steps", exponent(low, high), 2, Goal(1.4) if high == 800 else None)
        for low, high in itertools.pairwise(sizes)
    ]
    return totals + exponents


def _start_rows(results: Results) -> list[Row]:
    def above(metric: str, key: str, factor: float) -> Callable[[str], list[float]]:
        bare = median([one[key] for one in results["import-bare"]["treadle"]])
        return lambda client: [(one[key] - bare) * factor for one in results[metric][client]]

    def modules(client: str) -> list[float]:
        pairs = zip(results["import"][client], results["import-base"]["treadle"], strict=False)
        return [float(len(set(one["modules"]) - set(base["modules"]))) for one, base in pairs]

    return [
        Row("import, ms CPU over bare Python", above("import", "seconds", MS), 0, Goal(110)),
        Row("import, MB over bare Python", above("import", "bytes", MB), 1, Goal(20)),
        Row("import, modules beyond asyncio and msgspec", modules, 0, Goal(60)),
        Row("`from treadle import Agent, tool`, ms CPU", above("import-names", "seconds", MS), 0, Goal(110)),
        Row("`from treadle import Agent, tool`, MB", above("import-names", "bytes", MB), 1, Goal(20)),
        Row("process start to first delta, ms CPU", _samples(results, "first", "seconds", MS), 0, Goal(300)),
        Row("process start to first delta, MB", _samples(results, "first", "bytes", MB), 1, Goal(45)),
    ]


def _in_process_rows(results: Results) -> list[Row]:
    def per_event(client: str) -> list[float]:
        return [one["seconds"] / one["events"] * US for one in results["scripted-text"][client]]

    step = _samples(results, "scripted-steps", "seconds", MS / 50)
    return [
        Row("in process, us CPU per event", per_event, 2, Goal(3)),
        Row("in process, ms CPU per step of 1 call", step, 3),
        Row("agent with 20 tools, schemas ready, ms CPU", _samples(results, "build", "seconds", MS), 1, Goal(16)),
        Row("the same, pydantic not yet imported, ms CPU", _samples(results, "build-cold", "seconds", MS), 0),
    ]


def counts(results: Results) -> list[Count]:
    """The operation counts: what one more delta or one more step adds, and what a run has at its end."""

    def counted(scenario: str, client: str, key: str) -> float:
        seen = results[f"counts-{scenario}"][client]
        return float(seen[0][key]) if seen else math.nan

    def delta(*keys: str, per: int = 1) -> Callable[[str], float]:
        short, long, more = DELTA_RUNS
        return lambda client: sum(counted(long, client, key) - counted(short, client, key) for key in keys) / more * per

    def step(key: str) -> Callable[[str], float]:
        short, long, more = STEP_RUNS
        return lambda client: (counted(long, client, key) - counted(short, client, key)) / more

    def growth(key: str) -> Callable[[str], float]:
        def value(client: str) -> float:
            early = counted(STEP_RUNS[0], client, key)
            return (counted(STEP_RUNS[1], client, key) - early) / early if early else math.nan

        return value

    def total(scenario: str, key: str) -> Callable[[str], float]:
        return lambda client: counted(scenario, client, key)

    long_text, many_steps = DELTA_RUNS[1], STEP_RUNS[1]
    return [
        Count("Python calls per text delta", delta("python_calls"), ".1f"),
        Count("tasks per 1,000 text deltas", delta("tasks", per=1000), ".0f"),
        Count("timers per 1,000 text deltas", delta("timers", per=1000), ".0f"),
        Count("locks and queues per 1,000 text deltas", delta("locks", "queues", per=1000), ".0f"),
        Count("nested async generators at a delta, Treadle's", total(long_text, "our_generators"), ".0f", Goal(3)),
        Count("nested async generators at a delta, with httpx2's", total(long_text, "generators"), ".0f"),
        Count("Python calls per step of 1 call", step("python_calls"), ",.0f"),
        Count("the same, steps 51-100 over steps 1-50", growth("python_calls"), ".2f"),
        Count("msgspec encodings per step", step("encodes"), ".1f"),
        Count("the same, steps 51-100 over steps 1-50", growth("encodes"), ".2f"),
        Count("tasks per step", step("tasks"), ".1f"),
        Count("timers per step", step("timers"), ".1f"),
        Count("new connections of a run of 101 requests", total(many_steps, "connections"), ".0f"),
        Count("bytes that one more step adds to a body", step("last_body_bytes"), ",.0f"),
    ]
