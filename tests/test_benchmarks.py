"""The benchmarks measure what they say; no time is asserted here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
NEEDS = {
    "aiohttp": "aiohttp",
    "httpx2": "httpx2",
    "httpx2-keepalive": "httpx2",
    "openai": "openai",
    "openai-responses": "openai",
    "anthropic": "anthropic",
    "google-genai": "google.genai",
    "httpx2-anthropic": "httpx2",
    "httpx2-responses": "httpx2",
    "httpx2-google": "httpx2",
    "treadle": "treadle",
    "treadle-anthropic": "treadle",
    "treadle-responses": "treadle",
    "treadle-google": "treadle",
    "treadle-aiohttp": "aiohttp",
}


@pytest.fixture(scope="module")
def base_url():
    command = [sys.executable, str(BENCHMARKS / "server.py"), "--interval-seconds", "0.1"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        try:
            yield f"http://127.0.0.1:{server.stdout.readline().strip()}/v1"
        finally:
            server.communicate(timeout=10)
    assert server.returncode == 0


def measured(*arguments):
    command = [sys.executable, str(BENCHMARKS / "child.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("client", NEEDS)
def test_every_client_of_the_benchmarks_comes_back_with_the_right_answer(base_url, client):
    pytest.importorskip(NEEDS[client])

    figures = measured("cost", f"client={client}", f"base_url={base_url}", "scenario=tools-8x2", "repeat=2")

    assert figures["seconds"] > 0


def test_simultaneous_paced_runs_have_a_steady_window(base_url):
    options = [f"base_url={base_url}", "scenario=paced-12", "runs=4", "interval_seconds=0.1"]

    figures = measured("paced", "client=treadle", *options)

    assert figures["seconds"] > 0


def test_a_missing_delta_is_noticed():
    code = "import scenarios as s; s.tally.text(' the'); s.check(s.parse('text-2'), ' the deploy')"

    done = subprocess.run(
        [sys.executable, "-c", code], cwd=BENCHMARKS, capture_output=True, text=True, timeout=60, check=False
    )

    assert done.returncode == 1
    assert "expected (2, 11, 0)" in done.stderr


def test_treadle_nests_at_most_three_generators_of_its_own_and_makes_no_task_per_delta(base_url):
    short, long = [
        measured("counts", "client=treadle", f"base_url={base_url}", f"scenario=text-{deltas}") for deltas in (50, 150)
    ]

    assert 1 <= long["our_generators"] <= 3
    assert long["tasks"] == short["tasks"]
    assert long["locks"] == short["locks"]
    assert long["queues"] == short["queues"] == 0


def test_treadle_encodes_as_much_in_a_late_step_as_in_an_early_one(base_url):
    few, more, most = [
        measured("counts", "client=treadle", f"base_url={base_url}", f"scenario=scale-{steps}")["encodes"]
        for steps in (10, 20, 30)
    ]

    assert more - few == most - more > 0
