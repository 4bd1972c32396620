"""The `mcpServers` file."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from support.mcp_servers import CHAOS, ask
from treadle import ConfigError
from treadle.mcp import load_config


@pytest.fixture
def write(tmp_path):
    def write(servers: Any, key: str = "mcpServers") -> Any:
        path = tmp_path / "servers.json"
        path.write_text(servers if isinstance(servers, str) else json.dumps({key: servers}), encoding="utf-8")
        return path

    return write


async def test_servers_of_a_file_are_usable_as_they_are(write, monkeypatch, tmp_path):
    monkeypatch.setenv("WHERE", "from outside")
    monkeypatch.delenv("NOT_SET", raising=False)
    (tmp_path / "sub").mkdir()
    env = {"A": "${WHERE}", "B": "${NOT_SET:-fallback} and ${WHERE:-unused}", "C": "${NOT_SET:-}"}
    entry = {"command": sys.executable, "args": ["-S", str(CHAOS)], "env": env, "cwd": "sub"}
    (server,) = load_config(write({"mine": entry}))
    assert server.name == "mine"
    assert server._spec.transport.cwd == str(tmp_path / "sub")
    async with server:
        seen = json.loads((await ask(server, "environment")).content)
    assert (seen["A"], seen["B"], seen["C"]) == ("from outside", "fallback and from outside", "")


def test_both_kinds_and_both_keys_are_read_and_disabled_servers_left_out(write, monkeypatch):
    monkeypatch.setenv("TOKEN", "t")
    servers = {
        "a": {"command": "x"},
        "b": {"type": "http", "url": "https://example.com/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}},
        "c": {"type": "streamable-http", "url": "https://example.com/mcp"},
        "d": {"command": "x", "disabled": True},
        "e": {"url": "https://example.com/mcp"},
    }
    assert [server.name for server in load_config(write(servers))] == ["a", "b", "c", "e"]
    found = load_config(write(servers, "servers"), only=["b"])
    assert [server._spec.transport.headers for server in found] == [{"Authorization": "Bearer t"}]


@pytest.mark.parametrize(
    ("servers", "message"),
    [
        ("{", r"servers\.json is no JSON: "),
        ("[]", 'there is no object "mcpServers"'),
        ({"a": []}, r"mcpServers\.a is an object with a command or a url$"),
        ({"a": {}}, r"mcpServers\.a\.url is missing$"),
        ({"a": {"type": "stdio"}}, r"mcpServers\.a\.command is missing$"),
        ({"a": {"command": ["x"]}}, r"mcpServers\.a\.command is a string$"),
        ({"a": {"command": "x", "args": "-v"}}, r"mcpServers\.a\.args is an array of strings$"),
        ({"a": {"command": "x", "args": ["-v", 2]}}, r"mcpServers\.a\.args\.1 is a string$"),
        ({"a": {"command": "x", "env": {"KEY": 1}}}, r"mcpServers\.a\.env\.KEY is a string$"),
        (
            {"a": {"command": "x", "env": {"KEY": "${NO_SUCH_THING}"}}},
            r"env\.KEY: the environment variable NO_SUCH_THING is not set",
        ),
        (
            {"a": {"type": "sse", "url": "http://x/sse"}},
            r'mcpServers\.a\.type is "sse".*: set "type": "http" and "url"',
        ),
        ({"a": {"type": "pigeon"}}, r"mcpServers\.a\.type is \"stdio\" or \"http\", not 'pigeon'$"),
        ({"a": {"url": "example.com"}}, "starts with http:// or https://"),
    ],
)
def test_what_is_wrong_in_a_file_is_told_in_one_line_with_its_place(write, servers, message):
    with pytest.raises(ConfigError, match=message) as caught:
        load_config(write(servers))
    assert "\n" not in str(caught.value)


def test_a_file_or_a_server_that_is_not_there_is_named(write, tmp_path):
    with pytest.raises(ConfigError, match=r"none\.json cannot be read: No such file"):
        load_config(tmp_path / "none.json")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    with pytest.raises(ConfigError, match=r"deep\.json is no JSON"):
        load_config(tmp_path / "deep.json")
    with pytest.raises(ConfigError, match="there is no server 'b'; there are: a"):
        load_config(write({"a": {"command": "x"}}), only=["b"])


def test_keys_that_nobody_reads_are_told_and_cost_nothing(write, caplog):
    assert len(load_config(write({"a": {"command": "x", "timeuot": 3, "autoApprove": []}}))) == 1
    assert "mcpServers.a: nobody reads timeuot" in caplog.text
