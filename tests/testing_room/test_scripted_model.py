from __future__ import annotations

import asyncio

import pytest

from treadle.errors import ConfigError, ModelError, OverloadedError
from treadle.events import (
    ModelFinish,
    ModelRetry,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolFinish,
    ToolStart,
)
from treadle.messages import (
    AssistantMessage,
    Citation,
    FilePart,
    ModelRef,
    ProviderPart,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolMessage,
    ToolResultPart,
    UserMessage,
)
from treadle.model import Capabilities, Model, ModelRequest
from treadle.testing import ScriptedModel, call, call_text, error, step, think
from treadle.usage import StopReason, Usage

REF = ModelRef("scripted", "scripted")


def asking(*messages, instructions=None):
    return ModelRequest(instructions, messages or (UserMessage("Hello"),))


async def events_of(model, request=None):
    return [event async for event in model.stream(request or asking())]


async def message_of(*pieces):
    (*_, finish) = await events_of(ScriptedModel(list(pieces)))
    return finish.message


async def test_a_string_is_a_whole_answer():
    events = await events_of(ScriptedModel("forty-two"))
    message = AssistantMessage((TextPart("forty-two"),), StopReason.END, REF)
    assert events == [
        TextDelta("forty-two"),
        ModelFinish(message, Usage(input_tokens=10, output_tokens=5), StopReason.END, None, REF),
    ]


async def test_a_call_is_one_delta_and_one_part_with_compact_json_in_the_order_written():
    events = await events_of(ScriptedModel(call("move", z=[1, 2], a={"é": None})))
    args = '{"z":[1,2],"a":{"é":null}}'
    assert events[0] == ToolCallDelta(0, "call_1", "move", args)
    assert events[1].message.content == (ToolCallPart("call_1", "move", args),)
    assert events[1].stop is StopReason.TOOL_CALLS


async def test_arguments_with_any_name_fit_into_a_call():
    message = await message_of(call("f", name="n", args=1, self=2), call("g", {"not a name": 1}, b=2), call("h"))
    assert [part.args for part in message.calls] == [
        '{"name":"n","args":1,"self":2}',
        '{"not a name":1,"b":2}',
        "{}",
    ]


async def test_call_ids_count_up_through_the_script_and_can_be_set():
    model = ScriptedModel([call("a"), call("b").with_id("mine")], call("c"))
    ids = [[part.id for part in (await events_of(model))[-1].message.calls] for _ in range(2)]
    assert ids == [["call_1", "mine"], ["call_2"]]


async def test_call_text_keeps_the_arguments_byte_for_byte():
    message = await message_of(call_text("write", '{"path": "a'), call_text("write", "").cut_off())
    assert [(part.args, part.finished) for part in message.calls] == [('{"path": "a', True), ("", False)]


async def test_pieces_of_a_list_come_in_order_and_neighbouring_strings_make_one_part():
    events = await events_of(ScriptedModel([think("hm", "sig"), "two ", "deltas", call("a"), call("b"), "", "end"]))
    assert events[:-1] == [
        ReasoningDelta("hm"),
        TextDelta("two "),
        TextDelta("deltas"),
        ToolCallDelta(0, "call_1", "a", "{}"),
        ToolCallDelta(1, "call_2", "b", "{}"),
        TextDelta("end"),
    ]
    assert events[-1].message.content == (
        ReasoningPart("hm", "sig"),
        TextPart("two deltas"),
        ToolCallPart("call_1", "a", "{}"),
        ToolCallPart("call_2", "b", "{}"),
        TextPart("end"),
    )


async def test_an_empty_answer_has_no_parts_and_no_deltas():
    for script in ("", []):
        (finish,) = await events_of(ScriptedModel(script))
        assert finish.message == AssistantMessage((), StopReason.END, REF)


async def test_ready_parts_are_told_and_kept_as_they_are():
    cited = TextPart("Oslo", (Citation(url="https://example.org"),))
    opaque = ProviderPart("scripted", "redacted", {"data": "x"})
    local = ToolCallPart("c", "look", "{}", signature="s", raw={"k": 1})
    events = await events_of(ScriptedModel([cited, opaque, local, think("", "closed")]))
    assert events[:-1] == [TextDelta("Oslo"), ToolCallDelta(0, "c", "look", "{}")]
    assert events[-1].message.content == (cited, opaque, local, ReasoningPart("", "closed"))


async def test_hosted_calls_are_started_and_finished_by_the_model_and_leave_nothing_to_run():
    search = ToolCallPart("h1", "web_search", '{"q":"x"}', hosted=True)
    found = ToolResultPart("h1", "web_search", "found", hosted=True)
    late = ToolResultPart("h0", "web_search", "failed", is_error=True, hosted=True)
    events = await events_of(ScriptedModel([search, found, late, "So: x"]))
    assert events[:-1] == [
        ToolStart("h1", 0, "web_search", '{"q":"x"}', hosted=True),
        ToolFinish("h1", 0, "web_search", found),
        ToolFinish("h0", 1, "web_search", late, is_error=True),
        TextDelta("So: x"),
    ]
    assert events[-1].message.content == (search, found, late, TextPart("So: x"))
    assert events[-1].stop is StopReason.END


