"""Every recorded Gemini exchange, against a naive reader and against the `google-genai` client."""

from __future__ import annotations

import base64
import itertools
import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from google import genai
from google.genai import errors as genai_errors
from google.genai import types as genai_types

from support.chat import consistent
from support.feeding import cuts, feed
from support.google import collect
from support.recorded import ERRORS, error_of, names_of
from treadle.errors import ModelError, RateLimitError
from treadle.events import ToolFinish, ToolStart
from treadle.messages import ProviderPart, ReasoningPart, ToolMessage, ToolResultPart, UserMessage
from treadle.model import ModelRequest
from treadle.providers import resolve
from treadle.providers.google import GoogleModel
from treadle.providers.google._request import RequestWriter
from treadle.usage import StopReason

if TYPE_CHECKING:
    from collections.abc import Iterable

    from treadle.events import ModelFinish


# A reader of its own, as simple as can be


def documents(body: str) -> list[dict[str, Any]]:
    if body.lstrip().startswith("{"):
        return [json.loads(body)]
    if body.lstrip().startswith("["):
        found: list[dict[str, Any]] = json.loads(body)
        return found
    return [json.loads(line[5:]) for line in body.splitlines() if line.startswith("data:")]


def naive(body: str) -> dict[str, Any]:
    """What a body says, read in the plainest way."""
    found: dict[str, Any] = {"text": "", "reasoning": "", "calls": [], "usage": None, "finish": None, "block": None}
    found |= {"signatures": [], "hosted": [], "sources": []}
    for value in documents(body):
        if "promptTokenCount" in value.get("usageMetadata", {}):
            found["usage"] = value["usageMetadata"]
        found["block"] = value.get("promptFeedback", {}).get("blockReason")
        for candidate in value.get("candidates", []):
            for part in candidate.get("content", {}).get("parts", []):
                naive_part(part, found)
            found["finish"] = candidate.get("finishReason") or found["finish"]
            grounding = candidate.get("groundingMetadata", {})
            found["sources"] += [item["web"]["uri"] for item in grounding.get("groundingChunks", [])]
    for entry in found["calls"]:
        entry.pop("open", None)
    return found


def naive_part(part: dict[str, Any], found: dict[str, Any]) -> None:
    if "text" in part:
        found["reasoning" if part.get("thought") else "text"] += part["text"]
    if "functionCall" in part:
        naive_call(part["functionCall"], found["calls"])
    if "thoughtSignature" in part:
        found["signatures"].append(part["thoughtSignature"])
    found["hosted"] += [part for key in ("executableCode", "codeExecutionResult") if key in part]


def naive_call(piece: dict[str, Any], calls: list[dict[str, Any]]) -> None:
    if "name" in piece:
        calls.append({"id": piece.get("id"), "name": piece["name"], "args": piece.get("args", {})})
    for argument in piece.get("partialArgs", []):
        place: Any = calls[-1]["args"]
        steps = re.findall(r"[^.$\[\]]+", argument["jsonPath"])
        for step, following in itertools.pairwise(steps):
            place = naive_step(place, step, [] if following.isdigit() else {})
        key: Any = int(steps[-1]) if steps[-1].isdigit() else steps[-1]
        if "stringValue" in argument:
            place[key] = place.get(key, "") + argument["stringValue"]
        else:
            place[key] = argument["numberValue"]


def naive_step(place: Any, step: str, empty: Any) -> Any:
    if isinstance(place, dict):
        return place.setdefault(step, empty)
    if int(step) == len(place):
        place.append(empty)
    return place[int(step)]


