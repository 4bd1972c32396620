"""Names and options that no model has are refused where the model is made, in one line."""

from __future__ import annotations

import math

import httpx2
import pytest

from treadle import AuthenticationError, ConfigError, ModelConnectionError, ModelRequest, UserMessage
from treadle.providers import resolve

HELLO = ModelRequest(None, (UserMessage("hello"),))
MODELS = ["openai-chat:m", "openai:m", "anthropic:claude-opus-4-6", "google:m", "openrouter:a/b"]
NO_NAMES: list[object] = [None, 5, b"openai:m", ["openai:m"]]


class Hidden:
    """A key as some libraries wrap it."""

    def __repr__(self) -> str:
        return "sk-hidden"


@pytest.mark.parametrize("model", NO_NAMES)
def test_a_model_is_named_by_text(model):
    with pytest.raises(ConfigError, match="'provider:model'"):
        resolve(model)


@pytest.mark.parametrize("name", ["gpt-5 ", " gpt-5", "gpt\n5", "gpt-5\r", "g\x1b[2J", "g\u2028t"])
@pytest.mark.parametrize("model", MODELS)
def test_a_name_has_no_spaces_around_it_and_stands_on_one_line(model, name):
    with pytest.raises(ConfigError, match="no model is called") as caught:
        resolve(f"{model.partition(':')[0]}:{name}")
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"api_key": Hidden()}, "api_key is text, and is a Hidden"),
        ({"base_url": httpx2.URL("https://localhost")}, "base_url is text"),
        ({"client": httpx2.Client}, "client is an httpx2.AsyncClient"),
        ({"client": 5}, "client is an httpx2.AsyncClient, and is a builtins.int"),
        *[
            ({"idle_timeout_seconds": odd}, "idle_timeout_seconds is a number above 0")
            for odd in (0, -1, math.nan, "9", None, True)
        ],
    ],
    ids=str,
)
@pytest.mark.parametrize("model", MODELS)
def test_options_of_another_type_are_refused(model, options, told):
    with pytest.raises(ConfigError, match=told) as caught:
        resolve(model, **options)
    assert "sk-hidden" not in str(caught.value) and "\n" not in str(caught.value)


def test_an_idle_timeout_may_be_endless():
    assert resolve("openai:m", idle_timeout_seconds=math.inf)


@pytest.mark.parametrize("base_url", ["http://[::1", "http://\ud800", "http://localhost:x"])
@pytest.mark.parametrize("model", MODELS)
async def test_an_address_that_is_none_is_told_as_such(model, base_url):
    with pytest.raises(ModelConnectionError, match="cannot use this base_url") as caught:
        [event async for event in resolve(model, base_url=base_url, api_key="k").stream(HELLO)]
    assert not caught.value.retryable and str(caught.value).isprintable()


async def test_a_key_that_no_header_carries_is_not_shown():
    with pytest.raises(AuthenticationError) as caught:
        [event async for event in resolve("openai:m", api_key="sk-secret\nx").stream(HELLO)]
    assert "sk-secret" not in str(caught.value)
