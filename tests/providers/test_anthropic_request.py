"""What the Messages adapter sends."""

from __future__ import annotations

import gc
import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.claude import HELLO, NAME, answer, collect, model, text
from support.loopback import Loopback, Reply
from support.strategies import transcripts
from treadle.agent import Agent
from treadle.errors import AuthenticationError, ConfigError, UnsupportedError
from treadle.messages import (
    AssistantMessage,
    Citation,
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
from treadle.providers.anthropic import AnthropicModel
from treadle.providers.anthropic._models import traits_of
from treadle.providers.anthropic._request import RequestWriter
from treadle.transcript import repair
from treadle.usage import StopReason

TOOL = ToolSpec("add", "Adds.", {"type": "object", "properties": {"a": {"type": "integer"}}})
OWN = ModelRef("anthropic", NAME)
FOREIGN = ModelRef("openai", "gpt-5")
MARK = {"type": "ephemeral"}


def writer(name: str = NAME) -> RequestWriter:
    return RequestWriter(name, traits_of(name))


def body(*messages: Message, name: str = NAME, **more: Any) -> Any:
    """The body of a request with these messages."""
    return json.loads(writer(name).body(ModelRequest(more.pop("instructions", None), messages or HELLO, **more)))


def sent(*messages: Message) -> list[dict[str, Any]]:
    """These messages as they go out."""
    found: list[dict[str, Any]] = body(*messages)["messages"]
    return found


def said(*parts: Any, by: ModelRef | None = OWN, stop: StopReason = StopReason.END) -> AssistantMessage:
    return AssistantMessage(parts, stop, by)


def content(*parts: Any, **more: Any) -> list[dict[str, Any]]:
    """The blocks of an answer on its way back."""
    _, *found = sent(HELLO[0], said(*parts, **more))
    blocks: list[dict[str, Any]] = found[0]["content"] if found else []
    return blocks


def results(*given: ToolResultPart) -> ToolMessage:
    return ToolMessage(given)


# Around the messages


async def test_a_request_is_what_the_server_expects() -> None:
    async with Loopback(Reply((answer(*text("ok")),))) as server:
        await collect(model(server), ModelRequest("Be short.", HELLO, (TOOL,)))
    (seen,) = server.requests
    assert seen.path == "/v1/messages"
    assert seen.headers["x-api-key"] == "sk-ant-secret"
    assert seen.headers["anthropic-version"] == "2023-06-01"
    assert seen.headers["content-type"] == "application/json"
    assert "anthropic-beta" not in seen.headers
    assert seen.body == {
        "model": NAME,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hello"}]}],
        "max_tokens": 32_000,
        "stream": True,
        "cache_control": MARK,
        "tools": [{"name": "add", "description": "Adds.", "input_schema": TOOL.input_schema}],
        "system": [{"type": "text", "text": "Be short.", "cache_control": MARK}],
    }


@pytest.mark.parametrize("tail", ["", "/", "/v1", "/v1/", "/v1/messages"])
async def test_an_address_may_be_given_with_or_without_its_path(tail: str) -> None:
    async with Loopback(Reply((answer(*text("ok")),))) as server:
        await collect(AnthropicModel("m", base_url=f"{server.origin}/proxy{tail}?team=a"))
    assert server.requests[0].path == "/proxy/v1/messages?team=a"


def test_settings_have_the_names_of_the_server() -> None:
    settings = ModelSettings(temperature=0.5, top_p=0.9, stop_sequences=("END",))
    found = body(settings=settings, max_output_tokens=9)
    assert (found["temperature"], found["top_p"], found["stop_sequences"]) == (0.5, 0.9, ["END"])
    assert found["max_tokens"] == 9


@pytest.mark.parametrize(
    ("name", "feature", "more"),
    [
        (NAME, "seed", {"settings": ModelSettings(seed=1)}),
        ("claude-opus-4-7", "temperature", {"settings": ModelSettings(temperature=0.0)}),
        ("claude-sonnet-5", "top_p", {"settings": ModelSettings(top_p=0.5)}),
        ("claude-opus-5", "min_reasoning_budget", {"reasoning": Reasoning(budget_tokens=2000)}),
        (NAME, "min_reasoning_budget", {"reasoning": Reasoning(budget_tokens=1023)}),
        ("claude-haiku-4-5", "effort", {"reasoning": Reasoning(effort="high")}),
        ("claude-3-5-haiku-latest", "reasoning", {"reasoning": Reasoning()}),
        ("claude-sonnet-4-0", "output_schema", {"output_schema": TOOL.input_schema}),
    ],
)
def test_what_a_model_does_not_take_is_refused_and_named(name: str, feature: str, more: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedError) as caught:
        body(name=name, **more)
    assert (caught.value.feature, caught.value.model) == (feature, f"anthropic:{name}")


def test_everything_that_does_not_fit_is_named_at_once() -> None:
    request = ModelRequest(
        None,
        (UserMessage((FilePart("application/zip", data="AA"), FilePart("audio/wav", data="AA"))),),
        output_schema={"type": "object"},
        reasoning=Reasoning(effort="high", budget_tokens=100),
        settings=ModelSettings(seed=1),
    )
    asked = AnthropicModel("claude-sonnet-4-0")
    for refuse in (asked.check, asked._writer.body, asked._writer.counting_body):
        with pytest.raises(UnsupportedError) as caught:
            refuse(request)
        assert str(caught.value) == (
            "anthropic:claude-sonnet-4-0 takes no output schema; no reasoning effort: give budget_tokens instead; "
            "no reasoning budget below 1024 tokens; no seed: leave it out of the settings; "
            "no file of type application/zip; no file of type audio/wav"
        )
        assert caught.value.feature == "output_schema"


def test_a_budget_that_leaves_no_room_for_an_answer_is_refused() -> None:
    with pytest.raises(ConfigError, match="set max_output_tokens above it"):
        body(reasoning=Reasoning(budget_tokens=4096), max_output_tokens=4096)


def test_an_agent_refuses_a_small_budget_and_an_unknown_one_at_construction() -> None:
    Agent("anthropic:claude-sonnet-4-5", reasoning=Reasoning(budget_tokens=1024))
    for name, budget in (("claude-sonnet-4-5", 1023), ("claude-opus-4-8", 5000)):
        with pytest.raises(UnsupportedError, match="budget_tokens"):
            Agent(f"anthropic:{name}", reasoning=Reasoning(budget_tokens=budget))


@pytest.mark.parametrize(
    ("name", "reasoning", "thinking", "effort"),
    [
        ("claude-opus-5", Reasoning(effort="max"), {"type": "adaptive"}, "max"),
        ("claude-opus-5", Reasoning(effort="weird"), {"type": "adaptive"}, "weird"),
        ("claude-opus-4-7", Reasoning(show=True), {"type": "adaptive", "display": "summarized"}, None),
        (NAME, Reasoning(budget_tokens=2000), {"type": "enabled", "budget_tokens": 2000}, None),
        (NAME, Reasoning(effort="low", budget_tokens=2000), {"type": "enabled", "budget_tokens": 2000}, "low"),
        (NAME, Reasoning(effort="none"), {"type": "disabled"}, None),
        ("claude-haiku-4-5", Reasoning(), {"type": "enabled", "budget_tokens": 8192}, None),
        ("claude-opus-4-5", Reasoning(effort="high"), {"type": "enabled", "budget_tokens": 8192}, "high"),
        ("my-deployment", Reasoning(effort="high"), {"type": "adaptive"}, "high"),
    ],
)
def test_reasoning_goes_out_as_each_model_takes_it(
    name: str, reasoning: Reasoning, thinking: dict[str, Any], effort: str | None
) -> None:
    found = body(name=name, reasoning=reasoning)
    assert found["thinking"] == thinking
    assert found.get("output_config") == (None if effort is None else {"effort": effort})


def test_without_reasoning_nothing_is_said_of_it() -> None:
    assert not {"thinking", "output_config"} & body().keys()


@pytest.mark.parametrize(
    ("name", "adaptive", "budget", "effort", "sampling"),
    [
        ("claude-3-7-sonnet-20250219", False, True, False, True),
        ("claude-opus-4-20250514", False, True, False, True),
        ("anthropic.claude-sonnet-4-5-20250929-v1:0", False, True, False, True),
        ("claude-opus-4-5@20251101", False, True, True, True),
        ("claude-sonnet-4-6", True, True, True, True),
        ("anthropic/claude-4.7-opus", True, False, True, False),
        ("claude-haiku-5-5", True, False, True, False),
        ("claude-fable-5", True, False, True, False),
        ("claude-mythos-preview", True, False, True, False),
    ],
)
def test_a_name_tells_what_its_model_takes(
    name: str, adaptive: bool, budget: bool, effort: bool, sampling: bool
) -> None:
    traits = traits_of(name)
    assert (traits.adaptive, traits.budget, traits.effort, traits.sampling) == (adaptive, budget, effort, sampling)
    assert AnthropicModel(name).capabilities.min_reasoning_budget == (1024 if budget else None)


def test_a_smaller_maximum_of_output_is_kept() -> None:
    assert body(name="claude-3-haiku-20240307")["max_tokens"] == 4096
    assert body(name="claude-3-5-sonnet-20241022", max_output_tokens=100)["max_tokens"] == 100


def test_tools_are_chosen_in_the_words_of_the_server() -> None:
    words = {"auto": {"type": "auto"}, "required": {"type": "any"}, "none": {"type": "none"}}
    for word, written in {**words, "add": {"type": "tool", "name": "add"}}.items():
        assert body(tools=(TOOL,), settings=ModelSettings(tool_choice=word))["tool_choice"] == written
    assert "tool_choice" not in body(tools=(TOOL,))
    assert "tool_choice" not in body(settings=ModelSettings(tool_choice="required"))
    with pytest.raises(ConfigError, match="names no tool"):
        body(tools=(TOOL,), settings=ModelSettings(tool_choice="sub"))


def test_one_tool_at_a_time_is_told() -> None:
    found = body(tools=(TOOL,), sequential_tools=True)
    assert found["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}
    settings = ModelSettings(tool_choice="none")
    assert body(tools=(TOOL,), sequential_tools=True, settings=settings)["tool_choice"] == {"type": "none"}


def test_extra_body_is_merged_untouched_and_wins() -> None:
    settings = ModelSettings(extra_body={"max_tokens": 5, "service_tier": "auto", "model": "other"})
    found = body(settings=settings)
    assert (found["max_tokens"], found["service_tier"], found["model"]) == (5, "auto", "other")


async def test_hosted_mcp_servers_go_out_with_their_beta() -> None:
    servers = (HostedMCP("wiki", "https://w/mcp", "tok", ("ask", "read")), HostedMCP("plain", "https://p/mcp"))
    settings = ModelSettings(extra_headers={"Anthropic-Beta": "files-api-2025-04-14", "x-a": "1"})
    async with Loopback(Reply((answer(*text("ok")),))) as server:
        await collect(model(server), ModelRequest(None, HELLO, (TOOL,), settings=settings, hosted_mcp=servers))
    (seen,) = server.requests
    assert seen.headers["anthropic-beta"] == "files-api-2025-04-14,mcp-client-2025-11-20"
    assert seen.headers["x-a"] == "1"
    assert seen.body["mcp_servers"] == [
        {"type": "url", "name": "wiki", "url": "https://w/mcp", "authorization_token": "tok"},
        {"type": "url", "name": "plain", "url": "https://p/mcp"},
    ]
    assert seen.body["tools"][1:] == [
        {
            "type": "mcp_toolset",
            "mcp_server_name": "wiki",
            "default_config": {"enabled": False},
            "configs": {"ask": {"enabled": True}, "read": {"enabled": True}},
        },
        {"type": "mcp_toolset", "mcp_server_name": "plain", "cache_control": MARK},
    ]


def test_hosted_web_search_is_a_tool_of_the_server() -> None:
    assert body(hosted_web_search=True)["tools"] == [{"type": "web_search_20250305", "name": "web_search"}]


# The answer's schema


def test_an_output_schema_is_closed_and_what_cannot_be_enforced_is_described() -> None:
    schema = {
        "type": "object",
        "properties": {
            "age": {"type": "integer", "minimum": 0, "description": "In years."},
            "tags": {"type": "array", "items": {"type": "string", "maxLength": 9}, "minItems": 1},
            "pet": {"oneOf": [{"$ref": "#/$defs/Cat"}, {"type": "null"}], "discriminator": {"propertyName": "k"}},
        },
        "required": ["age"],
        "$defs": {"Cat": {"type": "object", "properties": {"k": {"const": "cat"}}}},
    }
    assert body(output_schema=schema)["output_config"]["format"] == {
        "type": "json_schema",
        "schema": {
            "type": "object",
            "properties": {
                "age": {"type": "integer", "description": "In years. (minimum: 0)"},
                "tags": {
                    "type": "array",
                    "items": {"type": "string", "description": "(maxLength: 9)"},
                    "minItems": 1,
                },
                "pet": {"anyOf": [{"$ref": "#/$defs/Cat"}, {"type": "null"}]},
            },
            "required": ["age"],
            "$defs": {"Cat": {"type": "object", "properties": {"k": {"const": "cat"}}, "additionalProperties": False}},
            "additionalProperties": False,
        },
    }


RECURSIVE = {
    "type": "object",
    "properties": {"next": {"$ref": "#/$defs/Node"}},
    "$defs": {"Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}},
}
FREE = {"type": "object", "properties": {"by": {"type": "object", "additionalProperties": {"type": "integer"}}}}
UNKNOWN = {"type": "object", "properties": {"a": {"type": "array", "prefixItems": [{"type": "integer"}]}}}


@pytest.mark.parametrize("schema", [RECURSIVE, FREE, UNKNOWN], ids=["recursive", "free keys", "unknown keyword"])
def test_a_schema_that_the_server_cannot_enforce_is_asked_for_in_words(schema: dict[str, Any]) -> None:
    found = body(instructions="Be short.", output_schema=schema)
    assert "output_config" not in found
    one, two = found["system"]
    assert one == {"type": "text", "text": "Be short."}
    assert json.loads(two["text"].partition("\n")[2]) == schema


def test_effort_and_schema_share_their_place() -> None:
    found = body(output_schema=TOOL.input_schema, reasoning=Reasoning(effort="low"))
    assert found["output_config"].keys() == {"effort", "format"}


# What users say


def test_blank_text_is_never_sent() -> None:
    assert sent(UserMessage((TextPart(" "), TextPart("hi"), TextPart("")))) == [
        {"role": "user", "content": [{"type": "text", "text": "hi"}]}
    ]
    call = ToolCallPart("toolu_1", "f", "")
    blank = (HELLO[0], said(TextPart(" "), call), results(ToolResultPart("toolu_1", "f", "")))
    assert [block["type"] for block in sent(*blank)[1]["content"]] == ["tool_use"]
    assert sent(*blank)[2]["content"] == [{"type": "tool_result", "tool_use_id": "toolu_1"}]
    assert "system" not in body(instructions=" ")
    assert len(sent(HELLO[0], said(TextPart("\n")), UserMessage("go"))) == 2
    with pytest.raises(ConfigError, match="nothing to send"):
        sent(UserMessage(" "))


def test_a_conversation_that_begins_with_an_answer_gets_a_beginning() -> None:
    roles = [message["role"] for message in sent(said(TextPart("a")), UserMessage("b"))]
    assert roles == ["user", "assistant", "user"]


def test_files_have_the_blocks_of_their_kind() -> None:
    parts = (
        FilePart("image/png", data=b"png"),
        FilePart("image/jpeg", url="https://x/y.jpg"),
        FilePart("application/pdf", data=b"pdf", name="a.pdf"),
        FilePart("application/pdf", url="https://x/y.pdf"),
        FilePart("text/csv; charset=utf-8", data="a,ö".encode(), name="t.csv"),
        FilePart("application/json", data=b"{}"),
    )
    (message,) = sent(UserMessage((*parts, TextPart("what?"))))
    plain = {"type": "text", "media_type": "text/plain"}
    assert message["content"] == [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "cG5n"}},
        {"type": "image", "source": {"type": "url", "url": "https://x/y.jpg"}},
        {
            "type": "document",
            "title": "a.pdf",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "cGRm"},
        },
        {"type": "document", "source": {"type": "url", "url": "https://x/y.pdf"}},
        {"type": "document", "title": "t.csv", "source": {**plain, "data": "a,ö"}},
        {"type": "document", "source": {**plain, "data": "{}"}},
        {"type": "text", "text": "what?"},
    ]


