"""The agent: frozen configuration of a loop around a model."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
from typing import TYPE_CHECKING, Any, Generic, TypedDict, overload

import msgspec

from treadle._checks import check_config, check_fit
from treadle._config import AgentConfig, RunInput, ToolTable, request_of
from treadle._input import session_place, take_input
from treadle._resume import paused_in, paused_run, read_paused
from treadle._sync import run_sync
from treadle.approval import deny_all
from treadle.errors import ConfigError, NoSuchToolError
from treadle.hooks import Hooks
from treadle.limits import Limits
from treadle.loop import Loop
from treadle.messages import clean, encodable
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
from treadle.subagent import strongest_effect, subagent_tool
from treadle.tools import Tool, tool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Unpack

    from typing_extensions import TypeForm

    from treadle._budget import Budget
    from treadle._guard import Waits
    from treadle._input import Input
    from treadle.approval import Approve, Decision
    from treadle.events import Event, Parent
    from treadle.hooks import Hook
    from treadle.limits import StopCondition
    from treadle.messages import Message
    from treadle.model import HostedMCP, Reasoning, ToolSpec
    from treadle.result import RunContext
    from treadle.sessions import PausedRun, Store
    from treadle.tools import ToolContext
    from treadle.toolsets import Toolset
    from treadle.wraps import WrapModel, WrapTool

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
        wrap_model: WrapModel | Iterable[WrapModel]
        wrap_tool: WrapTool | Iterable[WrapTool]
        approve: Approve | None
        hooks: Mapping[str, Sequence[Hook]] | None


class Agent(AgentConfig, Generic[DepsT, OutputT]):
    """A model with instructions, tools and limits. Frozen, reusable by any number of runs at once, no I/O.

    `model` is a `Model` or `"provider:name"`; a key is looked for at the first request. `instructions` may be a
    function of the run's `RunContext`, called once per run. `tools` of one name are refused; `toolsets` are asked
    before each step, and may share a name (see `Toolset`). `output` is the type of the answer and `deps` that of the
    value given to `run(deps=...)`, for type checkers. `parallelism` bounds the calls that run at once; 1 is
    sequential. `stop_when` takes conditions over the steps, `taps` functions that see every event.
    `max_result_bytes` cuts what the model reads of a tool's result; 0 never cuts. `hosted_mcp` and `hosted_web_search`
    are run by the provider on its side: their calls and results come as events and parts marked `hosted`. `retry` says
    how failed model requests are sent again; None never does. `wrap_model` and `wrap_tool` stand around each request
    and each local call, the first one outermost. `approve` decides on each local call before it runs, behind the
    `before_tool` hooks; see `treadle.approval` and `treadle.hooks`.

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
        wrap_model: WrapModel | Iterable[WrapModel] = (),
        wrap_tool: WrapTool | Iterable[WrapTool] = (),
        approve: Approve | None = None,
        hooks: Mapping[str, Sequence[Hook]] | None = None,
    ) -> None:
        if isinstance(tools, Tool) or callable(tools) or not hasattr(tools, "__iter__"):
            raise ConfigError("tools is a list: write tools=[...] also for one, and toolsets=[...] for a toolset")
        if not hasattr(toolsets, "__iter__"):
            raise ConfigError("toolsets is a list: write toolsets=[...] also for one")
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
            stop_when=_listed(stop_when),
            taps=tuple(taps),
            max_result_bytes=max_result_bytes,
            hosted_mcp=tuple(hosted_mcp),
            hosted_web_search=hosted_web_search,
            retry=retry,
            wrap_model=_listed(wrap_model),
            wrap_tool=_listed(wrap_tool),
            approve=approve,
            hooks=None if not hooks else Hooks(hooks),
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
        store: Store | None = None,
        session: str | None = None,
    ) -> Run[OutputT]:
        """A run to iterate over: `async with agent.stream(...) as run`.

        `input` is a string, a list of text and file parts, or a list of messages; `messages` is the history before
        it. Both are repaired first. `settings` overrides the agent's, field by field.

        With `store` and `session` the history comes from the session, which begins with this run where it is new, and
        the run's events go there; `treadle.store` tells more. That nobody else has the session, and that there is
        something to answer, is then checked at the first event. Calls that a paused run left open are answered as never
        run; use `resume` to go on with them.
        """
        if run_id is not None and (not isinstance(run_id, str) or not run_id):
            raise ConfigError(f"run_id is a string that is not empty, and is {run_id!r:.80}")
        place = session_place(store, session, messages)
        return self._start(input, messages=messages, deps=deps, settings=settings, run_id=run_id, place=place)

    def _start(
        self,
        given: Input,
        *,
        deps: Any,
        run_id: str | None = None,
        messages: Iterable[Message] = (),
        settings: ModelSettings | None = None,
        parent: Parent | None = None,
        budget: Budget | None = None,
        waits: Waits | None = None,
        place: tuple[Store, str] | None = None,
    ) -> Run[OutputT]:
        name = run_id or f"run_{os.urandom(8).hex()}"
        merged = _merged(self.settings, settings)

        def loop(messages: Iterable[Message]) -> Loop:
            history, new = take_input(given, messages, self.model)
            check_fit(self, merged, (*history, *new), self._table.specs)
            made = RunInput(
                name,
                history,
                new,
                deps,
                merged,
                self._table,
                self._spec,
                self._final_tool,
                parent=parent,
                budget=budget,
                waits=waits,
                stored=place is not None,
            )
            return Loop(self, made)

        if place is None:
            return Run(loop(messages))
        from treadle._session_loop import SessionLoop

        return Run(SessionLoop(name, *place, lambda told: loop(told.messages())))

    async def run(
        self,
        input: Input = "",  # noqa: A002
        *,
        messages: Iterable[Message] = (),
        deps: DepsT = None,  # type: ignore[assignment]
        settings: ModelSettings | None = None,
        run_id: str | None = None,
        store: Store | None = None,
        session: str | None = None,
    ) -> RunResult[OutputT]:
        """Runs to the end: `stream` and its `result()`.

        Raises `RunError` for a run that broke, `LimitExceeded` for one that a limit stopped; both hold the `.result`
        so far. Other ways to stop short are told by `result.stop` and `result.complete`.
        """
        async with self.stream(
            input, messages=messages, deps=deps, settings=settings, run_id=run_id, store=store, session=session
        ) as run:
            return await run.result()

    async def resume(
        self,
        result: RunResult[Any] | None = None,
        decisions: Mapping[str, Decision] = {},
        *,
        messages: Iterable[Message] = (),
        run_id: str | None = None,
        deps: DepsT = None,  # type: ignore[assignment]
        settings: ModelSettings | None = None,
        store: Store | None = None,
        session: str | None = None,
    ) -> RunResult[OutputT]:
        """Goes on with a paused run to its end: `resume_stream` and its `result()`. Raises what `run` raises."""
        async with self.resume_stream(
            result,
            decisions,
            messages=messages,
            run_id=run_id,
            deps=deps,
            settings=settings,
            store=store,
            session=session,
        ) as run:
            return await run.result()

    def resume_stream(
        self,
        result: RunResult[Any] | None = None,
        decisions: Mapping[str, Decision] = {},
        *,
        messages: Iterable[Message] = (),
        run_id: str | None = None,
        deps: DepsT = None,  # type: ignore[assignment]
        settings: ModelSettings | None = None,
        store: Store | None = None,
        session: str | None = None,
    ) -> Run[OutputT]:
        """A paused run that goes on, under its own id, once its pending calls are decided on.

        `result` is that of the paused run; in another process give its `messages`, as they are, and its `run_id`, or
        the `store` and the `session` that it paused in.
        `decisions` has one for every pending call, by call id. A call that is allowed runs once, here. Raises
        `ConfigError` for a decision that is missing, or was made for another call or for other arguments.
        """
        merged = _merged(self.settings, settings)
        place = session_place(store, session, messages if result is None else result.messages)

        def loop(run_id: str, messages: Iterable[Message], known: PausedRun | None) -> Loop:
            history = tuple(clean(message) for message in messages)
            resumed = read_paused(run_id, history, decisions, known)
            check_fit(self, merged, history, self._table.specs)
            given = RunInput(run_id, history, (), deps, merged, self._table, self._spec, self._final_tool, resumed)
            return Loop(self, dataclasses.replace(given, stored=place is not None))

        if place is not None:
            from treadle._session_loop import SessionLoop

            return Run(SessionLoop(run_id or "", *place, lambda told: loop(*paused_in(told, run_id))))
        if result is not None:
            return Run(loop(result.id, result.messages, paused_run(result)))
        if not run_id:
            raise ConfigError("give the result of the paused run, or its messages and run_id")
        return Run(loop(run_id, messages, None))

    def run_sync(
        self,
        input: Input = "",  # noqa: A002
        *,
        messages: Iterable[Message] = (),
        deps: DepsT = None,  # type: ignore[assignment]
        settings: ModelSettings | None = None,
        run_id: str | None = None,
        store: Store | None = None,
        session: str | None = None,
    ) -> RunResult[OutputT]:
        """`run` for scripts, on a private event loop. Raises `ConfigError` inside a running event loop."""
        return run_sync(
            self.run(
                input, messages=messages, deps=deps, settings=settings, run_id=run_id, store=store, session=session
            ),
            "write `await agent.run(...)`",
        )

    def as_tool(
        self,
        name: str = "subagent",
        *,
        description: str | None = None,
        instructions: str | Callable[[RunContext[Any]], Any] | None = None,
        limits: Limits | None = None,
        approve: Approve = deny_all,
        forward_events: bool = False,
        nested: bool = False,
    ) -> Tool[..., Any]:
        """This agent as a tool of another one: each call is a fresh run with its own messages. Only its answer returns.

        It keeps this agent's tools but for those that are agents themselves; `nested` keeps these too. Its usage counts
        in the totals of the run that calls it, and it gets that run's `deps`. Approvals are denied: where the calling
        agent or this one has an approval policy, `approve` stands in its place. `forward_events` puts its events into
        the caller's log, each in a `SubagentEvent`. Raises `ConfigError` for a configuration that cannot be.
        """
        tools = self.tools if nested else tuple(tool for tool in self.tools if not tool.subagent)
        child: Agent[DepsT, OutputT] = self._changed(
            name=name,
            tools=tools,
            instructions=self.instructions if instructions is None else instructions,
            limits=self.limits if limits is None else limits,
            approve=approve if self.approve is not None or approve is not deny_all else None,
        )
        watched = child if child.approve is not None else child._changed(approve=deny_all)

        def start(prompt: str, context: ToolContext[Any], parent: Parent) -> Run[OutputT]:
            link = context.run
            asked = watched if link is not None and link.approves else child
            shared: dict[str, Any] = {} if link is None else {"budget": link.budget, "waits": link.waits}
            return asked._start(prompt, deps=context.deps, parent=parent, **shared)  # noqa: SLF001 - of the same class

        text = description or f"Hands a task to the agent {name!r}, which works on it alone and answers once."
        effect = strongest_effect(tools, unknown=bool(self.toolsets or self.hosted_mcp))
        return subagent_tool(name, text, start, effect=effect, forward_events=forward_events)

    def _changed(self, **changes: Any) -> Agent[DepsT, OutputT]:
        """An agent with a part of the configuration replaced, checked like any other."""
        config = {field.name: getattr(self, field.name) for field in dataclasses.fields(AgentConfig)}
        made: Agent[DepsT, OutputT] = object.__new__(type(self))
        AgentConfig.__init__(made, **{**config, **changes})
        check_config(made)
        check_fit(made, made.settings)
        return made

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

    @property
    def tool_specs(self) -> tuple[ToolSpec, ...]:
        """What a model is told of the agent's tools, by name; without those of toolsets."""
        return self._table.specs

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


def _listed(given: Any) -> tuple[Any, ...]:
    """One function, or several."""
    return (given,) if callable(given) else tuple(given)


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
