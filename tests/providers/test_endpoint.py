"""What all adapters share: the key or what signs in its stead, the address, and the count."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest

from support.loopback import Loopback, Reply
from treadle.errors import AuthenticationError, ConfigError, ModelResponseError
from treadle.messages import UserMessage
from treadle.model import ModelRequest
from treadle.providers._endpoint import Key, base_address, below
from treadle.providers.anthropic import AnthropicModel
from treadle.providers.google import GoogleModel
from treadle.providers.openai import OpenAIModel
from treadle.providers.openai_chat import OpenAIChatModel

Make = Callable[..., Any]
ALL: list[Make] = [OpenAIChatModel, AnthropicModel, OpenAIModel, GoogleModel]
COUNTING: list[Make] = [AnthropicModel, OpenAIModel, GoogleModel]
KEYS = {"OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"}
CREDENTIALS = {"authorization", "x-api-key", "x-goog-api-key", "api-key"}
FORBIDDEN = Reply((b'{"error": {"message": "not for you, s3cret"}}',), status=403, content_type="application/json")


class Signed(httpx2.Auth):
    def auth_flow(self, request: httpx2.Request) -> Iterator[httpx2.Request]:
        request.headers["authorization"] = "Signed for"
        yield request


async def collect(asked: Any) -> list[Any]:
    return [event async for event in asked.stream(ModelRequest(None, (UserMessage("hi"),)))]


@pytest.mark.parametrize("make", ALL)
async def test_what_signs_replaces_the_key(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in KEYS:
        monkeypatch.setenv(variable, "from-environment")
    async with Loopback(FORBIDDEN) as server:
        with pytest.raises(AuthenticationError):
            await collect(make("m", base_url=server.origin, auth=Signed()))
    (seen,) = server.requests
    assert {name: value for name, value in seen.headers.items() if name.lower() in CREDENTIALS} == {
        "authorization": "Signed for"
    }


@pytest.mark.parametrize("make", ALL)
async def test_nothing_is_missing_where_something_signs(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in KEYS:
        monkeypatch.delenv(variable, raising=False)
    signed: list[str] = []

    class Stops(httpx2.Auth):
        def auth_flow(self, request: httpx2.Request) -> Iterator[httpx2.Request]:
            signed.append(request.url.host)
            raise ConfigError("no further")
            yield request

    with pytest.raises(ConfigError, match="no further"):
        await collect(make("m", auth=Stops()))
    assert len(signed) == 1


@pytest.mark.parametrize("make", ALL)
def test_a_key_and_what_signs_in_its_stead_clash(make: Make) -> None:
    with pytest.raises(ConfigError, match="m: pass api_key or auth, not both"):
        make("m", api_key="k", auth=Signed())


@pytest.mark.parametrize("make", ALL)
async def test_the_key_shows_in_no_error(make: Make) -> None:
    async with Loopback(FORBIDDEN) as server:
        with pytest.raises(AuthenticationError, match=r"not for you, \*\*\*"):
            await collect(make("m", base_url=server.origin, api_key="s3cret"))


@pytest.mark.parametrize("make", COUNTING)
@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"input_tokens": true, "totalTokens": true}', b"\xff"])
async def test_a_count_that_is_none_is_an_error_that_may_be_tried_again(make: Make, content: bytes) -> None:
    async with Loopback(Reply((content,), content_type="application/json")) as server:
        with pytest.raises(ModelResponseError, match="holds no token count") as caught:
            await make("m", base_url=server.origin).count_tokens(ModelRequest(None, (UserMessage("hi"),)))
    assert caught.value.retryable


def test_a_path_goes_before_the_query() -> None:
    assert below("https://a/v1/?x=1", "/chat") == "https://a/v1/chat?x=1"
    assert below("https://a/v1/messages", "/v1/messages", without=("/messages", "/v1")) == "https://a/v1/messages"


def test_an_address_is_the_given_one_or_the_variable_s_or_the_known_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THEIR_BASE_URL", "https://variable")
    assert base_address("p", "https://given", variables=("THEIR_BASE_URL",), default="https://known") == (
        "https://given",
        True,
    )
    assert base_address("p", None, variables=("THEIR_BASE_URL",), default="https://known") == ("https://variable", True)
    monkeypatch.delenv("THEIR_BASE_URL")
    assert base_address("p", None, variables=("THEIR_BASE_URL",), default="https://known") == ("https://known", False)
    with pytest.raises(ConfigError, match=r"'p' has no known address: pass base_url=.* or set THEIR_BASE_URL"):
        base_address("p", None, variables=("THEIR_BASE_URL",))


def test_what_to_do_for_a_key_names_each_variable() -> None:
    assert Key().how() == "pass api_key"
    assert Key(variables=("A",)).how() == "set A or pass api_key"
    assert Key(variables=("A", "B")).how() == "set A or B, or pass api_key"