@pytest.mark.parametrize(
    "part",
    [FilePart("audio/wav", data=b"x"), FilePart("image/tiff", data=b"x"), FilePart("text/plain", url="https://x/y")],
)
def test_a_file_that_cannot_travel_is_refused_by_its_type(part: FilePart) -> None:
    with pytest.raises(UnsupportedError, match=f"takes no file of type {part.media_type}") as caught:
        sent(UserMessage((part,)))
    assert caught.value.feature == "files"


# What the model said


def test_what_is_the_providers_own_goes_back_as_it_came() -> None:
    search = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}}
    found = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"encrypted_content": "E"}]}
    cited = [{"type": "web_search_result_location", "encrypted_index": "I", "url": "u"}]
    redacted, hop = {"type": "redacted_thinking", "data": "R"}, {"type": "fallback", "to": {"model": "b"}}
    parts = (
        ReasoningPart("why", "sig"),
        ReasoningPart("", "only"),
        ProviderPart("anthropic", "redacted_thinking", redacted),
        ToolCallPart("srvtoolu_1", "web_search", '{"query": "q"}', hosted=True, raw=search),
        ToolResultPart("srvtoolu_1", "web_search", "x", hosted=True, raw=found),
        ProviderPart("anthropic", "fallback", hop),
        TextPart("so", (Citation(url="u"),)),
        ProviderPart("anthropic", "citations", cited),
        TextPart("plain"),
        ProviderPart("anthropic", "stop_details", {"category": None}),
        ProviderPart("anthropic", "container", {"id": "c"}),
    )
    assert content(*parts) == [
        {"type": "thinking", "thinking": "why", "signature": "sig"},
        {"type": "thinking", "thinking": "", "signature": "only"},
        redacted,
        search,
        found,
        hop,
        {"type": "text", "text": "so", "citations": cited},
        {"type": "text", "text": "plain"},
    ]
    assert content(*parts, by=FOREIGN) == [{"type": "text", "text": "so"}, {"type": "text", "text": "plain"}]


