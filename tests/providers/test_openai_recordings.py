"""Every recorded exchange of the Responses API, against a naive reader and against the `openai` client."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import openai
import pydantic
import pytest
from openai.types.responses import ResponseInputItemParam

from support.chat import consistent
from support.feeding import cuts, feed
from support.recorded import error_of, names_of, prefix_of
from support.responses import collect
from treadle.errors import ModelError
from treadle.events import ToolFinish, ToolStart
from treadle.messages import ProviderPart, ReasoningPart, ToolCallPart, ToolMessage, ToolResultPart, UserMessage
from treadle.model import ModelRequest
from treadle.providers import resolve
from treadle.providers.openai._dialects import DIALECTS, Dialect
from treadle.providers.openai._request import RequestWriter
from treadle.usage import StopReason

if TYPE_CHECKING:
    from treadle.events import ModelFinish

# Items that OpenAI knows in another shape than these providers have them.
OTHER_SHAPES = {("xai-responses", "code_interpreter_call")}
# Calls that only the caller's side can run: the run cannot go on from there.
UNANSWERABLE = {"custom_tool_call", "local_shell_call", "shell_call", "apply_patch_call"}
HOSTED = {"mcp_call", "web_search_call", "mcp_approval_request"}


def stored(exchange: dict[str, Any]) -> bool:
    """Whether a stored answer was asked for: no request of ours does that. Its body is read all the same."""
    return bool(exchange["request"]["method"] == "GET")


def provider_of(recording: dict[str, Any]) -> str:
    return prefix_of(recording["provider"])


# A reader of its own, as simple as can be


def naive(body: str) -> dict[str, Any]:
    """What a body says, read in the plainest way."""
    if body.lstrip().startswith("{"):
        answer = json.loads(body)
        items = answer["output"]
    else:
        lines = [line[5:].strip() for line in body.splitlines() if line.startswith("data:")]
        events = [json.loads(line) for line in lines if line and line != "[DONE]"]
        answer = events[-1]["response"]
        items = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    return {"items": items, "answer": answer}


def text_of(items: list[dict[str, Any]]) -> str:
    parts = [part for item in items if item["type"] == "message" for part in item["content"]]
    return "".join(part.get("text") or part.get("refusal") or "" for part in parts)


def reasoning_of(items: list[dict[str, Any]]) -> str:
    thoughts = [item for item in items if item["type"] == "reasoning"]
    return "".join(part["text"] for item in thoughts for part in item["summary"] + (item.get("content") or []))


def calls_of(items: list[dict[str, Any]]) -> list[list[str]]:
    found = [item for item in items if item["type"] == "function_call"]
    return [[item["call_id"], item["name"], item["arguments"]] for item in found]


def compare(events: list[Any], body: str) -> None:
    """What the adapter told against what the body holds."""
    expected = naive(body)
    items, answer, finish = expected["items"], expected["answer"], events[-1]
    message = finish.message
    assert message.text == text_of(items)
    assert "".join(part.text for part in message.content if isinstance(part, ReasoningPart)) == reasoning_of(items)
    assert [[call.id, call.name, call.args] for call in message.calls] == calls_of(items)
    opaque = [part.data for part in message.content if isinstance(part, ProviderPart) and part.kind != "message"]
    assert opaque == [item for item in items if item["type"] not in {"message", "function_call", *HOSTED}]
    compare_hosted(events, [item for item in items if item["type"] in HOSTED])
    compare_citations(message, items)
    compare_usage(finish, answer["usage"])
    compare_stop(finish, items, answer)


def compare_hosted(events: list[Any], items: list[dict[str, Any]]) -> None:
    content = events[-1].message.content
    calls = [part for part in content if isinstance(part, ToolCallPart) and part.hosted]
    results = [part for part in content if isinstance(part, ToolResultPart)]
    assert [call.raw for call in calls] == items
    starts = [event for event in events if isinstance(event, ToolStart)]
    ends = [event for event in events if isinstance(event, ToolFinish)]
    assert [(event.call_id, event.index, event.name, event.args) for event in starts] == [
        (call.id, index, call.name, call.args) for index, call in enumerate(calls)
    ]
    assert all(event.hosted for event in starts)
    assert [event.result for event in ends] == results
    assert [event.call_id for event in ends] == [call.id for call in calls] == [item["id"] for item in items]
    for item, result in zip(items, results, strict=True):
        failed = item.get("error") or item["type"] == "mcp_approval_request"
        assert result.is_error == bool(failed)
        if item["type"] == "mcp_call":
            assert result.content == (item["error"]["message"] if failed else item["output"])


def compare_citations(message: Any, items: list[dict[str, Any]]) -> None:
    parts = [part for item in items if item["type"] == "message" for part in item["content"]]
    urls = {note.get("url") or note.get("filename") for part in parts for note in part.get("annotations") or []}
    texts = [part for part in message.content if part.__struct_config__.tag == "text"]
    assert {cited.url or cited.file for part in texts for cited in part.citations} == urls


def compare_usage(finish: ModelFinish, counts: dict[str, Any]) -> None:
    used = finish.usage
    assert used is not None
    read = (counts.get("input_tokens_details") or {}).get("cached_tokens", 0)
    assert used.cache_read_tokens == read
    assert used.input_tokens == counts["input_tokens"] - read
    assert used.total_tokens == counts["total_tokens"]
    assert used.reasoning_tokens == (counts.get("output_tokens_details") or {}).get("reasoning_tokens", 0)
    ticks = counts.get("cost_in_usd_ticks")
    assert used.cost_usd == (ticks / 1e10 if ticks else counts.get("cost"))


def compare_stop(finish: ModelFinish, items: list[dict[str, Any]], answer: dict[str, Any]) -> None:
    kinds = {item["type"] for item in items}
    if answer["status"] == "incomplete":
        assert finish.raw_stop == answer["incomplete_details"]["reason"] == "max_output_tokens"
        assert finish.stop is StopReason.MAX_TOKENS
        assert all(not call.finished for call in finish.message.calls[-1:])
        return
    assert finish.raw_stop == answer["status"] == "completed"
    assert all(call.finished for call in finish.message.calls)
    clients_search = any(item.get("execution") == "client" for item in items)
    refusal = any(part.get("refusal") for item in items if item["type"] == "message" for part in item["content"])
    if "function_call" in kinds:
        assert finish.stop is StopReason.TOOL_CALLS
    elif "mcp_approval_request" in kinds:
        assert finish.stop is StopReason.PAUSED
    elif kinds & UNANSWERABLE or clients_search:
        assert finish.stop is StopReason.OTHER
    else:
        assert finish.stop is (StopReason.REFUSAL if refusal else StopReason.END)


# The adapter, fed directly: any cut


def test_each_recording_gives_what_its_body_holds_however_it_is_cut(recordings: Any, responses_recording: str) -> None:
    recording = recordings.load(responses_recording)
    provider = provider_of(recording)
    for number, exchange in enumerate(recording["exchanges"]):
        response = exchange["response"]
        expected = error_of(responses_recording, number, response)
        told = []
        for cut in cuts():
            if expected is None:
                events = feed("responses", provider, response, cut)
                consistent(events)
                compare(events, response["body"])
                told.append(events)
            elif response["status"] == 200:
                with pytest.raises(expected):
                    feed("responses", provider, response, cut)
        assert all(events == told[0] for events in told)


# The adapter over HTTP


@pytest.mark.parametrize("options", [{}, {"split": 7}, {"split_random": 50, "seed": 4}], ids=["whole", "7", "random"])
async def test_each_recording_replays_over_http(
    recordings: Any, responses_recording: str, options: dict[str, Any]
) -> None:
    recording = recordings.load(responses_recording)
    asked_for = [(number, exchange) for number, exchange in enumerate(recording["exchanges"]) if not stored(exchange)]
    with recordings.server(responses_recording, **options) as server:
        asked: Any = resolve(f"{provider_of(recording)}:m", base_url=server.base_url, api_key="k")
        for number, exchange in asked_for:
            expected = error_of(responses_recording, number, exchange["response"])
            if expected is None:
                events = await collect(asked)
                consistent(events)
                compare(events, exchange["response"]["body"])
                continue
            with pytest.raises(ModelError) as caught:
                await collect(asked)
            assert isinstance(caught.value, expected)
            assert "\n" not in str(caught.value)
            status = exchange["response"]["status"]
            assert status in (caught.value.status, 200)
    assert len(server.received) == len(asked_for)
    assert not server.mismatches


async def test_each_recording_parses_as_the_openai_client_parses_it(recordings: Any, responses_recording: str) -> None:
    recording = recordings.load(responses_recording)
    with recordings.server(responses_recording) as server:
        async with openai.AsyncOpenAI(base_url=server.base_url, api_key="k", max_retries=0) as client:
            for number, exchange in enumerate(recording["exchanges"]):
                if stored(exchange) or "background" in exchange["features"]:  # no error to the client
                    continue
                if error_of(responses_recording, number, exchange["response"]):
                    with pytest.raises(openai.APIError):
                        await oracle(client, exchange)
                    continue
                items, usage = await oracle(client, exchange)
                events = feed("responses", provider_of(recording), exchange["response"])
                message, used = events[-1].message, events[-1].usage
                assert message.text == text_of(items)
                assert [[call.id, call.name, call.args] for call in message.calls] == calls_of(items)
                assert (used.total_tokens, used.output_tokens) == (usage.total_tokens, usage.output_tokens)


async def oracle(client: Any, exchange: dict[str, Any]) -> tuple[list[dict[str, Any]], Any]:
    """What the `openai` client makes of an exchange: the items, and the usage."""
    if "json" in exchange["response"]["headers"].get("content-type", ""):
        answer = await client.responses.create(model="m", input="x")
    else:
        answer = None
        async for event in await client.responses.create(model="m", input="x", stream=True):
            answer = getattr(event, "response", answer)
    assert answer is not None
    items = [item.to_dict(warnings=False) for item in answer.output]
    return items, answer.usage


# What goes back


def test_the_next_request_carries_back_what_the_provider_gave(recordings: Any) -> None:
    compared: dict[str, int] = {}
    for name in names_of("responses"):
        recording = recordings.load(name)
        exchanges, provider = recording["exchanges"], provider_of(recording)
        for number, (exchange, following) in enumerate(itertools.pairwise(exchanges)):
            sent = (following["request"].get("body") or {}).get("input")
            if not isinstance(sent, list) or error_of(name, number, exchange["response"]):
                continue
            given = naive(exchange["response"]["body"])["items"]
            written = rendered(provider, feed("responses", provider, exchange["response"])[-1].message)
            for item in sent:
                kind = compare_sent(item, given, written)
                compared[kind] = compared.get(kind, 0) + 1
    del compared[""]
    assert set(compared) >= {
        *("reasoning", "function_call", "function_call_output", "message", "mcp_list_tools", "mcp_call"),
        *("web_search_call", "code_interpreter_call", "tool_search_call", "compaction"),
    }
    assert compared["reasoning"] >= 15
    assert compared["function_call"] >= 8


def rendered(provider: str, message: Any) -> list[dict[str, Any]]:
    """Our items for an answer and the results of its calls."""
    results = ToolMessage(tuple(ToolResultPart(call.id, call.name, "r") for call in message.calls))
    asked: tuple[Any, ...] = (UserMessage("x"), message, *([results] if message.calls else [UserMessage("y")]))
    dialect = DIALECTS.get(provider, Dialect())
    items: list[dict[str, Any]] = json.loads(RequestWriter(provider, "m", dialect).body(ModelRequest(None, asked)))[
        "input"
    ]
    return items[1:]


def compare_sent(item: dict[str, Any], given: list[dict[str, Any]], written: list[dict[str, Any]]) -> str:
    """The kind of an item that another client sent back, once ours proved to hold the same; else nothing."""
    kind = item.get("type") or "message"
    of_kind = [candidate for candidate in given if candidate["type"] == kind]
    ours = [candidate for candidate in written if (candidate.get("type") or "message") == kind]
    if kind == "message":
        if item["role"] != "assistant" or said(item) not in [said(candidate) for candidate in of_kind]:
            return ""
        assert said(item) in [said(candidate) for candidate in ours]
    elif kind == "function_call_output":
        calls = [candidate["call_id"] for candidate in given if candidate["type"] == "function_call"]
        if item["call_id"] not in calls:
            return ""
        assert [candidate["call_id"] for candidate in ours] == calls
    else:
        keys = ("encrypted_content",) if item.get("encrypted_content") else ("call_id", "id")
        found = [one for one in of_kind if any(one.get(key) and one.get(key) == item.get(key) for key in keys)]
        if not found:
            return ""
        assert found[0] in ours  # as it came, with all that the provider put there
        for field in ("arguments", "encrypted_content", "name", "action", "code"):
            expected = item.get(field)
            if isinstance(expected, str):
                assert found[0][field] == expected
    return kind


def said(item: dict[str, Any]) -> str:
    content = item["content"]
    return content if isinstance(content, str) else "".join(part.get("text") or "" for part in content)


def test_what_goes_back_has_the_shapes_that_the_openai_client_knows(recordings: Any) -> None:
    known: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(ResponseInputItemParam)
    for name in names_of("responses"):
        recording = recordings.load(name)
        provider = provider_of(recording)
        for number, exchange in enumerate(recording["exchanges"]):
            if error_of(name, number, exchange["response"]):
                continue
            for item in rendered(provider, feed("responses", provider, exchange["response"])[-1].message):
                if (provider, item.get("type")) not in OTHER_SHAPES:
                    known.validate_python(item)
