"""Chat Completions: OpenAI and everything that speaks like it.

Five parts: the class, the request, the stream, usage and stop, errors. What servers really send was read off recorded
traffic of OpenAI, Azure, Groq, Mistral, DeepSeek, Ollama, llama.cpp, OpenRouter, xAI, Cerebras, Perplexity, Snowflake,
Together, Z.ai, Moonshot and Alibaba, 2026.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from typing import TYPE_CHECKING, Any

import msgspec

from treadle.errors import (
    AuthenticationError,
    ConfigError,
    ContextOverflowError,
    ModelConnectionError,
    ModelError,
    ModelResponseError,
    OverloadedError,
    UnsupportedError,
)
from treadle.events import ModelFinish, ReasoningDelta, TextDelta, ToolCallDelta
from treadle.messages import (
    AssistantMessage,
    Citation,
    ModelRef,
    ProviderPart,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolMessage,
    UserMessage,
    clean,
    encodable,
)
from treadle.model import Capabilities
from treadle.providers._call_pieces import CallPieces, OpenCall, is_cut, is_object
from treadle.providers._chat_wire import CallPiece, Choice, Chunk, Delta, Function, decode_chunk
from treadle.providers._connection import Connection, EventSplitter
from treadle.providers._dialects import DIALECTS, Dialect
from treadle.providers._errors import Refusal, model_error, one_line, page_summary, refusal_in
from treadle.providers._output_schema import strict_schema
from treadle.providers._rendered import RenderedMessages, encode
from treadle.usage import StopReason, Usage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable

    import httpx2

    from treadle.events import ModelEvent
    from treadle.messages import AssistantPart, FilePart, Message, ToolResultPart
    from treadle.model import ModelRequest, ModelSettings, ToolSpec


# The class


class OpenAIChatModel:
    """A model behind Chat Completions.

    `provider` names a row of the dialect table, or anything else where `base_url` says who is asked. The key is the
    row's environment variable unless `api_key` is given; a server of one's own needs none. `client` is used as it is
    and never closed. `idle_timeout_seconds` is how long the server may send nothing.
    """

    def __init__(
        self,
        name: str,
        *,
        provider: str = "openai-chat",
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
        self.capabilities = _capabilities(self._dialect)
        self._url, self._own_server = _address(provider, base_url, self._dialect)
        self._own_server = self._own_server or client is not None
        self._api_key = api_key
        self._secret: str | None = None
        self._writer = _Writer(provider, name, self._dialect)
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

    async def stream(self, request: ModelRequest, /) -> AsyncGenerator[ModelEvent, None]:
        """One request. Raises `ModelError` for whatever the network, the server or the answer did wrong."""
        body = self._writer.body(request)
        reader = _Reader(self.provider, self.name, request.max_output_tokens, self._refused)
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

    def _settle(self, error: Exception, reader: _Reader) -> None:
        """Raises `error`, as ours if it is the network's. Some ends of an answer are none, and let it finish."""
        if isinstance(error, _PromptBlocked):
            reader.block(str(error))
            return
        failure = self._connection.failure(error)
        if failure is None:
            raise error
        if not reader.finished:  # behind the finish reason only the usage may be lost
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

    def _refused(self, refusal: Refusal) -> ModelError:
        return _refusal_error(refusal, self.provider, self.name, self._dialect, self._secret)


def _capabilities(dialect: Dialect) -> Capabilities:
    return Capabilities(
        tools=True,
        reasoning=dialect.reasoning,
        effort=dialect.effort,
        output_schema=dialect.output_schema,
        cost=dialect.cost,
        files=bool(dialect.files),
    )


def _address(provider: str, base_url: str | None, dialect: Dialect) -> tuple[str, bool]:
    """Where to post, and whether that is the caller's choice and not the provider's own address."""
    given = base_url or (os.environ.get(dialect.base_url_variable) if dialect.base_url_variable else None)
    url = given or dialect.base_url
    if url is None:
        raise ConfigError(f"{provider!r} has no known address: pass base_url='http://...'")
    if not re.match(r"https?://[^/?#]", url, re.IGNORECASE):
        raise ConfigError(f"base_url must begin with http:// or https://, and is {url!r}")
    path, mark, query = url.partition("?")
    path = path.rstrip("/").removesuffix("/chat/completions")
    return f"{path}/chat/completions{mark}{query}", bool(given)


