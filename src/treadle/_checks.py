"""Refuses an agent's configuration where it is wrong, clashes, or asks for what the model cannot do."""

from __future__ import annotations

import inspect
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from treadle._budget import require_prices
from treadle.errors import ConfigError, UnsupportedError
from treadle.limits import Limits
from treadle.model import HostedMCP, ModelRequest, ModelSettings, Reasoning, ToolSpec, check_request, model_ref
from treadle.output import FINAL_TOOL
from treadle.retry import Retry
from treadle.toolsets import Toolset

if TYPE_CHECKING:
    from treadle._config import AgentConfig
    from treadle.messages import Message


def check_config(config: AgentConfig) -> None:
    """Raises `ConfigError` for what is wrong whatever the model."""
    _check_types(config)
    _check_items(config)
    _check_policies(config)
    _check_numbers(config)
    _check_names(config)
    if config.limits.usd is not None and not config.limits.allow_unpriced:
        require_prices(config.model)


def _check_types(config: AgentConfig) -> None:
    for field, kind in (
        ("limits", Limits),
        ("settings", ModelSettings),
        ("reasoning", Reasoning),
        ("name", str),
        ("retry", Retry),
    ):
        value = getattr(config, field)
        if not isinstance(value, kind) and not (value is None and field != "limits"):
            raise ConfigError(f"{field} is a {kind.__name__}, and is {value!r:.80}")
    if not (config.instructions is None or isinstance(config.instructions, str) or callable(config.instructions)):
        raise ConfigError(f"instructions is a string or a function, and is {config.instructions!r:.80}")


def _check_items(config: AgentConfig) -> None:
    for toolset in config.toolsets:
        if not isinstance(toolset, Toolset):
            raise ConfigError(f"{toolset!r:.80} is no toolset: it needs __aenter__, __aexit__ and tools()")
    for server in config.hosted_mcp:
        if not isinstance(server, HostedMCP):
            raise ConfigError(f"{server!r:.80} is no hosted MCP server: write HostedMCP(name, url)")
    for condition in config.stop_when:
        if not callable(condition):
            raise ConfigError(f"{condition!r:.80} is no stop condition: give a function of the steps")
    for tap in config.taps:
        if not callable(tap) or inspect.iscoroutinefunction(tap):
            raise ConfigError(f"{tap!r:.80} is no tap: give a plain function of one event; start a task in it to wait")


def _check_policies(config: AgentConfig) -> None:
    for field in ("wrap_model", "wrap_tool"):
        if bad := [wrap for wrap in getattr(config, field) if not callable(wrap)]:
            raise ConfigError(f"{bad[0]!r:.80} in {field} is no wrap: give async def wrap(request, call_next)")
    if config.approve is not None and not callable(config.approve):
        raise ConfigError(f"approve is a function of a ToolRequest, and is {config.approve!r:.80}")


def _check_numbers(config: AgentConfig) -> None:
    for field, smallest in (("parallelism", 1), ("max_output_tokens", 1), ("max_result_bytes", 0)):
        value = getattr(config, field)
        if not isinstance(value, int) or isinstance(value, bool) or value < smallest:
            raise ConfigError(f"{field} is a whole number from {smallest} on, and is {value!r}")


def _check_names(config: AgentConfig) -> None:
    if config.name == "":
        raise ConfigError("name is empty: leave it out, or give one")
    names = [tool.name for tool in config.tools]
    if double := [name for name, count in Counter(names).items() if count > 1]:
        raise ConfigError(f"two tools are named {double[0]!r}: rename one with @tool(name=...)")
    if config.output is not str and FINAL_TOOL in names:
        raise ConfigError(f"the name {FINAL_TOOL!r} is taken by output=...: rename the tool with @tool(name=...)")
    servers = [server.name for server in config.hosted_mcp]
    if double := [name for name, count in Counter(servers).items() if count > 1]:
        raise ConfigError(f"two hosted MCP servers are named {double[0]!r}: rename one")
    choice = None if config.settings is None else config.settings.tool_choice
    if choice not in (None, "auto", "required", "none", *names) and not config.toolsets:
        raise ConfigError(f"tool_choice={choice!r} names no tool: use auto, required, none or one of {names}")
    if choice == "required" and not (names or config.toolsets or config.output is not str):
        raise ConfigError("tool_choice='required' needs tools: give some, or leave it out")


