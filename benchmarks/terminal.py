"""Measures the terminal client: `treadle` in a pseudo-terminal, against a stream of Markdown on loopback. Needs Linux.

    python benchmarks/terminal.py             three rounds, some two minutes; writes RESULTS-terminal.md
    python benchmarks/terminal.py --quick     one short round; prints, writes nothing

A keystroke is timed from its write into the pseudo-terminal to the read in which the terminal gets the character to
draw: the characters typed are none of the answer's. The terminal's own drawing is not in the figure, and its emulator
rests while a key is timed. CPU is that of the client's process, all threads. The server has a process of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime as dt
import importlib.metadata
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests")]

from server import HEAD, Connection, Stats  # noqa: E402 - both folders are no packages
from wires import wire_of  # noqa: E402

from support.terminal import Terminal, environment, python  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

TOKENS_PER_SECOND = 200
KEYS_PER_SECOND = 8
SECTION = """\
## What the event log holds

Every run emits **numbered events**; `seq` has no gaps. A store keeps them, a *screen* folds them, and nothing is
written twice. Some words in 中文 and a few more to fill the line, so that paragraphs wrap as they do in answers.

- the first item, with `code` in it
- the second, which is longer than the first and goes on to say why
- the third

```python
async def search(query: str, limit: int = 10) -> list[str]:
    \"\"\"Find events that match.\"\"\"
    return [event async for event in log if query in event.text][:limit]
```

| column | meaning |
| --- | --- |
| seq | the number of the event |
| run_id | whose event it is |

"""
# One character each, in no word above.
TYPED = [chr(code) for code in (*range(0x3B1, 0x3CA), *range(0x430, 0x450))]


class Goal(NamedTuple):
    title: str
    unit: str
    limit: float | None


GOALS = {
    "p95": Goal("keystroke to screen at 200 token/s, 95th percentile", "ms", 50),
    "median": Goal("the same, median", "ms", None),
    "longest": Goal("the same, longest", "ms", None),
    "typing": Goal("CPU at 200 token/s and 8 keys/s", "% of a core", None),
    "streaming": Goal("CPU at 200 token/s", "% of a core", 15),
    "written": Goal("written to the terminal then", "KB/s", None),
    "idle": Goal("CPU at an idle prompt", "% of a core", None),
    "start": Goal("start to prompt", "ms CPU", 400),
    "memory": Goal("resident at the prompt", "MB", None),
}
HEAVY = ("httpx2", "httpcore2", "pydantic", "pydantic_core", "mcp")


# The server's side


def tokens(count: int) -> list[str]:
    """Words with the blank before them, as models send them: an answer of `count` pieces."""
    pieces = SECTION.replace(" ", "\0 ").replace("\n", "\0\n").split("\0")
    return [pieces[i % len(pieces)] for i in range(count)]


class Paced(Connection):
    """Streams as many tokens as the model's name says, `TOKENS_PER_SECOND` of them, by the clock."""

    def _answer(self, head: bytes, body: bytes) -> None:
        wire = wire_of(head.partition(b"\r\n")[0])
        assert wire
        count = int(body.partition(b'"tokens-')[2].partition(b'"')[0])
        answer = wire.text("m", tokens(count))
        self.transport.write(HEAD + b"".join(answer.opening))
        loop = asyncio.get_running_loop()
        begun, sent = loop.time(), 0

        def go_on() -> None:
            nonlocal sent
            due = min(count, int((loop.time() - begun) * TOKENS_PER_SECOND) + 1)
            for delta in answer.deltas[sent:due]:
                self.transport.write(delta)
            sent = due
            if sent == count:
                self.transport.write(b"".join(answer.ending))
            else:
                self.timer = loop.call_at(begun + sent / TOKENS_PER_SECOND, go_on)

        go_on()


async def serve() -> None:
    """Prints its port, and serves until standard input closes."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Paced(Stats(), 0), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


@contextlib.contextmanager
def running_server() -> Iterator[str]:
    command = [sys.executable, __file__, "--serve"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        try:
            yield f"http://127.0.0.1:{server.stdout.readline().strip()}/v1"
        finally:
            server.communicate()


# The client's side


class Watched(Terminal):
    """A terminal that can leave its emulator alone for a while, and knows what its program has cost."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.late: bytearray | None = None
        super().__init__(*arguments, **options)

    def cpu_seconds(self) -> float:
        threads = Path(f"/proc/{self.process.pid}/task").glob("*/schedstat")
        return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9

    def megabytes(self) -> float:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def take(self, piece: bytes) -> None:
        if self.late is None:
            super().take(piece)
        else:
            self.late += piece

    def key_seconds(self, key: str) -> float:
        """From the key to its character on the way to the screen."""
        self.late, wanted = bytearray(), key.encode()
        begun = time.perf_counter()
        self.feed(key)
        self.wait(lambda: wanted in (self.late or b""), f"{key!r} shown")
        seconds = time.perf_counter() - begun
        held, self.late = bytes(self.late), None
        self.take(held)
        return seconds

    def passes(self, seconds: float) -> None:
        """Reads on for so long."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.read(left)

    def share(self, seconds: float) -> float:
        """The client's part of a core in that time, in percent."""
        begun, before = time.perf_counter(), self.cpu_seconds()
        self.passes(seconds)
        return (self.cpu_seconds() - before) / (time.perf_counter() - begun) * 100


