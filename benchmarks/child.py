"""One measurement in a fresh process; prints its figures as one line of JSON. Started by `run.py`.

    python child.py cost   client=... base_url=http://127.0.0.1:1/v1 scenario=text-5000 [warm_up=text-100] [repeat=3]
    python child.py paced  client=... base_url=... scenario=paced-15 runs=500 interval_seconds=1.0
    python child.py first  client=... base_url=... scenario=text-20
    python child.py counts client=... base_url=... scenario=tools-1x50
    python child.py scripted scenario=text-5000
    python child.py build client=... count=20 [warm_up=yes]
    python child.py profile scenario=NAME [base_url=...] [client=...]

All costs are CPU time of this whole process. Modules are loaded where they are needed: what a client does not load
itself must not be in its figures.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from typing import TYPE_CHECKING, Any

import scenarios
from scenarios import tally

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from clients import Client

PAGE_BYTES = 4096
MINIMAL_WINDOW_INTERVALS = 3.0


def rss_bytes() -> int:
    """Resident memory of this process now."""
    with open("/proc/self/statm", "rb") as file:  # noqa: PTH123  (pathlib would be loaded for this alone)
        return int(file.read().split()[1]) * PAGE_BYTES


def connect(client: str, base_url: str) -> Client:
    import clients

    return clients.connect(client, base_url)


async def cost(
    client: str, base_url: str, scenario: str, warm_up: str = "text-100", repeat: str = "1"
) -> dict[str, Any]:
    """CPU seconds of one run, a warm-up run excluded."""
    connected = connect(client, base_url)
    if warm_up:
        await connected.run(warm_up, lambda _: None)
    tally.clear()
    gc.collect()
    begin = time.process_time()
    for _ in range(int(repeat)):
        answer = await connected.run(scenario, tally.text)
    seconds = (time.process_time() - begin) / int(repeat)
    await connected.aclose()
    scenarios.check(scenarios.parse(scenario), answer, int(repeat))
    return {"seconds": seconds}


class Window:
    """The steady part of many paced runs: from the last run's second delta to the first run's last one."""

    def __init__(self, runs: int, deltas: int) -> None:
        self.deltas = deltas
        self.counts = [0] * runs
        self.not_open = runs
        self.begin: tuple[float, float, int] | None = None
        self.end: tuple[float, float, int] | None = None
        self.rss = 0

    def text(self, run: int, text: str) -> None:
        """Notes one delta of a run."""
        tally.text(text)
        self.counts[run] += 1
        if self.counts[run] == 2:
            self.not_open -= 1
            if not self.not_open:
                self.begin = self._now()
        elif self.counts[run] == self.deltas and not self.end:
            self.end = self._now()
            self.rss = rss_bytes()

    def _now(self) -> tuple[float, float, int]:
        return time.perf_counter(), time.process_time(), tally.deltas

    def cpu_per_delta(self, interval_seconds: float) -> float:
        """CPU seconds per delta in the window. Raises `SystemExit` where the window is too short to say anything."""
        if not self.begin or not self.end or self.end[0] - self.begin[0] < MINIMAL_WINDOW_INTERVALS * interval_seconds:
            raise SystemExit("the paced runs had no steady window: ask for more deltas or fewer runs")
        return (self.end[1] - self.begin[1]) / (self.end[2] - self.begin[2])


async def paced(client: str, base_url: str, scenario: str, runs: str, interval_seconds: str) -> dict[str, Any]:
    """CPU per delta and memory per run of many simultaneous runs; the starts are spread over two intervals."""
    count, interval = int(runs), float(interval_seconds)
    parsed = scenarios.parse(scenario)
    connected = connect(client, base_url)
    await connected.run("text-20", lambda _: None)
    gc.collect()
    before = rss_bytes()
    window = Window(count, parsed.deltas)
    tasks = []
    for run in range(count):
        tasks.append(asyncio.create_task(connected.run(scenario, lambda text, run=run: window.text(run, text))))  # type: ignore[misc]
        await asyncio.sleep(2 * interval / count)
    answers = set(await asyncio.gather(*tasks))
    await connected.aclose()
    if len(answers) != 1:
        raise SystemExit(f"{scenario}: the runs gave {len(answers)} different answers")
    scenarios.check(parsed, answers.pop(), count)
    return {"seconds": window.cpu_per_delta(interval), "bytes": (window.rss - before) / count}


async def first(client: str, base_url: str, scenario: str) -> dict[str, Any]:
    """CPU seconds since the process started, and its memory, when the first text delta arrives."""
    seen: list[tuple[float, int]] = []

    def on_text(text: str) -> None:
        if not seen:
            seen.append((time.process_time(), rss_bytes()))
        tally.text(text)

    connected = connect(client, base_url)
    answer = await connected.run(scenario, on_text)
    await connected.aclose()
    scenarios.check(scenarios.parse(scenario), answer)
    return {"seconds": seen[0][0], "bytes": seen[0][1]}


async def counts(client: str, base_url: str, scenario: str) -> dict[str, Any]:
    import counting

    return await counting.count(connect(client, base_url), base_url, scenario)


async def scripted(scenario: str) -> dict[str, Any]:
    import inprocess

    return await inprocess.scripted(scenario)


async def build(count: str, client: str = "treadle", warm_up: str = "") -> dict[str, Any]:
    import inprocess

    return inprocess.agent_cost(client, int(count), bool(warm_up))


async def profile(scenario: str, base_url: str = "", client: str = "treadle") -> dict[str, Any]:
    import profiling

    return await profiling.profile(scenario, base_url, client)


MEASURES: dict[str, Callable[..., Coroutine[Any, Any, dict[str, Any]]]] = {
    "cost": cost,
    "paced": paced,
    "first": first,
    "counts": counts,
    "scripted": scripted,
    "build": build,
    "profile": profile,
}


def main() -> None:
    measure, *pairs = sys.argv[1:]
    options = dict(pair.split("=", 1) for pair in pairs)
    figures = asyncio.run(MEASURES[measure](**options))
    import json

    print(json.dumps(figures))


if __name__ == "__main__":
    main()
