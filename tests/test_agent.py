"""An agent: what it refuses at construction, what it accepts as input, and what it does besides runs."""

from __future__ import annotations

import asyncio
from typing import Any, Self

import pytest

from treadle import (
    Agent,
    AssistantMessage,
    Capabilities,
    ConfigError,
    FilePart,
    HostedMCP,
    Limits,
    ModelSettings,
    NoSuchToolError,
    Reasoning,
    TextPart,
    Tool,
    ToolCallPart,
    ToolContext,
    ToolInputError,
    ToolMessage,
    ToolResultPart,
    UnsupportedError,
    UserMessage,
    tool,
)
from treadle.testing import ScriptedModel
from treadle.transcript import MISSING_RESULT


@tool
async def add(a: int, b: int = 1) -> int:
    return a + b


async def coroutine_tap(event: Any) -> None:
    pass


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"model": 3}, "model is a Model"),
        ({"tools": [add, add]}, "two tools are named 'add'"),
        ({"toolsets": [object()]}, "no toolset"),
        ({"parallelism": 0}, "parallelism"),
        ({"parallelism": True}, "parallelism"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"max_result_bytes": -1}, "max_result_bytes"),
        ({"limits": None}, "limits is a Limits"),
        ({"limits": 5}, "limits is a Limits"),
        ({"settings": {"temperature": 1}}, "settings is a ModelSettings"),
        ({"reasoning": "high"}, "reasoning is a Reasoning"),
        ({"retry": 3}, "retry is a Retry"),
        ({"name": 3}, "name is a str"),
        ({"name": ""}, "name is empty"),
        ({"tools": add}, "tools is a list"),
        ({"hosted_mcp": ["x"]}, "no hosted MCP server"),
        ({"hosted_mcp": [HostedMCP("a", "u"), HostedMCP("a", "v")]}, "two hosted MCP servers"),
        ({"settings": ModelSettings(tool_choice="required")}, "needs tools"),
        ({"instructions": 3}, "instructions"),
        ({"stop_when": [3]}, "stop condition"),
        ({"taps": [3]}, "no tap"),
        ({"taps": [coroutine_tap]}, "plain function"),
        ({"tools": [add], "settings": ModelSettings(tool_choice="sub")}, "tool_choice='sub'"),
        ({"output": int, "tools": [Tool.raw("final_answer", "", {"type": "object"}, lambda arguments: "")]}, "taken"),
    ],
)
def test_wrong_or_clashing_options_raise_at_construction(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        Agent(**{"model": ScriptedModel(), **options})


@pytest.mark.parametrize(
    ("capabilities", "options", "feature", "texts"),
    [
        (Capabilities(tools=False), {"tools": [add]}, "tools", ["call tools"]),
        (Capabilities(tools=False), {"output": int}, "output_schema", ["typed output"]),
        (Capabilities(), {"reasoning": Reasoning()}, "reasoning", ["reason"]),
        (
            Capabilities(),
            {"hosted_mcp": [HostedMCP("a", "u")], "hosted_web_search": True},
            "hosted_mcp",
            ["MCP", "web"],
        ),
        (Capabilities(reasoning=True), {"reasoning": Reasoning(effort="low")}, "effort", ["effort"]),
        (Capabilities(reasoning=True), {"reasoning": Reasoning(budget_tokens=9)}, "min_reasoning_budget", ["budget"]),
        (
            Capabilities(reasoning=True, min_reasoning_budget=1024),
            {"reasoning": Reasoning(budget_tokens=9)},
            "min_reasoning_budget",
            ["1024"],
        ),
        (
            Capabilities(tools=False),
            {"tools": [add], "output": int, "reasoning": Reasoning()},
            "tools",
            ["call tools", "typed output", "reason"],
        ),
    ],
)
def test_asking_for_what_a_model_cannot_do_is_refused_with_everything_named(
    capabilities: Capabilities, options: dict[str, Any], feature: str, texts: list[str]
) -> None:
    with pytest.raises(UnsupportedError) as raised:
        Agent(ScriptedModel(capabilities=capabilities), **options)
    assert (raised.value.model, raised.value.feature) == ("scripted:scripted", feature)
    assert all(text in str(raised.value) for text in texts)


def test_what_a_model_can_do_is_accepted() -> None:
    able = Capabilities(reasoning=True, effort=True, min_reasoning_budget=1024)
    Agent(ScriptedModel(capabilities=able), reasoning=Reasoning(effort="low", budget_tokens=1024))
    Agent(ScriptedModel(), tools=[add], settings=ModelSettings(tool_choice="add"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": 0},
        {"tokens": -1},
        {"seconds": 0},
        {"steps": "3"},
        {"tool_calls": -1},
        {"seconds": float("nan")},
        {"usd": float("inf")},
    ],
)
def test_limits_that_no_run_could_meet_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Limits(**wrong)


def test_a_string_of_stop_sequences_is_refused_and_a_list_taken() -> None:
    with pytest.raises(ConfigError, match="tuple"):
        ModelSettings(stop_sequences="END")  # type: ignore[arg-type]
    assert ModelSettings(stop_sequences=["a"]).stop_sequences == ("a",)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [{"temperature": "hot"}, {"top_p": True}, {"seed": 1.5}, {"tool_choice": 3}])
