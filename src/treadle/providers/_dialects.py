"""Who speaks Chat Completions, where, and how each differs from OpenAI.

A row here is all that a plain compatible provider needs.
"""

from __future__ import annotations

import msgspec


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """One server's address and what it takes. The defaults are those of an unknown compatible server."""

    base_url: str | None = None
    base_url_variable: str | None = None
    key_variable: str | None = None
    key_required: bool = False
    max_tokens: str = "max_tokens"
    """The name of the output limit."""
    settings: frozenset[str] = frozenset({"temperature", "top_p", "seed", "stop_sequences", "tool_choice"})
    """The `ModelSettings` it takes."""
    seed: str = "seed"
    """The name of the seed."""
    usage_option: bool = True
    """Whether usage must be asked for, by `stream_options`."""
    reasoning_field: str | None = None
    """Where earlier reasoning goes back: a field of the message, or `thinking` parts of its content."""
    reasoning_with_calls_only: bool = False
    """Whether only the reasoning of messages with tool calls goes back."""
    call_id_length: int | None = None
    """The length of call ids (letters and digits only) where the server insists on one."""
    user_after_tool: bool = True
    """Whether a user message may follow tool results."""
    files: frozenset[str] = frozenset({"image"})
    """The kinds of files it takes: image, audio, pdf."""
    effort: bool = False
    reasoning: bool = True
    output_schema: bool = True
    cost: bool = False
    missing_model: str = "check the model name and base_url"
    """What to do when the server knows no such model; `{model}` stands for the name."""


DIALECTS: dict[str, Dialect] = {
    "openai-chat": Dialect(
        base_url="https://api.openai.com/v1",
        base_url_variable="OPENAI_BASE_URL",
        key_variable="OPENAI_API_KEY",
        key_required=True,
        max_tokens="max_completion_tokens",
        files=frozenset({"image", "audio", "pdf"}),
        effort=True,
    ),
    "ollama": Dialect(
        base_url="http://localhost:11434/v1",
        key_variable="OLLAMA_API_KEY",
        reasoning_field="reasoning",
        effort=True,
        missing_model="pull it: ollama pull {model}",
    ),
    "lmstudio": Dialect(base_url="http://localhost:1234/v1", missing_model="load it in LM Studio: lms load {model}"),
    "vllm": Dialect(base_url="http://localhost:8000/v1", key_variable="VLLM_API_KEY", effort=True),
    "llamacpp": Dialect(
        base_url="http://localhost:8080/v1", key_variable="LLAMA_API_KEY", reasoning_field="reasoning_content"
    ),
    "groq": Dialect(
        base_url="https://api.groq.com/openai/v1",
        key_variable="GROQ_API_KEY",
        key_required=True,
        max_tokens="max_completion_tokens",
        effort=True,
        output_schema=False,  # some of its models take a schema, most answer 400
    ),
    "mistral": Dialect(
        base_url="https://api.mistral.ai/v1",
        key_variable="MISTRAL_API_KEY",
        key_required=True,
        seed="random_seed",
        usage_option=False,
        reasoning_field="thinking",
        call_id_length=9,
        user_after_tool=False,
        effort=True,
    ),
    "deepseek": Dialect(
        base_url="https://api.deepseek.com",
        key_variable="DEEPSEEK_API_KEY",
        key_required=True,
        settings=frozenset({"temperature", "top_p", "stop_sequences", "tool_choice"}),
        reasoning_field="reasoning_content",
        reasoning_with_calls_only=True,
        files=frozenset(),
        output_schema=False,
    ),
}
