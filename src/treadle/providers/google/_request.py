"""The request: what goes out beside and around the messages."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from treadle.errors import ConfigError, UnsupportedError
from treadle.model import DefaultLimit
from treadle.providers._rendered import RenderedMessages, encode
from treadle.providers.google._messages import MessageWriter
from treadle.providers.google._schema import google_schema

if TYPE_CHECKING:
    from treadle.model import ModelRequest, ModelSettings, Reasoning, ToolSpec

# A call must follow something of the user's; a conversation that was cut may begin with an answer.
_OPENING = encode({"role": "user", "parts": [{"text": "(The conversation goes on here.)"}]})
_MODELS = encode({"role": "model"})[:-1]


def generation(name: str) -> int | None:
    """3 for `gemini-3-flash-preview`, and for names like `gemini-flash-latest`; None for what is no Gemini model."""
    if found := re.search(r"gemini-(\d+)", name):
        return int(found[1])
    return 3 if re.search(r"gemini-[a-z-]*latest", name) else None


class RequestWriter:
    """Writes the bodies of one model's requests. What was written once is kept."""

    def __init__(self, provider: str, name: str, *, vertex: bool = False) -> None:
        self._provider, self._name, self._vertex = provider, name, vertex
        self._generation = generation(name)
        modern = self._generation is not None and self._generation >= 3
        self._messages = RenderedMessages(MessageWriter(provider, name, modern=modern).write)
        self._tools: tuple[tuple[ToolSpec, ...], list[Any]] = ((), [])
        self._instructions: tuple[str | None, bytes] = (None, b"")

    def body(self, request: ModelRequest) -> bytes:
        """The request as JSON. The messages stand before everything that may differ from step to step."""
        return self._written(request, self._options(request))

    def count_body(self, request: ModelRequest) -> bytes:
        """The same for `countTokens`, which wants to know only what is read. The Gemini API wants it one level down."""
        options = self._options(request)
        body = self._written(request, {"tools": options["tools"]} if "tools" in options else {})
        if self._vertex:
            return body
        return b'{"generateContentRequest":{"model":%b,%b}' % (encode(model_path(self._name)), body[1:])

    def _written(self, request: ModelRequest, options: dict[str, Any]) -> bytes:
        contents = options.pop("contents", None)
        pieces = self._contents(request) if contents is None else [encode(contents)[1:-1]]
        system = self._system(request.instructions) if "systemInstruction" not in options else b""
        rest = b"".join([b",%b:%b" % (encode(key), encode(value)) for key, value in options.items()])
        # A long conversation is copied once only: by the join.
        pieces[0] = b'{%b"contents":[%b' % (system, pieces[0])
        pieces[-1] += b"]%b}" % rest
        return b",".join(pieces)

    def check(self, request: ModelRequest) -> None:
        """Raises for what cannot be written."""
        self._options(request)
        self._messages.pieces(request.messages)

    def _contents(self, request: ModelRequest) -> list[bytes]:
        pieces = self._messages.pieces(request.messages)
        if not pieces:
            raise ConfigError("there is nothing to send: every message is blank")
        return [_OPENING, *pieces] if pieces[0].startswith(_MODELS) else pieces

    def _system(self, instructions: str | None) -> bytes:
        text, written = self._instructions
        if instructions != text:
            given = {"parts": [{"text": instructions}]}
            written = b'"systemInstruction":%b,' % encode(given) if instructions and instructions.strip() else b""
            self._instructions = (instructions, written)
        return written

    def _options(self, request: ModelRequest) -> dict[str, Any]:
        """Everything but messages and instructions. Groups that `extra_body` names are joined, the rest replaced."""
        if request.hosted_mcp:
            raise self._unsupported("hosted_mcp", "no hosted MCP servers: leave out hosted_mcp")
        settings = request.settings
        options: dict[str, Any] = {}
        if tools := self._all_tools(request):
            options["tools"] = tools
        if config := self._tool_config(request):
            options["toolConfig"] = config
        if generated := self._generation_config(request):
            options["generationConfig"] = generated
        for key, value in (settings.extra_body if settings is not None else {}).items():
            known = options.get(key)
            if isinstance(known, dict) and isinstance(value, dict):
                value = {**known, **value}  # noqa: PLW2901 - the joined value takes its place
            elif key == "tools" and known and isinstance(value, list):
                value = [*known, *value]  # noqa: PLW2901 - as above
            options[key] = value
        return options

    def _all_tools(self, request: ModelRequest) -> list[Any]:
        known, declared = self._tools
        if request.tools != known:
            declared = [{"functionDeclarations": [_tool(spec) for spec in request.tools]}]
            self._tools = (request.tools, declared)
        functions = declared if request.tools else []
        if not request.hosted_web_search:
            return functions
        if functions and self._is_old:
            raise self._unsupported("hosted_web_search", "no hosted web search beside tools: leave out one of them")
        return [*functions, {"googleSearch": {}}]

    def _tool_config(self, request: ModelRequest) -> dict[str, Any]:
        config: dict[str, Any] = {}
        choice = request.settings.tool_choice if request.settings is not None else None
        if choice is not None and request.tools:
            config["functionCallingConfig"] = _tool_choice(choice, request.tools)
        if request.tools and request.hosted_web_search and not self._vertex:
            config["includeServerSideToolInvocations"] = True
        return config

    def _generation_config(self, request: ModelRequest) -> dict[str, Any]:
        config = _sampling(request.settings) if request.settings is not None else {}
        # The agent's own default is no wish: models before Gemini 2.5 take less, so their own limit stays.
        if not isinstance(request.max_output_tokens, DefaultLimit):
            config["maxOutputTokens"] = request.max_output_tokens
        if request.output_schema is not None:
            if request.tools and self._is_old:
                raise self._unsupported("output_schema", "no output schema beside tools: leave out one of them")
            config["responseMimeType"] = "application/json"
            config["responseSchema"] = google_schema(request.output_schema)
        if request.reasoning is not None and (thinking := self._thinking(request.reasoning)):
            config["thinkingConfig"] = thinking
        return config

    def _thinking(self, reasoning: Reasoning) -> dict[str, Any]:
        if reasoning.effort is not None and self._is_old:
            raise self._unsupported("effort", "no reasoning effort: give budget_tokens instead")
        found = {
            "thinkingLevel": reasoning.effort,
            "thinkingBudget": reasoning.budget_tokens,
            "includeThoughts": reasoning.show or None,
        }
        return {key: value for key, value in found.items() if value is not None}

    @property
    def _is_old(self) -> bool:
        return self._generation is not None and self._generation < 3

    def _unsupported(self, feature: str, text: str) -> UnsupportedError:
        model = f"{self._provider}:{self._name}"
        return UnsupportedError(f"{model} takes {text}", model=model, feature=feature)


