"""Chat Completions: OpenAI and everything that speaks like it.

Five parts: the class (here), the request, the stream, usage and stop, errors. What servers really send was read off
recorded traffic of OpenAI, Azure, Groq, Mistral, DeepSeek, Ollama, llama.cpp, OpenRouter, xAI, Cerebras, Perplexity,
Snowflake, Together, Z.ai, Moonshot and Alibaba, 2026.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.model import Capabilities
from treadle.providers._endpoint import Endpoint, base_address, below, for_model
from treadle.providers.openai_chat._dialects import DIALECTS, Dialect
from treadle.providers.openai_chat._errors import PromptBlocked, refusal_error
from treadle.providers.openai_chat._request import RequestWriter
from treadle.providers.openai_chat._stream import AnswerReader

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    import httpx2

    from treadle.events import ModelEvent
    from treadle.model import ModelRequest


class OpenAIChatModel:
    """A model behind Chat Completions.

    `provider` names a row of the dialect table, or anything else where `base_url` says who is asked. The key is the
    row's environment variable unless `api_key` is given; a server of one's own needs none. `client` is used as it is
    and never closed. `idle_timeout_seconds` is how long the server may send nothing. The agent's default output limit
    of 32,000 tokens is not sent, since many models take less: they keep their own.
    """

    def __init__(
        self,
        name: str,
        *,
        provider: str = "openai-chat",
        base_url: str | None = None,
        api_key: str | None = None,
        auth: httpx2.Auth | None = None,
        client: httpx2.AsyncClient | None = None,
        idle_timeout_seconds: float = 120.0,
        dialect: Dialect | None = None,
    ) -> None:
        self.provider = provider
        self.name = name
        row = dialect if dialect is not None else DIALECTS.get(provider, Dialect())
        self._dialect = for_model(row, name, row.models)
        self.capabilities: Capabilities = _capabilities(self._dialect)
        self._url, own_server = _address(provider, base_url, self._dialect)
        self._writer = RequestWriter(provider, name, self._dialect)
        self._endpoint = Endpoint(
            provider,
            name,
            key=self._dialect.key,
            refusal_error=lambda refusal, key: refusal_error(refusal, provider, name, self._dialect, key),
            headers=self._dialect.headers,
            own_server=own_server,
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
        reader = AnswerReader(
            self.provider, self.name, request.max_output_tokens, self._endpoint.refused, self._endpoint.mask
        )
        extra_headers = request.settings.extra_headers if request.settings is not None else None
        try:
            async with await self._endpoint.connection.post(self._url, body, extra_headers) as answer:
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
        yield self._endpoint.kept(reader.finish)

    def _settle(self, error: Exception, reader: AnswerReader) -> None:
        """Raises `error`, as ours if it is the network's. Some ends of an answer are none, and let it finish."""
        if isinstance(error, PromptBlocked):
            reader.block(str(error))
            return
        self._endpoint.settle(error, ended=reader.finished)  # behind the finish reason only the usage may be lost


def _capabilities(dialect: Dialect) -> Capabilities:
    return Capabilities(
        tools=dialect.tools,
        reasoning=dialect.reasoning,
        effort=dialect.effort,
        min_reasoning_budget=dialect.min_reasoning_budget,
        hosted_web_search=dialect.web_search is not None,
        output_schema=dialect.output_schema,
        cost=dialect.cost,
        files=bool(dialect.files),
    )


def _address(provider: str, base_url: str | None, dialect: Dialect) -> tuple[str, bool]:
    """Where to post, and whether that is a server of the caller's instead of the provider's."""
    url, own_server = base_address(
        provider,
        base_url,
        variables=dialect.base_url_variables,
        default=dialect.base_url,
        bare_path=dialect.bare_path,
    )
    return below(url, "/chat/completions", without=("/chat/completions",)), own_server
