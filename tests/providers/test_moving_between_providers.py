"""A conversation that moves from any provider to any other, and back: each request is one that its server takes."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections import deque
from typing import TYPE_CHECKING, Self

import pytest

from support import wires
from support.loopback import Loopback, Seen
from support.wires import ANSWER, ASKED, NEXT, SAID, Row, agent, kin_seals, model_of, reply, rows, seal
from treadle import AssistantMessage, ModelRequest, repair

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.loopback import Reply
    from treadle.messages import Message

ROWS = rows()


@pytest.fixture(autouse=True)
def _clouds(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the prefixes of clouds need beside a key."""
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "p")
    monkeypatch.setenv("AWS_REGION", "us-east-1")


class Providers:
    """All of them at one address: answers what comes next, and looks at each request."""

    def __init__(self) -> None:
        self._answers: deque[bytes] = deque()
        self._server = Loopback(self._answer)

    async def __aenter__(self) -> Self:
        await self._server.__aenter__()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._server.__aexit__(*exc_info)

    def _answer(self, _: Seen) -> Reply:
        return reply(self._answers.popleft())

    async def converse(
        self, row: Row, history: tuple[Message, ...], asked: str
    ) -> tuple[list[str], tuple[Message, ...]]:
        """The steps at one provider: the bodies of its requests, each a legal one, and the transcript."""
        self._answers.extend(row.steps)
        result = await agent(model_of(row, self._server)).run(asked, messages=history)
        assert result.text.strip() == SAID[3]
        return self._legal(row, len(row.steps)), result.messages

    async def ask(self, row: Row, history: tuple[Message, ...]) -> str:
        """The body of one more request, a legal one."""
        self._answers.append(row.wire.answer)
        result = await agent(model_of(row, self._server)).run(NEXT, messages=history)
        assert result.text == ANSWER
        (body,) = self._legal(row, 1)
        return body

    async def ask_in_the_middle(self, row: Row, beginnings: list[tuple[Message, ...]]) -> list[str]:
        """The bodies of requests that go on where these end, each a legal one."""
        model = model_of(row, self._server)
        for beginning in beginnings:
            self._answers.append(row.wire.answer)
            request = ModelRequest("Be short.", beginning, max_output_tokens=500)
            assert [event async for event in model.stream(request)][-1].message.text == ANSWER
        return self._legal(row, len(beginnings))

    def _legal(self, row: Row, number: int) -> list[str]:
        assert not self._answers
        bodies = [request.raw.decode() for request in self._server.requests]
        self._server.requests.clear()
        assert len(bodies) == number
        for body in bodies:
            row.wire.check(json.loads(body, parse_constant=no_json), row.prefix, row.name)
        return bodies


def no_json(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")  # B032


@contextlib.contextmanager
def moving(start: Row, goal: Row) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        error.add_note(f"from {start} to {goal}")
        raise


def starts_for(goal: Row) -> list[Row]:
    return [row for row in ROWS if row.prefix != goal.prefix]


def seals_in(body: str, row: Row) -> set[int]:
    return {number for number in range(20) if seal(row.prefix, number) in body}


def assert_all_is_told(body: str, row: Row) -> None:
    """Whatever `row` said and was told is there, whoever it is said to."""
    flat = json.dumps(json.loads(body), ensure_ascii=False)
    told = (
        (*SAID, "found a", "drawn", "unfini", "look", "now", "draw", "fail", "a.tar", "#/$defs/A")
        if row.tools
        else SAID[3:]
    )
    for said in (ASKED, *told):
        assert said in flat, said


_conversations: dict[Row, tuple[list[str], tuple[Message, ...]]] = {}


async def first_conversation(row: Row) -> tuple[list[str], tuple[Message, ...]]:
    """The same for every pair, so held once."""
    if row not in _conversations:
        async with Providers() as providers:
            _conversations[row] = await providers.converse(row, (), ASKED)
    return _conversations[row]


@pytest.mark.parametrize("row", ROWS, ids=str)
async def test_a_provider_gets_all_of_its_own_back(row: Row) -> None:
    bodies, messages = await first_conversation(row)
    async with Providers() as providers:
        last = await providers.ask(row, messages)
    assert row.seals <= seals_in(last, row)
    assert_all_is_told(last, row)
    for body, following in itertools.pairwise([*bodies, last]):
        assert seals_in(body, row) <= seals_in(following, row)


@pytest.mark.parametrize("goal", ROWS, ids=str)
async def test_a_conversation_moves_from_each_provider_and_comes_back(goal: Row) -> None:
    # B017, B019, B023, B029, B030, B033
    async with Providers() as providers:
        for start in starts_for(goal):
            with moving(start, goal):
                _, messages = await first_conversation(start)
                bodies, longer = await providers.converse(goal, messages, NEXT)
                for body in bodies:
                    assert seals_in(body, start) <= kin_seals(start, goal), "nothing of another provider's own"
                    assert_all_is_told(body, start)
                for row, other in ((start, goal), (goal, start)):
                    back = await providers.ask(row, longer)
                    assert row.seals <= seals_in(back, row), "its own goes back to it"
                    assert seals_in(back, other) <= kin_seals(start, goal)


@pytest.mark.parametrize("goal", ROWS, ids=str)
async def test_a_conversation_moves_at_any_point(goal: Row) -> None:
    """In the middle of a step's work too, as a fallback does it. B025"""
    async with Providers() as providers:
        for start in starts_for(goal):
            with moving(start, goal):
                _, messages = await first_conversation(start)
                beginnings = [repair(messages[:length]) for length in range(1, len(messages) + 1)]
                waiting = [beginning for beginning in beginnings if not isinstance(beginning[-1], AssistantMessage)]
                assert len(waiting) >= (6 if start.tools else 1)
                for body in await providers.ask_in_the_middle(goal, waiting):
                    assert seals_in(body, start) <= kin_seals(start, goal)


def test_every_prefix_that_goes_over_http_is_here() -> None:
    assert {row.prefix for row in ROWS} | wires.WITHOUT_WIRE == set(wires._MODELS)
    assert sum(len(starts_for(goal)) for goal in ROWS) >= 900
    assert sum(row.tools for row in ROWS) >= 30
