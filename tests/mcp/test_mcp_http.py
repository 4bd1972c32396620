"""Servers at a URL."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest

from support.loopback import BREAK, Loopback, Reply, Seen
from support.mcp_servers import ask
from treadle import Agent, MCPError, ToolError
from treadle.mcp import MCPServer
from treadle.testing import ScriptedModel, call

EMPTY = {"type": "object", "properties": {}}


def reply(value: Any, *, status: int = 200, **headers: str) -> Reply:
    return Reply(
        (json.dumps(value).encode(),), status=status, content_type="application/json", headers=headers, whole=True
    )


def result(seen: Seen, value: Any, **headers: str) -> Reply:
    return reply({"jsonrpc": "2.0", "id": seen.body["id"], "result": value}, **headers)


class OldServer:
    """A server with sessions, as of 2025-11-25. `forget` makes it new: it knows no session any more."""

    def __init__(self, *, status: int = 404) -> None:
        self.sessions: set[str] = set()
        self.count = 0
        self.calls: list[str] = []
        self.status = status
        self.forgets_at_once = False

    def __call__(self, seen: Seen) -> Reply:
        if not seen.raw:
            return reply({}, status=405)
        method = seen.body["method"]
        if method == "initialize":
            self.count += 1
            session = f"session-{self.count}"
            if not self.forgets_at_once:
                self.sessions.add(session)
            info = {"name": "old", "version": "1"}
            told = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
            assert "mcp-session-id" not in seen.headers
            return result(seen, told, **{"mcp-session-id": session})
        if method == "server/discover":
            return reply(
                {"jsonrpc": "2.0", "id": seen.body["id"], "error": {"code": -32601, "message": "What?"}}, status=400
            )
        if seen.headers.get("mcp-session-id") not in self.sessions:
            text = "Session not found" if self.status == 404 else "Bad Request: No valid session ID provided"
            error = {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": text}}
            return reply(error, status=self.status)
        if method == "tools/list":
            return result(seen, {"tools": [{"name": name, "inputSchema": EMPTY} for name in ("echo", "fail", "break")]})
        if method == "tools/call":
            return self.answer(seen)
        return Reply(status=202, whole=True)

    def answer(self, seen: Seen) -> Reply:
        name, arguments = seen.body["params"]["name"], seen.body["params"].get("arguments") or {}
        self.calls.append(str(arguments.get("text")))
        if name == "fail":
            return Reply((b"<h1>out of order</h1>",), status=500, content_type="text/html", whole=True)
        if name == "break":
            return Reply((b"{", BREAK), content_type="application/json")
        return result(seen, {"content": [{"type": "text", "text": f"echo: {arguments.get('text')}"}]})


@pytest.mark.parametrize("status", [404, 400])
async def test_a_lost_session_is_opened_once_more_and_each_call_sent_again(status):
    old = OldServer(status=status)
    async with Loopback(old) as loopback, MCPServer.http(loopback.url, protocol="legacy") as server:
        assert (await ask(server, "echo", text="1")).content == "echo: 1"
        old.sessions.clear()
        tools = {tool.name: tool for tool in await server.tools()}
        outputs = await asyncio.gather(*[tools["echo"].invoke({"text": str(each)}) for each in range(5)])
        assert [output.content for output in outputs] == [f"echo: {each}" for each in range(5)]
        assert old.count == 2
        assert sorted(old.calls) == ["0", "1", "1", "2", "3", "4"]


async def test_a_session_that_is_lost_again_at_once_is_an_error_and_no_storm():
    old = OldServer()
    async with Loopback(old) as loopback, MCPServer.http(loopback.url, protocol="legacy", name="old") as server:
        tools = {tool.name: tool for tool in await server.tools()}
        old.sessions.clear()
        old.forgets_at_once = True
        asked = len(loopback.requests)
        failures = await asyncio.gather(*[tools["echo"].invoke({}) for _ in range(5)], return_exceptions=True)
        assert all(isinstance(failure, ToolError) and "Session not found" in str(failure) for failure in failures)
        assert old.count == 2
        assert len(loopback.requests) - asked <= 12
    assert not old.calls


async def test_an_error_of_http_is_told_and_costs_one_call():
    old = OldServer()
    async with Loopback(old) as loopback, MCPServer.http(loopback.url, protocol="legacy", name="old") as server:
        with pytest.raises(ToolError, match=r"^MCP server old: HTTP 500 .*: <h1>out of order</h1>$"):
            await ask(server, "fail")
        broken, fine = await asyncio.gather(ask(server, "break"), ask(server, "echo", text="x"), return_exceptions=True)
        assert isinstance(broken, ToolError)
        assert fine.content == "echo: x"
        assert old.count == 1


async def test_a_server_that_is_away_costs_its_tools_and_not_the_run(caplog):
    model = ScriptedModel("done without")
    server = MCPServer.http("http://127.0.0.1:9/mcp", name="away")
    assert (await Agent(model, toolsets=[server]).run("go")).output == "done without"
    (warning,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warning.startswith("MCP server away: 127.0.0.1 cannot be reached")


async def test_a_server_that_goes_away_answers_its_calls_with_an_error_and_loses_its_tools():
    old = OldServer()
    loopback = await Loopback(old).__aenter__()

    async def leave(request: Any, call_next: Any) -> Any:
        if request.name == "echo":
            await loopback.__aexit__()
        return await call_next(request)

    model = ScriptedModel(call("echo", text="x"), call("echo", text="y"), "done")
    server = MCPServer.http(loopback.url, protocol="legacy", name="old")
    run = await Agent(model, toolsets=[server], wrap_tool=leave).run("go")
    first, second = (step.results[0] for step in run.steps[:2])
    assert "127.0.0.1 cannot be reached" in first.content
    assert second.content.startswith("There is no tool 'echo'.")


async def test_a_token_and_headers_are_sent_and_a_missing_one_is_told():
    old = OldServer()

    def answers(seen: Seen) -> Reply:
        if seen.headers.get("authorization") != "Bearer secret":
            return Reply((b"who are you?",), status=401, content_type="text/plain", whole=True)
        return old(seen)

    async with Loopback(answers) as loopback:
        async with MCPServer.http(loopback.url, name="mine") as server:
            with pytest.raises(
                MCPError, match=r"^MCP server mine: HTTP 401 X \(give token= or auth=\): who are you\?$"
            ):
                await server.ready()
        async with MCPServer.http(loopback.url, token="secret", headers={"X-Team": "a"}) as server:
            assert (await server.ready()).protocol == "2025-11-25"
            assert loopback.requests[-2].headers["x-team"] == "a"


async def test_a_call_that_ran_is_not_sent_again_because_another_one_was_refused():
    """One call is inside of the server while the session is lost for another; then it fails on its own account."""
    inside, go = asyncio.Event(), asyncio.Event()

    class Slow(OldServer):
        def answer(self, seen: Seen) -> Reply:
            if seen.body["params"]["name"] != "fail":
                return super().answer(seen)
            self.calls.append("fail")
            inside.set()
            error = {"jsonrpc": "2.0", "id": seen.body["id"], "error": {"code": -32603, "message": "half done"}}
            return Reply((go, json.dumps(error).encode()), content_type="application/json")

    old = Slow()
    async with Loopback(old) as loopback, MCPServer.http(loopback.url, protocol="legacy", name="old") as server:
        failing = asyncio.create_task(ask(server, "fail"))
        await inside.wait()
        old.sessions.clear()
        assert (await ask(server, "echo", text="x")).content == "echo: x"
        go.set()
        with pytest.raises(ToolError, match="half done"):
            await failing
    assert old.calls == ["fail", "x"]


async def test_a_run_that_is_cancelled_while_it_leaves_a_server_still_leaves_it():
    old = OldServer()
    async with Loopback(old) as loopback:
        server = MCPServer.http(loopback.url, protocol="legacy")
        await server.__aenter__()
        await server.ready()
        (link,) = server._connection()._links
        leaving = asyncio.create_task(server.__aexit__(None, None, None))
        await asyncio.sleep(0)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        async with asyncio.timeout(10):
            await asyncio.wait({link.left})


@pytest.mark.parametrize("content_type", ["text/html", "application/json"])
async def test_a_redirect_to_another_host_is_told_and_the_token_stays_here(content_type):
    class Moved(OldServer):
        def answer(self, seen: Seen) -> Reply:
            return Reply(status=307, content_type=content_type, headers={"location": elsewhere.url}, whole=True)

    async with (
        Loopback(lambda seen: reply({})) as elsewhere,
        Loopback(Moved()) as loopback,
        MCPServer.http(loopback.url, token="secret") as server,
    ):
        with pytest.raises(ToolError, match=r"Redirect to .* not followed"):
            await ask(server, "echo", text="x")
    assert not elsewhere.requests


async def test_an_error_of_the_server_s_own_with_a_code_of_the_sdk_is_no_lost_connection():
    class Refuses(OldServer):
        def answer(self, seen: Seen) -> Reply:
            return reply({"jsonrpc": "2.0", "id": seen.body["id"], "error": {"code": -32000, "message": "no such row"}})

    async with Loopback(Refuses()) as loopback, MCPServer.http(loopback.url, name="rows") as server:
        with pytest.raises(ToolError, match=r"^MCP server rows: no such row$"):
            await ask(server, "echo", text="x")
