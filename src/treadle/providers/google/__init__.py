"""Gemini: the Gemini API by key, and Vertex AI by an httpx2 auth object.

Five parts: the class (here), the request, the stream, usage and stop, errors. What the API really sends was read off
recorded traffic of both, Gemini 2.0 to 3.6, 2026.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec

from treadle.errors import AuthenticationError, ConfigError, ModelError, ModelResponseError
from treadle.model import Capabilities
from treadle.providers._connection import Connection
from treadle.providers._errors import masked, model_error
from treadle.providers.google._request import RequestWriter, generation, model_path
from treadle.providers.google._stream import AnswerReader

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    import httpx2

    from treadle.events import ModelEvent
    from treadle.model import ModelRequest
    from treadle.providers._errors import Refusal

_BASE_URL = "https://generativelanguage.googleapis.com"
_KEYS = ("GEMINI_API_KEY", "GOOGLE_API_KEY")


class _Count(msgspec.Struct, rename="camel"):
    total_tokens: int


class GoogleModel:
    """A Gemini model.

    The key is `GEMINI_API_KEY` or `GOOGLE_API_KEY` unless `api_key` is given. For Vertex AI give `project`, `location`
    (`global` by default) and `auth`, an httpx2 auth object that signs each request. `base_url` may end with a version
    (`.../v1`) or a Vertex publisher (`.../publishers/google`); without one `v1beta` is asked. `client` is used as it
    is and never closed. `idle_timeout_seconds` is how long the server may send nothing. The agent's default output
    limit of 32,000 tokens is not sent: the model keeps its own. The API cannot be told to make one call at a time.
    """

    provider = "google"

    def __init__(
        self,
        name: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        project: str | None = None,
        location: str = "global",
        auth: httpx2.Auth | None = None,
        client: httpx2.AsyncClient | None = None,
        idle_timeout_seconds: float = 120.0,
    ) -> None:
        if not name:
            raise ConfigError("the model has no name: write 'google:' and the name behind it")
        self.name = name
        base = _base(base_url, project, location)
        self._url = f"{base}/{quote(model_path(name), safe='/@-._~')}"
        self._signed = auth is not None
        self._own_server = base_url is not None or client is not None
        self.capabilities: Capabilities = _capabilities(name)
        self._api_key = api_key
        self._secret: str | None = None
        self._writer = RequestWriter(self.provider, name, vertex="/publishers/" in base)
        self._connection = Connection(
            provider=self.provider,
            model=name,
            headers=self._headers,
            refused=self._refused,
            client=client,
            idle_timeout_seconds=idle_timeout_seconds,
            auth=auth,
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
        url = f"{self._url}:streamGenerateContent?alt=sse"
        try:
            async with await self._connection.post(url, body, _extra_headers(request)) as answer:
                reader.is_document = answer.content_type.endswith(("json", "html"))
                async for data in answer.chunks:
                    for event in reader.feed(data):
                        yield event
                for event in reader.end():
                    yield event
                await answer.finish()
        except Exception as error:
            failure = self._connection.failure(error)
            if failure is None:
                raise
            if not reader.finished:  # behind the finish reason only the usage may be lost
                raise failure from error
        for event in reader.conclude():
            yield event
        yield reader.finish()

    async def count_tokens(self, request: ModelRequest, /) -> int:
        """The input tokens of the request, by Google's own counter."""
        body = self._writer.count_body(request)
        try:
            async with await self._connection.post(f"{self._url}:countTokens", body, _extra_headers(request)) as answer:
                found = await answer.read()
                await answer.finish()
        except Exception as error:
            if (failure := self._connection.failure(error)) is None:
                raise
            raise failure from error
        try:
            return msgspec.json.decode(found, type=_Count).total_tokens
        except msgspec.DecodeError as error:
            text = f"{self.provider}:{self.name}: the answer tells no totalTokens"
            raise ModelResponseError(text, provider=self.provider, model=self.name, retryable=True) from error

    def _headers(self) -> dict[str, str]:
        headers = {
            "accept": "text/event-stream, application/json",
            "accept-encoding": "identity",
            "content-type": "application/json",
            "user-agent": "treadle",
        }
        found = [self._api_key, *map(os.environ.get, () if self._signed else _KEYS)]
        key = next((key.strip() for key in found if key and key.strip()), "")
        if key:
            if not (key.isascii() and key.isprintable()):
                raise self._key_error("the API key holds characters that a header cannot carry")
            headers["x-goog-api-key"] = key
            self._secret = key
        elif not (self._own_server or self._signed):
            raise self._key_error("no API key")
        return headers

    def _key_error(self, fault: str) -> AuthenticationError:
        text = f"{self.provider}:{self.name}: {fault}: set {' or '.join(_KEYS)}, or pass api_key"
        return AuthenticationError(text, provider=self.provider, model=self.name)

    def _mask(self, text: str) -> str:
        return masked(text, self._secret)

    def _refused(self, refusal: Refusal) -> ModelError:
        hint = "check the model name and base_url" if refusal.status == 404 else ""
        return model_error(refusal, provider=self.provider, model=self.name, hint=hint, secret=self._secret)


def _extra_headers(request: ModelRequest) -> dict[str, str] | None:
    return request.settings.extra_headers if request.settings is not None else None


def _capabilities(name: str) -> Capabilities:
    """Before Gemini 3 there are budgets and no efforts, and no output schema beside tools."""
    number = generation(name)
    modern = number is None or number >= 3
    return Capabilities(
        tools=True,
        reasoning=True,
        effort=modern,
        min_reasoning_budget=0,
        hosted_web_search=True,
        output_schema=modern,
        token_counting=True,
        files=True,
    )


def _base(base_url: str | None, project: str | None, location: str) -> str:
    """What stands before `/models/...`."""
    if project is not None:
        if base_url is None:
            host = "aiplatform" if location == "global" else f"{location}-aiplatform"
            base_url = f"https://{host}.googleapis.com"
        version = "" if re.search(r"/v\d\w*/?$", base_url) else "/v1beta1"
        place = f"projects/{quote(project)}/locations/{quote(location)}"
        base_url = f"{base_url.rstrip('/')}{version}/{place}/publishers/google"
    url = (base_url or _BASE_URL).rstrip("/")
    if not re.match(r"https?://[^/?#]", url, re.IGNORECASE):
        raise ConfigError(f"base_url must begin with http:// or https://, and is {base_url!r}")
    return url if re.search(r"/v\d\w*(/|$)", url) else f"{url}/v1beta"
