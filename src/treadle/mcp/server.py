"""Our tools and agents for others: as an MCP server."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from treadle._tool_names import legal_name
from treadle.agent import Agent
from treadle.approval import deny_all
from treadle.errors import ConfigError
from treadle.tools import Tool, tool
from treadle.toolsets import Toolset

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from mcp.server.lowlevel.server import Server

    from treadle.mcp._serve_calls import Calls

    Served: TypeAlias = Agent[Any, Any] | Tool[..., Any] | Toolset | Callable[..., Any]

TOKEN_VARIABLE = "TREADLE_MCP_TOKEN"  # noqa: S105 - the name of a variable


async def serve_mcp(
    agent_or_tools: Served | Iterable[Served],
    transport: Literal["stdio", "http"] = "stdio",
    *,
    name: str | None = None,
    instructions: str | None = None,
    deps: Any = None,
    parallelism: int = 16,
    host: str = "127.0.0.1",
    port: int = 8000,
    hosts: Iterable[str] = (),
    token: str | None = None,
    on_ready: Callable[[str], object] | None = None,
) -> None:
    """Serves tools to MCP clients, in the newest version of the protocol and in those before it.

    `agent_or_tools` is an agent, a tool, a function, a toolset, or several of these. An agent is one tool of its name
    with a `prompt`: each call is a run of its own under the agent's policies, whose steps, tools and text are told as
    progress. Toolsets are open as long as the server. `deps` is what tools and agents get. `parallelism` bounds the
    calls that run at once, of all clients; a sequential tool runs alone.

    `stdio` serves the one client at standard input, until that is closed; what tools print goes to standard error.
    `http` serves at `http://host:port/mcp` until it is cancelled; `port` 0 is any free one, `on_ready` is given the
    address. A `token` must be sent as a bearer token; without one the environment's TREADLE_MCP_TOKEN is taken, and
    only a loopback address needs none. `hosts` are further host names, behind a proxy for instance, that requests and
    web pages may come by; those of others are refused.

    Raises `ConfigError` for what cannot be served, before anything is.
    """
    if transport not in ("stdio", "http"):
        raise ConfigError(f"transport is 'stdio' or 'http', not {transport!r}")
    offered = _sorted(agent_or_tools)
    _check(offered, parallelism)
    try:
        from treadle.mcp._serve_calls import Calls
    except ModuleNotFoundError as error:
        raise ConfigError(f"serving MCP needs {error.name}: pip install 'treadle[mcp]'") from error
    calls = Calls(offered.tools, offered.toolsets, deps=deps, parallelism=parallelism)
    server = _server(calls, name or offered.name, instructions, offered.held)
    if transport == "stdio":
        from treadle.mcp._serve_stdio import serve_stdio

        await serve_stdio(server)
        return
    from treadle.mcp._serve_http import is_loopback, serve_http

    if not isinstance(host, str) or not host or not isinstance(port, int) or not 0 <= port < 65536:
        raise ConfigError(
            f"host and port are an address to listen on, like 127.0.0.1 and 8000, not {host!r} and {port!r}"
        )
    if isinstance(hosts, str):
        raise ConfigError("hosts is a list of host names: write hosts=[...] also for one")
    token = _token(token)
    if token is None and not is_loopback(host):
        raise ConfigError(
            f"{host} can be reached from other machines: give token=... or set {TOKEN_VARIABLE}, or listen on 127.0.0.1"
        )
    await serve_http(server, host=host, port=port, hosts=tuple(hosts), token=token, on_ready=on_ready)


class _Offered(NamedTuple):
    """What is served: `held` are all toolsets to keep open, those of agents too."""

    tools: tuple[Tool[..., Any], ...]
    toolsets: tuple[Toolset, ...]
    held: tuple[Toolset, ...]
    name: str


def _sorted(given: Any) -> _Offered:
    several = isinstance(given, Iterable) and not isinstance(given, Toolset | Tool | Agent | str | bytes | Mapping)
    tools: list[Tool[..., Any]] = []
    toolsets: list[Toolset] = []
    agents: list[Agent[Any, Any]] = []
    for each in given if several else (given,):
        if isinstance(each, Agent):
            agents.append(each)
            tools.append(_as_tool(each))
        elif isinstance(each, Tool):
            tools.append(each)
        elif isinstance(each, Toolset):
            toolsets.append(each)
        elif callable(each):
            tools.append(tool(each))
        else:
            raise ConfigError(f"{each!r:.80} cannot be served: give an agent, tools, functions or toolsets")
    held = (*toolsets, *(toolset for agent in agents for toolset in agent.toolsets))
    name = agents[0].name if len(agents) == 1 and len(tools) == 1 else None
    return _Offered(tuple(tools), tuple(toolsets), held, name or "treadle")


def _as_tool(agent: Agent[Any, Any]) -> Tool[..., Any]:
    """The agent under its own policies: nobody else's stand in their place here. A typed answer is structured."""
    name = legal_name(agent.name or "agent")
    made = agent.as_tool(name, approve=agent.approve or deny_all, forward_events=True, nested=True)
    if agent.output is str:
        return made
    from treadle._schema import output_schema

    schema = output_schema(agent.output, {})
    ask = made.__wrapped__
    return Tool.raw(name, made.description, made.input_schema, ask, effect=made.effect, output_schema=schema)


def _check(offered: _Offered, parallelism: Any) -> None:
    if not offered.tools and not offered.toolsets:
        raise ConfigError("there is nothing to serve: give an agent, tools or toolsets")
    names = [tool.name for tool in offered.tools]
    if double := [name for name, count in Counter(names).items() if count > 1]:
        raise ConfigError(f"two tools are named {double[0]!r}: rename one with @tool(name=...), or Agent(name=...)")
    if not isinstance(parallelism, int) or isinstance(parallelism, bool) or parallelism < 1:
        raise ConfigError(f"parallelism is a whole number from 1 on, and is {parallelism!r}")


def _token(given: str | None) -> str | None:
    """The token to ask for, or None. One that is empty was meant to be something else."""
    found = os.environ.get(TOKEN_VARIABLE) if given is None else given
    if found is not None and (not isinstance(found, str) or not found.strip()):
        raise ConfigError(f"the token is empty: check token=... and {TOKEN_VARIABLE}")
    return None if found is None else found.strip()


def _server(calls: Calls, name: str, instructions: str | None, held: tuple[Toolset, ...]) -> Server[Any]:
    from mcp.server.lowlevel.server import Server

    from treadle import __version__

    @contextlib.asynccontextmanager
    async def lifespan(_server: Server[Any]) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            for toolset in held:
                await stack.enter_async_context(toolset)
            yield

    return Server(
        name,
        version=__version__,
        instructions=instructions,
        lifespan=lifespan,
        on_list_tools=calls.list_tools,
        on_call_tool=calls.call_tool,
    )
