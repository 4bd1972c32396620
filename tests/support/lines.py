"""A whole model for a wire format of our own: JSON lines over HTTP, by httpx2 and public names alone.

What an outsider would write. Its parts are small methods, so that tests can break one rule at a time.
"""

from __future__ import annotations

import asyncio
import json
import os
import weakref
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx2

from treadle import (
    AssistantMessage,
    AuthenticationError,
    Capabilities,
    ContextOverflowError,
    InvalidRequestError,
    ModelConnectionError,
    ModelFinish,
    ModelRef,
    ModelRequestsDenied,
    ModelSettings,
    OverloadedError,
    ProviderPart,
    RateLimitError,
    ReasoningDelta,
    ReasoningPart,
    StopReason,
    StreamIdleError,
    TextDelta,
    TextPart,
    ToolCallDelta,
    ToolCallPart,
    ToolFinish,
    ToolMessage,
    ToolResultPart,
    ToolStart,
    UnsupportedError,
    Usage,
    UserMessage,
)
from treadle.testing.conformance import Answer, Reply, TokenCount

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from treadle import Message, ModelError, ModelEvent, ModelRequest
    from treadle.testing.conformance import Spoken

COUNTS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens", "cost_usd")
STOPS = {stop.value for stop in StopReason}
KINDS: dict[str, type[ModelError]] = {
    "key": AuthenticationError,
    "invalid": InvalidRequestError,
    "too_long": ContextOverflowError,
    "slow_down": RateLimitError,
    "overloaded": OverloadedError,
}


