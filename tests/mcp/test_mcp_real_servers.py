"""Servers as people use them, from npm and PyPI."""

from __future__ import annotations

import asyncio
import json
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from support import mcp_real
from support.mcp_servers import ask
from support.program import BOUND, wait_for
from support.runs import assert_whole, events_of, only
from treadle import Agent, Edit, Effect, MCPError, TextPart, ToolFinish, ToolProgress
from treadle.mcp import MCPServer
from treadle.testing import ScriptedModel, call

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(
    not mcp_real.installed(), reason="real MCP servers are not installed: python tests/support/mcp_real.py"
)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Where server-everything is served over HTTP."""
    port = mcp_real.free_port()
    process = subprocess.Popen(
        ["node", mcp_real.script("server-everything"), "streamableHttp"],
        env=mcp_real.environment(PORT=str(port)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    draining = threading.Thread(target=process.stderr.read)
    try:
        wait_for(process, process.stderr, b"listening")
        draining.start()
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait(BOUND)
        if draining.ident is not None:
            draining.join(BOUND)
        process.stderr.close()


@pytest.fixture(params=["stdio", "http"])
def everything(request: Any) -> Any:
    def make(**options: Any) -> MCPServer:
        if request.param == "stdio":
            return MCPServer.stdio("node", [mcp_real.script("server-everything"), "stdio"], **options)
        return MCPServer.http(request.getfixturevalue("url"), **options)

    return make


async def test_everything_is_driven_by_an_agent(everything):
    model = ScriptedModel(
        [
            call("echo", message="hi"),
            call("get-sum", a=2, b=3),
            call("get-tiny-image"),
            call("get-structured-content", location="New York"),
            call("get-resource-reference", resourceType="Text", resourceId=1),
            call("get-resource-links", count=2),
            call("trigger-long-running-operation", duration=0.3, steps=3),
        ],
        "done",
    )
    events = await events_of(Agent(model, toolsets=[everything()], parallelism=7))
    assert_whole(events)
    results = {event.name: event.result for event in only(events, ToolFinish)}
    assert not [result for result in results.values() if result.is_error]
    assert results["echo"].content == "Echo: hi"
    assert results["get-sum"].content == "The sum of 2 and 3 is 5."
    assert [file.media_type for file in results["get-tiny-image"].files] == ["image/png"]
    assert json.loads(results["get-structured-content"].content).keys() == {"temperature", "conditions", "humidity"}
    assert "[resource demo://resource/dynamic/text/1]\n" in results["get-resource-reference"].content
    assert results["get-resource-links"].content.count("[resource ") == 2
    assert [event.progress for event in only(events, ToolProgress)] == [1.0, 2.0, 3.0]


async def test_everything_lists_its_resources_and_prompts_and_asks_the_person(everything):
    def name(question: Any) -> Edit:
        return Edit({"name": "Ada"})

    async with everything(elicit=name) as server:
        assert (await server.ready()).protocol == "2025-11-25"
        assert len(await server.resources()) >= 5
        (shown,) = await server.read_resource("demo://resource/dynamic/text/1")
        assert isinstance(shown, TextPart)
        prompts = {prompt.name: prompt for prompt in await server.prompts()}
        assert prompts["args-prompt"].arguments == {"city": True, "state": False}
        ((role, part),) = await server.prompt("args-prompt", city="Paris")
        assert (role, "Paris" in part.text) == ("user", True)
        assert "Ada" in (await ask(server, "trigger-elicitation-request")).content


async def test_twenty_calls_at_once_over_one_session_each_get_their_own_answer(everything):
    async with everything() as server:
        tools = {tool.name: tool for tool in await server.tools()}
        outputs = await asyncio.gather(*[tools["echo"].invoke({"message": str(each)}) for each in range(20)])
    assert [output.content for output in outputs] == [f"Echo: {each}" for each in range(20)]


async def test_fifty_runs_share_everything(everything):
    server = everything()

    async def one(number: int) -> str:
        result = await Agent(ScriptedModel(call("echo", message=str(number)), "done"), toolsets=[server]).run("go")
        return result.steps[0].results[0].content

    async with server:
        assert await asyncio.gather(*map(one, range(50))) == [f"Echo: {number}" for number in range(50)]
        assert len(server._connection()._links) == 1


async def test_the_filesystem_server_reads_and_keeps_to_its_folder(tmp_path):
    (tmp_path / "note.txt").write_text("remember", encoding="utf-8")
    async with MCPServer.stdio("node", [mcp_real.script("server-filesystem"), tmp_path]) as server:
        assert server.name == "server-filesystem"
        tools = {tool.name: tool for tool in await server.tools()}
        assert tools["read_text_file"].effect is Effect.READ
        assert tools["write_file"].effect is Effect.EXTERNAL
        assert "remember" in (await ask(server, "read_text_file", path=str(tmp_path / "note.txt"))).content
        outside = await ask(server, "read_text_file", path="/etc/hostname")
        assert outside.is_error
        assert "Access denied" in outside.content


@pytest.fixture
def repository(tmp_path):
    subprocess.run(["git", "init", "-q", "-b", "main", tmp_path / "repository"], check=True)
    return tmp_path / "repository"


async def test_the_git_server_tells_of_a_repository_and_why_it_does_not_start_without_one(repository, tmp_path):
    async with MCPServer.stdio(mcp_real.program("mcp-server-git"), ["--repository", repository]) as server:
        assert "On branch main" in (await ask(server, "git_status", repo_path=str(repository))).content
    missing = tmp_path / "none"
    async with MCPServer.stdio(mcp_real.program("mcp-server-git"), ["--repository", missing]) as server:
        with pytest.raises(
            MCPError, match=rf"ended with exit code 1; its stderr ends with: .*{missing} does not exist"
        ):
            await server.ready()


async def test_the_time_server_converts():
    async with MCPServer.stdio(mcp_real.program("mcp-server-time"), ["--local-timezone", "UTC"]) as server:
        said = await ask(server, "convert_time", source_timezone="UTC", time="12:00", target_timezone="Asia/Tokyo")
        assert "21:00" in said.content


class Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b"<html><body><h1>Loom</h1><p>Warp and weft.</p></body></html>"
        self.send_response(200 if self.path == "/page" else 404)
        self.send_header("content-type", "text/html")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: Any) -> None:
        return


async def test_the_fetch_server_fetches_from_loopback():
    web = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=web.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        options = ["--ignore-robots-txt", "--allow-private-ips"]
        async with MCPServer.stdio(mcp_real.program("mcp-server-fetch"), options) as server:
            page = await ask(server, "fetch", url=f"http://127.0.0.1:{web.server_port}/page", raw=True)
            assert "Warp and weft." in page.content
    finally:
        web.shutdown()
        thread.join()
        web.server_close()