# The request

_OWN_LIMIT = 32_000  # the agent's default is no wish: many models take less, so their own limit stays
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}", re.ASCII)
_MAX_CALL_ID = 40  # OpenAI refuses longer ones
_AUDIO = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/wave": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}


class _Writer:
    """Writes the bodies of one model's requests. What was written once is kept."""

    def __init__(self, provider: str, name: str, dialect: Dialect) -> None:
        self._provider, self._name, self._dialect = provider, name, dialect
        self._messages = RenderedMessages(self._render)
        self._tools: tuple[tuple[ToolSpec, ...], bytes] = ((), b"[]")
        self._instructions: tuple[str | None, bytes] = (None, b"")

    def body(self, request: ModelRequest) -> bytes:
        """The request as JSON. The messages stand before everything that may differ from step to step."""
        fields = {"model": encode(self._name), "messages": b"[%b]" % self._all_messages(request)}
        fields |= {key: encode(value) for key, value in self._options(request).items()}
        if request.tools:
            fields["tools"] = self._all_tools(request.tools)
        if request.settings is not None:
            fields |= {key: encode(value) for key, value in request.settings.extra_body.items()}
        return b"{%b}" % b",".join([b"%b:%b" % (encode(key), value) for key, value in fields.items()])

    def _all_messages(self, request: ModelRequest) -> bytes:
        if request.instructions != self._instructions[0]:
            text = request.instructions or ""
            system = encode({"role": "system", "content": text}) if text.strip() else b""
            self._instructions = (request.instructions, system)
        messages = self._messages.join(request.messages)
        if not messages:
            raise ConfigError("there is nothing to send: every message is blank")
        return b",".join(filter(None, (self._instructions[1], messages)))

    def _all_tools(self, tools: tuple[ToolSpec, ...]) -> bytes:
        if tools != self._tools[0]:
            self._tools = (tools, encode([_tool(spec) for spec in tools]))
        return self._tools[1]

    # Options

    def _options(self, request: ModelRequest) -> dict[str, Any]:
        options: dict[str, Any] = {"stream": True}
        if self._dialect.usage_option:
            options["stream_options"] = {"include_usage": True}
        if request.max_output_tokens != _OWN_LIMIT:
            options[self._dialect.max_tokens] = request.max_output_tokens
        if request.tools and request.sequential_tools:
            options["parallel_tool_calls"] = False
        if request.hosted_mcp or request.hosted_web_search:
            raise self._unsupported("hosted_mcp" if request.hosted_mcp else "hosted_web_search", "no hosted tools")
        if request.output_schema is not None:
            options["response_format"] = self._response_format(request.output_schema)
        if request.reasoning is not None:
            options |= self._reasoning(request.reasoning.effort, request.reasoning.budget_tokens)
        if request.settings is not None:
            options |= self._settings(request.settings, request.tools)
        return options

    def _response_format(self, schema: dict[str, Any]) -> dict[str, Any]:
        if not self._dialect.output_schema:
            raise self._unsupported("output_schema", "no output schema")
        strict = strict_schema(schema)
        name = re.sub(r"[^a-zA-Z0-9_-]", "_", str(schema.get("title", "")))[:64] or "answer"
        shape = {"name": name, "schema": strict or schema, "strict": strict is not None}
        return {"type": "json_schema", "json_schema": shape}

    def _reasoning(self, effort: str | None, budget_tokens: int | None) -> dict[str, Any]:
        if budget_tokens is not None:
            raise self._unsupported("min_reasoning_budget", "no reasoning budget: leave out budget_tokens")
        if effort is not None and not self._dialect.effort:
            raise self._unsupported("effort", "no reasoning effort: leave out effort")
        return {} if effort is None else {"reasoning_effort": effort}

    def _settings(self, settings: ModelSettings, tools: tuple[ToolSpec, ...]) -> dict[str, Any]:
        given = {
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            "seed": settings.seed,
            "stop_sequences": settings.stop_sequences or None,
            "tool_choice": _tool_choice(settings.tool_choice, tools),
        }
        names = {"seed": self._dialect.seed, "stop_sequences": "stop"}
        given = {key: value for key, value in given.items() if value is not None}
        if refused := sorted(set(given) - self._dialect.settings):
            raise self._unsupported(refused[0], f"no {refused[0]}: leave it out of the settings")
        return {names.get(key, key): value for key, value in given.items()}

    def _unsupported(self, feature: str, text: str) -> UnsupportedError:
        model = f"{self._provider}:{self._name}"
        return UnsupportedError(f"{model} takes {text}", model=model, feature=feature)

    # Messages

    def _render(self, message: Message, before: Message | None) -> list[dict[str, Any]]:
        """Our message as theirs: none, one or several."""
        if isinstance(message, UserMessage):
            content = self._content(message.content)
            found = [{"role": "user", "content": content}] if content else []
            return self._after_tools(found, before)
        if isinstance(message, ToolMessage):
            return self._results(message, before)
        return self._assistant(message)

    def _after_tools(self, found: list[dict[str, Any]], before: Message | None) -> list[dict[str, Any]]:
        """Mistral refuses a user message right behind tool results (2026-11)."""
        if found and not self._dialect.user_after_tool and isinstance(before, ToolMessage):
            return [{"role": "assistant", "content": "OK"}, *found]
        return found

    def _content(self, parts: Iterable[TextPart | FilePart]) -> str | list[dict[str, Any]]:
        """Blank text is left out: most servers refuse it."""
        content: list[dict[str, Any]] = []
        for part in parts:
            if not isinstance(part, TextPart):
                content.append(self._file(part))
            elif part.text.strip():
                content.append({"type": "text", "text": part.text})
        if all(item["type"] == "text" for item in content):
            return "\n\n".join(item["text"] for item in content)
        return content

    def _file(self, part: FilePart) -> dict[str, Any]:
        media_type = part.media_type.partition(";")[0].strip().lower()
        kind = "pdf" if media_type == "application/pdf" else media_type.partition("/")[0]
        url = part.url if part.url is not None else f"data:{media_type};base64,{part.data}"
        if kind in self._dialect.files:
            if kind == "image":
                return {"type": "image_url", "image_url": {"url": url}}
            if kind == "audio" and media_type in _AUDIO and part.data is not None:
                return {"type": "input_audio", "input_audio": {"data": part.data, "format": _AUDIO[media_type]}}
            if kind == "pdf" and part.data is not None:
                return {"type": "file", "file": {"filename": part.name or "document.pdf", "file_data": url}}
        where = "" if part.url is None or kind not in self._dialect.files else " by url: pass its data"
        raise self._unsupported("files", f"no file of type {media_type}{where}")

    def _assistant(self, message: AssistantMessage) -> list[dict[str, Any]]:
        own = message.model is None or message.model.provider == self._provider
        text = "".join([part.text for part in message.content if isinstance(part, TextPart)])
        texts = [text] if text.strip() else []
        texts += [f"[cut off: {call.name}({call.args} ...]" for call in message.calls if not call.finished]
        calls = [self._call(call, own=own) for call in message.calls if call.finished]
        written: dict[str, Any] = {"role": "assistant"}
        if texts:
            written["content"] = "\n\n".join(texts)
        if calls:
            written["tool_calls"] = calls
        if not (texts or calls):
            return []
        if own:
            self._echo(message, written)
        return [written]

    def _echo(self, message: AssistantMessage, written: dict[str, Any]) -> None:
        """Gives a provider its own reasoning back, in the form it asks for."""
        details = [
            item
            for part in message.content
            if isinstance(part, ProviderPart) and part.provider == self._provider and part.kind == _DETAILS
            for item in part.data
        ]
        if details:
            written[_DETAILS] = details
        field = self._dialect.reasoning_field
        text = "".join([part.text for part in message.content if isinstance(part, ReasoningPart)])
        if field is None or not text or details:
            return
        if self._dialect.reasoning_with_calls_only and "tool_calls" not in written:
            return
        if field == "thinking":
            thinking: list[Any] = [{"type": "thinking", "thinking": [{"type": "text", "text": text}]}]
            if "content" in written:
                thinking.append({"type": "text", "text": written["content"]})
            written["content"] = thinking
        else:
            written[field] = text

    def _call(self, call: ToolCallPart, *, own: bool) -> dict[str, Any]:
        function = {"name": _legal_name(call.name), "arguments": _arguments(call.args)}
        written = {"id": self._call_id(call.id), "type": "function", "function": function}
        if own and isinstance(call.raw, dict) and _EXTRA in call.raw:
            written[_EXTRA] = call.raw[_EXTRA]
        return written

    def _call_id(self, call_id: str) -> str:
        """The id in a form the server takes: the same one for a call and its result, whoever invented it."""
        length = self._dialect.call_id_length
        if length is not None:
            if len(call_id) == length and call_id.isascii() and call_id.isalnum():
                return call_id
            return hashlib.sha256(encodable(call_id).encode()).hexdigest()[:length]
        if len(call_id) <= _MAX_CALL_ID:
            return call_id
        return f"call_{hashlib.sha256(encodable(call_id).encode()).hexdigest()[:24]}"

    def _results(self, message: ToolMessage, before: Message | None) -> list[dict[str, Any]]:
        """One message for each result. Results of calls that went as text are text too; files follow in a message."""
        cut = set[str]()
        if isinstance(before, AssistantMessage):
            cut = {call.id for call in before.calls if not call.finished}
        written: list[dict[str, Any]] = []
        told: list[TextPart | FilePart] = []
        for result in message.results:
            if result.call_id in cut:
                told.append(TextPart(f"[result of the call to {result.name} that was cut off: {result.content}]"))
            else:
                call_id = self._call_id(result.call_id)
                written.append({"role": "tool", "tool_call_id": call_id, "content": result.content})
            told += _files(result)
        if told:
            follow_up = [{"role": "user", "content": self._content(told)}]
            written += self._after_tools(follow_up, message if written else None)
        return written


