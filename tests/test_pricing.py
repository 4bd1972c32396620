"""Estimates of cost from a price list."""

from __future__ import annotations

import subprocess
import sys

import genai_prices
import pytest
from genai_prices.data import providers

from treadle import Usage, pricing
from treadle.errors import ConfigError
from treadle.messages import ModelRef
from treadle.pricing import context_window, estimate
from treadle.providers import _MODELS, resolve
from treadle.testing import ScriptedModel

MILLION = 1_000_000


def listed(usage: Usage, provider: str, name: str) -> float:
    """What the list itself says, told the counts in its own terms."""
    counts = genai_prices.Usage(
        input_tokens=usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        output_tokens=usage.output_tokens,
    )
    return float(genai_prices.calc_price(counts, name, provider_id=provider).total_price)


# 3 dollars for a million in, 15 out, 0.30 read from the cache, 3.75 written to it.
SONNET = "anthropic:claude-3-5-sonnet-20241022"
# 1.25 in, 10 out, 0.125 read from the cache; beyond 200,000 tokens of input 2.50, 15 and 0.25 for all of them.
GEMINI = "google:gemini-2.5-pro"


@pytest.mark.parametrize(
    ("model", "usage", "dollars"),
    [
        (SONNET, Usage(input_tokens=MILLION), 3.0),
        (SONNET, Usage(output_tokens=MILLION), 15.0),
        (SONNET, Usage(cache_read_tokens=MILLION), 0.30),
        (SONNET, Usage(cache_write_tokens=MILLION), 3.75),
        (SONNET, Usage(1_000, 2_000, 10_000, 4_000, reasoning_tokens=500), 0.003 + 0.030 + 0.003 + 0.015),
        (GEMINI, Usage(100_000, 1_000), 0.125 + 0.010),
        (GEMINI, Usage(100_000, 1_000, cache_read_tokens=100_000), 0.125 + 0.010 + 0.0125),
        (GEMINI, Usage(100_000, 1_000, cache_read_tokens=100_001), 0.250 + 0.015 + 0.02500025),
        (GEMINI, Usage(), 0.0),
    ],
)
def test_the_estimate_is_what_one_computes_by_hand(model: str, usage: Usage, dollars: float) -> None:
    assert estimate(usage, model) == pytest.approx(dollars, rel=1e-9)


def test_cached_tokens_cost_as_input_where_the_list_has_no_price_for_them() -> None:
    name = "together:meta-llama/Llama-3.3-70B-Instruct-Turbo"
    assert estimate(Usage(cache_read_tokens=1_000), name) == estimate(Usage(input_tokens=1_000), name) != 0


def test_reasoning_is_a_part_of_the_output_and_paid_once() -> None:
    thought = Usage(output_tokens=1_000, reasoning_tokens=900)
    assert estimate(thought, "openai:gpt-5") == estimate(Usage(output_tokens=1_000), "openai:gpt-5")
    assert estimate(Usage(output_tokens=1_000, reasoning_tokens=2_000), "openai:gpt-5") == estimate(
        Usage(output_tokens=1_000), "openai:gpt-5"
    )


@pytest.mark.parametrize(
    ("ours", "theirs", "name"),
    [
        ("anthropic", "anthropic", "claude-sonnet-4-5"),
        ("openai", "openai", "gpt-5"),
        ("openai-chat", "openai", "gpt-4o"),
        ("azure", "azure", "gpt-4o"),
        ("azure-responses", "azure", "gpt-5"),
        ("google", "google", "gemini-2.5-flash"),
        ("google-vertex", "google", "gemini-2.5-flash"),
        ("anthropic-vertex", "google", "claude-sonnet-4-5@20250929"),
        ("anthropic-bedrock", "aws", "us.anthropic.claude-sonnet-4-5-20250929-v1:0"),
        ("openrouter", "openrouter", "anthropic/claude-sonnet-4.5"),
        ("groq", "groq", "openai/gpt-oss-20b"),
        ("xai", "x-ai", "grok-4"),
        ("xai-responses", "x-ai", "grok-4"),
        ("mistral", "mistral", "mistral-small-latest"),
        ("deepseek", "deepseek", "deepseek-chat"),
        ("deepseek-responses", "deepseek", "deepseek-chat"),
        ("cerebras", "cerebras", "gpt-oss-120b"),
        ("together", "together", "meta-llama/Llama-3.3-70B-Instruct-Turbo"),
    ],
)
def test_our_provider_names_lead_to_the_right_list(ours: str, theirs: str, name: str) -> None:
    usage = Usage(12_345, 678, 9_000, 4_000, reasoning_tokens=100)
    found = estimate(usage, f"{ours}:{name}")
    assert found == listed(usage, theirs, name)
    assert found


