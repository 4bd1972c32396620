"""Models by name."""

from __future__ import annotations

import pytest

from treadle.errors import ConfigError
from treadle.model import Model
from treadle.providers import _MEANT, _MODELS, resolve
from treadle.providers.openai import OpenAIModel
from treadle.providers.openai._dialects import DIALECTS as RESPONSES
from treadle.providers.openai_chat import OpenAIChatModel
from treadle.providers.openai_chat._dialects import DIALECTS


@pytest.mark.parametrize("provider", sorted(DIALECTS))
def test_each_row_of_the_table_is_a_model(provider: str) -> None:
    found = resolve(f"{provider}:some/model:tag", base_url=None if DIALECTS[provider].base_url else "https://mine")
    assert isinstance(found, OpenAIChatModel)
    assert isinstance(found, Model)
    assert (found.provider, found.name) == (provider, "some/model:tag")


@pytest.mark.parametrize("provider", sorted(RESPONSES))
def test_each_row_of_the_other_table_is_one_too(provider: str) -> None:
    found = resolve(f"{provider}:some/model:tag", base_url=None if RESPONSES[provider].base_url else "https://mine")
    assert isinstance(found, OpenAIModel)
    assert (found.provider, found.name) == (provider, "some/model:tag")


@pytest.mark.parametrize("provider", ["azure", "azure-responses"])
def test_a_deployment_is_not_judged_by_its_name(provider: str) -> None:
    old, new = (resolve(f"{provider}:{name}", base_url="https://mine.example") for name in ("gpt-4", "gpt-5.2"))
    assert old.capabilities == new.capabilities
    assert old.capabilities.effort
    assert old.capabilities.output_schema


def test_every_prefix_of_a_table_has_a_row() -> None:
    assert {name for name, (module, _) in _MODELS.items() if module == "openai_chat"} == set(DIALECTS)
    assert {name for name, (module, _) in _MODELS.items() if module == "openai"} == set(RESPONSES)


def test_the_offline_stand_in_is_found() -> None:
    assert resolve("offline:demo").provider == "offline"


@pytest.mark.parametrize(
    ("name", "example"),
    [
        ("gpt-5", "openai:gpt-5"),
        ("claude-sonnet-5", "anthropic:claude-sonnet-5"),
        ("mine", "openai:mine"),
        ("", "openai:gpt-5"),
        (":", "openai:gpt-5"),
        ("openai-chat:", "openai-chat:NAME"),
        ("ollama", "ollama:NAME"),
        ("ollama: ", "ollama:NAME"),
    ],
)
def test_a_name_without_provider_or_model_is_refused_with_an_example(name: str, example: str) -> None:
    with pytest.raises(ConfigError, match=f"write 'provider:model', for instance '{example}'"):
        resolve(name)


def test_an_unknown_provider_is_refused_with_near_names() -> None:
    with pytest.raises(ConfigError, match="unknown provider 'antropic': did you mean anthropic"):
        resolve("antropic:claude-sonnet-5")
    with pytest.raises(ConfigError, match="unknown provider 'olama': did you mean ollama"):
        resolve("olama:qwen3")
    with pytest.raises(ConfigError, match="did you mean openrouter"):
        resolve("open-router:x")
    with pytest.raises(ConfigError, match="unknown provider 'OpenAI': did you mean openai"):
        resolve("OpenAI:gpt-5")


@pytest.mark.parametrize(("name", "meant"), sorted(_MEANT.items()))
def test_the_name_of_a_model_s_family_leads_to_its_provider(name: str, meant: str) -> None:
    assert meant in _MODELS
    assert name not in _MODELS
    with pytest.raises(ConfigError, match=rf"unknown provider '{name}': did you mean {meant}\?"):
        resolve(f"{name}:x")


def test_a_name_that_is_like_no_other_gets_all_of_them() -> None:
    with pytest.raises(ConfigError, match="unknown provider 'zzz': there are openai-chat, ollama"):
        resolve("zzz:x")


def test_options_that_mean_nothing_to_a_model_are_refused() -> None:
    with pytest.raises(ConfigError, match="offline models take no api_key"):
        resolve("offline:demo", api_key="k")


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://x", "http://", "/v1"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="must begin with http:// or https://"):
        resolve("vllm:m", base_url=url)


def test_a_provider_without_an_address_needs_one() -> None:
    with pytest.raises(ConfigError, match="'mine' has no known address: pass base_url"):
        OpenAIChatModel("m", provider="mine")
    assert OpenAIChatModel("m", provider="mine", base_url="http://x").provider == "mine"


def test_a_model_without_a_name_is_refused() -> None:
    with pytest.raises(ConfigError, match="the model has no name"):
        OpenAIChatModel("")
