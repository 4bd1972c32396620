"""Messages: the API of Anthropic's Claude models.

Five parts: the class (here), the request, the stream, usage and stop, errors. What the server really sends was read off
recorded traffic, 2025 and 2026.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from treadle.errors import AuthenticationError, ConfigError, ModelError, ModelResponseError
from treadle.model import Capabilities
from treadle.providers._connection import Connection
from treadle.providers._errors import masked
from treadle.providers.anthropic._errors import refusal_error
from treadle.providers.anthropic._models import MIN_BUDGET, traits_of
from treadle.providers.anthropic._request import RequestWriter
from treadle.providers.anthropic._stream import AnswerReader
from treadle.providers.anthropic._wire import PROVIDER, decode_any

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    import httpx2

    from treadle.events import ModelEvent
    from treadle.model import ModelRequest
    from treadle.providers._errors import Refusal

_ADDRESS = "https://api.anthropic.com"
_KEY_VARIABLE = "ANTHROPIC_API_KEY"
_ADDRESS_VARIABLE = "ANTHROPIC_BASE_URL"
_VERSION = "2023-06-01"
_BETAS = "anthropic-beta"
_MCP_BETA = "mcp-client-2025-11-20"
_MAX_REQUESTS = 20  # for one answer: a turn with many hosted calls is paused again and again


class AnthropicModel:
    """A Claude model behind the Messages API.

    The key is `ANTHROPIC_API_KEY` unless `api_key` is given, the address `ANTHROPIC_BASE_URL` unless `base_url` is; a
    server of one's own needs no key. `client` is used as it is and never closed. `idle_timeout_seconds` is how long the
    server may send nothing. A turn that the server pauses is gone on with inside `stream`: one answer, its usage added
    up.
    """

    provider = PROVIDER

    def __init__(
        self,
        name: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        client: httpx2.AsyncClient | None = None,
        idle_timeout_seconds: float = 120.0,
    ) -> None:
        if not name:
            raise ConfigError("the model has no name: write 'anthropic:' and the name behind it")
        self.name = name
        traits = traits_of(name)
        self.capabilities: Capabilities = Capabilities(
            reasoning=traits.reasoning,
            effort=traits.effort,
            min_reasoning_budget=MIN_BUDGET if traits.budget else None,
            hosted_mcp=True,
            hosted_web_search=True,
            output_schema=traits.output_schema,
            token_counting=True,
            files=True,
        )
        given = base_url or os.environ.get(_ADDRESS_VARIABLE)
        self._url = _address(given or _ADDRESS)
        self._own_server = given is not None or client is not None
        self._api_key = api_key
        self._secret: str | None = None
        self._writer = RequestWriter(name, traits)
        self._connection = Connection(
            provider=self.provider,
            model=name,
            headers=self._headers,
            refused=self._refused,
            client=client,
            idle_timeout_seconds=idle_timeout_seconds,
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.provider}:{self.name}>"

    def check(self, request: ModelRequest, /) -> None:
        """Raises `UnsupportedError` for a setting or a file that this provider does not take. Sends nothing."""
        self._writer.check(request)

    async def stream(self, request: ModelRequest, /) -> AsyncGenerator[ModelEvent, None]:
        """One answer. Raises `ModelError` for whatever the network, the server or the answer did wrong."""
        body = self._writer.body(request)
        headers = _extra_headers(request)
        reader = AnswerReader(self.name, self._refused, self._mask)
        for number in range(_MAX_REQUESTS):
            if number:
                body = self._writer.body(request, reader.so_far())
                reader.begin()
            try:
                async with await self._connection.post(self._url, body, headers) as answer:
                    reader.is_document = answer.content_type.endswith(("json", "html"))
                    async for data in answer.chunks:
                        for event in reader.feed(data):
                            yield event
                        if reader.done:
                            break
                    for event in reader.end():
                        yield event
                    await answer.finish()
            except Exception as error:  # noqa: BLE001 - raised again, but for one case
                self._settle(error, reader)
            if not reader.paused:
                break
        yield reader.finish()

    async def count_tokens(self, request: ModelRequest, /) -> int:
        """The input tokens that `request` would use, by the provider's own counter."""
        body = self._writer.counting_body(request)
        path, mark, query = self._url.partition("?")
        try:
            url = f"{path}/count_tokens{mark}{query}"
            async with await self._connection.post(url, body, _extra_headers(request)) as answer:
                found = decode_any(await answer.read())
                await answer.finish()
        except Exception as error:
            if (failure := self._connection.failure(error)) is None:
                raise
            raise failure from error
        count = found.get("input_tokens") if isinstance(found, dict) else None
        if not isinstance(count, int):
            text = f"{self.provider}:{self.name}: the answer holds no token count"
            raise ModelResponseError(text, provider=self.provider, model=self.name)
        return count

    def _settle(self, error: Exception, reader: AnswerReader) -> None:
        """Raises `error`, as ours if it is the network's. Behind the stop reason nothing can be lost."""
        failure = self._connection.failure(error)
        if failure is None:
            raise error
        if not reader.finished:
            raise failure from error

    def _headers(self) -> dict[str, str]:
        headers = {
            "accept": "text/event-stream, application/json",
            "accept-encoding": "identity",
            "anthropic-version": _VERSION,
            "content-type": "application/json",
            "user-agent": "treadle",
        }
        key = (self._api_key or os.environ.get(_KEY_VARIABLE) or "").strip()
        if key:
            if not (key.isascii() and key.isprintable()):
                raise self._key_error("the API key holds characters that a header cannot carry")
            headers["x-api-key"] = self._secret = key
        elif not self._own_server:
            raise self._key_error("no API key")
        return headers

    def _key_error(self, fault: str) -> AuthenticationError:
        text = f"{self.provider}:{self.name}: {fault}: set {_KEY_VARIABLE} or pass api_key"
        return AuthenticationError(text, provider=self.provider, model=self.name)

    def _mask(self, text: str) -> str:
        return masked(text, self._secret)

    def _refused(self, refusal: Refusal) -> ModelError:
        return refusal_error(refusal, self.name, self._secret)


def _extra_headers(request: ModelRequest) -> dict[str, str]:
    """The caller's headers. Hosted MCP needs a beta of its own beside those that the caller asks for."""
    given = {} if request.settings is None else request.settings.extra_headers
    if not request.hosted_mcp:
        return given
    asked = [value for name, value in given.items() if name.lower() == _BETAS]
    others = {name: value for name, value in given.items() if name.lower() != _BETAS}
    return {**others, _BETAS: ",".join([*asked, _MCP_BETA])}


def _address(base_url: str) -> str:
    """Where to post. The address may be given with or without `/v1` and `/messages`."""
    if not re.match(r"https?://[^/?#]", base_url, re.IGNORECASE):
        raise ConfigError(f"base_url must begin with http:// or https://, and is {base_url!r}")
    path, mark, query = base_url.partition("?")
    path = path.rstrip("/").removesuffix("/messages").removesuffix("/v1")
    return f"{path}/v1/messages{mark}{query}"
