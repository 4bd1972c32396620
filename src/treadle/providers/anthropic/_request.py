"""The request: what goes out beside and around the messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from treadle.errors import ConfigError
from treadle.messages import AssistantMessage, ProviderPart
from treadle.providers._faults import Faults
from treadle.providers._rendered import RenderedMessages, encode, marked
from treadle.providers.anthropic._messages import MessageWriter
from treadle.providers.anthropic._output_format import output_format
from treadle.providers.anthropic._platform import ANTHROPIC, Platform
from treadle.providers.anthropic._reasoning import check_reasoning, thinking
from treadle.providers.anthropic._wire import CONTAINER, PROVIDER

if TYPE_CHECKING:
    from treadle.model import HostedMCP, ModelRequest, ToolSpec
    from treadle.providers.anthropic._models import Traits

_MARK = {"type": "ephemeral"}
_NOT_COUNTED = frozenset({"max_tokens", "stream", "temperature", "top_p", "stop_sequences", "container"})
# The first message must be the user's; a conversation that was cut may begin with an answer.
_OPENING = encode({"role": "user", "content": [{"type": "text", "text": "(The conversation goes on here.)"}]})
_WEB_SEARCH = {"type": "web_search_20250305", "name": "web_search"}
_ASK_FOR_JSON = "Answer with one JSON object that fits this JSON Schema, and with nothing else:\n"


class RequestWriter:
    """Writes the bodies of one model's requests. What was written once is kept."""

    def __init__(self, name: str, traits: Traits, platform: Platform = ANTHROPIC) -> None:
        self._name, self._traits, self._platform = name, traits, platform
        self._writer = MessageWriter(name, platform)
        self._messages = RenderedMessages(self._writer.write)
        self._tools: tuple[tuple[ToolSpec, ...], list[bytes]] = ((), [])

    def body(self, request: ModelRequest, paused: AssistantMessage | None = None) -> bytes:
        """The request as JSON. The messages stand before everything that may differ from step to step.

        `paused` is a turn of the answer to this very request that the server wants to go on with.
        """
        faults = self._checked(request)
        return self._join(request, self._fields(request, paused), paused, faults)

    def counting_body(self, request: ModelRequest) -> bytes:
        """The same request, to be counted only."""
        faults = self._checked(request)
        fields = {key: value for key, value in self._fields(request, None).items() if key not in _NOT_COUNTED}
        return self._join(request, fields, None, faults, counting=True)

    def _join(
        self,
        request: ModelRequest,
        fields: dict[str, bytes],
        paused: AssistantMessage | None,
        faults: Faults,
        *,
        counting: bool = False,
    ) -> bytes:
        head = self._head(fields, counting=counting)
        mark = b"" if self._platform.marks_by_itself else fields.pop("cache_control", b"")
        given = fields.pop("messages", None)
        pieces = self._all_messages(request, faults) if given is None else [given[1:-1]]
        faults.settle()
        if paused is not None:
            pieces.append(encode({"role": "assistant", "content": self._writer.blocks(paused, paused=True)}))
        elif mark:
            pieces[-1] = marked(pieces[-1], mark)
        rest = b"".join([b",%b:%b" % (encode(key), value) for key, value in fields.items()])
        # A long conversation is copied once only: by the join.
        pieces[0] = b'{%b"messages":[%b' % (head, pieces[0])
        pieces[-1] += b"]%b}" % rest
        return b",".join(pieces)

    def _head(self, fields: dict[str, bytes], *, counting: bool) -> bytes:
        """The version and the model. A model in the path stands in the body only where its tokens are counted."""
        head = b""
        version = self._platform.version
        if version is not None:
            head = b'"anthropic_version":%b,' % (fields.pop("anthropic_version", b"") or encode(version))
        if version is None or counting:
            head += b'"model":%b,' % (fields.pop("model", b"") or encode(self._name))
        return head

    def check(self, request: ModelRequest) -> None:
        """Raises for what cannot be written."""
        faults = self._checked(request)
        faults.written(self._messages, request.messages, self._writer.file)
        faults.settle()
        self._options(request)

    def _checked(self, request: ModelRequest) -> Faults:
        """What of the request, beside the messages, does not fit."""
        faults = Faults(f"{self._platform.provider}:{self._name}")
        if request.hosted_mcp and not self._platform.hosted_mcp:
            faults.add("hosted_mcp", "no hosted MCP servers: leave out hosted_mcp")
        if request.hosted_web_search and not self._platform.hosted_web_search:
            faults.add("hosted_web_search", "no hosted web search: leave out hosted_web_search")
        if request.output_schema is not None and not self._traits.output_schema:
            faults.add("output_schema", "no output schema")
        if request.reasoning is not None:
            check_reasoning(request.reasoning, self._traits, faults)
        refused = {"seed"} if self._traits.sampling else {"seed", "temperature", "top_p"}
        for name in sorted(refused & _settings(request).keys()):
            faults.add(name, f"no {name}: leave it out of the settings")
        return faults

    def _all_messages(self, request: ModelRequest, faults: Faults) -> list[bytes]:
        pieces = faults.written(self._messages, request.messages, self._writer.file)
        faults.settle()
        if not pieces:
            raise ConfigError("there is nothing to send: every message is blank")
        return [_OPENING, *pieces] if pieces[0].startswith(b'{"role":"assistant"') else pieces

    def _fields(self, request: ModelRequest, paused: AssistantMessage | None) -> dict[str, bytes]:
        options = self._options(request)
        answers = (message for message in reversed(request.messages) if isinstance(message, AssistantMessage))
        last = paused or next(answers, None)
        if last is not None and (container := self._container(last)) is not None:
            options["container"] = container
        # Marks cost a little: they pay only where another request shares what they cover.
        shared = bool(request.tools) or last is not None
        if shared:
            options["cache_control"] = _MARK  # the server puts this one on the last block
        system = self._system(request)
        fields = {key: encode(value) for key, value in options.items()}
        if tools := self._all_tools(request, marks=shared and not system):
            fields["tools"] = tools
        if system:
            fields["system"] = encode([*system[:-1], {**system[-1], "cache_control": _MARK}] if shared else system)
        if request.settings is not None:
            fields |= {key: encode(value) for key, value in request.settings.extra_body.items()}
        return fields

    def _system(self, request: ModelRequest) -> list[dict[str, Any]]:
        texts = [request.instructions or ""]
        if request.output_schema is not None and not output_format(request.output_schema):
            texts.append(_ASK_FOR_JSON + encode(request.output_schema).decode())
        return [{"type": "text", "text": text} for text in texts if text.strip()]

    def _all_tools(self, request: ModelRequest, *, marks: bool) -> bytes:
        known, pieces = self._tools
        if request.tools != known:
            pieces = [encode(_tool(spec)) for spec in request.tools]
            self._tools = (request.tools, pieces)
        pieces = pieces + [encode(_toolset(server)) for server in request.hosted_mcp]
        if request.hosted_web_search:
            pieces.append(encode(_WEB_SEARCH))
        if marks and pieces:
            pieces[-1] = b'%b,"cache_control":%b}' % (pieces[-1][:-1], encode(_MARK))
        return b"[%b]" % b",".join(pieces) if pieces else b""

    def _options(self, request: ModelRequest) -> dict[str, Any]:
        limit = min(request.max_output_tokens, self._traits.max_output_tokens or request.max_output_tokens)
        options: dict[str, Any] = {"max_tokens": limit, "stream": True}
        config: dict[str, Any] = {}
        if request.reasoning is not None:
            options["thinking"] = thinking(request.reasoning, self._traits, limit)
            if request.reasoning.effort not in (None, "none"):
                config["effort"] = request.reasoning.effort
        if request.output_schema is not None and (shape := output_format(request.output_schema)) is not None:
            config["format"] = shape
        if config:
            options["output_config"] = config
        if request.hosted_mcp:
            options["mcp_servers"] = [_server(server) for server in request.hosted_mcp]
        options |= _settings(request)
        if (choice := _tool_choice(request)) is not None:
            options["tool_choice"] = choice
        return options

    def _container(self, last: AssistantMessage) -> Any:
        """Where the model's code ran last: its files, and what waits for our results, are still there."""
        if last.model is not None and last.model.provider != self._platform.provider:
            return None
        for part in last.content:
            if isinstance(part, ProviderPart) and part.provider == PROVIDER and part.kind == CONTAINER:
                return part.data.get("id") if isinstance(part.data, dict) else None
        return None