def _files(result: ToolResultPart) -> list[TextPart | FilePart]:
    if not result.files:
        return []
    return [TextPart(f"[files of the result of {result.name}, call {result.call_id}]"), *result.files]


def _tool(spec: ToolSpec) -> dict[str, Any]:
    schema = spec.input_schema or {"type": "object", "properties": {}}
    return {
        "type": "function",
        "function": {"name": spec.name, "description": spec.description, "parameters": schema},
    }


def _tool_choice(choice: str | None, tools: tuple[ToolSpec, ...]) -> Any:
    names = [spec.name for spec in tools]
    if choice is None or not names:
        return None
    if choice in ("auto", "required", "none"):
        return choice
    if choice not in names:
        raise ConfigError(f"tool_choice={choice!r} names no tool: use auto, required, none or one of {names}")
    return {"type": "function", "function": {"name": choice}}


def _legal_name(name: str) -> str:
    """A name that the server takes, also for a call that the model made up."""
    return name if _LEGAL_NAME.fullmatch(name) else re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:64] or "unnamed"


def _arguments(args: str) -> str:
    """Arguments as a JSON object, as servers insist. What the model wrote instead stays to be seen in it."""
    if is_object(args):
        return args
    if args.strip() in ("", "null", '"null"', '""'):
        return "{}"
    try:
        inner = msgspec.json.decode(args)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        inner = None
    if isinstance(inner, str) and is_object(inner):
        return inner
    return encode({"unparsed_arguments": args}).decode()


