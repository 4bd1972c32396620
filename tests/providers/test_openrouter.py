"""OpenRouter: reasoning there and back, marks for the prompt cache, headers, and errors inside of answers."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from support.chat import DONE, HELLO, chunk, collect, sse, text, usage
from support.loopback import Loopback, Reply
from treadle.errors import OverloadedError, RateLimitError, UnsupportedError
from treadle.events import ModelFinish, ReasoningDelta
from treadle.messages import (
    AssistantMessage,
    FilePart,
    Message,
    ModelRef,
    ProviderPart,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolMessage,
    ToolResultPart,
    UserMessage,
)
from treadle.model import ModelRequest, ModelSettings, Reasoning, ToolSpec
from treadle.providers import resolve
from treadle.providers.openai_chat import OpenAIChatModel
from treadle.usage import StopReason

TOOL = ToolSpec("add", "Adds.", {"type": "object", "properties": {"a": {"type": "integer"}}})
CLAUDE, GPT = "anthropic/claude-sonnet-4.6", "openai/gpt-5.2"
MARK = {"cache_control": {"type": "ephemeral"}}


def asked(name: str = GPT, **options: Any) -> OpenAIChatModel:
    return OpenAIChatModel(name, provider="openrouter", api_key="k", **options)


def body(request: ModelRequest, name: str = GPT) -> Any:
    return json.loads(asked(name)._writer.body(request))


def step(number: int) -> list[Message]:
    """A call and its result."""
    call = ToolCallPart(f"c{number}", "add", '{"a":1}')
    ref = ModelRef("openrouter", CLAUDE)
    result = ToolResultPart(f"c{number}", "add", str(number))
    return [AssistantMessage((call,), StopReason.TOOL_CALLS, ref), ToolMessage((result,))]


async def answer(*values: Any, **reply: Any) -> ModelFinish:
    pieces = (sse(*values, DONE),) if not reply else tuple(json.dumps(value).encode() for value in values)
    async with Loopback(Reply(pieces, **reply)) as server:
        found = (await collect(asked(base_url=server.url)))[-1]
    assert isinstance(found, ModelFinish)
    return found


def details_of(finish: ModelFinish) -> Any:
    (part,) = [part for part in finish.message.content if isinstance(part, ProviderPart)]
    return part.data


# How much to reason


@pytest.mark.parametrize(
    ("reasoning", "told"),
    [
        (Reasoning(effort="xhigh"), {"effort": "xhigh"}),
        (Reasoning(effort="none"), {"effort": "none"}),
        (Reasoning(budget_tokens=2_000), {"max_tokens": 2_000}),
        (Reasoning(effort="high", budget_tokens=2_000), {"max_tokens": 2_000}),
        (Reasoning(show=True), {"enabled": True}),
    ],
)
def test_a_budget_wins_over_an_effort(reasoning: Reasoning, told: dict[str, Any]) -> None:
    found = body(ModelRequest(None, HELLO, reasoning=reasoning))
    assert found["reasoning"] == told
    assert "reasoning_effort" not in found


def test_claude_has_a_smallest_budget() -> None:
    assert asked(CLAUDE).capabilities.min_reasoning_budget == 1_024
    with pytest.raises(UnsupportedError, match="no reasoning budget below 1024 tokens"):
        body(ModelRequest(None, HELLO, reasoning=Reasoning(budget_tokens=100)), CLAUDE)
    assert body(ModelRequest(None, HELLO, reasoning=Reasoning(budget_tokens=100)))["reasoning"] == {"max_tokens": 100}


# Reasoning comes back as it was


def detail(**fields: Any) -> dict[str, Any]:
    return chunk({"reasoning_details": [fields]})


async def test_pieces_of_a_block_are_joined_and_the_signature_is_kept() -> None:
    head = {"type": "reasoning.text", "format": "anthropic-claude-v1", "index": 0}
    finish = await answer(
        detail(**head, text="one "),
        detail(**head, text="two"),
        detail(**head, signature="s1"),
        text("hi"),
        chunk({}, "stop"),
    )
    assert details_of(finish) == [{**head, "text": "one two", "signature": "s1"}]
    assert [part.text for part in finish.message.content if isinstance(part, ReasoningPart)] == ["one two"]


async def test_blocks_that_share_a_place_stay_apart() -> None:
    finish = await answer(
        detail(type="reasoning.text", index=0, text="a", signature="s1"),
        detail(type="reasoning.text", index=0, text="b"),
        detail(type="reasoning.text", index=0, text="c", signature="s2"),
        detail(type="reasoning.encrypted", index=0, data="x"),
        detail(type="reasoning.encrypted", index=0, data="y"),
        detail(type="reasoning.encrypted", index=0, data="z", id="rs_2"),
        detail(type="reasoning.summary", index=1, summary="p", id=None, format=None),
        detail(type="reasoning.summary", index=1, summary="q", format="openai-responses-v1"),
        text("hi"),
        chunk({}, "stop"),
    )
    assert details_of(finish) == [
        {"type": "reasoning.text", "index": 0, "text": "a", "signature": "s1"},
        {"type": "reasoning.text", "index": 0, "text": "bc", "signature": "s2"},
        {"type": "reasoning.encrypted", "index": 0, "data": "x"},
        {"type": "reasoning.encrypted", "index": 0, "data": "y"},
        {"type": "reasoning.encrypted", "index": 0, "data": "z", "id": "rs_2"},
        {"type": "reasoning.summary", "index": 1, "summary": "pq", "id": None, "format": "openai-responses-v1"},
    ]


async def test_the_blocks_of_a_whole_answer_are_left_as_they_are() -> None:
    details = [
        {"type": "reasoning.text", "index": 0, "text": "a", "format": None},
        {"type": "reasoning.text", "index": 0, "text": "b"},
        {"type": "reasoning.encrypted", "data": "x"},
    ]
    whole = {"choices": [{"finish_reason": "stop", "message": {"content": "hi", "reasoning_details": details}}]}
    finish = await answer(whole, content_type="application/json")
    assert details_of(finish) == details
    request = ModelRequest(None, (*HELLO, finish.message, UserMessage("go on")))
    assert body(request)["messages"][1] == {"role": "assistant", "content": "hi", "reasoning_details": details}


async def test_reasoning_without_blocks_goes_back_as_text() -> None:
    finish = await answer(chunk({"reasoning": "hm"}), text("hi"), chunk({}, "stop"))
    written = body(ModelRequest(None, (*HELLO, finish.message, UserMessage("go on"))))["messages"][1]
    assert written == {"role": "assistant", "content": "hi", "reasoning": "hm"}


async def test_reasoning_is_shown_once_where_text_and_blocks_both_tell_it() -> None:
    both = chunk({"reasoning": "hm", "reasoning_details": [{"type": "reasoning.text", "text": "hm", "index": 0}]})
    async with Loopback(Reply((sse(both, text("hi"), chunk({}, "stop"), DONE),))) as server:
        events = await collect(asked(base_url=server.url))
    assert [event.text for event in events if isinstance(event, ReasoningDelta)] == ["hm"]


# Prompt caching


def marks_in(value: Any) -> int:
    if isinstance(value, dict):
        return ("cache_control" in value) + sum(map(marks_in, value.values()))
    return sum(map(marks_in, value)) if isinstance(value, list) else 0


def unmarked(data: bytes) -> bytes:
    return data.replace(b',"cache_control":{"type":"ephemeral"}', b"")


def test_marks_stand_at_the_instructions_and_at_the_end() -> None:
    found = body(ModelRequest("Be short.", (*HELLO, *step(1)), (TOOL,)), CLAUDE)
    system, user, said, result = found["messages"]
    assert system == {"role": "system", "content": [{"type": "text", "text": "Be short.", **MARK}]}
    assert user == {"role": "user", "content": [{"type": "text", "text": "hello"}]}
    assert marks_in(said) == 0
    assert result["content"] == [{"type": "text", "text": "1", **MARK}]
    assert marks_in(found) == 2


def test_a_request_that_nothing_will_share_a_beginning_with_has_no_marks() -> None:
    assert marks_in(body(ModelRequest("Be short.", HELLO), CLAUDE)) == 0


@pytest.mark.parametrize("name", [GPT, "google/gemini-3-pro", "x-ai/grok-4.3"])
def test_models_that_cache_by_themselves_get_no_marks(name: str) -> None:
    found = body(ModelRequest("Be short.", (*HELLO, *step(1)), (TOOL,)), name)
    assert marks_in(found) == 0
    assert found["messages"][0] == {"role": "system", "content": "Be short."}


def test_files_are_marked_and_blank_results_and_answers_are_not() -> None:
    image = UserMessage((TextPart("look"), FilePart("image/png", data="AAAA")))
    found = body(ModelRequest(None, (image,), (TOOL,)), CLAUDE)
    assert found["messages"][0]["content"][-1] == {
        "type": "image_url",
        "image_url": {"url": "data:image/png;base64,AAAA"},
        **MARK,
    }
    blank = ToolMessage((ToolResultPart("c1", "add", ""),))
    assert marks_in(body(ModelRequest(None, (*HELLO, step(1)[0], blank), (TOOL,)), CLAUDE)) == 0
    assert marks_in(body(ModelRequest(None, (*HELLO, step(1)[0]), (TOOL,)), CLAUDE)) == 0


def test_each_request_begins_as_the_one_before_but_for_the_marks() -> None:
    one_agent, other = asked(CLAUDE)._writer, asked(CLAUDE)._writer
    messages: list[Message] = [*HELLO, *itertools.chain.from_iterable(step(number) for number in range(5))]
    last = b""
    for end in range(1, len(messages) + 1, 2):
        request = ModelRequest("Be short.", tuple(messages[:end]), (TOOL,))
        written = one_agent.body(request)
        assert written == one_agent.body(request) == other.body(request)
        assert marks_in(json.loads(written)) == 2
        start = unmarked(written)
        assert start.startswith(last)
        last = start[: start.index(b'],"stream"')]


# Routing, attribution, tools, files, cost


async def test_routing_is_passed_through_and_the_caller_says_who_asks() -> None:
    async with Loopback(Reply((sse(text("hi"), chunk({}, "stop"), DONE),))) as server:
        routing = {"provider": {"order": ["Anthropic"], "allow_fallbacks": False}, "models": ["x-ai/grok-4.3"]}
        await collect(asked(base_url=server.url), ModelRequest(None, HELLO))
        headers = {"X-Title": "Mine", "HTTP-Referer": "https://mine"}
        settings = ModelSettings(extra_body=routing, extra_headers=headers)
        await collect(asked(base_url=server.url), ModelRequest(None, HELLO, settings=settings))
    plain, own = server.requests
    assert plain.headers["x-title"] == "treadle"
    assert (own.headers["x-title"], own.headers["http-referer"]) == ("Mine", "https://mine")
    assert {key: own.body[key] for key in routing} == routing


def test_tools_are_told_with_each_request_and_a_search_on_its_side_is_one() -> None:
    results_only = ModelRequest(None, (*HELLO, *step(1)), (TOOL,), hosted_web_search=True)
    ours, search = body(results_only)["tools"]
    assert ours["function"]["name"] == "add"
    assert search == {"type": "openrouter:web_search"}


def test_documents_are_taken_by_url() -> None:
    pdf = FilePart("application/pdf", url="https://a/b.pdf", name="b.pdf")
    content = body(ModelRequest(None, (UserMessage((pdf,)),)))["messages"][0]["content"]
    assert content == [{"type": "file", "file": {"filename": "b.pdf", "file_data": "https://a/b.pdf"}}]


async def test_the_cost_is_read_from_the_usage_which_comes_unasked() -> None:
    finish = await answer(text("hi"), chunk({}, "stop"), usage(10, 2, cost=0.25))
    assert finish.usage is not None
    assert finish.usage.cost_usd == 0.25
    assert resolve("openrouter:m").capabilities.cost
    assert not {"stream_options", "usage"} & set(body(ModelRequest(None, HELLO)))


# What breaks


@pytest.mark.parametrize(
    ("error", "kind", "retryable"),
    [
        ({"code": 429, "message": "slow down"}, RateLimitError, True),
        ({"code": 402, "message": "no credits"}, RateLimitError, False),
        ({"code": 502, "message": "the provider is down", "metadata": {"provider_name": "X"}}, OverloadedError, True),
        ({"code": "503", "message": "no provider"}, OverloadedError, True),
    ],
)
async def test_an_error_inside_of_an_answer_has_its_numeric_code(
    error: dict[str, Any], kind: type[Exception], *, retryable: bool
) -> None:
    broken = {**chunk({"content": ""}, "error"), "error": error}
    with pytest.raises(kind, match=str(error["message"])) as caught:
        await answer(b": OPENROUTER PROCESSING\n\n", text("par"), broken)
    assert caught.value.status == int(error["code"])  # type: ignore[attr-defined]
    assert caught.value.retryable is retryable  # type: ignore[attr-defined]


async def test_a_prompt_that_its_moderation_stops_is_a_refusal() -> None:
    flagged = {"error": {"code": 403, "message": 'Your input was flagged for "violence". No credits were charged.'}}
    finish = await answer(flagged, content_type="application/json", status=403)
    assert (finish.stop, finish.message.content) == (StopReason.REFUSAL, ())


async def test_comments_keep_the_answer_alive() -> None:
    comment = b": OPENROUTER PROCESSING\n\n"
    finish = await answer(comment, comment, text("hi"), comment, chunk({}, "stop"))
    assert [part.text for part in finish.message.content if isinstance(part, TextPart)] == ["hi"]


async def test_the_word_of_the_model_s_own_provider_tells_of_a_cut_call() -> None:
    call = {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "add", "arguments": '{"a":'}}]}
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls", "native_finish_reason": "length"}]}
    finish = await answer(chunk(call), end)
    assert (finish.stop, finish.raw_stop) == (StopReason.MAX_TOKENS, "length")
    assert not finish.message.calls[0].finished