def test_settings_of_another_type_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        ModelSettings(**wrong)


async def test_settings_of_a_run_are_settings() -> None:
    with pytest.raises(ConfigError, match="ModelSettings"):
        await Agent(ScriptedModel()).run("go", settings={"temperature": 1})  # type: ignore[arg-type]


async def test_hosted_tools_are_asked_for_on_every_request_and_a_token_is_shown_nowhere() -> None:
    server = HostedMCP("wiki", "https://example.org/mcp", token="secret", allowed_tools=["ask"])  # type: ignore[arg-type]
    assert "secret" not in repr(server)
    assert server.allowed_tools == ("ask",)
    with pytest.raises(ConfigError, match="tuple"):
        HostedMCP("wiki", "u", allowed_tools="ask")  # type: ignore[arg-type]
    model = ScriptedModel("x")
    await Agent(model, hosted_mcp=[server], hosted_web_search=True).run("go")
    assert (model.requests[0].hosted_mcp, model.requests[0].hosted_web_search) == ((server,), True)


def test_an_agent_is_frozen() -> None:
    agent = Agent(ScriptedModel(), name="a")
    with pytest.raises(AttributeError):
        agent.name = "b"  # type: ignore[misc]


def test_plain_functions_become_tools() -> None:
    def shout(text: str) -> str:
        """Say it loud."""
        return text.upper()

    (made,) = Agent(ScriptedModel(), tools=[shout]).tools
    assert (made.name, made.description) == ("shout", "Say it loud.")


async def asked_with(given: Any, **more: Any) -> tuple[Any, ...]:
    model = ScriptedModel("x")
    await Agent(model).run(given, **more)
    return model.requests[0].messages


async def test_input_is_a_string_parts_or_messages() -> None:
    picture = FilePart("image/png", url="https://example.org/a.png")
    hi = UserMessage("hi")
    assert await asked_with("hi") == await asked_with([hi]) == await asked_with(hi) == (hi,)
    assert await asked_with(TextPart("hi")) == (hi,)
    assert await asked_with([TextPart("see"), picture]) == (UserMessage((TextPart("see"), picture)),)
    history = (hi, AssistantMessage((TextPart("hello"),)))
    assert await asked_with("more", messages=history) == (*history, UserMessage("more"))
    assert await asked_with("more", messages=iter(history)) == (*history, UserMessage("more"))


async def test_a_conversation_that_stopped_short_goes_on_without_new_input() -> None:
    call = AssistantMessage((ToolCallPart("1", "add", "{}"),))
    history = (UserMessage("hi"), call, ToolMessage((ToolResultPart("1", "add", "2"),)))
    assert await asked_with("", messages=history) == history


@pytest.mark.parametrize(
    "given",
    ["", "  \n", [], [TextPart(" ")], [UserMessage(" ")], [UserMessage("hi"), AssistantMessage((TextPart("x"),))]],
)
async def test_nothing_to_answer_is_refused_before_anything_is_sent(given: Any) -> None:
    with pytest.raises(ConfigError, match="nothing to answer"):
        await Agent(ScriptedModel()).run(given)


@pytest.mark.parametrize("given", [[TextPart("a"), UserMessage("b")], [3], ["a", "b"]])
async def test_input_of_other_or_mixed_sorts_is_refused(given: Any) -> None:
    with pytest.raises(ConfigError, match="do not mix"):
        await Agent(ScriptedModel()).run(given)


@pytest.mark.parametrize("run_id", ["", 3])
async def test_a_run_id_is_a_string(run_id: Any) -> None:
    with pytest.raises(ConfigError, match="run_id"):
        await Agent(ScriptedModel()).run("hi", run_id=run_id)


async def test_files_of_the_user_are_refused_by_a_model_that_takes_none_and_those_of_tools_pass() -> None:
    """A tool's files are named to such a model by its adapter: a conversation must be able to move there."""
    picture = FilePart("image/png", data="aGk=")
    with pytest.raises(UnsupportedError, match="files"):
        await Agent(ScriptedModel(capabilities=Capabilities())).run([picture])
    shown = ToolMessage((ToolResultPart("1", "look", "", files=(picture,)),))
    call = AssistantMessage((ToolCallPart("1", "look", "{}"),))
    result = await Agent(ScriptedModel("seen", capabilities=Capabilities())).run([UserMessage("x"), call, shown])
    assert result.text == "seen"


async def test_the_input_is_repaired_once_and_logged_so() -> None:
    call = AssistantMessage((ToolCallPart("1", "add", "{}"),))
    async with Agent(ScriptedModel("x")).stream("next", messages=[UserMessage("hi"), call]) as run:
        events = [event async for event in run]
    start = events[0]
    assert start.history[:2] == (UserMessage("hi"), call)
    assert start.history[2].results[0].content == MISSING_RESULT
    assert start.input == (UserMessage("next"),)