def compare(finish: ModelFinish, body: str) -> None:
    """The adapter's finish against what the body holds."""
    expected = naive(body)
    message = finish.message
    assert message.text == expected["text"]
    assert "".join(part.text for part in message.content if isinstance(part, ReasoningPart)) == expected["reasoning"]
    found = [{"id": call.id, "name": call.name, "args": json.loads(call.args)} for call in message.calls]
    for ours, theirs in zip(found, expected["calls"], strict=True):
        assert ours["id"]
        assert ours == {**theirs, "id": theirs["id"] or ours["id"]}
    assert signatures(message) == expected["signatures"]
    raws = [getattr(part, "raw", None) for part in message.content if getattr(part, "hosted", False)]
    assert [raw for raw in raws if raw in expected["hosted"]] == expected["hosted"]
    cited = [item.url for part in message.content for item in getattr(part, "citations", ())]
    assert cited == list(dict.fromkeys(expected["sources"]))
    compare_usage(finish, expected["usage"])
    compare_stop(finish, expected)


def signatures(message: Any) -> list[str]:
    found: list[str] = []
    for part in message.content:
        if isinstance(part, ProviderPart):
            found.append(part.data if part.kind == "text_signature" else part.data["thoughtSignature"])
        elif getattr(part, "signature", None) is not None:
            found.append(part.signature)
    return found


def compare_usage(finish: ModelFinish, counts: dict[str, Any] | None) -> None:
    if counts is None:
        assert finish.usage is None
        return
    used = finish.usage
    assert used is not None
    assert used.cache_read_tokens == counts.get("cachedContentTokenCount", 0)
    read = used.input_tokens + used.cache_read_tokens
    assert read == counts["promptTokenCount"] + counts.get("toolUsePromptTokenCount", 0)
    assert used.total_tokens == counts["totalTokenCount"]
    assert used.reasoning_tokens == counts.get("thoughtsTokenCount", 0)
    assert used.cost_usd is None


def compare_stop(finish: ModelFinish, expected: dict[str, Any]) -> None:
    assert finish.raw_stop == (expected["block"] or expected["finish"])
    assert all(call.finished for call in finish.message.calls)
    if expected["calls"]:
        assert finish.stop is StopReason.TOOL_CALLS
        return
    stops = {"STOP": StopReason.END, "MAX_TOKENS": StopReason.MAX_TOKENS, "MODEL_ARMOR": StopReason.REFUSAL}
    assert finish.raw_stop is not None
    assert finish.stop is stops[finish.raw_stop]


# The adapter, fed directly: any cut


def test_each_recording_gives_what_its_body_holds_however_it_is_cut(recordings: Any, google_recording: str) -> None:
    for number, exchange in enumerate(recordings.load(google_recording)["exchanges"]):
        if error_of(google_recording, number, exchange["response"]):
            continue
        for cut in cuts():
            events = feed("google", "google", exchange["response"], cut)
            consistent(events)
            compare(events[-1], exchange["response"]["body"])


# The adapter over HTTP


def base_of(server: Any, exchange: dict[str, Any]) -> tuple[str, str]:
    """What a user would give as base_url for a recorded path, and the model's name."""
    before, _, rest = exchange["request"]["path"].partition("/models/")
    base = before if before.startswith("/v1beta1/projects/") else before.removesuffix("/v1beta")
    return f"{server.base_url}{base}", rest.partition(":")[0]


@pytest.mark.parametrize("options", [{}, {"split": 7}, {"split_random": 50, "seed": 4}], ids=["whole", "7", "random"])
async def test_each_recording_replays_over_http(
    recordings: Any, google_recording: str, options: dict[str, Any]
) -> None:
    exchanges = recordings.load(google_recording)["exchanges"]
    with recordings.server(google_recording, **options) as server:
        base, name = base_of(server, exchanges[0])
        asked: Any = resolve(f"google:{name or 'm'}", base_url=base, api_key="k")
        for number, exchange in enumerate(exchanges):
            expected = error_of(google_recording, number, exchange["response"])
            if expected is None:
                events = await collect(asked)
                consistent(events)
                compare(events[-1], exchange["response"]["body"])
                continue
            counts = ":countTokens" in exchange["request"]["path"]
            failing = asked.count_tokens(ModelRequest(None, (UserMessage("x"),))) if counts else collect(asked)
            with pytest.raises(ModelError) as caught:
                await failing
            assert isinstance(caught.value, expected)
            assert "\n" not in str(caught.value)
            status = exchange["response"]["status"]
            assert status in (caught.value.status, 200)
    assert len(server.received) == len(exchanges)
    for seen, exchange in zip(server.received, exchanges, strict=True):
        recorded = exchange["request"]["path"].partition("?")[0]
        sent = seen["path"].partition("?")[0]
        # Nothing is asked for in one piece, even where the recording did.
        assert sent == recorded.replace(":generateContent", ":streamGenerateContent")


