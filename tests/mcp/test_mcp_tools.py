"""What a server's tools become."""

from __future__ import annotations

import asyncio
import threading

import pytest

from support.mcp_servers import ask, chaos
from treadle import Agent, ConfigError, Effect, FilePart, MCPError, Tool, approve_effects, tool
from treadle.mcp import MCPServer
from treadle.testing import ScriptedModel, call


async def test_names_are_legal_unique_and_stable_and_calls_go_out_under_the_original_ones():
    async with chaos("odd-names") as server:
        tools = await server.tools()
        names = [each.name for each in tools]
        by_name = {each.name: each for each in tools}
        said = {name: (await each.invoke({"text": "t"})).content for name, each in by_name.items()}
    assert len(set(names)) == 6
    assert all(len(name) <= 64 and name.isascii() for name in names)
    assert said["a_b"] == "a_b: t"
    assert said["read_file"] == "read/file: t"
    assert sorted(said.values()) == sorted(
        f"{name}: t" for name in ("a.b", "a_b", "read/file", "x" * 70 + "1" * 20, "x" * 70 + "2" * 20, "検索")
    )
    async with chaos("odd-names") as again:
        assert [each.name for each in await again.tools()] == names


async def test_a_name_once_given_stays_when_a_rival_comes():
    async with chaos() as server:
        await ask(server, "change", to=["change", "a.b"])
        assert {"a_b"} < {each.name for each in await server.tools()}
        await ask(server, "change", to=["change", "a.b", "a_b"])
        names = {each.name for each in await server.tools()}
        assert (await ask(server, "a_b")).content == "a.b: "
        (other,) = names - {"change", "a_b"}
        assert (await ask(server, other)).content == "a_b: "


async def test_equal_names_of_servers_and_of_our_own_are_told_apart_and_each_call_reaches_its_own():
    @tool
    def echo(text: str) -> str:
        """Ours."""
        return f"ours: {text}"

    model = ScriptedModel([call("echo", text="1"), call("a_echo", text="2"), call("b_c_echo", text="3")], "done")
    servers = [chaos(name="a", allow=["echo"]), chaos(name="b.c", allow=["echo", "progress"])]
    result = await Agent(model, tools=[echo], toolsets=servers).run("go")
    assert [each.name for each in model.requests[0].tools] == ["a_echo", "b_c_echo", "echo", "progress"]
    assert [each.content for each in result.steps[0].results] == ["ours: 1", "echo: 2", "echo: 3"]


async def test_two_servers_of_one_name_are_told_apart_too():
    model = ScriptedModel("done")
    await Agent(model, toolsets=[chaos(name="a", allow=["echo"]), chaos(name="a", allow=["echo"])]).run("go")
    first, second = (each.name for each in model.requests[0].tools)
    assert first == "a_echo"
    assert second.startswith("a_echo_1_")


async def test_effects_come_from_what_the_server_says_unless_they_are_set():
    async with chaos() as server, chaos(effect="external") as distrusted:
        tools = {each.name: each for each in await server.tools()}
        assert (tools["echo"].effect, tools["echo"].idempotent) == (Effect.READ, True)
        assert (tools["change"].effect, tools["change"].idempotent) == (Effect.EXTERNAL, True)
        assert (tools["die"].effect, tools["die"].idempotent) == (Effect.EXTERNAL, False)
        assert {each.effect for each in await distrusted.tools()} == {Effect.EXTERNAL}


async def test_approval_is_asked_as_for_any_other_tool():
    model = ScriptedModel([call("echo", text="x"), call("die")], "done")
    result = await Agent(model, toolsets=[chaos()], approve=approve_effects("read")).run("go")
    read, denied = result.steps[0].results
    assert (read.content, read.is_error) == ("echo: x", False)
    assert "must not be called" in denied.content


async def test_allowed_and_denied_tools_are_patterns_of_the_servers_own_names(caplog):
    async with chaos("odd-names", allow=["a*", "read/*", "gone"], deny=["a_*"]) as server:
        assert [each.name for each in await server.tools()] == ["a_b", "read_file"]
        assert (await ask(server, "a_b")).content == "a.b: "
    assert "has no tool 'gone', which is allowed" in caplog.text


async def test_nothing_of_a_result_is_lost():
    async with chaos() as server:
        output = await ask(server, "content", which="all")
    assert output.content.split("\n") == [
        "words",
        "[resource file:///a.txt]",
        "inside",
        "[resource c: file:///c.txt a third]",
        '{"type":"hologram","shape":"cube"}',
        '{"x":1}',
    ]
    assert output.files == (
        FilePart("image/png", data="aW1n"),
        FilePart("audio/wav", data="c25k"),
        FilePart("application/octet-stream", data="YmxvYg==", name="file:///b.bin"),
    )
    assert not output.is_error


@pytest.mark.parametrize(
    ("which", "content", "is_error"),
    [
        ("same", '{"x": 1}', False),
        ("wrapped", "a\n2", False),
        ("error", '{"code":7}', True),
        ("empty", None, False),
        ("silent error", "The tool failed and gave no reason.", True),
    ],
)
async def test_equal_content_comes_once_and_errors_keep_their_details(which, content, is_error):
    async with chaos() as server:
        output = await ask(server, "content", which=which)
    assert (output.content, output.is_error) == (content, is_error)