def _settings(request: ModelRequest) -> dict[str, Any]:
    settings = request.settings
    if settings is None:
        return {}
    given = {
        "seed": settings.seed,
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "stop_sequences": settings.stop_sequences or None,
    }
    return {key: value for key, value in given.items() if value is not None}


def _tool(spec: ToolSpec) -> dict[str, Any]:
    schema = spec.input_schema or {"type": "object", "properties": {}}
    described = {"description": spec.description} if spec.description.strip() else {}
    return {"name": spec.name, **described, "input_schema": schema}


def _server(server: HostedMCP) -> dict[str, Any]:
    token = {} if server.token is None else {"authorization_token": server.token}
    return {"type": "url", "name": server.name, "url": server.url, **token}


def _toolset(server: HostedMCP) -> dict[str, Any]:
    toolset: dict[str, Any] = {"type": "mcp_toolset", "mcp_server_name": server.name}
    if server.allowed_tools:
        toolset["default_config"] = {"enabled": False}
        toolset["configs"] = {name: {"enabled": True} for name in server.allowed_tools}
    return toolset


def _tool_choice(request: ModelRequest) -> dict[str, Any] | None:
    choice = None if request.settings is None else request.settings.tool_choice
    names = [spec.name for spec in request.tools]
    if not names:
        return None
    if choice is None:
        return {"type": "auto", "disable_parallel_tool_use": True} if request.sequential_tools else None
    found: dict[str, Any] = {"type": {"required": "any"}.get(choice, choice)}
    if choice not in ("auto", "required", "none"):
        if choice not in names:
            raise ConfigError(f"tool_choice={choice!r} names no tool: use auto, required, none or one of {names}")
        found = {"type": "tool", "name": choice}
    if request.sequential_tools and choice != "none":
        found["disable_parallel_tool_use"] = True
    return found
