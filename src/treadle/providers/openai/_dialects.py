"""Who speaks the Responses API, where, and how each differs from OpenAI."""

from __future__ import annotations

import re

import msgspec

# Models of OpenAI that do not reason: they refuse a request for encrypted reasoning (2026-11).
_PLAIN_MODELS = re.compile(r"(ft:)?(gpt-3|gpt-4|chatgpt-|gpt-5-chat|davinci|babbage)", re.ASCII)


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """One server's address and what it takes. The defaults are those of an unknown compatible server."""

    base_url: str | None = None
    base_url_variable: str | None = None
    key_variable: str | None = None
    key_required: bool = False
    settings: frozenset[str] = frozenset({"temperature", "top_p", "tool_choice"})
    """The `ModelSettings` it takes."""
    sealed_reasoning: bool = False
    """Whether reasoning comes encrypted when asked for."""
    open_reasoning: bool = True
    """Whether reasoning items without encrypted content or text go back: OpenAI looks these up in its store."""
    plain_models: bool = False
    """Whether its models are OpenAI's, some of which do not reason."""
    cache_key: bool = False
    """Whether it takes a `prompt_cache_key`."""
    calls_last: bool = False
    """Whether the calls of an answer must stand together at its end."""
    files_in_results: bool = False
    """Whether tool results may hold files."""
    files: frozenset[str] = frozenset({"image"})
    """The kinds of files it takes: image, pdf."""
    hosted_mcp: bool = False
    mcp_approval: bool = True
    """Whether hosted MCP servers have the option to ask for approvals."""
    hosted_web_search: bool = False
    search_sources: bool = False
    """Whether the sources of a hosted search must be asked for."""
    cost: bool = False
    token_counting: bool = False
    missing_model: str = "check the model name and base_url"
    """What to do when the server knows no such model; `{model}` stands for the name."""

    def reasons(self, model: str) -> bool:
        """Whether this model may reason."""
        return not (self.plain_models and _PLAIN_MODELS.match(model))


_OPENAI = Dialect(
    base_url="https://api.openai.com/v1",
    base_url_variable="OPENAI_BASE_URL",
    key_variable="OPENAI_API_KEY",
    key_required=True,
    sealed_reasoning=True,
    open_reasoning=False,
    plain_models=True,
    cache_key=True,
    files_in_results=True,
    files=frozenset({"image", "pdf"}),
    hosted_mcp=True,
    hosted_web_search=True,
    search_sources=True,
    token_counting=True,
)

DIALECTS: dict[str, Dialect] = {
    "openai": _OPENAI,
    "azure-responses": msgspec.structs.replace(
        _OPENAI,
        base_url=None,
        base_url_variable="AZURE_OPENAI_BASE_URL",
        key_variable="AZURE_OPENAI_API_KEY",
        token_counting=False,
    ),
    "xai-responses": Dialect(
        base_url="https://api.x.ai/v1",
        key_variable="XAI_API_KEY",
        key_required=True,
        sealed_reasoning=True,
        cache_key=True,
        hosted_mcp=True,
        mcp_approval=False,
        hosted_web_search=True,
        cost=True,
    ),
    "openrouter-responses": Dialect(
        base_url="https://openrouter.ai/api/v1",
        key_variable="OPENROUTER_API_KEY",
        key_required=True,
        sealed_reasoning=True,
        files=frozenset({"image", "pdf"}),
        cost=True,
    ),
    "deepseek-responses": Dialect(
        base_url="https://api.deepseek.com",
        key_variable="DEEPSEEK_API_KEY",
        key_required=True,
        calls_last=True,
        files=frozenset(),
    ),
    "lmstudio-responses": Dialect(
        base_url="http://localhost:1234/v1", missing_model="load it in LM Studio: lms load {model}"
    ),
}