async def test_the_time_to_wait_is_read_out_of_the_details_of_a_refusal(recordings: Any) -> None:
    name = next(name for name, _ in ERRORS if name.startswith("google--real-error"))
    with recordings.server(name) as server, pytest.raises(RateLimitError) as caught:
        await collect(GoogleModel("m", base_url=server.base_url, api_key="k"))
    assert caught.value.retryable
    assert caught.value.retry_after_seconds == 48.0


def test_a_grounded_answer_tells_of_its_search_as_a_hosted_call(recordings: Any) -> None:
    exchange = recordings.load(
        "google-vertex--citations-with-vertexai-gemini-2-5-flash-returns-grounding-citations-when-sear"
    )
    events = feed("google", "google", exchange["exchanges"][0]["response"])
    start, finished = events[-3:-1]
    assert isinstance(start, ToolStart) and start.hosted and start.name == "google_search"
    assert json.loads(start.args) == {"queries": ["latest stable version of Ruby", "Ruby release notes"]}
    assert isinstance(finished, ToolFinish) and finished.result.hosted and finished.call_id == start.call_id
    assert "searchEntryPoint" in finished.result.raw["groundingMetadata"]
    assert events[-1].message.calls == ()
    assert [item.title for item in events[-1].message.content[0].citations] == ["ruby-lang.org", "wikipedia.org"]


# The vendor's own client


def test_each_recording_parses_as_the_google_client_parses_it(recordings: Any, google_recording: str) -> None:
    exchanges = recordings.load(google_recording)["exchanges"]
    if any(exchange["response"]["body"].lstrip().startswith("[") for exchange in exchanges):
        return  # the client never asks for an array
    with recordings.server(google_recording) as server:
        options = genai_types.HttpOptions(base_url=server.base_url)
        with genai.Client(api_key="k", http_options=options) as client:
            for number, exchange in enumerate(exchanges):
                if error_of(google_recording, number, exchange["response"]):
                    with pytest.raises(genai_errors.APIError):
                        oracle(client, exchange)
                    continue
                expected = oracle(client, exchange)
                message = (last := feed("google", "google", exchange["response"])[-1]).message
                assert message.text == expected["text"]
                reasoning = [part.text for part in message.content if isinstance(part, ReasoningPart)]
                assert "".join(reasoning) == expected["reasoning"]
                assert [call.name for call in message.calls] == expected["calls"]
                assert [in_bytes(signature) for signature in signatures(message)] == expected["signatures"]
                assert last.raw_stop in (expected["finish"], "MODEL_ARMOR")


def in_bytes(signature: str) -> Any:
    try:
        padded = signature.replace("-", "+").replace("_", "/") + "=" * (-len(signature) % 4)
        return base64.b64decode(padded)
    except ValueError:
        return signature


def oracle(client: Any, exchange: dict[str, Any]) -> dict[str, Any]:
    """What the `google-genai` client makes of an exchange."""
    found: dict[str, Any] = {"text": "", "reasoning": "", "calls": [], "finish": None, "signatures": []}
    if "event-stream" in exchange["response"]["headers"].get("content-type", ""):
        chunks = list(client.models.generate_content_stream(model="m", contents="x"))
    else:
        chunks = [client.models.generate_content(model="m", contents="x")]
    for chunk in chunks:
        for candidate in chunk.candidates or []:
            found["finish"] = candidate.finish_reason.value if candidate.finish_reason else found["finish"]
            for part in (candidate.content.parts if candidate.content else None) or []:
                found["reasoning" if part.thought else "text"] += part.text or ""
                found["calls"] += [part.function_call.name] if part.function_call and part.function_call.name else []
                found["signatures"] += [part.thought_signature] if part.thought_signature else []
    return found


