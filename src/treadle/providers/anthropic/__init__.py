"""Messages: the API of Anthropic's Claude models.

Five parts: the class (here), the request, the stream, usage and stop, errors. What the server really sends was read off
recorded traffic, 2025 and 2026.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from treadle.model import Capabilities
from treadle.providers._endpoint import Endpoint, base_address, below
from treadle.providers.anthropic._errors import refusal_error
from treadle.providers.anthropic._models import MIN_BUDGET, traits_of
from treadle.providers.anthropic._platform import ANTHROPIC, Platform
from treadle.providers.anthropic._request import RequestWriter
from treadle.providers.anthropic._stream import AnswerReader

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    import httpx2

    from treadle.events import ModelEvent
    from treadle.model import ModelRequest

_VERSION = "2023-06-01"
_BETAS = "anthropic-beta"
_MCP_BETA = "mcp-client-2025-11-20"
_MAX_REQUESTS = 20  # for one answer: a turn with many hosted calls is paused again and again


class AnthropicModel:
    """A Claude model behind the Messages API.

    The key is `ANTHROPIC_API_KEY` unless `api_key` is given, the address `ANTHROPIC_BASE_URL` unless `base_url` is; a
    server of one's own needs no key. `client` is used as it is and never closed. `idle_timeout_seconds` is how long the
    server may send nothing. A turn that the server pauses is gone on with inside `stream`: one answer, its usage added
    up. For other clouds there are `vertex_model` and `bedrock_model` in `treadle.providers.anthropic.clouds`.
    """

    def __init__(
        self,
        name: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        auth: httpx2.Auth | None = None,
        client: httpx2.AsyncClient | None = None,
        idle_timeout_seconds: float = 120.0,
        platform: Platform = ANTHROPIC,
    ) -> None:
        self.provider: str = platform.provider
        self.name = name
        traits = traits_of(name)
        traits = msgspec.structs.replace(traits, output_schema=traits.output_schema and platform.output_schema)
        self.capabilities: Capabilities = Capabilities(
            reasoning=traits.reasoning,
            effort=traits.effort,
            min_reasoning_budget=MIN_BUDGET if traits.budget else None,
            hosted_mcp=platform.hosted_mcp,
            hosted_web_search=platform.hosted_web_search,
            output_schema=traits.output_schema,
            token_counting=True,
            files=True,
        )
        url, chosen = base_address(
            self.provider, base_url, variables=platform.base_url_variables, default=platform.base_url
        )
        self._url = below(url, platform.path, without=platform.endings)
        self._counting_url = below(url, platform.counting_path, without=platform.endings)
        self._writer = RequestWriter(name, traits, platform)
        self._endpoint = Endpoint(
            self.provider,
            name,
            key=platform.key,
            refusal_error=lambda refusal, key: refusal_error(refusal, name, key, platform),
            headers={} if platform.version else {"anthropic-version": _VERSION},
            own_server=chosen,
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
        """One answer. Raises `ModelError` for whatever the network, the server or the answer did wrong."""
        body = self._writer.body(request)
        headers = _extra_headers(request)
        reader = AnswerReader(self.name, self._endpoint.refused, self._endpoint.mask, self.provider)
        for number in range(_MAX_REQUESTS):
            if number:
                body = self._writer.body(request, reader.so_far())
                reader.begin()
            try:
                async with await self._endpoint.connection.post(self._url, body, headers) as answer:
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
                self._endpoint.settle(error, ended=reader.finished)
            if not reader.paused:
                break
        yield self._endpoint.kept(reader.finish)

    async def count_tokens(self, request: ModelRequest, /) -> int:
        """The input tokens that `request` would use, by the provider's own counter."""
        body = self._writer.counting_body(request)
        return await self._endpoint.count(self._counting_url, body, _extra_headers(request), "input_tokens")


def _extra_headers(request: ModelRequest) -> dict[str, str]:
    """The caller's headers. Hosted MCP needs a beta of its own beside those that the caller asks for."""
    given = {} if request.settings is None else request.settings.extra_headers
    if not request.hosted_mcp:
        return given
    asked = [value for name, value in given.items() if name.lower() == _BETAS]
    others = {name: value for name, value in given.items() if name.lower() != _BETAS}
    return {**others, _BETAS: ",".join([*asked, _MCP_BETA])}