async def test_a_model_event_is_passed_on_and_is_no_part_of_the_message():
    retry = ModelRetry(1, 0.5, "busy")
    events = await events_of(ScriptedModel(["a", retry, "b"]))
    assert events[:-1] == [TextDelta("a"), retry, TextDelta("b")]
    assert events[-1].message.text == "ab"


async def test_a_finish_in_the_script_replaces_the_steps_own():
    finish = ModelFinish(AssistantMessage("other"))
    assert await events_of(ScriptedModel(["a", finish, "after"])) == [TextDelta("a"), finish, TextDelta("after")]


async def test_a_step_can_end_without_its_finish():
    assert await events_of(ScriptedModel(step("a", finish=False))) == [TextDelta("a")]


async def test_a_step_sets_usage_stop_and_the_providers_own_word():
    usage = Usage(input_tokens=1, output_tokens=2, cost_usd=0.5)
    model = ScriptedModel(
        step("cut", usage=usage, stop="max_tokens", raw_stop="length"), step("x", usage=None), "y", usage=Usage(7, 7)
    )
    finishes = [(await events_of(model))[-1] for _ in range(3)]
    assert [finish.usage for finish in finishes] == [usage, None, Usage(7, 7)]
    assert (finishes[0].stop, finishes[0].message.stop, finishes[0].raw_stop) == ("max_tokens", "max_tokens", "length")


async def test_an_unknown_stop_is_refused_where_the_script_stands():
    with pytest.raises(ValueError, match="finished"):
        step("x", stop="finished")


async def test_a_delayed_step_waits_before_its_first_piece():
    stream = ScriptedModel(step("x", delay_seconds=3600)).stream(asking())
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(anext(stream), 0.01)
    assert (await events_of(ScriptedModel(step("x", delay_seconds=0.001))))[0] == TextDelta("x")


async def test_an_event_in_the_script_holds_the_answer_until_it_is_set():
    gate = asyncio.Event()
    stream = ScriptedModel(["before", gate, "after"]).stream(asking())
    assert await anext(stream) == TextDelta("before")
    waiting = asyncio.ensure_future(anext(stream))
    await asyncio.wait([waiting], timeout=0.01)
    assert not waiting.done()
    gate.set()
    assert await asyncio.wait_for(waiting, 5) == TextDelta("after")
    assert (await anext(stream)).message.content == (TextPart("beforeafter"),)


async def test_a_text_error_raises_a_model_error_that_knows_its_model():
    model = ScriptedModel(error("busy", status=529, retryable=True, retry_after_seconds=2), name="m", provider="p")
    with pytest.raises(ModelError, match="busy") as caught:
        await events_of(model)
    failure = caught.value
    assert (failure.provider, failure.model, failure.status) == ("p", "m", 529)
    assert failure.retryable
    assert failure.retry_after_seconds == 2


async def test_a_text_error_is_not_retryable_unless_told():
    with pytest.raises(ModelError) as caught:
        await events_of(ScriptedModel(error("no")))
    assert not caught.value.retryable


async def test_an_exception_is_raised_as_it_is_after_the_pieces_before_it():
    failure = OverloadedError("busy")
    stream = ScriptedModel(["part", error(failure)]).stream(asking())
    assert await anext(stream) == TextDelta("part")
    with pytest.raises(OverloadedError) as caught:
        await anext(stream)
    assert caught.value is failure


def test_attributes_beside_an_exception_are_refused():
    with pytest.raises(ConfigError, match="on the exception itself"):
        error(OverloadedError("busy"), status=500)


def test_an_error_is_an_exception_or_a_text():
    with pytest.raises(ConfigError, match="takes an exception or a text, not <class"):
        error(OverloadedError)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (3, "cannot hold 3"),
        (["a", None], "cannot hold None"),
        ([step("a")], "cannot hold Step"),
        (FilePart("image/png", url="https://example.org/a.png"), "cannot hold FilePart"),
        (ToolResultPart("c", "n", "x"), "hosted results only"),
        ([error("x"), "after"], "nothing can follow"),
    ],
)
def test_a_mistake_in_the_script_shows_when_the_model_is_made(wrong, reason):
    with pytest.raises(ConfigError, match=reason):
        ScriptedModel(wrong)


async def test_a_function_as_a_step_answers_from_the_request():
    def echo(request):
        return step(request.messages[-1].content[0].text.upper(), raw_stop="dynamic")

    *_, finish = await events_of(ScriptedModel(echo))
    assert (finish.message.text, finish.raw_stop) == ("HELLO", "dynamic")


