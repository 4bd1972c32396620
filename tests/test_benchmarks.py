from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
CLIENTS = {
    "aiohttp": "aiohttp",
    "httpx2": "httpx2",
    "httpx2-keepalive": "httpx2",
    "openai": "openai",
    "treadle": "treadle",
}


@pytest.fixture(scope="module")
def base_url():
    command = [sys.executable, str(BENCHMARKS / "server.py"), "--interval-seconds", "0.1"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        yield f"http://127.0.0.1:{server.stdout.readline().strip()}/v1"
        server.communicate(timeout=10)
    assert server.returncode == 0


def measured(*arguments):
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "child.py"), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("scenario", ["text-30", "tools-8x2", "scale-3"])
def test_every_benchmark_client_comes_back_with_the_right_answer(base_url, client, scenario):
    pytest.importorskip(CLIENTS[client])

    figures = measured("cost", f"client={client}", f"base_url={base_url}", f"scenario={scenario}", "repeat=2")

    assert figures["seconds"] > 0


def test_simultaneous_paced_runs_are_all_answered(base_url):
    options = [f"base_url={base_url}", "scenario=paced-8", "runs=5", "interval_seconds=0.1"]

    figures = measured("paced", "client=treadle", *options)

    assert figures["seconds"] > 0


def test_a_wrong_number_of_deltas_is_noticed(base_url):
    code = "import scenarios\nscenarios.tally.text(' the')\nscenarios.check(scenarios.parse('text-2'), ' the deploy')\n"

    done = subprocess.run(
        [sys.executable, "-c", code], cwd=BENCHMARKS, capture_output=True, text=True, timeout=60, check=False
    )

    assert done.returncode == 1
    assert "expected (2, 11, 0)" in done.stderr


def test_treadle_nests_at_most_three_generators_of_its_own_and_makes_nothing_per_delta(base_url):
    short, long = [
        measured("counts", "client=treadle", f"base_url={base_url}", f"scenario=text-{deltas}") for deltas in (100, 200)
    ]

    assert long["our_generators"] <= 3
    assert long["tasks"] == short["tasks"]
    assert long["queues"] == short["queues"] == 0


def test_a_step_encodes_as_many_messages_late_as_early(base_url):
    short, middle, long = [
        measured("counts", "client=treadle", f"base_url={base_url}", f"scenario=tools-1x{steps}")["encodes"]
        for steps in (10, 20, 30)
    ]

    assert middle - short == long - middle > 0
