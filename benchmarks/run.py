"""Runs the benchmarks.

    python benchmarks/run.py                      everything, some fifteen minutes; writes RESULTS.md
    python benchmarks/run.py --quick              small and once, about two minutes; prints, writes nothing
    python benchmarks/run.py --peers              with other SDKs, installed on first use into benchmarks/.cache
    python benchmarks/run.py --only delta,step    only these metrics; prints, writes nothing
    python benchmarks/run.py --profile text-5000  where Treadle spends its time on one scenario

Scenarios of --profile: text-N, tools-CxN, scale-N; scripted-text-N and scripted-tools-CxN without HTTP; build-N.
Each measurement is a fresh process. Clients take turns, and every other round goes backwards, so that a busy machine
disturbs all of them alike.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import peers
import plan
import report
from clients import CLIENTS, PEERS
from figures import Results

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
TIMEOUT_SECONDS = 900


@contextlib.contextmanager
def running_server(interval_seconds: float = plan.INTERVAL_SECONDS) -> Iterator[str]:
    """The scripted server in a process of its own; gives the base URL."""
    command = [sys.executable, str(HERE / "server.py"), "--interval-seconds", str(interval_seconds)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        try:
            yield f"http://127.0.0.1:{server.stdout.readline().strip()}/v1"
        finally:
            server.communicate()


def measure(job: plan.Job, base_url: str) -> dict[str, Any]:
    """The figures of one job, from a fresh process. Raises `subprocess.SubprocessError` with its error output."""
    python = peers.python_of(job.client)
    if job.measure == "import":
        statement = job.options.get("imports", CLIENTS[job.client].imports)
        seconds, rss, *modules = _output([python, str(HERE / "import_probe.py"), statement]).split()
        return {"seconds": float(seconds), "bytes": int(rss), "modules": modules}
    options = dict(job.options)
    if job.measure != "scripted":
        options["client"] = job.client
    if job.measure not in ("scripted", "build"):
        options["base_url"] = base_url
    pairs = [f"{name}={value}" for name, value in options.items()]
    figures: dict[str, Any] = json.loads(_output([python, str(HERE / "child.py"), job.measure, *pairs]))
    return figures


def _output(command: list[str]) -> str:
    # Installed packages have their byte code; a process that may not keep it would compile the source every time.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False, env=environment
    )
    if done.returncode:
        reason = done.stderr.strip().splitlines() or ["no error output"]
        raise subprocess.SubprocessError(reason[-1])
    return done.stdout


def collect(groups: list[plan.Group], base_url: str) -> tuple[Results, list[str]]:
    """All figures by metric and client, one per round, and the failures in words."""
    results: Results = defaultdict(lambda: defaultdict(list))
    failures: list[str] = []
    for group in groups:
        for rep in range(group.reps):
            print(f"{group.title}: round {rep + 1} of {group.reps}", file=sys.stderr)
            for job in group.jobs if rep % 2 == 0 else reversed(group.jobs):
                try:
                    results[job.metric][job.client].append(measure(job, base_url))
                except subprocess.SubprocessError as error:
                    failures.append(f"{job.metric} of {job.client}: {error}")
                    print(f"failed: {failures[-1]}", file=sys.stderr)
    return results, failures


def chosen(groups: list[plan.Group], metrics: list[str]) -> list[plan.Group]:
    """The groups with only those jobs whose metric begins with one of `metrics`."""
    kept = [
        group._replace(jobs=[job for job in group.jobs if job.metric.startswith(tuple(metrics))]) for group in groups
    ]
    return [group for group in kept if group.jobs]


def profile(scenario: str, client: str) -> int:
    """Profiles a client on one scenario, in a child process."""
    with running_server() as base_url:
        options = [f"scenario={scenario}", f"base_url={base_url}", f"client={client}"]
        command = [sys.executable, str(HERE / "child.py"), "profile", *options]
        return subprocess.run(command, check=False).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small and once; writes nothing")
    parser.add_argument("--peers", action="store_true", help="also measure " + " and ".join(PEERS))
    parser.add_argument("--only", default="", help="metrics, with commas: their names begin like this")
    parser.add_argument("--profile", metavar="SCENARIO", help="profile Treadle on this scenario and stop")
    parser.add_argument("--client", default="treadle", choices=CLIENTS, help="whom to profile")
    arguments = parser.parse_args()
    if arguments.profile:
        return profile(arguments.profile, arguments.client)
    sizes = plan.QUICK if arguments.quick else plan.FULL
    names = PEERS if arguments.peers else ()
    groups = [group for group in plan.groups(sizes, names) if group.jobs]
    if arguments.only:
        groups = chosen(groups, arguments.only.split(","))
    with running_server() as base_url:
        results, failures = collect(groups, base_url)
    text = report.render(results, sizes, names, failures)
    print(text)
    if not arguments.quick and not arguments.only:
        (HERE / "RESULTS.md").write_text(text)
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
