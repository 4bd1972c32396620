"""Compares `search_content` with ripgrep alone, on a tree of many files.

    python benchmarks/searching.py            20,000 files, best of 7 rounds
    python benchmarks/searching.py --files 2000 --rounds 3

A search starts a process of its own; ripgrep, where it is installed, only names the files that are then read. Clients
take turns, so that a busy machine disturbs all of them alike.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import subprocess
import tempfile
from pathlib import Path
from time import perf_counter

from treadle.toolkit import Workspace

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

    clients = {"treadle, built in": lambda: ours(False)}
    if shutil.which("rg"):
        command = ["rg", "--line-number", pattern, str(folder)]
        clients["treadle with ripgrep"] = lambda: ours(True)
        clients["ripgrep alone"] = lambda: subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
    for _ in range(rounds):
        for name, client in clients.items():
            begun = perf_counter()
            client()
            best[name] = min(best.get(name, 1e9), perf_counter() - begun)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description="search_content against ripgrep alone")
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        plant(Path(folder), arguments.files)
        for what, pattern in PATTERNS.items():
            best = measure(Path(folder), pattern, arguments.rounds)
            alone = best.get("ripgrep alone")
            for name, seconds in best.items():
                ratio = f"  {seconds / alone:5.2f} x" if alone else ""
                print(f"{what:<10} {name:<22} {seconds * 1000:8.0f} ms{ratio}")


if __name__ == "__main__":
    main()
