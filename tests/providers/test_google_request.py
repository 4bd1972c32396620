"""What the Gemini adapter sends."""

from __future__ import annotations

import itertools
import json
from typing import Any

import httpx2
import pytest
from google.genai import types as genai_types
from hypothesis import given
from hypothesis import strategies as st

from support.chat import HELLO
from support.google import STOP, chunk, collect, model, sse, text
from support.loopback import BREAK, Loopback, Reply
from support.strategies import transcripts
from treadle.agent import Agent
from treadle.errors import AuthenticationError, ConfigError, ModelConnectionError, ModelResponseError, UnsupportedError
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
from treadle.model import HostedMCP, ModelRequest, ModelSettings, Reasoning, ToolSpec
from treadle.providers import resolve
from treadle.providers.google import GoogleModel
from treadle.providers.google._request import RequestWriter
from treadle.tools import tool
from treadle.transcript import repair
from treadle.usage import StopReason

TOOL = ToolSpec("add", "Adds.", {"type": "object", "properties": {"a": {"type": "integer", "title": "A"}}})
OWN, OTHER = ModelRef("google", "gemini-3-pro"), ModelRef("anthropic", "claude")
ANSWER = Reply((sse(chunk(text("hi"), finish="STOP")),))
OLD, NEW = "gemini-2.5-flash", "gemini-3-flash-preview"


def body(*messages: Message, name: str = "m", **more: Any) -> Any:
    """The body of a request with these messages, which the vendor's own types can read."""
    request = ModelRequest(more.pop("instructions", None), messages or HELLO, **more)
    found = json.loads(RequestWriter("google", name).body(request))
    for content in found["contents"]:
        genai_types.Content.model_validate(content)
    for declared in found.get("tools", ()):
        genai_types.Tool.model_validate(declared)
    genai_types.ToolConfig.model_validate(found.get("toolConfig", {}))
    return found


def sent(*messages: Message, name: str = "m") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = body(*messages, name=name)["contents"]
    return found


def said(*parts: Any, by: ModelRef | None = OWN) -> AssistantMessage:
    return AssistantMessage(parts, StopReason.END, by)


def call(call_id: str = "c1", args: str = "{}", **more: Any) -> ToolCallPart:
    return ToolCallPart(call_id, "add", args, **more)


def answered(*results: tuple[str, str], **more: Any) -> ToolMessage:
    return ToolMessage(tuple(ToolResultPart(call_id, "add", content, **more) for call_id, content in results))


# Around the messages


async def test_a_request_is_what_the_api_expects() -> None:
    settings = ModelSettings(extra_headers={"x-extra": "1"}, temperature=0.5)
    request = ModelRequest("Be short.", HELLO, (TOOL,), settings=settings, max_output_tokens=100)
    async with Loopback(ANSWER) as server:
        await collect(model(server, NEW), request)
    (seen,) = server.requests
    assert seen.path == f"/v1beta/models/{NEW}:streamGenerateContent?alt=sse"
    assert seen.headers["x-goog-api-key"] == "key-test-secret"
    assert seen.headers["content-type"] == "application/json"
    assert seen.headers["x-extra"] == "1"
    parameters = {"type": "object", "properties": {"a": {"type": "integer"}}}
    assert seen.body == {
        "systemInstruction": {"parts": [{"text": "Be short."}]},
        "contents": [{"role": "user", "parts": [{"text": "hello"}]}],
        "tools": [{"functionDeclarations": [{"name": "add", "description": "Adds.", "parameters": parameters}]}],
        "generationConfig": {"temperature": 0.5, "maxOutputTokens": 100},
    }


def test_the_agents_default_output_limit_is_left_to_the_model() -> None:
    assert set(body()) == {"contents"}


def test_settings_have_the_names_of_the_api() -> None:
    settings = ModelSettings(temperature=0.0, top_p=0.5, seed=7, stop_sequences=("END",))
    expected = {"temperature": 0.0, "topP": 0.5, "seed": 7, "stopSequences": ["END"]}
    assert body(settings=settings)["generationConfig"] == expected