def test_thinking_without_a_signature_and_thinking_at_the_very_end_are_left_out() -> None:
    assert content(ReasoningPart("cut"), TextPart("a"), ReasoningPart("end", "sig")) == [{"type": "text", "text": "a"}]


def test_opaque_parts_of_other_providers_stay_behind() -> None:
    assert content(ProviderPart("openai", "reasoning", {"type": "x"}), TextPart("a")) == [{"type": "text", "text": "a"}]


def test_a_hosted_call_without_a_result_is_sent_only_where_something_waits_for_it() -> None:
    raw = {"type": "server_tool_use", "id": "s", "name": "code_execution", "input": {}}
    hosted = ToolCallPart("s", "code_execution", "{}", hosted=True, raw=raw)
    mine = ToolCallPart("toolu_1", "f", "{}", raw={"caller": {"type": "code_execution_20250825", "tool_id": "s"}})
    assert content(TextPart("a"), hosted) == [{"type": "text", "text": "a"}]
    asked = said(hosted, mine, stop=StopReason.TOOL_CALLS)
    _, turn, _ = sent(HELLO[0], asked, results(ToolResultPart("toolu_1", "f", "1")))
    assert turn["content"][0] == raw
    assert turn["content"][1]["caller"] == {"type": "code_execution_20250825", "tool_id": "s"}
    paused = json.loads(writer().body(ModelRequest(None, HELLO), said(TextPart("a"), hosted)))
    assert paused["messages"][-1] == {"role": "assistant", "content": [{"type": "text", "text": "a"}, raw]}


