"""Every adapter is recorded over a real connection and replayed without one: no server, no key, no requests allowed."""

from __future__ import annotations

import json

import pytest

from support import chat, claude, google, responses
from support.loopback import BREAK, Loopback, Reply
from support.runs import events_of, without_place
from treadle import Agent, ModelConnectionError, Reasoning, Retry, RunError, ToolFinish, tool
from treadle.model import HostedMCP
from treadle.providers import resolve
from treadle.testing import record, replay


@tool(effect="read")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


ARGS = '{"a": 2, "b": 3}'

# How a model of a server is made, the bodies of a step with a call and of one with an answer, and its own name.
ADAPTERS = {
    "chat": (
        chat.model,
        chat.sse(
            chat.chunk({"reasoning": "Two numbers."}),
            chat.calls(chat.piece(0, "call_1", "add", ARGS[:7])),
            chat.calls(chat.piece(0, None, None, ARGS[7:])),
            chat.chunk(finish="tool_calls"),
            chat.usage(),
            chat.DONE,
        ),
        chat.sse(chat.text("It is "), chat.text("5."), chat.chunk(finish="stop"), chat.usage(), chat.DONE),
        "openai-chat:m",
    ),
    "anthropic": (
        claude.model,
        claude.answer(
            *claude.thinking("Two ", "numbers.", signature="sealed"),
            *claude.call(ARGS[:7], ARGS[7:], index=1),
            reason="tool_use",
        ),
        claude.answer(*claude.text("It is ", "5.")),
        f"anthropic:{claude.NAME}",
    ),
    "openai": (
        responses.model,
        responses.sse(
            responses.added(0, responses.reasoning(sealed=None)),
            responses.done(0, responses.reasoning("Two numbers.")),
            responses.added(1, responses.call("")),
            responses.args(ARGS[:7], 1),
            responses.args(ARGS[7:], 1),
            responses.done(1, responses.call(ARGS)),
            responses.completed(responses.reasoning("Two numbers."), responses.call(ARGS), usage=responses.usage()),
        ),
        responses.sse(
            responses.added(0, responses.message()),
            responses.text("It is "),
            responses.text("5."),
            responses.done(0, responses.message("It is 5.")),
            responses.completed(responses.message("It is 5."), usage=responses.usage()),
        ),
        "openai:gpt-5",
    ),
    "google": (
        google.model,
        google.sse(
            google.chunk(google.text("Two numbers.", thought=True)),
            google.chunk(google.call("add", {"a": 2, "b": 3}, "sealed")),
            google.STOP,
        ),
        google.sse(google.chunk(google.text("It is ")), google.chunk(google.text("5.")), google.STOP),
        "google:m",
    ),
}


@pytest.fixture
def denied(monkeypatch):
    """What may be of use for a request is gone, and none is allowed."""

    def deny():
        for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("TREADLE_MODEL_REQUESTS", "deny")

    monkeypatch.delenv("TREADLE_MODEL_REQUESTS", raising=False)
    return deny


def agent_of(model, **options):
    return Agent(model, tools=[add], instructions="Be brief.", **options)


@pytest.mark.parametrize("adapter", ADAPTERS)
async def test_a_run_with_tools_is_replayed_by_the_model_of_that_name(tmp_path, denied, adapter):
    make, call, answer, name = ADAPTERS[adapter]
    file = tmp_path / "runs.jsonl"
    async with Loopback(Reply((call,)), Reply((answer,))) as server:
        with record(file):
            recorded = await events_of(agent_of(make(server)), "What is 2 + 3?")
    assert len(server.requests) == 2
    denied()
    with replay(file):
        replayed = await events_of(agent_of(name), "What is 2 + 3?")
    assert without_place(replayed) == without_place(recorded)
    (called,) = [event for event in replayed if isinstance(event, ToolFinish)]
    assert called.result.content == "5"
    assert len(server.requests) == 2


@pytest.mark.parametrize("adapter", ADAPTERS)
async def test_a_broken_connection_and_its_retry_are_replayed(tmp_path, denied, adapter):
    make, _, answer, name = ADAPTERS[adapter]
    file = tmp_path / "runs.jsonl"
    no_wait = Retry(attempts=2, base_seconds=0, max_seconds=0)
    async with Loopback(Reply((BREAK,)), Reply((answer,)), Reply((BREAK,))) as server:
        with record(file):
            recorded = await events_of(agent_of(make(server), retry=no_wait), "Hi")
            with pytest.raises(RunError) as told:
                await agent_of(make(server), retry=no_wait).run("Hi again")
    assert len(server.requests) == 4
    denied()
    with replay(file):
        replayed = await events_of(agent_of(name), "Hi")
        with pytest.raises(RunError) as caught:
            await agent_of(name).run("Hi again")
    assert without_place(replayed) == without_place(recorded)
    assert type(caught.value.__cause__) is ModelConnectionError
    assert vars(caught.value.__cause__) == vars(told.value.__cause__)
    assert caught.value.__cause__.attempt == 2


@pytest.mark.parametrize(
    ("adapter", "field"), [("anthropic", "input_tokens"), ("openai", "input_tokens"), ("google", "totalTokens")]
)
async def test_token_counts_of_providers_are_replayed(tmp_path, denied, adapter, field):
    make, _, _, name = ADAPTERS[adapter]
    file = tmp_path / "runs.jsonl"
    async with Loopback(Reply((json.dumps({field: 42}).encode(),), content_type="application/json")) as server:
        with record(file):
            assert await agent_of(make(server)).count_tokens("Hi") == 42
    denied()
    with replay(file):
        assert await agent_of(name).count_tokens("Hi") == 42


async def test_hosted_calls_and_reasoning_are_replayed(tmp_path, denied):
    file = tmp_path / "runs.jsonl"
    body = claude.answer(
        *claude.thinking("Look ", "it up.", signature="sealed"),
        *claude.block(
            {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "search", "server_name": "docs", "input": {"q": "x"}},
            index=1,
        ),
        *claude.block(
            {
                "type": "mcp_tool_result",
                "tool_use_id": "mcptoolu_1",
                "is_error": False,
                "content": [{"type": "text", "text": "found"}],
            },
            index=2,
        ),
        *claude.text("Found.", index=3),
    )

    def agent(model):
        hosted = [HostedMCP("docs", "https://mcp.example/sse", "token-of-the-server")]
        return Agent(model, hosted_mcp=hosted, reasoning=Reasoning(effort="low", show=True))

    async with Loopback(Reply((body,))) as server:
        with record(file):
            recorded = await events_of(agent(claude.model(server)))
    assert "token-of-the-server" in server.requests[0].raw.decode()
    assert "token-of-the-server" not in file.read_text()
    denied()
    with replay(file):
        replayed = await events_of(agent(ADAPTERS["anthropic"][3]))
    assert without_place(replayed) == without_place(recorded)
    assert len([event for event in replayed if isinstance(event, ToolFinish)]) == 1


async def test_a_model_of_another_name_is_told(tmp_path, denied):
    file = tmp_path / "runs.jsonl"
    make, _, answer, _ = ADAPTERS["chat"]
    async with Loopback(Reply((answer,))) as server:
        with record(file):
            await agent_of(make(server)).run("Hi")
    denied()
    with pytest.raises(RunError, match="model: recorded 'openai-chat:m', now 'google:other'"), replay(file):
        await agent_of(resolve("google:other")).run("Hi")