@pytest.mark.parametrize(
    ("choice", "written"),
    [
        ("auto", {"mode": "AUTO"}),
        ("required", {"mode": "ANY"}),
        ("none", {"mode": "NONE"}),
        ("add", {"mode": "ANY", "allowedFunctionNames": ["add"]}),
    ],
)
def test_a_choice_of_tools_is_a_mode(choice: str, written: dict[str, Any]) -> None:
    found = body(tools=(TOOL,), settings=ModelSettings(tool_choice=choice))
    assert found["toolConfig"] == {"functionCallingConfig": written}
    assert "toolConfig" not in body(settings=ModelSettings(tool_choice=choice))


def test_a_choice_of_no_tool_we_have_is_refused() -> None:
    with pytest.raises(ConfigError, match="names no tool"):
        body(tools=(TOOL,), settings=ModelSettings(tool_choice="nope"))


def test_a_tool_without_parameters_declares_none() -> None:
    for schema in ({}, {"type": "object"}, {"type": "object", "properties": {}, "additionalProperties": False}):
        (declared,) = body(tools=(ToolSpec("now", "", schema),))["tools"][0]["functionDeclarations"]
        assert declared == {"name": "now", "description": ""}


def test_reasoning_is_a_level_or_a_budget_which_wins_and_shown_on_demand() -> None:
    def thinking(name: str = NEW, **given: Any) -> Any:
        return body(name=name, reasoning=Reasoning(**given)).get("generationConfig", {}).get("thinkingConfig")

    assert thinking(effort="low", show=True) == {"thinkingLevel": "low", "includeThoughts": True}
    assert thinking(OLD, budget_tokens=0) == {"thinkingBudget": 0}
    assert thinking(effort="low", budget_tokens=512) == {"thinkingBudget": 512}
    assert thinking() is None
    with pytest.raises(UnsupportedError) as caught:
        thinking(OLD, effort="low")
    assert (caught.value.feature, caught.value.model) == ("effort", f"google:{OLD}")


def test_an_output_schema_goes_out_in_the_dialect() -> None:
    schema = {"type": "object", "properties": {"x": {"type": ["string", "null"]}}, "required": ["x"], "title": "T"}
    config = body(output_schema=schema, name=OLD)["generationConfig"]
    expected = {"type": "object", "properties": {"x": {"type": "string", "nullable": True}}, "required": ["x"]}
    assert config == {"responseMimeType": "application/json", "responseSchema": expected}
    assert body(output_schema=schema, tools=(TOOL,), name=NEW)["generationConfig"] == config
    with pytest.raises(UnsupportedError, match="beside tools") as caught:
        body(output_schema=schema, tools=(TOOL,), name=OLD)
    assert caught.value.feature == "output_schema"


def test_hosted_search_is_a_tool_and_may_stand_beside_others_from_gemini_3_on() -> None:
    assert body(hosted_web_search=True, name=OLD)["tools"] == [{"googleSearch": {}}]
    found = body(hosted_web_search=True, tools=(TOOL,), name=NEW)
    assert [list(item) for item in found["tools"]] == [["functionDeclarations"], ["googleSearch"]]
    assert found["toolConfig"] == {"includeServerSideToolInvocations": True}
    with pytest.raises(UnsupportedError) as caught:
        body(hosted_web_search=True, tools=(TOOL,), name=OLD)
    assert caught.value.feature == "hosted_web_search"


def test_hosted_mcp_servers_are_refused() -> None:
    with pytest.raises(UnsupportedError) as caught:
        body(hosted_mcp=(HostedMCP("a", "https://a"),))
    assert caught.value.feature == "hosted_mcp"


def test_extra_body_joins_groups_and_tools_and_replaces_the_rest() -> None:
    extra: dict[str, Any] = {"generationConfig": {"topK": 5}, "tools": [{"codeExecution": {}}], "safetySettings": []}
    settings = ModelSettings(temperature=0.5, extra_body={**extra, "cachedContent": "c"})
    found = body(tools=(TOOL,), settings=settings, instructions="Be short.")
    assert found["generationConfig"] == {"temperature": 0.5, "topK": 5}
    assert [list(item) for item in found["tools"]] == [["functionDeclarations"], ["codeExecution"]]
    assert (found["safetySettings"], found["cachedContent"]) == ([], "c")
    assert found["systemInstruction"] == {"parts": [{"text": "Be short."}]}
    system = {"parts": [{"text": "Other."}]}
    contents = [{"role": "user", "parts": [{"text": "other"}]}]
    settings = ModelSettings(extra_body={"contents": contents, "systemInstruction": system})
    assert body(settings=settings, instructions="Be short.") == {"contents": contents, "systemInstruction": system}