def test_code_runs_where_it_ran_last() -> None:
    ran = said(TextPart("a"), ProviderPart("anthropic", "container", {"id": "c1", "expires_at": "2026"}))
    assert body(HELLO[0], ran, UserMessage("on"))["container"] == "c1"
    assert "container" not in body(HELLO[0], ran, UserMessage("on"), said(TextPart("b")), UserMessage("on"))


@pytest.mark.parametrize(
    ("args", "written"),
    [
        ('{"a": 1.10, "a2": "\\u00e9"}', '{"a": 1.10, "a2": "\\u00e9"}'),
        ("", "{}"),
        (" ", "{}"),
        ("null", "{}"),
        ('"null"', "{}"),
        ('"{\\"a\\":1}"', '{"a":1}'),
        ("[1]", '{"unparsed_arguments":"[1]"}'),
        ('{"a":1} tail', '{"unparsed_arguments":"{\\"a\\":1} tail"}'),
        ('{"a": NaN}', '{"unparsed_arguments":"{\\"a\\": NaN}"}'),
        ('{"a": "\\ud83d"}', '{"a":"�"}'),
    ],
)
def test_arguments_always_go_out_as_a_json_object(args: str, written: str) -> None:
    found = writer().body(ModelRequest(None, (HELLO[0], said(ToolCallPart("toolu_1", "f", args)))))
    assert f'"input":{written}'.encode() in found
    json.loads(found)


