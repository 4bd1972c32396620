"""The request: what goes out beside and around the messages."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from treadle.errors import ConfigError
from treadle.messages import AssistantMessage
from treadle.model import DefaultLimit
from treadle.providers._faults import Faults
from treadle.providers._output_schema import strict_schema
from treadle.providers._rendered import RenderedMessages, encode, marked
from treadle.providers.openai_chat._messages import MessageWriter
from treadle.providers.openai_chat._reasoning import reasoning_fields

if TYPE_CHECKING:
    from treadle.model import ModelRequest, ModelSettings, ToolSpec
    from treadle.providers.openai_chat._dialects import Dialect

_ANSWER = b'{"role":"assistant"'
_MARK = encode({"type": "ephemeral"})

_ANSWER = b'{"role":"assistant"'
_OK = encode({"role": "assistant", "content": "OK"})
_GO_ON = encode({"role": "user", "content": "(The conversation goes on here.)"})


class RequestWriter:
    """Writes the bodies of one model's requests. What was written once is kept."""

    def __init__(self, provider: str, name: str, dialect: Dialect) -> None:
        self._provider, self._name, self._dialect = provider, name, dialect
        self._writer = MessageWriter(provider, name, dialect)
        self._messages = RenderedMessages(self._writer.write)
        self._tools: tuple[tuple[ToolSpec, ...], list[bytes]] = ((), [])
        self._instructions: tuple[str | None, bytes] = (None, b"")

    def body(self, request: ModelRequest) -> bytes:
        """The request as JSON. The messages stand before everything that may differ from step to step."""
        faults = self._faults()
        fields = {key: encode(value) for key, value in self._options(request, faults).items()}
        if tools := self._all_tools(request):
            fields["tools"] = b"[%b]" % b",".join(tools)
        if request.settings is not None:
            fields |= {key: encode(value) for key, value in request.settings.extra_body.items()}
        model = fields.pop("model", None) or encode(self._name)
        given = fields.pop("messages", None)
        pieces = self._all_messages(request, faults) if given is None else [given[1:-1]]
        faults.settle()
        rest = b"".join([b",%b:%b" % (encode(key), value) for key, value in fields.items()])
        # A long conversation is copied once only: by the join.
        pieces[0] = b'{"model":%b,"messages":[%b' % (model, pieces[0])
        pieces[-1] += b"]%b}" % rest
        return b",".join(pieces)

    def check(self, request: ModelRequest) -> None:
        """Raises for what cannot be written."""
        faults = self._faults()
        self._options(request, faults)
        faults.written(self._messages, request.messages, self._writer.file)
        faults.settle()

    def _faults(self) -> Faults:
        return Faults(f"{self._provider}:{self._name}")

    def _all_messages(self, request: ModelRequest, faults: Faults) -> list[bytes]:
        pieces = faults.written(self._messages, request.messages, self._writer.file)
        faults.settle()
        if not pieces:
            raise ConfigError("there is nothing to send: every message is blank")
        if self._dialect.alternating:
            pieces = _alternated(pieces)
        system = self._system(request.instructions)
        if self._dialect.cache_marks and _is_shared(request):
            system = marked(system, _MARK)
            if not pieces[-1].startswith(_ANSWER):
                pieces[-1] = marked(pieces[-1], _MARK)
        return [system, *pieces] if system else pieces

    def _system(self, text: str | None) -> bytes:
        known, system = self._instructions
        if text != known:
            written = self._writer.text(text) if text and text.strip() else ""
            system = encode({"role": "system", "content": written}) if written else b""
            self._instructions = (text, system)
        return system

    def _all_tools(self, request: ModelRequest) -> list[bytes]:
        known, written = self._tools
        if request.tools != known:
            written = [encode(_tool(spec)) for spec in request.tools]
            self._tools = (request.tools, written)
        return [*written, encode(self._dialect.web_search)] if request.hosted_web_search else written

    def _options(self, request: ModelRequest, faults: Faults) -> dict[str, Any]:
        self._check_tools(request, faults)
        options: dict[str, Any] = {"stream": True}
        if self._dialect.usage_option:
            options["stream_options"] = {"include_usage": True}
        # The agent's own default is no wish: many models take less and would refuse, so their own limit stays.
        if not isinstance(request.max_output_tokens, DefaultLimit):
            options[self._dialect.max_tokens] = request.max_output_tokens
        if request.tools and request.sequential_tools:
            options["parallel_tool_calls"] = False
        if request.output_schema is not None:
            options["response_format"] = _response_format(request.output_schema)
            if not self._dialect.output_schema:
                faults.add("output_schema", "no output schema")
        if request.reasoning is not None:
            options |= reasoning_fields(request.reasoning, self._dialect, faults)
        if request.settings is not None:
            options |= self._settings(request.settings, request.tools, faults)
        return options

    def _check_tools(self, request: ModelRequest, faults: Faults) -> None:
        if request.tools and not self._dialect.tools:
            faults.add("tools", "no tools: leave out tools and toolsets")
        if request.hosted_mcp:
            faults.add("hosted_mcp", "no hosted MCP servers: leave out hosted_mcp")
        if request.hosted_web_search and self._dialect.web_search is None:
            faults.add("hosted_web_search", "no hosted web search: leave out hosted_web_search")

    def _settings(self, settings: ModelSettings, tools: tuple[ToolSpec, ...], faults: Faults) -> dict[str, Any]:
        given = {
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            "seed": settings.seed,
            "stop_sequences": settings.stop_sequences or None,
            "tool_choice": _tool_choice(settings.tool_choice, tools),
        }
        names = {"seed": self._dialect.seed, "stop_sequences": "stop"}
        given = {key: value for key, value in given.items() if value is not None}
        for name in sorted(given.keys() - self._dialect.settings):
            faults.add(name, f"no {name}: leave it out of the settings")
        return {names.get(key, key): value for key, value in given.items()}


def _is_shared(request: ModelRequest) -> bool:
    """Whether another request will have the same beginning: marks cost a little, and pay only then."""
    return bool(request.tools) or any(isinstance(message, AssistantMessage) for message in request.messages)


def _response_format(schema: dict[str, Any]) -> dict[str, Any]:
    strict = strict_schema(schema)
    name = re.sub(r"[^a-zA-Z0-9_-]", "_", str(schema.get("title", "")))[:64] or "answer"
    shape = {"name": name, "schema": strict or schema, "strict": strict is not None}
    return {"type": "json_schema", "json_schema": shape}


def _alternated(pieces: list[bytes]) -> list[bytes]:
    """What users say and answers in turns, a user's first: what is missing between two of one side is put there."""
    found: list[bytes] = []
    answered = True
    for piece in pieces:
        answers = piece.startswith(_ANSWER)
        if answers is answered:
            found.append(_GO_ON if answers else _OK)
        found.append(piece)
        answered = answers
    return found


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
