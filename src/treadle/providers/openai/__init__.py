"""The Responses API: OpenAI and those who speak like it.

Five parts: the class (here), the request, the stream, usage and stop, errors. What servers really send was read off
recorded traffic of OpenAI, Azure, xAI, DeepSeek, OpenRouter and LM Studio, 2026.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from treadle.errors import AuthenticationError, ConfigError, ModelError, ModelResponseError
from treadle.model import Capabilities
from treadle.providers._connection import Connection
from treadle.providers._errors import masked
from treadle.providers.openai._dialects import DIALECTS, Dialect
from treadle.providers.openai._errors import Blocked, refusal_error
from treadle.providers.openai._request import RequestWriter
from treadle.providers.openai._stream import AnswerReader
from treadle.providers.openai._wire import lenient

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    import httpx2

    from treadle.events import ModelEvent
    from treadle.model import ModelRequest
    from treadle.providers._errors import Refusal


class OpenAIModel:
    """A model behind the Responses API. Nothing is stored at the vendor: the whole conversation goes with each request.

    `provider` names a row of the dialect table, or anything else where `base_url` says who is asked. The key is the
    row's environment variable unless `api_key` is given; a server of one's own needs none. `client` is used as it is
    and never closed. `idle_timeout_seconds` is how long the server may send nothing. The agent's default output limit
    of 32,000 tokens is not sent, since many models take less: they keep their own.
    """

    def __init__(
        self,
        name: str,
        *,
        provider: str = "openai",
        base_url: str | None = None,
        api_key: str | None = None,
        client: httpx2.AsyncClient | None = None,
        idle_timeout_seconds: float = 120.0,
        dialect: Dialect | None = None,
    ) -> None:
        if not name:
            raise ConfigError(f"the model has no name: write '{provider}:' and the name behind it")
        self.provider = provider
        self.name = name
        self._dialect = dialect if dialect is not None else DIALECTS.get(provider, Dialect())
        self.capabilities: Capabilities = _capabilities(name, self._dialect)
        self._url, self._own_server = _address(provider, base_url, self._dialect)
        self._own_server = self._own_server or client is not None
        self._api_key = api_key
        self._secret: str | None = None
        self._writer = RequestWriter(provider, name, self._dialect)
        self._connection = Connection(
            provider=provider,
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
        """One request. Raises `ModelError` for whatever the network, the server or the answer did wrong."""
        body = self._writer.body(request)
        reader = AnswerReader(self.provider, self.name, self._refused, self._mask)
        extra_headers = request.settings.extra_headers if request.settings is not None else None
        try:
            async with await self._connection.post(self._url, body, extra_headers) as answer:
                reader.is_document = answer.content_type.endswith(("json", "html"))
                async for data in answer.chunks:
                    for event in reader.feed(data):
                        yield event
                    if reader.done:
                        break
                for event in reader.end():
                    yield event
                await answer.finish()
        except Exception as error:  # noqa: BLE001 - settled there, most of them raised again
            self._settle(error, reader)
        yield reader.finish()

    async def count_tokens(self, request: ModelRequest, /) -> int:
        """The input tokens that `request` would use, by the provider's own counter."""
        body = self._writer.body(request, counting=True)
        path, mark, query = self._url.partition("?")
        extra_headers = request.settings.extra_headers if request.settings is not None else None
        try:
            url = f"{path}/input_tokens{mark}{query}"
            async with await self._connection.post(url, body, extra_headers) as answer:
                found = lenient(await answer.read())
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
        """Raises `error`, as ours if it is the network's. A filter's refusal is none, and lets the answer finish."""
        if isinstance(error, Blocked):
            reader.block(str(error))
            return
        failure = self._connection.failure(error)
        if failure is None:
            raise error
        if not reader.done:
            raise failure from error

    def _headers(self) -> dict[str, str]:
        headers = {
            "accept": "text/event-stream, application/json",
            "accept-encoding": "identity",
            "content-type": "application/json",
            "user-agent": "treadle",
        }
        variable = self._dialect.key_variable
        key = (self._api_key or (os.environ.get(variable) if variable else None) or "").strip()
        if key:
            if not (key.isascii() and key.isprintable()):
                raise self._key_error("the API key holds characters that a header cannot carry")
            headers["authorization"] = f"Bearer {key}"
            self._secret = key
        elif self._dialect.key_required and not self._own_server:
            raise self._key_error("no API key")
        return headers

    def _key_error(self, fault: str) -> AuthenticationError:
        where = f"set {self._dialect.key_variable} or pass api_key" if self._dialect.key_variable else "pass api_key"
        return AuthenticationError(
            f"{self.provider}:{self.name}: {fault}: {where}", provider=self.provider, model=self.name
        )

    def _mask(self, text: str) -> str:
        return masked(text, self._secret)

    def _refused(self, refusal: Refusal) -> ModelError:
        return refusal_error(refusal, self.provider, self.name, self._dialect, self._secret)


def _capabilities(name: str, dialect: Dialect) -> Capabilities:
    reasons = dialect.reasons(name)
    return Capabilities(
        tools=True,
        reasoning=reasons,
        effort=reasons,
        hosted_mcp=dialect.hosted_mcp,
        hosted_web_search=dialect.hosted_web_search,
        output_schema=True,
        cost=dialect.cost,
        token_counting=dialect.token_counting,
        files=bool(dialect.files),
    )


def _address(provider: str, base_url: str | None, dialect: Dialect) -> tuple[str, bool]:
    """Where to post, and whether that is the caller's choice and not the provider's own address."""
    variable = dialect.base_url_variable
    given = base_url or (os.environ.get(variable) if variable else None)
    url = given or dialect.base_url
    if url is None:
        hint = f" or set {variable}" if variable else ""
        raise ConfigError(f"{provider!r} has no known address: pass base_url='https://...'{hint}")
    if not re.match(r"https?://[^/?#]", url, re.IGNORECASE):
        raise ConfigError(f"base_url must begin with http:// or https://, and is {url!r}")
    path, mark, query = url.partition("?")
    path = path.rstrip("/").removesuffix("/responses")
    return f"{path}/responses{mark}{query}", bool(given)