# The stream

_DETAILS = "reasoning_details"
_EXTRA = "extra_content"
_LOST = "\ufffd"


class _Block:
    """A run of text or of reasoning: `kind` is the class of its deltas."""

    __slots__ = ("kind", "pieces")

    def __init__(self, kind: type[TextDelta | ReasoningDelta]) -> None:
        self.kind = kind
        self.pieces: list[str] = []


class _Reader:
    """Turns the bytes of one answer into our events, and knows at the end what the answer was.

    `refused` makes the error of a refusal inside the stream. Set `is_document` where the answer is one JSON value.
    """

    def __init__(self, provider: str, name: str, limit: int, refused: Callable[[Refusal], ModelError]) -> None:
        self._ref = ModelRef(provider, name)
        self._limit = limit
        self._refused = refused
        self._splitter = EventSplitter()
        self._document = bytearray()
        self._blocks: list[_Block | OpenCall | list[Any]] = []
        self._last: _Block | None = None
        self._calls = CallPieces()
        self._details: list[Any] = []
        self._citations: list[Citation] = []
        self._sources: Any = None
        self._held: dict[Any, str] = {}
        self._mending = False
        self._usage: dict[str, Any] | None = None
        self._raw_stop: str | None = None
        self._native_stop: str | None = None
        self._stop: StopReason | None = None
        self._noise = ""
        self._id: str | None = None
        self.is_document = False
        self.done = False

    @property
    def finished(self) -> bool:
        """Whether the server said that the answer ended."""
        return self._raw_stop is not None or self.done

    def feed(self, data: bytes) -> list[ModelEvent]:
        """What the next bytes of the body say."""
        if self.is_document:
            self._document += data
            return []
        events: list[ModelEvent] = []
        for name, payload in self._splitter.feed(data):
            self._take(name, payload, events)
        return events

    def end(self) -> list[ModelEvent]:
        """What the end of the body says: a last event without its blank line, or the whole of a document."""
        events: list[ModelEvent] = []
        found = self._splitter.finish()
        if self.is_document:
            body = bytes(self._document).strip()
            # Some servers stream under the wrong content type.
            found = [(b"", body)] if body.startswith(b"{") else self._splitter.feed(body + b"\n\n")
            self.done = body.startswith(b"{")
            if body and not found:
                raise self._error(ModelResponseError, f"the answer is {page_summary(body)}", retryable=False)
        for name, payload in found:
            self._take(name, payload, events, last=True)
        self._let_go(events)
        return events

    def _take(self, name: bytes, data: bytes, events: list[ModelEvent], *, last: bool = False) -> None:
        if data == b"[DONE]":
            self.done = True
            return
        chunk, clean = decode_chunk(data)
        if name == b"error" or (chunk is not None and chunk.error):
            self._fail((chunk.error if chunk is not None else None) or data)
            return
        if chunk is None:
            self._skip(data, last=last)
            return
        self._mending = self._mending or not clean
        if chunk.usage or chunk.x_groq or chunk.citations or chunk.search_results:
            self._note(chunk)
        self._id = chunk.id
        for choice in chunk.choices or ():
            if not choice.index:  # one candidate is asked for
                self._take_choice(choice, events)

    def block(self, reason: str) -> None:
        """The provider refused the prompt itself."""
        self._raw_stop, self._stop, self.done = reason, StopReason.REFUSAL, True

    def _note(self, chunk: Chunk) -> None:
        """What stands beside the choices. Totals grow from chunk to chunk: the last one counts."""
        if chunk.usage:
            self._usage = chunk.usage
        elif chunk.x_groq and isinstance(usage := chunk.x_groq.get("usage"), dict):
            self._usage = self._usage or usage
        if chunk.search_results or chunk.citations:
            self._sources = chunk.search_results or chunk.citations  # Perplexity repeats them all in every chunk

    def _take_choice(self, choice: Choice, events: list[ModelEvent]) -> None:
        delta = choice.delta
        if choice.message is not None and (self.is_document or not (delta or self._blocks)):
            delta = choice.message  # Perplexity gives both
        if delta is not None:
            if reasoning := delta.reasoning_content or delta.reasoning:
                self._add(ReasoningDelta, reasoning, events)
            if delta.reasoning_details:
                self._take_details(delta.reasoning_details, events, shown=bool(reasoning))
            if content := delta.content:
                if type(content) is str:
                    self._add(TextDelta, content, events)
                else:
                    self._take_parts(content, events)
            if delta.tool_calls or delta.function_call or delta.refusal or delta.annotations:
                self._take_rest(delta, events)
        if choice.finish_reason is not None:
            self._raw_stop = choice.finish_reason
            self._native_stop = choice.native_finish_reason or self._native_stop

    def _add(self, kind: type[TextDelta | ReasoningDelta], text: str, events: list[ModelEvent]) -> None:
        if self._mending:
            text = self._mend(kind, text)
            if not text:
                return
        block = self._last
        if block is None or block.kind is not kind:
            block = self._last = _Block(kind)
            self._blocks.append(block)
        block.pieces.append(text)
        events.append(kind(text=text))

    def _take_parts(self, parts: Any, events: list[ModelEvent]) -> None:
        """Content in parts: Mistral thinks in them."""
        for part in parts:
            if isinstance(part, str):
                self._add(TextDelta, part, events)
            elif isinstance(part, dict):
                inner = part.get("thinking")
                thinking = part.get("type") in ("thinking", "reasoning")
                text = _joined(inner if inner is not None else part.get("text"))
                if text:
                    self._add(ReasoningDelta if thinking else TextDelta, text, events)

    def _take_details(self, details: list[Any], events: list[ModelEvent], *, shown: bool) -> None:
        """OpenRouter's reasoning blocks come in pieces and go back whole."""
        if not any(block is self._details for block in self._blocks):
            self._blocks.append(self._details)
        for detail in details:
            if isinstance(detail, dict):
                _merge_detail(self._details, detail)
                text = detail.get("text") or detail.get("summary")
                if not shown and isinstance(text, str) and text:
                    self._add(ReasoningDelta, text, events)

    def _take_rest(self, delta: Delta, events: list[ModelEvent]) -> None:
        if delta.refusal:
            self._stop = StopReason.REFUSAL
            self._add(TextDelta, delta.refusal, events)
        pieces = delta.tool_calls or []
        old = delta.function_call
        if not pieces and old is not None and (old.name or old.arguments):
            pieces = [CallPiece(0, None, old)]
        for piece in pieces:
            self._take_call(piece, events)
        for note in delta.annotations or ():
            self._citations += _citation(note) if isinstance(note, dict) else []

    def _take_call(self, piece: CallPiece, events: list[ModelEvent]) -> None:
        function = piece.function or Function()
        args = function.arguments
        text = args if isinstance(args, str) else "" if args is None else encode(args).decode()
        known = len(self._calls.calls)
        self._calls.seed = self._calls.seed or self._id or ""
        call = self._calls.take(piece.index, encodable(piece.id or ""), encodable(function.name or ""), text)
        if len(self._calls.calls) > known:
            self._blocks.append(call)
            self._last = None
        if piece.extra_content is not None:
            call.extra = piece.extra_content
        if self._mending:
            text = self._mend(call, text)
        events.append(self._call_delta(call, text))

    def _call_delta(self, call: OpenCall, args: str) -> ToolCallDelta:
        return ToolCallDelta(index=call.place, call_id=call.id, name=call.name, args=args)

    def _skip(self, data: bytes, *, last: bool) -> None:
        """What is no JSON object is a keepalive mostly; it is told if no answer comes. Half an object is a fault."""
        text = one_line(data.decode("utf-8", "replace"))
        if not text.startswith("{"):
            self._noise = self._noise or text
        elif not last:
            raise self._error(ModelResponseError, f"a chunk is no JSON: {text}")
        elif not self.finished or self.is_document:
            raise self._broke_off()

    def _mend(self, channel: Any, text: str) -> str:
        """`text` as valid text. Half a surrogate pair waits for the other half, in the next piece of its channel."""
        text = self._held.pop(channel, "") + text
        if text and "\ud800" <= text[-1] <= "\udbff":
            self._held[channel] = text[-1]
            text = text[:-1]
        return encodable(text)

    def _let_go(self, events: list[ModelEvent]) -> None:
        """Halves of pairs whose other half never came are told as such."""
        held, self._held = self._held, {}
        for channel in held:
            if isinstance(channel, OpenCall):
                events.append(self._call_delta(channel, _LOST))
            else:
                self._add(channel, _LOST, events)

    def finish(self) -> ModelFinish:
        """The whole answer. Raises where there is none."""
        if not self.finished:
            raise self._broke_off()
        if not self._blocks and self._raw_stop is None:
            noise = f": {one_line(self._noise)}" if self._noise else ""
            raise self._error(ModelResponseError, f"the answer is empty{noise}")
        usage = _usage(self._usage)
        stop, raw_stop = self._why(usage)
        parts = tuple(self._parts(cut=stop is StopReason.MAX_TOKENS))
        message = clean(AssistantMessage(parts, stop, self._ref))
        return ModelFinish(message=message, usage=usage, stop=stop, raw_stop=raw_stop, model=self._ref)

    def _parts(self, *, cut: bool) -> Iterable[AssistantPart]:
        last_text = next((block for block in reversed(self._blocks) if _is_text(block)), None)
        for block in self._blocks:
            if isinstance(block, OpenCall):
                yield self._call_part(block, cut=cut)
            elif isinstance(block, list):
                yield ProviderPart(self._ref.provider, _DETAILS, block)
            elif block.kind is ReasoningDelta:
                yield ReasoningPart("".join(block.pieces))
            else:
                yield TextPart("".join(block.pieces), self._cited() if block is last_text else ())

    def _call_part(self, call: OpenCall, *, cut: bool) -> ToolCallPart:
        """The last call of a cut answer is not whole, whatever it looks like; nor is one whose JSON just ends."""
        args = encodable("".join(call.args))
        last = call is self._calls.calls[-1]
        finished = not (last and (cut or is_cut(args)))
        raw = None if call.extra is None else {_EXTRA: call.extra}
        return ToolCallPart(call.id, call.name or "unnamed", args, finished=finished or not args.strip(), raw=raw)

    def _cited(self) -> tuple[Citation, ...]:
        if not self._citations and isinstance(self._sources, list):
            self._citations = [item for source in self._sources for item in _citation(source)]
        return tuple(dict.fromkeys(self._citations))

    def _why(self, usage: Usage | None) -> tuple[StopReason, str | None]:
        """Why the answer ended, and the provider's own word for it."""
        raw = self._raw_stop or ""
        word, native = raw.lower(), (self._native_stop or "").lower()
        if _STOPS.get(native) is StopReason.MAX_TOKENS:
            return StopReason.MAX_TOKENS, self._native_stop
        if self._stop is not None and not self._calls.calls:
            return self._stop, self._raw_stop
        if word in _FAILURES:
            raise self._error(_FAILURES[word], f"the provider broke the answer off: {raw}")
        if word in _STOPS:
            return _STOPS[word], self._raw_stop
        if self._calls.calls:
            full = usage is not None and usage.output_tokens >= self._limit
            cut = full and is_cut("".join(self._calls.calls[-1].args))
            return StopReason.MAX_TOKENS if cut else StopReason.TOOL_CALLS, self._raw_stop
        return StopReason.END if word in _ENDS else StopReason.OTHER, self._raw_stop

    def _fail(self, error: Any) -> None:
        """An error inside the stream. Only an overflow of the context is a stop; it leaves what came before."""
        if isinstance(error, bytes):
            error = error.decode("utf-8", "replace")
            with contextlib.suppress(ValueError, RecursionError):
                error = json.loads(error, strict=False)
        failure = self._refused(refusal_in(error))
        if not isinstance(failure, ContextOverflowError):
            raise failure
        self._raw_stop, self._stop, self.done = "context_length_exceeded", StopReason.CONTEXT, True

    def _broke_off(self) -> ModelError:
        noise = f" (it said: {one_line(self._noise)})" if self._noise else ""
        return self._error(ModelConnectionError, f"the stream ended before the answer did{noise}")

    def _error(self, kind: type[ModelError], text: str, *, retryable: bool = True) -> ModelError:
        return kind(f"{self._ref}: {text}", provider=self._ref.provider, model=self._ref.name, retryable=retryable)


