"""Who speaks Chat Completions, where, and how each differs from OpenAI.

A row here is all that a plain compatible provider needs.
"""

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
    max_tokens: str = "max_tokens"
    """The name of the output limit."""
    settings: frozenset[str] = frozenset({"temperature", "top_p", "seed", "stop_sequences", "tool_choice"})
    """The `ModelSettings` it takes."""
    seed: str = "seed"
    """The name of the seed."""
    usage_option: bool = True
    """Whether usage must be asked for, by `stream_options`."""
    tools: bool = True
    web_search: dict[str, Any] | None = None
    """The tool that searches the web on its side."""
    cache_marks: bool = False
    """Whether content must be marked for the prompt cache, as Anthropic's API has it."""
    reasoning: bool = True
    effort: bool = False
    min_reasoning_budget: int | None = None
    reasoning_object: bool = False
    """Whether effort and budget stand inside of `reasoning`, as OpenRouter has it. A budget wins over an effort."""
    reasoning_budget: str = "max_tokens"
    """The name of the budget."""
    reasoning_on: dict[str, Any] = {}
    """What else says that the model shall reason."""
    reasoning_off: dict[str, Any] | None = None
    """What says that it shall not, where the effort `none` does not."""
    reasoning_field: str | None = None
    """Where earlier reasoning goes back: a field of the message, or `thinking` parts, `<think>` tags in the content."""
    reasoning_always: bool = False
    """Whether no answer may go back without reasoning: those that have none of the provider's own get a blank."""
    call_id_length: int | None = None
    """The length of call ids (letters and digits only) where the server insists on one."""
    user_after_tool: bool = True
    """Whether a user message may follow tool results."""
    alternating: bool = False
    """Whether users and answers must take turns."""
    files: frozenset[str] = frozenset({"image"})
    """The kinds of files it takes: image, audio, pdf."""
    pdf_urls: bool = False
    """Whether it fetches documents itself."""
    output_schema: bool = True
    cost: bool = False
    missing_model: str = "check the model name and base_url"
    """What to do when the server knows no such model; `{model}` stands for the name."""


def _key(*variables: str, required: bool = True, **more: Any) -> Key:
    return Key(variables=variables, required=required, **more)


_THINKING_OFF = {"thinking": {"type": "disabled"}}
_NO_SAMPLING = frozenset({"seed", "tool_choice"})

# OpenAI's model pages, 2026-11. A name that is not here gets everything: the server has the last word.
_OPENAI_MODELS: tuple[tuple[str, dict[str, Any]], ...] = (
    (
        r"(ft:)?(gpt-3\.5|gpt-4(-\d|$))",
        {"reasoning": False, "effort": False, "output_schema": False, "files": frozenset()},
    ),
    (
        r"(ft:)?(gpt-4-|gpt-4o-2024-05-13|chatgpt-)",
        {"reasoning": False, "effort": False, "output_schema": False, "files": frozenset({"image"})},
    ),
    (r".*audio", {"reasoning": False, "effort": False, "output_schema": False, "files": frozenset({"audio"})}),
    (r"(ft:)?(gpt-4|gpt-5-chat)", {"reasoning": False, "effort": False, "files": frozenset({"image", "pdf"})}),
    (r"o3-mini", {"settings": _NO_SAMPLING, "files": frozenset()}),
    # These reason always, and refuse what steers sampling. Later ones may be told not to reason and then take it.
    (r"(o\d|gpt-5(-mini|-nano|-pro)?(-\d{4}|$))", {"settings": _NO_SAMPLING, "files": frozenset({"image", "pdf"})}),
)
# docs.x.ai and @ai-sdk/xai 4.0, 2026-07: what reasons refuses `stop`; before 4.3 none but grok-3-mini takes an effort.
_XAI_MODELS: tuple[tuple[str, dict[str, Any]], ...] = (
    (r".*non-reasoning|grok-2|grok-3(?!-mini)", {"reasoning": False, "effort": False}),
    (
        r"grok-4(\.20|-|$)|grok-code",
        {"effort": False, "settings": frozenset({"temperature", "top_p", "seed", "tool_choice"})},
    ),
    (r"grok", {"settings": frozenset({"temperature", "top_p", "seed", "tool_choice"})}),
)

