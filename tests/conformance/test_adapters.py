"""The conformance suite, for every adapter and the rows of its table that differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from support import spoken as said
from treadle.messages import ProviderPart
from treadle.providers import resolve
from treadle.testing.conformance import ModelConformance, Reply, Server, Spoken

if TYPE_CHECKING:
    from treadle.model import Model

_FEW = 20  # these share their stream with OpenAI's row, which opens a thousand


class TestAnthropic(ModelConformance):
    lacks: ClassVar = {}
    opaque: ClassVar = (
        ProviderPart("anthropic", "redacted_thinking", {"type": "redacted_thinking", "data": "c2VhbA=="}),
    )

    def model(self, server: Server) -> Model:
        return resolve("anthropic:claude-opus-4-6", server.url, server.api_key, None, server.idle_timeout_seconds)

    def wire(self, spoken: Spoken) -> Reply:
        return said.claude_wire(spoken)


class TestOpenAI(ModelConformance):
    lacks: ClassVar = {}
    opaque: ClassVar = (
        ProviderPart("openai", "compaction", {"type": "compaction", "id": "cmp_1", "encrypted_content": "c2VhbA=="}),
    )

    def model(self, server: Server) -> Model:
        return resolve("openai:gpt-5", f"{server.url}/v1", server.api_key, None, server.idle_timeout_seconds)

    def wire(self, spoken: Spoken) -> Reply:
        return said.responses_wire(spoken)


class TestGoogle(ModelConformance):
    lacks: ClassVar = {
        "exact_arguments": "Gemini gives arguments as a JSON object",
        "cut_calls": "Gemini gives the arguments of a call at once",
        "cache_writes": "Gemini does not tell what it wrote to its cache",
    }
    opaque: ClassVar = (ProviderPart("google", "part", {"inlineData": {"mimeType": "image/png", "data": "iVBORw0="}}),)

    def model(self, server: Server) -> Model:
        return resolve("google:gemini-3-flash", server.url, server.api_key, None, server.idle_timeout_seconds)

    def wire(self, spoken: Spoken) -> Reply:
        return said.google_wire(spoken)


class _Chat(ModelConformance):
    provider = "openai-chat"
    reasoning = "reasoning_content"

    def model(self, server: Server) -> Model:
        return resolve(f"{self.provider}:m", f"{server.url}/v1", server.api_key, None, server.idle_timeout_seconds)

    def wire(self, spoken: Spoken) -> Reply:
        return said.chat_wire(spoken, self.reasoning)


_PLAIN = {
    "signatures": "reasoning comes as plain text",
    "opaque_parts": "there is nothing opaque in its answers",
}


class TestOpenAIChat(_Chat):
    lacks: ClassVar = {**_PLAIN, "reasoning_replay": "OpenAI takes no reasoning in Chat Completions"}


class TestOllama(_Chat):
    provider, reasoning, streams = "ollama", "reasoning", _FEW
    lacks: ClassVar = _PLAIN


class TestMistral(_Chat):
    provider, reasoning, streams = "mistral", "thinking", _FEW
    lacks: ClassVar = _PLAIN


class TestDeepSeek(_Chat):
    provider, streams = "deepseek", _FEW
    lacks: ClassVar = _PLAIN


class TestGroq(_Chat):
    provider, reasoning, streams = "groq", "reasoning", _FEW
    lacks: ClassVar = {**_PLAIN, "reasoning_replay": "Groq takes no reasoning back"}


class TestOpenRouter(_Chat):
    provider, reasoning, streams = "openrouter", "details", _FEW
    lacks: ClassVar = {
        "opaque_parts": "there is nothing opaque in its answers but reasoning",
        "hosted_events": "a search shows in the citations only",
    }


class TestPerplexity(_Chat):
    provider, reasoning, streams = "perplexity", "reasoning", _FEW
    lacks: ClassVar = {**_PLAIN, "reasoning_replay": "Perplexity takes no reasoning back"}
