"""`treadle mcp serve` as MCP hosts start it: over stdio, with notices that come at the worst moment."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters

from support.mcp_raw import TESTS, RawClient, wait_until
from support.mcp_serving import NEW, OLD, connected
from support.program import BOUND, Program
from treadle.mcp import MCPServer

EVERYTHING = "support.mcp_offer:everything"


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    program = Program(tmp_path)
    yield program
    program.close()


@pytest.fixture
def serve(program: Program) -> Callable[..., RawClient]:
    return lambda thing=EVERYTHING, *arguments: RawClient(program, thing, *arguments)


@pytest.mark.parametrize("mode", [NEW, OLD])
async def test_the_official_client_talks_to_it_over_stdio(mode, tmp_path):
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = StdioServerParameters(
        command=sys.executable,
        args=["-m", "treadle", "mcp", "serve", "support.mcp_offer:agent_and_tools", "--name", "both"],
        env={**os.environ, "PYTHONPATH": path},
        cwd=tmp_path,
    )
    told: list[str | None] = []

    async def note(_progress: float, _total: float | None, message: str | None) -> None:
        told.append(message)

    how = "auto" if mode == NEW else mode
    async with Client(command, mode=how, read_timeout_seconds=BOUND) as client:
        assert client.session.server_info.name == "both"
        assert (client.session.protocol_version == NEW) == (mode == NEW)
        assert (await client.call_tool("add", {"a": 2, "b": 3})).structured_content == {"total": 5}
        result = await client.call_tool("adding_machine", {"prompt": "?"}, progress_callback=note)
        assert result.content[0].text == "The sum is 3." and "tool add done" in told


async def test_tools_of_another_server_are_passed_on_as_they_are(tmp_path):
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = ["-m", "treadle", "mcp", "serve", EVERYTHING]
    other = MCPServer.stdio(sys.executable, command, env={"PYTHONPATH": path}, cwd=tmp_path, name="other")
    async with connected(other) as client:
        told = {each.name: each for each in (await client.list_tools()).tools}
        assert told["add"].annotations.read_only_hint and told["add"].output_schema["required"] == ["total"]
        assert (await client.call_tool("add", {"a": 1, "b": 2})).structured_content == {"total": 3}
        assert (await client.call_tool("numbers", {})).structured_content == {"result": [1, 2, 3]}
        [image] = (await client.call_tool("test_image_content", {})).content
        assert image.mime_type == "image/png"
        assert (await client.call_tool("test_error_handling", {})).is_error


def test_b059_a_call_that_is_cancelled_gets_no_answer_and_stops(serve, tmp_path):
    client = serve()
    client.call(1, "wait", folder=str(tmp_path))
    wait_until(tmp_path / "started")
    client.cancel(1)
    wait_until(tmp_path / "stopped")
    client.ping()
    client.cancel(1)  # again
    client.cancel("nobody")
    client.cancel(7)  # before it is asked
    client.send("notifications/cancelled", params={})
    client.send("notifications/cancelled", params={"requestId": [1]})
    client.call(7, "add", a=1, b=2)
    assert client.answer(7)["result"]["structuredContent"] == {"total": 3}
    client.cancel(7)  # too late
    client.ping("again")
    assert client.close()[0] == 0
    assert not client.answers(1) and len(client.answers(7)) == 1


def test_b059_a_cancel_just_as_the_call_ends_leaves_at_most_one_answer(serve):
    client = serve()
    for number in range(100, 140):
        client.call(number, "add", a=number, b=0)
        if number % 2:
            client.cancel(number)
    client.ping()
    client.call(200, "add", a=0, b=0)
    client.answer(200)
    assert client.close() == (0, "")
    for number in range(100, 140):
        found = client.answers(number)
        assert len(found) <= 1 if number % 2 else len(found) == 1
        assert all(answer["result"]["structuredContent"] == {"total": number} for answer in found)


def test_b059_a_synchronous_tool_is_left_to_its_thread_and_blocks_nothing(serve, tmp_path):
    client = serve()
    client.call(1, "block", folder=str(tmp_path))
    wait_until(tmp_path / "started")
    client.cancel(1)
    client.cancel(1)
    client.ping()
    client.call(2, "add", a=1, b=1)
    assert client.answer(2)["result"]["structuredContent"] == {"total": 2}
    assert client.close() == (0, "")  # though the thread still blocks
    assert not client.answers(1)


def test_nothing_but_messages_comes_out_whatever_tools_print(serve):
    client = serve()
    client.call(1, "noisy")
    result = client.answer(1)["result"]
    assert result["content"][0]["text"] == "read 0 bytes"  # nor does a tool eat what the client says
    client.ping()
    code, errors = client.close()
    assert code == 0
    assert {"noise of print", "noise of a descriptor", "noise of a child"} <= set(errors.splitlines())


def test_what_a_module_prints_when_it_is_loaded_is_no_message(serve, program):
    (program.folder / "chatty.py").write_text('print("hello")\ndef tool() -> str:\n    "Does."\n    return "done"\n')
    client = RawClient(program, "chatty:tool")
    client.call(1, "tool")
    assert client.answer(1)["result"]["content"][0]["text"] == "done"
    assert client.close() == (0, "hello\n")


def test_lines_that_are_no_messages_are_passed_over(serve):
    client = serve()
    for line in (
        b"",
        b"not json",
        b'{"jsonrpc": "2.0"',
        b"[]",
        b"[" * 50_000,
        b"\xff\xfe",
        b'{"id": 5}',
        b"null",
        b"1",
    ):
        client.write(line + b"\n")
    client.ping()
    client.write(b'{"jsonrpc": "2.0", "id": "long", "method": "ping", "params": {"x": "')
    for _ in range(17):
        client.write(b"x" * 1024 * 1024)
    client.write(b'"}}\n')
    client.ping("after")
    code, errors = client.close()
    assert code == 0 and errors.count("dropped a message of more than 16777216 bytes") == 1
    assert not client.answers("long")


def test_a_message_may_come_in_pieces_and_be_large(serve):
    client = serve()
    data = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","arguments":{"a":1,"b":2,"c":"'
    data += b"y" * 300_000 + b'"}}}\n'
    for start in range(0, len(data), 50_000):
        client.write(data[start : start + 50_000])
    assert client.answer(1)["result"]["isError"]  # there is no argument c
    assert client.close()[0] == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_it_also_while_tools_run(serve, tmp_path, number, code):
    client = serve()
    for name in ("wait", "block"):
        (tmp_path / name).mkdir()
        client.call(name, name, folder=str(tmp_path / name))
        wait_until(tmp_path / name / "started")
    client.process.send_signal(number)
    assert client.process.wait(BOUND) == code
    assert (tmp_path / "wait" / "stopped").exists()


def test_the_end_of_its_input_ends_it_also_while_tools_run(serve, tmp_path):
    client = serve()
    client.call(1, "wait", folder=str(tmp_path))
    wait_until(tmp_path / "started")
    assert client.close() == (0, "")
    assert (tmp_path / "stopped").exists()


def test_a_client_that_stops_reading_does_not_keep_it_from_ending(serve):
    client = serve()
    client.process.stdout.close()
    for number in range(5):
        client.call(number, "add", a=1, b=2)
    client.process.stdin.close()
    assert client.process.wait(BOUND) == 0


def test_what_cannot_be_served_is_one_line_and_exit_code_2(program):
    program.environ["PYTHONPATH"] = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    for thing, words in (("nothing:here", "no module 'nothing'"), ("json:__name__", "cannot be served")):
        outcome = program("mcp", "serve", thing)
        assert outcome.code == 2 and outcome.out == "" and words in outcome.err and outcome.err.count("\n") == 1
    outcome = program("mcp", "serve", "support.mcp_offer:add", "--http", "0.0.0.0:0")
    assert outcome.code == 2 and "TREADLE_MCP_TOKEN" in outcome.err
