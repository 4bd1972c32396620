"""Where Treadle spends its time on one scenario: by package and module, then by function. Warm-up is not in it."""

from __future__ import annotations

import cProfile
import pstats
import sys
from collections import Counter
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import clients
import inprocess
from scenarios import tally

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

SHOWN_FUNCTIONS = 45
SHOWN_PLACES = 25


async def profile(scenario: str, base_url: str, client: str) -> dict[str, Any]:
    """Prints the profile on standard error. `scripted-...` and `build-N` need no server."""
    work = await _prepared(scenario, base_url, client)
    profiler = cProfile.Profile()
    with profiler:
        await work()
    stats = pstats.Stats(profiler, stream=sys.stderr)
    places = by_place(stats)
    whole = sum(places.values())
    print(f"{whole:.3f} s under the profiler, which makes calls dearer than they are", file=sys.stderr)
    for place, seconds in places.most_common(SHOWN_PLACES):
        print(f"{seconds:8.3f} s {seconds / whole:6.1%}  {place}", file=sys.stderr)
    stats.sort_stats("tottime").print_stats(SHOWN_FUNCTIONS)
    return {"seconds": whole}


async def _prepared(scenario: str, base_url: str, name: str) -> Callable[[], Awaitable[object]]:
    kind, _, rest = scenario.partition("-")
    if kind == "scripted":
        return await inprocess.prepared(rest)
    if kind == "build":
        build = inprocess.agent_builder("treadle", int(rest), warm_up=True)

        async def built() -> object:
            return build()

        return built
    client = clients.connect(name, base_url)
    await client.run("text-100", lambda _: None)
    return lambda: client.run(scenario, tally.text)


def by_place(stats: pstats.Stats) -> Counter[str]:
    """Own time by package, by module within Treadle; that of built-in functions counts for who called them."""
    places: Counter[str] = Counter()
    figures: dict[tuple[str, int, str], Any] = stats.stats  # type: ignore[attr-defined]
    for (path, _, _), (_, _, own, _, callers) in figures.items():
        if path != "~" or not callers:
            places[_place(path)] += own
            continue
        for (caller_path, _, _), (_, _, share, _) in callers.items():
            places[_place(caller_path)] += share
    return places


def _place(path: str) -> str:
    parts = PurePath(path).with_suffix("").parts
    for name in ("treadle", "asyncio"):
        if name in parts:
            begin = len(parts) - 1 - parts[::-1].index(name)
            return ".".join(parts[begin:]) if name == "treadle" else name
    if "site-packages" in parts:
        return parts[parts.index("site-packages") + 1]
    if PurePath(path).parent == PurePath(__file__).parent:
        return "benchmarks"
    return "the standard library" if len(parts) > 1 else path
