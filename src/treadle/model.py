"""The model seam: one request in, deltas and one `ModelFinish` out."""

from __future__ import annotations

import logging
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import msgspec

from treadle.errors import ConfigError, UnsupportedError
from treadle.messages import Message, ModelRef

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from treadle.events import ModelEvent


_log = logging.getLogger("treadle")


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a model can do. Asking for anything else is refused before a request is sent.

    `min_reasoning_budget` is the smallest `Reasoning(budget_tokens=...)` taken; None where a budget cannot be set.
    """

    tools: bool = True
    reasoning: bool = False
    effort: bool = False
    min_reasoning_budget: int | None = None
    hosted_mcp: bool = False
    hosted_web_search: bool = False
    output_schema: bool = False
    cost: bool = False
    token_counting: bool = False
    files: bool = False


class Reasoning(msgspec.Struct, frozen=True, kw_only=True):
    """How much the model should think, and whether consumers see it.

    `effort` is the provider's own word (none, minimal, low, medium, high, xhigh, max) and passed through.
    """

    effort: str | None = None
    budget_tokens: int | None = None
    show: bool = False


class DefaultLimit(int):
    """An output limit that nobody asked for: where the wire has a default of its own, an adapter need not send it."""


DEFAULT_MAX_OUTPUT_TOKENS = DefaultLimit(32_000)


class ModelSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Sampling and routing of a request. None leaves the provider's default.

    `tool_choice` is `auto`, `required`, `none` or a tool's name. `extra_body` is merged into the request's JSON and
    `extra_headers` into its headers, untouched.
    """

    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    stop_sequences: tuple[str, ...] = ()
    tool_choice: str | None = None
    extra_body: dict[str, Any] = {}
    extra_headers: dict[str, str] = {}

    def __post_init__(self) -> None:
        if isinstance(self.stop_sequences, str):
            raise ConfigError("stop_sequences is a tuple of strings: write stop_sequences=('END',)")
        msgspec.structs.force_setattr(self, "stop_sequences", tuple(self.stop_sequences))
        for field, kind in (("temperature", int | float), ("top_p", int | float), ("seed", int), ("tool_choice", str)):
            value = getattr(self, field)
            if value is not None and (isinstance(value, bool) or not isinstance(value, kind)):
                raise ConfigError(
                    f"ModelSettings({field}=...) is {'text' if kind is str else 'a number'}: {value!r:.80}"
                )
        for name, value in self.extra_headers.items():
            if not all(isinstance(text, str) and text.isascii() and text.isprintable() for text in (name, value)):
                # Without the value, which may be a key.
                raise ConfigError(f"extra_headers must be plain ASCII on one line each, and {name!r:.80} is not")


class HostedMCP(msgspec.Struct, frozen=True):
    """An MCP server that the provider calls on its side. `token` is sent to the provider and shown nowhere.

    `allowed_tools` left empty allows all.
    """

    name: str
    url: str
    token: str | None = None
    allowed_tools: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.allowed_tools, str):
            raise ConfigError("allowed_tools is a tuple of names: write allowed_tools=('search',)")
        msgspec.structs.force_setattr(self, "allowed_tools", tuple(self.allowed_tools))

    def __repr__(self) -> str:
        return f"HostedMCP({self.name!r}, {self.url!r}, allowed_tools={self.allowed_tools!r})"


class ToolSpec(msgspec.Struct, frozen=True):
    """What a model is told of one tool. The schemas are JSON Schema."""

    name: str
    description: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None = None


class ModelRequest(msgspec.Struct, frozen=True):
    """One request, already checked against the model's capabilities. Read-only: replace it, do not change it.

    `messages` extends the messages of the run's last request; `tools` are sorted by name. `output_schema` asks for
    an answer that is JSON of that schema.
    """

    instructions: str | None
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    output_schema: dict[str, Any] | None = None
    reasoning: Reasoning | None = None
    settings: ModelSettings | None = None
    max_output_tokens: int = DEFAULT_MAX_OUTPUT_TOKENS
    hosted_mcp: tuple[HostedMCP, ...] = ()
    hosted_web_search: bool = False
    sequential_tools: bool = False