def client(folder: Path, base_url: str, count: int, **more: str) -> Watched:
    command = python("-m", "treadle", "chat", "-m", f"openai-chat:tokens-{count}", "--base-url", base_url)
    return Watched(command, folder, environment(folder, **more), columns=100, lines=30)


def at_prompt(terminal: Watched) -> None:
    """Waits for a prompt that takes a key."""
    terminal.wait(lambda: terminal.modes.paste, "the prompt")
    terminal.key_seconds("ω")


def start(folder: Path, base_url: str) -> dict[str, float]:
    terminal = client(folder, base_url, 1)
    try:
        at_prompt(terminal)
        figures = {"start": terminal.cpu_seconds() * 1000, "memory": terminal.megabytes()}
        terminal.passes(1)
        return {**figures, "idle": terminal.share(3)}
    finally:
        terminal.close()


def loaded(folder: Path, base_url: str) -> list[str]:
    """Those of `HEAVY` that are loaded when the prompt is there, told by a signal that only this run knows."""
    (folder / "sitecustomize.py").write_text(
        "import os, signal, sys\n"
        "def tell(*_):\n    open(os.environ['MODULES'], 'w').write('\\n'.join([*sys.modules, 'END']))\n"
        "signal.signal(signal.SIGUSR1, tell)\n"
    )
    told = folder / "modules"
    terminal = client(folder, base_url, 1, PYTHONPATH=str(folder), MODULES=str(told))
    try:
        at_prompt(terminal)
        os.kill(terminal.process.pid, signal.SIGUSR1)
        terminal.wait(lambda: told.exists() and told.read_text().endswith("END"), "the list of modules")
        return [name for name in HEAVY if name in told.read_text().split("\n")]
    finally:
        terminal.close()


def stream(folder: Path, base_url: str, seconds: int) -> dict[str, float]:
    """Half of the stream with nobody typing, half with somebody."""
    terminal = client(folder, base_url, TOKENS_PER_SECOND * (2 * seconds + 4))
    try:
        at_prompt(terminal)
        terminal.press("ctrl-u")
        terminal.feed("go\r")
        terminal.has("What the event log holds")
        terminal.passes(1)
        written = len(terminal.raw)
        figures = {"streaming": terminal.share(seconds)}
        figures["written"] = (len(terminal.raw) - written) / seconds / 1000
        begun, before = time.perf_counter(), terminal.cpu_seconds()
        took = [_paced_key(terminal, begun, number) for number in range(seconds * KEYS_PER_SECOND)]
        share = (terminal.cpu_seconds() - before) / (time.perf_counter() - begun) * 100
        p95 = statistics.quantiles(took, n=20)[-1]
        keys = {"p95": p95, "median": statistics.median(took), "longest": max(took)}
        return figures | {"typing": share} | {name: value * 1000 for name, value in keys.items()}
    finally:
        terminal.close()


def _paced_key(terminal: Watched, begun: float, number: int) -> float:
    """The keys have their own beat; a line that is full is emptied."""
    if number and number % len(TYPED) == 0:
        terminal.press("ctrl-u")
    terminal.passes(begun + number / KEYS_PER_SECOND - time.perf_counter())
    return terminal.key_seconds(TYPED[number % len(TYPED)])


# The page


def table(figures: dict[str, list[float]]) -> str:
    lines = ["| | Treadle | goal | |", "| --- | --- | --- | --- |"]
    for name, goal in GOALS.items():
        values = figures[name]
        middle = statistics.median(values)
        shown = f"{middle:.1f} ({min(values):.1f}-{max(values):.1f}) {goal.unit}"
        wanted = "" if goal.limit is None else f"< {goal.limit:g} {goal.unit}"
        verdict = "" if goal.limit is None else "met" if middle < goal.limit else "**missed**"
        lines.append(f"| {goal.title} | {shown} | {wanted} | {verdict} |")
    return "\n".join(lines)


def page(figures: dict[str, list[float]], heavy: list[str]) -> str:
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("prompt_toolkit", "rich", "treadle"))
    today = dt.datetime.now(dt.UTC).date()
    python = f"{platform.python_implementation()} {platform.python_version()}"
    machine = f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}"
    lines = [
        "# Results of the terminal client",
        f"Written by `benchmarks/terminal.py` on {today}; not edited by hand. The script says what is measured.",
        f"{python}; {machine}; load {os.getloadavg()[0]:.1f} at the end. {versions}.",
        "Medians over the rounds (smallest-largest).",
        table(figures),
        f"Loaded at the first prompt, of {', '.join(HEAVY)}: {', '.join(heavy) or 'none'}.",
    ]
    return "\n\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short round; writes nothing")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        asyncio.run(serve())
        return
    rounds, seconds = (1, 5) if arguments.quick else (3, 15)
    figures: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder, running_server() as base_url:
        heavy = loaded(Path(folder), base_url)
        for number in range(rounds):
            print(f"round {number + 1} of {rounds}", file=sys.stderr)
            for name, value in {**start(Path(folder), base_url), **stream(Path(folder), base_url, seconds)}.items():
                figures[name].append(value)
    text = page(figures, heavy)
    print(text)
    if not arguments.quick:
        (HERE / "RESULTS-terminal.md").write_text(text)


if __name__ == "__main__":
    main()
