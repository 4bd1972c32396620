"""Models by name: `resolve("provider:model")`. Nothing of a provider is imported before it is asked for."""

from __future__ import annotations

import difflib
import importlib
from typing import TYPE_CHECKING, Any

from treadle.errors import ConfigError

if TYPE_CHECKING:
    import httpx2

    from treadle.model import Model

_CHAT = ("openai_chat", "OpenAIChatModel")

# Prefix: module in this package, class. Those of the chat adapter each have a row in `_dialects` as well.
_MODELS: dict[str, tuple[str, str]] = {
    "openai-chat": _CHAT,
    "ollama": _CHAT,
    "lmstudio": _CHAT,
    "vllm": _CHAT,
    "llamacpp": _CHAT,
    "groq": _CHAT,
    "mistral": _CHAT,
    "deepseek": _CHAT,
    "anthropic": ("anthropic", "AnthropicModel"),
    "openai": ("openai", "OpenAIModel"),
    "google": ("google", "GoogleModel"),
    "offline": ("offline", "OfflineModel"),
    "local": ("local", "LocalModel"),
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
    provider, colon, name = model.partition(":")
    if not colon or not name.strip():
        example = f"openai-chat:{model.strip(':') or 'gpt-5'}"
        raise ConfigError(f"{model!r} is no model: write 'provider:model', for instance {example!r}")
    if provider not in _MODELS:
        near = difflib.get_close_matches(provider, _MODELS, n=3)
        known = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(_MODELS)}"
        raise ConfigError(f"unknown provider {provider!r}: {known}")
    module, kind = _MODELS[provider]
    given = {"base_url": base_url, "api_key": api_key, "client": client}
    options: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    if (module, kind) == _CHAT:
        options |= {"provider": provider, "idle_timeout_seconds": idle_timeout_seconds}
    elif provider not in _WITHOUT_CONNECTION:
        options["idle_timeout_seconds"] = idle_timeout_seconds
    elif options:
        raise ConfigError(f"{provider} models take no {' and no '.join(options)}")
    made: Model = getattr(importlib.import_module(f"{__name__}.{module}"), kind)(name, **options)
    return made
