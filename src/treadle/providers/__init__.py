"""Models by name: `resolve("provider:model")`. Nothing of a provider is imported before it is asked for."""

from __future__ import annotations

import difflib
import importlib
from typing import TYPE_CHECKING, Any

from treadle.errors import ConfigError

if TYPE_CHECKING:
    import ssl

    import httpx2

    from treadle.model import Model

_CHAT = ("openai_chat", "OpenAIChatModel")
_RESPONSES = ("openai", "OpenAIModel")

# Prefix: a module in this package and what makes the model there, called with the name and the options given. Those of
# the first two have a row for each prefix in their tables of dialects and are told which.
_MODELS: dict[str, tuple[str, str]] = {
    "openai-chat": _CHAT,
    "ollama": _CHAT,
    "lmstudio": _CHAT,
    "vllm": _CHAT,
    "llamacpp": _CHAT,
    "groq": _CHAT,
    "mistral": _CHAT,
    "deepseek": _CHAT,
    "azure": _CHAT,
    "xai": _CHAT,
    "openrouter": _CHAT,
    "together": _CHAT,
    "cerebras": _CHAT,
    "fireworks": _CHAT,
    "huggingface": _CHAT,
    "perplexity": _CHAT,
    "moonshot": _CHAT,
    "zai": _CHAT,
    "alibaba": _CHAT,
    "snowflake": _CHAT,
    "anthropic": ("anthropic", "AnthropicModel"),
    "anthropic-vertex": ("anthropic.clouds", "vertex_model"),
    "anthropic-bedrock": ("anthropic.clouds", "bedrock_model"),
    "openai": _RESPONSES,
    "azure-responses": _RESPONSES,
    "xai-responses": _RESPONSES,
    "openrouter-responses": _RESPONSES,
    "deepseek-responses": _RESPONSES,
    "lmstudio-responses": _RESPONSES,
    "google": ("google", "GoogleModel"),
    "google-vertex": ("google.vertex", "vertex_model"),
    "offline": ("offline", "OfflineModel"),
    "local": ("local", "LocalModel"),
}

# What people write instead, and no spelling gives away.
_MEANT = {
    "claude": "anthropic",
    "bedrock": "anthropic-bedrock",
    "gemini": "google",
    "google-gla": "google",
    "vertex": "google-vertex",
    "vertexai": "google-vertex",
    "gpt": "openai",
    "grok": "xai",
    "kimi": "moonshot",
    "glm": "zai",
    "qwen": "alibaba",
    "dashscope": "alibaba",
    "llama": "llamacpp",
    "gguf": "local",
}
_WITHOUT_CONNECTION = ("offline", "local")


def resolve(
    model: str,
    base_url: str | None = None,
    api_key: str | None = None,
    client: httpx2.AsyncClient | None = None,
    idle_timeout_seconds: float = 120.0,
) -> Model:
    """The model that `"provider:model"` names. Raises `ConfigError` for a name that means nothing.

    The name and what the model can do are settled here; key and client are looked for with the first request, so
    that nothing heavy is loaded before. A `client` is used as it is and never closed.
    """
    provider, name = split_name(model)
    module, kind = _MODELS[provider]
    given = {"base_url": base_url, "api_key": api_key, "client": client}
    options: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    if provider in _WITHOUT_CONNECTION:
        if options:
            raise ConfigError(f"{provider} models take no {' and no '.join(options)}")
    else:
        options["idle_timeout_seconds"] = idle_timeout_seconds
    if (module, kind) in (_CHAT, _RESPONSES):
        options["provider"] = provider
    made: Model = getattr(importlib.import_module(f"{__name__}.{module}"), kind)(name, **options)
    return made


def split_name(model: str) -> tuple[str, str]:
    """The provider and the model's own name in `"provider:model"`. Loads nothing of the provider.

    Raises `ConfigError` where no provider is named, or one that is not known.
    """
    if not isinstance(model, str):
        raise ConfigError(f"a model is named by text, 'provider:model', and not by {model!r:.80}")
    provider, _, name = model.partition(":")
    if not name.strip():
        raise ConfigError(f"{model!r} is no model: write 'provider:model', for instance {_example(provider)!r}")
    if provider not in _MODELS:
        meant = _MEANT.get(provider.lower())
        near = difflib.get_close_matches(provider.lower(), _MODELS, n=3) if meant is None else [meant]
        known = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(_MODELS)}"
        raise ConfigError(f"unknown provider {provider!r}: {known}")
    return provider, name


def _example(given: str) -> str:
    """A whole name for somebody who gave the provider or the model alone."""
    if given in _MODELS:
        return f"{given}:NAME"
    provider = next((meant for word, meant in _MEANT.items() if given.lower().startswith(word)), "openai")
    return f"{provider}:{given or 'gpt-5'}"


def aiohttp_transport(
    *, ssl_context: ssl.SSLContext | None = None, trust_env: bool = True
) -> httpx2.AsyncBaseTransport:
    """Connections by aiohttp in the place of httpx2's own, for streams that cost a third of the CPU time.

    Pass it in a client: `resolve(name, client=httpx2.AsyncClient(transport=aiohttp_transport()))`. It speaks HTTP/1.1,
    opens as many connections as there are requests, keeps them for the next ones, and may be used by several event
    loops, each with connections of its own. `trust_env` takes proxies from the environment, except for servers on this
    machine. The client's connect and read timeouts hold; a write has none. Raises `ConfigError` where the extra is
    missing.
    """
    try:
        from treadle.providers._aiohttp import AiohttpTransport
    except ModuleNotFoundError as error:
        if error.name != "aiohttp":
            raise
        raise ConfigError('aiohttp_transport() needs aiohttp: pip install "treadle[aiohttp]"') from None
    return AiohttpTransport(ssl_context, trust_env=trust_env)