def _is_text(block: Any) -> bool:
    return isinstance(block, _Block) and block.kind is TextDelta


def _joined(value: Any) -> str:
    if isinstance(value, list):
        return "".join([_joined(item.get("text") if isinstance(item, dict) else item) for item in value])
    return value if isinstance(value, str) else ""


def _merge_detail(details: list[Any], piece: dict[str, Any]) -> None:
    same = ("type", "index")
    known = next((item for item in details if all(item.get(key) == piece.get(key) for key in same)), None)
    if known is None or ("id" in known and "id" in piece and known["id"] != piece["id"]):
        details.append(dict(piece))
        return
    for key, value in piece.items():
        if key in ("text", "summary", "data") and isinstance(value, str) and isinstance(known.get(key), str):
            known[key] += value
        elif value is not None:
            known[key] = value


def _citation(note: Any) -> list[Citation]:
    """A source: a `url_citation` of OpenAI and OpenRouter, an address or a search result of Perplexity."""
    if isinstance(note, str):
        return [Citation(url=encodable(note))]
    if not isinstance(note, dict):
        return []
    inner = note.get("url_citation", note)
    if not isinstance(inner, dict) or not isinstance(inner.get("url"), str):
        return []
    title = inner.get("title")
    return [Citation(url=encodable(inner["url"]), title=encodable(title) if isinstance(title, str) else None)]


