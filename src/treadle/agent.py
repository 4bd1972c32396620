"""The agent: frozen configuration of a loop around a model."""

from __future__ import annotations

import contextlib
import functools
import os
from typing import TYPE_CHECKING, Any, Generic, TypedDict, overload

import msgspec

from treadle._checks import check_config, check_fit
from treadle._config import AgentConfig, RunInput, ToolTable, request_of
from treadle._input import take_input
from treadle._sync import run_sync
from treadle.errors import ConfigError, NoSuchToolError
from treadle.limits import Limits
from treadle.loop import Loop
from treadle.messages import encodable
from treadle.model import (
    DEFAULT_MAX_OUTPUT_TOKENS,
    Model,
    ModelSettings,
    as_model,
    ask_count,
)
from treadle.output import OutputSpec
from treadle.result import DepsT, OutputT
from treadle.retry import Retry
from treadle.run import Run, RunResult
from treadle.tools import Tool, tool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Unpack

    from typing_extensions import TypeForm

    from treadle._input import Input
    from treadle.events import Event
    from treadle.limits import StopCondition
    from treadle.messages import Message
    from treadle.model import HostedMCP, Reasoning
    from treadle.result import RunContext
    from treadle.toolsets import Toolset

    class AgentOptions(TypedDict, total=False):
        """The options of an agent whose types do not depend on its output."""

        name: str | None
        instructions: str | Callable[[RunContext[Any]], Any] | None
        tools: Iterable[Tool[..., Any] | Callable[..., Any]]
        toolsets: Iterable[Toolset]
        reasoning: Reasoning | None
        settings: ModelSettings | None
        max_output_tokens: int
        limits: Limits
        parallelism: int
        stop_when: StopCondition | Iterable[StopCondition]
        taps: Iterable[Callable[[Event], object]]
        max_result_bytes: int
        hosted_mcp: Iterable[HostedMCP]
        hosted_web_search: bool
        retry: Retry | None