class LinesModel:
    """Asks with one JSON object, and is answered with one JSON object a line."""

    provider = "lines"
    name = "first"
    capabilities = Capabilities(
        reasoning=True,
        effort=True,
        min_reasoning_budget=10,
        hosted_mcp=True,
        hosted_web_search=True,
        output_schema=True,
        cost=True,
        token_counting=True,
        files=True,
    )

    def __init__(self, url: str, key: str, idle_timeout_seconds: float) -> None:
        self._url, self._key, self._idle = url, key, idle_timeout_seconds
        self._clients: weakref.WeakKeyDictionary[Any, httpx2.AsyncClient] = weakref.WeakKeyDictionary()

    async def aclose(self) -> None:
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()

    def check(self, request: ModelRequest, /) -> None:
        if request.settings is not None and request.settings.seed is not None:
            raise UnsupportedError("lines:first takes no seed", model="lines:first", feature="seed")

    async def stream(self, request: ModelRequest, /) -> AsyncIterator[ModelEvent]:
        reader = self.reader()
        try:
            async with self.open("answer", request) as response:
                await self.check_status(response)
                async for line in self.lines(response):
                    for event in reader.read(line):
                        yield event
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            raise self.connection_error(error) from error
        yield reader.finish()

    async def count_tokens(self, request: ModelRequest, /) -> int:
        async with self.open("count", request) as response:
            found: int = json.loads(await response.aread())["tokens"]
            return found

    # Out

    @asynccontextmanager
    async def open(self, path: str, request: ModelRequest) -> AsyncIterator[httpx2.Response]:
        self.check_allowed()
        settings = request.settings or ModelSettings()
        headers = {"authorization": f"Bearer {self._key}", **settings.extra_headers}
        client = self.client()
        sent = client.build_request("POST", f"{self._url}/{path}", content=self.body(request), headers=headers)
        response = await client.send(sent, stream=True)
        try:
            yield response
        finally:
            await self.close(response)

    def client(self) -> httpx2.AsyncClient:
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            limits = httpx2.Limits(max_connections=None, max_keepalive_connections=8)
            timeout = httpx2.Timeout(None, read=self._idle)
            # Without certificates, which take 30 ms to load: this model is for loopback.
            self._clients[loop] = httpx2.AsyncClient(timeout=timeout, limits=limits, trust_env=False, verify=False)
        return self._clients[loop]

    async def close(self, response: httpx2.Response) -> None:
        await response.aclose()

    def check_allowed(self) -> None:
        if os.environ.get("TREADLE_MODEL_REQUESTS") == "deny":
            raise ModelRequestsDenied("model requests are switched off")

    def body(self, request: ModelRequest) -> bytes:
        reasoning, settings = request.reasoning, request.settings or ModelSettings()
        body = {
            "say": [item for message in request.messages for item in self.written(message)],
            "instructions": request.instructions,
            "tools": [[spec.name, spec.description, spec.input_schema] for spec in request.tools],
            "schema": request.output_schema,
            "limit": request.max_output_tokens,
            "think": None if reasoning is None else [reasoning.effort, reasoning.budget_tokens],
            "hosted": [[server.name, server.url, server.token, server.allowed_tools] for server in request.hosted_mcp],
            "search": request.hosted_web_search,
            **settings.extra_body,
        }
        return json.dumps(body).encode("ascii").replace(b"\\ud800", b"\\ufffd")

    def written(self, message: Message) -> Iterator[Any]:
        if isinstance(message, ToolMessage):
            for result in message.results:
                yield {"result": result.call_id, "content": text_of(result.content), "failed": result.is_error}
            return
        own = isinstance(message, AssistantMessage) and message.model == ModelRef(self.provider, self.name)
        for part in message.content:
            match part:
                case TextPart(text=text):
                    yield {"user" if isinstance(message, UserMessage) else "text": text_of(text)}
                case ToolCallPart(hosted=False, finished=True):
                    yield {"call": part.id, "name": part.name, "args": part.args.strip() or "{}"}
                case ToolCallPart(hosted=False):
                    yield {"text": f"[cut off: {part.name} {part.args}]"}
                case ReasoningPart(text=text, signature=signature) if own:
                    yield {"thought": text, "signature": signature}
                case ProviderPart(data=data) if own:
                    yield {"sealed": data}
                case _ if isinstance(message, UserMessage):
                    yield {"file": part.data, "type": part.media_type}

    # In

    def reader(self) -> Reader:
        return Reader()

    async def lines(self, response: httpx2.Response) -> AsyncIterator[dict[str, Any]]:
        rest = b""
        async for data in response.aiter_raw():
            *whole, rest = (rest + data).split(b"\n")
            for line in whole:
                yield json.loads(line)

    async def check_status(self, response: httpx2.Response) -> None:
        if response.status_code == 200:
            return
        try:
            told = json.loads(await response.aread())
        except ValueError:
            told = None
        told = told if isinstance(told, dict) else {}
        wait = response.headers.get("retry-after")
        kind = KINDS.get(told.get("kind", ""), OverloadedError)
        raise self.error(
            kind,
            told.get("says") or "no reason given",
            status=response.status_code,
            retry_after_seconds=None if wait is None else float(wait),
        )

    def connection_error(self, error: Exception) -> ModelError:
        if isinstance(error, httpx2.ReadTimeout):
            return self.error(StreamIdleError, "nothing came")
        return self.error(ModelConnectionError, f"the connection broke: {' '.join(str(error).split())}")

    def error(self, kind: type[ModelError], text: str, **more: Any) -> ModelError:
        return kind(f"lines:first: {text}", provider=self.provider, model=self.name, **more)