def check_fit(
    config: AgentConfig,
    settings: ModelSettings | None,
    messages: tuple[Message, ...] = (),
    tools: tuple[ToolSpec, ...] | None = None,
) -> None:
    """Raises one `UnsupportedError` that names everything which the model does not take. Sends nothing.

    Without the `tools` of a run it makes do with their names, so that building an agent stays cheap.
    """
    lacks, ref = _lacks(config), str(model_ref(config.model))
    faults = [f"{ref} cannot {', nor '.join(lacks.values())}; or choose another model"] if lacks else []
    if settings is not None and config.toolsets:  # it may name one of their tools, which are not there yet
        settings = msgspec.structs.replace(settings, tool_choice=None)
    by_schema = config.output is not str and config.model.capabilities.output_schema
    if tools is None:
        tools = _outlines(config, final_tool=config.output is not str and not by_schema)
    request = ModelRequest(
        None,
        messages,
        () if "tools" in lacks else tools,
        output_schema={"type": "object"} if by_schema else None,
        reasoning=None if lacks.keys() & {"reasoning", "effort", "min_reasoning_budget"} else config.reasoning,
        settings=settings,
        max_output_tokens=config.max_output_tokens,
        hosted_mcp=() if "hosted_mcp" in lacks else config.hosted_mcp,
        hosted_web_search=config.hosted_web_search and "hosted_web_search" not in lacks,
    )
    try:
        check_request(config.model, request)
    except UnsupportedError as error:
        if not lacks:
            raise
        faults.append(str(error))
    if faults:
        raise UnsupportedError("; ".join(faults), model=ref, feature=next(iter(lacks)))


def _outlines(config: AgentConfig, *, final_tool: bool) -> tuple[ToolSpec, ...]:
    """The tools without their schemas, whose making costs much."""
    names = {tool.name for tool in config.tools} | ({FINAL_TOOL} if final_tool else set())
    return tuple(ToolSpec(name, "", {}) for name in sorted(names))


def _lacks(config: AgentConfig) -> dict[str, str]:
    """What the model is asked for and cannot do, by the capability's name."""
    can, lacks = config.model.capabilities, dict[str, str]()
    if (config.tools or config.toolsets) and not can.tools:
        lacks["tools"] = "call tools (leave out tools and toolsets)"
    if config.output is not str and not (can.output_schema or can.tools):
        lacks["output_schema"] = "give typed output (leave out output)"
    if config.hosted_mcp and not can.hosted_mcp:
        lacks["hosted_mcp"] = "call hosted MCP servers (leave out hosted_mcp)"
    if config.hosted_web_search and not can.hosted_web_search:
        lacks["hosted_web_search"] = "search the web (leave out hosted_web_search)"
    return lacks | (_missing_reasoning(config.reasoning, can) if config.reasoning is not None else {})


def _missing_reasoning(reasoning: Reasoning, can: Any) -> dict[str, str]:
    if not can.reasoning:
        return {"reasoning": "reason (leave out reasoning)"}
    lacks = {}
    if reasoning.effort is not None and not can.effort:
        lacks["effort"] = "take a reasoning effort (leave out effort)"
    if (budget := reasoning.budget_tokens) is not None:
        if can.min_reasoning_budget is None:
            lacks["min_reasoning_budget"] = "take a reasoning budget (leave out budget_tokens)"
        elif budget < can.min_reasoning_budget:
            lacks["min_reasoning_budget"] = (
                f"reason on fewer than {can.min_reasoning_budget} tokens (raise budget_tokens)"
            )
    return lacks
