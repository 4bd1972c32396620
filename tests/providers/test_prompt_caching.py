"""Each request begins with the bytes of the one before it, and marks stand only where they pay."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from support.loopback import Loopback
from support.wires import ASKED, Row, agent, model_of, reply, rows
from treadle import Agent

ROWS = rows()
MARK = b',"cache_control":{"type":"ephemeral"}'
MAX_MARKS = 4  # Anthropic, and OpenRouter for its models
ARRAYS = {"messages", "input", "contents"}


@pytest.fixture(autouse=True)
def _clouds(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the prefixes of clouds need beside a key."""
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "p")
    monkeypatch.setenv("AWS_REGION", "us-east-1")


async def bodies_of(row: Row, *, reverse: bool = False) -> list[bytes]:
    """The bodies of a conversation's requests, each with the history of all before."""
    async with Loopback(*map(reply, row.steps), reply(row.wire.answer)) as server:
        asked = agent(model_of(row, server), reverse=reverse)
        result = await asked.run(ASKED)
        await asked.run("And then?", messages=result.messages)
        return [request.raw for request in server.requests]


def told(body: bytes) -> tuple[str, str]:
    """The body up to the end of its messages, and what follows them."""
    text = body.decode()
    start = min(text.index(f'"{key}":[') for key in ARRAYS if f'"{key}":[' in text)
    start = text.index("[", start)
    _, end = json.JSONDecoder().raw_decode(text, start)
    return text[: end - 1], text[end:]


def rest_of(body: bytes) -> dict[str, Any]:
    return {key: value for key, value in json.loads(body).items() if key not in ARRAYS}


@pytest.mark.parametrize("row", ROWS, ids=str)
async def test_each_request_begins_with_the_bytes_of_the_one_before(row: Row) -> None:
    bodies = await bodies_of(row)
    assert len(bodies) == len(row.steps) + 1
    for before, after in itertools.pairwise(bodies):
        (start, rest), (longer, other_rest) = (told(body.replace(MARK, b"")) for body in (before, after))
        assert longer.startswith(f"{start},")
        assert rest == other_rest
        assert rest_of(before) == rest_of(after)


@pytest.mark.parametrize("row", ROWS, ids=str)
async def test_two_equal_agents_send_the_same_bytes_whatever_the_order_of_their_tools(row: Row) -> None:
    one, other = await bodies_of(row), await bodies_of(row, reverse=True)
    assert one == other


@pytest.mark.parametrize("row", ROWS, ids=str)
async def test_marks_stand_only_where_a_second_request_shares_what_they_cover(row: Row) -> None:
    bodies = await bodies_of(row)
    marks = [body.count(b'"cache_control"') for body in bodies]
    marked = row.prefix.startswith("anthropic") or row.name.startswith("anthropic/")
    assert all(0 < number <= MAX_MARKS if marked else number == 0 for number in marks)


@pytest.mark.parametrize("row", [row for row in ROWS if "anthropic" in str(row)], ids=str)
async def test_a_single_question_without_tools_is_not_marked(row: Row) -> None:
    async with Loopback(reply(row.wire.answer)) as server:
        await Agent(model_of(row, server), instructions="Be short.", retry=None).run(ASKED)
        assert b"cache_control" not in server.requests[0].raw


@pytest.mark.parametrize("row", [row for row in ROWS if row.prefix in ("openai", "azure-responses")], ids=str)
async def test_the_cache_key_is_the_same_in_every_step_and_for_equal_agents(row: Row) -> None:
    bodies = [*await bodies_of(row), *await bodies_of(row, reverse=True)]
    (key,) = {json.loads(body)["prompt_cache_key"] for body in bodies}
    assert 0 < len(key) <= 64