def test_what_models_can_do_depends_on_their_generation() -> None:
    old, new = GoogleModel(OLD).capabilities, GoogleModel(NEW).capabilities
    assert (old.effort, old.output_schema, old.min_reasoning_budget) == (False, False, 0)
    assert (new.effort, new.output_schema) == (True, True)
    assert GoogleModel("gemini-flash-latest").capabilities == new
    assert GoogleModel("tunedModels/mine").capabilities == new
    assert new.token_counting and new.files and new.hosted_web_search and not new.hosted_mcp
    plain = GoogleModel("gemini-2.0-flash").capabilities
    assert (plain.reasoning, plain.effort, plain.min_reasoning_budget) == (False, False, None)
    assert GoogleModel("gemini-2.5-pro").capabilities.min_reasoning_budget == 128
    assert not GoogleModel("gemini-2.5-flash-image").capabilities.tools


def test_everything_that_does_not_fit_is_named_at_once() -> None:
    request = ModelRequest(
        None,
        (UserMessage((FilePart("application/zip", data="AA"), FilePart("model/x", data="AA"))),),
        (TOOL,),
        output_schema={"type": "object"},
        reasoning=Reasoning(effort="high"),
        hosted_mcp=(HostedMCP("a", "https://a"),),
        hosted_web_search=True,
    )
    asked = GoogleModel(OLD)
    for refuse in (asked.check, asked._writer.body, asked._writer.count_body):
        with pytest.raises(UnsupportedError) as caught:
            refuse(request)
        assert str(caught.value) == (
            f"google:{OLD} takes no hosted MCP servers: leave out hosted_mcp; "
            "no hosted web search beside tools: leave out one of them; "
            "no output schema beside tools: leave out one of them; no reasoning effort: give budget_tokens instead; "
            "no file of type application/zip; no file of type model/x"
        )
        assert caught.value.feature == "hosted_mcp"


