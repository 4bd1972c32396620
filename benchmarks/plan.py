"""What is measured, how often and at which size: a list of jobs for a quick or a full run."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from clients import CONTESTS, OVER_AIOHTTP

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FLOORS = ("aiohttp", "httpx2")
OWN_ENVIRONMENT = (*FLOORS, "httpx2-keepalive", "openai", "treadle")


class Sizes(NamedTuple):
    """How big a run is. `paced` is (runs, deltas per run)."""

    reps: int
    contest_reps: int
    deltas: int
    repeat: int
    steps: int
    steps_parallel: int
    scale: tuple[int, ...]
    scale_reps: int
    paced: tuple[int, int]
    paced_reps: int
    long_steps: int


FULL = Sizes(5, 3, 5000, 3, 50, 20, (50, 200, 800), 3, (500, 15), 2, 5000)
QUICK = Sizes(1, 1, 5000, 1, 50, 10, (50, 200), 1, (100, 8), 1, 0)

INTERVAL_SECONDS = 1.0
# Slow clients need longer to open all their runs, so theirs must last longer to have a steady part.
SLOW_PACED_DELTAS = 35
# The openai client walks the whole history at each step: 800 steps cost it two minutes of CPU.
SLOW_SCALE_LIMIT = 200


class Job(NamedTuple):
    """One measurement: `metric` names what it is for, `options` go to the child process."""

    metric: str
    client: str
    measure: str
    options: Mapping[str, str] = MappingProxyType({})


class Group(NamedTuple):
    """Jobs that are compared with one another, and how often they take turns."""

    title: str
    jobs: list[Job]
    reps: int


def groups(sizes: Sizes, peers: tuple[str, ...]) -> list[Group]:
    """All groups of a run, in order."""
    everyone, others = (*OWN_ENVIRONMENT, *peers), CONTESTS[1:]
    text, step = f"text-{sizes.deltas}", f"tools-1x{sizes.steps}"
    return [
        Group("text deltas", _costs("delta", text, (*everyone, OVER_AIOHTTP), sizes.repeat), sizes.reps),
        Group("steps of one call", _costs("step", step, (*everyone, OVER_AIOHTTP)), sizes.reps),
        *[
            group
            for label, *names in others
            for group in (
                Group(f"text deltas, {label}", _costs("delta", text, tuple(names), sizes.repeat), sizes.contest_reps),
                Group(f"steps of one call, {label}", _costs("step", step, tuple(names)), sizes.contest_reps),
            )
        ],
        Group("steps of 8 calls", _costs("step8", f"tools-8x{sizes.steps_parallel}", everyone), sizes.reps),
        Group("growing history", _scale(sizes, (*FLOORS, "treadle")), sizes.scale_reps),
        Group("growing history, slow clients", _scale(sizes, ("openai", *peers), SLOW_SCALE_LIMIT), 1),
        Group("paced runs", _paced(sizes, (*FLOORS, "treadle"), sizes.paced[1]), sizes.paced_reps),
        Group(
            "paced runs, slow clients", _paced(sizes, ("openai", *peers), SLOW_PACED_DELTAS) if sizes is FULL else [], 1
        ),
        Group("imports", _imports(everyone), sizes.reps),
        Group("first delta", _first(everyone), sizes.reps),
        Group(
            "first delta, other wires",
            _first([name for _, *names in CONTESTS[1:] for name in names]),
            sizes.contest_reps,
        ),
        Group("in process", _in_process(peers), sizes.reps),
        Group("counts", _counts(), 1),
        Group("a long run", _costs("long", f"scale-{sizes.long_steps}", ("treadle",)) if sizes.long_steps else [], 1),
    ]


def _costs(metric: str, scenario: str, names: tuple[str, ...], repeat: int = 1) -> list[Job]:
    return [Job(metric, name, "cost", {"scenario": scenario, "repeat": str(repeat)}) for name in names]


def _scale(sizes: Sizes, names: tuple[str, ...], limit: int = 0) -> list[Job]:
    steps = [each for each in sizes.scale if not limit or each <= limit]
    return [job for each in steps for job in _costs(f"scale-{each}", f"scale-{each}", names)]


def _paced(sizes: Sizes, names: tuple[str, ...], deltas: int) -> list[Job]:
    options = {"scenario": f"paced-{deltas}", "runs": str(sizes.paced[0]), "interval_seconds": str(INTERVAL_SECONDS)}
    return [Job("paced", name, "paced", options) for name in names]


def _imports(names: tuple[str, ...]) -> list[Job]:
    base = [
        Job("import-bare", "treadle", "import", {"imports": "pass"}),
        Job("import-base", "treadle", "import", {"imports": "import asyncio, msgspec"}),
        Job("import-names", "treadle", "import", {"imports": "from treadle import Agent, tool"}),
    ]
    return base + [Job("import", name, "import") for name in names]


def _first(names: Iterable[str]) -> list[Job]:
    return [Job("first", name, "first", {"scenario": "text-20"}) for name in names]


def _in_process(peers: tuple[str, ...]) -> list[Job]:
    jobs = [
        Job("scripted-text", "treadle", "scripted", {"scenario": "text-5000"}),
        Job("scripted-steps", "treadle", "scripted", {"scenario": "tools-1x50"}),
    ]
    for name in ("treadle", *peers):
        jobs.append(Job("build", name, "build", {"count": "20", "warm_up": "yes"}))
        jobs.append(Job("build-cold", name, "build", {"count": "20"}))
    return jobs


def _counts() -> list[Job]:
    scenarios = ("text-1000", "text-2000", "tools-1x50", "tools-1x100")
    return [
        Job(f"counts-{scenario}", name, "counts", {"scenario": scenario})
        for name in ("httpx2", "treadle")
        for scenario in scenarios
    ]
