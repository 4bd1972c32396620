"""Gemini: the Gemini API by key, and Vertex AI by project and token.

Five parts: the class (here), the request, the stream, usage and stop, errors. What the API really sends was read off
recorded traffic of both, Gemini 2.0 to 3.6, 2026.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote

from treadle.model import Capabilities
from treadle.providers._endpoint import Endpoint, Key, base_address
from treadle.providers._errors import model_error
from treadle.providers._vertex import sign_for_google, vertex_address
from treadle.providers.google._models import traits_of
from treadle.providers.google._request import RequestWriter, model_path
from treadle.providers.google._stream import AnswerReader

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    import httpx2

    from treadle.errors import ModelError
    from treadle.events import ModelEvent
    from treadle.model import ModelRequest
    from treadle.providers._errors import Refusal

_BASE_URL = "https://generativelanguage.googleapis.com"
_KEY = Key(variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"), required=True, header="x-goog-api-key", prefix="")
_VERTEX_KEY = Key(header="x-goog-api-key", prefix="", sign=sign_for_google)


class GoogleModel:
    """A Gemini model.

    The key is `GEMINI_API_KEY` or `GOOGLE_API_KEY` unless `api_key` is given. For Vertex AI give `project` and
    `location`: then `auth` signs each request, by default `google_auth()`; `treadle.providers.google.vertex` has a
    function that looks them up. `base_url` may end with a version (`.../v1`) or a Vertex publisher
    (`.../publishers/google`); without one `v1beta` is asked. `client` is used as it is and never closed.
    `idle_timeout_seconds` is how long the server may send nothing. The agent's default output limit of 32,000 tokens is
    not sent: the model keeps its own. The API cannot be told to make one call at a time.
    """

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
        base = _base(base_url, project, location)
        # Whether each takes the other's thought signatures is not told (2026-11), so they are two providers.
        self.provider: str = "google-vertex" if "/publishers/" in base else "google"
        self.name = name
        self._url = f"{base}/{quote(model_path(name), safe='/@-._~')}"
        self.capabilities: Capabilities = _capabilities(name)
        self._writer = RequestWriter(self.provider, name, vertex="/publishers/" in base)
        self._endpoint = Endpoint(
            self.provider,
            name,
            key=_KEY if project is None else _VERTEX_KEY,
            refusal_error=self._refusal_error,
            own_server=base_url is not None,
            api_key=api_key,
            auth=auth,
            client=client,
            idle_timeout_seconds=idle_timeout_seconds,
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.provider}:{self.name}>"

    def check(self, request: ModelRequest, /) -> None:
        """Raises one `UnsupportedError` that names everything which this model does not take. Sends nothing."""
        self._writer.check(request)

    async def stream(self, request: ModelRequest, /) -> AsyncGenerator[ModelEvent, None]:
        """One request. Raises `ModelError` for whatever the network, the server or the answer did wrong."""
        body = self._writer.body(request)
        reader = AnswerReader(self.provider, self.name, self._endpoint.refused, self._endpoint.mask)
        url = f"{self._url}:streamGenerateContent?alt=sse"
        try:
            async with await self._endpoint.connection.post(url, body, _extra_headers(request)) as answer:
                reader.is_document = answer.content_type.endswith(("json", "html"))
                async for data in answer.chunks:
                    for event in reader.feed(data):
                        yield event
                for event in reader.end():
                    yield event
                await answer.finish()
        except Exception as error:  # noqa: BLE001 - raised again, unless only the usage may be lost
            self._endpoint.settle(error, ended=reader.finished)
        for event in self._endpoint.kept(reader.conclude):
            yield event
        yield self._endpoint.kept(reader.finish)

    async def count_tokens(self, request: ModelRequest, /) -> int:
        """The input tokens of the request, by Google's own counter."""
        body = self._writer.count_body(request)
        return await self._endpoint.count(f"{self._url}:countTokens", body, _extra_headers(request), "totalTokens")

    def _refusal_error(self, refusal: Refusal, key: str | None) -> ModelError:
        hint = "check the model name and base_url" if refusal.status == 404 else ""
        return model_error(refusal, provider=self.provider, model=self.name, hint=hint, secret=key)


def _extra_headers(request: ModelRequest) -> dict[str, str] | None:
    return request.settings.extra_headers if request.settings is not None else None


def _capabilities(name: str) -> Capabilities:
    """Before Gemini 3 there are budgets and no efforts, and no output schema beside tools."""
    traits = traits_of(name)
    return Capabilities(
        tools=traits.tools,
        reasoning=traits.reasoning,
        effort=traits.reasoning and traits.modern,
        min_reasoning_budget=traits.min_reasoning_budget if traits.reasoning else None,
        hosted_web_search=True,
        output_schema=traits.modern,
        token_counting=True,
        files=True,
    )


def _base(base_url: str | None, project: str | None, location: str) -> str:
    """What stands before `/models/...`."""
    if project is not None:
        base_url = base_url or vertex_address(location)
        version = "" if re.search(r"/v\d\w*/?$", base_url) else "/v1beta1"
        place = f"projects/{quote(project)}/locations/{quote(location)}"
        base_url = f"{base_url.rstrip('/')}{version}/{place}/publishers/google"
    url, _ = base_address("google", base_url, default=_BASE_URL)
    url = url.rstrip("/")
    return url if re.search(r"/v\d\w*(/|$)", url) else f"{url}/v1beta"