class Agent(AgentConfig, Generic[DepsT, OutputT]):
    """A model with instructions, tools and limits. Frozen, reusable by any number of runs at once, no I/O.

    `model` is a `Model` or `"provider:name"`; a key is looked for at the first request. `instructions` may be a
    function of the run's `RunContext`, called once per run. `tools` of one name are refused; of `toolsets`, asked
    before each step, the first that has a name wins. `output` is the type of the answer and `deps` that of
    the value given to `run(deps=...)`, for type checkers. `parallelism` bounds the calls that run at once; 1 is
    sequential. `stop_when` takes conditions over the steps, `taps` functions that see every event.
    `max_result_bytes` cuts what the model reads of a tool's result; 0 never cuts. `hosted_mcp` and `hosted_web_search`
    are run by the provider on its side: their calls and results come as events and parts marked `hosted`. `retry` says
    how failed model requests are sent again; None never does.

    Raises `ConfigError` for wrong or clashing options, `UnsupportedError` for what the model cannot do.
    """

    @overload
    def __init__(
        self,
        model: Model | str,
        *,
        deps: type[DepsT] | None = None,
        **options: Unpack[AgentOptions],
    ) -> None: ...
    @overload
    def __init__(
        self,
        model: Model | str,
        *,
        output: type[OutputT],
        deps: type[DepsT] | None = None,
        **options: Unpack[AgentOptions],
    ) -> None: ...
    @overload
    def __init__(
        self,
        model: Model | str,
        *,
        output: TypeForm[OutputT],
        deps: type[DepsT] | None = None,
        **options: Unpack[AgentOptions],
    ) -> None: ...
    def __init__(
        self,
        model: Model | str,
        *,
        name: str | None = None,
        instructions: str | Callable[[RunContext[Any]], Any] | None = None,
        tools: Iterable[Tool[..., Any] | Callable[..., Any]] = (),
        toolsets: Iterable[Toolset] = (),
        output: Any = str,
        deps: Any = None,
        reasoning: Reasoning | None = None,
        settings: ModelSettings | None = None,
        max_output_tokens: int = DEFAULT_MAX_OUTPUT_TOKENS,
        limits: Limits = Limits(),  # noqa: B008 - frozen
        parallelism: int = 4,
        stop_when: StopCondition | Iterable[StopCondition] = (),
        taps: Iterable[Callable[[Event], object]] = (),
        max_result_bytes: int = 65_536,
        hosted_mcp: Iterable[HostedMCP] = (),
        hosted_web_search: bool = False,
        retry: Retry | None = Retry(),  # noqa: B008 - frozen
    ) -> None:
        if isinstance(tools, Tool) or callable(tools):
            raise ConfigError("tools is a list: write tools=[...] also for one")
        super().__init__(
            model=as_model(model),
            name=encodable(name) if isinstance(name, str) else name,
            instructions=instructions,
            tools=tuple(given if isinstance(given, Tool) else tool(given) for given in tools),
            toolsets=tuple(toolsets),
            output=output,
            deps=deps,
            reasoning=reasoning,
            settings=settings,
            max_output_tokens=max_output_tokens,
            limits=limits,
            parallelism=parallelism,
            stop_when=(stop_when,) if callable(stop_when) else tuple(stop_when),
            taps=tuple(taps),
            max_result_bytes=max_result_bytes,
            hosted_mcp=tuple(hosted_mcp),
            hosted_web_search=hosted_web_search,
            retry=retry,
        )
        check_config(self)
        check_fit(self, settings)
        if self._spec is not None:
            self._spec.check_type()

    def stream(
        self,
        input: Input = "",  # noqa: A002 - the word of the whole API
        *,
        messages: Iterable[Message] = (),
        deps: DepsT = None,  # type: ignore[assignment]
        settings: ModelSettings | None = None,
        run_id: str | None = None,
    ) -> Run[OutputT]:
        """A run to iterate over: `async with agent.stream(...) as run`.

        `input` is a string, a list of text and file parts, or a list of messages; `messages` is the history before
        it. Both are repaired first. `settings` overrides the agent's, field by field.
        """
        if run_id is None:
            run_id = f"run_{os.urandom(8).hex()}"
        elif not isinstance(run_id, str) or not run_id:
            raise ConfigError(f"run_id is a string that is not empty, and is {run_id!r:.80}")
        history, new = take_input(input, messages, self.model)
        settings = _merged(self.settings, settings)
        check_fit(self, settings, (*history, *new), self._table.specs)
        given = RunInput(run_id, history, new, deps, settings, self._table, self._spec, self._final_tool)
        return Run(run_id, Loop(self, given))

    async def run(
        self,
        input: Input = "",  # noqa: A002
        *,
        messages: Iterable[Message] = (),
        deps: DepsT = None,  # type: ignore[assignment]
        settings: ModelSettings | None = None,
        run_id: str | None = None,
    ) -> RunResult[OutputT]:
        """Runs to the end: `stream` and its `result()`.

        Raises `RunError` for a run that broke, `LimitExceeded` for one that a limit stopped; both hold the `.result`
        so far. Other ways to stop short are told by `result.stop` and `result.complete`.
        """
        async with self.stream(input, messages=messages, deps=deps, settings=settings, run_id=run_id) as run:
            return await run.result()

    def run_sync(
        self,
        input: Input = "",  # noqa: A002
        *,
        messages: Iterable[Message] = (),
        deps: DepsT = None,  # type: ignore[assignment]
        settings: ModelSettings | None = None,
        run_id: str | None = None,
    ) -> RunResult[OutputT]:
        """`run` for scripts, on a private event loop. Raises `ConfigError` inside a running event loop."""
        return run_sync(
            self.run(input, messages=messages, deps=deps, settings=settings, run_id=run_id),
            "write `await agent.run(...)`",
        )

    async def call_tool(self, name: str, args: str | Mapping[str, Any] = "{}", *, deps: DepsT = None) -> Any:  # type: ignore[assignment]
        """Runs one tool by name, outside a run, and returns its own value, uncut.

        Raises `NoSuchToolError` for an unknown name, `ToolInputError` for bad arguments, and what the tool raises.
        """
        async with contextlib.AsyncExitStack() as stack:
            tools = list(self.tools)
            for toolset in self.toolsets:
                await stack.enter_async_context(toolset)
                tools += await toolset.tools()
            for found in tools:
                if found.name == name:
                    return await found.invoke(args, deps=deps)
        raise NoSuchToolError(f"there is no tool {name!r}; the tools are: {', '.join(t.name for t in tools) or 'none'}")

    async def count_tokens(
        self,
        input: Input = "",  # noqa: A002
        *,
        messages: Iterable[Message] = (),
    ) -> int:
        """The input tokens of the next request, by the provider's own counter; without the tools of toolsets.

        Raises `UnsupportedError` where there is none; instructions must be a string here, as no run is there yet.
        """
        if callable(self.instructions):
            raise ConfigError("tokens can be counted only where instructions is a string")
        history, new = take_input(input, messages, self.model)
        schema = self._spec.schema if self._spec is not None and not self._final_tool else None
        messages, tools = (*history, *new), self._table.specs
        request = request_of(self, self.instructions, messages, tools, output_schema=schema, settings=self.settings)
        return await ask_count(self.model, request)

    @functools.cached_property
    def _spec(self) -> OutputSpec | None:
        return None if self.output is str else OutputSpec(self.output)

    @property
    def _final_tool(self) -> bool:
        return self._spec is not None and not self.model.capabilities.output_schema

    @functools.cached_property
    def _table(self) -> ToolTable:
        tools: Sequence[Tool[..., Any]] = self.tools
        return ToolTable((*tools, self._spec.tool) if self._spec is not None and self._final_tool else tools)


def _merged(base: ModelSettings | None, over: ModelSettings | None) -> ModelSettings | None:
    if not isinstance(over, ModelSettings | None):
        raise ConfigError(f"settings is a ModelSettings, and is {over!r:.80}")
    if base is None or over is None:
        return over or base
    plain = ModelSettings()
    changes = {
        field: value for field in over.__struct_fields__ if (value := getattr(over, field)) != getattr(plain, field)
    }
    for field in ("extra_body", "extra_headers"):
        changes[field] = {**getattr(base, field), **getattr(over, field)}
    return msgspec.structs.replace(base, **changes)
