"""Who speaks the Responses API, where, and how each differs from OpenAI."""

from __future__ import annotations

from typing import Any

import msgspec

from treadle.providers._azure import AZURE_KEY
from treadle.providers._endpoint import Key


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """One server's address and what it takes. The defaults are those of an unknown compatible server."""

    base_url: str | None = None
    base_url_variables: tuple[str, ...] = ()
    bare_path: str = ""
    """The path of an address that is given as a host only."""
    key: Key = Key()
    headers: dict[str, str] = {}
    """What goes with each request; the caller's own headers win."""
    models: tuple[tuple[str, dict[str, Any]], ...] = ()
    """How models differ: the beginning of a name as a pattern, and the fields that change. The first that fits."""
    settings: frozenset[str] = frozenset({"temperature", "top_p", "tool_choice"})
    """The `ModelSettings` it takes."""
    reasoning: bool = True
    effort: bool = True
    output_schema: bool = True
    sealed_reasoning: bool = False
    """Whether reasoning comes encrypted when asked for."""
    open_reasoning: bool = True
    """Whether reasoning items without encrypted content or text go back: OpenAI looks these up in its store."""
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


_NO_SAMPLING = frozenset({"tool_choice"})
_PLAIN: dict[str, Any] = {"reasoning": False, "effort": False, "sealed_reasoning": False}

# OpenAI's model pages, 2026-11. A name that is not here gets everything: the server has the last word.
_OPENAI_MODELS: tuple[tuple[str, dict[str, Any]], ...] = (
    (r"(ft:)?(gpt-3|gpt-4(-\d|$)|davinci|babbage)", {**_PLAIN, "output_schema": False, "files": frozenset()}),
    (r"(ft:)?(gpt-4-|gpt-4o-2024-05-13|chatgpt-)", {**_PLAIN, "output_schema": False}),
    (r"(ft:)?(gpt-4|gpt-5-chat)", _PLAIN),
    (r"o3-mini", {"settings": _NO_SAMPLING, "files": frozenset()}),
    # These reason always, and refuse what steers sampling. Later ones may be told not to reason and then take it.
    (r"(o\d|gpt-5(-mini|-nano|-pro)?(-\d{4}|$))", {"settings": _NO_SAMPLING}),
)
# docs.x.ai and @ai-sdk/xai 4.0, 2026-07: before 4.3 none but grok-3-mini takes an effort.
_XAI_MODELS: tuple[tuple[str, dict[str, Any]], ...] = (
    (r".*non-reasoning|grok-2|grok-3(?!-mini)", _PLAIN),
    (r"grok-4(\.20(?!-multi)|-|$)|grok-code", {"effort": False}),
)


_OPENAI = Dialect(
    base_url="https://api.openai.com/v1",
    base_url_variables=("OPENAI_BASE_URL",),
    key=Key(variables=("OPENAI_API_KEY",), required=True),
    sealed_reasoning=True,
    open_reasoning=False,
    models=_OPENAI_MODELS,
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
        base_url_variables=("AZURE_OPENAI_BASE_URL", "AZURE_OPENAI_ENDPOINT"),
        bare_path="/openai/v1",
        key=AZURE_KEY,
        missing_model="is there a deployment of that name, and is base_url that of its resource?",
        token_counting=False,
    ),
    "xai-responses": Dialect(
        base_url="https://api.x.ai/v1",
        key=Key(variables=("XAI_API_KEY",), required=True),
        models=_XAI_MODELS,
        sealed_reasoning=True,
        cache_key=True,
        hosted_mcp=True,
        mcp_approval=False,
        hosted_web_search=True,
        cost=True,
    ),
    "openrouter-responses": Dialect(
        base_url="https://openrouter.ai/api/v1",
        key=Key(variables=("OPENROUTER_API_KEY",), required=True),
        headers={"x-title": "treadle"},
        sealed_reasoning=True,
        files=frozenset({"image", "pdf"}),
        cost=True,
    ),
    "deepseek-responses": Dialect(
        base_url="https://api.deepseek.com",
        key=Key(variables=("DEEPSEEK_API_KEY",), required=True),
        calls_last=True,
        files=frozenset(),
    ),
    "lmstudio-responses": Dialect(
        base_url="http://localhost:1234/v1", missing_model="load it in LM Studio: lms load {model}"
    ),
}