def test_every_prefix_leads_to_a_list_or_is_known_to_have_none() -> None:
    lists = {provider.id for provider in providers}
    # A router to many providers, and two that the price list does not have.
    without = {"huggingface", "alibaba", "snowflake"} | pricing._UNLISTED
    prefixes = {prefix for prefix in _MODELS if prefix not in without}
    assert {prefix for prefix in prefixes if pricing._LISTED_AS.get(prefix, prefix) not in lists} == set()
    assert without & lists == set()


def test_every_model_of_the_list_is_taken_or_left_without_an_error() -> None:
    usage = Usage(1_000, 500, 9_000, 2_000, reasoning_tokens=100)
    for provider in providers:
        found = [estimate(usage, ModelRef(provider.id, model.id)) for model in provider.models]
        assert all(price is None or price >= 0 for price in found)


@pytest.mark.parametrize(
    "model",
    [
        "openai:nothing-of-that-name",
        "nobody:gpt-5",
        "my-openai-proxy:gpt-5",  # its name holds a provider's: its prices are its own
        "openai:gpt-live-1",  # paid by the hour
        "offline:demo",
        "local:model.gguf",
        "ollama:gpt-oss:20b",
        "vllm:gpt-5",
    ],
)
def test_what_no_list_knows_has_no_estimate(model: str) -> None:
    assert estimate(Usage(1_000, 1_000), model) is None


def test_a_model_may_be_named_referred_to_or_given() -> None:
    usage = Usage(1_000, 1_000)
    model = resolve("openai:gpt-5")
    assert estimate(usage, model) == estimate(usage, ModelRef("openai", "gpt-5")) == estimate(usage, "openai:gpt-5")
    assert estimate(usage, ScriptedModel("hello")) is None


def test_the_providers_own_figure_plays_no_part() -> None:
    assert estimate(Usage(1_000, cost_usd=99.0), "openai:gpt-5") == estimate(Usage(1_000), "openai:gpt-5")


@pytest.mark.parametrize("model", ["gpt-5", "openai:", ""])
def test_a_name_without_a_provider_is_refused(model: str) -> None:
    with pytest.raises(ConfigError, match="write 'provider:name'"):
        estimate(Usage(), model)


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=60, check=False
    )


def test_the_missing_extra_is_named() -> None:
    done = run(
        "import sys; sys.modules['genai_prices'] = None\n"
        "from treadle import Usage\nfrom treadle.pricing import estimate\n"
        "assert estimate(Usage(1), 'offline:demo') is None\n"
        "try: estimate(Usage(1), 'openai:gpt-5')\n"
        "except ValueError as error: print(type(error).__name__, error)"
    )
    assert done.stdout == 'ConfigError estimates of cost need a price list: pip install "treadle[pricing]"\n'


def test_nothing_is_fetched_and_no_thread_is_started() -> None:
    done = run(
        "import sys, threading\n"
        "from treadle.pricing import estimate\nfrom treadle import Usage\n"
        "assert 'genai_prices' not in sys.modules\n"
        "used = []\n"
        "sys.addaudithook(lambda event, _: used.append(event) if event.startswith('socket.') else None)\n"
        "assert estimate(Usage(1000), 'openai:gpt-5')\n"
        "print([event for event in used if event != 'socket.__new__'], threading.active_count())"
    )
    assert (done.stdout, done.stderr) == ("[] 1\n", "")


def test_the_context_of_a_model_is_in_the_list() -> None:
    assert context_window("anthropic:claude-sonnet-4-5") == 200_000
    assert context_window("offline:demo") is None and context_window("openai:no-such-model") is None


def test_without_the_list_no_context_is_known() -> None:
    done = run(
        "import sys; sys.modules['genai_prices'] = None\n"
        "from treadle.pricing import context_window\nprint(context_window('openai:gpt-5'))"
    )
    assert done.stdout == "None\n"