@pytest.mark.parametrize(
    ("name", "reasoning", "feature"),
    [
        ("gemini-2.0-flash", Reasoning(budget_tokens=100), "reasoning"),
        ("gemini-2.5-pro", Reasoning(budget_tokens=100), "min_reasoning_budget"),
        ("gemini-2.5-flash", Reasoning(effort="low"), "effort"),
    ],
)
def test_what_a_model_cannot_reason_is_refused(name: str, reasoning: Reasoning, feature: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        body(name=name, reasoning=reasoning)
    assert caught.value.feature == feature


# Messages


def test_blank_text_is_never_sent() -> None:
    assert sent(UserMessage((TextPart(" "), TextPart("a"))), said(TextPart(""), TextPart("b"))) == [
        {"role": "user", "parts": [{"text": "a"}]},
        {"role": "model", "parts": [{"text": "b"}]},
    ]
    assert "systemInstruction" not in body(instructions=" ")
    with pytest.raises(ConfigError, match="nothing to send"):
        body(UserMessage(" "))


def test_files_go_as_data_or_by_url() -> None:
    (content,) = sent(
        UserMessage(
            (FilePart("image/png", data="aGk="), FilePart("Application/PDF; x=1", url="gs://b/f"), TextPart("look"))
        )
    )
    assert content["parts"] == [
        {"inlineData": {"mimeType": "image/png", "data": "aGk="}},
        {"fileData": {"mimeType": "application/pdf", "fileUri": "gs://b/f"}},
        {"text": "look"},
    ]


def test_a_file_that_no_model_takes_is_refused_by_its_type() -> None:
    with pytest.raises(UnsupportedError, match="takes no file of type application/zip") as caught:
        body(UserMessage((FilePart("application/zip", data="aGk="),)))
    assert caught.value.feature == "files"


def test_signatures_go_back_on_the_very_part_they_came_with() -> None:
    empty = {"text": "", "thoughtSignature": "sig4"}
    message = said(
        ReasoningPart("hm", "sig1"),
        ReasoningPart("hm again"),
        TextPart("a"),
        TextPart("b"),
        ProviderPart("google", "text_signature", "sig2"),
        call(signature="sig3"),
        call("c2"),
        ProviderPart("google", "part", empty),
    )
    assert sent(*HELLO, message)[1]["parts"] == [
        {"text": "hm", "thought": True, "thoughtSignature": "sig1"},
        {"text": "hm again", "thought": True},
        {"text": "a"},
        {"text": "b", "thoughtSignature": "sig2"},
        {"functionCall": {"id": "c1", "name": "add", "args": {}}, "thoughtSignature": "sig3"},
        {"functionCall": {"id": "c2", "name": "add", "args": {}}},
        empty,
    ]


def test_a_text_signature_that_lost_its_text_stays_in_its_place() -> None:
    message = said(ProviderPart("google", "text_signature", "sign"), TextPart("a"))
    assert sent(*HELLO, message)[1]["parts"] == [{"text": "", "thoughtSignature": "sign"}, {"text": "a"}]
    blank = said(TextPart("\n"), ProviderPart("google", "text_signature", "sign"))
    assert sent(*HELLO, blank)[1]["parts"] == [{"text": "\n", "thoughtSignature": "sign"}]


def test_what_another_provider_said_goes_without_its_signatures_and_blocks() -> None:
    message = said(
        ReasoningPart("hm", "sig1"),
        TextPart("a"),
        ProviderPart("anthropic", "redacted_thinking", {"data": "x"}),
        call("toolu_1", signature="sig2"),
        ToolCallPart("h", "web_search", "{}", hosted=True, raw={"type": "server_tool_use"}),
        ToolResultPart("h", "web_search", "found", hosted=True, raw={"executableCode": {}}),
        by=OTHER,
    )
    asked = {"functionCall": {"id": "toolu_1", "name": "add", "args": {}}}
    assert sent(*HELLO, message)[1]["parts"] == [{"text": "a"}, asked]
    only = said(ReasoningPart("hm", "sig1"), by=OTHER)
    assert [content["role"] for content in sent(*HELLO, only)] == ["user"]


def test_gemini_3_is_told_to_pass_over_the_first_call_that_it_did_not_make() -> None:
    messages = (*HELLO, said(call("a"), call("b"), by=OTHER), answered(("a", "1"), ("b", "2")))
    for name, expected in ((NEW, ["skip_thought_signature_validator", None]), (OLD, [None, None]), ("m", [None, None])):
        parts = sent(*messages, name=name)[1]["parts"]
        assert [part.get("thoughtSignature") for part in parts] == expected
    own = sent(*HELLO, said(call("a", signature="sign"), call("b")), name=NEW)[1]["parts"]
    assert [part.get("thoughtSignature") for part in own] == ["sign", None]


def test_thoughts_alone_are_no_message() -> None:
    assert len(sent(*HELLO, said(ReasoningPart("hm")))) == 1


def test_a_conversation_that_begins_with_an_answer_is_opened_by_the_user() -> None:
    opened = sent(said(call()), answered(("c1", "1")))
    assert [content["role"] for content in opened] == ["user", "model", "user"]
    assert sent(UserMessage(" "), said(TextPart("a")))[0] == opened[0]


def test_hosted_parts_go_back_as_they_came() -> None:
    code = {"executableCode": {"language": "PYTHON", "code": "1"}, "thoughtSignature": "sign"}
    result = {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}}
    message = said(
        ToolCallPart("h", "code_execution", "{}", hosted=True, raw=code),
        ToolResultPart("h", "code_execution", "1", hosted=True, raw=result),
        TextPart("a"),
        ToolCallPart("s", "google_search", "{}", hosted=True),
        ToolResultPart("s", "google_search", "[]", hosted=True, raw={"groundingMetadata": {}}),
    )
    assert sent(*HELLO, message)[1]["parts"] == [code, result, {"text": "a"}]


@pytest.mark.parametrize(
    ("args", "written"),
    [
        ("", {}),
        (" ", {}),
        ("null", {}),
        ('{"a": 1.50}', {"a": 1.5}),
        ('"{\\"a\\":1}"', {"a": 1}),
        ("[1]", {"unparsed_arguments": "[1]"}),
        ('{"a":1', {"unparsed_arguments": '{"a":1'}),
        ('{"a":"\\ud800"}', {"a": "\ufffd"}),
    ],
)
def test_arguments_always_go_out_as_an_object(args: str, written: Any) -> None:
    assert sent(*HELLO, said(call(args=args)))[1]["parts"][0]["functionCall"]["args"] == written