async def test_a_result_given_as_input_answers_the_call_that_waits_in_the_history() -> None:
    call = AssistantMessage((ToolCallPart("1", "add", "{}"),))
    answer = ToolMessage((ToolResultPart("1", "add", "2"),))
    async with Agent(ScriptedModel("x")).stream([answer], messages=[UserMessage("hi"), call]) as run:
        start = await anext(aiter(run))
    assert (start.history, start.input) == ((UserMessage("hi"), call), (answer,))


class Group:
    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        pass

    async def tools(self) -> list[Tool[..., Any]]:
        @tool
        async def grouped(context: ToolContext[str]) -> str:
            return context.deps

        return [grouped]


async def test_call_tool_dispatches_by_name_and_lets_everything_through() -> None:
    @tool
    async def fail() -> None:
        raise ZeroDivisionError

    @tool
    async def long() -> str:
        return "x" * 100_000

    agent: Agent[str, str] = Agent(ScriptedModel(), tools=[add, fail, long], toolsets=[Group()])
    assert await agent.call_tool("add", '{"a": 1}') == await agent.call_tool("add", {"a": 1}) == 2
    assert len(await agent.call_tool("long")) == 100_000
    assert await agent.call_tool("grouped", deps="d") == "d"
    with pytest.raises(ZeroDivisionError):
        await agent.call_tool("fail")
    with pytest.raises(ToolInputError):
        await agent.call_tool("add", "{}")
    with pytest.raises(NoSuchToolError, match="add, fail, long, grouped"):
        await agent.call_tool("sub")


async def test_tokens_are_counted_by_a_real_counter_or_not_at_all() -> None:
    agent = Agent(ScriptedModel(), instructions="be brief")
    assert await agent.count_tokens("one two three") == await agent.count_tokens("one two") + 1
    with pytest.raises(UnsupportedError, match="token counter"):
        await Agent(ScriptedModel(capabilities=Capabilities())).count_tokens("x")


async def test_what_is_counted_is_the_request_that_would_be_sent() -> None:
    counted = []

    class Counting(ScriptedModel):
        async def count_tokens(self, request):
            counted.append(request)
            return 7

    model = Counting("1")
    agent = Agent(
        model,
        instructions="be brief",
        tools=[add],
        output=int,
        reasoning=Reasoning(effort="low"),
        settings=ModelSettings(top_p=0.5),
        max_output_tokens=500,
        hosted_mcp=[HostedMCP("one", "https://example.com")],
        hosted_web_search=True,
        parallelism=1,
    )
    assert await agent.count_tokens("go") == 7
    await agent.run("go")
    assert counted == model.requests


async def test_tokens_cannot_be_counted_where_instructions_are_made_by_a_run() -> None:
    with pytest.raises(ConfigError, match="string"):
        await Agent(ScriptedModel(), instructions=lambda _: "x").count_tokens("x")


def test_a_model_is_named_by_provider_and_name_and_resolved_at_construction() -> None:
    agent = Agent("openai-chat:gpt-5")
    assert (agent.model.provider, agent.model.name) == ("openai-chat", "gpt-5")
    with pytest.raises(ConfigError):
        Agent("no-such-provider:x")


def test_an_agent_may_be_built_in_one_loop_and_used_in_another() -> None:
    agent = Agent(ScriptedModel("x", by_position=True))
    assert [asyncio.run(agent.run("go")).text for _ in range(2)] == ["x", "x"]


def test_what_a_model_does_not_take_beside_tools_is_refused_when_an_agent_is_built():
    class Choosy(ScriptedModel):
        def check(self, request):
            if request.tools and (request.hosted_web_search or request.output_schema is not None):
                raise UnsupportedError(f"not beside {request.tools[0].name}", feature="tools")

    for options in ({"hosted_web_search": True}, {"output": int}):
        with pytest.raises(UnsupportedError, match="not beside add"):
            Agent(Choosy(), tools=[add], **options)
    without_schemas = Capabilities(hosted_web_search=True)
    with pytest.raises(UnsupportedError, match="not beside final_answer"):
        Agent(Choosy(capabilities=without_schemas), output=int, hosted_web_search=True)
    Agent(Choosy(), output=int)
    Agent(Choosy(), tools=[add])


def test_everything_that_a_model_cannot_take_is_named_at_once():
    class Picky(ScriptedModel):
        def check(self, request):
            if request.settings is not None and request.settings.seed is not None:
                raise UnsupportedError("scripted:scripted takes no seed", feature="seed")
            assert not request.hosted_web_search, "what the capabilities tell already is not asked again"

    with pytest.raises(UnsupportedError) as caught:
        Agent(
            Picky(capabilities=Capabilities(tools=False)),
            tools=[add],
            reasoning=Reasoning(effort="high"),
            settings=ModelSettings(seed=1),
            hosted_web_search=True,
        )
    for feature in ("call tools", "search the web", "reason", "takes no seed"):
        assert feature in str(caught.value)
    assert caught.value.feature == "tools"