def test_calls_and_results_are_paired_by_ids_that_the_server_takes() -> None:
    ids = ["call|1", "toolu_1", "x" * 65, "", "é", "toolu_1"]
    message = said(*(ToolCallPart(call_id, "bad name", "{}") for call_id in ids), by=FOREIGN)
    _, turn, reply = sent(HELLO[0], message, results(*(ToolResultPart(item, "bad name", "r") for item in ids)))
    asked = [block["id"] for block in turn["content"]]
    assert [block["tool_use_id"] for block in reply["content"]] == asked
    assert asked[1] == "toolu_1"
    assert len(set(asked)) == len(ids)
    assert all(item.replace("_", "").isalnum() and item.isascii() for item in asked)
    assert {block["name"] for block in turn["content"]} == {"bad_name"}


def test_ids_that_come_back_in_a_later_turn_go_out_different_and_stay_the_same() -> None:
    def turn() -> tuple[Message, ...]:
        return said(ToolCallPart("call_1", "f", "{}"), by=FOREIGN), results(ToolResultPart("call_1", "f", "r"))

    history = (HELLO[0], *turn(), *turn(), *turn())
    asked = writer()
    found = json.loads(asked.body(ModelRequest(None, history)))["messages"]
    ids = [block["id"] for message in found if message["role"] == "assistant" for block in message["content"]]
    assert ids == [block["tool_use_id"] for message in found[2::2] for block in message["content"]]
    assert ids[0] == "call_1"
    assert len(set(ids)) == 3
    # The same messages without their beginning: other bytes may stand before, but pairs stay pairs.
    later = json.loads(asked.body(ModelRequest(None, (UserMessage("summary"), *history[3:]))))["messages"]
    assert [block["id"] for message in later[1::2] for block in message["content"]] == ids[1:]
    assert [block["tool_use_id"] for message in later[2::2] for block in message["content"]] == ids[1:]