def test_results_are_text_whatever_keys_are_in_them() -> None:
    reserved = '{"$defs":{"A":{}},"p":{"$ref":"#/$defs/A"}}'
    messages = (*HELLO, said(call("a"), call("b")), answered(("a", reserved), ("b", "")))
    assert sent(*messages)[2] == {
        "role": "user",
        "parts": [
            {"functionResponse": {"id": "a", "name": "add", "response": {"output": reserved}}},
            {"functionResponse": {"id": "b", "name": "add", "response": {"output": ""}}},
        ],
    }
    failed = sent(*HELLO, said(call()), answered(("c1", "boom"), is_error=True))[2]["parts"][0]
    assert failed["functionResponse"]["response"] == {"error": "boom"}


def test_equal_ids_in_one_step_go_out_different_and_paired() -> None:
    _, asked, replies = sent(*HELLO, said(call("x"), call("x")), answered(("x", "1"), ("x", "2")))
    assert [part["functionCall"]["id"] for part in asked["parts"]] == ["x", "x_2"]
    assert [part["functionResponse"]["id"] for part in replies["parts"]] == ["x", "x_2"]


def test_a_name_that_the_model_made_up_is_legal_and_the_same_in_call_and_result() -> None:
    made_up = ToolCallPart("c", "do it!", "{}")
    _, asked, replies = sent(*HELLO, said(made_up), ToolMessage((ToolResultPart("c", "do it!", "no"),)))
    assert asked["parts"][0]["functionCall"]["name"] == "do_it_"
    assert replies["parts"][0]["functionResponse"]["name"] == "do_it_"


def test_a_call_that_was_cut_off_goes_out_as_text_and_so_does_its_result() -> None:
    messages = (*HELLO, said(call("a"), call("b", '{"x":', finished=False)), answered(("a", "1"), ("b", "cut")))
    _, asked, replies, told = sent(*messages)
    assert asked["parts"][1] == {"text": '[cut off: add({"x": ...]'}
    assert [part["functionResponse"]["id"] for part in replies["parts"]] == ["a"]
    assert told["parts"] == [{"text": "[result of the call to add that was cut off: cut]"}]


def test_files_of_results_go_inside_of_them_where_the_model_takes_that() -> None:
    files = (
        FilePart("image/png", data="aGk="),
        FilePart("audio/wav", data="aGk="),
        FilePart("application/zip", url="z"),
    )
    messages = (*HELLO, said(call()), answered(("c1", "see"), files=files))
    image = {"inlineData": {"mimeType": "image/png", "data": "aGk="}}
    sound = {"inlineData": {"mimeType": "audio/wav", "data": "aGk="}}
    head = {"text": "[files of the result of add, call c1]"}
    lost = {"text": "[a file of type application/zip: this model cannot take it]"}
    replies, told = sent(*messages, name=NEW)[2:]
    assert replies["parts"][0]["functionResponse"]["parts"] == [image]
    assert told == {"role": "user", "parts": [head, sound, lost]}
    replies, told = sent(*messages, name=OLD)[2:]
    assert "parts" not in replies["parts"][0]["functionResponse"]
    assert told["parts"] == [head, image, sound, lost]


# Bytes that stay the same


def grown(steps: int) -> list[Message]:
    messages: list[Message] = list(HELLO)
    for step in range(steps):
        parts = (TextPart(f"step {step}"), ProviderPart("google", "text_signature", f"s{step}"), call(f"c{step}"))
        messages += [said(*parts), answered((f"c{step}", "1"))]
    return messages


@pytest.mark.parametrize("name", [OLD, NEW])
def test_the_messages_of_a_step_begin_with_the_bytes_of_the_step_before(name: str) -> None:
    asked, messages = RequestWriter("google", name), grown(6)
    bodies = [
        asked.body(ModelRequest("Be short.", tuple(messages[:end]), (TOOL,))) for end in range(1, len(messages) + 1, 2)
    ]
    for one, two in itertools.pairwise(bodies):
        assert two.startswith(one[: one.index(b'],"tools"')])
    assert bodies[-1] == RequestWriter("google", name).body(ModelRequest("Be short.", tuple(messages), (TOOL,)))