def model_path(name: str) -> str:
    """`gemini-3-pro` as `models/gemini-3-pro`; a name that is a path already stays."""
    return name if "/" in name else f"models/{name}"


def _sampling(settings: ModelSettings) -> dict[str, Any]:
    given = {
        "temperature": settings.temperature,
        "topP": settings.top_p,
        "seed": settings.seed,
        "stopSequences": settings.stop_sequences or None,
    }
    return {key: value for key, value in given.items() if value is not None}


def _tool(spec: ToolSpec) -> dict[str, Any]:
    """A declaration. A function without parameters has none: an object without fields is refused by some versions."""
    declared: dict[str, Any] = {"name": spec.name, "description": spec.description}
    parameters = google_schema(spec.input_schema or {"type": "object"})
    return {**declared, "parameters": parameters} if parameters.get("properties") else declared


def _tool_choice(choice: str, tools: tuple[ToolSpec, ...]) -> dict[str, Any]:
    modes = {"auto": "AUTO", "required": "ANY", "none": "NONE"}
    if choice in modes:
        return {"mode": modes[choice]}
    if choice not in (names := [spec.name for spec in tools]):
        raise ConfigError(f"tool_choice={choice!r} names no tool: use auto, required, none or one of {names}")
    return {"mode": "ANY", "allowedFunctionNames": [choice]}