def test_a_call_that_was_cut_off_goes_out_as_text_and_so_does_its_result() -> None:
    message = said(ToolCallPart("toolu_1", "f", '{"a": 1', finished=False), ToolCallPart("toolu_2", "g", "{}"))
    given_results = results(ToolResultPart("toolu_1", "f", "cut", is_error=True), ToolResultPart("toolu_2", "g", "2"))
    _, turn, reply = sent(HELLO[0], message, given_results)
    assert turn["content"][0] == {"type": "text", "text": '[cut off: f({"a": 1 ...]'}
    assert [block["type"] for block in reply["content"]] == ["tool_result", "text"]
    assert reply["content"][1]["text"] == "[result of the call to f that was cut off: cut]"


def test_results_carry_their_error_and_their_files() -> None:
    files = (FilePart("image/png", data=b"p"), FilePart("audio/wav", data=b"w", name="a.wav"))
    message = said(ToolCallPart("toolu_1", "f", "{}"), ToolCallPart("toolu_2", "f", "{}"))
    _, _, reply = sent(
        HELLO[0],
        message,
        results(
            ToolResultPart("toolu_1", "f", '{"$ref": "#/x"}', files=files), ToolResultPart("toolu_2", "f", "", True)
        ),
    )
    assert reply["content"] == [
        {
            "type": "tool_result",
            "tool_use_id": "toolu_1",
            "content": [
                {"type": "text", "text": '{"$ref": "#/x"}'},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "cA=="}},
                {"type": "text", "text": "[a.wav of type audio/wav: this model cannot take it]"},
            ],
        },
        {
            "type": "tool_result",
            "tool_use_id": "toolu_2",
            "content": [{"type": "text", "text": "It failed."}],
            "is_error": True,
        },
    ]


