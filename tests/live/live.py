"""The conformance suite against real providers, with real keys and for real money: `make live`.

No other command collects this file, and it refuses to run in CI. A provider is asked where the variable of its key is
set, one cheap model each; the rest is skipped, and the report says why. `<PREFIX>_BASE_URL` moves one elsewhere, and
`make live MODELS="provider:model ..."` asks exactly these.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import pytest

from treadle import (
    Agent,
    AuthenticationError,
    ModelError,
    Reasoning,
    RunResult,
    StopReason,
    TextDelta,
    ToolCallPart,
    tool,
)
from treadle.providers import resolve
from treadle.testing.conformance import ModelConformance
from treadle.testing.conformance.looking import only, whole
from treadle.testing.conformance.suite import ADD, collect

if TYPE_CHECKING:
    from typing import Any

    from treadle import Model
    from treadle.testing.conformance import Server

if os.environ.get("CI"):
    pytest.skip("real providers are never asked in CI", allow_module_level=True)

# Prefix: a cheap model, and the variables that may hold the key (2026-11).
CHEAP: dict[str, tuple[str, tuple[str, ...]]] = {
    "anthropic": ("claude-haiku-4-5", ("ANTHROPIC_API_KEY",)),
    "openai": ("gpt-5-nano", ("OPENAI_API_KEY",)),
    "openai-chat": ("gpt-4.1-nano", ("OPENAI_API_KEY",)),
    "google": ("gemini-2.5-flash", ("GEMINI_API_KEY", "GOOGLE_API_KEY")),
    "openrouter": ("openai/gpt-4.1-mini", ("OPENROUTER_API_KEY",)),
    "mistral": ("mistral-small-latest", ("MISTRAL_API_KEY",)),
    "deepseek": ("deepseek-v4-flash", ("DEEPSEEK_API_KEY",)),
    "groq": ("openai/gpt-oss-120b", ("GROQ_API_KEY",)),
    "cerebras": ("gpt-oss-120b", ("CEREBRAS_API_KEY",)),
    "xai": ("grok-3-mini", ("XAI_API_KEY",)),
    "perplexity": ("sonar", ("PERPLEXITY_API_KEY",)),
    "zai": ("glm-4.7", ("ZAI_API_KEY",)),
}


class Target(NamedTuple):
    """Whom to ask, and what must be set for it."""

    name: str
    variables: tuple[str, ...] = ()

    @property
    def prefix(self) -> str:
        return self.name.partition(":")[0]

    def model(self, name: str | None = None, api_key: str | None = None) -> Model:
        base_url = os.environ.get(f"{self.prefix.upper().replace('-', '_')}_BASE_URL")
        return resolve(self.name if name is None else f"{self.prefix}:{name}", base_url, api_key)


def targets() -> list[Target]:
    asked = os.environ.get("TREADLE_LIVE_MODELS", "").split()
    if asked:
        return [Target(name) for name in asked]
    return [Target(f"{prefix}:{name}", variables) for prefix, (name, variables) in CHEAP.items()]


def lacking(target: Target) -> str:
    """Why nobody can be asked there; empty where there is a key, or none is needed."""
    if not target.variables or any(os.environ.get(name) for name in target.variables):
        return ""
    return f"{target.name}: {' or '.join(target.variables)} is not set"


ASKED = [target for target in targets() if not lacking(target)]
LEFT_OUT = [why for target in targets() if (why := lacking(target))]


@pytest.mark.parametrize("why", LEFT_OUT)
def test_who_is_left_out_is_told_once(why: str) -> None:
    pytest.skip(why)


@pytest.mark.skipif(not ASKED, reason="no key is set")
class TestLive(ModelConformance):
    lacks: ClassVar = {
        "script": "a real model says what it wants",
        "wire": "the server is the provider's own",
    }
    seconds = 180.0

    @pytest.fixture(autouse=True, params=ASKED or targets()[:1], ids=lambda target: target.name)
    def _choose(self, request: pytest.FixtureRequest) -> None:
        self.target: Target = request.param

    def model(self, server: Server) -> Model:
        return self.target.model()

    def test_it_answers_and_tells_what_that_cost(self) -> None:
        finish = self.finish(request=self.request("Answer with the one word: pong"))
        assert "pong" in finish.message.text.lower()
        assert finish.stop is StopReason.END
        assert finish.usage is not None
        assert finish.usage.input_tokens + finish.usage.cache_read_tokens > 0
        assert finish.usage.output_tokens > 0
        if self.capabilities.cost:
            assert finish.usage.cost_usd is not None

    def test_it_streams(self) -> None:
        events = self.ask(request=self.request("Count from 1 to 60 in digits, with a space between the numbers."))
        assert whole(events).stop is StopReason.END
        assert len(only(events, TextDelta)) > 1, "the answer came in one piece"

    def test_the_output_limit_is_a_stop(self) -> None:
        request = self.request("Write a poem of forty lines about weaving.", max_output_tokens=32)
        assert self.finish(request=request).stop is StopReason.MAX_TOKENS

    def test_a_tool_goes_round_and_the_conversation_goes_on(self) -> None:
        """With reasoning where there is any: its signatures must be accepted when they come back."""
        capabilities = self.needs("tools")
        asked: list[tuple[int, int]] = []

        @tool(effect="read")
        def add(a: int, b: int) -> int:
            """Add two numbers."""
            asked.append((a, b))
            return a + b

        async def scene(_: Server, model: Model) -> tuple[RunResult[Any], RunResult[Any]]:
            reasoning = Reasoning(show=True) if capabilities.reasoning else None
            agent = Agent(model, tools=[add], reasoning=reasoning, max_output_tokens=8_000)
            first = await agent.run("Use the tool: what is 48151 + 62342? Then tell me the sum.")
            return first, await agent.run("And that sum plus 7? Use the tool again.", messages=first.messages)

        first, second = self.play(scene)
        assert asked == [(48151, 62342), (110493, 7)] or sorted(map(sum, asked)) == [110493, 110500]
        assert "110493" in re.sub(r"\D", "", first.text)
        assert "110500" in re.sub(r"\D", "", second.text)
        assert any(isinstance(part, ToolCallPart) for part in first.messages[1].content)

    def test_an_output_type_comes_back(self) -> None:
        self.needs("output_schema")

        async def scene(_: Server, model: Model) -> object:
            question = "What is the capital of France? Answer with the country as key and the capital as value."
            return (await Agent(model, output=dict[str, str], max_output_tokens=8_000).run(question)).output

        assert "Paris" in str(self.play(scene))

    def test_a_wrong_key_is_told_as_such(self) -> None:
        async def scene(_: Server, __: Model) -> None:
            with pytest.raises(AuthenticationError) as refused:
                await collect(self.target.model(api_key="wrong-key-0123456789"), self.request())
            assert "wrong-key-0123456789" not in str(refused.value)

        self.play(scene)

    def test_a_model_that_does_not_exist_is_told_as_such(self) -> None:
        async def scene(_: Server, __: Model) -> None:
            with pytest.raises(ModelError) as refused:
                await collect(self.target.model("no-such-model-0123456789"), self.request())
            assert not refused.value.retryable

        self.play(scene)

    def test_tokens_are_counted(self) -> None:
        self.needs("token_counting")

        async def scene(_: Server, model: Model) -> int:
            count: int = await model.count_tokens(self.request(tools=(ADD,)))  # type: ignore[attr-defined]
            return count

        assert self.play(scene) > 0
