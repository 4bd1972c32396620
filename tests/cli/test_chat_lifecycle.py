"""What begins, fails to begin and ends in a client: nothing that was typed is lost, and nothing is left behind."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Self

import pytest

from support.client import Heard, make_client, make_parts
from treadle import RunFinish, RunStart, ToolStart, UserMessage, tool
from treadle.cli import main
from treadle.cli.chat.client import Client
from treadle.cli.chat.streams import printed_above
from treadle.errors import StoreError
from treadle.sessions import load
from treadle.testing import ScriptedModel, call

BOUND = 20.0
Start = Callable[..., tuple[Client, Heard]]


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    clients: list[Client] = []

    def make(model: Any, **options: Any) -> tuple[Client, Heard]:
        client, face = make_client(tmp_path, model, **options)
        clients.append(client)
        return client, face

    yield make
    for client in clients:
        await client.close()


async def do(client: Client, *lines: str) -> None:
    for line in lines:
        client.enter(line)
        async with asyncio.timeout(BOUND):
            await client.settled()


def texts(messages: Any) -> list[str]:
    return [part.text for message in messages if isinstance(message, UserMessage) for part in message.content]


async def test_a_session_that_another_process_holds_costs_neither_the_line_nor_what_a_command_printed(start) -> None:
    model = ScriptedModel("I see.")
    client, face = start(model)
    await do(client, "!echo loom")
    async with client.parts.store.claim("first"):
        await do(client, "what was that?")
    assert face.given_back == ["what was that?"] and face.said[-1].startswith("error: ")
    await do(client, "what was that?")
    assert "loom" in texts(model.requests[0].messages)[0] and face.given_back == ["what was that?"]


async def test_a_session_that_cannot_be_stored_costs_not_the_line(start, monkeypatch) -> None:
    client, face = start(ScriptedModel("Never shown."))

    async def full(*_: Any, **__: Any) -> int:
        raise StoreError("no space left on device")

    monkeypatch.setattr(client.parts.store, "append", full)
    await do(client, "a long thought")
    assert face.given_back == ["a long thought"]
    assert "no space left" in "".join([*face.said, *(getattr(event, "error", None) or "" for event in face.events)])


async def test_a_run_that_is_cancelled_before_it_has_begun_gives_its_line_back(start) -> None:
    client, face = start(ScriptedModel())
    waiting = asyncio.Event()

    class Slow:
        async def __aenter__(self) -> None:
            waiting.set()
            await asyncio.Event().wait()

        async def __aexit__(self, *_: object) -> None: ...

    client.parts.store.claim = lambda _: Slow()  # type: ignore[assignment,method-assign]
    client.enter("first")
    await asyncio.wait_for(waiting.wait(), BOUND)
    client.steer("and then")
    client.conversation.cancel()
    async with asyncio.timeout(BOUND):
        await client.settled()
    assert face.given_back == ["first\nand then"] and face.said[-1] == "note: interrupted"


@pytest.mark.parametrize("line", ["first", "!true", "/undo"])
async def test_what_is_cancelled_in_the_turn_it_is_entered_ends_and_is_told(start, line: str) -> None:
    client, face = start(ScriptedModel("Second."))
    client.enter(line)
    assert client.conversation.cancel() and client.conversation.cancel()
    async with asyncio.timeout(BOUND):
        await client.settled()
    assert face.given_back == [line] * (line == "first") and face.said[-1] == "note: interrupted"
    client.enter("second")
    async with asyncio.timeout(BOUND):
        await client.settled()
    assert not client.conversation.busy and isinstance(face.events[-1], RunFinish)


async def test_what_a_cancelled_run_was_steered_with_and_has_not_taken_is_given_back(start) -> None:
    running = asyncio.Event()

    @tool(effect="read")
    async def look(deep: bool) -> str:
        """Look."""
        if deep:
            running.set()
            await asyncio.Event().wait()
        return "seen"

    model = ScriptedModel(call("look", deep=False), call("look", deep=True))
    client, face = start(model, tools=[look])
    face.on_event = lambda event: (
        client.steer("taken") if isinstance(event, ToolStart) and not running.is_set() else None
    )
    client.enter("paint")
    await asyncio.wait_for(running.wait(), BOUND)
    client.steer("not taken")
    client.enter("waits")
    client.conversation.cancel()
    async with asyncio.timeout(BOUND):
        await client.settled()
    assert texts(await load(client.parts.store, "first"))[:2] == ["paint", "taken"]
    assert face.given_back == ["not taken\nwaits"]


async def test_the_context_figure_is_that_of_the_conversation_which_goes_on(start) -> None:
    client, _ = start(ScriptedModel("One.", "Two."))
    seen = [client.context_tokens]
    for line in ("first", "second", "/undo", "/clear", "/resume first", "/undo", "/undo"):
        await do(client, line)
        seen.append(client.context_tokens)
    full = seen[1]
    assert full > 0 and seen == [0, full, full, full, 0, full, full, 0]


async def test_a_copy_is_told_from_its_source_in_the_list(start) -> None:
    client, face = start(ScriptedModel("One.", "Two."))
    await do(client, "first", "second", "/undo", "/sessions")
    copy, source = face.said[-1].splitlines()[1:]
    assert copy.endswith("first  (a copy of first)") and "copy" not in source


async def test_a_server_that_never_answers_keeps_nobody_from_leaving(tmp_path: Path) -> None:
    chaos = Path(__file__).parents[1] / "support" / "mcp_chaos.py"
    servers = {"mute": {"command": sys.executable, "args": [str(chaos), "mute"]}}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    face = Heard()
    client = Client(face, make_parts(tmp_path, model="offline:demo", mcp=(str(tmp_path / "mcp.json"),)), "first")
    client.enter("hi")
    async with asyncio.timeout(BOUND):
        while "note: starting 1 MCP server ..." not in face.said:  # noqa: ASYNC110 - a face tells in no other way
            await asyncio.sleep(0)
        await client.close()


async def test_a_server_that_fails_in_no_known_way_is_told_of_and_left_out(tmp_path: Path) -> None:
    class Odd:
        async def __aenter__(self) -> Self:
            raise OSError("no room")

        async def __aexit__(self, *_: object) -> None: ...

        async def ready(self) -> None: ...

    (tmp_path / "mcp.json").write_text('{"mcpServers": {}}')
    face = Heard()
    client = Client(face, make_parts(tmp_path, model="offline:demo", mcp=(str(tmp_path / "mcp.json"),)), "first")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("treadle.cli.mcp.load_servers", lambda *_: [Odd()])
        await do(client, "hi")
    assert "note: an MCP server could not be started: OSError: no room" in face.said
    assert client.parts.agents.servers == [] and face.events
    await client.close()


async def test_what_is_printed_without_an_end_of_line_is_shown_at_the_end() -> None:
    face = Heard()
    with printed_above(face):  # type: ignore[arg-type]
        sys.stdout.write("one\ntwo")
    await asyncio.sleep(0)
    assert face.said == ["output: one\ntwo\n"]


async def test_what_a_thread_prints_at_once_is_shown_whole_and_in_pieces() -> None:
    face = Heard()
    with printed_above(face):  # type: ignore[arg-type]
        await asyncio.to_thread(lambda: [sys.stdout.write(f"{number}\n") for number in range(5000)])
    lines = "".join(text.removeprefix("output: ") for text in face.said).split()
    assert lines == [str(number) for number in range(5000)]
    assert all(text.count("\n") <= 50 for text in face.said) and len(face.said) < 5000


@pytest.mark.parametrize("name", ["foo", "offline:nope", "nobody:x"])
def test_a_name_that_means_no_model_is_refused_before_anything_else(name: str, capsys, tmp_path, monkeypatch) -> None:
    (tmp_path / ".treadle").mkdir()
    (tmp_path / ".treadle" / "config.toml").write_text('mode = "plan"\n')
    monkeypatch.chdir(tmp_path)
    assert main(["chat", "-m", name]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1 and name.removesuffix(":x") in said.err


async def test_a_cancel_just_as_a_run_is_stored_gives_nothing_back_that_is_said(start, monkeypatch) -> None:
    client, face = start(ScriptedModel())
    append = client.parts.store.append

    async def slow(*what: Any, **how: Any) -> int:
        client.conversation.cancel()
        await asyncio.sleep(0)
        return await append(*what, **how)

    monkeypatch.setattr(client.parts.store, "append", slow)
    await do(client, "!echo loom", "said once")
    said = texts(await load(client.parts.store, "first"))
    assert said[-1] == "said once" and "loom" in said[0] and face.given_back == []
    await do(client, "next")
    assert texts(await load(client.parts.store, "first"))[2:] == ["next"], "the output went along once"


class Closing(ScriptedModel):
    """Tells that it was closed."""

    def __init__(self, name: str, closed: list[str]) -> None:
        super().__init__("One.", "Two.", "Three.")
        self.label, self.closed = name, closed

    async def aclose(self) -> None:
        self.closed.append(self.label)


async def test_a_model_is_kept_when_the_effort_changes_and_closed_once_no_run_needs_it(tmp_path, monkeypatch) -> None:
    made: list[str] = []
    closed: list[str] = []

    def resolve(name: str, **_: Any) -> Closing:
        made.append(name)
        return Closing(name, closed)

    monkeypatch.setattr("treadle.providers.resolve", resolve)
    face = Heard()
    client = Client(face, make_parts(tmp_path, model="x:one"), "first")
    face.on_event = lambda event: client.enter("/model x:two") if isinstance(event, RunStart) and not made[1:] else None
    await do(client, "first", "/effort low")
    assert made == ["x:one", "x:two"] and closed == [], "the run of the first was going on"
    await do(client, "second", "/effort high", "third")
    assert made == ["x:one", "x:two"] and closed == ["x:one"]
    await client.close()
    assert closed == ["x:one", "x:two"]
