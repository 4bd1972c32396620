"""The newest protocol and the one before it, over both transports, against the official SDK's server."""

from __future__ import annotations

import asyncio
import functools
import socket
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from support.mcp_servers import MODERN, ask, modern
from support.program import BOUND, wait_for
from support.runs import events_of, only
from treadle import Agent, Allow, Deny, Edit, Limits, Pause, TextPart, ToolError, ToolFinish, ToolProgress
from treadle.mcp import Elicitation, MCPServer, Prompt, Resource, ServerInfo
from treadle.testing import ScriptedModel, call

if TYPE_CHECKING:
    from collections.abc import Iterator

NEW, OLD = "2026-07-28", "legacy"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Where the server is served over HTTP, once for all tests: it takes seconds to start."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    process = subprocess.Popen([sys.executable, MODERN, str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        wait_for(process, process.stderr, b"running on")
        draining = threading.Thread(target=process.stderr.read)
        draining.start()
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        draining.join(BOUND)
        process.wait(BOUND)
        process.stderr.close()


def served(url: str, **options: Any) -> MCPServer:
    return MCPServer.http(url, name="modern", **options)


@pytest.fixture(params=["stdio", "http"])
def make(request: Any) -> Any:
    return modern if request.param == "stdio" else functools.partial(served, request.getfixturevalue("url"))


@pytest.mark.parametrize("protocol", [NEW, OLD])
async def test_what_a_server_offers_is_there_in_both_protocols_over_both_transports(make, protocol):
    asked: list[Elicitation] = []

    async def seat(question: Elicitation) -> Edit:
        asked.append(question)
        return Edit({"row": 7})

    async with make(protocol=protocol, elicit=seat) as server:
        spoken = NEW if protocol == NEW else "2025-11-25"
        assert await server.ready() == ServerInfo("modern", "1.0", spoken, "Be modern.")
        model = ScriptedModel([call("add", a=1, b=2), call("slow"), call("book")], "done")
        events = await events_of(Agent(model, toolsets=[server]))
        told = [event.message for event in only(events, ToolProgress)]
        assert told == ["step 0", "step 1", "step 2"]
        outputs = {event.name: event.result.content for event in only(events, ToolFinish)}
        assert outputs == {"add": "3", "slow": "done", "book": "row 7, aisle True"}
        assert (asked[0].server, asked[0].message, set(asked[0].schema["properties"])) == (
            "modern",
            "Which seat?",
            {"row", "aisle"},
        )
        assert await server.resources() == (Resource("notes://today", "today", "What is to be done.", "text/plain"),)
        assert await server.read_resource("notes://today") == (TextPart("write tests"),)
        assert await server.prompts() == (Prompt("review", "Asks for a review.", {"code": True}),)
        assert await server.prompt("review", code="x = 1") == (("user", TextPart("Review: x = 1")),)


async def test_changed_tools_are_heard_of_in_the_newest_protocol(make):
    async with make(protocol=NEW) as server:
        link = await server._connection().link()
        async with asyncio.timeout(BOUND):
            await ask(server, "add", a=1, b=1)
            while not link.stale:  # the notice travels on a stream of its own, which may open later
                await ask(server, "grow")
            names = {tool.name for tool in await server.tools()}
    assert "sum" in names


async def test_the_newest_protocol_is_found_without_being_named(url):
    async with served(url) as server:
        assert (await server.ready()).protocol == NEW


@pytest.mark.parametrize("protocol", [NEW, OLD])
@pytest.mark.parametrize(
    ("decision", "said"),
    [
        (Deny("no"), "no seat: decline"),
        (Pause(), "no seat: cancel"),
        (Edit('{"row": 3, "aisle": false}'), "row 3, aisle False"),
    ],
)
async def test_questions_of_a_server_are_answered_by_decisions(url, protocol, decision, said):
    async with served(url, protocol=protocol, elicit=lambda _: decision) as server:
        assert (await ask(server, "book")).content == said


async def test_a_function_that_fails_declines(url, caplog):
    def fails(question: Elicitation) -> Allow:
        raise RuntimeError("no terminal")

    async with served(url, protocol=NEW, elicit=fails) as server:
        assert (await ask(server, "book")).content == "no seat: decline"
    assert "the answer to a question of MCP server modern failed" in caplog.text


async def test_without_anybody_to_ask_the_server_is_told_so(url):
    async with served(url, protocol=NEW) as server:
        with pytest.raises(ToolError, match="did not declare the form elicitation capability"):
            await ask(server, "book")


@pytest.mark.parametrize("protocol", [NEW, OLD])
async def test_time_that_a_person_takes_does_not_count(url, protocol):
    waiting, answered = asyncio.Event(), asyncio.Event()

    async def slowly(question: Elicitation) -> Edit:
        waiting.set()
        await answered.wait()
        return Edit({"row": 1})

    async with served(url, protocol=protocol, elicit=slowly, call_timeout_seconds=0.6) as server:
        booking = asyncio.create_task(ask(server, "book"))
        await waiting.wait()
        await asyncio.sleep(0.8)  # longer than a call may take
        answered.set()
        assert (await booking).content == "row 1, aisle True"


@pytest.mark.parametrize("protocol", [NEW, OLD])
async def test_time_that_a_person_takes_does_not_count_towards_the_limits_of_the_run(url, protocol):
    async def slowly(question: Elicitation) -> Edit:
        await asyncio.sleep(1.2)  # longer than the run may take
        return Edit({"row": 1})

    async with served(url, protocol=protocol, elicit=slowly) as server:
        await server.ready()
        agent = Agent(ScriptedModel(call("book"), "done"), toolsets=[server], limits=Limits(seconds=1))
        result = await agent.run("book a seat")
    assert result.steps[0].results[0].content == "row 1, aisle True"


async def test_twenty_calls_at_once_over_one_session_each_get_their_own_answer(make):
    async with make() as server:
        tools = {tool.name: tool for tool in await server.tools()}
        outputs = await asyncio.gather(*[tools["add"].invoke({"a": each, "b": 1000}) for each in range(20)])
    assert [output.content for output in outputs] == [str(1000 + each) for each in range(20)]
