"""Answers that no server should give: every adapter reads them as far as they go, or says what is wrong with them."""

from __future__ import annotations

import copy
import json
import random
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from support import claude, google, responses
from support.wires import WIRES, Row, rows
from treadle import (
    ModelError,
    ModelFinish,
    ModelRequest,
    ModelResponseError,
    OverloadedError,
    TextDelta,
    ToolCallDelta,
    UserMessage,
    decode_messages,
    encode,
)
from treadle.providers import resolve
from treadle.providers._errors import page_summary, refusal_in

if TYPE_CHECKING:
    from collections.abc import Iterator

HELLO = ModelRequest(None, (UserMessage("hello"),))
ROWS = [
    next(row for row in rows() if row.wire is wire and row.prefix in ("openai-chat", "anthropic", "openai", "google"))
    for wire in WIRES.values()
]
ROWS += [next(row for row in rows() if row.prefix == "openrouter")]
DEEP = 600
ODD: list[Any] = [
    *[None, True, -1, 2**31, 2**64, 10**30, 1e308, -0.5, float("nan"), float("inf")],
    *["", "x", "\ud800", "\udc00a", "a\ud83d", "null", "{}", "tool_use", "message", "error", "length", "é\x00"],
    *[[], {}, [[]], [None], ["x"], {"type": "text"}, {"message": 5}, {"id": [1]}, [{"type": "text", "text": "q"}]],
    "@deep",
]


async def read(row: Row, body: bytes, content_type: str = "text/event-stream") -> list[Any]:
    """The events of an answer with this body."""

    def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": content_type}, content=body)

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer), trust_env=False) as client:
        model = resolve(str(row), base_url="http://localhost/v1", api_key="a key", client=client)
        return [event async for event in model.stream(HELLO)]


async def outcome(row: Row, body: bytes) -> tuple[list[Any], ModelError | None]:
    """The events of an answer, or the error that stands in their stead."""
    try:
        return await read(row, body), None
    except ModelError as error:
        return [], error


def sse(*values: Any) -> bytes:
    body = b"".join(b"data: %b\n\n" % (v.encode() if isinstance(v, str) else json.dumps(v).encode()) for v in values)
    return body.replace(b'"@deep"', b"[" * DEEP + b"]" * DEEP)