async def test_functions_in_a_list_give_pieces_and_may_be_async():
    async def later(request):
        return ["b", call("look", of=len(request.messages))]

    message = await message_of("a", later, lambda request: None, lambda request: "c")
    assert message.content == (TextPart("ab"), ToolCallPart("call_1", "look", '{"of":1}'), TextPart("c"))


async def test_a_function_in_a_list_cannot_give_a_step():
    with pytest.raises(ConfigError, match="make it a whole step"):
        await events_of(ScriptedModel(["a", lambda request: step("b")]))


async def test_a_function_that_raises_fails_the_request():
    def check(request):
        assert request.tools, "no tools"

    with pytest.raises(AssertionError, match="no tools"):
        await events_of(ScriptedModel(check))


async def test_a_missing_step_says_how_long_the_script_is_and_who_asked():
    model = ScriptedModel("one")
    await events_of(model)
    history = (
        UserMessage([TextPart("look at"), FilePart("image/png", url="https://example.org/a.png")]),
        AssistantMessage([TextPart("I look"), ToolCallPart("c", "look", '{"at":1}')]),
        ToolMessage([ToolResultPart("c", "look", "long " * 100)]),
    )
    with pytest.raises(AssertionError) as caught:
        await events_of(model, asking(UserMessage("old"), *history))
    text = str(caught.value)
    assert text.startswith("the script has 1 steps, but step 2 was asked for by: user: look at [image/png] | ")
    assert 'assistant: I look look({"at":1}) | tool: long long' in text
    assert "old" not in text
    assert len(text) < 300
    with pytest.raises(AssertionError, match="step 2 was asked for"):
        model.assert_used_up()


async def test_a_script_that_is_not_used_up_says_what_is_left():
    model = ScriptedModel("one", ["two", call("x")], "three")
    await events_of(model)
    assert model.unused == (["two", call("x")], "three")
    with pytest.raises(AssertionError, match=r"2 of 3 steps of the script were not asked for, the first of them .*two"):
        model.assert_used_up()
    await events_of(model)
    await events_of(model)
    model.assert_used_up()
    assert model.unused == ()


async def test_an_answer_nobody_read_was_not_asked_for():
    model = ScriptedModel("one")
    await model.stream(asking()).aclose()
    assert model.unused == ("one",)


async def test_requests_are_kept_as_they_were_asked_unless_told_not_to():
    first, second = asking(), asking(UserMessage("More"))
    model, forgetful = ScriptedModel("a", "b"), ScriptedModel("a", "b", record=False)
    for each in (model, forgetful):
        await events_of(each, first)
        await events_of(each, second)
    assert model.requests[0] is first
    assert model.requests[1] is second
    assert forgetful.requests == []


async def test_one_script_is_handed_out_in_the_order_of_the_requests():
    model = ScriptedModel("1", "2")
    first, second = model.stream(asking()), model.stream(asking())
    assert await anext(second) == TextDelta("1")
    assert await anext(first) == TextDelta("2")
    await first.aclose()
    await second.aclose()


async def test_by_position_gives_every_conversation_the_whole_script():
    model = ScriptedModel(lambda request: f"to {request.messages[0].content[0].text}", "then", by_position=True)

    async def converse(number):
        opening = UserMessage(f"user {number}")
        (*_, one) = await events_of(model, asking(opening))
        (*_, two) = await events_of(model, asking(opening, one.message, UserMessage("and?")))
        return one.message.text, two.message.text

    answers = await asyncio.gather(*[converse(number) for number in range(50)])
    assert answers == [(f"to user {number}", "then") for number in range(50)]
    model.assert_used_up()


async def test_by_position_counts_a_history_that_came_along():
    model = ScriptedModel("one", "two", by_position=True)
    (*_, finish) = await events_of(model, asking(UserMessage("a"), AssistantMessage("b"), UserMessage("c")))
    assert finish.message.text == "two"
    assert model.unused == ("one",)


async def test_by_position_an_error_comes_again_with_its_request():
    model = ScriptedModel(error("no"), by_position=True)
    raised = []
    for _ in range(2):
        with pytest.raises(ModelError) as caught:
            await events_of(model)
        raised.append(caught.value)
    assert raised[0] is not raised[1]


def test_it_is_a_model_with_every_capability_unless_told_otherwise():
    model = ScriptedModel()
    assert isinstance(model, Model)
    assert all(getattr(model.capabilities, name) for name in Capabilities.__struct_fields__)
    assert ScriptedModel(capabilities=Capabilities()).capabilities == Capabilities()


async def test_tokens_are_counted_as_words():
    request = asking(UserMessage("two words"), AssistantMessage("three"), instructions="Be brief.")
    assert await ScriptedModel().count_tokens(request) == await ScriptedModel().count_tokens(asking()) + 5


async def test_it_answers_where_model_requests_are_denied(monkeypatch):
    monkeypatch.setenv("TREADLE_MODEL_REQUESTS", "deny")
    assert (await events_of(ScriptedModel("yes")))[0] == TextDelta("yes")
