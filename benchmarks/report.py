"""From figures to a page: medians, ratios of the same round, goals met and missed."""

from __future__ import annotations

import datetime as dt
import math
import os
import platform
from typing import TYPE_CHECKING

import peers
from clients import CLIENTS, COMPARED, OVER_AIOHTTP
from figures import Count, Match, Results, Row, counts, matches, median, over_aiohttp, rows

if TYPE_CHECKING:
    from plan import Sizes

COUNTED = ("httpx2", "treadle")
# H on a quiet machine of two Xeon cores, CPython 3.11, 2026-11.
QUIET_US_PER_DELTA = 23.2


def ratio(row: Row | Match, floor: str, ours: str = "treadle") -> float:
    """Treadle's multiple of a floor: the median over rounds, each against the floor of its own round."""
    pairs = zip(row.samples(ours), row.samples(floor), strict=False)
    return median([our / their for our, their in pairs if their])


def verdict(row: Row | Match, floor: str = "httpx2", ours: str = "treadle") -> str:
    """Whether Treadle reached the goal of this line."""
    if not row.goal:
        return ""
    reached = ratio(row, floor, ours) if row.goal.of_h else median(row.samples(ours))
    return _met(reached, row.goal.limit)


def _met(reached: float, limit: float) -> str:
    return "met" if reached <= limit else "**missed**"


def _times(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.2f}"


def _table(header: list[str], lines: list[list[str]]) -> str:
    rule = ["---"] * len(header)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [header, rule, *lines])


def _cell(values: list[float], digits: int) -> str:
    if not values:
        return ""
    middle = f"{median(values):,.{digits}f}"
    return middle if len(values) == 1 else f"{middle} ({min(values):,.{digits}f}-{max(values):,.{digits}f})"


def goals_table(every: list[Row]) -> str:
    """Treadle against the floors and its goals."""
    lines = []
    for row in every:
        if ours := row.samples("treadle"):
            multiples = [ratio(row, floor) for floor in ("httpx2", "aiohttp")]
            shown = [_cell(ours, row.digits), *map(_times, multiples)]
            lines.append([row.title, *shown, str(row.goal or ""), verdict(row)])
    return _table(["", "Treadle", "x H", "x F", "must reach", ""], lines)


def contests_table(every: list[Match]) -> str:
    """On every wire: Treadle, the vendor's own client, the bare reader."""
    lines = []
    for match in every:
        _, bare, official, ours = match.contest
        shown = [_cell(match.samples(name), match.digits) for name in (ours, official, bare)]
        multiples = [_times(ratio(match, bare, ours)), _times(ratio(match, official, ours))]
        title = f"{match.contest.label}: {match.title}"
        lines.append([title, *shown, *multiples, str(match.goal), verdict(match, bare, ours)])
    return _table(["", "Treadle", "official client", "H", "x H", "x official", "must reach", ""], lines)


def over_aiohttp_table(every: list[Row]) -> str:
    """Treadle on aiohttp's connections."""
    lines = []
    for row in every:
        shown = [_cell(row.samples(name), row.digits) for name in (OVER_AIOHTTP, "treadle", "aiohttp")]
        times = ratio(row, "aiohttp", OVER_AIOHTTP)
        goal = [f"<= {row.goal.limit:g} F", _met(times, row.goal.limit)] if row.goal else ["", ""]
        lines.append([row.title, *shown, _times(times), *goal])
    return _table(["", "over aiohttp", "over httpx2", "F", "x F", "must reach", ""], lines)


def clients_table(every: list[Row], names: list[str]) -> str:
    """Everybody's figures."""
    lines = [[row.title, *[_cell(row.samples(name), row.digits) for name in names]] for row in every]
    return _table(["", *[CLIENTS[name].label for name in names]], lines)


def counts_table(every: list[Count], names: list[str]) -> str:
    """The operation counts of Treadle and of the floor it is compared with."""

    def written(count: Count, name: str) -> str:
        value = count.value(name)
        return "" if math.isnan(value) else f"{value:{count.form}}"

    def reached(count: Count) -> str:
        if not count.goal or math.isnan(count.value("treadle")):
            return ""
        return f"{count.goal}: {_met(count.value('treadle'), count.goal.limit)}"

    lines = [[count.title, *[written(count, name) for name in names], reached(count)] for count in every]
    return _table(["", *[CLIENTS[name].label for name in names], "must reach"], lines)


def environment(names: list[str]) -> str:
    """Versions and machine, without its name."""
    ours = ("aiohttp", "anthropic", "google-genai", "httpx2", "msgspec", "openai", "pydantic", "treadle")
    versions = [f"{each} {peers.version_of('treadle', each)}" for each in ours]
    for name in names:
        if CLIENTS[name].requires:
            alongside = [f"{each} {peers.version_of(name, each)}" for each in ("openai", "pydantic")]
            distribution = CLIENTS[name].distribution
            versions.append(f"{distribution} {peers.version_of(name, distribution)} (with {', '.join(alongside)})")
    machine = f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()} {platform.release()}"
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{python}; {machine}; load {os.getloadavg()[0]:.1f} at the end.\n\n{', '.join(versions)}."


def quietness(results: Results, sizes: Sizes) -> str:
    """H in this run beside H on a quiet machine; empty where H was not measured."""
    seen = [one["seconds"] / sizes.deltas * 1e6 for one in results["delta"]["httpx2"]]
    if not seen:
        return ""
    return (
        f"H took {median(seen):.1f} us per text delta; on the quiet machine where the goals were set it took "
        f"{QUIET_US_PER_DELTA}. The farther apart, the less a goal in seconds says here: multiples of H, memory and "
        "counts hold anyway."
    )


def _wires(results: Results, sizes: Sizes) -> list[str]:
    parts = []
    if every := matches(results, sizes):
        parts += ["## Every wire, beside the vendor's own client", contests_table(every)]
    if lines := [row for row in over_aiohttp(results, sizes) if row.samples(OVER_AIOHTTP)]:
        parts += ["## Over aiohttp", over_aiohttp_table(lines)]
    return parts


def render(results: Results, sizes: Sizes, peer_names: tuple[str, ...], failures: list[str]) -> str:
    """The whole page."""
    every = rows(results, sizes)
    names = [name for name in COMPARED if not CLIENTS[name].requires or name in peer_names]
    today = dt.datetime.now(dt.UTC).date()
    parts = [
        "# Results",
        f"Written by `benchmarks/run.py` on {today}; not edited by hand. `README.md` beside it says how to read this.",
        environment(names),
        quietness(results, sizes),
        "## Goals",
        goals_table(every),
        *_wires(results, sizes),
        "## All clients",
        "Medians over the rounds (smallest-largest).",
        clients_table(every, names),
    ]
    if counted := [name for name in COUNTED if results["counts-text-1000"][name]]:
        parts += ["## Operation counts", "The load of the machine does not change these."]
        parts.append(counts_table(counts(results), counted))
    if failures:
        parts += ["## Failures", "\n".join(f"- {failure}" for failure in failures)]
    return "\n\n".join(part for part in parts if part) + "\n"
