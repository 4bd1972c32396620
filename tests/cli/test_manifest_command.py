"""`treadle manifest`."""

from __future__ import annotations

import json

import pytest

AGENTS = """
from treadle import Agent, tool
from treadle.testing import ScriptedModel

print("noise")

@tool(effect="read")
def look(path: str) -> str:
    "Look."
    return path

first = Agent(ScriptedModel(), name="first", tools=[look])
second = Agent(ScriptedModel(), name="second")
nameless = Agent(ScriptedModel())
"""


@pytest.fixture
def project(treadle):
    (treadle.folder / "project.py").write_text(AGENTS)
    return treadle


def test_the_manifest_of_agents_comes_out_and_nothing_else(project):
    outcome = project("manifest", "project:first", "project:second")
    assert outcome.code == 0
    assert [agent["name"] for agent in json.loads(outcome.out)["agents"]] == ["first", "second"]


def test_a_check_is_quiet_where_nothing_changed_and_shows_what_did(project):
    assert project("manifest", "project:first", "-o", "agents.json").code == 0
    assert project("manifest", "project:first", "--check", "agents.json") == (0, "", "noise\n")
    (project.folder / "project.py").write_text(AGENTS.replace("Look.", "Look twice."))
    outcome = project("manifest", "project:first", "--check", "agents.json")
    assert outcome.code == 1
    assert "Look twice." in outcome.out
    assert outcome.err.splitlines()[-1].startswith("treadle: agents.json is not what the agents are now")


def test_a_missing_file_fails_the_check_and_says_how_to_write_it(project):
    outcome = project("manifest", "project:first", "--check", "agents.json")
    assert outcome.code == 1
    assert outcome.err.splitlines()[-1] == "treadle: agents.json is missing; -o agents.json writes it"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("project:nameless",), "name"),
        (("project:first", "project:first"), "first"),
        (("project:look",), "not an Agent"),
        (("project:nothing",), "nothing"),
        (("project:first", "-o", "no/such/folder.json"), "No such file"),
        (("project:first", "--check", "."), "irectory"),
        (("project:first", "--check", "x", "-o", "y"), "not allowed with"),
    ],
)
def test_what_cannot_be_described_is_a_usage_error(project, arguments, said):
    outcome = project("manifest", *arguments)
    assert outcome.code == 2
    assert outcome.out == ""
    last = outcome.err.splitlines()[-1]
    assert last.startswith("treadle: ") and said in last
    assert "Traceback" not in outcome.err