DIALECTS: dict[str, Dialect] = {
    "openai-chat": Dialect(
        base_url="https://api.openai.com/v1",
        base_url_variables=("OPENAI_BASE_URL",),
        key=_key("OPENAI_API_KEY"),
        models=_OPENAI_MODELS,
        max_tokens="max_completion_tokens",
        files=frozenset({"image", "audio", "pdf"}),
        effort=True,
    ),
    # Both .../openai/v1 of a resource and .../models?api-version=... of Foundry (recorded 2026-08). Deployments have
    # names of their own, which tell nothing of the model. Documents are refused (pydantic-ai, 2026-08).
    "azure": Dialect(
        base_url_variables=("AZURE_OPENAI_BASE_URL", "AZURE_OPENAI_ENDPOINT"),
        bare_path="/openai/v1",
        key=AZURE_KEY,
        max_tokens="max_completion_tokens",
        files=frozenset({"image", "audio"}),
        effort=True,
        missing_model="is there a deployment of that name, and is base_url that of its resource?",
    ),
    "ollama": Dialect(
        base_url="http://localhost:11434/v1",
        key=_key("OLLAMA_API_KEY", required=False),
        reasoning_field="reasoning",
        effort=True,
        missing_model="pull it: ollama pull {model}",
    ),
    "lmstudio": Dialect(base_url="http://localhost:1234/v1", missing_model="load it in LM Studio: lms load {model}"),
    "vllm": Dialect(base_url="http://localhost:8000/v1", key=_key("VLLM_API_KEY", required=False), effort=True),
    "llamacpp": Dialect(
        base_url="http://localhost:8080/v1",
        key=_key("LLAMA_API_KEY", required=False),
        reasoning_field="reasoning_content",
    ),
    "groq": Dialect(
        base_url="https://api.groq.com/openai/v1",
        key=_key("GROQ_API_KEY"),
        max_tokens="max_completion_tokens",
        effort=True,
        # Some models take a schema, but none while it streams (console.groq.com/docs/structured-outputs, 2026-07).
        output_schema=False,
    ),
    "mistral": Dialect(
        base_url="https://api.mistral.ai/v1",
        key=_key("MISTRAL_API_KEY"),
        seed="random_seed",
        usage_option=False,
        reasoning_field="thinking",
        call_id_length=9,
        user_after_tool=False,
        effort=True,
    ),
    "deepseek": Dialect(
        base_url="https://api.deepseek.com",
        key=_key("DEEPSEEK_API_KEY"),
        settings=frozenset({"temperature", "top_p", "stop_sequences", "tool_choice"}),
        reasoning_field="reasoning_content",
        effort=True,  # api-docs.deepseek.com/guides/thinking_mode, 2026-11
        reasoning_off=_THINKING_OFF,
        # 400 without, also for what other models said (github.com/NousResearch/hermes-agent/pull/18263, 2026-05).
        reasoning_always=True,
        files=frozenset(),
        output_schema=False,
    ),
    "xai": Dialect(
        base_url="https://api.x.ai/v1",
        key=_key("XAI_API_KEY"),
        models=_XAI_MODELS,
        max_tokens="max_completion_tokens",
        effort=True,
        cost=True,
    ),
    "openrouter": Dialect(
        base_url="https://openrouter.ai/api/v1",
        key=_key("OPENROUTER_API_KEY"),
        headers={"x-title": "treadle"},  # openrouter.ai/docs/app-attribution; with an HTTP-Referer it makes a page
        models=((r"~?anthropic/", {"cache_marks": True, "min_reasoning_budget": 1_024}),),
        usage_option=False,  # usage and cost come unasked (openrouter.ai/docs/use-cases/usage-accounting, 2026)
        web_search={"type": "openrouter:web_search"},
        effort=True,
        min_reasoning_budget=1,
        reasoning_object=True,
        reasoning_field="reasoning",
        files=frozenset({"image", "audio", "pdf"}),
        pdf_urls=True,
        cost=True,
    ),
    "together": Dialect(
        base_url="https://api.together.xyz/v1",
        key=_key("TOGETHER_API_KEY"),
        effort=True,
        reasoning_field="reasoning",
    ),
    # inference-docs.cerebras.ai/capabilities/reasoning, 2026-11, and recorded: GLM reads its reasoning in tags only.
    # A schema beside tools is refused.
    "cerebras": Dialect(
        base_url="https://api.cerebras.ai/v1",
        key=_key("CEREBRAS_API_KEY"),
        models=((r"zai-", {"reasoning_field": "<think>"}),),
        max_tokens="max_completion_tokens",
        effort=True,
        reasoning_field="reasoning",
        output_schema=False,
    ),
    "fireworks": Dialect(
        base_url="https://api.fireworks.ai/inference/v1",
        key=_key("FIREWORKS_API_KEY"),
        effort=True,
        reasoning_field="reasoning_content",
    ),
    # A router to other hosts, which differ in schemas.
    "huggingface": Dialect(
        base_url="https://router.huggingface.co/v1", key=_key("HF_TOKEN"), effort=True, output_schema=False
    ),
    "perplexity": Dialect(
        base_url="https://api.perplexity.ai",
        key=_key("PERPLEXITY_API_KEY"),
        settings=frozenset({"temperature", "top_p"}),
        usage_option=False,
        tools=False,
        alternating=True,  # 400 otherwise (github.com/anomalyco/opencode/issues/9416, 2026-01)
        effort=True,
        cost=True,
    ),
    "moonshot": Dialect(
        base_url="https://api.moonshot.ai/v1",
        key=_key("MOONSHOT_API_KEY", "MOONSHOTAI_API_KEY"),
        effort=True,
        reasoning_off=_THINKING_OFF,  # the effort `none` is refused (pydantic-ai, 2026)
        reasoning_field="reasoning_content",
        reasoning_always=True,  # 400 without it beside calls (github.com/continuedev/continue/issues/11600, 2026-03)
        output_schema=False,
    ),
    # docs.z.ai/guides/capabilities/thinking-mode, 2026: reasoning that goes back is read only where it is not cleared.
    "zai": Dialect(
        base_url="https://api.z.ai/api/paas/v4",
        key=_key("ZAI_API_KEY"),
        settings=frozenset({"temperature", "top_p", "stop_sequences"}),
        effort=True,
        reasoning_on={"thinking": {"type": "enabled", "clear_thinking": False}},
        reasoning_off=_THINKING_OFF,
        reasoning_field="reasoning_content",
        output_schema=False,
    ),
    "alibaba": Dialect(
        base_url="https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        key=_key("DASHSCOPE_API_KEY", "ALIBABA_API_KEY"),
        min_reasoning_budget=1,
        reasoning_budget="thinking_budget",
        reasoning_on={"enable_thinking": True},
        reasoning_off={"enable_thinking": False},
        output_schema=False,
    ),
    # Its address is the account's: https://<account>.snowflakecomputing.com. Tools and schemas are for Claude and
    # OpenAI's models; Claude reasons at temperature 1 only (docs.snowflake.com, pydantic-ai, recorded, 2026-08).
    "snowflake": Dialect(
        bare_path="/api/v2/cortex/v1",
        key=_key("SNOWFLAKE_TOKEN"),
        models=(
            (r"claude", {"reasoning_object": True, "effort": True}),
            (r"openai-", {"effort": True}),
            (r"", {"tools": False, "output_schema": False, "reasoning": False}),
        ),
        max_tokens="max_completion_tokens",
    ),
}