async def test_fifty_runs_share_one_server_and_each_gets_its_own_answers():
    server = chaos()

    async def one(number: int) -> str:
        model = ScriptedModel([call("echo", text=str(number)), call("echo", text=f"{number} again")], "done")
        result = await Agent(model, toolsets=[server]).run("go")
        return " ".join(each.content for each in result.steps[0].results)

    async with server:
        connection = server._connection()
        answers = await asyncio.gather(*[one(number) for number in range(50)])
        assert server._connection() is connection
        assert len(connection._links) == 1
    assert answers == [f"echo: {number} echo: {number} again" for number in range(50)]
    assert not server._connections


async def test_runs_at_the_same_time_share_a_server_that_nobody_opened_before():
    server = chaos()
    models = [ScriptedModel(call("environment"), "done") for _ in range(5)]
    results = await asyncio.gather(*[Agent(model, toolsets=[server]).run("go") for model in models])
    assert len({result.steps[0].results[0].content for result in results}) == 1
    assert not server._connections


def test_each_event_loop_has_a_connection_of_its_own():
    server = chaos()
    agent = Agent(
        ScriptedModel(*[step for _ in range(4) for step in (call("echo", text="x"), "done")]), toolsets=[server]
    )
    for _ in range(2):
        assert asyncio.run(agent.run("go")).output == "done"
    failures: list[BaseException] = []

    def run() -> None:
        try:
            assert agent.run_sync("go").output == "done"
        except BaseException as error:  # noqa: BLE001 - it is told to the test
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not failures
    assert not server._connections


async def test_servers_are_closed_in_any_order_and_in_any_task():
    first, second = chaos(name="first"), chaos(name="second")
    await first.__aenter__()
    await second.__aenter__()
    await first.ready()
    await second.ready()
    await asyncio.create_task(first.__aexit__(None, None, None))
    assert (await ask(second, "echo", text="still")).content == "echo: still"
    await second.__aexit__(None, None, None)
    with pytest.raises(MCPError, match="not open: use it inside of `async with server:`"):
        await second.tools()


async def test_whoever_is_cancelled_while_it_connects_and_whoever_fails_inside_leaves_nothing():
    server = chaos("mute")

    async def waits() -> None:
        async with server:
            await server.ready()

    waiting = asyncio.create_task(waits())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not server._connections
    other = chaos()

    async def fails() -> None:
        async with other:
            await other.ready()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fails()
    assert not other._connections
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("mcp-")]


def test_a_tool_is_the_same_under_another_name():
    @tool
    def add(a: int, b: int = 2) -> int:
        """Adds."""
        return a + b

    other = add.with_name("sum")
    assert isinstance(other, Tool)
    assert (add.name, other.name, other.spec.name, other.description) == ("add", "sum", "sum", "Adds.")
    assert other(1) == 3
    with pytest.raises(ConfigError):
        add.with_name("not legal")


@pytest.mark.parametrize(
    ("command", "args", "name"),
    [
        ("mcp-server-git", [], "mcp-server-git"),
        ("npx", ["-y", "@scope/server-everything@1.2.3", "stdio"], "server-everything"),
        ("/usr/bin/python3", ["-m", "my_server"], "my_server"),
        ("node", ["/x/server-memory/dist/index.js"], "server-memory"),
        ("uvx", ["--from", "pkg", "tool"], "pkg"),
    ],
)
def test_a_server_is_named_after_what_its_command_starts(command, args, name):
    assert MCPServer.stdio(command, args).name == name


def test_a_server_at_a_url_is_named_after_its_host_and_shows_no_secret():
    server = MCPServer.http("https://user:pw@docs.example.com:8443/mcp", token="secret")
    assert server.name == "docs.example.com"
    for url in ("https://docs.example.com/mcp", "https://docs.example.com", "HTTPS://Docs.example.com?x=1"):
        assert MCPServer.http(url).name == "docs.example.com"
    assert (MCPServer.http("http://[::1]/mcp").name, MCPServer.http("http://[").name) == ("::1", "server")
    assert "secret" not in repr(server) + repr(server._spec)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"allow": "read"}, "allow and deny are lists of patterns"),
        ({"effect": "none"}, "effect is 'read', 'write' or 'external'"),
        ({"protocol": "2020-01-01"}, "protocol is one of auto, legacy, 2026-07-28"),
        ({"call_timeout_seconds": 0}, "call_timeout_seconds is a number of seconds above 0"),
        ({"name": " "}, "the name of an MCP server"),
    ],
)
def test_wrong_options_are_refused_when_the_server_is_made(options, message):
    with pytest.raises(ConfigError, match=message):
        MCPServer.stdio("x", **options)


def test_a_command_line_is_a_list_and_an_address_has_a_scheme_and_one_way_in():
    with pytest.raises(ConfigError, match="args is a list of strings"):
        MCPServer.stdio("x", "--flag")
    with pytest.raises(ConfigError, match="starts with http"):
        MCPServer.http("example.com/mcp")
    with pytest.raises(ConfigError, match="give token or auth, not both"):
        MCPServer.http("http://x/mcp", token="a", auth=object())


def test_importing_the_room_loads_no_sdk():
    import subprocess
    import sys

    code = "import sys, treadle.mcp; treadle.mcp.MCPServer.stdio('x'); print({'mcp', 'anyio', 'pydantic', 'httpx2'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