def text_of(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class Reader:
    """Gathers one answer out of its lines."""

    def __init__(self) -> None:
        self.parts: list[Any] = []
        self.calls: list[int] = []
        self.usage: Usage | None = None
        self.stop: tuple[StopReason, str] | None = None
        self.hosted = 0

    def read(self, line: dict[str, Any]) -> Iterator[ModelEvent]:  # noqa: C901 - one line for each kind of line
        match line:
            case {"text": text}:
                self.add(TextPart, text)
                yield TextDelta(text)
            case {"thought": text}:
                self.add(ReasoningPart, text)
                yield ReasoningDelta(text)
            case {"signature": signature}:
                self.parts[-1] = ReasoningPart(self.parts[-1].text, signature)
            case {"sealed": [kind, data]}:
                self.parts.append(ProviderPart("lines", kind, data))
            case {"call": call_id, "name": name}:
                self.calls.append(len(self.parts))
                self.parts.append(ToolCallPart(call_id, name, "", finished=False))
                yield ToolCallDelta(len(self.calls) - 1, call_id, name, "")
            case {"args": args}:
                yield self.add_args(args)
            case {"called": _}:
                self.finish_call()
            case {"hosted": [call_id, name, args, content]}:
                yield from self.take_hosted(ToolCallPart(call_id, name, args, hosted=True), content)
            case {"usage": counts}:
                self.usage = Usage(*counts)
            case {"stop": word}:
                self.stop = (StopReason(word) if word in STOPS else StopReason.OTHER, word)
            case {"kind": kind, "says": says}:
                raise KINDS[kind](f"lines:first: {says}", provider="lines", model="first")

    def add(self, kind: type[Any], text: str) -> None:
        if self.parts and type(self.parts[-1]) is kind:
            text = self.parts.pop().text + text
        self.parts.append(kind(text))

    def add_args(self, args: str) -> ModelEvent:
        call = self.parts[self.calls[-1]]
        self.parts[self.calls[-1]] = ToolCallPart(call.id, call.name, call.args + args, finished=False)
        return ToolCallDelta(len(self.calls) - 1, call.id, call.name, args)

    def finish_call(self) -> None:
        call = self.parts[self.calls[-1]]
        self.parts[self.calls[-1]] = ToolCallPart(call.id, call.name, call.args)

    def take_hosted(self, call: ToolCallPart, content: str) -> Iterator[ModelEvent]:
        result = ToolResultPart(call.id, call.name, content, hosted=True)
        self.parts += [call, result]
        yield ToolStart(call.id, self.hosted, call.name, call.args, hosted=True)
        yield ToolFinish(call.id, self.hosted, call.name, result)
        self.hosted += 1

    def finish(self) -> ModelFinish:
        if self.stop is None:
            raise ModelConnectionError(
                "lines:first: the stream ended before the answer", provider="lines", model="first"
            )
        stop, word = self.stop
        if self.calls and stop is StopReason.END:
            stop = StopReason.TOOL_CALLS
        message = AssistantMessage(self.parts, stop, ModelRef("lines", "first"))
        return ModelFinish(message, self.usage, stop, word, ModelRef("lines", "first"))


# The server's side, as the suite wants it said


def lines_wire(spoken: Spoken) -> Reply:
    if isinstance(spoken, TokenCount):
        return _reply({"tokens": spoken.tokens})
    if isinstance(spoken, Answer):
        return _reply(*_answer_lines(spoken))
    kind = next(word for word, kind in KINDS.items() if kind is spoken.error)
    refusal = {"kind": kind, "says": spoken.message}
    if spoken.in_stream:
        return _reply(*({"text": text} for text in spoken.after), refusal)
    return Reply((json.dumps(refusal).encode(),), spoken.status)


def _reply(*lines: Any) -> Reply:
    return Reply(tuple(json.dumps(line, ensure_ascii=False).encode() + b"\n" for line in lines))


def _answer_lines(answer: Answer) -> Iterator[Any]:
    results = {piece.call_id: piece.content for piece in answer.pieces if isinstance(piece, ToolResultPart)}
    for piece in answer.pieces:
        match piece:
            case str():
                yield {"text": piece}
            case ReasoningPart(text=text, signature=signature):
                yield {"thought": text[:5]}
                yield {"thought": text[5:]}
                yield {"signature": signature}
            case ProviderPart(kind=kind, data=data):
                yield {"sealed": [kind, data]}
            case ToolCallPart(hosted=True):
                yield {"hosted": [piece.id, piece.name, piece.args, results[piece.id]]}
            case ToolCallPart():
                yield {"call": piece.id, "name": piece.name}
                yield {"args": piece.args[:4]}
                yield {"args": piece.args[4:]}
                yield from [{"called": piece.id}] * piece.finished
    if answer.usage is not None:
        yield {"usage": [getattr(answer.usage, name) for name in COUNTS]}
    yield {"stop": "martian" if answer.stop is StopReason.OTHER else answer.stop.value}
