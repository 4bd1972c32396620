"""Typed answers: by the model's schema feature, or by a final tool."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel

from support.runs import assert_whole, events_of, only
from treadle import (
    Agent,
    Capabilities,
    ConfigError,
    LimitExceeded,
    Limits,
    ModelFinish,
    OutputError,
    StopReason,
    ToolFinish,
    UserMessage,
    fold,
    tool,
)
from treadle.output import OutputSpec, unfenced
from treadle.testing import ScriptedModel, call, call_text, step


class City(BaseModel):
    name: str
    people: int


@dataclass
class Point:
    x: int


OSLO = '{"name": "Oslo", "people": 700000}'
WITHOUT_SCHEMAS = Capabilities()


@tool(effect="read")
async def look() -> str:
    """Look around."""
    return "seen"


async def test_the_answer_is_the_text_unless_a_type_is_asked_for() -> None:
    assert (await Agent(ScriptedModel("hi")).run("go")).output == "hi"


async def test_a_model_with_schemas_is_given_the_schema_and_its_text_is_read() -> None:
    model = ScriptedModel(OSLO)
    result = await Agent(model, output=City).run("go")
    assert result.output == City(name="Oslo", people=700000)
    schema = model.requests[0].output_schema
    assert schema is not None
    assert set(schema["properties"]) == {"name", "people"}
    assert model.requests[0].tools == ()


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (int, '{"value": 3}', 3),
        (int, "3", 3),
        (list[int], '{"value": [1, 2]}', [1, 2]),
        (City | Point, OSLO, City(name="Oslo", people=700000)),
        (City | Point, '{"value": {"x": 1}}', Point(1)),
        (int | None, '{"value": null}', None),
        (Point, '{"x": 1}', Point(1)),
    ],
)
async def test_types_that_are_no_object_travel_in_one(kind: Any, text: str, value: Any) -> None:
    text = text if kind != City | Point or "value" in text else f'{{"value": {text}}}'
    result = await Agent(ScriptedModel(text), output=kind).run("go")
    assert result.output == value


async def test_a_bad_answer_goes_back_with_what_is_wrong_and_the_log_folds_to_the_same_transcript() -> None:
    model = ScriptedModel('{"name": "Oslo"}', "no JSON at all", OSLO)
    agent = Agent(model, output=City)
    events = await events_of(agent)
    assert_whole(events)
    corrections = [message for message in model.requests[2].messages if isinstance(message, UserMessage)][1:]
    assert "people" in corrections[0].content[0].text
    assert "JSON" in corrections[1].content[0].text
    assert fold(events)[:-1] == model.requests[2].messages


@pytest.mark.parametrize("capabilities", [None, WITHOUT_SCHEMAS])
async def test_the_third_bad_answer_is_an_error_that_keeps_the_transcript(capabilities: Capabilities | None) -> None:
    model = ScriptedModel("bad", "bad", "bad", capabilities=capabilities)
    with pytest.raises(OutputError) as raised:
        await Agent(model, output=City).run("go")
    model.assert_used_up()
    assert raised.value.result is not None
    assert raised.value.result.output is None
    assert len(raised.value.result.steps) == 3


async def test_without_schemas_a_final_tool_takes_the_answer_as_an_ordinary_call() -> None:
    model = ScriptedModel(
        call("look"),
        [call("final_answer", name="Oslo", people=700000), call("look")],
        capabilities=WITHOUT_SCHEMAS,
    )
    events = await events_of(Agent(model, output=City, tools=[look]))
    assert_whole(events)
    assert [spec.name for spec in model.requests[0].tools] == ["final_answer", "look"]
    assert model.requests[0].output_schema is None
    assert {event.name: event.result.content for event in only(events, ToolFinish)[1:]} == {
        "final_answer": "The answer was taken.",
        "look": "seen",
    }
    assert events[-1].stop is StopReason.END
    model = ScriptedModel(call("final_answer", name="Oslo", people=1), capabilities=WITHOUT_SCHEMAS)
    assert (await Agent(model, output=City).run("go")).output == City(name="Oslo", people=1)


async def test_a_bad_call_of_the_final_tool_is_an_error_result_and_bounded() -> None:
    bad = call("final_answer", name="Oslo", people="many")
    good = call("final_answer", name="Oslo", people=1)
    model = ScriptedModel(bad, call_text("final_answer", "{"), good, capabilities=WITHOUT_SCHEMAS)
    result = await Agent(model, output=City).run("go")
    assert result.output.people == 1
    assert "people" in result.steps[0].results[0].content
    with pytest.raises(OutputError):
        await Agent(ScriptedModel(bad, bad, bad, capabilities=WITHOUT_SCHEMAS), output=City).run("go")


async def test_text_where_the_final_tool_was_wanted_is_read_or_sent_back() -> None:
    model = ScriptedModel("Oslo!", OSLO, capabilities=WITHOUT_SCHEMAS)
    result = await Agent(model, output=City).run("go")
    assert result.output.name == "Oslo"
    assert "final_answer" in model.requests[1].messages[-1].content[0].text


async def test_values_that_are_no_object_go_through_the_final_tool_too() -> None:
    model = ScriptedModel(call("final_answer", wrong=1), call("final_answer", value=[1]), capabilities=WITHOUT_SCHEMAS)
    assert (await Agent(model, output=list[int]).run("go")).output == [1]


async def test_a_cut_answer_is_a_stop_and_not_a_bad_answer() -> None:
    result = await Agent(ScriptedModel(step('{"name": "Os', stop="max_tokens")), output=City).run("go")
    assert (result.stop, result.output) == (StopReason.MAX_TOKENS, None)


async def test_a_cut_call_of_the_final_tool_does_not_count_as_a_bad_answer() -> None:
    cut = step(call_text("final_answer", '{"na'), stop="max_tokens")
    model = ScriptedModel(cut, call("final_answer", name="O", people=1), capabilities=WITHOUT_SCHEMAS)
    assert (await Agent(model, output=City).run("go")).output.name == "O"


async def test_sending_an_answer_back_counts_as_a_step() -> None:
    with pytest.raises(LimitExceeded) as raised:
        await Agent(ScriptedModel("bad", "bad"), output=City, limits=Limits(steps=1)).run("go")
    assert raised.value.limit == "steps"


async def test_a_refusal_is_no_bad_answer() -> None:
    events = await events_of(Agent(ScriptedModel(step("I will not.", stop="refusal")), output=City))
    assert events[-1].stop is StopReason.REFUSAL
    assert len(only(events, ModelFinish)) == 1


@pytest.mark.parametrize(
    ("text", "same_as"),
    [
        ("```json\n{}\n```", "{}"),
        ("```\n{}\n```", "{}"),
        ("\ufeff```json\n{}", "{}"),
        (' {"a": "```"} ', '{"a": "```"}'),
        ('```json\n{"a": "```sh```"}\n```', '{"a": "```sh```"}'),
        ("```sh\nls\n```\n{}", "```sh\nls\n```\n{}"),
        ("Here: {}", "Here: {}"),
        ("", ""),
    ],
)
def test_only_a_fence_around_the_whole_is_removed(text: str, same_as: str) -> None:
    assert unfenced(text) == same_as


async def test_a_wrapped_value_must_stand_under_its_key() -> None:
    model = ScriptedModel('{"x": 3}', '{"value": 3}')
    assert (await Agent(model, output=int).run("go")).output == 3
    assert '"value"' in model.requests[1].messages[-1].content[0].text


@pytest.mark.parametrize(
    "text",
    ["", "Here: {}", "{} {}", "[1]", "```sh\nls\n```\n{}", "{}\nDone.", "[" * 5000 + "]" * 5000, '"x"', "\ud800"],
)
async def test_doubtful_answers_go_back_to_the_model(text: str) -> None:
    model = ScriptedModel(text, OSLO)
    assert (await Agent(model, output=City).run("go")).output.name == "Oslo"


async def test_recursive_types_keep_their_definitions() -> None:
    class Node(BaseModel):
        children: list[Node] = []

    Node.model_rebuild(_types_namespace={"Node": Node})
    schema = OutputSpec(list[Node]).schema
    assert "Node" in schema["$defs"]
    result = await Agent(ScriptedModel('{"value": [{"children": [{}]}]}'), output=list[Node]).run("go")
    assert isinstance(result.output[0].children[0], Node)


def test_an_output_that_is_no_type_is_refused_at_construction() -> None:
    with pytest.raises(ConfigError, match="output"):
        Agent(ScriptedModel(), output=lambda: 1)
    with pytest.raises(ConfigError, match="output"):
        Agent(ScriptedModel(), output=3)
