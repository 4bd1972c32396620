"""The fixture `replayed`."""

from __future__ import annotations

import json
from importlib.metadata import entry_points

import pytest

pytest_plugins = ["pytester"]

INSTALLED = any(entry.value == "treadle.testing.plugin" for entry in entry_points(group="pytest11"))

SUITE = """
import os
from treadle import Agent
from treadle.testing import ScriptedModel

STEPS = ["Hello.", "Bye."]

def test_greeting(replayed):
    with replayed("recordings/greeting.jsonl"):
        assert Agent(ScriptedModel(*STEPS)).run_sync("Hi").text == "Hello."

def test_what_is_allowed(replayed):
    print("allowed:", os.environ.get("TREADLE_MODEL_REQUESTS"))
"""


@pytest.fixture
def run(pytester, monkeypatch):
    """Runs pytest with the plugin on the files of a project, and gives its result."""
    monkeypatch.delenv("TREADLE_MODEL_REQUESTS", raising=False)
    loading = () if INSTALLED else ("-p", "treadle.testing.plugin")

    def start(*arguments):
        return pytester.runpytest(*loading, "-p", "no:asyncio", "-p", "no:cacheprovider", "-s", *arguments)

    return start


def test_a_recording_stands_beside_the_test_and_is_made_on_demand(pytester, run):
    folder = pytester.mkdir("suite")
    suite = folder / "test_it.py"
    suite.write_text(SUITE)
    missing = run()
    missing.assert_outcomes(failed=1, passed=1)
    missing.stdout.fnmatch_lines(
        ["*there is no recording *greeting.jsonl: make it with pytest --record-model-requests"]
    )
    run("--record-model-requests").assert_outcomes(passed=2)
    lines = [json.loads(line) for line in (folder / "recordings" / "greeting.jsonl").read_text().splitlines()]
    assert [line.get("model") for line in lines] == [None, "scripted:scripted"]
    suite.write_text(SUITE.replace('["Hello.", "Bye."]', "[]"))
    run().assert_outcomes(passed=2)
    suite.write_text(SUITE.replace('"Hi"', '"Hello"'))
    run().stdout.fnmatch_lines(["*recorded 'Hi', now 'Hello'*"])


@pytest.mark.parametrize(("outside", "told"), [(None, ""), ("deny", "deny")])
def test_recording_on_demand_lifts_what_the_configuration_forbids_and_nothing_else(
    pytester, run, monkeypatch, outside, told
):
    pytester.makeini("[pytest]\ntreadle_forbid_model_requests = true\n")
    pytester.makepyfile(SUITE)
    if outside is not None:
        monkeypatch.setenv("TREADLE_MODEL_REQUESTS", outside)
    run("--record-model-requests").stdout.fnmatch_lines([f"*allowed: {told}*"])
    run().stdout.fnmatch_lines(["*allowed: deny*"])
