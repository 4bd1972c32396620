"""What the adapter sends."""

from __future__ import annotations

import gc
import itertools
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.chat import DONE, HELLO, chunk, collect, model, sse, text
from support.loopback import Loopback, Reply
from support.strategies import transcripts
from treadle.errors import AuthenticationError, ConfigError, UnsupportedError
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
from treadle.providers._endpoint import for_model
from treadle.providers.openai_chat import OpenAIChatModel
from treadle.providers.openai_chat._dialects import DIALECTS, Dialect
from treadle.providers.openai_chat._request import RequestWriter
from treadle.transcript import repair
from treadle.usage import StopReason

TOOL = ToolSpec("add", "Adds.", {"type": "object", "properties": {"a": {"type": "integer"}}})
OWN = ModelRef("openai-chat", "m")
WITH_TOOLS = sorted(DIALECTS.keys() - {"perplexity", "snowflake"})  # the model "m" takes none there


def writer(provider: str = "openai-chat", dialect: Dialect | None = None, name: str = "m") -> RequestWriter:
    row = dialect or DIALECTS.get(provider, Dialect())
    return RequestWriter(provider, name, for_model(row, name, row.models))


def body(*messages: Message, provider: str = "openai-chat", name: str = "m", **more: Any) -> Any:
    """The body of a request with these messages."""
    request = ModelRequest(more.pop("instructions", None), messages or HELLO, **more)
    return json.loads(writer(provider, name=name).body(request))


def sent(*messages: Message, provider: str = "openai-chat") -> list[dict[str, Any]]:
    """These messages as they go out."""
    found: list[dict[str, Any]] = body(*messages, provider=provider)["messages"]
    return found


def said(*parts: Any, model: ModelRef | None = OWN) -> AssistantMessage:
    return AssistantMessage(parts, StopReason.END, model)


def call(call_id: str = "c", name: str = "add", args: str = '{"a":1}', **more: Any) -> ToolCallPart:
    return ToolCallPart(call_id, name, args, **more)


def answered(*pairs: tuple[str, str], **more: Any) -> ToolMessage:
    return ToolMessage(tuple(ToolResultPart(call_id, "add", content, **more) for call_id, content in pairs))


# Whole requests


