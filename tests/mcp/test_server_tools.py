"""Tools, results and agents as clients of the MCP server see them: by the official SDK's client, in both protocols."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError as ProtocolError
from mcp_types import AudioContent, EmbeddedResource, ImageContent, ResourceLink, TextContent

from support import mcp_offer
from support.mcp_serving import BOUND, NEW, OLD, connected, serving
from treadle import (
    Agent,
    ConfigError,
    Event,
    FilePart,
    Limits,
    Pause,
    Tool,
    ToolContext,
    ToolError,
    ToolFinish,
    ToolOutput,
    tool,
)
from treadle.mcp import serve_mcp
from treadle.testing import ScriptedModel, call

both = pytest.mark.parametrize("mode", [NEW, OLD])


def text_of(result: Any) -> str:
    assert all(isinstance(block, TextContent) for block in result.content)
    return "\n".join(block.text for block in result.content)


class Shelf:
    """A toolset that tells of its life and may change."""

    def __init__(self, *tools: Tool) -> None:
        self.offered = tools
        self.entered = self.left = 0
        self.broken = False

    async def __aenter__(self) -> None:
        self.entered += 1

    async def __aexit__(self, *_: object) -> None:
        self.left += 1

    async def tools(self) -> tuple[Tool, ...]:
        if self.broken:
            raise ToolError("the shelf fell down")
        return self.offered


@both
async def test_a_tool_is_told_with_its_schemas_and_its_effect(mode):
    @tool(effect="write", idempotent=True)
    def put(key: str, value: int = 0) -> bool:
        """Keeps a value."""
        return True

    @tool
    def send() -> None:
        """Sends it."""

    async with connected([mcp_offer.add, put, send], mode, name="sums", instructions="Add.") as client:
        listed = (await client.list_tools()).tools
        assert client.session.server_info.name == "sums" and client.session.instructions == "Add."
    add, kept, sent = listed
    assert [each.name for each in listed] == ["add", "put", "send"]
    assert add.description == "Adds two numbers."
    assert add.input_schema["properties"].keys() == {"a", "b"} and add.input_schema["type"] == "object"
    assert add.output_schema["properties"] == {"total": {"type": "integer"}}
    assert kept.output_schema["properties"] == {"result": {"type": "boolean"}}
    assert sent.output_schema is None
    told = [(each.annotations.read_only_hint, each.annotations.destructive_hint) for each in listed]
    assert told == [(True, False), (False, True), (False, True)]
    assert [each.annotations.idempotent_hint for each in listed] == [True, True, False]
    assert [each.annotations.open_world_hint for each in listed] == [None, False, True]


@both
async def test_a_result_with_a_schema_is_structured_and_text_as_well(mode):
    async with connected(mcp_offer.everything, mode) as client:
        total = await client.call_tool("add", {"a": 1, "b": 2})
        listed = await client.call_tool("numbers", {})
        plain = await client.call_tool("test_simple_text", {})
    assert total.structured_content == {"total": 3} and json.loads(text_of(total)) == {"total": 3}
    assert listed.structured_content == {"result": [1, 2, 3]}
    assert plain.structured_content is None and "simple text" in text_of(plain)


@both
async def test_a_result_that_breaks_its_own_schema_is_an_error_that_says_where(mode):
    async with connected(mcp_offer.wrong, mode) as client:
        result = await client.call_tool("wrong", {})
    assert result.is_error and result.structured_content is None
    assert "$.total" in text_of(result)


async def test_structured_values_of_every_kind_fit_what_was_told():
    from enum import Enum

    class Colour(Enum):
        RED = "red"

    @tool
    def colour() -> Colour:
        """An enum."""
        return Colour.RED

    @tool
    def maybe(there: bool) -> int | None:
        """A number or none."""
        return 5 if there else None

    @tool
    def digits() -> list[str] | str:
        """Text that looks like a number."""
        return "5"

    remote = {"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "integer"}}}
    found = Tool.raw("found", "", {}, lambda _: ToolOutput('two lines\n{"n":1}'), output_schema=remote)
    items = {"type": "array", "items": {"type": "string"}}
    wrapped = {"type": "object", "properties": {"result": items}, "required": ["result"]}
    lines = Tool.raw("lines", "", {}, lambda _: ToolOutput("one\ntwo"), output_schema=wrapped)
    words = {"type": "object", "properties": {"result": {"type": "string"}}, "required": ["result"]}
    said = Tool.raw("said", "", {}, lambda _: ToolOutput("hello"), output_schema=words)
    far = {"type": "object", "properties": {"n": {"$ref": "http://127.0.0.1:1/schema.json"}}}
    elsewhere = Tool.raw("elsewhere", "", {}, lambda _: {"n": 1}, output_schema=far)
    async with connected([colour, maybe, digits, found, lines, said, elsewhere]) as client:
        assert (await client.call_tool("colour", {})).structured_content == {"result": "red"}
        assert (await client.call_tool("maybe", {"there": False})).structured_content == {"result": None}
        assert (await client.call_tool("digits", {})).structured_content == {"result": "5"}
        assert (await client.call_tool("found", {})).structured_content == {"n": 1}
        assert (await client.call_tool("lines", {})).structured_content == {"result": ["one", "two"]}
        assert (await client.call_tool("said", {})).structured_content == {"result": "hello"}
        assert "broken" in text_of(await client.call_tool("elsewhere", {}))  # nothing is fetched for a schema


@both
async def test_files_become_content_of_their_kind(mode):
    @tool
    def files() -> ToolOutput:
        """Gives files."""
        return ToolOutput(
            "here",
            (
                FilePart("image/png", data=mcp_offer.PNG),
                FilePart("audio/wav", data=mcp_offer.WAV),
                FilePart("text/plain", data="häuser".encode(), name="a b.txt"),
                FilePart("text/plain", data=b"\xff\xfe"),
                FilePart("application/pdf", data=b"%PDF"),
                FilePart("text/html", url="https://example.org/page"),
            ),
        )

    async with connected(files, mode) as client:
        text, image, sound, note, odd, pdf, link = (await client.call_tool("files", {})).content
    assert isinstance(text, TextContent) and text.text == "here"
    assert isinstance(image, ImageContent) and image.mime_type == "image/png"
    assert isinstance(sound, AudioContent)
    assert isinstance(note, EmbeddedResource)
    assert note.resource.text == "häuser" and note.resource.uri == "attachment:///a%20b.txt"
    assert odd.resource.blob == "//4=" and pdf.resource.mime_type == "application/pdf"
    assert isinstance(link, ResourceLink) and link.uri == "https://example.org/page"


@both
async def test_whatever_goes_wrong_in_a_tool_is_an_error_result(mode):
    @tool
    def boom(kind: str) -> str:
        """Fails."""
        if kind == "exit":
            raise SystemExit(3)
        raise {"plain": ValueError("no"), "told": ToolError("Ask again."), "silent": KeyError()}[kind]

    @tool
    async def gone() -> str:
        """Cancels itself."""
        raise asyncio.CancelledError

    @tool(timeout_seconds=0.05)
    async def late() -> str:
        """Takes for ever."""
        await asyncio.Event().wait()
        return ""

    expected = {"plain": "ValueError: no", "told": "Ask again.", "silent": "KeyError", "exit": "SystemExit"}
    async with connected([boom, gone, late, mcp_offer.add], mode) as client:
        for kind, text in expected.items():
            result = await client.call_tool("boom", {"kind": kind})
            assert result.is_error and text in text_of(result)
        assert "cancelled itself" in text_of(await client.call_tool("gone", {}))
        assert "0.05 seconds" in text_of(await client.call_tool("late", {}))
        bad = await client.call_tool("add", {"a": "x", "b": 1})
        assert bad.is_error and "integer" in text_of(bad)
        with pytest.raises(ProtocolError, match=r"no tool 'other'\. The tools are: boom"):
            await client.call_tool("other", {})
        assert (await client.call_tool("add", {"a": 1, "b": 1})).structured_content == {"total": 2}


@both
async def test_progress_of_a_tool_comes_before_its_result_and_rises(mode):
    @tool
    def work(context: ToolContext) -> str:
        """Tells from its own thread."""
        for done in (1, 1, float("nan"), 3):
            context.progress(f"at {done}", done, 3)
        context.progress("nearly")
        return "done"

    seen: list[Any] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, total, message))

    async with connected(work, mode) as client:
        result = await client.call_tool("work", {}, progress_callback=note)
    assert text_of(result) == "done"
    assert [message for _, _, message in seen] == ["at 1", "at 1", "at nan", "at 3", "nearly"]
    values = [progress for progress, _, _ in seen]
    assert values == sorted(set(values)) and values[0] == 1 and values[3] == 3


@both
async def test_an_agent_is_one_tool_that_tells_its_steps_tools_and_text(mode):
    seen: list[str | None] = []

    async def note(_progress: float, _total: float | None, message: str | None) -> None:
        seen.append(message)

    async with connected(mcp_offer.agent(), mode) as client:
        [told] = (await client.list_tools()).tools
        result = await client.call_tool("adding_machine", {"prompt": "1 + 2?"}, progress_callback=note)
        assert client.session.server_info.name == "adding machine"
    assert told.input_schema["required"] == ["prompt"] and told.annotations.read_only_hint
    assert text_of(result) == "The sum is 3." and not result.is_error
    assert seen == ["step 1", "I add.", "tool add", "tool add done", "step 2", "The sum is 3."]


async def test_a_typed_answer_of_an_agent_is_structured():
    typed = Agent(ScriptedModel('{"total": 3}'), name="typed", output=mcp_offer.Sum)
    listing = Agent(ScriptedModel('{"value": [1, 2]}'), name="listing", output=list[int])
    async with connected([typed, listing]) as client:
        told = {each.name: each.output_schema["properties"] for each in (await client.list_tools()).tools}
        total = await client.call_tool("typed", {"prompt": "1 + 2?"})
        listed = await client.call_tool("listing", {"prompt": "1, 2"})
    assert told == {
        "typed": {"total": {"type": "integer"}},
        "listing": {"result": {"items": {"type": "integer"}, "type": "array"}},
    }
    assert (total.structured_content, listed.structured_content) == ({"total": 3}, {"result": [1, 2]})
    assert json.loads(text_of(total)) == {"total": 3}


async def test_an_agent_that_stops_short_is_an_error_that_says_why():
    def agent(name: str, **options: Any) -> Agent:
        return Agent(ScriptedModel(call("add", a=1, b=2), "3"), name=name, tools=[mcp_offer.add], **options)

    async def later(_request: object) -> Pause:
        return Pause("ask Ada")

    seen: list[Event] = []
    inner = agent("inner").as_tool("inner")
    boss = Agent(ScriptedModel(call("inner", prompt="go"), "so be it"), name="boss", tools=[inner], taps=[seen.append])
    agents = [agent("short", limits=Limits(steps=1)), agent("asks", approve=later), agent("fine"), boss]
    async with connected(agents) as client:
        results = {each.name: await client.call_tool(each.name, {"prompt": "go"}) for each in agents}
    assert "its limit on steps" in text_of(results["short"]) and results["short"].is_error
    assert "approval that nobody can give" in text_of(results["asks"]) and results["asks"].is_error
    assert text_of(results["fine"]) == "3" and not results["fine"].is_error
    assert text_of(results["boss"]) == "so be it"
    assert [event.is_error for event in seen if isinstance(event, ToolFinish)] == [False]  # it keeps its sub-agents


async def test_toolsets_are_open_as_long_as_the_server_and_may_change():
    shelf, of_agent = Shelf(mcp_offer.add), Shelf(mcp_offer.numbers)
    agent = Agent(ScriptedModel("done"), name="helper", toolsets=[of_agent])
    async with connected([shelf, agent]) as client:
        assert (shelf.entered, shelf.left, of_agent.entered) == (1, 0, 1)
        assert [each.name for each in (await client.list_tools()).tools] == ["helper", "add"]
        shelf.offered = (mcp_offer.numbers,)
        assert [each.name for each in (await client.list_tools()).tools] == ["helper", "numbers"]
        with pytest.raises(ProtocolError, match="no tool 'add'"):
            await client.call_tool("add", {"a": 1, "b": 2})
        await client.call_tool("helper", {"prompt": "x"})
        shelf.broken = True
        with pytest.raises(ProtocolError, match="the shelf fell down"):
            await client.list_tools()
        shelf.broken = False
        assert (await client.call_tool("numbers", {})).structured_content == {"result": [1, 2, 3]}
    assert (shelf.entered, shelf.left) == (1, 1) and of_agent.entered == of_agent.left == 2


async def test_of_two_tools_with_one_name_the_first_is_served():
    def named(text: str) -> Tool:
        return tool(lambda: text, name="same", description=text)

    async with connected([Shelf(named("second"), named("third")), named("first")]) as client:
        assert [each.description for each in (await client.list_tools()).tools] == ["first"]
        assert text_of(await client.call_tool("same", {})) == "first"


async def test_tools_get_the_deps_of_the_server_and_a_run_of_their_own():
    seen: list[tuple[Any, str]] = []

    @tool
    def who(context: ToolContext[str]) -> str:
        """Notes its context."""
        seen.append((context.deps, context.idempotency_key))
        return "noted"

    async with connected(who, deps="Ada") as client:
        await client.call_tool("who", {})
        await client.call_tool("who", {})
    assert [deps for deps, _ in seen] == ["Ada", "Ada"] and len({key for _, key in seen}) == 2


@both
async def test_twenty_calls_at_once_each_get_their_own_answer(mode):
    inside, all_in = 0, asyncio.Event()

    @tool
    async def echo(number: int) -> int:
        """Waits for all the others."""
        nonlocal inside
        inside += 1
        if inside == 20:
            all_in.set()
        await all_in.wait()
        return number

    async with connected(echo, mode, parallelism=20) as client:
        results = await asyncio.gather(*(client.call_tool("echo", {"number": number}) for number in range(20)))
    assert [result.structured_content for result in results] == [{"result": number} for number in range(20)]


async def test_a_sequential_tool_runs_alone_and_parallelism_bounds_the_others():
    running, most, beside = 0, 0, []

    async def work(name: str) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(5):
            await asyncio.sleep(0)
            if name == "alone":
                beside.append(running)
        running -= 1
        return name

    @tool(sequential=True)
    async def alone() -> str:
        """Must be alone."""
        return await work("alone")

    @tool
    async def shared() -> str:
        """May run beside others."""
        return await work("shared")

    async with connected([alone, shared], parallelism=3) as client:
        names = ["shared"] * 6 + ["alone"] + ["shared"] * 6 + ["alone"]
        results = await asyncio.gather(*(client.call_tool(name, {}) for name in names))
    assert [text_of(result) for result in results] == names
    assert set(beside) == {1} and 1 < most <= 3


async def there(path: Path) -> None:
    """Waits for a file."""
    async with asyncio.timeout(BOUND):
        while not path.exists():  # noqa: ASYNC110 - a tool makes it
            await asyncio.sleep(0.005)


@both
async def test_a_call_that_its_client_gives_up_is_stopped_in_peace(mode, tmp_path):
    async with connected([mcp_offer.wait, mcp_offer.add], mode) as client:
        call = asyncio.create_task(client.call_tool("wait", {"folder": str(tmp_path)}))
        await there(tmp_path / "started")
        call.cancel()
        await there(tmp_path / "stopped")
        assert (await client.call_tool("add", {"a": 1, "b": 2})).structured_content == {"total": 3}


@both
async def test_an_agent_that_its_client_gives_up_stops_its_tools(mode, tmp_path):
    model = ScriptedModel(call("wait", folder=str(tmp_path)))
    seen: list[str] = []
    agent = Agent(model, name="waiter", tools=[mcp_offer.wait], taps=[lambda event: seen.append(type(event).__name__)])
    async with connected(agent, mode) as client:
        asked = asyncio.create_task(client.call_tool("waiter", {"prompt": "wait"}))
        await there(tmp_path / "started")
        asked.cancel()
        await there(tmp_path / "stopped")
    assert seen[-1] == "RunFinish"


@both
async def test_a_call_given_up_in_the_queue_never_starts_and_frees_its_place(mode, tmp_path):
    ran: list[int] = []

    @tool
    def note(number: int) -> None:
        """Notes that it ran."""
        ran.append(number)

    async with connected([mcp_offer.wait, note], mode, parallelism=1) as client:
        first = asyncio.create_task(client.call_tool("wait", {"folder": str(tmp_path)}))
        await there(tmp_path / "started")
        queued = [asyncio.create_task(client.call_tool("note", {"number": number})) for number in range(3)]
        await client.list_tools()  # what was sent before it has arrived
        queued[1].cancel()
        await asyncio.gather(queued[1], return_exceptions=True)
        first.cancel()
        await asyncio.wait_for(asyncio.gather(queued[0], queued[2]), BOUND)
        await client.call_tool("note", {"number": 9})
    assert sorted(ran) == [0, 2, 9]


class _Broken:
    pass


@pytest.mark.parametrize(
    ("thing", "options", "words"),
    [
        ([], {}, "nothing to serve"),
        (_Broken(), {}, "cannot be served"),
        ("module:thing", {}, "cannot be served"),
        ([mcp_offer.add, mcp_offer.add], {}, "two tools are named 'add'"),
        (mcp_offer.add, {"parallelism": 0}, "parallelism"),
        (mcp_offer.add, {"transport": "carrier pigeon"}, "'stdio' or 'http'"),
        (mcp_offer.add, {"transport": "http", "host": ""}, "host"),
        (mcp_offer.add, {"transport": "http", "port": 700_000}, "not '127.0.0.1' and 700000"),
        (mcp_offer.add, {"transport": "http", "token": " "}, "token is empty"),
        (mcp_offer.add, {"transport": "http", "hosts": "tools.example"}, "hosts is a list"),
    ],
)
async def test_what_cannot_be_served_is_refused_before_anything_is(thing, options, words):
    with pytest.raises(ConfigError, match=words):
        await asyncio.wait_for(serve_mcp(thing, **options), BOUND)


async def test_a_port_that_is_taken_is_told():
    async with serving(mcp_offer.add) as url:
        with pytest.raises(ConfigError, match="cannot listen on"):
            await serve_mcp(mcp_offer.add, "http", port=int(url.split(":")[2].split("/")[0]))
