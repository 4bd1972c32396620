"""Inputs that have broken agents before, on the wire of every adapter: the tools run or not, the next request is valid."""

from __future__ import annotations

import asyncio
import email.utils
import json
import time
from typing import Any

import pytest

from support.calling import ABSENT, Call, calls_body, error_event, half_a_call
from support.loopback import BREAK, Loopback, Reply
from support.runs import bounded
from support.wires import WIRES, Row, model_of, reply, rows
from treadle import (
    Agent,
    AssistantMessage,
    ModelError,
    ModelRequest,
    RateLimitError,
    RunError,
    TextDelta,
    TextPart,
    ToolCallPart,
    ToolMessage,
    ToolResultPart,
    ToolSpec,
    UserMessage,
    repair,
    tool,
    trim,
)
from treadle.usage import StopReason

ROWS = rows()
# One of each wire: the openai-chat, openai, anthropic and google prefixes.
FIRST = {name: next(row for row in ROWS if row.wire is wire) for name, wire in WIRES.items()}
each_wire = pytest.mark.parametrize("wire", WIRES)
each_row = pytest.mark.parametrize("row", ROWS, ids=str)


@pytest.fixture(autouse=True)
def _clouds(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the prefixes of clouds need beside a key."""
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "p")
    monkeypatch.setenv("AWS_REGION", "us-east-1")


class Lab:
    """Tools that note what they ran with, and a server that says what it is told to."""

    def __init__(self, wire: str, *bodies: Any) -> None:
        self.row = FIRST[wire]
        self.bodies = [body if isinstance(body, Reply) else reply(body) for body in bodies]
        self.ran: list[Any] = []

        @tool(effect="read")
        def look(q: str) -> str:
            """Look."""
            self.ran.append(q)
            return f"found {q}"

        @tool(effect="read")
        def now() -> str:
            """Now."""
            self.ran.append("now")
            return "noon"

        self.tools = [look, now]

    async def run(self, **options: Any) -> Any:
        """The result of a run; each of its requests is a legal one."""
        async with Loopback(*self.bodies) as server:
            self.server = server
            agent: Agent[Any, Any] = Agent(model_of(self.row, server), tools=self.tools, **options)
            try:
                return await bounded(agent.run("go"))
            finally:
                for request in server.requests:
                    self.row.wire.check(request.body, self.row.prefix, self.row.name)

    @property
    def told(self) -> str:
        """What the model read in the last request."""
        return json.dumps(self.server.requests[-1].body, ensure_ascii=False)


# Ends, errors and stalls of a stream


@each_wire
@pytest.mark.parametrize("end", ["error", "reset", "end of body"])
async def test_an_answer_that_fails_after_it_was_shown_runs_nothing_and_is_not_begun_again(wire: str, end: str) -> None:
    # B011, B014
    shown = asyncio.Event()
    pieces = {"error": (error_event(wire),), "reset": (BREAK,), "end of body": ()}[end]
    lab = Lab(wire, Reply((half_a_call(wire), shown, *pieces)), WIRES[wire].answer)
    async with Loopback(*lab.bodies) as server:
        agent: Agent[Any, Any] = Agent(model_of(lab.row, server), tools=lab.tools)
        texts: list[str] = []

        async def read() -> None:
            async with agent.stream("go") as run:
                async for event in run:
                    if isinstance(event, TextDelta):
                        texts.append(event.text)
                        shown.set()

        with pytest.raises(RunError) as caught:
            await bounded(read())
        assert len(server.requests) == 1
    assert (texts, lab.ran) == (["Hello wor"], [])
    assert isinstance(caught.value.__cause__, ModelError)
    assert caught.value.__cause__.retryable
    assert caught.value.result is not None
    assert caught.value.result.text == "Hello wor"


@each_wire
async def test_an_error_before_anything_was_shown_is_tried_again(wire: str) -> None:
    lab = Lab(wire, error_event(wire), WIRES[wire].answer)
    assert (await lab.run()).text
    assert len(lab.server.requests) == 2


@each_wire
@pytest.mark.parametrize("args", ['{"q":"line 1', '{"q":"whole"}'], ids=["cut", "whole"])
async def test_a_call_cut_by_the_output_limit_is_not_run_and_the_model_is_told(wire: str, args: str) -> None:
    # B015
    lab = Lab(wire, calls_body(wire, Call("a", "now"), Call("b", "look", args), cut=True), WIRES[wire].answer)
    result = await lab.run()
    assert lab.ran == ["now"]
    assert result.stop is StopReason.END
    assert "cut off" in lab.told


@each_wire
async def test_calls_that_are_cut_again_and_again_end_the_run(wire: str) -> None:
    # B015: repeats are bounded
    lab = Lab(wire, calls_body(wire, Call("a", "look", '{"q":"line 1'), cut=True))
    assert (await lab.run()).stop is StopReason.MAX_TOKENS
    assert (lab.ran, len(lab.server.requests)) == ([], 2)


# Calls as the model sends them


@each_wire
@pytest.mark.parametrize(
    "args",
    ["", None, "  ", "null", '"null"', ABSENT, "{}"],
    ids=lambda args: "absent" if args is ABSENT else repr(args),
)
async def test_empty_or_null_arguments_are_none_and_the_tool_runs(wire: str, args: Any) -> None:
    # B017
    lab = Lab(wire, calls_body(wire, Call("a", "now", args)), WIRES[wire].answer)
    result = await lab.run()
    assert lab.ran == ["now"]
    assert "noon" in lab.told
    assert result.stop is StopReason.END


@each_wire
@pytest.mark.parametrize("args", ["[1]", '"x"', "3", '{"a":1} tail', "{'a': 1}", '{"a":1'])
async def test_arguments_that_are_no_object_are_an_error_result_and_the_good_call_runs(wire: str, args: str) -> None:
    # B019
    lab = Lab(wire, calls_body(wire, Call("a", "look", args), Call("b", "look", '{"q":"good"}')), WIRES[wire].answer)
    result = await lab.run()
    assert lab.ran == ["good"]
    first, second = next(message for message in result.messages if isinstance(message, ToolMessage)).results
    assert first.is_error
    assert "look" in first.content or "cut off" in first.content
    assert not second.is_error


@each_wire
@pytest.mark.parametrize("name", ["raed_file", "", "read_file ", "läs fil", "x" * 100])
async def test_an_unknown_tool_is_an_error_result_that_lists_the_real_names(wire: str, name: str) -> None:
    # B021
    lab = Lab(wire, calls_body(wire, Call("a", name), Call("b", "look", '{"q":"good"}')), WIRES[wire].answer)
    result = await lab.run()
    assert lab.ran == ["good"]
    first, _ = next(message for message in result.messages if isinstance(message, ToolMessage)).results
    assert first.is_error
    assert "look" in first.content and "now" in first.content


@each_wire
async def test_parallel_calls_that_share_an_id_are_two_calls(wire: str) -> None:
    # B002 where ids tell calls apart
    lab = Lab(
        wire, calls_body(wire, Call("a", "look", '{"q":"x"}'), Call("a", "look", '{"q":"y"}')), WIRES[wire].answer
    )
    await lab.run()
    assert lab.ran == ["x", "y"]


def without(key: str, value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without(key, item) for name, item in value.items() if name != key}
    return [without(key, item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("wire", "key"), [("openai_chat", "index"), ("anthropic", "index"), ("openai", "output_index"), ("google", "index")]
)
async def test_calls_whose_places_are_not_told_are_told_apart_all_the_same(wire: str, key: str) -> None:
    # B003
    body = calls_body(wire, Call("a", "look", '{"q":"x"}'), Call("b", "look", '{"q":"y"}')).decode()
    lines = [
        f"data: {json.dumps(without(key, json.loads(line[5:])))}" if line.startswith("data: {") else line
        for line in body.replace("\r\n", "\n").split("\n")
    ]
    lab = Lab(wire, "\n".join(lines).encode(), WIRES[wire].answer)
    await lab.run()
    assert lab.ran == ["x", "y"]


# History


def turn(call_id: str, *results: ToolResultPart, text: str = "I call.") -> list[Any]:
    answer = AssistantMessage((TextPart(text), ToolCallPart(call_id, "look", '{"q":"x"}')), StopReason.TOOL_CALLS)
    return [answer, *([ToolMessage(results)] if results else [])]


async def sent(row: Row, messages: tuple[Any, ...], **more: Any) -> dict[str, Any]:
    """The body of a request with these messages, a legal one."""
    async with Loopback(reply(row.wire.answer)) as server:
        model = model_of(row, server)
        assert [event async for event in model.stream(ModelRequest(None, messages, **more))]
        (request,) = server.requests
    row.wire.check(request.body, row.prefix, row.name)
    found: dict[str, Any] = request.body
    return found


@each_row
async def test_ids_that_every_turn_uses_again_are_paired_within_their_turn(row: Row) -> None:
    # B023
    history = [UserMessage("go")]
    history += turn("call_1", ToolResultPart("call_1", "look", "first"))
    history += turn("call_1")
    history += [UserMessage("again"), *turn("call_1", ToolResultPart("call_1", "look", "third")), UserMessage("end")]
    text = json.dumps(await sent(row, repair(tuple(history))))
    assert text.count("interrupted") == 1
    assert "first" in text and "third" in text


@each_row
async def test_a_transcript_that_is_trimmed_anywhere_is_a_valid_request(row: Row) -> None:
    # B025
    calls = tuple(ToolCallPart(f"c{n}", "look", '{"q":"x"}') for n in range(3))
    results = tuple(ToolResultPart(f"c{n}", "look", f"r{n}") for n in range(3))
    first, second = (AssistantMessage(calls, StopReason.TOOL_CALLS) for _ in "12")
    said = AssistantMessage((TextPart("done"),))
    messages = (UserMessage("a"), first, ToolMessage(results), said, UserMessage("b"), second, ToolMessage(results))
    for pending in (messages, messages[:-1]):
        for keep in range(1, len(pending) + 1):
            kept, dropped = trim(pending, keep)
            assert dropped + kept == pending
            await sent(row, (*repair(kept), UserMessage("go")))


@each_row
async def test_no_blank_text_is_ever_sent(row: Row) -> None:
    # B030
    answer = AssistantMessage((TextPart(""), ToolCallPart("a", "look", "{}"), TextPart(" \n")), StopReason.TOOL_CALLS)
    messages = (
        UserMessage("go"),
        answer,
        ToolMessage((ToolResultPart("a", "look", ""),)),
        AssistantMessage(()),
        UserMessage((TextPart(" "), TextPart("on"))),
    )
    body = await sent(row, messages, max_output_tokens=500)
    assert "system" not in body and "systemInstruction" not in body and "instructions" not in body


# Schemas


@each_row
async def test_recursive_and_very_deep_schemas_end(row: Row) -> None:
    # B035
    node = {"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/Node"}}}}
    recursive = {"$ref": "#/$defs/Node", "$defs": {"Node": node}, "type": "object", "properties": {}}
    itself = {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"$ref": "#/$defs/A"}}}
    plain = {"type": "object", "properties": {"q": {"type": "string"}}}
    specs = [ToolSpec("a", "A.", recursive), ToolSpec("b", "B.", itself), ToolSpec("look", "Look.", plain)]
    if not row.tools:
        return
    text = json.dumps(await sent(row, (UserMessage("go"),), tools=tuple(specs)))
    assert '"look"' in text
    assert len(text) < 100_000


# Retry-After


def in_seconds(seconds: int) -> str:
    return email.utils.formatdate(time.time() + seconds, usegmt=True)


@each_row
@pytest.mark.parametrize("status", [429, 503])
async def test_the_time_to_wait_is_read_off_the_headers_of_every_provider(row: Row, status: int) -> None:
    # B084
    cases: list[tuple[dict[str, str], tuple[float, float] | None]] = [
        ({"retry-after": "2"}, (2, 2)),
        ({"retry-after": "0"}, (0, 0)),
        ({"retry-after": "86400"}, (86400, 86400)),
        ({"retry-after": in_seconds(100)}, (90, 101)),
        ({"retry-after-ms": "1500"}, (1.5, 1.5)),
        *(({"retry-after": odd}, None) for odd in ("-5", "nan", "", "soon", in_seconds(-100))),
        ({}, None),
    ]
    replies = [Reply((b"{}",), status, "application/json", headers) for headers, _ in cases]
    async with Loopback(*replies) as server:
        model = model_of(row, server)
        for headers, bounds in cases:
            with pytest.raises(ModelError) as caught:
                _ = [event async for event in model.stream(ModelRequest(None, (UserMessage("go"),)))]
            waits = caught.value.retry_after_seconds
            assert (waits is None) if bounds is None else (waits is not None and bounds[0] <= waits <= bounds[1]), (
                headers
            )
            assert caught.value.retryable
            assert isinstance(caught.value, RateLimitError) == (status == 429)
            assert caught.value.status == status


def test_each_wire_is_here() -> None:
    assert set(FIRST) == set(WIRES)
