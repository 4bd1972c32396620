from __future__ import annotations

import os
from importlib.metadata import entry_points

import pytest

pytest_plugins = ["pytester"]

INSTALLED = any(entry.value == "treadle.testing.plugin" for entry in entry_points(group="pytest11"))


@pytest.fixture
def run(pytester, monkeypatch):
    """Runs pytest with the plugin on the files of a project, and gives its result."""
    monkeypatch.delenv("TREADLE_MODEL_REQUESTS", raising=False)
    monkeypatch.delenv("TREADLE_UPDATE_GOLDEN", raising=False)
    loading = () if INSTALLED else ("-p", "treadle.testing.plugin")

    def start(*arguments):
        return pytester.runpytest(*loading, "-p", "no:asyncio", "-p", "no:cacheprovider", *arguments)

    return start


def test_a_golden_file_stands_beside_the_test_and_is_written_on_demand(pytester, run):
    folder = pytester.mkdir("suite")
    (folder / "test_it.py").write_text(
        """
def test_fixture(golden):
    golden("golden/answer.txt", "42\\n")

def test_function():
    from pathlib import Path
    from treadle.testing import assert_matches_golden
    assert_matches_golden(Path(__file__).parent / "golden" / "other.txt", b"43")
"""
    )
    missing = run()
    missing.assert_outcomes(failed=2)
    missing.stdout.fnmatch_lines(["*no golden file *answer.txt: run pytest --update-golden to write it, then read it"])
    run("--update-golden").assert_outcomes(passed=2)
    assert (folder / "golden" / "answer.txt").read_text() == "42\n"
    assert (folder / "golden" / "other.txt").read_text() == "43"
    run().assert_outcomes(passed=2)
    (folder / "golden" / "answer.txt").write_text("41\n")
    run().assert_outcomes(passed=1, failed=1)
    assert "TREADLE_UPDATE_GOLDEN" not in os.environ


def test_a_failing_golden_file_points_at_the_test_and_not_into_the_plugin(pytester, run):
    pytester.makepyfile("def test_it(golden):\n    golden('answer.txt', '42')\n")
    assert "def compare" not in run().stdout.str()


def test_a_scripted_model_must_be_used_up(pytester, run):
    pytester.makepyfile(
        """
import asyncio
from treadle.messages import UserMessage
from treadle.model import ModelRequest

def ask(model):
    async def drain():
        return [event async for event in model.stream(ModelRequest(None, (UserMessage("Hello"),)))]
    return asyncio.run(drain())

def test_used_up(scripted_model):
    model = scripted_model("one", name="mine")
    ask(model)
    assert model.name == "mine"

def test_left_over(scripted_model):
    ask(scripted_model("used"))
    ask(scripted_model("one", "two"))

def test_failed_already(scripted_model):
    scripted_model("one")
    assert False, "its own reason"
"""
    )
    result = run()
    result.assert_outcomes(passed=2, failed=1, errors=1)
    result.stdout.fnmatch_lines(["*AssertionError: 1 of 2 steps of the script were not asked for, the first*'two'"])


REPORT_GUARD = """
import os

def test_it():
    print("guard:", os.environ.get("TREADLE_MODEL_REQUESTS"))
"""


def test_model_requests_are_free_unless_somebody_forbids_them(pytester, run):
    pytester.makepyfile(REPORT_GUARD)
    run("-s").stdout.fnmatch_lines(["*guard: None*"])


def test_the_configuration_forbids_model_requests_for_the_session_and_no_longer(pytester, run):
    pytester.makeini("[pytest]\ntreadle_forbid_model_requests = true\n")
    pytester.makepyfile(REPORT_GUARD)
    run("-s").stdout.fnmatch_lines(["*guard: deny*"])
    assert "TREADLE_MODEL_REQUESTS" not in os.environ


def test_the_session_leaves_a_variable_as_it_found_it(pytester, run, monkeypatch):
    monkeypatch.setenv("TREADLE_MODEL_REQUESTS", "allow")
    pytester.makeini("[pytest]\ntreadle_forbid_model_requests = true\n")
    pytester.makepyfile(REPORT_GUARD)
    run("-s").stdout.fnmatch_lines(["*guard: deny*"])
    assert os.environ["TREADLE_MODEL_REQUESTS"] == "allow"


def test_the_fixture_forbids_model_requests_for_one_test(pytester, run):
    pytester.makepyfile(
        REPORT_GUARD
        + """
def test_guarded(forbid_model_requests):
    print("inside:", os.environ.get("TREADLE_MODEL_REQUESTS"))

def test_after():
    print("after:", os.environ.get("TREADLE_MODEL_REQUESTS"))
"""
    )
    run("-s").stdout.fnmatch_lines(["*guard: None*", "*inside: deny*", "*after: None*"])


def test_the_plugin_explains_its_option(run):
    run("--help").stdout.fnmatch_lines(["*--update-golden*write golden files instead*"])