# What goes back


def test_the_next_request_carries_back_what_the_provider_gave(recordings: Any) -> None:
    compared = 0
    for name in names_of("google"):
        exchanges = recordings.load(name)["exchanges"]
        for number, (exchange, following) in enumerate(itertools.pairwise(exchanges)):
            if error_of(name, number, exchange["response"]):
                continue
            message = feed("google", "google", exchange["response"])[-1].message
            compare_echo(message, exchange["response"]["body"])
            if message.calls:
                compare_sent(message, following["request"]["body"]["contents"])
                compared += 1
    assert compared >= 8


def written(message: Any, results: ToolMessage | None = None) -> list[dict[str, Any]]:
    messages = (UserMessage("x"), message, *([results] if results else []))
    contents: list[dict[str, Any]] = json.loads(RequestWriter("google", "m").body(ModelRequest(None, messages)))[
        "contents"
    ]
    return contents[1:]


def compare_echo(message: Any, body: str) -> None:
    """Our rendering of an answer against its own parts: unsigned text runs together, the rest is as it came."""
    ours = merged(written(message)[0]["parts"])
    theirs = [part for value in documents(body) for part in value["candidates"][0].get("content", {}).get("parts", [])]
    for part in ours:
        part.get("functionCall", {}).pop("id", None)
    for part in theirs:
        part.get("functionCall", {}).pop("id", None)
    assert ours == merged([part for part in theirs if part != {"text": ""}])


def merged(parts: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for part in parts:
        unsigned = "text" in part and "thoughtSignature" not in part
        last = found[-1] if found else {}
        alike = "text" in last and "thoughtSignature" not in last and last.get("thought") == part.get("thought")
        if unsigned and alike:
            found[-1] = {**last, "text": last["text"] + part["text"]}
        else:
            found.append(dict(part))
    return found


def compare_sent(message: Any, contents: list[dict[str, Any]]) -> None:
    """Our rendering of an answer and its results against what another client sent."""
    results = ToolMessage(tuple(ToolResultPart(call.id, call.name, "r") for call in message.calls))
    model, replies = written(message, results)
    sent = [snake_to_camel(content) for content in contents]
    call_names = [call.name for call in message.calls]
    place = next(
        place
        for place, content in reversed(list(enumerate(sent)))
        if content["role"] == "model"
        and [part["functionCall"]["name"] for part in content["parts"] if "functionCall" in part] == call_names
    )
    theirs = [part for part in sent[place]["parts"] if "functionCall" in part]
    ours = [part for part in model["parts"] if "functionCall" in part]
    # A parallel call without a signature got a copy of the first one's from one client; ours goes without, as it came.
    assert in_bytes(ours[0].get("thoughtSignature", "")) == in_bytes(theirs[0].get("thoughtSignature", ""))
    for one, other in zip(ours, theirs, strict=True):
        assert one["functionCall"]["args"] == other["functionCall"]["args"]
        given = other["functionCall"].get("id", "")
        assert one["functionCall"]["id"] == given or not given or given.startswith("pyd_ai_")
    answered = [part["functionResponse"] for part in replies["parts"]]
    assert [(part["name"], part["id"]) for part in answered] == [(call.name, call.id) for call in message.calls]
    assert [part["functionResponse"]["name"] for part in sent[place + 1]["parts"]] == call_names


def snake_to_camel(value: Any) -> Any:
    """One client sent its keys in snake case: the API takes both."""
    if isinstance(value, list):
        return [snake_to_camel(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {re.sub(r"_(\w)", lambda found: found[1].upper(), key): snake_to_camel(item) for key, item in value.items()}
