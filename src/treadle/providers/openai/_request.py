"""The request: what goes out beside and around the messages."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any

from treadle.errors import ConfigError
from treadle.model import DefaultLimit
from treadle.providers._faults import Faults
from treadle.providers._output_schema import strict_schema
from treadle.providers._rendered import RenderedMessages, encode
from treadle.providers.openai._messages import MessageWriter

if TYPE_CHECKING:
    from treadle.model import HostedMCP, ModelRequest, ModelSettings, Reasoning, ToolSpec
    from treadle.providers.openai._dialects import Dialect

_COUNTED = frozenset(
    {"model", "input", "instructions", "tools", "tool_choice", "text", "reasoning", "parallel_tool_calls", "truncation"}
)
_SERVER_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9_-]*", re.ASCII)


class RequestWriter:
    """Writes the bodies of one model's requests. What was written once is kept."""

    def __init__(self, provider: str, name: str, dialect: Dialect) -> None:
        self._provider, self._name, self._dialect = provider, name, dialect
        self._writer = MessageWriter(provider, name, dialect)
        self._messages = RenderedMessages(self._writer.write)
        self._tools: tuple[Any, bytes] = (None, b"")
        self._cache_key: tuple[Any, str | None] = (None, None)

    def body(self, request: ModelRequest, *, counting: bool = False) -> bytes:
        """The request as JSON. The messages stand before everything that may differ from step to step.

        With `counting` it holds only what the token counter takes.
        """
        faults = self._faults()
        fields = {key: encode(value) for key, value in self._options(request, faults).items()}
        if request.tools or request.hosted_mcp or request.hosted_web_search:
            fields["tools"] = self._all_tools(request)
        if request.settings is not None:
            fields |= {key: encode(value) for key, value in request.settings.extra_body.items()}
        if counting:
            fields = {key: value for key, value in fields.items() if key in _COUNTED}
        model = fields.pop("model", None) or encode(self._name)
        given = fields.pop("input", None)
        pieces = self._all_messages(request, faults) if given is None else [given]
        faults.settle()
        rest = b"".join([b",%b:%b" % (encode(key), value) for key, value in fields.items()])
        start, end = (b"[", b"]") if given is None else (b"", b"")
        # A long conversation is copied once only: by the join.
        pieces[0] = b'{"model":%b,"input":%b%b' % (model, start, pieces[0])
        pieces[-1] += b"%b%b}" % (end, rest)
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
        return pieces

    def _all_tools(self, request: ModelRequest) -> bytes:
        known = (request.tools, request.hosted_mcp, request.hosted_web_search)
        if known != self._tools[0]:
            tools = [_tool(spec) for spec in request.tools]
            tools += [self._server(server) for server in request.hosted_mcp]
            tools += [{"type": "web_search"}] if request.hosted_web_search else []
            self._tools = (known, encode(tools))
        return self._tools[1]

    def _server(self, server: HostedMCP) -> dict[str, Any]:
        tool: dict[str, Any] = {"type": "mcp", "server_label": server.name, "server_url": server.url}
        if server.token is not None:
            tool["authorization"] = server.token
        if server.allowed_tools:
            tool["allowed_tools"] = server.allowed_tools
        if self._dialect.mcp_approval:
            tool["require_approval"] = "never"
        return tool

    def _options(self, request: ModelRequest, faults: Faults) -> dict[str, Any]:
        self._check(request, faults)
        options: dict[str, Any] = {"stream": True, "store": False}
        if include := self._include(request):
            options["include"] = include
        if request.instructions is not None and request.instructions.strip():
            options["instructions"] = request.instructions
        # The agent's own default is no wish: many models take less and would refuse, so their own limit stays.
        if not isinstance(request.max_output_tokens, DefaultLimit):
            options["max_output_tokens"] = request.max_output_tokens
        if (request.tools or request.hosted_mcp) and request.sequential_tools:
            options["parallel_tool_calls"] = False
        if request.output_schema is not None:
            options["text"] = {"format": _text_format(request.output_schema)}
        if request.reasoning is not None and (reasoning := _reasoning(request.reasoning)):
            options["reasoning"] = reasoning
        if self._dialect.cache_key and (key := self._prompt_cache_key(request)) is not None:
            options["prompt_cache_key"] = key
        if request.settings is not None:
            options |= self._settings(request.settings, request, faults)
        return options

    def _check(self, request: ModelRequest, faults: Faults) -> None:
        if request.hosted_mcp and not self._dialect.hosted_mcp:
            faults.add("hosted_mcp", "no hosted MCP servers: leave out hosted_mcp")
        if request.hosted_web_search and not self._dialect.hosted_web_search:
            faults.add("hosted_web_search", "no hosted web search: leave out hosted_web_search")
        if request.output_schema is not None and not self._dialect.output_schema:
            faults.add("output_schema", "no output schema")
        if request.reasoning is not None:
            self._check_reasoning(request.reasoning, faults)
        for server in request.hosted_mcp:
            if not _SERVER_NAME.fullmatch(server.name):
                text = "rename it with letters, digits, - and _, a letter first"
                raise ConfigError(f"{self._provider} takes no hosted MCP server named {server.name!r}: {text}")

    def _check_reasoning(self, reasoning: Reasoning, faults: Faults) -> None:
        if not self._dialect.reasoning:
            faults.add("reasoning", "no reasoning: leave out reasoning")
        elif reasoning.effort is not None and not self._dialect.effort:
            faults.add("effort", "no reasoning effort: leave out effort")
        if reasoning.budget_tokens is not None:
            faults.add("min_reasoning_budget", "no reasoning budget: leave out budget_tokens")

    def _include(self, request: ModelRequest) -> list[str]:
        include = []
        if self._dialect.sealed_reasoning:
            include.append("reasoning.encrypted_content")
        if request.hosted_web_search and self._dialect.search_sources:
            include.append("web_search_call.action.sources")
        return include

    def _prompt_cache_key(self, request: ModelRequest) -> str | None:
        """The same for agents that share instructions and tools, whatever tokens they show. None without either."""
        servers = tuple((server.name, server.url, server.allowed_tools) for server in request.hosted_mcp)
        known = (request.instructions, request.tools, servers, request.hosted_web_search)
        if known != self._cache_key[0]:
            shared = [request.instructions or "", [_tool(spec) for spec in request.tools], *known[2:]]
            key = f"treadle-{hashlib.sha256(encode(shared)).hexdigest()[:32]}" if any(known) else None
            self._cache_key = (known, key)
        return self._cache_key[1]

    def _settings(self, settings: ModelSettings, request: ModelRequest, faults: Faults) -> dict[str, Any]:
        given = {
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            "seed": settings.seed,
            "stop_sequences": settings.stop_sequences or None,
            "tool_choice": _tool_choice(settings.tool_choice, request),
        }
        given = {key: value for key, value in given.items() if value is not None}
        for name in sorted(given.keys() - self._dialect.settings):
            faults.add(name, f"no {name}: leave it out of the settings")
        return given