# Caching: marks, and bytes that stay


def marks(found: Any) -> int:
    return json.dumps(found).count('"cache_control"')


def test_marks_stand_only_where_a_second_request_shares_the_beginning() -> None:
    assert marks(body(instructions="i")) == 0
    assert marks(body(instructions="i", hosted_web_search=True)) == 0
    for more in ({"tools": (TOOL,)}, {}):
        messages = HELLO if more else (HELLO[0], said(TextPart("a")), UserMessage("b"))
        found = body(*messages, instructions="i", **more)
        assert found["cache_control"] == found["system"][-1]["cache_control"] == MARK
        assert marks(found) == 2
    assert body(tools=(TOOL,))["tools"][-1]["cache_control"] == MARK
    assert marks(body(tools=(TOOL, TOOL), instructions="i", output_schema=FREE)) == 2


def history(steps: int) -> list[Message]:
    messages: list[Message] = [UserMessage("go")]
    for step in range(steps):
        messages.append(said(ReasoningPart("t", f"s{step}"), TextPart("ok"), ToolCallPart("c", "add", '{"a": 1}')))
        messages.append(results(ToolResultPart("c", "add", str(step))))
    return messages


def test_the_messages_of_a_step_begin_with_the_bytes_of_the_step_before() -> None:
    messages, asked = history(12), writer()
    bodies = [asked.body(ModelRequest("Be short.", tuple(messages[:length]), (TOOL,))) for length in range(1, 25, 2)]
    for one, two in itertools.pairwise(bodies):
        prefix, rest = one.rsplit(b'],"max_tokens"', 1)
        assert two.startswith(prefix + b",")
        assert two.endswith(rest)
    assert bodies[-1] == writer().body(ModelRequest("Be short.", tuple(history(12)[:23]), (TOOL,)))


@given(transcripts)
def test_any_transcript_can_be_sent_and_its_beginnings_stay_the_same(messages: list[Message]) -> None:
    plain = repair([message for message in messages if not _holds_files(message)])
    asked, last = writer(), b""
    for length in range(1, len(plain) + 1):
        try:
            found = asked.body(ModelRequest("i", tuple(plain[:length])))
        except ConfigError:
            continue
        assert_server_takes(json.loads(found))
        prefix = found[: found.rindex(b'],"max_tokens"')]
        assert prefix.startswith(last)
        last = prefix


