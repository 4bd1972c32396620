"""The request: what goes out beside and around the messages."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from treadle.errors import ConfigError, UnsupportedError
from treadle.model import DefaultLimit
from treadle.providers._output_schema import strict_schema
from treadle.providers._rendered import RenderedMessages, encode
from treadle.providers.openai_chat._messages import MessageWriter

if TYPE_CHECKING:
    from treadle.model import ModelRequest, ModelSettings, ToolSpec
    from treadle.providers._dialects import Dialect


class RequestWriter:
    """Writes the bodies of one model's requests. What was written once is kept."""

    def __init__(self, provider: str, name: str, dialect: Dialect) -> None:
        self._provider, self._name, self._dialect = provider, name, dialect
        self._messages = RenderedMessages(MessageWriter(provider, name, dialect).write)
        self._tools: tuple[tuple[ToolSpec, ...], bytes] = ((), b"[]")
        self._instructions: tuple[str | None, bytes] = (None, b"")

    def body(self, request: ModelRequest) -> bytes:
        """The request as JSON. The messages stand before everything that may differ from step to step."""
        fields = {key: encode(value) for key, value in self._options(request).items()}
        if request.tools:
            fields["tools"] = self._all_tools(request.tools)
        if request.settings is not None:
            fields |= {key: encode(value) for key, value in request.settings.extra_body.items()}
        model = fields.pop("model", None) or encode(self._name)
        given = fields.pop("messages", None)
        pieces = self._all_messages(request) if given is None else [given[1:-1]]
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
        text, system = self._instructions
        if request.instructions != text:
            text = request.instructions
            system = encode({"role": "system", "content": text}) if text and text.strip() else b""
            self._instructions = (text, system)
        pieces = self._messages.pieces(request.messages)
        if not pieces:
            raise ConfigError("there is nothing to send: every message is blank")
        return [system, *pieces] if system else pieces

    def _all_tools(self, tools: tuple[ToolSpec, ...]) -> bytes:
        known, written = self._tools
        if tools != known:
            written = encode([_tool(spec) for spec in tools])
            self._tools = (tools, written)
        return written

    def _options(self, request: ModelRequest) -> dict[str, Any]:
        options: dict[str, Any] = {"stream": True}
        if self._dialect.usage_option:
            options["stream_options"] = {"include_usage": True}
        # The agent's own default is no wish: many models take less and would refuse, so their own limit stays.
        if not isinstance(request.max_output_tokens, DefaultLimit):
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
