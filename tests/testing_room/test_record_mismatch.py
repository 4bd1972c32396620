"""What a replay says when a request is not the one that was recorded."""

from __future__ import annotations

import asyncio

import pytest

from support.runs import bounded
from treadle import Agent, Reasoning, RunError, TreadleError, tool
from treadle.model import HostedMCP, ModelSettings
from treadle.testing import ReplayMismatch, ScriptedModel, call, record, replay
from treadle.testing._differences import differences, fits


@tool(effect="read")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(effect="read")
def subtract(a: int, b: int) -> int:
    """Take one number from another."""
    return a - b


def agent_of(*steps, name="scripted", **options):
    options = {"tools": [add], "instructions": "You are a calculator. Be brief.", **options}
    return Agent(ScriptedModel(*steps, name=name), **options)


@pytest.fixture
async def file(tmp_path):
    path = tmp_path / "runs.jsonl"
    with record(path):
        await agent_of(call("add", a=2, b=3), "It is 5.").run("What is 2 + 3?")
        await agent_of("Hello.").run("Hi")
    return path


async def told(file, agent, prompt="What is 2 + 3?"):
    """What a run is told whose request was not recorded."""
    with pytest.raises(RunError) as caught, replay(file):
        await agent.run(prompt)
    failure = caught.value.__cause__
    assert isinstance(failure, ReplayMismatch)
    assert isinstance(failure, AssertionError) and isinstance(failure, TreadleError)
    assert str(caught.value) == str(failure)
    return failure


async def test_the_text_names_the_file_and_the_nearest_line_and_what_changed_in_which_message(file):
    failure = await told(file, agent_of(), "What is 2 + 4?")
    assert str(failure).splitlines() == [
        f"{file} does not hold this request; the nearest is in line 2:",
        "  messages[0 user].content[0].text: recorded 'What is 2 + 3?', now 'What is 2 + 4?'",
    ]
    assert failure.differences == ("messages[0 user].content[0].text: recorded 'What is 2 + 3?', now 'What is 2 + 4?'",)


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        (
            {"instructions": "You are a calculator. Be verbose."},
            ["instructions: recorded 'You are a calculator. Be brief.', now 'You are a calculator. Be verbose.'"],
        ),
        ({"instructions": None}, ["instructions: recorded 'You are a calculator. Be brief.', now None"]),
        ({"name": "other"}, ["model: recorded 'scripted:scripted', now 'scripted:other'"]),
        (
            {"tools": [add, subtract]},
            ["tools[subtract]: not recorded, now {'description': 'Take one number from another.', "],
        ),
        ({"tools": []}, ["tools[add]: recorded {'description': 'Add two numbers.', 'input_schema': "]),
        (
            {"settings": ModelSettings(temperature=0.5)},
            ["settings: recorded None, now {'extra_body': {}, "],
        ),
        (
            {"reasoning": Reasoning(effort="high")},
            ["reasoning: recorded None, now {'budget_tokens': None, 'effort': 'high', "],
        ),
        ({"max_output_tokens": 5}, ["max_output_tokens: recorded 32000, now 5"]),
        (
            {"hosted_mcp": [HostedMCP("docs", "https://mcp.example", "secret-token")], "hosted_web_search": True},
            [
                "hosted_mcp[docs]: not recorded, now {'allowed_tools': [], 'name': 'docs', ",
                "hosted_web_search: recorded False, now True",
            ],
        ),
        ({"parallelism": 1}, ["sequential_tools: recorded False, now True"]),
    ],
)
async def test_every_field_is_told_by_its_path(file, options, lines):
    failure = await told(file, agent_of(**options))
    assert len(failure.differences) == len(lines)
    for line, start in zip(failure.differences, lines, strict=True):
        assert line.startswith(start)
    assert "secret-token" not in str(failure)


async def test_a_tool_whose_schema_or_description_changed_is_told(file):
    @tool(effect="read", name="add")
    def other(a: int, b: str) -> int:
        """Add two numbers!"""
        return a

    failure = await told(file, agent_of(tools=[other]))
    assert failure.differences == (
        "tools[add].description: recorded 'Add two numbers.', now 'Add two numbers!'",
        "tools[add].input_schema.properties.b.type: recorded 'integer', now 'string'",
    )