def _holds_files(message: Message) -> bool:
    if isinstance(message, ToolMessage):
        return any(result.files for result in message.results)
    return isinstance(message, UserMessage) and any(isinstance(part, FilePart) for part in message.content)


def assert_server_takes(found: dict[str, Any]) -> None:
    """The rules that the Messages API enforces."""
    assert found["messages"][0]["role"] == "user"
    waiting: list[str] = []
    seen: list[str] = []
    for message in found["messages"]:
        assert message["content"]
        answered = [block["tool_use_id"] for block in message["content"] if block["type"] == "tool_result"]
        assert answered == waiting
        kinds = [block["type"] for block in message["content"]]
        assert kinds == sorted(kinds, key=lambda kind: kind != "tool_result")
        calls = [block for block in message["content"] if block["type"] == "tool_use"]
        waiting = [block["id"] for block in calls]
        seen += waiting
        assert all(isinstance(block["input"], dict) and block["name"] for block in calls)
        assert all(block["text"].strip() for block in message["content"] if block["type"] == "text")
        assert kinds[-1] not in ("thinking", "redacted_thinking")
    assert len(seen) == len(set(seen))


def test_what_is_kept_of_messages_is_given_up_with_them() -> None:
    asked, messages = writer(), history(3)
    asked.body(ModelRequest(None, tuple(messages)))
    del messages
    gc.collect()
    assert not asked._writer._ids._places
    assert len(asked._messages) == 0


@given(st.text(st.characters()))
def test_any_text_can_be_sent(value: str) -> None:
    found = writer().body(ModelRequest(f"i{value}", (UserMessage(f"u{value}"), said(TextPart(f"a{value}")))))
    json.loads(found.decode())


# Counting


async def test_tokens_are_counted_by_the_provider() -> None:
    reply = Reply((b'{"input_tokens": 671}',), content_type="application/json")
    async with Loopback(reply) as server:
        agent: Agent[Any, Any] = Agent(model(server), instructions="i", settings=ModelSettings(temperature=0.0))
        assert await agent.count_tokens("hello") == 671
    (seen,) = server.requests
    assert seen.path == "/v1/messages/count_tokens"
    assert seen.body.keys() == {"model", "messages", "system"}


async def test_a_count_that_does_not_come_is_an_error_of_ours() -> None:
    async with Loopback(Reply((b"{}",), content_type="application/json")) as server:
        with pytest.raises(Exception, match="holds no token count"):
            await model(server).count_tokens(ModelRequest(None, HELLO))


# Key and address


def test_resolving_looks_for_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    found = resolve("anthropic:claude-opus-5")
    assert (found.provider, found.name) == ("anthropic", "claude-opus-5")
    assert isinstance(found, AnthropicModel)


async def test_a_missing_key_is_an_error_that_names_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.delenv("ANTHROPIC_BASE_URL", raising=False)
    with pytest.raises(AuthenticationError, match="set ANTHROPIC_API_KEY or pass api_key"):
        await collect(AnthropicModel("m"))


async def test_key_and_address_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Loopback(Reply((answer(*text("ok")),))) as server:
        monkeypatch.setenv("ANTHROPIC_API_KEY", " sk-env ")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.origin)
        await collect(AnthropicModel("m"))
        monkeypatch.delenv("ANTHROPIC_API_KEY")
        await collect(AnthropicModel("m"))
    assert [seen.headers.get("x-api-key") for seen in server.requests] == ["sk-env", None]


@pytest.mark.parametrize("options", [{"name": ""}, {"name": "m", "base_url": "api.anthropic.com"}])
def test_a_name_or_address_that_is_none_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        AnthropicModel(**options)


def test_a_key_shows_in_no_text_of_the_model() -> None:
    assert "secret" not in repr(AnthropicModel("m", api_key="sk-secret"))
    with_token = HostedMCP("a", "https://x", "tok-secret")
    assert "secret" not in repr(with_token)