@given(transcripts, st.sampled_from([OLD, NEW]))
def test_any_transcript_can_be_sent_and_its_beginnings_stay_the_same(messages: list[Message], name: str) -> None:
    plain = repair([message for message in messages if not _holds_files(message)])
    asked, last = RequestWriter("google", name), b""
    for end in range(1, len(plain) + 1):
        try:
            found = asked.body(ModelRequest("i", tuple(plain[:end])))
        except ConfigError:
            continue
        _assert_paired(json.loads(found)["contents"])
        assert found[:-2].startswith(last)
        last = found[:-2]


def _holds_files(message: Message) -> bool:
    if isinstance(message, ToolMessage):
        return any(result.files for result in message.results)
    return isinstance(message, UserMessage) and any(isinstance(part, FilePart) for part in message.content)


def _assert_paired(contents: list[dict[str, Any]]) -> None:
    """Each content of calls is followed at once by one result for each, in order."""
    waiting: list[Any] = []
    for content in contents:
        assert content["parts"]
        replies = [part["functionResponse"] for part in content["parts"] if "functionResponse" in part]
        if replies:
            assert [(reply["id"], reply["name"]) for reply in replies] == waiting
            assert len(replies) == len(content["parts"])
            waiting = []
            continue
        calls = [part["functionCall"] for part in content["parts"] if "functionCall" in part]
        waiting = [(found["id"], found["name"]) for found in calls]
        assert len(set(waiting)) == len(waiting)


# Counting


async def test_tokens_are_counted_by_google() -> None:
    request = ModelRequest("Be short.", HELLO, (TOOL,), settings=ModelSettings(temperature=1.0))
    reply = Reply((b'{"totalTokens": 31, "promptTokensDetails": []}',), content_type="application/json", whole=True)
    async with Loopback(reply) as server:
        assert await model(server, NEW).count_tokens(request) == 31
        vertex = model(server, NEW, base_url=f"{server.origin}/v1/projects/p/locations/l/publishers/google")
        assert await vertex.count_tokens(request) == 31
    one, two = server.requests
    assert one.path == f"/v1beta/models/{NEW}:countTokens"
    inner = one.body["generateContentRequest"]
    assert inner.pop("model") == f"models/{NEW}"
    assert set(inner) == {"systemInstruction", "contents", "tools"}
    assert two.path == f"/v1/projects/p/locations/l/publishers/google/models/{NEW}:countTokens"
    assert two.body == inner


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"totalTokens": null}', b"<html>"])
async def test_a_count_that_is_none_is_an_error(content: bytes) -> None:
    async with Loopback(Reply((content,))) as server:
        with pytest.raises(ModelResponseError, match="totalTokens"):
            await model(server).count_tokens(ModelRequest(None, HELLO))


async def test_what_breaks_while_counting_is_told_as_what_it_is() -> None:
    async with Loopback(Reply((BREAK,))) as server:
        with pytest.raises(ModelConnectionError):
            await model(server).count_tokens(ModelRequest(None, HELLO))


# Addresses and keys


@pytest.mark.parametrize(
    ("base", "path"),
    [
        ("", "/v1beta/models/m"),
        ("/", "/v1beta/models/m"),
        ("/v1", "/v1/models/m"),
        ("/proxy", "/proxy/v1beta/models/m"),
        (
            "/v1beta1/projects/p/locations/l/publishers/google",
            "/v1beta1/projects/p/locations/l/publishers/google/models/m",
        ),
    ],
)
async def test_an_address_may_name_its_version(base: str, path: str) -> None:
    async with Loopback(ANSWER) as server:
        await collect(model(server, base_url=f"{server.origin}{base}"))
    assert server.requests[0].path == f"{path}:streamGenerateContent?alt=sse"


async def test_a_name_may_be_a_path_and_never_breaks_out_of_the_address() -> None:
    async with Loopback(ANSWER) as server:
        await collect(model(server, "tunedModels/mine"))
        await collect(model(server, "a b?c#d"))
    paths = [request.path.partition("?")[0] for request in server.requests]
    assert paths == [
        "/v1beta/tunedModels/mine:streamGenerateContent",
        "/v1beta/models/a%20b%3Fc%23d:streamGenerateContent",
    ]


class Signed(httpx2.Auth):
    def auth_flow(self, request: httpx2.Request) -> Any:
        request.headers["authorization"] = "Bearer signed"
        yield request


