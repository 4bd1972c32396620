"""Compares `search_content` with ripgrep alone, on a tree of many files.

    python benchmarks/searching.py            20,000 files, best of 7 rounds; writes RESULTS-searching.md
    python benchmarks/searching.py --quick    2,000 files, best of 3; writes nothing

A search starts a process of its own; ripgrep, where it is installed, only names the files that are then read. Clients
take turns, so that a busy machine disturbs all of them alike.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime as dt
import os
import random
import shutil
import subprocess
import tempfile
from pathlib import Path
from time import perf_counter

from treadle.toolkit import Workspace

BUILT_IN, WITH, ALONE = "treadle, built in", "treadle with ripgrep", "ripgrep alone"
GOAL = 1.5
PATTERNS = {"a literal": r"needle_here", "a call": r"needle_\w+\(", "nothing": r"no_such_thing"}


def plant(folder: Path, files: int) -> None:
    """`files` files of 60 lines, 200 in a directory; every 400th has a match."""
    chance = random.Random(1)
    words = [f"word{number}" for number in range(2000)]
    (folder / ".gitignore").write_text("*.log\nbuild/\nnode_modules/\n__pycache__/\n")
    for number in range(files):
        place = folder / f"d{number // 200}"
        place.mkdir(exist_ok=True)
        lines = [" ".join(chance.choices(words, k=8)) for _ in range(60)]
        if number % 400 == 7:
            lines.append("def needle_here(x):")
        (place / f"f{number}.py").write_text("\n".join(lines) + "\n")


def measure(folder: Path, pattern: str, rounds: int) -> dict[str, float]:
    """The best time of each client, in seconds."""
    best: dict[str, float] = {}

    def ours(ripgrep: bool) -> None:
        search = Workspace(folder, ripgrep=ripgrep, search_seconds=120).read_only()[-1]
        asyncio.run(search.invoke({"pattern": pattern}))

    clients = {BUILT_IN: lambda: ours(False)}
    if shutil.which("rg"):
        command = ["rg", "--line-number", pattern, str(folder)]
        clients[WITH] = lambda: ours(True)
        clients[ALONE] = lambda: subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
    for _ in range(rounds):
        for name, client in clients.items():
            begun = perf_counter()
            client()
            best[name] = min(best.get(name, 1e9), perf_counter() - begun)
    return best


def page(files: int, rounds: int, found: dict[str, dict[str, float]]) -> str:
    """The figures as a page."""
    lines = [
        "# Results of `search_content`",
        "",
        f"Written by `benchmarks/searching.py` on {dt.datetime.now(dt.UTC).date()}; not edited by hand.",
        "",
        f"{files:,} files, best of {rounds} rounds; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end.",
        f"With ripgrep the goal is {GOAL} times ripgrep alone. Without it a search ends after 10 s by default.",
        "",
        "| pattern | client | ms | x ripgrep | |",
        "| --- | --- | --- | --- | --- |",
    ]
    for what, best in found.items():
        alone = best.get(ALONE)
        for name, seconds in best.items():
            ratio = seconds / alone if alone else None
            verdict = ("met" if ratio <= GOAL else "**missed**") if ratio and name == WITH else ""
            shown = "" if ratio is None else f"{ratio:.2f}"
            lines.append(f"| {what} | {name} | {seconds * 1000:.0f} | {shown} | {verdict} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="search_content against ripgrep alone")
    parser.add_argument("--quick", action="store_true", help="a small tree; writes nothing")
    quick = parser.parse_args().quick
    files, rounds = (2_000, 3) if quick else (20_000, 7)
    with tempfile.TemporaryDirectory() as folder:
        plant(Path(folder), files)
        text = page(files, rounds, {what: measure(Path(folder), one, rounds) for what, one in PATTERNS.items()})
    print(text)
    if not quick:
        Path(__file__).with_name("RESULTS-searching.md").write_text(text)


if __name__ == "__main__":
    main()
