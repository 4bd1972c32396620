"""The request: what goes out beside and around the messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from treadle.errors import ConfigError
from treadle.model import DefaultLimit
from treadle.providers._faults import Faults
from treadle.providers._rendered import RenderedMessages, encode
from treadle.providers.google._messages import MessageWriter
from treadle.providers.google._models import traits_of
from treadle.providers.google._schema import google_schema

if TYPE_CHECKING:
    from treadle.model import ModelRequest, ModelSettings, Reasoning, ToolSpec

# A call must follow something of the user's; a conversation that was cut may begin with an answer.
_OPENING = encode({"role": "user", "parts": [{"text": "(The conversation goes on here.)"}]})
_MODELS = encode({"role": "model"})[:-1]


class RequestWriter:
    """Writes the bodies of one model's requests. What was written once is kept."""

    def __init__(self, provider: str, name: str, *, vertex: bool = False) -> None:
        self._provider, self._name, self._vertex = provider, name, vertex
        self._traits = traits_of(name)
        self._writer = MessageWriter(provider, name, modern=self._traits.signed)
        self._messages = RenderedMessages(self._writer.write)
        self._tools: tuple[tuple[ToolSpec, ...], list[Any]] = ((), [])
        self._instructions: tuple[str | None, bytes] = (None, b"")

    def body(self, request: ModelRequest) -> bytes:
        """The request as JSON. The messages stand before everything that may differ from step to step."""
        faults = self._faults()
        return self._written(request, self._options(request, faults), faults)

    def count_body(self, request: ModelRequest) -> bytes:
        """The same for `countTokens`, which wants to know only what is read. The Gemini API wants it one level down."""
        faults = self._faults()
        options = self._options(request, faults)
        body = self._written(request, {"tools": options["tools"]} if "tools" in options else {}, faults)
        if self._vertex:
            return body
        return b'{"generateContentRequest":{"model":%b,%b}' % (encode(model_path(self._name)), body[1:])

    def _written(self, request: ModelRequest, options: dict[str, Any], faults: Faults) -> bytes:
        contents = options.pop("contents", None)
        pieces = self._contents(request, faults) if contents is None else [encode(contents)[1:-1]]
        faults.settle()
        system = self._system(request.instructions) if "systemInstruction" not in options else b""
        rest = b"".join([b",%b:%b" % (encode(key), encode(value)) for key, value in options.items()])
        # A long conversation is copied once only: by the join.
        pieces[0] = b'{%b"contents":[%b' % (system, pieces[0])
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

    def _contents(self, request: ModelRequest, faults: Faults) -> list[bytes]:
        pieces = faults.written(self._messages, request.messages, self._writer.file)
        faults.settle()
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

    def _options(self, request: ModelRequest, faults: Faults) -> dict[str, Any]:
        """Everything but messages and instructions. Groups that `extra_body` names are joined, the rest replaced."""
        self._check(request, faults)
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

    def _check(self, request: ModelRequest, faults: Faults) -> None:
        if request.hosted_mcp:
            faults.add("hosted_mcp", "no hosted MCP servers: leave out hosted_mcp")
        if request.tools and not self._traits.tools:
            faults.add("tools", "no tools: leave out tools and toolsets")
        if request.tools and not self._traits.modern:
            if request.hosted_web_search:
                faults.add("hosted_web_search", "no hosted web search beside tools: leave out one of them")
            if request.output_schema is not None:
                faults.add("output_schema", "no output schema beside tools: leave out one of them")
        if request.reasoning is not None:
            self._check_reasoning(request.reasoning, faults)

    def _check_reasoning(self, reasoning: Reasoning, faults: Faults) -> None:
        smallest, budget = self._traits.min_reasoning_budget, reasoning.budget_tokens
        if not self._traits.reasoning:
            faults.add("reasoning", "no reasoning: leave out reasoning")
        elif reasoning.effort is not None and not self._traits.modern:
            faults.add("effort", "no reasoning effort: give budget_tokens instead")
        elif budget is not None and 0 <= budget < smallest:
            faults.add("min_reasoning_budget", f"no reasoning budget below {smallest} tokens")

    def _all_tools(self, request: ModelRequest) -> list[Any]:
        known, declared = self._tools
        if request.tools != known:
            declared = [{"functionDeclarations": [_tool(spec) for spec in request.tools]}]
            self._tools = (request.tools, declared)
        functions = declared if request.tools else []
        if not request.hosted_web_search:
            return functions
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
            config["responseMimeType"] = "application/json"
            config["responseSchema"] = google_schema(request.output_schema)
        if request.reasoning is not None and (thinking := _thinking(request.reasoning)):
            config["thinkingConfig"] = thinking
        return config


def _thinking(reasoning: Reasoning) -> dict[str, Any]:
    """A budget wins over a level: the API refuses both (2026-11)."""
    found = {
        "thinkingLevel": reasoning.effort if reasoning.budget_tokens is None else None,
        "thinkingBudget": reasoning.budget_tokens,
        "includeThoughts": reasoning.show or None,
    }
    return {key: value for key, value in found.items() if value is not None}


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