async def test_a_request_is_what_the_server_expects() -> None:
    async with Loopback(Reply((sse(text("hi"), chunk({}, "stop"), DONE),))) as server:
        request = ModelRequest("Be short.", HELLO, (TOOL,), max_output_tokens=100, sequential_tools=True)
        await collect(model(server, "gpt-5"), request)
    (seen,) = server.requests
    assert seen.path == "/v1/chat/completions"
    assert seen.headers["content-type"] == "application/json"
    assert seen.headers["accept-encoding"] == "identity"
    assert seen.body == {
        "model": "gpt-5",
        "messages": [{"role": "system", "content": "Be short."}, {"role": "user", "content": "hello"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_completion_tokens": 100,
        "parallel_tool_calls": False,
        "tools": [
            {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": TOOL.input_schema}}
        ],
    }


def test_the_agents_default_output_limit_is_left_to_the_model() -> None:
    assert not {"max_tokens", "max_completion_tokens"} & set(body())
    assert body(max_output_tokens=50, provider="ollama")["max_tokens"] == 50
    assert body(max_output_tokens=32_000)["max_completion_tokens"] == 32_000


def test_settings_have_the_names_of_the_server() -> None:
    settings = ModelSettings(temperature=0.0, top_p=0.5, seed=3, stop_sequences=("END",), tool_choice="required")
    found = body(settings=settings, tools=(TOOL,))
    assert (found["temperature"], found["top_p"], found["seed"], found["stop"], found["tool_choice"]) == (
        0.0,
        0.5,
        3,
        ["END"],
        "required",
    )
    assert body(settings=settings, tools=(TOOL,), provider="mistral")["random_seed"] == 3
    assert "tool_choice" not in body(settings=settings)


def test_a_tool_is_chosen_by_its_name() -> None:
    found = body(settings=ModelSettings(tool_choice="add"), tools=(TOOL,))
    assert found["tool_choice"] == {"type": "function", "function": {"name": "add"}}
    with pytest.raises(ConfigError, match="'sub' names no tool"):
        body(settings=ModelSettings(tool_choice="sub"), tools=(TOOL,))


def test_what_a_server_does_not_take_is_refused_and_named() -> None:
    with pytest.raises(UnsupportedError, match="deepseek:m takes no seed") as caught:
        body(settings=ModelSettings(seed=1), provider="deepseek")
    assert (caught.value.feature, caught.value.model) == ("seed", "deepseek:m")
    with pytest.raises(UnsupportedError, match="no reasoning budget"):
        body(reasoning=Reasoning(budget_tokens=100))
    with pytest.raises(UnsupportedError, match="no reasoning effort"):
        body(reasoning=Reasoning(effort="high"), provider="lmstudio")
    with pytest.raises(UnsupportedError, match="no output schema"):
        body(output_schema={"type": "object"}, provider="groq")
    with pytest.raises(UnsupportedError, match="no hosted web search"):
        body(hosted_web_search=True)
    with pytest.raises(UnsupportedError, match="no tools"):
        body(tools=(TOOL,), provider="perplexity")


def test_everything_that_does_not_fit_is_named_at_once() -> None:
    request = ModelRequest(
        None,
        (
            UserMessage(
                (FilePart("audio/wav", data="AAAA"), TextPart("hello"), FilePart("application/zip", data="AA"))
            ),
            UserMessage((FilePart("image/png", data="AAAA"),)),
        ),
        output_schema={"type": "object"},
        reasoning=Reasoning(effort="high", budget_tokens=100),
        settings=ModelSettings(seed=1, stop_sequences=("x",)),
        hosted_mcp=(HostedMCP("a", "https://a"),),
        hosted_web_search=True,
    )
    asked = OpenAIChatModel("m", dialect=Dialect(settings=frozenset(), output_schema=False), base_url="http://x")
    faults = (
        "openai-chat:m takes no hosted MCP servers: leave out hosted_mcp; no hosted web search: leave out "
        "hosted_web_search; no output schema; no reasoning effort: leave out effort; no reasoning budget: leave out "
        "budget_tokens; no seed: leave it out of the settings; no stop_sequences: leave it out of the settings; "
        "no file of type audio/wav; no file of type application/zip"
    )
    for refuse in (asked.check, asked._writer.body):
        with pytest.raises(UnsupportedError) as caught:
            refuse(request)
        assert str(caught.value) == faults
        assert (caught.value.feature, caught.value.model) == ("hosted_mcp", "openai-chat:m")


def test_reasoning_effort_passes_through() -> None:
    assert body(reasoning=Reasoning(effort="minimal"))["reasoning_effort"] == "minimal"
    assert "reasoning_effort" not in body(reasoning=Reasoning(show=True))


@pytest.mark.parametrize(
    ("provider", "reasoning", "told"),
    [
        ("deepseek", Reasoning(effort="max"), {"reasoning_effort": "max"}),
        ("deepseek", Reasoning(effort="none"), {"thinking": {"type": "disabled"}}),
        ("moonshot", Reasoning(effort="low"), {"reasoning_effort": "low"}),
        ("moonshot", Reasoning(effort="none"), {"thinking": {"type": "disabled"}}),
        ("zai", Reasoning(), {"thinking": {"type": "enabled", "clear_thinking": False}}),
        ("zai", Reasoning(effort="none"), {"thinking": {"type": "disabled"}}),
        ("alibaba", Reasoning(budget_tokens=99), {"enable_thinking": True, "thinking_budget": 99}),
        ("openai-chat", Reasoning(effort="none"), {"reasoning_effort": "none"}),
    ],
)
def test_each_server_is_told_in_its_words_how_much_to_reason(
    provider: str, reasoning: Reasoning, told: dict[str, Any]
) -> None:
    assert body(provider=provider, reasoning=reasoning) == {**body(provider=provider), **told}


@pytest.mark.parametrize(
    ("provider", "name", "refused"),
    [
        ("openai-chat", "gpt-4o", "effort"),
        ("openai-chat", "gpt-3.5-turbo", "output_schema"),
        ("openai-chat", "gpt-4o-audio-preview", "output_schema"),
        ("openai-chat", "o4-mini", "temperature"),
        ("openai-chat", "gpt-5-mini", "temperature"),
        ("openai-chat", "gpt-5-2025-08-07", "stop_sequences"),
        ("xai", "grok-4-0709", "effort"),
        ("xai", "grok-4.20-0309-reasoning", "effort"),
        ("xai", "grok-4-1-fast-non-reasoning", "effort"),
        ("xai", "grok-4.3", "stop_sequences"),
        ("snowflake", "llama3.1-70b", "output_schema"),
    ],
)
def test_models_of_one_provider_differ(provider: str, name: str, refused: str) -> None:
    settings = ModelSettings(temperature=0.5, stop_sequences=("x",))
    with pytest.raises(UnsupportedError, match=refused if refused in ("temperature", "stop_sequences") else "no "):
        body(
            provider=provider,
            name=name,
            settings=settings if refused in ("temperature", "stop_sequences") else None,
            reasoning=Reasoning(effort="low") if refused == "effort" else None,
            output_schema={"type": "object"} if refused == "output_schema" else None,
        )


@pytest.mark.parametrize("name", ["gpt-5.1", "gpt-5.6-sol", "a-name-of-tomorrow"])
def test_a_model_that_is_in_no_table_gets_everything(name: str) -> None:
    found = body(
        name=name, settings=ModelSettings(temperature=0.5, stop_sequences=("x",)), reasoning=Reasoning(effort="ultra")
    )
    assert (found["temperature"], found["stop"], found["reasoning_effort"]) == (0.5, ["x"], "ultra")


def test_extra_body_is_merged_untouched_and_wins() -> None:
    extra = {"model": "other", "stream_options": {"x": 1}, "user": "u", "tools": []}
    found = body(settings=ModelSettings(extra_body=extra), tools=(TOOL,))
    assert {key: found[key] for key in extra} == extra
    assert body(settings=ModelSettings(extra_body={"messages": [{"role": "x"}]}))["messages"] == [{"role": "x"}]


def test_two_conversations_with_one_beginning_do_not_mix() -> None:
    asked, messages = writer(), grown(3)
    other = (*messages[:3], UserMessage("elsewhere"))
    for _ in range(2):
        for conversation in (tuple(messages), other, tuple(messages[:1])):
            request = ModelRequest(None, conversation)
            assert asked.body(request) == writer().body(request)


def test_usage_is_asked_for_where_the_server_wants_to_be_asked() -> None:
    assert "stream_options" in body()
    assert "stream_options" not in body(provider="mistral")


def test_an_output_schema_is_strict_only_where_strict_means_the_same() -> None:
    closed = {"type": "object", "title": "The Answer", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    shape = body(output_schema=closed)["response_format"]["json_schema"]
    assert (shape["name"], shape["strict"]) == ("The_Answer", True)
    assert shape["schema"] == {**closed, "additionalProperties": False}
    free = {**closed, "properties": {"a": {"type": "object", "additionalProperties": True}}}
    shape = body(output_schema=free)["response_format"]["json_schema"]
    assert (shape["schema"], shape["strict"]) == (free, False)


# Users and files


def test_blank_text_is_never_sent() -> None:
    user = UserMessage((TextPart(" "), TextPart("hello"), TextPart("")))
    assert sent(user) == [{"role": "user", "content": "hello"}]
    assert sent(UserMessage(" "), *HELLO) == [{"role": "user", "content": "hello"}]
    assert sent(*HELLO, said(TextPart("\n")), *HELLO)[1:] == [{"role": "user", "content": "hello"}]
    assert body(instructions=" ")["messages"] == [{"role": "user", "content": "hello"}]
    tool_turn = sent(*HELLO, said(TextPart(""), call()), answered(("c", "")))
    assert "content" not in tool_turn[1]
    assert tool_turn[2] == {"role": "tool", "tool_call_id": "c", "content": ""}


def test_a_request_of_nothing_but_blanks_is_refused() -> None:
    with pytest.raises(ConfigError, match="nothing to send"):
        body(UserMessage(" "), instructions="Be short.")


def test_several_texts_are_one_and_files_stand_in_their_place() -> None:
    assert sent(UserMessage((TextPart("a"), TextPart("b"))))[0]["content"] == "a\n\nb"
    image = FilePart("image/png", data=b"png")
    content = sent(UserMessage((TextPart("look"), image, FilePart("image/jpeg", url="https://a/b.jpg"))))[0]["content"]
    assert content == [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,cG5n"}},
        {"type": "image_url", "image_url": {"url": "https://a/b.jpg"}},
    ]


def test_sound_and_documents_have_their_own_parts() -> None:
    content = sent(
        UserMessage((FilePart("audio/mpeg", data=b"x"), FilePart("application/pdf", data=b"x", name="a.pdf")))
    )[0]["content"]
    assert content == [
        {"type": "input_audio", "input_audio": {"data": "eA==", "format": "mp3"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,eA=="}},
    ]


@pytest.mark.parametrize(
    ("part", "provider", "text"),
    [
        (FilePart("video/mp4", data=b"x"), "openai-chat", "no file of type video/mp4"),
        (FilePart("application/pdf", url="https://a/b.pdf"), "openai-chat", "application/pdf by url: pass its data"),
        (FilePart("audio/ogg", data=b"x"), "openai-chat", "no file of type audio/ogg"),
        (FilePart("image/png", data=b"x"), "deepseek", "no file of type image/png"),
        (FilePart("application/pdf", data=b"x"), "mistral", "no file of type application/pdf"),
    ],
)
def test_a_file_that_cannot_travel_is_refused_by_its_type(part: FilePart, provider: str, text: str) -> None:
    with pytest.raises(UnsupportedError, match=text) as caught:
        sent(UserMessage((part,)), provider=provider)
    assert caught.value.feature == "files"


# Calls and results (B017, B019, B021)


@pytest.mark.parametrize(
    ("args", "written"),
    [
        ('{"a": 1}', '{"a": 1}'),
        ("", "{}"),
        (" ", "{}"),
        ("null", "{}"),
        ('"null"', "{}"),
        ('"{\\"a\\":1}"', '{"a":1}'),
        ('{"a":1,"a":2}', '{"a":1,"a":2}'),
        ('{"a":"\\ud83d"}', '{"a":"\\ud83d"}'),
        ('{"a":"\\ud83d","b":NaN}', '{"unparsed_arguments":"{\\"a\\":\\"\\\\ud83d\\",\\"b\\":NaN}"}'),
        ("[1]", '{"unparsed_arguments":"[1]"}'),
        ('"x"', '{"unparsed_arguments":"\\"x\\""}'),
        ("3", '{"unparsed_arguments":"3"}'),
        ('{"a":1} tail', '{"unparsed_arguments":"{\\"a\\":1} tail"}'),
        ("{'a': 1}", '{"unparsed_arguments":"{\'a\': 1}"}'),
        ('{"a":NaN}', '{"unparsed_arguments":"{\\"a\\":NaN}"}'),
    ],
)
def test_arguments_always_go_out_as_a_json_object(args: str, written: str) -> None:
    for provider in WITH_TOOLS:
        (found,) = sent(*HELLO, said(call(args=args)), answered(("c", "r")), provider=provider)[1]["tool_calls"]
        assert found["function"] == {"name": "add", "arguments": written}


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("raed_file", "raed_file"),
        ("read_file ", "read_file_"),
        ("", "unnamed"),
        ("a.b/ü", "a_b__"),
        ("x" * 90, "x" * 64),
    ],
)
def test_names_that_the_model_made_up_go_out_in_a_legal_form(name: str, written: str) -> None:
    (found,) = sent(*HELLO, said(call(name=name)), answered(("c", "r")))[1]["tool_calls"]
    assert found["function"]["name"] == written


def test_calls_and_results_are_paired_by_ids_that_the_server_takes() -> None:
    long = "toolu_" + "x" * 60
    for provider, call_id in (
        ("openai-chat", long),
        ("mistral", long),
        ("mistral", "call_1"),
        ("mistral", "abcDEF123"),
        ("ollama", "c"),
    ):
        _, assistant, *results = sent(
            *HELLO,
            said(call(call_id), call("other9chr")),
            answered((call_id, "r"), ("other9chr", "s")),
            provider=provider,
        )
        ids = [item["id"] for item in assistant["tool_calls"]]
        assert [item["tool_call_id"] for item in results] == ids
        assert len(set(ids)) == 2
        assert all(len(found) == 9 and found.isalnum() for found in ids) if provider == "mistral" else len(ids[0]) <= 40
    assert (
        sent(*HELLO, said(call("abcDEF123")), answered(("abcDEF123", "r")), provider="mistral")[1]["tool_calls"][0][
            "id"
        ]
        == "abcDEF123"
    )


def test_equal_ids_in_one_step_go_out_different_and_paired() -> None:
    for provider in ("openai-chat", "mistral"):
        step = (said(call("x"), call("x"), call("x_2")), answered(("x", "1"), ("x", "2"), ("x_2", "3")))
        _, assistant, *results = sent(*HELLO, *step, provider=provider)
        ids = [item["id"] for item in assistant["tool_calls"]]
        assert len(set(ids)) == 3
        assert [(item["tool_call_id"], item["content"]) for item in results] == list(zip(ids, "123", strict=True))


def test_a_call_that_was_cut_off_goes_out_as_text_and_so_does_its_result() -> None:
    cut = call("d", "write", '{"path":"a', finished=False)
    _, assistant, first, second = sent(
        *HELLO, said(TextPart("I write."), call(), cut), answered(("c", "1"), ("d", "Not run."))
    )
    assert [item["id"] for item in assistant["tool_calls"]] == ["c"]
    assert assistant["content"] == 'I write.\n\n[cut off: write({"path":"a ...]'
    assert first == {"role": "tool", "tool_call_id": "c", "content": "1"}
    assert second == {"role": "user", "content": "[result of the call to add that was cut off: Not run.]"}
    _, assistant, only = sent(*HELLO, said(cut), answered(("d", "Not run.")))
    assert ("tool_calls" in assistant, only["role"]) == (False, "user")


def test_files_of_results_follow_in_a_message_of_the_user() -> None:
    image = FilePart("image/png", data=b"x")
    results = ToolMessage((ToolResultPart("c", "shot", "taken", files=(image,)), ToolResultPart("d", "add", "2")))
    _, _, first, second, files = sent(*HELLO, said(call("c", "shot"), call("d")), results)
    assert [first["role"], second["role"], files["role"]] == ["tool", "tool", "user"]
    assert files["content"][0] == {"type": "text", "text": "[files of the result of shot, call c]"}
    assert files["content"][1]["type"] == "image_url"


def test_a_file_of_a_result_that_the_model_cannot_take_is_named_to_it() -> None:
    film = FilePart("video/mp4", data=b"x", name="a.mp4")
    *_, told = sent(*HELLO, said(call()), ToolMessage((ToolResultPart("c", "add", "2", files=(film,)),)))
    text = "[files of the result of add, call c]\n\n[a.mp4 of type video/mp4: this model cannot take it]"
    assert told == {"role": "user", "content": text}


def test_mistral_gets_an_answer_between_results_and_a_user() -> None:
    roles = [item["role"] for item in sent(*HELLO, said(call()), answered(("c", "1")), *HELLO, provider="mistral")]
    assert roles == ["user", "assistant", "tool", "assistant", "user"]
    assert [item["role"] for item in sent(*HELLO, said(call()), answered(("c", "1")), *HELLO)] == [
        "user",
        "assistant",
        "tool",
        "user",
    ]


def test_hosted_calls_and_foreign_blocks_stay_behind() -> None:
    parts = (
        TextPart("a"),
        call(hosted=True),
        ToolResultPart("c", "add", "r", hosted=True),
        ProviderPart("anthropic", "redacted", {"x": 1}),
    )
    assert sent(*HELLO, said(*parts), *HELLO)[1] == {"role": "assistant", "content": "a"}


# Reasoning goes back where it is asked for, and nowhere else (B029)


@pytest.mark.parametrize(
    ("provider", "field"),
    [("deepseek", "reasoning_content"), ("llamacpp", "reasoning_content"), ("ollama", "reasoning")],
)
def test_reasoning_goes_back_word_for_word_where_the_provider_asks_for_it(provider: str, field: str) -> None:
    own = ModelRef(provider, "m")
    messages = sent(
        *HELLO, said(ReasoningPart("r "), TextPart("t"), call(), model=own), answered(("c", "1")), provider=provider
    )
    assert (messages[1][field], messages[1]["content"]) == ("r ", "t")


@pytest.mark.parametrize("provider", ["openai-chat", "groq", "lmstudio", "vllm", "unheard-of"])
def test_reasoning_goes_nowhere_else(provider: str) -> None:
    own = ModelRef(provider, "m")
    messages = sent(
        *HELLO, said(ReasoningPart("secret"), TextPart("t"), call(), model=own), answered(("c", "1")), provider=provider
    )
    assert "secret" not in json.dumps(messages)


def test_mistral_gets_its_thinking_back_in_the_content() -> None:
    messages = sent(
        *HELLO, said(ReasoningPart("r"), TextPart("t"), model=ModelRef("mistral", "m")), *HELLO, provider="mistral"
    )
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "r"}]}
    assert messages[1]["content"] == [thinking, {"type": "text", "text": "t"}]


def test_deepseek_gets_no_answer_back_without_reasoning() -> None:
    own = ModelRef("deepseek", "m")
    plain = sent(*HELLO, said(ReasoningPart("r"), TextPart("t"), model=own), *HELLO, provider="deepseek")
    assert plain[1] == {"role": "assistant", "content": "t", "reasoning_content": "r"}
    without = sent(*HELLO, said(call(), model=own), answered(("c", "1")), provider="deepseek")
    assert without[1]["reasoning_content"] == " "


@pytest.mark.parametrize(("provider", "written"), [("llamacpp", None), ("deepseek", " ")])
def test_reasoning_of_another_provider_is_dropped(provider: str, written: str | None) -> None:
    messages = sent(
        *HELLO,
        said(ReasoningPart("r"), call(), model=ModelRef("ollama", "m")),
        answered(("c", "1")),
        provider=provider,
    )
    assert messages[1].get("reasoning_content") == written


def test_glm_at_cerebras_gets_its_reasoning_back_in_tags_and_others_in_a_field() -> None:
    answer = said(ReasoningPart("hm"), TextPart("4"), model=ModelRef("cerebras", "zai-glm-4.7"))
    tagged = body(*HELLO, answer, *HELLO, provider="cerebras", name="zai-glm-4.7")["messages"][1]
    assert tagged == {"role": "assistant", "content": "<think>\nhm\n</think>\n\n4"}
    plain = body(*HELLO, answer, *HELLO, provider="cerebras", name="gpt-oss-120b")["messages"][1]
    assert plain == {"role": "assistant", "content": "4", "reasoning": "hm"}


def test_opaque_reasoning_goes_back_to_its_own_provider_only() -> None:
    details = [{"type": "reasoning.encrypted", "data": "e", "index": 0}]
    parts = (ProviderPart("router", "reasoning_details", details), ReasoningPart("r"), TextPart("t"))
    assert (
        sent(*HELLO, said(*parts, model=ModelRef("router", "m")), *HELLO, provider="router")[1]["reasoning_details"]
        == details
    )
    assert "reasoning_details" not in sent(*HELLO, said(*parts, model=ModelRef("router", "m")), *HELLO)[1]


def test_signatures_in_extra_content_go_back_with_their_call() -> None:
    raw = {"extra_content": {"google": {"thought_signature": "s"}}}
    messages = sent(*HELLO, said(call(raw=raw)), answered(("c", "1")))
    assert messages[1]["tool_calls"][0]["extra_content"] == raw["extra_content"]
    foreign = sent(*HELLO, said(call(raw=raw), model=ModelRef("other", "m")), answered(("c", "1")))
    assert "extra_content" not in foreign[1]["tool_calls"][0]


# Bytes that stay the same, and what is kept of them


def grown(steps: int) -> list[Message]:
    messages: list[Message] = list(HELLO)
    for step in range(steps):
        messages += [said(TextPart(f"step {step}"), call(f"c{step}")), answered((f"c{step}", "1"))]
    return messages


@pytest.mark.parametrize("provider", WITH_TOOLS)
def test_the_messages_of_a_step_begin_with_the_bytes_of_the_step_before(provider: str) -> None:
    asked, messages = writer(provider), grown(6)
    bodies = [
        asked.body(ModelRequest("Be short.", tuple(messages[:end]), (TOOL,))) for end in range(1, len(messages) + 1, 2)
    ]
    for one, two in itertools.pairwise(bodies):
        prefix = one[: one.index(b'],"stream"')]
        assert two.startswith(prefix)
    assert bodies[-1] == writer(provider).body(ModelRequest("Be short.", tuple(messages), (TOOL,)))


@given(transcripts)
def test_any_transcript_can_be_sent_and_its_beginnings_stay_the_same(messages: list[Message]) -> None:
    plain = repair([message for message in messages if not _holds_files(message)])
    asked, last = writer(), b""
    for end in range(1, len(plain) + 1):
        try:
            found = asked.body(ModelRequest("i", tuple(plain[:end])))
        except ConfigError:
            continue
        written = json.loads(found)["messages"]
        _assert_paired(written)
        prefix = found[: found.rindex(b'],"stream"')]
        assert prefix.startswith(last) or last == b""
        last = prefix


def _holds_files(message: Message) -> bool:
    if isinstance(message, ToolMessage):
        return any(result.files for result in message.results)
    return isinstance(message, UserMessage) and any(isinstance(part, FilePart) for part in message.content)


def _assert_paired(written: list[dict[str, Any]]) -> None:
    waiting: list[str] = []
    for item in written:
        assert len(set(waiting)) == len(waiting)
        if item["role"] == "tool":
            assert item["tool_call_id"] == waiting.pop(0)
            continue
        waiting = [found["id"] for found in item.get("tool_calls", ())]
        assert item.get("content") or waiting


def test_each_message_is_encoded_once() -> None:
    count = 0

    def counting(message: Message, before: Message | None) -> Any:
        nonlocal count
        count += 1
        return render(message, before)

    asked, messages = writer(), grown(50)
    render, asked._messages._render = asked._messages._render, counting
    for end in range(1, len(messages) + 1, 2):
        asked.body(ModelRequest(None, tuple(messages[:end])))
    assert count == len(messages)


def test_kept_bytes_are_given_up_with_their_messages() -> None:
    asked, messages = writer(), grown(20)
    asked.body(ModelRequest(None, tuple(messages)))
    assert len(asked._messages) == 41
    del messages[1:]
    gc.collect()
    assert len(asked._messages) == 1


def test_a_message_behind_another_one_is_written_anew() -> None:
    asked, results = writer(), answered(("c", "1"))
    whole, cut = said(call()), said(call(finished=False))
    roles = []
    for before in (whole, cut, whole):
        written = json.loads(asked.body(ModelRequest(None, (*HELLO, before, results))))["messages"]
        roles.append(written[-1]["role"])
    assert roles == ["tool", "user", "tool"]


def test_tools_and_instructions_that_change_are_written_anew() -> None:
    asked = writer()
    other = msgspec.structs.replace(TOOL, name="sub")
    for instructions, tool in (("a", TOOL), ("b", other), ("a", TOOL)):
        found = json.loads(asked.body(ModelRequest(instructions, HELLO, (tool,))))
        assert (found["messages"][0]["content"], found["tools"][0]["function"]["name"]) == (instructions, tool.name)


@given(st.text(st.characters(categories=["Cs", "L", "C", "N"]), max_size=10))
def test_any_text_can_be_sent(value: str) -> None:
    written = writer().body(ModelRequest(value, (UserMessage("x" + value),)))
    assert json.loads(written)["messages"][-1]["content"].startswith("x")


def test_half_a_surrogate_pair_goes_out_as_a_replacement_and_a_whole_one_as_its_character() -> None:
    settings = ModelSettings(extra_body={"x": ["\ud83d", {"\ude00": "\ud83d\ude00"}]})
    found = body(UserMessage("a\ud83d"), settings=settings, instructions="b\ude00")
    assert [item["content"] for item in found["messages"]] == ["b\ufffd", "a\ufffd"]
    assert found["x"] == ["\ufffd", {"\ufffd": "\U0001f600"}]


def test_numbers_that_json_lacks_go_out_as_null() -> None:
    assert body(settings=ModelSettings(extra_body={"x": float("nan")}))["x"] is None


# Keys and addresses


def test_the_key_is_looked_for_with_the_first_request(monkeypatch: pytest.MonkeyPatch) -> None:
    for provider, dialect in DIALECTS.items():
        for variable in dialect.key.variables:
            monkeypatch.delenv(variable, raising=False)
        OpenAIChatModel("m", provider=provider, base_url=dialect.base_url or "https://x")


@pytest.mark.parametrize("provider", [name for name, row in DIALECTS.items() if row.key.required and name != "azure"])
async def test_a_missing_key_is_an_error_that_names_its_variable(
    provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialect = DIALECTS[provider]
    for variable in dialect.key.variables:
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(AuthenticationError, match=f"no API key: set {dialect.key.variables[0]} or ") as caught:
        await collect(OpenAIChatModel("m", provider=provider, base_url=None if dialect.base_url else "https://x"))
    assert (caught.value.status, caught.value.retryable) == (None, False)


async def test_a_key_that_no_header_carries_is_refused_without_showing_it() -> None:
    with pytest.raises(AuthenticationError, match="a header cannot carry") as caught:
        await collect(OpenAIChatModel("m", api_key="sk-sec\nret"))
    assert "sk-sec" not in str(caught.value)


async def test_the_key_comes_from_the_environment_and_a_local_server_needs_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GROQ_API_KEY", " from-environment\n")
    async with Loopback(Reply((sse(text("hi"), DONE),))) as server:
        await collect(OpenAIChatModel("m", provider="groq", base_url=server.url))
        await collect(OpenAIChatModel("m", provider="lmstudio", base_url=f"{server.url}/"))
        await collect(OpenAIChatModel("m", provider="lmstudio", base_url=f"{server.url}/chat/completions?v=1"))
    assert [request.headers.get("authorization") for request in server.requests] == [
        "Bearer from-environment",
        None,
        None,
    ]
    assert [request.path for request in server.requests] == ["/v1/chat/completions"] * 2 + ["/v1/chat/completions?v=1"]


async def test_openais_address_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Loopback(Reply((sse(text("hi"), DONE),))) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.delenv("OPENAI_API_KEY", raising=False)
        await collect(OpenAIChatModel("m"))
        assert len(server.requests) == 1


def test_a_key_shows_in_no_text_of_the_model() -> None:
    assert "sk-secret" not in repr(OpenAIChatModel("m", api_key="sk-secret"))


@pytest.mark.parametrize(
    ("base", "path"),
    [
        ("", "/openai/v1/chat/completions"),
        ("/", "/openai/v1/chat/completions"),
        ("/openai/v1/", "/openai/v1/chat/completions"),
        ("/models?api-version=2024-05-01-preview", "/models/chat/completions?api-version=2024-05-01-preview"),
    ],
)
async def test_azure_is_found_at_each_of_its_addresses(base: str, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "k")
    monkeypatch.delenv("AZURE_OPENAI_BASE_URL", raising=False)
    async with Loopback(Reply((sse(text("hi"), DONE),))) as server:
        monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", f"{server.origin}{base}")
        await collect(OpenAIChatModel("mine", provider="azure"))
    (seen,) = server.requests
    assert (seen.path, seen.headers["api-key"], seen.headers.get("authorization")) == (path, "k", None)
