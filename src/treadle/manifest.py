"""The manifest: what a program's agents are, as a file to review and to compare.

It says what a reviewer of a change wants to see: models, instructions, limits, and of every tool what the model is told
of it and what it may do. Equal agents give equal bytes in every process and on every machine. What is not set is
left out, and secrets are too: of `extra_headers` and `extra_body` only the keys are told.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import msgspec

from treadle.agent import Agent
from treadle.errors import ConfigError
from treadle.limits import HasToolCall, StepCount
from treadle.messages import encodable
from treadle.model import model_ref
from treadle.output import OutputSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from treadle.limits import Limits
    from treadle.model import HostedMCP, ModelSettings
    from treadle.tools import Tool

MANIFEST_VERSION = 1
_ROOT_MARKS = ("pyproject.toml", ".git")
_INSTALLED = ("site-packages", "dist-packages")


def manifest(*agents: Agent[Any, Any]) -> bytes:
    """The manifest of these agents, as JSON text with sorted keys. The order in which they are given does not matter.

    Agents are told apart by name: raises `ConfigError` for one without, and for a name that comes twice. The tools of
    toolsets are known only while a run is going on, so that a toolset is listed by its class.
    """
    _check(agents)
    described = [_agent(agent) for agent in sorted(agents, key=lambda agent: agent.name or "")]
    content = {"version": MANIFEST_VERSION, "agents": described}
    return msgspec.json.format(msgspec.json.encode(content, order="sorted"), indent=2) + b"\n"


def check(expected: bytes, *agents: Agent[Any, Any]) -> str:
    """A unified diff from the manifest in `expected` to that of `agents`; empty when they agree."""
    import difflib

    before, after = (text.decode(errors="replace").splitlines() for text in (expected, manifest(*agents)))
    return "\n".join(difflib.unified_diff(before, after, "manifest", "agents", lineterm=""))


def _check(agents: Sequence[Agent[Any, Any]]) -> None:
    if not agents:
        raise ConfigError("a manifest needs agents: write manifest(agent, ...)")
    seen: set[str] = set()
    for place, agent in enumerate(agents, 1):
        if not isinstance(agent, Agent):
            raise ConfigError(f"a manifest is made of agents, and {place} of {len(agents)} is {type(agent).__name__}")
        if not agent.name:
            raise ConfigError(
                f"agent {place} of {len(agents)} ({model_ref(agent.model)}) has no name, and a manifest needs one: "
                "write Agent(..., name='...')"
            )
        if agent.name in seen:
            raise ConfigError(f"two agents of the manifest are named {agent.name!r}: give each a name of its own")
        seen.add(agent.name)


def _agent(agent: Agent[Any, Any]) -> dict[str, Any]:
    return _given(
        name=agent.name,
        model=str(model_ref(agent.model)),
        instructions=_instructions(agent.instructions),
        output=_output(agent.output),
        reasoning=agent.reasoning and _fields(agent.reasoning),
        settings=agent.settings and _settings(agent.settings),
        limits=_limits(agent.limits),
        parallelism=agent.parallelism,
        max_output_tokens=int(agent.max_output_tokens),
        max_result_bytes=agent.max_result_bytes,
        stop_when=[_condition(condition) for condition in agent.stop_when],
        tools=[_tool(tool) for tool in sorted(agent.tools, key=lambda tool: tool.name)],
        toolsets=[_qualified(type(toolset)) for toolset in agent.toolsets],
        hosted_mcp=[_server(server) for server in sorted(agent.hosted_mcp, key=lambda server: server.name)] or None,
        hosted_web_search=agent.hosted_web_search or None,
    )


def _server(server: HostedMCP) -> dict[str, Any]:
    return _given(name=server.name, url=server.url, allowed_tools=list(server.allowed_tools))


def _tool(tool: Tool[..., Any]) -> dict[str, Any]:
    return _given(
        name=tool.name,
        description=tool.description,
        input_schema=tool.input_schema,
        output_schema=tool.output_schema,
        effect=tool.effect,
        idempotent=tool.idempotent,
        sequential=tool.sequential,
        timeout_seconds=tool.timeout_seconds,
        source=tool.source and source_name(tool.source),
    )


def _limits(limits: Limits) -> dict[str, Any]:
    told = _fields(limits)
    return _given(**{**told, "allow_unpriced": told.get("allow_unpriced") or None})


def _instructions(instructions: Any) -> str | dict[str, str] | None:
    if instructions is None or isinstance(instructions, str):
        return instructions and encodable(instructions)
    return {"function": _qualified(instructions)}


def _output(kind: Any) -> dict[str, Any]:
    if kind is str:
        return {"type": "str"}
    # A type that is no class has no name of its own, and its repr may hold addresses: the schema says it all.
    return _given(type=_qualified(kind) if isinstance(kind, type) else None, schema=OutputSpec(kind).schema)


def _settings(settings: ModelSettings) -> dict[str, Any]:
    told = _fields(settings)
    told["stop_sequences"] = list(settings.stop_sequences) or None
    told["extra_body"] = sorted(settings.extra_body) or None
    told["extra_headers"] = sorted(settings.extra_headers) or None
    return _given(**told)


def _condition(condition: Any) -> str:
    return repr(condition) if isinstance(condition, HasToolCall | StepCount) else _qualified(condition)


def _qualified(thing: Any) -> str:
    """The qualified name of a function or class, and for any other object that of its class: never an address."""
    if isinstance(thing, functools.partial):
        return f"partial({_qualified(thing.func)})"
    named = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{named.__module__}.{named.__qualname__}"


def _fields(value: msgspec.Struct) -> dict[str, Any]:
    return _given(**msgspec.structs.asdict(value))


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def source_name(source: str) -> str:
    """The file relative to its project, the module of an installed package, else the file's bare name.

    A project is the nearest folder upwards that holds `pyproject.toml` or `.git`.
    """
    from pathlib import Path  # costs `import treadle` more than the rest of this module

    file = Path(source)
    for mark in _INSTALLED:
        if mark in file.parts:
            inside = file.parts[len(file.parts) - file.parts[::-1].index(mark) :]
            return ".".join(inside).removesuffix(".py").removesuffix(".__init__")
    if file.is_file():
        for folder in file.absolute().parents:
            if any((folder / mark).exists() for mark in _ROOT_MARKS):
                return file.absolute().relative_to(folder).as_posix()
    return file.name