@runtime_checkable
class Model(Protocol):
    """One endpoint that answers one request.

    `stream` makes one request. It yields deltas, hosted tool events and, from wrappers, `ModelRetry`, then exactly one
    `ModelFinish` and nothing after it. Failure is one raised exception. Optional: `check(request)`, which sends nothing
    and raises `UnsupportedError` for what the model does not take, asked when an agent is built (of tools there are
    only the names) and when a run begins (without the tools of toolsets), each time with a stand-in for the output
    schema; `count_tokens(request)`; and `aclose()`, which never closes the shared connection pool.
    """

    @property
    def provider(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def capabilities(self) -> Capabilities: ...
    def stream(self, request: ModelRequest, /) -> AsyncIterator[ModelEvent]: ...


def model_ref(model: Model) -> ModelRef:
    """The model's `provider:name`."""
    return ModelRef(model.provider, model.name)


def as_model(model: Model | str) -> Model:
    """`model`, or the one that `"provider:name"` names."""
    if isinstance(model, str):
        from treadle.providers import resolve

        return resolve(model)
    if not isinstance(model, Model):
        raise ConfigError(f'model is a Model or a "provider:name" string, and is {model!r:.80}')
    return model


# The optional parts of the seam


def check_request(model: Model, request: ModelRequest) -> None:
    """Asks the model whether it takes `request`, if it can tell."""
    if (check := getattr(model, "check", None)) is not None:
        check(request)


async def count_tokens(model: Model, request: ModelRequest) -> int:
    """The input tokens of `request`, by the provider's own counter. Raises `UnsupportedError` where there is none."""
    count = getattr(model, "count_tokens", None)
    if count is None or not model.capabilities.token_counting:
        ref = str(model_ref(model))
        raise UnsupportedError(f"{ref} has no token counter", model=ref, feature="token_counting")
    return int(await count(request))


async def close(thing: Any) -> None:
    """Closes a model, or an answer that is still streaming, if that has a way to be closed."""
    if (aclose := getattr(thing, "aclose", None)) is not None:
        await aclose()


async def close_stream(stream: Any) -> None:
    """Closes an answer. What fails there is logged only: it must hide neither the answer nor why there is none."""
    try:
        await close(stream)
    except Exception:  # noqa: BLE001 - it may be anybody's
        _log.warning("a model's stream failed while it was closed", exc_info=True)


# What may stand between agents and their models


class Interceptor(Protocol):
    """Answers in the model's stead, or listens: what records and replays.

    `ask` leads on to the model and its retries. `sent` is told of each HTTP request that went out, signed as it was, so
    that none of its secrets is kept.
    """

    def stream(
        self, model: Model, request: ModelRequest, ask: Callable[[ModelRequest], AsyncIterator[ModelEvent]], /
    ) -> AsyncIterator[ModelEvent]: ...
    async def count_tokens(self, model: Model, request: ModelRequest, /) -> int: ...
    def sent(self, url: str, headers: Mapping[str, str], /) -> None: ...


interceptor: ContextVar[Interceptor | None] = ContextVar("treadle_interceptor", default=None)


def open_stream(
    model: Model, request: ModelRequest, ask: Callable[[ModelRequest], AsyncIterator[ModelEvent]]
) -> AsyncIterator[ModelEvent]:
    """What `ask` answers to a request of an agent's, or whoever stands between them."""
    between = interceptor.get()
    return ask(request) if between is None else between.stream(model, request, ask)


async def ask_count(model: Model, request: ModelRequest) -> int:
    """`count_tokens` for an agent, by way of whoever stands between them."""
    between = interceptor.get()
    return await (count_tokens(model, request) if between is None else between.count_tokens(model, request))