async def test_vertex_is_asked_by_project_and_signed_by_an_auth_object(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "not-for-vertex")
    async with Loopback(ANSWER) as server:
        asked = GoogleModel(NEW, base_url=server.origin, project="p", location="europe-west4", auth=Signed())
        await collect(asked)
    (seen,) = server.requests
    place = f"/v1beta1/projects/p/locations/europe-west4/publishers/google/models/{NEW}"
    assert seen.path == f"{place}:streamGenerateContent?alt=sse"
    assert seen.headers["authorization"] == "Bearer signed"
    assert "x-goog-api-key" not in seen.headers


def test_vertex_has_an_address_for_each_location() -> None:
    assert (
        "https://aiplatform.googleapis.com/v1beta1/projects/p/locations/global/" in GoogleModel("m", project="p")._url
    )
    there = GoogleModel("m", project="p", location="us-central1")._url
    assert there.startswith("https://us-central1-aiplatform.googleapis.com/v1beta1/projects/p/locations/us-central1/")


async def test_a_missing_key_is_an_error_that_names_its_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GEMINI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    asked = resolve("google:gemini-3-pro")
    with pytest.raises(AuthenticationError, match="set GEMINI_API_KEY or GOOGLE_API_KEY, or pass api_key") as caught:
        await collect(asked)  # type: ignore[arg-type]
    assert (caught.value.status, caught.value.retryable) == (None, False)


async def test_a_key_that_no_header_carries_is_refused_without_showing_it() -> None:
    with pytest.raises(AuthenticationError, match="a header cannot carry") as caught:
        await collect(GoogleModel("m", api_key="sec\nret"))
    assert "sec" not in str(caught.value)
    assert "secret" not in repr(GoogleModel("m", api_key="secret"))


async def test_the_key_comes_from_either_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GEMINI_API_KEY", raising=False)
    async with Loopback(ANSWER) as server:
        for name in ("GOOGLE_API_KEY", "GEMINI_API_KEY"):
            monkeypatch.setenv(name, f" {name}\n")
            await collect(GoogleModel("m", base_url=server.origin))
    assert [seen.headers["x-goog-api-key"] for seen in server.requests] == ["GOOGLE_API_KEY", "GEMINI_API_KEY"]


@pytest.mark.parametrize("options", [{"base_url": "host"}, {"base_url": "ftp://x"}, {"base_url": "https://?x"}])
def test_an_address_without_a_scheme_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="base_url must begin with"):
        GoogleModel("m", **options)
    with pytest.raises(ConfigError, match="no name"):
        GoogleModel("")


# An agent over it


async def test_a_search_of_the_providers_shows_in_the_log_of_a_run() -> None:
    grounding = {"webSearchQueries": ["q"], "groundingChunks": [{"web": {"uri": "https://a", "title": "A"}}]}
    answer = sse(chunk(text("found"), finish="STOP", more={"groundingMetadata": grounding}))
    async with Loopback(Reply((answer,))) as server:
        async with Agent(model(server, OLD), hosted_web_search=True).stream("?") as run:
            events = [event async for event in run]
        result = await run.result()
    kinds = [event.__struct_config__.tag for event in events]
    assert kinds[2:6] == ["text_delta", "tool_start", "tool_finish", "model_finish"]
    assert (result.text, result.steps[0].calls) == ("found", ())
    assert server.requests[0].body["tools"] == [{"googleSearch": {}}]


@tool(effect="read")
async def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


async def test_an_agent_calls_a_tool_and_gives_everything_back() -> None:
    first = chunk({"functionCall": {"name": "add", "args": {"a": 2, "b": 3}}, "thoughtSignature": "sig"}, finish="STOP")
    second = sse(chunk(text("5", "sig2")), STOP)
    async with Loopback(Reply((sse(first),)), Reply((second,))) as server:
        result = await Agent(model(server, NEW), tools=[add]).run("2+3?")
    assert result.text == "5"
    one, two = (seen.body["contents"] for seen in server.requests)
    assert two[: len(one)] == one
    _, asked, replies = two
    call_id = asked["parts"][0]["functionCall"].pop("id")
    assert asked["parts"] == first["candidates"][0]["content"]["parts"]
    reply = {"id": call_id, "name": "add", "response": {"output": "5"}}
    assert replies == {"role": "user", "parts": [{"functionResponse": reply}]}
