"""Servers that misbehave: the run ends in bounded time, with every call answered."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import subprocess
import sys
import time

import pytest

from support.mcp_servers import CHAOS, ask, chaos, lives
from support.program import BOUND
from support.runs import assert_whole, events_of, only
from treadle import Agent, Allow, MCPError, StepStart, ToolError, ToolFinish, ToolProgress, ToolStart
from treadle.mcp import Elicitation, MCPServer
from treadle.testing import ScriptedModel, call


async def test_a_server_that_dies_at_start_costs_its_tools_and_not_the_run(caplog):
    model = ScriptedModel("done without")
    result = await Agent(model, toolsets=[chaos("dies")]).run("go")
    assert (result.output, model.requests[0].tools) == ("done without", ())
    (warning,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warning.startswith(
        "MCP server chaos: it ended with exit code 2; its stderr ends with: first line | cannot open"
    )


async def test_why_a_server_has_no_tools_is_told_to_the_caller_and_to_a_model_that_calls_one():
    agent = Agent(ScriptedModel(call("search", word="x"), "done without"), toolsets=[chaos("dies")])
    events = await events_of(agent)
    first, second = only(events, StepStart)
    (fault,) = first.missing
    assert fault.startswith("MCP server chaos: it ended with exit code 2") and "cannot open the database" in fault
    assert second.missing == first.missing
    (finish,) = only(events, ToolFinish)
    assert finish.refused and finish.result.content == f"There is no tool 'search'. There are no tools.\n{fault}"


async def test_a_server_that_is_there_has_nothing_missing_to_tell():
    events = await events_of(Agent(ScriptedModel("done"), toolsets=[chaos()]))
    assert [event.missing for event in only(events, StepStart)] == [()]


async def test_a_server_that_dies_at_start_fails_whoever_waits_for_it_and_a_run_that_requires_it():
    async with chaos("dies") as server:
        with pytest.raises(
            MCPError, match=r"^MCP server chaos: it ended with exit code 2; .*the database: no such file$"
        ):
            await server.ready()
    with pytest.raises(Exception, match="exit code 2"):
        await Agent(ScriptedModel("x"), toolsets=[chaos("dies", required=True)]).run("go")


async def test_a_command_or_a_folder_that_does_not_exist_is_named():
    async with MCPServer.stdio("no-such-program", name="a") as server:
        with pytest.raises(MCPError, match=r"^MCP server a: the command 'no-such-program' does not exist$"):
            await server.ready()
    async with chaos(cwd="/no/such/folder") as server:
        with pytest.raises(MCPError, match="the working directory '/no/such/folder' does not exist"):
            await server.ready()
    async with MCPServer.stdio(CHAOS, name="b") as server:  # no program
        with pytest.raises(MCPError, match=r"cannot be started: .*Permission denied"):
            await server.ready()


async def test_a_server_that_dies_in_the_middle_of_a_call_answers_it_with_an_error_and_comes_back_for_the_next():
    model = ScriptedModel([call("die"), call("hang")], [call("echo", text="again")], "done")
    events = await events_of(Agent(model, toolsets=[chaos()], parallelism=4))
    assert_whole(events)
    died, hung, echoed = [event.result for event in only(events, ToolFinish)]
    for result in (died, hung):
        assert result.is_error
        assert "the connection was lost (it ended with exit code 3)" in result.content
        assert "whether" in result.content
        assert "the disk is full" in result.content
    assert echoed.content == "echo: again"


@pytest.mark.parametrize(
    ("tool", "why"), [("killed", "it was ended by signal 9"), ("falls_silent", "it closed its standard output")]
)
async def test_whatever_way_a_server_ends_it_is_told(tool, why):
    async with chaos(close_timeout_seconds=1.0) as server:
        with pytest.raises(ToolError, match=re.escape(f"the connection was lost ({why}); whether {tool} took effect")):
            await ask(server, tool)
        assert (await ask(server, "echo", text="back")).content == "echo: back"


async def test_a_call_that_hangs_and_one_with_broken_json_are_answered_in_time():
    model = ScriptedModel([call("hang"), call("broken"), call("echo", text="beside")], "done")
    started = time.monotonic()
    events = await events_of(Agent(model, toolsets=[chaos(call_timeout_seconds=0.5)]))
    assert time.monotonic() - started < 8
    hung, broken, beside = [event.result for event in sorted(only(events, ToolFinish), key=lambda event: event.index)]
    assert hung.content.startswith("MCP server chaos: no answer to hang within 0.5 seconds")
    assert broken.is_error
    assert beside.content == "echo: beside"


async def test_a_server_that_answers_nothing_at_all_is_given_up_and_killed():
    started = time.monotonic()
    async with chaos("mute", connect_timeout_seconds=0.5) as server:
        with pytest.raises(MCPError, match=r"it did not answer within 0.5 seconds"):
            await server.ready()
        assert await server.tools() == ()
    assert time.monotonic() - started < 8


async def test_the_servers_of_a_run_are_connected_at_the_same_time():
    started = time.monotonic()
    servers = [chaos("mute", name=name, connect_timeout_seconds=1.0) for name in "abcd"]
    result = await Agent(ScriptedModel("without any"), toolsets=servers).run("go")
    assert result.output == "without any"
    assert time.monotonic() - started < 3.0


async def test_no_step_waits_again_for_a_server_that_did_not_connect(caplog):
    async with chaos("mute", connect_timeout_seconds=0.5) as server:
        await server.tools()
        connection = server._connection()
        connection._again_at = 0.0  # it is time for another attempt
        started = time.monotonic()
        assert await server.tools() == ()
        assert time.monotonic() - started < 0.4
        assert not connection._attempt.done()
    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(warnings) == 1  # and none for each step


async def test_a_flood_of_notices_delays_an_answer_and_loses_none():
    async with chaos() as server:
        assert (await ask(server, "flood")).content == "after the flood"


async def test_answers_out_of_order_reach_their_own_calls():
    async with chaos() as server:
        tools = {tool.name: tool for tool in await server.tools()}
        outputs = await asyncio.gather(*[tools["shuffle"].invoke({"number": each, "of": 20}) for each in range(20)])
    assert [output.content for output in outputs] == [str(each) for each in range(20)]


async def test_changed_tools_are_there_at_the_next_step():
    model = ScriptedModel(call("change"), call("brand_new", text="!"), "done")
    result = await Agent(model, toolsets=[chaos()]).run("go")
    assert [{tool.name for tool in request.tools} & {"brand_new", "die"} for request in model.requests] == [
        {"die"},
        {"brand_new"},
        {"brand_new"},
    ]
    assert result.steps[1].results[0].content == "brand_new: !"


async def test_noise_is_skipped_with_a_warning_and_errors_are_kept_to_a_tail(caplog):
    async with chaos("noisy") as server:
        assert (await ask(server, "echo", text="quiet")).content == "echo: quiet"
        big = await ask(server, "huge", size=2 * 1024 * 1024)
        assert len(big.content) == 2 * 1024 * 1024
        link = await server._connection().link()
        assert sum(map(len, link.life.tail._pieces)) < 128 * 1024
    noise = [record.getMessage() for record in caplog.records if "skipped a line" in record.getMessage()]
    assert len(noise) == 3
    assert noise[0] == "MCP server chaos: skipped a line that is no message: Server started"


async def test_a_message_beyond_the_limit_ends_the_connection_and_says_so():
    async with chaos() as server:
        with pytest.raises(ToolError, match="it wrote a message of more than 16 MiB"):
            await ask(server, "huge", size=17 * 1024 * 1024)
        assert (await ask(server, "echo", text="back")).content == "echo: back"


async def test_an_old_server_that_ends_at_an_unknown_first_message_is_started_again_for_the_older_protocol():
    async with chaos("deaf") as server:
        assert (await server.ready()).protocol == "2025-11-25"
        assert server._connection()._protocol == "legacy"  # and is not asked again


async def test_an_old_server_that_never_answers_the_question_for_the_newest_protocol_is_asked_in_the_older_way_too():
    started = time.monotonic()
    async with chaos("ignores") as server:
        assert (await server.ready()).protocol == "2025-11-25"
    assert time.monotonic() - started < 8


async def test_pages_are_followed_to_the_end_and_a_cursor_that_comes_round_ends_them(caplog):
    async with chaos("paged") as server:
        assert [tool.name for tool in await server.tools()] == [f"tool_{number}" for number in range(6)]
    async with chaos("loops") as server:
        assert [tool.name for tool in await server.tools()] == ["first", "second"]
    assert "its list of tools comes round again and was cut" in caplog.text


async def test_one_bad_tool_is_left_out_with_a_warning_and_the_others_stay(caplog):
    async with chaos("sloppy") as server:
        names = {tool.name for tool in await server.tools()}
    assert "echo" in names
    assert not names & {"bad", "worse", "worst"}
    assert "left out the tool 'bad', which does not fit the protocol" in caplog.text


async def test_progress_is_told_while_the_call_runs():
    events = await events_of(Agent(ScriptedModel(call("progress"), "done"), toolsets=[chaos()]))
    told = [(event.message, event.progress, event.total) for event in only(events, ToolProgress)]
    assert told == [("step 0", 0.0, 3.0), ("step 1", 1.0, 3.0), ("step 2", 2.0, 3.0)]


async def test_a_stubborn_server_and_its_child_are_gone_when_it_is_closed():
    started = time.monotonic()
    async with chaos("stays", close_timeout_seconds=0.6) as server:
        pids = [int(tool.name.removeprefix("pid_")) for tool in await server.tools()]
        assert all(map(lives, pids))
    assert len(pids) == 2
    for _ in range(200):  # whoever inherits an orphan buries it
        if not any(map(lives, pids)):
            break
        await asyncio.sleep(0.01)
    assert not any(map(lives, pids))
    assert time.monotonic() - started < 8


async def test_a_cancelled_run_leaves_no_process_behind():
    model = ScriptedModel(call("hang"), "never")
    server = chaos()
    async with Agent(model, toolsets=[server]).stream("go") as run:
        async for event in run:
            if isinstance(event, ToolStart):
                connection = server._connection()
                break
    assert not connection._links
    assert not server._connections


async def test_secrets_of_this_process_do_not_reach_a_server(monkeypatch):
    monkeypatch.setenv("PROVIDER_API_KEY", "secret")
    async with chaos() as server, chaos(env={"MINE": "1"}) as other:
        bare = json.loads((await ask(server, "environment")).content)
        given = json.loads((await ask(other, "environment")).content)
    assert "PATH" in bare
    assert not any("secret" in value for value in (*bare.values(), *given.values()))
    assert given["MINE"] == "1"
    assert "MINE" not in bare


async def test_an_output_schema_that_takes_for_ever_to_check_keeps_nobody():
    async with asyncio.timeout(BOUND), chaos("trap") as server:
        output = await ask(server, "trap")
    assert json.loads(output.content) == {"word": "a" * 40 + "!"}


async def test_a_server_that_asks_again_and_again_gains_no_time_by_it():
    asked = []

    def at_once(question: Elicitation) -> Allow:
        asked.append(question)
        return Allow()

    async with asyncio.timeout(BOUND), chaos(protocol="legacy", elicit=at_once, call_timeout_seconds=0.5) as server:
        with pytest.raises(ToolError, match=r"no answer to nag within 0\.5 seconds"):
            await ask(server, "nag")
    assert len(asked) > 1


@pytest.mark.parametrize(
    "schema", [{"type": "object", "properties": {"a": 7}}, {"properties": []}, {"properties": "x"}]
)
async def test_a_question_with_a_broken_form_is_answered_or_refused_and_costs_no_session(schema):
    options = {"protocol": "legacy", "elicit": lambda _: Allow(), "call_timeout_seconds": 0.5}
    async with asyncio.timeout(BOUND), chaos(**options) as server:
        with pytest.raises(ToolError, match="no answer to nag"):
            await ask(server, "nag", schema=schema)
        assert (await ask(server, "echo", text="still here")).content == "echo: still here"


async def test_a_schema_that_is_too_deep_costs_its_tool_and_no_other(caplog):
    async with asyncio.timeout(BOUND), chaos("deep") as server:
        names = {tool.name for tool in await server.tools()}
    assert {"echo", "deep"} <= names and "bottomless" not in names
    assert "left out the tool 'bottomless'" in caplog.text


async def test_half_characters_and_deep_results_are_answers_like_others():
    async with asyncio.timeout(BOUND), chaos(call_timeout_seconds=5) as server:
        assert (await ask(server, "surrogate")).content == "half \ufffd a character"
        for levels in (100, 200):
            output = await ask(server, "depth", levels=levels)
            assert not output.is_error and output.content.startswith("deep\n") and output.content.count("x") == levels


async def test_what_a_server_says_of_an_error_is_one_bounded_line_of_printable_text():
    async with asyncio.timeout(BOUND), chaos() as server:
        with pytest.raises(ToolError) as caught:
            await ask(server, "refuse")
    assert str(caught.value).startswith("MCP server chaos:  [2Jno !!!")
    assert str(caught.value).isprintable() and len(str(caught.value)) < 3_000


async def test_a_note_of_progress_is_bounded_too():
    events = await events_of(Agent(ScriptedModel(call("chatter"), "done"), toolsets=[chaos()]))
    assert [len(event.message) for event in only(events, ToolProgress)] == [2_000]


NOBODY_LISTENS = """
import asyncio, sys
from treadle.mcp import MCPServer

async def main():
    async with MCPServer.stdio(sys.executable, ["-S", "-E", sys.argv[1]], name="chaos") as server:
        tools = {tool.name: tool for tool in await server.tools()}
        print((await tools["mumble"].invoke({})).content)

asyncio.run(main())
"""


async def test_what_a_server_gets_wrong_is_printed_by_nobody():
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", NOBODY_LISTENS, str(CHAOS), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert (out, err) == (b"said\n", b"")