async def test_a_tool_that_answers_differently_is_told_by_the_message_it_changed(file):
    @tool(effect="read", name="add")
    def other(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b + 1

    failure = await told(file, agent_of(tools=[other]))
    assert failure.differences == ("messages[2 tool].results[add].content: recorded '5', now '6'",)
    assert "the nearest is in line 3:" in str(failure)


async def test_a_request_that_is_made_once_more_is_told(file):
    with pytest.raises(RunError, match=r"holds this request once \(line 4\), and it was made again: .*: Hi"):  # noqa: PT012, SIM117
        with replay(file):
            await agent_of().run("Hi")
            await agent_of().run("Hi")


async def test_a_conversation_that_goes_on_longer_is_told_against_its_own_recording(file):
    with pytest.raises(RunError) as caught, replay(file, allow_unused=True):  # noqa: PT012
        result = await agent_of().run("Hi")
        await agent_of().run("And now?", messages=result.messages)
    lines = str(caught.value).splitlines()
    assert lines[0].endswith("the nearest is in line 4, made already:")
    assert lines[1].startswith("  messages[1 assistant]: not recorded, now {")
    assert lines[2].startswith("  messages[2 user]: not recorded, now {")


async def test_recorded_requests_that_nobody_made_are_told_at_the_end(file):
    with pytest.raises(ReplayMismatch) as caught, replay(file):
        await agent_of().run("Hi")
    assert str(caught.value).splitlines() == [
        f"2 of 3 requests in {file} were not made:",
        "  line 2: scripted:scripted, an answer to user: What is 2 + 3?",
        "  line 3: scripted:scripted, an answer to tool: 5",
    ]
    with replay(file, allow_unused=True):
        await agent_of().run("Hi")


async def test_many_that_nobody_made_are_told_shortly(tmp_path):
    path = tmp_path / "many.jsonl"
    with record(path):
        for number in range(20):
            await agent_of("Yes.").run(f"Number {number}")
    with pytest.raises(ReplayMismatch, match=r"20 of 20 requests(.*\n){6}  and 15 more$"), replay(path):
        pass


async def test_a_mismatch_that_somebody_swallowed_is_raised_at_the_end(file):
    with pytest.raises(ReplayMismatch, match="now 'Nobody asked this'"), replay(file, allow_unused=True):  # noqa: SIM117
        with pytest.raises(RunError):
            await agent_of().run("Nobody asked this")


async def test_a_mismatch_behind_another_failure_is_noted_on_it(file):
    with pytest.raises(ZeroDivisionError) as caught, replay(file):  # noqa: PT012
        with pytest.raises(RunError):
            await agent_of().run("Nobody asked this")
        raise ZeroDivisionError
    (note,) = caught.value.__notes__
    assert "now 'Nobody asked this'" in note


async def test_the_first_of_several_mismatches_is_named_by_the_later_ones(tmp_path):
    path = tmp_path / "sub.jsonl"

    def ask_with(prompt, *steps):
        async def ask() -> str:
            """Ask another agent."""
            return (await Agent(ScriptedModel(*steps)).run(prompt)).text

        return tool(ask, effect="read")

    with record(path):
        await Agent(ScriptedModel(call("ask"), "Done."), tools=[ask_with("one", "1")]).run("go")
    with pytest.raises(RunError) as caught, replay(path):
        await Agent(ScriptedModel(), tools=[ask_with("two")]).run("go")
    text = str(caught.value)
    assert "messages[2 tool].results[ask].content: recorded '1', now " in text
    assert text.splitlines()[-1].startswith(f"before it: {path} does not hold this request; the nearest is in line")


async def test_a_mismatch_is_not_tried_again(file):
    with pytest.raises(RunError), replay(file):
        await bounded(asyncio.ensure_future(agent_of().run("other")))


def lines(recorded, now):
    return list(differences({"m": recorded}, {"m": now}))


def test_long_texts_are_shown_where_they_differ():
    before, after = "x" * 500 + "old" + "y" * 500, "x" * 500 + "new" + "y" * 500
    (line,) = lines(before, after)
    assert line == (f"m: recorded ...{'x' * 20 + 'old' + 'y' * 77!r}..., now ...{'x' * 20 + 'new' + 'y' * 77!r}...")
    (line,) = lines("x" * 500, "x" * 501)
    assert line == f"m: recorded ...{'x' * 20!r}, now ...{'x' * 21!r}"


def test_kinds_of_change_are_told():
    assert lines([1, 2], [1, 2, 3]) == ["m[2]: not recorded, now 3"]
    assert lines([1, 2], [1]) == ["m[1]: recorded 2, now missing"]
    assert lines({"a": 1}, {"b": 1}) == ["m.a: recorded 1, now missing", "m.b: not recorded, now 1"]
    assert lines({"type": "a", "x": 1}, {"type": "b", "y": 1}) == [
        "m: recorded {'type': 'a', 'x': 1}, now {'type': 'b', 'y': 1}"
    ]
    assert lines({"a": 1}, "a") == ["m: recorded {'a': 1}, now 'a'"]
    assert lines(True, 1) == ["m: recorded True, now 1"]
    assert lines(1, 1.0) == []
    one, two = {"name": "one", "x": 1}, {"type": "function", "function": {"name": "two"}}
    assert lines([one, two], [two, one]) == ["m: recorded in the order one, two, now two, one"]
    assert lines([one], [{"name": "one", "x": 2}]) == ["m[one].x: recorded 1, now 2"]
    assert lines([one, one], [one]) == ["m[1]: recorded {'name': 'one', 'x': 1}, now missing"]


@pytest.mark.parametrize(
    ("recorded", "now", "expected"),
    [
        ("[masked]", "anything", True),
        ("[masked]", "", True),
        ("a [masked] b", "a secret b", True),
        ("a [masked] b", "a [masked] b", True),
        ("a [masked] b", "a b", False),
        ("a[masked]a", "a", False),
        ("a[masked]a", "aa", True),
        ("[masked]x[masked]x[masked]", "1x2x3", True),
        ("[masked]x[masked]x[masked]", "1x23", False),
        ("[masked] and [masked]", "one and two", True),
        ("x", "[masked]", False),
        ("[masked]", None, False),
        ("[masked]", ["x"], False),
        ({"a": ["[masked]", 1]}, {"a": ["x", 1]}, True),
        ({"a": ["[masked]", 1]}, {"a": ["x", 2]}, False),
    ],
)
def test_what_is_masked_fits_any_text(recorded, now, expected):
    assert fits(recorded, now) is expected
    assert (lines(recorded, now) == []) is expected


def test_many_masks_do_not_take_for_ever():
    assert not fits("a[masked]" * 200 + "b", "a" * 20_000)