def values_of(body: bytes) -> list[Any]:
    """The values in the events of a body; `[DONE]` as it is."""
    lines = [line[6:] for line in body.decode().splitlines() if line.startswith("data: ")]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """All places in a value, as what holds them and the key."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield value, key
        yield from places(inner)


def spoiled(values: list[Any], dice: random.Random) -> list[Any]:
    """An answer with up to three things wrong in it."""
    values = copy.deepcopy(values)
    for _ in range(dice.randint(1, 3)):
        kind, at = dice.random(), dice.randrange(len(values))
        if kind < 0.7 and (found := list(places(values[at]))):
            holder, key = dice.choice(found)
            holder[key] = copy.deepcopy(dice.choice(ODD))
        elif kind < 0.8:
            values.insert(at, copy.deepcopy(dice.choice(values)))
        elif kind < 0.9:
            dice.shuffle(values)
        elif len(values) > 1:
            del values[at]
    return values


@pytest.mark.parametrize("row", ROWS, ids=str)
async def test_a_spoiled_answer_is_an_answer_that_can_be_kept_or_an_error_of_ours(row):
    dice = random.Random(str(row))
    answers = [values_of(body) for body in (*row.steps, row.wire.answer)]
    kept = refused = 0
    for _ in range(400):
        body = sse(*spoiled(dice.choice(answers), dice))
        events, error = await outcome(row, body)
        if error is not None:
            assert str(error).isprintable(), body
            refused += 1
            continue
        finish = events[-1]
        assert [type(event) for event in events].count(ModelFinish) == 1 and isinstance(finish, ModelFinish), body
        assert decode_messages(encode([finish.message])) == (finish.message,), body
        assert isinstance(encode(finish), bytes), body
        told = "".join(event.text for event in events if isinstance(event, TextDelta))
        assert sorted(told) == sorted(finish.message.text), body  # only their order may differ
        kept += 1
    assert kept > 40 and refused > 5


@pytest.mark.parametrize("half", ["\ud800", "a\ud83d"])
@pytest.mark.parametrize("row", ROWS, ids=str)
async def test_half_a_character_where_a_number_or_a_word_belongs_breaks_nothing(row, half):
    values = values_of(row.wire.answer)
    for place in range(len(values)):
        for number in range(len(list(places(values[place])))):
            changed = copy.deepcopy(values)
            holder, key = list(places(changed[place]))[number]
            holder[key] = half
            events, error = await outcome(row, sse(*changed))
            assert error is not None or isinstance(encode(events[-1]), bytes)


@pytest.mark.parametrize("row", ROWS, ids=str)
async def test_an_answer_nested_too_deeply_to_be_kept_is_refused_as_such(row):
    half = "\ud800"
    body = {
        "openai-chat": sse(
            {"choices": [{"index": 0, "delta": {"reasoning_details": [{"type": half, "data": "@deep"}]}}]},
            {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        ),
        "anthropic": sse(*claude.block({"type": "new", "a": half, "data": "@deep"}), *claude.end()),
        "openai": sse(responses.completed({"type": "new", "id": "i", "a": half, "data": "@deep"})),
        "google": sse(google.chunk({"new": "@deep", "a": half}), google.STOP),
    }
    body["openrouter"] = body["openai-chat"]
    events, error = await outcome(row, body[row.prefix])
    if error is None:  # where the interpreter allows it, or nothing of it is kept
        assert isinstance(encode(events[-1]), bytes)
    else:
        assert isinstance(error, ModelResponseError) and "nested too deeply" in str(error) and not error.retryable


async def test_numbers_that_are_none_are_null_in_what_goes_back():
    row = next(row for row in ROWS if row.prefix == "openai-chat")
    call = {"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}
    chunk = {"choices": [{"index": 0, "delta": {"tool_calls": [{**call, "extra_content": [float("nan"), "@huge"]}]}}]}
    body = sse(chunk, {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}, "[DONE]")
    message = (await read(row, body.replace(b'"@huge"', b"-1e999")))[-1].message
    assert message.calls[0].raw == {"extra_content": [None, None]}
    assert decode_messages(encode([message])) == (message,)


async def test_an_item_whose_end_is_no_end_of_it_is_not_lost():
    row = next(row for row in ROWS if row.prefix == "openai")
    whole, odd = responses.call(call_id="b"), {"id": [1]}
    events = await read(
        row,
        sse(
            responses.added(0, responses.call("", "a")),
            responses.args('{"a": 1', 0),
            responses.done(0, odd),
            responses.added(1, whole),
            responses.done(1, whole),
            responses.completed(odd, whole, {"type": "x", "id": {}}, {"type": "custom_tool_call", "call_id": []}),
        ),
    )
    first, second = events[-1].message.calls
    assert (first.id, first.args, first.finished) == ("a", '{"a": 1', False)
    assert (second.id, second.args, second.finished) == ("b", "{}", True)
    assert {(event.index, event.call_id) for event in events if isinstance(event, ToolCallDelta)} == {
        (0, "a"),
        (1, "b"),
    }


@pytest.mark.parametrize("delta", [5, "x", [1], [["data", "x"]], {"n": "@long"}])
async def test_a_delta_of_an_unknown_block_may_be_anything(delta):
    row = next(row for row in ROWS if row.prefix == "anthropic")
    start, _ = claude.block({"type": "new", "data": "d"})
    body = sse(start, {"type": "content_block_delta", "index": 0, "delta": delta}, *claude.end())
    (finish,) = await read(row, body.replace(b'"@long"', b"9" * 5_000))
    assert finish.message.content[0].data["data"] == "d"


@pytest.mark.parametrize("depth", [101, 20_000])
async def test_a_path_of_arguments_has_an_end(depth):
    row = next(row for row in ROWS if row.prefix == "google")
    piece = google.piece("$.a" + "[1000]" * depth, more=False, stringValue="x")
    with pytest.raises(ModelResponseError, match="deep"):
        await read(row, sse(google.chunk(piece), google.STOP))


@pytest.mark.parametrize("row", ROWS, ids=str)
async def test_an_error_cannot_move_the_cursor_of_a_terminal(row):
    with pytest.raises(OverloadedError) as caught:
        await read(row, sse({"error": {"message": "\x1b[2Jgone\x07 \ud800 é", "code": 503}, "type": "error"}))
    assert str(caught.value).isprintable() and "gone" in str(caught.value) and "é" in str(caught.value)
    assert page_summary(b"<title>\x1b[2Jgone</title>").isprintable()


@pytest.mark.parametrize("odd", [b"[" * 10_000 + b"]" * 10_000, b"-5", b'"5"', b"true", b"1e999", b"9" * 5_000])
@pytest.mark.parametrize("model", ["anthropic:claude-opus-4-6", "google:gemini-2.5-flash"])
async def test_a_count_that_is_none_is_an_error_of_ours(model, odd):
    body = b'{"input_tokens": %b, "totalTokens": %b}' % (odd, odd)
    transport = httpx2.MockTransport(lambda _: httpx2.Response(200, content=body))
    async with httpx2.AsyncClient(transport=transport, trust_env=False) as client:
        counting = resolve(model, api_key="a key", client=client).count_tokens(HELLO)  # type: ignore[attr-defined]
        with pytest.raises(ModelResponseError, match="no token count"):
            await counting


def test_an_error_nested_without_end_is_read_as_far_as_it_goes():
    value: Any = {"message": "it broke"}
    for _ in range(900):
        value = [value]
    assert refusal_in(value).retry_after_seconds is None
