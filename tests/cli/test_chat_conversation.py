"""The conversation and the client without a terminal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from support.client import Heard, make_client, make_parts
from treadle import RunFinish, StopReason, TextDelta, ToolMessage, ToolStart, UserMessage, tool
from treadle.cli.chat.client import Client
from treadle.sessions import load
from treadle.testing import ScriptedModel, call, error

BOUND = 20.0


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Callable[..., tuple[Client, Heard]]]:
    clients: list[Client] = []

    def make(model: Any, **options: Any) -> tuple[Client, Heard]:
        client, face = make_client(tmp_path, model, **options)
        clients.append(client)
        return client, face

    yield make
    for client in clients:
        await client.close()


async def idle(client: Client) -> None:
    async with asyncio.timeout(BOUND):
        await client.conversation.idle()


def texts(messages: Any) -> list[str]:
    return [part.text for message in messages if isinstance(message, UserMessage) for part in message.content]


async def test_a_line_is_sent_shown_and_stored(start) -> None:
    client, face = start(ScriptedModel("Hello."))
    client.enter("hi")
    await idle(client)
    assert face.said == ["user: hi"]
    assert isinstance(face.events[-1], RunFinish)
    stored = await load(client.parts.store, "first")
    assert texts(stored) == ["hi"] and stored[-1].text == "Hello."


async def test_the_next_line_goes_on_with_the_conversation(start) -> None:
    model = ScriptedModel("One.", "Two.")
    client, _ = start(model)
    for line in ("first", "second"):
        client.enter(line)
        await idle(client)
    assert texts(model.requests[1].messages) == ["first", "second"]


async def test_lines_wait_while_a_run_goes_on_and_are_said_one_after_the_other(start) -> None:
    model = ScriptedModel("One.", "Two.", "Three.")
    client, face = start(model)
    client.enter("first")
    client.enter("second")
    client.enter("third")
    assert client.conversation.queue == ["second", "third"]
    await idle(client)
    assert face.said == ["user: first", "user: second", "user: third"]
    assert [texts(request.messages)[-1] for request in model.requests] == ["first", "second", "third"]


async def test_what_waits_can_be_taken_back(start) -> None:
    client, _ = start(ScriptedModel("One."))
    client.enter("first")
    client.enter("second")
    assert client.conversation.take_back() == "second"
    assert client.conversation.take_back() is None
    await idle(client)


async def test_a_cancelled_run_leaves_what_was_shown_and_gives_back_what_waited(start) -> None:
    begun = asyncio.Event()
    model = ScriptedModel(["Half an ", asyncio.Event(), "answer."], "Whole.")
    client, face = start(model)
    face.on_event = lambda event: begun.set() if isinstance(event, TextDelta) else None
    client.enter("first")
    client.enter("second")
    await asyncio.wait_for(begun.wait(), BOUND)
    assert client.conversation.cancel() and client.conversation.cancel()
    await idle(client)
    assert face.given_back == ["second"]
    assert face.events[-1].stop is StopReason.CANCELLED
    assert not client.conversation.cancel()
    client.enter("third")
    await idle(client)
    said = model.requests[1].messages
    assert texts(said) == ["first", "third"] and "Half an " in said[1].text


async def test_a_run_that_is_cancelled_in_a_tool_answers_its_call(start) -> None:
    running = asyncio.Event()

    @tool(effect="read")
    async def wait() -> str:
        """Wait."""
        running.set()
        await asyncio.Event().wait()
        return ""

    model = ScriptedModel(call("wait"), "Whole.")
    client, _ = start(model, tools=[wait])
    client.enter("first")
    await asyncio.wait_for(running.wait(), BOUND)
    client.conversation.cancel()
    await idle(client)
    client.enter("second")
    await idle(client)
    results = [message for message in model.requests[1].messages if isinstance(message, ToolMessage)]
    assert len(results) == 1 and results[0].results[0].is_error


async def test_steering_is_said_before_the_next_step(start) -> None:
    @tool(effect="read")
    def look() -> str:
        """Look."""
        return "seen"

    model = ScriptedModel(call("look"), "Done.")
    client, face = start(model, tools=[look])
    face.on_event = lambda event: client.steer("rather blue") if isinstance(event, ToolStart) else None
    client.enter("paint")
    await idle(client)
    assert texts(model.requests[1].messages) == ["paint", "rather blue"]
    assert "user: rather blue" in face.said
    assert texts(await load(client.parts.store, "first")) == ["paint", "rather blue"]


async def test_steering_without_a_run_sends(start) -> None:
    model = ScriptedModel("One.")
    client, _ = start(model)
    client.steer("hello")
    await idle(client)
    assert texts(model.requests[0].messages) == ["hello"]


async def test_a_failed_run_is_told_by_its_last_event_and_the_client_goes_on(start) -> None:
    client, face = start(ScriptedModel(error("no such thing", status=400), "Fine."))
    client.enter("first")
    client.enter("second")
    await idle(client)
    assert "no such thing" in (face.events[-1].error or "")
    assert face.given_back == ["second"] and not any(line.startswith("error") for line in face.said)
    client.enter("third")
    await idle(client)
    assert face.events[-1].stop is StopReason.END


async def test_a_wrong_model_is_one_line_and_the_prompt_is_back(tmp_path: Path) -> None:
    face = Heard()
    client = Client(face, make_parts(tmp_path, model="nobody:nothing"), "first")
    client.enter("hi")
    await idle(client)
    assert len(face.said) == 2 and face.said[1].startswith("error: ") and "nobody" in face.said[1]
    assert face.given_back == ["hi"]
    assert not client.conversation.busy
    await client.close()


async def test_a_command_of_ones_own_is_read_with_the_next_message(start) -> None:
    model = ScriptedModel("I see.", "Still.")
    client, face = start(model)
    client.enter("!echo loom")
    await idle(client)
    assert face.said[0] == "user: !echo loom" and "loom" in face.said[1]
    client.enter("what was that?")
    await idle(client)
    first, last = texts(model.requests[0].messages)
    assert "$ echo loom\nloom\n[exit code 0" in first and last == "what was that?"
    client.enter("and now?")
    await idle(client)
    assert len(texts(model.requests[1].messages)) == 3


async def test_a_command_of_ones_own_can_be_ended(start, tmp_path: Path) -> None:
    client, face = start(ScriptedModel())
    client.enter("!touch began; sleep 600")
    async with asyncio.timeout(BOUND):
        while not (tmp_path / "root" / "began").exists():  # noqa: ASYNC110 - the shell tells in no other way
            await asyncio.sleep(0.01)
    client.conversation.cancel()
    await idle(client)
    assert face.said == ["user: !touch began; sleep 600", "note: interrupted"]


@pytest.mark.parametrize("line", ["", "   ", "\n"])
async def test_a_blank_line_does_nothing(start, line: str) -> None:
    client, face = start(ScriptedModel())
    client.enter(line)
    client.steer(line)
    assert face.said == [] and not client.conversation.busy


async def test_a_path_is_no_command(start) -> None:
    model = ScriptedModel("A directory.")
    client, _ = start(model)
    client.enter("/usr/bin is what?")
    await idle(client)
    assert texts(model.requests[0].messages) == ["/usr/bin is what?"]
