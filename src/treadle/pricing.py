"""What a request probably cost: an estimate from a public price list, never the provider's own figure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from treadle.errors import ConfigError

if TYPE_CHECKING:
    from treadle.messages import ModelRef
    from treadle.model import Model
    from treadle.usage import Usage

# Our prefixes whose prices stand under another name in the list. All others are looked up as they are.
_LISTED_AS = {
    "openai-chat": "openai",
    "azure-responses": "azure",
    "google-vertex": "google",
    "anthropic-vertex": "google",
    "anthropic-bedrock": "aws",
    "xai": "x-ai",
    "xai-responses": "x-ai",
    "openrouter-responses": "openrouter",
    "deepseek-responses": "deepseek",
    "moonshot": "moonshotai",
}

# On a machine of one's own, and so on no list.
_UNLISTED = frozenset({"offline", "local", "scripted", "ollama", "lmstudio", "lmstudio-responses", "vllm", "llamacpp"})


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """US dollars for a million tokens. A model of your own may have one, as its attribute `price`.

    All input counts as `input_usd`, cached or not, unless the cache has its own price.
    """

    input_usd: float
    output_usd: float
    cache_read_usd: float | None = None
    cache_write_usd: float | None = None

    def cost_usd(self, usage: Usage) -> float:
        """What `usage` costs."""
        read = self.input_usd if self.cache_read_usd is None else self.cache_read_usd
        written = self.input_usd if self.cache_write_usd is None else self.cache_write_usd
        total = usage.input_tokens * self.input_usd + usage.output_tokens * self.output_usd
        return (total + usage.cache_read_tokens * read + usage.cache_write_tokens * written) / 1_000_000


def cost_of(usage: Usage, model: Model) -> float | None:
    """What `usage` costs by the model's own `price`, else by the price list. None where neither knows."""
    price = getattr(model, "price", None)
    return price.cost_usd(usage) if isinstance(price, Price) else estimate(usage, model)


def estimate(usage: Usage, model: str | ModelRef | Model) -> float | None:
    """US dollars that `usage` of `model` ("provider:name", a `ModelRef` or a `Model`) costs by today's list prices.

    None where the list does not know the model. The prices are those that the installed `genai-prices` brings along:
    nothing is fetched, and discounts, batch prices and tools run by the provider are not in them. Cache writes are
    taken for the short-lived ones.

    `usage` is that of one request: some prices rise with its size, so add up the estimates of a run's steps rather than
    asking once for their sum. `usage.cost_usd` is not looked at. Raises `ConfigError` where the extra is missing.
    """
    provider, name = _named(model)
    if provider in _UNLISTED:
        return None
    try:
        import genai_prices
    except ImportError:
        raise ConfigError('estimates of cost need a price list: pip install "treadle[pricing]"') from None
    listed = _LISTED_AS.get(provider, provider)
    counts = genai_prices.Usage(
        input_tokens=usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        output_tokens=usage.output_tokens,
        output_reasoning_tokens=min(usage.reasoning_tokens, usage.output_tokens),
    )
    try:
        found = genai_prices.calc_price(counts, name, provider_id=listed)
    except (LookupError, ValueError):
        return None
    # The list also takes a provider for one whose name it is a part of, and has models without a price for tokens.
    priced = found.model_price
    if found.provider.id != listed or (priced.input_mtok is None and priced.output_mtok is None):
        return None
    return float(found.total_price)


def context_window(model: str | ModelRef | Model) -> int | None:
    """How many tokens the context of `model` has, as the price list tells; None where it does not, or is missing."""
    provider, name = _named(model)
    if provider in _UNLISTED:
        return None
    try:
        import genai_prices

        listed = _LISTED_AS.get(provider, provider)
        found = genai_prices.calc_price(genai_prices.Usage(input_tokens=1), name, provider_id=listed)
    except (ImportError, LookupError, ValueError):
        return None
    return found.model.context_window if found.provider.id == listed else None


def _named(model: Any) -> tuple[str, str]:
    if not isinstance(model, str):
        return model.provider, model.name
    provider, colon, name = model.partition(":")
    if not colon or not name:
        raise ConfigError(f"{model!r} is no model: write 'provider:name', for instance 'openai:gpt-5'")
    return provider, name