# Usage and stop

_STOPS = {
    "length": StopReason.MAX_TOKENS,
    "max_tokens": StopReason.MAX_TOKENS,
    "max_output_tokens": StopReason.MAX_TOKENS,
    "model_length": StopReason.MAX_TOKENS,
    "content_filter": StopReason.REFUSAL,
    "safety": StopReason.REFUSAL,
    "sensitive": StopReason.REFUSAL,
    "refusal": StopReason.REFUSAL,
    "prohibited_content": StopReason.REFUSAL,
    "context_length_exceeded": StopReason.CONTEXT,
    "model_context_window_exceeded": StopReason.CONTEXT,
}
# An answer with these words is whole. So is one that ends with [DONE] and gives no reason at all (Snowflake, 2026-11).
_ENDS = frozenset(
    {"", "stop", "end", "eos", "eos_token", "end_turn", "stop_sequence", "completed", "tool_calls", "function_call"}
)
_FAILURES: dict[str, type[ModelError]] = {
    "error": OverloadedError,
    "abort": OverloadedError,
    "network_error": OverloadedError,
    "insufficient_system_resource": OverloadedError,
    "malformed_function_call": ModelResponseError,
}
_TICKS_PER_USD = 10_000_000_000  # xAI, 2026-11


def _usage(given: dict[str, Any] | None) -> Usage | None:
    """Cached tokens are part of `prompt_tokens` everywhere. None where no count is told."""
    if not given or not any(_count(given, key) is not None for key in ("prompt_tokens", "completion_tokens")):
        return None
    prompt, output = _count(given, "prompt_tokens") or 0, _count(given, "completion_tokens") or 0
    details, written = _inner(given, "prompt_tokens_details"), _inner(given, "completion_tokens_details")
    read = min(_count(details, "cached_tokens") or _count(given, "prompt_cache_hit_tokens") or 0, prompt)
    stored = min(_count(details, "cache_write_tokens") or 0, prompt - read)
    reasoning = _count(written, "reasoning_tokens") or _count(given, "reasoning_tokens") or 0
    if reasoning and _count(given, "total_tokens") == prompt + output + reasoning:
        output += reasoning  # xAI counts reasoning apart
    return Usage(prompt - read - stored, output, read, stored, min(reasoning, output), cost_usd=_cost(given))


