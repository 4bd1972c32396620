"""`treadle mcp list`, `treadle mcp call` and `treadle run --mcp`, with servers as child processes."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.mcp_raw import wait_until
from support.program import BOUND, ChatServer, Outcome, Program, call, text, wait_for
from treadle.cli import main

TESTS = Path(__file__).resolve().parent.parent
PYTHONPATH = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
DEAD = {"command": sys.executable, "args": ["-c", "import sys; sys.exit('the key is missing')"]}


@pytest.fixture
def config(treadle: Program) -> Callable[..., str]:
    """Writes a configuration with a server of ours and others."""

    def write(**others: Any) -> str:
        ours = {
            "command": sys.executable,
            "args": ["-m", "treadle", "mcp", "serve", "support.mcp_offer:everything"],
            "env": {"PYTHONPATH": PYTHONPATH},
        }
        (treadle.folder / "mcp.json").write_text(json.dumps({"mcpServers": {"ours": ours, **others}}))
        return "mcp.json"

    return write


@pytest.fixture
def command(treadle: Program, monkeypatch, capsys) -> Callable[..., Outcome]:
    """The command in this process, where the SDK is loaded once."""
    monkeypatch.chdir(treadle.folder)
    monkeypatch.setenv("MY_TOKEN", "s3cret")

    def run(*arguments: str, input: str = "") -> Outcome:
        monkeypatch.setattr("sys.stdin", io.StringIO(input))
        code = main(arguments)
        return Outcome(code, *capsys.readouterr())

    return run


def test_list_shows_servers_and_tools(command, config):
    outcome = command("mcp", "list", config(dead=DEAD), "--server", "ours")
    lines = outcome.out.splitlines()
    assert (outcome.code, outcome.err) == (0, "")
    assert lines[0].startswith("ours: treadle ") and "MCP 2026-07-28, 17 tools" in lines[0]
    assert "  add (read) Adds two numbers." in lines


def test_a_server_that_does_not_start_is_told_with_its_last_words_and_the_others_are_listed(command, config):
    outcome = command("mcp", "list", config(dead=DEAD, none={"command": "no-such-program"}), "--json")
    assert outcome.code == 1
    tools = {tool["name"]: tool for tool in json.loads(outcome.out)["ours"]["tools"]}
    assert tools["add"]["effect"] == "read" and tools["add"]["input_schema"]["required"] == ["a", "b"]
    dead, none = sorted(outcome.err.splitlines())
    assert "server dead" in dead and "the key is missing" in dead
    assert "server none" in none and "no-such-program" in none


@pytest.fixture
def web(treadle: Program) -> tuple[str, subprocess.Popen[bytes]]:
    """A server over HTTP that wants a token, and its address."""
    treadle.environ |= {"PYTHONPATH": PYTHONPATH, "MY_TOKEN": "s3cret"}
    serve = ("mcp", "serve", "support.mcp_offer:everything", "--http", "127.0.0.1:0", "--token-variable", "MY_TOKEN")
    process = treadle.start(*serve)
    return wait_for(process, process.stderr, b"\n").decode().split()[-1], process


def test_call_prints_the_result_of_a_tool_over_http_with_its_token(command, config, web):
    url, process = web
    ours = {"type": "http", "url": url, "headers": {"Authorization": "Bearer ${MY_TOKEN}"}}
    file = config(ours=ours, shut={"type": "http", "url": url}, off={"command": "x", "disabled": True})
    assert command("mcp", "call", file, "ours", "add", "-", input='{"a": 2, "b": 2}').out == '{"total":4}\n'
    image = command("mcp", "call", file, "ours", "test_image_content", "--json")
    whole = json.loads(image.out)
    assert image.code == 0 and whole["files"][0]["media_type"] == "image/png" and whole["files"][0]["data"]
    failed = command("mcp", "call", file, "ours", "test_error_handling")
    assert failed.code == 1 and "intentionally" in failed.out and not failed.err
    for arguments, code, words in [
        (("ours", "nothing"), 2, "ours has no tool 'nothing'; there are: "),
        (("ours", "add", '{"a": "x"}'), 2, "not accepted"),
        (("ours", "add", "{"), 2, "no JSON"),
        (("ours", "add", "[]"), 2, "JSON object"),
        (("others", "add"), 2, "no server 'others'"),
        (("off", "add"), 2, "disabled"),
        (("shut", "add"), 1, "401"),
    ]:
        outcome = command("mcp", "call", file, *arguments)
        assert outcome.code == code and words in outcome.err, arguments
        assert "Traceback" not in outcome.err and outcome.err.count("\n") == 1, arguments
    process.send_signal(signal.SIGTERM)
    assert process.wait(BOUND) == 143


def test_a_file_that_is_no_configuration_is_one_line(command, treadle):
    (treadle.folder / "bad.json").write_text("{")
    for arguments in (("mcp", "list", "none.json"), ("run", "--mcp", "bad.json", "hi")):
        outcome = command(*arguments)
        assert outcome.code == 2 and outcome.err.splitlines()[-1].startswith("treadle: "), arguments


def test_wrong_options_of_serve_are_one_line(command, treadle):
    (treadle.folder / "offered.py").write_text('def tool() -> str:\n    "Does."\n    return "done"\n')
    for options, words in (
        (("offered:tool", "--http", "127.0.0.1:x"), "HOST:PORT"),
        (("offered:tool", "--http", "127.0.0.1:70000"), "HOST:PORT"),
        (("offered:tool", "--http", "127.0.0.1:0", "--token-variable", "NONE_SUCH"), "NONE_SUCH is not set"),
        ((), "required: MODULE:NAME"),
    ):
        outcome = command("mcp", "serve", *options)
        assert outcome.code == 2 and words in outcome.err, options
        assert outcome.err.count("\n") == 1
    assert command("mcp").code == 2


def test_a_run_uses_the_tools_of_the_servers(treadle, config, chat: Callable[..., ChatServer]):
    server = chat(call("add", '{"a": 1, "b": 2}'), text("It is 3."))
    outcome = treadle("run", *server.model, "--no-tools", "--mcp", config(), "1 + 2?")
    assert (outcome.code, outcome.out) == (0, "It is 3.\n"), outcome.err
    asked, answered = server.bodies
    assert "add" in {tool["function"]["name"] for tool in asked["tools"]}
    assert answered["messages"][-1]["content"] == '{"total":3}'
    assert "tool add done" in outcome.err


def test_a_run_sends_nothing_when_a_server_does_not_start(treadle, config, chat: Callable[..., ChatServer]):
    server = chat(text("never"))
    outcome = treadle("run", *server.model, "--mcp", config(dead=DEAD), "hi")
    assert outcome.code == 2 and "the key is missing" in outcome.err and not server.bodies


def test_a_signal_ends_a_call(treadle, config, tmp_path):
    process = treadle.start("mcp", "call", config(), "ours", "block", json.dumps({"folder": str(tmp_path)}))
    wait_until(tmp_path / "started")
    process.send_signal(signal.SIGINT)
    assert process.wait(BOUND) == 130


def test_the_sdk_is_loaded_only_by_what_needs_it(treadle):
    code = "import sys, treadle.cli as cli\ntry: cli.main({})\nexcept SystemExit: pass\nprint([m for m in ('mcp', 'mcp_types', 'treadle.mcp') if m in sys.modules])"
    for arguments in (["--help"], ["mcp", "--help"], ["run", "-m", "offline:demo", "--no-tools", "hi"]):
        done = subprocess.run(
            [sys.executable, "-c", code.format(arguments)],
            capture_output=True,
            text=True,
            check=True,
            cwd=treadle.folder,
        )
        assert done.stdout.splitlines()[-1] == "[]", arguments
