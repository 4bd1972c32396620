"""The tools over `mycelium`, with a stand-in for the program that tells how it was called."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from support.loopback import BOUND
from treadle import Agent, ToolError
from treadle.testing import ScriptedModel, call
from treadle.toolkit._mycelium import MAX_OUTPUT_BYTES, mycelium

TELL = "import json, sys; print(json.dumps(sys.argv[1:]), end='')"


def stand_in(folder: Path, code: str = TELL, name: str = "mycelium") -> Path:
    folder.mkdir(exist_ok=True)
    program = folder / name
    program.write_text(f"#!{sys.executable} -IS\n{code}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    stand_in(tmp_path / "bin")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path


async def use(name: str, arguments: dict[str, Any], **options: Any) -> str:
    tools = {tool.name: tool for tool in mycelium(**options)}
    async with asyncio.timeout(BOUND):
        return await tools[name].invoke(json.dumps(arguments))


@pytest.mark.parametrize(
    ("name", "arguments", "argv"),
    [
        ("list_flows", {}, ["flow", "list"]),
        ("run_flow", {"name": "daily report"}, ["flow", "run", "daily report"]),
        ("search_memory", {"query": "what broke"}, ["memory", "search", "what broke", "--limit", "10"]),
        ("run_flow", {"name": "$(touch x); `id` && rm *"}, ["flow", "run", "$(touch x); `id` && rm *"]),
        ("search_memory", {"query": "a\nb 'c' \"d\" \\e é"}, ["memory", "search", "a\nb 'c' \"d\" \\e é", "--limit", "10"]),
    ],
)  # fmt: skip
async def test_each_tool_calls_the_program_with_whole_words(
    folder: Path, name: str, arguments: dict[str, Any], argv: list[str]
):
    assert json.loads(await use(name, arguments)) == argv


@pytest.mark.parametrize("value", ["-x", "--config=/etc/passwd", "--", " -x", "\t--help", "", "  ", "a\0b", "x" * 5000])
@pytest.mark.parametrize(("name", "key"), [("run_flow", "name"), ("search_memory", "query")])
async def test_what_could_be_an_option_or_is_no_word_is_refused_without_a_call(
    folder: Path, name: str, key: str, value: str
):
    stand_in(folder / "bin", f"open({str(folder / 'called')!r}, 'w')")
    with pytest.raises(ToolError, match=key):
        await use(name, {key: value})
    assert not (folder / "called").exists()


async def test_a_failure_tells_the_code_and_what_was_said(folder: Path):
    stand_in(folder / "bin", "import sys; print('out'); print('no such flow', file=sys.stderr); sys.exit(4)")
    with pytest.raises(ToolError, match="mycelium flow run failed with code 4: no such flow"):
        await use("run_flow", {"name": "x"})


async def test_no_output_and_too_much_output_are_told(folder: Path):
    stand_in(folder / "bin", "pass")
    assert await use("list_flows", {}) == "(no output)"
    stand_in(folder / "bin", "print('x' * 200_000)")
    assert (
        await use("list_flows", {}) == "x" * MAX_OUTPUT_BYTES + f"\n[cut: the first {MAX_OUTPUT_BYTES} bytes are shown]"
    )


async def test_a_flow_that_does_not_end_is_ended(folder: Path):
    os.mkfifo(folder / "pid")
    stand_in(
        folder / "bin", f"import os, signal\nopen({str(folder / 'pid')!r}, 'w').write(str(os.getpid()))\nsignal.pause()"
    )
    reading = asyncio.create_task(asyncio.to_thread((folder / "pid").read_text))
    with pytest.raises(ToolError, match="run_flow did not end within 1 seconds"):
        await use("run_flow", {"name": "x"}, timeout_seconds=1)
    pid = int(await asyncio.wait_for(reading, BOUND))
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_program_that_went_away_meanwhile_is_told(folder: Path):
    tools = mycelium()
    (folder / "bin" / "mycelium").unlink()
    with pytest.raises(ToolError, match="mycelium cannot be started"):
        await tools[0].invoke()


async def test_a_program_that_reads_gets_nothing(folder: Path):
    stand_in(folder / "bin", "import sys; print(repr(sys.stdin.read()), sys.stdin.isatty())")
    assert await use("list_flows", {}) == "'' False"


@pytest.mark.parametrize("path", ["", ".", "bin", ":bin:"])
def test_without_a_program_in_an_absolute_folder_there_are_no_tools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
):
    stand_in(tmp_path)
    stand_in(tmp_path / "bin")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", path)
    assert mycelium() == []


def test_a_file_that_cannot_be_run_is_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "mycelium").write_text("x")
    (tmp_path / "mycelium").chmod(0o644)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert mycelium() == []


def test_effects_are_declared_and_parameters_are_few(folder: Path):
    tools = mycelium()
    assert [(tool.name, tool.effect) for tool in tools] == [
        ("list_flows", "read"),
        ("run_flow", "external"),
        ("search_memory", "read"),
    ]
    assert [list(tool.input_schema["properties"]) for tool in tools] == [[], ["name"], ["query"]]


async def test_an_agent_runs_a_flow(folder: Path):
    model = ScriptedModel(call("run_flow", name="daily"), "done")
    result = await Agent(model, tools=mycelium()).run("go")
    assert '["flow", "run", "daily"]' in result.steps[0].results[0].content