def _inner(given: dict[str, Any], key: str) -> dict[str, Any]:
    value = given.get(key)
    return value if isinstance(value, dict) else {}


def _count(given: dict[str, Any], key: str) -> int | None:
    value = given.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**53:
        return None
    return int(value)


def _cost(given: dict[str, Any]) -> float | None:
    """The provider's own figure: OpenRouter a number, Perplexity a table, xAI ticks (0 ticks say nothing)."""
    cost = given.get("cost")
    if isinstance(cost, dict):
        cost = cost.get("total_cost")
    if isinstance(cost, int | float) and not isinstance(cost, bool) and 0 <= cost < 1e9:
        return float(cost)
    ticks = _count(given, "cost_in_usd_ticks")
    return ticks / _TICKS_PER_USD if ticks else None


# Errors


class _PromptBlocked(ModelError):
    """The provider's filter refused the prompt: a stop, and no error to the caller."""


_BLOCKED = frozenset({"content_filter", "content_policy_violation", "responsibleaipolicyviolation"})


def _refusal_error(refusal: Refusal, provider: str, model: str, dialect: Dialect, secret: str | None) -> ModelError:
    if refusal.status == 400 and (words := sorted(_BLOCKED & refusal.words)):
        return _PromptBlocked(words[0])
    hint = dialect.missing_model.format(model=model) if refusal.status == 404 else ""
    return model_error(refusal, provider=provider, model=model, hint=hint, secret=secret)
