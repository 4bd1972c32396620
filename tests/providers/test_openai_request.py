"""What the Responses adapter sends."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import ResponseInputItemParam

from support.chat import sse
from support.loopback import Loopback, Reply
from support.responses import HELLO, call, collect, completed, document, message, model, read_document, reasoning
from support.strategies import transcripts
from treadle import Agent
from treadle.errors import AuthenticationError, ConfigError, ModelResponseError, UnsupportedError
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
from treadle.model import HostedMCP, Model, ModelRequest, ModelSettings, Reasoning, ToolSpec
from treadle.providers import resolve
from treadle.providers._endpoint import for_model
from treadle.providers.openai import OpenAIModel
from treadle.providers.openai._dialects import DIALECTS, Dialect
from treadle.providers.openai._request import RequestWriter
from treadle.transcript import repair
from treadle.usage import StopReason

TOOL = ToolSpec("add", "Adds.", {"type": "object", "properties": {"a": {"type": "integer"}}})
OWN = ModelRef("openai", "gpt-5")
ANSWER = Reply((sse(completed(message("hi"))),))
ITEM: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(ResponseInputItemParam)
USER = {"role": "user", "content": "hello"}


def writer(provider: str = "openai", name: str = "gpt-5", dialect: Dialect | None = None) -> RequestWriter:
    row = dialect or DIALECTS.get(provider, Dialect())
    return RequestWriter(provider, name, for_model(row, name, row.models))


def body(*messages: Message, provider: str = "openai", name: str = "gpt-5", **more: Any) -> Any:
    """The body of a request with these messages."""
    request = ModelRequest(more.pop("instructions", None), messages or HELLO, **more)
    return json.loads(writer(provider, name).body(request))


def sent(*messages: Message, provider: str = "openai") -> list[dict[str, Any]]:
    """These messages as they go out."""
    found: list[dict[str, Any]] = body(*messages, provider=provider)["input"]
    return found


def said(*parts: Any, ref: ModelRef | None = OWN) -> AssistantMessage:
    return AssistantMessage(parts, StopReason.END, ref)


def asked(call_id: str = "c", name: str = "add", args: str = '{"a":1}', **more: Any) -> ToolCallPart:
    return ToolCallPart(call_id, name, args, **more)


def answered(*pairs: tuple[str, str], **more: Any) -> ToolMessage:
    return ToolMessage(tuple(ToolResultPart(call_id, "add", content, **more) for call_id, content in pairs))


def kept(item: dict[str, Any], provider: str = "openai") -> ProviderPart:
    return ProviderPart(provider, item["type"], item)


# Whole requests


async def test_a_request_is_what_the_server_expects() -> None:
    async with Loopback(ANSWER) as server:
        request = ModelRequest("Be short.", HELLO, (TOOL,), max_output_tokens=100, sequential_tools=True)
        await collect(model(server), request)
    (seen,) = server.requests
    assert seen.path == "/v1/responses"
    assert seen.headers["authorization"] == "Bearer sk-test-secret"
    assert seen.headers["accept-encoding"] == "identity"
    found = seen.body
    key = found.pop("prompt_cache_key")
    assert key.startswith("treadle-")
    assert len(key) <= 64
    assert found == {
        "model": "gpt-5",
        "input": [USER],
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "instructions": "Be short.",
        "max_output_tokens": 100,
        "parallel_tool_calls": False,
        "tools": [
            {
                "type": "function",
                "name": "add",
                "description": "Adds.",
                "parameters": TOOL.input_schema,
                "strict": False,
            }
        ],
    }


def test_the_smallest_request_has_nothing_that_was_not_asked_for() -> None:
    assert body() == {
        "model": "gpt-5",
        "input": [USER],
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
    }
    assert body(provider="lmstudio-responses", instructions=" ") == {
        "model": "gpt-5",
        "input": [USER],
        "stream": True,
        "store": False,
    }


@pytest.mark.parametrize("name", ["gpt-4o", "gpt-4.1-nano", "ft:gpt-4o:x", "chatgpt-4o-latest", "gpt-5-chat-latest"])
def test_encrypted_reasoning_is_not_asked_of_models_that_do_not_reason(name: str) -> None:
    assert "include" not in body(name=name)
    assert not OpenAIModel(name).capabilities.reasoning
    assert OpenAIModel(name, provider="xai-responses").capabilities.reasoning
    with pytest.raises(UnsupportedError) as caught:
        body(name=name, reasoning=Reasoning(effort="low"))
    assert caught.value.feature == "reasoning"


@pytest.mark.parametrize("name", ["gpt-5", "gpt-5.2", "o3", "o4-mini", "codex-mini-latest", "a-model-to-come"])
def test_other_models_may_reason(name: str) -> None:
    assert OpenAIModel(name).capabilities.effort
    assert body(name=name)["include"] == ["reasoning.encrypted_content"]


def test_the_agents_default_output_limit_is_left_to_the_model() -> None:
    assert "max_output_tokens" not in body()
    assert body(max_output_tokens=32_000)["max_output_tokens"] == 32_000


def test_effort_is_passed_through_and_a_summary_is_asked_for_only_when_it_is_shown() -> None:
    assert body(reasoning=Reasoning(effort="whatever"))["reasoning"] == {"effort": "whatever"}
    assert body(reasoning=Reasoning(effort="low", show=True))["reasoning"] == {"effort": "low", "summary": "auto"}
    assert body(reasoning=Reasoning(show=True))["reasoning"] == {"summary": "auto"}
    assert "reasoning" not in body(reasoning=Reasoning())


def test_settings_that_the_api_lacks_are_refused_and_named() -> None:
    settings = ModelSettings(temperature=0.0, top_p=0.5, tool_choice="required")
    found = body(settings=settings, tools=(TOOL,), name="gpt-5.1")
    assert (found["temperature"], found["top_p"], found["tool_choice"]) == (0.0, 0.5, "required")
    assert "tool_choice" not in body(settings=settings, name="gpt-5.1")
    for wrong, feature in ((ModelSettings(seed=1), "seed"), (ModelSettings(stop_sequences=("a",)), "stop_sequences")):
        with pytest.raises(UnsupportedError, match=f"openai:gpt-5 takes no {feature}") as caught:
            body(settings=wrong)
        assert caught.value.feature == feature
    with pytest.raises(UnsupportedError, match="no reasoning budget"):
        body(reasoning=Reasoning(budget_tokens=2000))


def test_everything_that_does_not_fit_is_named_at_once() -> None:
    request = ModelRequest(
        None,
        (UserMessage((FilePart("audio/wav", data="AAAA"), FilePart("application/zip", data="AA"))),),
        output_schema={"type": "object"},
        reasoning=Reasoning(effort="high", budget_tokens=100),
        settings=ModelSettings(temperature=0.5, seed=1),
        hosted_mcp=(HostedMCP("a", "https://a"),),
        hosted_web_search=True,
    )
    dialect = Dialect(settings=frozenset(), output_schema=False, effort=False)
    asked = OpenAIModel("m", provider="p", dialect=dialect, base_url="http://x")
    for refuse in (asked.check, asked._writer.body):
        with pytest.raises(UnsupportedError) as caught:
            refuse(request)
        assert str(caught.value) == (
            "p:m takes no hosted MCP servers: leave out hosted_mcp; no hosted web search: leave out hosted_web_search; "
            "no output schema; no reasoning effort: leave out effort; no reasoning budget: leave out budget_tokens; "
            "no seed: leave it out of the settings; no temperature: leave it out of the settings; "
            "no file of type audio/wav; no file of type application/zip"
        )
        assert (caught.value.feature, caught.value.model) == ("hosted_mcp", "p:m")


@pytest.mark.parametrize(
    ("provider", "name", "lacks"),
    [
        ("openai", "gpt-4o", {"reasoning", "effort"}),
        ("openai", "gpt-4-turbo", {"reasoning", "effort", "output_schema"}),
        ("openai", "gpt-3.5-turbo", {"reasoning", "effort", "output_schema", "files"}),
        ("openai", "gpt-5.6-luna", set()),
        ("openai", "o4-mini", set()),
        ("xai-responses", "grok-4-0709", {"effort"}),
        ("xai-responses", "grok-4.20-0309-non-reasoning", {"reasoning", "effort"}),
        ("xai-responses", "grok-4.3", set()),
    ],
)
def test_models_of_one_provider_differ(provider: str, name: str, lacks: set[str]) -> None:
    can = OpenAIModel(name, provider=provider).capabilities
    told = ("reasoning", "effort", "output_schema", "files")
    assert {feature for feature in told if not getattr(can, feature)} == lacks


@pytest.mark.parametrize("name", ["o4-mini", "gpt-5", "gpt-5-nano-2025-08-07"])
def test_models_that_reason_always_take_no_sampling(name: str) -> None:
    with pytest.raises(UnsupportedError, match=r"takes no temperature: .*; no top_p"):
        body(name=name, settings=ModelSettings(temperature=0.5, top_p=0.5))


def test_a_tool_is_chosen_by_its_name() -> None:
    found = body(settings=ModelSettings(tool_choice="add"), tools=(TOOL,))
    assert found["tool_choice"] == {"type": "function", "name": "add"}
    with pytest.raises(ConfigError, match="'sub' names no tool"):
        body(settings=ModelSettings(tool_choice="sub"), tools=(TOOL,))


def test_extra_body_is_merged_untouched_and_wins() -> None:
    extra = {"model": "other", "store": True, "text": {"verbosity": "low"}, "include": []}
    found = body(settings=ModelSettings(extra_body=extra))
    assert {key: found[key] for key in extra} == extra
    assert body(settings=ModelSettings(extra_body={"input": "just this"}))["input"] == "just this"


def test_an_output_schema_is_strict_only_where_strict_means_the_same() -> None:
    closed = {"type": "object", "title": "The Answer", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    shape = body(output_schema=closed)["text"]["format"]
    assert (shape["type"], shape["name"], shape["strict"]) == ("json_schema", "The_Answer", True)
    assert shape["schema"] == {**closed, "additionalProperties": False}
    free = {**closed, "properties": {"a": {"type": "object", "additionalProperties": True}}}
    shape = body(output_schema=free)["text"]["format"]
    assert (shape["schema"], shape["strict"]) == (free, False)


def test_schemas_of_tools_go_out_as_they_are() -> None:
    schema = {
        "type": "object",
        "properties": {
            "x": {"type": ["string", "null"], "default": None},
            "y": {"enum": [1, 2]},
            "z": {"const": "a"},
            "when": {"type": "string", "format": "date-time"},
            "list": {"type": "array"},
        },
    }
    (tool,) = body(tools=(ToolSpec("f", "", schema),))["tools"]
    assert tool["parameters"] == schema
    (tool,) = body(tools=(ToolSpec("now", "", {}),))["tools"]
    assert tool["parameters"] == {"type": "object", "properties": {}}


# The cache key


def test_equal_agents_share_a_cache_key_and_others_do_not() -> None:
    server = HostedMCP("wiki", "https://a", token="one")
    first = body(instructions="a", tools=(TOOL,), hosted_mcp=(server,))["prompt_cache_key"]
    again = body(*HELLO, UserMessage("more"), instructions="a", tools=(TOOL,), hosted_mcp=(server,))
    assert again["prompt_cache_key"] == first
    other_token = HostedMCP("wiki", "https://a", token="two")
    assert body(instructions="a", tools=(TOOL,), hosted_mcp=(other_token,))["prompt_cache_key"] == first
    others = [
        body(instructions="b", tools=(TOOL,), hosted_mcp=(server,)),
        body(instructions="a", tools=(), hosted_mcp=(server,)),
        body(instructions="a", tools=(TOOL,)),
        body(instructions="a"),
        body(tools=(TOOL,)),
    ]
    assert len({first, *(found["prompt_cache_key"] for found in others)}) == 6


def test_there_is_no_cache_key_where_nothing_is_shared_or_nobody_reads_it() -> None:
    assert "prompt_cache_key" not in body()
    assert "prompt_cache_key" not in body(instructions="a", provider="lmstudio-responses")


# Hosted tools


def test_hosted_servers_and_search_stand_behind_the_tools() -> None:
    servers = (HostedMCP("wiki", "https://a", "t", ("ask",)), HostedMCP("b-1", "https://b"))
    found = body(tools=(TOOL,), hosted_mcp=servers, hosted_web_search=True)
    assert found["tools"][1:] == [
        {
            "type": "mcp",
            "server_label": "wiki",
            "server_url": "https://a",
            "authorization": "t",
            "allowed_tools": ["ask"],
            "require_approval": "never",
        },
        {"type": "mcp", "server_label": "b-1", "server_url": "https://b", "require_approval": "never"},
        {"type": "web_search"},
    ]
    assert found["include"] == ["reasoning.encrypted_content", "web_search_call.action.sources"]
    (server,) = body(hosted_mcp=(HostedMCP("b", "https://b"),), provider="xai-responses")["tools"]
    assert server == {"type": "mcp", "server_label": "b", "server_url": "https://b"}


def test_hosted_tools_are_refused_where_the_server_has_none() -> None:
    with pytest.raises(UnsupportedError, match="no hosted MCP servers"):
        body(hosted_mcp=(HostedMCP("a", "https://a"),), provider="deepseek-responses")
    with pytest.raises(UnsupportedError, match="no hosted web search"):
        body(hosted_web_search=True, provider="lmstudio-responses")
    with pytest.raises(ConfigError, match="takes no hosted MCP server named 'my wiki'"):
        body(hosted_mcp=(HostedMCP("my wiki", "https://a"),))


# Users, files


def test_blank_text_is_never_sent() -> None:
    assert sent(UserMessage((TextPart(" "), TextPart("hello"), TextPart("")))) == [USER]
    assert sent(UserMessage(" "), *HELLO) == [USER]
    assert sent(*HELLO, said(TextPart("\n")), *HELLO) == [USER, USER]
    items = sent(*HELLO, said(TextPart(""), asked()), answered(("c", "")))
    assert [item.get("type") for item in items[1:]] == ["function_call", "function_call_output"]
    assert items[2]["output"] == ""
    with pytest.raises(ConfigError, match="nothing to send"):
        body(UserMessage(" "), instructions="Be short.")


def test_files_have_their_parts() -> None:
    parts = (
        TextPart("look"),
        FilePart("image/png", data=b"png"),
        FilePart("image/jpeg", url="https://a/b.jpg"),
        FilePart("application/pdf", data=b"pdf", name="a.pdf"),
        FilePart("application/pdf", data=b"pdf"),
        FilePart("application/pdf", url="https://a/b.pdf"),
    )
    assert sent(UserMessage(parts))[0]["content"] == [
        {"type": "input_text", "text": "look"},
        {"type": "input_image", "image_url": "data:image/png;base64,cG5n"},
        {"type": "input_image", "image_url": "https://a/b.jpg"},
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,cGRm"},
        {"type": "input_file", "filename": "document.pdf", "file_data": "data:application/pdf;base64,cGRm"},
        {"type": "input_file", "file_url": "https://a/b.pdf"},
    ]


@pytest.mark.parametrize(
    ("provider", "media_type"),
    [
        ("openai", "audio/wav"),
        ("openai", "video/mp4"),
        ("xai-responses", "application/pdf"),
        ("deepseek-responses", "image/png"),
    ],
)
def test_a_file_that_the_server_does_not_take_is_refused(provider: str, media_type: str) -> None:
    with pytest.raises(UnsupportedError, match=f"takes no file of type {media_type}") as caught:
        body(UserMessage((FilePart(media_type, data=b"x"),)), provider=provider)
    assert caught.value.feature == "files"


def test_files_of_results_stand_in_the_result_or_behind_it() -> None:
    file = FilePart("image/png", data=b"png")
    odd = FilePart("audio/wav", data=b"x", name="a.wav")
    result = answered(("c", "seen"), files=(file, odd))
    image = {"type": "input_image", "image_url": "data:image/png;base64,cG5n"}
    note = {"type": "input_text", "text": "[a.wav of type audio/wav: this model cannot take it]"}
    (output,) = sent(*HELLO, said(asked()), result)[2:]
    assert output["output"] == [{"type": "input_text", "text": "seen"}, image, note]
    output, follow = sent(*HELLO, said(asked()), result, provider="xai-responses")[2:]
    assert output["output"] == "seen"
    label = {"type": "input_text", "text": "[files of the result of add, call c]"}
    assert follow == {"role": "user", "content": [label, image, note]}


# Answers that go back


def test_an_answer_goes_back_in_its_order_with_all_that_the_provider_gave() -> None:
    thought, listed = reasoning("Hm"), {"type": "mcp_list_tools", "id": "l", "tools": []}
    hosted = {"type": "mcp_call", "id": "m", "name": "ask", "output": "42"}
    raw = {"id": "fc_1", "status": "completed", "namespace": "n"}
    answer = said(
        kept(listed),
        ReasoningPart("Hm"),
        kept(thought),
        asked("m", "ask", hosted=True, raw=hosted),
        ToolResultPart("m", "ask", "42", hosted=True),
        TextPart("It ", (Citation(url="https://a"),)),
        TextPart("is."),
        asked(raw=raw),
    )
    assert sent(*HELLO, answer, answered(("c", "1")))[1:] == [
        listed,
        thought,
        hosted,
        {"role": "assistant", "content": "It is."},
        {"type": "function_call", **raw, "call_id": "c", "name": "add", "arguments": '{"a":1}'},
        {"type": "function_call_output", "call_id": "c", "output": "1"},
    ]


def test_phases_go_back_with_their_messages() -> None:
    phases = [ProviderPart("openai", "message", {"phase": phase}) for phase in ("commentary", "final_answer")]
    answer = said(phases[0], TextPart("a"), TextPart("b"), asked(), TextPart("c"), phases[1], TextPart("d"))
    items = sent(*HELLO, answer, answered(("c", "1")))[1:]
    assert [item for item in items if item.get("role")] == [
        {"role": "assistant", "content": "ab", "phase": "commentary"},
        {"role": "assistant", "content": "c"},
        {"role": "assistant", "content": "d", "phase": "final_answer"},
    ]


@pytest.mark.parametrize("data", [None, 5, "x", [["role", "user"]]])
def test_a_phase_that_is_none_only_parts_two_messages(data: Any) -> None:
    items = sent(*HELLO, said(TextPart("a"), ProviderPart("openai", "message", data), TextPart("b")))[1:]
    assert items == [{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}]


def test_what_another_provider_gave_stays_behind() -> None:
    item = {"type": "mcp_call", "id": "m"}
    answer = said(
        ReasoningPart("secret", "signature"),
        ProviderPart("anthropic", "redacted_thinking", {"data": "x"}),
        ProviderPart("anthropic", "message", {"phase": "x"}),
        asked("m", hosted=True, raw=item),
        ToolResultPart("m", "ask", "r", hosted=True),
        TextPart("a"),
        asked("x" * 70, "my tool!", raw={"id": "toolu_1"}),
        ref=ModelRef("anthropic", "c"),
    )
    text, called, output = sent(*HELLO, answer, answered(("x" * 70, "1")))[1:]
    assert text == {"role": "assistant", "content": "a"}
    assert (called["name"], called["call_id"], "id" in called) == ("my_tool_", output["call_id"], False)
    assert len(called["call_id"]) <= 64
    for other in ("xai-responses", "azure-responses"):
        own = said(kept(reasoning("Hm")), asked("m", hosted=True, raw=item), TextPart("a"))
        assert sent(*HELLO, own, *HELLO, provider=other)[1:-1] == [{"role": "assistant", "content": "a"}]


def test_reasoning_that_the_server_would_refuse_stays_behind() -> None:
    bare, shown = reasoning(sealed=None), reasoning(sealed=None, content=[{"type": "reasoning_text", "text": "x"}])
    answer = said(kept(bare), kept(shown), TextPart("a"))
    assert sent(*HELLO, answer, *HELLO)[1:-1] == [shown, {"role": "assistant", "content": "a"}]
    loose = said(TextPart("a"), kept(reasoning("Hm")))
    assert sent(*HELLO, loose, *HELLO)[1:-1] == [{"role": "assistant", "content": "a"}]
    xai = said(kept(bare, "xai-responses"), TextPart("a"), ref=ModelRef("xai-responses", "g"))
    assert sent(*HELLO, xai, *HELLO, provider="xai-responses")[1] == bare


def test_calls_that_only_the_caller_can_run_go_back_with_their_outputs_or_not_at_all() -> None:
    custom, output = {"type": "custom_tool_call", "call_id": "c"}, {"type": "custom_tool_call_output", "call_id": "c"}
    assert sent(*HELLO, said(kept(reasoning("Hm")), kept(custom)), *HELLO) == [USER, USER]
    assert sent(*HELLO, said(kept(custom), kept(output)), *HELLO)[1:-1] == [custom, output]
    server = {"type": "tool_search_call", "call_id": None, "execution": "server"}
    assert sent(*HELLO, said(kept(server), TextPart("a")), *HELLO)[1] == server


def test_a_request_for_an_approval_goes_back_with_a_no() -> None:
    item = {"type": "mcp_approval_request", "id": "mcpr_1", "name": "send", "arguments": "{}"}
    request, response, _ = sent(*HELLO, said(asked("mcpr_1", hosted=True, raw=item)), *HELLO)[1:]
    assert request == item
    assert (response["type"], response["approval_request_id"], response["approve"]) == (
        "mcp_approval_response",
        "mcpr_1",
        False,
    )


def test_the_caller_of_a_call_is_told_with_its_output() -> None:
    caller = {"type": "program", "caller_id": "p"}
    program = {"type": "program", "id": "cm_1", "call_id": "p", "code": "x"}
    answer = said(kept(program), asked(raw={"id": "fc", "caller": caller}))
    assert [item.get("caller") for item in sent(*HELLO, answer, answered(("c", "1")))[1:]] == [None, caller, caller]


def test_deepseek_gets_the_calls_of_an_answer_together() -> None:
    own = ModelRef("deepseek-responses", "m")
    answer = said(asked("a"), TextPart("and"), asked("b"), ref=own)
    items = sent(*HELLO, answer, answered(("a", "1"), ("b", "2")), provider="deepseek-responses")
    assert [item.get("call_id") or item["content"] for item in items[1:]] == ["and", "a", "b", "a", "b"]


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ("", "{}"),
        (" ", "{}"),
        ("null", "{}"),
        ('"null"', "{}"),
        ('{"a": 1}', '{"a": 1}'),
        ('"{\\"city\\":\\"Oslo\\"}"', '{"city":"Oslo"}'),
        ("[1]", '{"unparsed_arguments":"[1]"}'),
        ('{"a":1} tail', '{"unparsed_arguments":"{\\"a\\":1} tail"}'),
    ],
)
def test_arguments_are_always_an_object(args: str, expected: str) -> None:
    assert sent(*HELLO, said(asked(args=args)), answered(("c", "1")))[1]["arguments"] == expected


def test_a_call_that_was_cut_off_is_told_as_text_and_so_is_its_result() -> None:
    answer = said(TextPart("Wait."), asked("a"), asked("b", args='{"x', finished=False))
    items = sent(*HELLO, answer, answered(("a", "1"), ("b", "not run")))[1:]
    assert [item.get("type") or item["role"] for item in items] == [
        "assistant",
        "function_call",
        "assistant",
        "function_call_output",
        "user",
    ]
    assert items[2]["content"] == '[cut off: add({"x ...]'
    assert items[4]["content"] == "[result of the call to add that was cut off: not run]"


def test_equal_ids_of_one_step_are_told_apart_on_both_sides() -> None:
    items = sent(*HELLO, said(asked("c"), asked("c")), answered(("c", "1"), ("c", "2")))
    one, two, *results = [item["call_id"] for item in items[1:]]
    assert one == "c" != two
    assert results == [one, two]


def test_ids_that_come_up_again_in_a_later_step_are_told_apart_and_stay_what_they_are() -> None:
    steps: list[Message] = []
    for number in range(3):
        steps += [said(asked("call_1")), answered(("call_1", str(number)))]
    one_writer = writer()
    bodies = [json.loads(one_writer.body(ModelRequest(None, (*HELLO, *steps[:end])))) for end in (2, 4, 6)]
    items = bodies[-1]["input"][1:]
    assert [item["call_id"] for item in items[::2]] == [item["call_id"] for item in items[1::2]]
    assert len({item["call_id"] for item in items}) == 3
    assert items[0]["call_id"] == "call_1"
    for shorter, longer in itertools.pairwise(bodies):
        assert longer["input"][: len(shorter["input"])] == shorter["input"]
    assert bodies[-1] == json.loads(writer().body(ModelRequest(None, (*HELLO, *steps))))


def test_keys_that_other_providers_reserve_are_text_in_a_result() -> None:
    content = '{"$defs":{"A":{}},"p":{"$ref":"#/$defs/A"}}'
    assert sent(*HELLO, said(asked()), answered(("c", content)))[-1]["output"] == content


async def test_an_answer_that_was_read_goes_back_as_it_came() -> None:
    items = [reasoning("Hm"), call('{"a": 1}'), call("", "call_2")]
    finish = (await read_document(document(*items)))[-1]
    written = sent(*HELLO, finish.message, answered(("call_1", "1"), ("call_2", "2")))
    assert written[1] == items[0]
    assert written[2] == items[1]
    assert written[3] == {**items[2], "arguments": "{}"}


# The prefix


def grown(steps: int) -> list[Message]:
    """A conversation of some steps."""
    messages: list[Message] = [UserMessage("start")]
    for step in range(steps):
        thought = kept(reasoning(f"Step {step}", id=f"rs_{step}"))
        messages.append(said(thought, TextPart(f"step {step}"), asked(f"c{step}", raw={"id": f"fc{step}"})))
        messages.append(answered((f"c{step}", f"result {step}")))
    return messages


def test_each_request_begins_with_the_one_before_it() -> None:
    one, messages, before = writer(), grown(20), b""
    for end in range(1, len(messages) + 1, 2):
        request = ModelRequest("Be short.", tuple(messages[:end]), (TOOL,))
        written = one.body(request)
        prefix, rest = written.split(b'],"stream":', 1)
        assert prefix.startswith(before)
        assert written == writer().body(request)  # and two equal agents say the same
        before, tail = prefix, rest
    assert json.loads(written)["input"][0] == {"role": "user", "content": "start"}
    assert b"prompt_cache_key" in tail


@given(transcripts)
def test_any_repaired_transcript_is_one_that_the_api_takes(messages: list[Message]) -> None:
    history = (*repair(messages), UserMessage("go"))
    try:
        items = sent(*history)
    except UnsupportedError as error:
        assert error.feature == "files"  # noqa: PT017 - many a file of many a type may be refused, and nothing else
        return
    waiting: list[str] = []
    for item in items:
        if item.get("type") == "function_call":
            assert isinstance(json.loads(item["arguments"]), dict)
            assert 0 < len(item["call_id"]) <= 64
            assert item["name"]
            waiting.append(item["call_id"])
        elif item.get("type") == "function_call_output":
            waiting.remove(item["call_id"])
        elif item.get("role"):
            assert item["role"] == "assistant" or not waiting
            content = item["content"]
            assert content.strip() if isinstance(content, str) else content
    assert not waiting


@given(st.text(st.characters(categories=["Cs", "L", "C", "N"]), max_size=10))
def test_any_text_can_be_sent(value: str) -> None:
    written = writer().body(ModelRequest(value, (UserMessage("x" + value),)))
    assert json.loads(written)["input"][-1]["content"].startswith("x")


def test_numbers_that_json_lacks_go_out_as_null() -> None:
    assert body(settings=ModelSettings(extra_body={"x": float("nan")}))["x"] is None


@given(transcripts)
def test_any_repaired_transcript_has_the_shapes_that_the_openai_client_knows(messages: list[Message]) -> None:
    try:
        items = sent(*repair(messages), UserMessage("go"))
    except UnsupportedError:
        return
    for item in items:
        ITEM.validate_python(item)


# Counting


async def test_tokens_are_counted_by_the_servers_own_counter() -> None:
    counted = Reply((b'{"object":"response.input_tokens","input_tokens":42}',), content_type="application/json")
    async with Loopback(counted) as server:
        settings = ModelSettings(temperature=0.5, tool_choice="auto")
        request = ModelRequest("Be short.", HELLO, (TOOL,), settings=settings, reasoning=Reasoning(effort="low"))
        assert await model(server, "gpt-5.1").count_tokens(request) == 42
    (seen,) = server.requests
    assert seen.path == "/v1/responses/input_tokens"
    assert set(seen.body) == {"model", "input", "instructions", "tools", "tool_choice", "reasoning"}
    assert OpenAIModel("gpt-5").capabilities.token_counting
    assert not OpenAIModel("m", provider="xai-responses").capabilities.token_counting


async def test_a_counter_that_does_not_count_is_an_error() -> None:
    async with Loopback(Reply((b"{}",), content_type="application/json")) as server:
        with pytest.raises(ModelResponseError, match="no token count"):
            await model(server).count_tokens(ModelRequest(None, HELLO))


# Names, keys and addresses


def test_the_model_has_its_name_and_an_agent_takes_it() -> None:
    found = resolve("openai:gpt-5")
    assert isinstance(found, OpenAIModel)
    assert isinstance(found, Model)
    assert repr(found) == "<OpenAIModel openai:gpt-5>"
    Agent("openai:gpt-5", hosted_mcp=[HostedMCP("a", "https://a")], hosted_web_search=True)
    with pytest.raises(ConfigError, match="named 'my wiki'"):
        Agent("openai:gpt-5", hosted_mcp=[HostedMCP("my wiki", "https://a")])
    with pytest.raises(UnsupportedError, match="takes no seed"):
        Agent("openai:gpt-5", settings=ModelSettings(seed=1))
    with pytest.raises(UnsupportedError):
        Agent("openai:gpt-4o", reasoning=Reasoning(effort="low"))
    with pytest.raises(ConfigError, match="no name"):
        OpenAIModel("")


@pytest.mark.parametrize("provider", [name for name, dialect in DIALECTS.items() if dialect.key.required])
async def test_a_missing_key_is_an_error_that_names_its_variable(
    provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialect = DIALECTS[provider]
    variable = dialect.key.variables[0]
    monkeypatch.delenv(variable, raising=False)
    asked_for = OpenAIModel("m", provider=provider, dialect=dialect) if dialect.base_url else None
    if asked_for is None:
        with pytest.raises(ConfigError, match=f"set {dialect.base_url_variables[0]}"):
            OpenAIModel("m", provider=provider)
        return
    with pytest.raises(AuthenticationError, match=f"no API key: set {variable} or pass api_key") as caught:
        await collect(asked_for)
    assert (caught.value.status, caught.value.retryable) == (None, False)


async def test_a_key_that_no_header_carries_is_refused_without_showing_it() -> None:
    with pytest.raises(AuthenticationError, match="a header cannot carry") as caught:
        await collect(OpenAIModel("m", api_key="sk-sec\nret"))
    assert "sk-sec" not in str(caught.value)


async def test_key_and_address_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Loopback(ANSWER) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", " from-environment\n")
        await collect(OpenAIModel("m"))
        await collect(OpenAIModel("m", provider="lmstudio-responses", base_url=f"{server.url}/responses?v=1"))
    assert [request.headers.get("authorization") for request in server.requests] == ["Bearer from-environment", None]
    assert [request.path for request in server.requests] == ["/v1/responses", "/v1/responses?v=1"]


async def test_extra_headers_go_along() -> None:
    async with Loopback(ANSWER) as server:
        settings = ModelSettings(extra_headers={"OpenAI-Project": "p"})
        await collect(model(server), ModelRequest(None, HELLO, settings=settings))
    assert server.requests[0].headers["openai-project"] == "p"


@pytest.mark.parametrize("url", ["ftp://a", "api.openai.com"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="base_url must begin with"):
        OpenAIModel("m", base_url=url)