def _reasoning(reasoning: Reasoning) -> dict[str, Any]:
    given = {"effort": reasoning.effort, "summary": "auto" if reasoning.show else None}
    return {key: value for key, value in given.items() if value is not None}


def _tool(spec: ToolSpec) -> dict[str, Any]:
    """Not strict, said outright: left out it would be, and would change what optional fields mean."""
    schema = spec.input_schema or {"type": "object", "properties": {}}
    return {
        "type": "function",
        "name": spec.name,
        "description": spec.description,
        "parameters": schema,
        "strict": False,
    }


def _text_format(schema: dict[str, Any]) -> dict[str, Any]:
    strict = strict_schema(schema)
    name = re.sub(r"[^a-zA-Z0-9_-]", "_", str(schema.get("title", "")))[:64] or "answer"
    return {"type": "json_schema", "name": name, "schema": strict or schema, "strict": strict is not None}


def _tool_choice(choice: str | None, request: ModelRequest) -> Any:
    names = [spec.name for spec in request.tools]
    if choice is None or not (names or request.hosted_mcp or request.hosted_web_search):
        return None
    if choice in ("auto", "required", "none"):
        return choice
    if choice not in names:
        raise ConfigError(f"tool_choice={choice!r} names no tool: use auto, required, none or one of {names}")
    return {"type": "function", "name": choice}
