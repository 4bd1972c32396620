from __future__ import annotations

import enum
import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from treadle import Agent, HasToolCall, HostedMCP, Limits, ModelSettings, Reasoning, StepCount, Tool, tool
from treadle.errors import ConfigError
from treadle.manifest import check, manifest, source_name
from treadle.testing import ScriptedModel, assert_matches_golden

MODEL = ScriptedModel(provider="scripted", name="one")


@tool(effect="read", idempotent=True, timeout_seconds=5)
def look(query: str, limit: int = 10) -> list[str]:
    """Look something up.

    Args:
        query: What to look for.
        limit: How many at most.
    """
    return [query] * limit


@tool(sequential=True)
async def send(to: str) -> None:
    """Send a letter."""


class Answer(msgspec.Struct):
    city: str


class Weather:
    """A toolset whose object has an address in its repr."""

    async def __aenter__(self):
        return self

    async def __aexit__(self, *exc_info):
        return None

    async def tools(self):
        return []


def brief(context):
    return "Be brief."


def is_enough(steps):
    return True


class Enough:
    def __call__(self, steps):
        return True


def described(**options):
    """What the manifest says of one agent with these options."""
    (entry,) = json.loads(manifest(Agent(MODEL, name="one", **options)))["agents"]
    return entry


def test_a_small_manifest_is_these_bytes():
    schema = {"type": "object", "required": ["to", "at"], "properties": {"to": {"type": "string"}, "at": {}}}
    post = Tool.raw("post", "Posts a letter.", schema, lambda arguments: "", sequential=True)
    lookup = Tool.raw("lookup", "Finds an address.", {"type": "object"}, lambda arguments: "", effect="read")
    agent = Agent(MODEL, name="clerk", instructions="Answer in é.", tools=[post, lookup], stop_when=HasToolCall("post"))
    assert_matches_golden(Path(__file__).parent / "golden" / "manifest.json", manifest(agent))


def test_tools_tell_what_the_model_reads_and_what_they_may_do():
    raw = Tool.raw("raw", "From outside.", {"type": "object"}, lambda arguments: "", effect="write")
    first, second, third = described(tools=[send, raw, look])["tools"]
    assert first == {
        "name": "look",
        "description": look.description,
        "input_schema": look.input_schema,
        "output_schema": look.output_schema,
        "effect": "read",
        "idempotent": True,
        "sequential": False,
        "timeout_seconds": 5,
        "source": "tests/test_manifest.py",
    }
    assert (second["name"], second["effect"], second["input_schema"]) == ("raw", "write", {"type": "object"})
    assert (third["name"], third["effect"], third["sequential"]) == ("send", "external", True)
    assert "timeout_seconds" not in third


def test_the_order_of_agents_and_tools_does_not_matter():
    one, two = Agent(MODEL, name="one", tools=[look, send]), Agent(MODEL, name="two")
    again = Agent(MODEL, name="one", tools=[send, look])
    assert manifest(one, two) == manifest(two, again)


def test_options_that_are_set_are_told_and_others_left_out():
    entry = described(
        reasoning=Reasoning(effort="low"),
        settings=ModelSettings(temperature=0.5, stop_sequences=("END",)),
        limits=Limits(steps=7, seconds=1.5),
        parallelism=2,
        max_output_tokens=100,
        max_result_bytes=0,
        toolsets=[Weather()],
    )
    assert entry == {
        "name": "one",
        "model": "scripted:one",
        "output": {"type": "str"},
        "reasoning": {"effort": "low", "show": False},
        "settings": {"temperature": 0.5, "stop_sequences": ["END"]},
        "limits": {"steps": 7, "seconds": 1.5},
        "parallelism": 2,
        "max_output_tokens": 100,
        "max_result_bytes": 0,
        "stop_when": [],
        "tools": [],
        "toolsets": [f"{Weather.__module__}.Weather"],
    }


def test_instructions_are_their_text_or_the_name_of_the_function():
    assert described(instructions="Be kind.")["instructions"] == "Be kind."
    assert described(instructions=brief)["instructions"] == {"function": f"{__name__}.brief"}
    named = described(instructions=functools.partial(brief))["instructions"]
    assert named == {"function": f"partial({__name__}.brief)"}


def test_stop_conditions_are_told_by_name():
    conditions = [HasToolCall("send"), StepCount(3), is_enough, Enough()]
    assert described(stop_when=conditions)["stop_when"] == [
        "HasToolCall(name='send')",
        "StepCount(count=3)",
        f"{__name__}.is_enough",
        f"{__name__}.Enough",
    ]


def test_an_output_type_is_told_with_the_schema_the_model_gets():
    entry = described(output=dict[str, int])["output"]
    assert entry["schema"]["type"] == "object"
    assert "type" not in entry

    class Colour(enum.Enum):
        RED = "red"

    entry = described(output=Colour)["output"]
    assert entry["type"].endswith(".Colour")
    assert entry["schema"]["properties"]["value"]["enum"] == ["red"]


