"""The request: what goes out beside and around the messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from treadle.errors import ConfigError, UnsupportedError
from treadle.messages import AssistantMessage, ProviderPart
from treadle.providers._rendered import RenderedMessages, encode
from treadle.providers.anthropic._messages import MessageWriter
from treadle.providers.anthropic._models import MIN_BUDGET
from treadle.providers.anthropic._output_format import output_format
from treadle.providers.anthropic._wire import CONTAINER, PROVIDER

if TYPE_CHECKING:
    from treadle.model import HostedMCP, ModelRequest, ModelSettings, Reasoning, ToolSpec
    from treadle.providers.anthropic._models import Traits

_MARK = {"type": "ephemeral"}
_DEFAULT_BUDGET = 8_192  # for models that cannot choose it, where nobody chose
_NOT_COUNTED = frozenset({"max_tokens", "stream", "temperature", "top_p", "stop_sequences", "container"})
# The first message must be the user's; a conversation that was cut may begin with an answer.
_OPENING = encode({"role": "user", "content": [{"type": "text", "text": "(The conversation goes on here.)"}]})
_WEB_SEARCH = {"type": "web_search_20250305", "name": "web_search"}
_ASK_FOR_JSON = "Answer with one JSON object that fits this JSON Schema, and with nothing else:\n"


class RequestWriter:
    """Writes the bodies of one model's requests. What was written once is kept."""

    def __init__(self, name: str, traits: Traits) -> None:
        self._name, self._traits = name, traits
        self._writer = MessageWriter(name)
        self._messages = RenderedMessages(self._writer.write)
        self._tools: tuple[tuple[ToolSpec, ...], list[bytes]] = ((), [])

    def body(self, request: ModelRequest, paused: AssistantMessage | None = None) -> bytes:
        """The request as JSON. The messages stand before everything that may differ from step to step.

        `paused` is a turn of the answer to this very request that the server wants to go on with.
        """
        return self._join(request, self._fields(request, paused), paused)

    def counting_body(self, request: ModelRequest) -> bytes:
        """The same request, to be counted only."""
        fields = {key: value for key, value in self._fields(request, None).items() if key not in _NOT_COUNTED}
        return self._join(request, fields, None)

    def _join(self, request: ModelRequest, fields: dict[str, bytes], paused: AssistantMessage | None) -> bytes:
        model = fields.pop("model", None) or encode(self._name)
        given = fields.pop("messages", None)
        pieces = self._all_messages(request) if given is None else [given[1:-1]]
        if paused is not None:
            pieces.append(encode({"role": "assistant", "content": self._writer.blocks(paused, paused=True)}))
        rest = b"".join([b",%b:%b" % (encode(key), value) for key, value in fields.items()])
        # A long conversation is copied once only: by the join.
        pieces[0] = b'{"model":%b,"messages":[%b' % (model, pieces[0])
        pieces[-1] += b"]%b}" % rest
        return b",".join(pieces)

    def check(self, request: ModelRequest) -> None:
        """Raises for what cannot be written."""
        self._options(request)
        self._messages.pieces(request.messages)

    def _all_messages(self, request: ModelRequest) -> list[bytes]:
        pieces = self._messages.pieces(request.messages)
        if not pieces:
            raise ConfigError("there is nothing to send: every message is blank")
        return [_OPENING, *pieces] if pieces[0].startswith(b'{"role":"assistant"') else pieces

    def _fields(self, request: ModelRequest, paused: AssistantMessage | None) -> dict[str, bytes]:
        options = self._options(request)
        answers = (message for message in reversed(request.messages) if isinstance(message, AssistantMessage))
        last = paused or next(answers, None)
        if last is not None and (container := _container(last)) is not None:
            options["container"] = container
        # Marks cost a little: they pay only where another request shares what they cover.
        marked = bool(request.tools) or last is not None
        if marked:
            options["cache_control"] = _MARK  # the server puts this one on the last block
        system = self._system(request)
        fields = {key: encode(value) for key, value in options.items()}
        if tools := self._all_tools(request, marked=marked and not system):
            fields["tools"] = tools
        if system:
            fields["system"] = encode([*system[:-1], {**system[-1], "cache_control": _MARK}] if marked else system)
        if request.settings is not None:
            fields |= {key: encode(value) for key, value in request.settings.extra_body.items()}
        return fields

    def _system(self, request: ModelRequest) -> list[dict[str, Any]]:
        texts = [request.instructions or ""]
        if request.output_schema is not None and not self._format(request):
            texts.append(_ASK_FOR_JSON + encode(request.output_schema).decode())
        return [{"type": "text", "text": text} for text in texts if text.strip()]

    def _format(self, request: ModelRequest) -> dict[str, Any] | None:
        if request.output_schema is None:
            return None
        if not self._traits.output_schema:
            raise self._unsupported("output_schema", "no output schema")
        return output_format(request.output_schema)

    def _all_tools(self, request: ModelRequest, *, marked: bool) -> bytes:
        known, pieces = self._tools
        if request.tools != known:
            pieces = [encode(_tool(spec)) for spec in request.tools]
            self._tools = (request.tools, pieces)
        pieces = pieces + [encode(_toolset(server)) for server in request.hosted_mcp]
        if request.hosted_web_search:
            pieces.append(encode(_WEB_SEARCH))
        if marked and pieces:
            pieces[-1] = b'%b,"cache_control":%b}' % (pieces[-1][:-1], encode(_MARK))
        return b"[%b]" % b",".join(pieces) if pieces else b""

    def _options(self, request: ModelRequest) -> dict[str, Any]:
        limit = min(request.max_output_tokens, self._traits.max_output_tokens or request.max_output_tokens)
        options: dict[str, Any] = {"max_tokens": limit, "stream": True}
        config: dict[str, Any] = {}
        if request.reasoning is not None:
            options["thinking"] = self._thinking(request.reasoning, limit)
            if request.reasoning.effort not in (None, "none"):
                config["effort"] = request.reasoning.effort
        if (shape := self._format(request)) is not None:
            config["format"] = shape
        if config:
            options["output_config"] = config
        if request.hosted_mcp:
            options["mcp_servers"] = [_server(server) for server in request.hosted_mcp]
        if request.settings is not None:
            options |= self._settings(request.settings)
        if (choice := _tool_choice(request)) is not None:
            options["tool_choice"] = choice
        return options

    def _thinking(self, reasoning: Reasoning, limit: int) -> dict[str, Any]:
        """How the model thinks. Newer models choose by themselves, within the effort; older ones have a budget."""
        budget = reasoning.budget_tokens
        if not self._traits.reasoning:
            raise self._unsupported("reasoning", "no reasoning: leave it out")
        if reasoning.effort is not None and not self._traits.effort:
            raise self._unsupported("effort", "no reasoning effort: give budget_tokens instead")
        if budget is not None and not self._traits.budget:
            raise self._unsupported("min_reasoning_budget", "no reasoning budget: give an effort instead")
        if reasoning.effort == "none":
            return {"type": "disabled"}
        display = {"display": "summarized"} if reasoning.show else {}
        if budget is None and self._traits.adaptive:
            return {"type": "adaptive", **display}
        if budget is None:
            budget = max(MIN_BUDGET, min(_DEFAULT_BUDGET, limit // 2))
        if budget < MIN_BUDGET:
            raise self._unsupported("min_reasoning_budget", f"no reasoning budget below {MIN_BUDGET} tokens")
        if budget >= limit:
            raise ConfigError(
                f"a reasoning budget of {budget} tokens leaves no room for an answer: "
                f"set max_output_tokens above it (it is {limit})"
            )
        return {"type": "enabled", "budget_tokens": budget, **display}

    def _settings(self, settings: ModelSettings) -> dict[str, Any]:
        given = {
            "seed": settings.seed,
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            "stop_sequences": settings.stop_sequences or None,
        }
        given = {key: value for key, value in given.items() if value is not None}
        refused = {"seed"} if self._traits.sampling else {"seed", "temperature", "top_p"}
        if found := sorted(refused & given.keys()):
            raise self._unsupported(found[0], f"no {found[0]}: leave it out of the settings")
        return given

    def _unsupported(self, feature: str, text: str) -> UnsupportedError:
        model = f"{PROVIDER}:{self._name}"
        return UnsupportedError(f"{model} takes {text}", model=model, feature=feature)


def _container(last: AssistantMessage) -> Any:
    """Where the model's code ran last: its files, and what waits for our results, are still there."""
    for part in last.content:
        if isinstance(part, ProviderPart) and part.provider == PROVIDER and part.kind == CONTAINER:
            return part.data.get("id") if isinstance(part.data, dict) else None
    return None


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