def test_hosted_tools_are_told_without_their_tokens():
    servers = [
        HostedMCP("b", "https://example.org/b", "secret"),
        HostedMCP("a", "https://example.org/a", None, ("ask",)),
    ]
    told = described(hosted_mcp=servers, hosted_web_search=True)
    assert told["hosted_mcp"] == [
        {"name": "a", "url": "https://example.org/a", "allowed_tools": ["ask"]},
        {"name": "b", "url": "https://example.org/b", "allowed_tools": []},
    ]
    assert told["hosted_web_search"] is True


def test_secrets_stay_out():
    settings = ModelSettings(extra_headers={"X-Key": "s3cret"}, extra_body={"user": {"token": "s3cret"}})
    agent = Agent(MODEL, name="one", settings=settings)
    assert b"s3cret" not in manifest(agent)
    assert described(settings=settings)["settings"] == {"extra_body": ["user"], "extra_headers": ["X-Key"]}


def test_no_address_and_no_absolute_path_gets_in():
    agent = Agent(
        MODEL,
        name="one",
        tools=[look, Tool.raw("raw", "", {"type": "object"}, lambda arguments: "")],
        toolsets=[Weather()],
        instructions=lambda context: "x",
        stop_when=[Enough(), lambda steps: False],
    )
    text = manifest(agent).decode()
    assert " at 0x" not in text
    assert str(Path(__file__).parents[1]) not in text


def test_a_manifest_needs_an_agent():
    with pytest.raises(ConfigError, match=r"write manifest\(agent, ...\)"):
        manifest()


def test_something_else_than_an_agent_is_refused():
    with pytest.raises(ConfigError, match="made of agents, and 1 of 1 is Tool"):
        manifest(look)


def test_an_agent_without_a_name_is_refused_with_the_fix():
    with pytest.raises(ConfigError, match=r"agent 2 of 2 \(scripted:one\) has no name, .*: write Agent\(..., name="):
        manifest(Agent(MODEL, name="one"), Agent(MODEL))


def test_two_agents_of_one_name_are_refused():
    with pytest.raises(ConfigError, match="two agents of the manifest are named 'one'"):
        manifest(Agent(MODEL, name="one"), Agent(MODEL, name="one", instructions="Other."))


def test_check_is_silent_on_an_equal_manifest_also_with_other_line_ends():
    agent = Agent(MODEL, name="one", tools=[look])
    assert check(manifest(agent), agent) == ""
    assert check(manifest(agent).replace(b"\n", b"\r\n"), agent) == ""


def test_check_shows_what_changed():
    before = manifest(Agent(MODEL, name="one", parallelism=4))
    lines = check(before, Agent(MODEL, name="one", parallelism=1)).splitlines()
    assert lines[:2] == ["--- manifest", "+++ agents"]
    assert [line for line in lines[2:] if line[0] in "+-"] == ['-      "parallelism": 4,', '+      "parallelism": 1,']
    assert check(b"\xff", Agent(MODEL, name="one")).startswith("--- manifest")


PROGRAM = """
import sys
from typing import Literal
from treadle import Agent, tool
from treadle.manifest import manifest
from treadle.testing import ScriptedModel

@tool
def paint(colours: set[Literal["red", "green", "blue"]], names: frozenset[str] = frozenset({DEFAULT})) -> set[str]:
    "Paint."

sys.stdout.buffer.write(manifest(Agent(ScriptedModel(), name="painter", tools=[paint], stop_when=[lambda steps: False])))
"""


def written_by_several_processes(file):
    return {
        subprocess.run(
            [sys.executable, str(file)], env={**os.environ, "PYTHONHASHSEED": seed}, check=True, capture_output=True
        ).stdout
        for seed in ("0", "1", "2", "3")
    }


def test_every_process_writes_the_same_bytes(tmp_path):
    file = tmp_path / "program.py"
    file.write_text(PROGRAM.replace("{DEFAULT}", ""))
    (written,) = written_by_several_processes(file)
    assert json.loads(written)["agents"][0]["tools"][0]["source"] == "program.py"


def test_every_process_writes_the_same_bytes_for_a_default_that_is_a_set(tmp_path):
    file = tmp_path / "program.py"
    file.write_text(PROGRAM.replace("{DEFAULT}", "{'a', 'b', 'c', 'd', 'e'}"))
    assert len(written_by_several_processes(file)) == 1


def test_a_source_is_relative_to_the_nearest_project(tmp_path):
    outer, inner = tmp_path / "outer", tmp_path / "outer" / "packages" / "inner"
    (inner / "src").mkdir(parents=True)
    (outer / ".git").mkdir()
    in_outer, in_inner = outer / "packages" / "a.py", inner / "src" / "b.py"
    for file in (in_outer, in_inner):
        file.touch()
    assert source_name(str(in_inner)) == "packages/inner/src/b.py"
    (inner / "pyproject.toml").touch()
    assert source_name(str(in_inner)) == "src/b.py"
    assert source_name(str(in_outer)) == "packages/a.py"


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("/project/.venv/lib/python3.11/site-packages/pack/tools.py", "pack.tools"),
        ("/usr/lib/python3/dist-packages/pack/__init__.py", "pack"),
        ("/site-packages/x/site-packages/single.py", "single"),
        ("/somewhere/that/is/not/there.py", "there.py"),
        ("<string>", "<string>"),
    ],
)
def test_a_source_outside_a_project_is_a_module_or_a_bare_name(file, name):
    assert source_name(file) == name
