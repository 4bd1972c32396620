"""`treadle mcp`: serves tools and agents, and looks at the servers of a configuration file."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from typing import TYPE_CHECKING, Any

from treadle.cli.exits import Exit
from treadle.cli.loading import load
from treadle.cli.terminal import complain, neutral, one_line, say
from treadle.cli.warned import warnings_shown
from treadle.errors import ConfigError, MCPError, ToolError, ToolInputError

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence

    from treadle import Tool, ToolOutput
    from treadle.cli.exits import Signals
    from treadle.mcp import MCPServer, ServerInfo

    Found = tuple[ServerInfo, Sequence[Tool[..., Any]]]


def serve(arguments: argparse.Namespace, signals: Signals) -> int:
    """Serves until the client or a signal ends it. Standard output is the protocol's, also while modules load."""
    with contextlib.redirect_stdout(sys.stderr):
        thing = load(arguments.thing)
        options = {"name": arguments.name, "token": _token(arguments.token_variable)}
        if arguments.http is not None:
            host, port = _address(arguments.http)
            options |= {"transport": "http", "host": host, "port": port, "hosts": arguments.allow_host}
            options["on_ready"] = lambda url: say(f"serving {arguments.thing} at {url}")
        elif sys.stdin is not None and sys.stdin.isatty():
            say("an MCP client is awaited on standard input; Ctrl-C ends it, --http HOST:PORT serves over HTTP")
        return _interruptible(_serve(thing, options), signals)


def show(arguments: argparse.Namespace, signals: Signals) -> int:
    """Prints the tools of the servers; one that does not start costs its own and the exit code."""
    return _interruptible(_show(_servers(arguments.file, arguments.server or None), as_json=arguments.json), signals)


def call(arguments: argparse.Namespace, signals: Signals) -> int:
    """Calls one tool and prints its result."""
    servers = _servers(arguments.file, [arguments.server])
    if not servers:
        raise ConfigError(f"{arguments.file}: the server {arguments.server} is disabled")
    given = _object(sys.stdin.read() if arguments.arguments == "-" else arguments.arguments)
    return _interruptible(_call(servers[0], arguments.tool, given, as_json=arguments.json), signals)


def load_servers(files: Iterable[str], content: Callable[[str], bytes | None] | None = None) -> list[MCPServer]:
    """The servers that configuration files name. `content` gives what was read of a file already, or None."""
    return [server for file in files for server in _servers(file, content=content(file) if content else None)]


@contextlib.asynccontextmanager
async def started(servers: Sequence[Any]) -> AsyncIterator[None]:
    """All of `servers` connected. Raises `ConfigError` for one that is not to be had: nobody wants half a tool box."""
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(warnings_shown("treadle.mcp"))
        for server in servers:
            await stack.enter_async_context(server)
        if faults := [found for found in await _all(server.ready() for server in servers) if _is_fault(found)]:
            raise ConfigError(str(faults[0])) from faults[0]
        yield


def _servers(file: str, names: Sequence[str] | None = None, content: bytes | None = None) -> list[MCPServer]:
    from treadle.mcp import load_config

    with warnings_shown("treadle.mcp"):
        return load_config(file, only=names, content=content)


def _interruptible(work: Coroutine[Any, Any, int], signals: Signals) -> int:
    """Runs `work`, which the first signal cancels."""

    async def main() -> int:
        task, loop = asyncio.create_task(work), asyncio.get_running_loop()
        signals.on_first = lambda: loop.call_soon_threadsafe(task.cancel)
        try:
            return await task
        except asyncio.CancelledError:
            if not signals.code:
                raise
            return signals.code
        finally:
            signals.on_first = None

    with warnings_shown("treadle.mcp"):
        return asyncio.run(main())


async def _serve(thing: Any, options: dict[str, Any]) -> int:
    from treadle.mcp import serve_mcp

    await serve_mcp(thing, **options)
    return Exit.COMPLETE


async def _show(servers: Sequence[MCPServer], *, as_json: bool) -> int:
    async with contextlib.AsyncExitStack() as stack:
        for server in servers:
            await stack.enter_async_context(server)
        found = await _all(_look(server) for server in servers)
    shown = {server.name: one for server, one in zip(servers, found, strict=True) if not _is_fault(one)}
    if as_json:
        _print(json.dumps({name: _described(*one) for name, one in shown.items()}, indent=2, ensure_ascii=False))
    else:
        for name, one in shown.items():
            _print_server(name, *one)
    faults = [complain(str(one), Exit.FAILED) for one in found if _is_fault(one)]
    return Exit.FAILED if faults else Exit.COMPLETE


async def _look(server: MCPServer) -> Found:
    return await server.ready(), await server.tools()


async def _all(work: Iterable[Coroutine[Any, Any, Any]]) -> list[Any]:
    """Each outcome, or the `MCPError` that stands for it."""
    found = await asyncio.gather(*work, return_exceptions=True)
    for one in found:
        if isinstance(one, BaseException) and not _is_fault(one):
            raise one
    return found


def _is_fault(found: Any) -> bool:
    return isinstance(found, MCPError)


def _print_server(name: str, info: ServerInfo, tools: Sequence[Tool[..., Any]]) -> None:
    about = " ".join(filter(None, (info.name, info.version)))
    _print(neutral(f"{name}: {about or 'unnamed'}, MCP {info.protocol}, {len(tools)} tool{'s' * (len(tools) != 1)}"))
    for tool in tools:
        _print(f"  {one_line(f'{tool.name} ({tool.effect.value}) {tool.description}')}")


def _described(info: ServerInfo, tools: Sequence[Tool[..., Any]]) -> dict[str, Any]:
    return {
        "name": info.name,
        "version": info.version,
        "protocol": info.protocol,
        "tools": [
            {
                "name": tool.name,
                "description": tool.description,
                "effect": tool.effect.value,
                "input_schema": tool.input_schema,
                "output_schema": tool.output_schema,
            }
            for tool in tools
        ],
    }


async def _call(server: MCPServer, name: str, arguments: str, *, as_json: bool) -> int:
    async with server:
        try:
            await server.ready()
            tools = {tool.name: tool for tool in await server.tools()}
            if name not in tools:
                raise ConfigError(f"{server.name} has no tool {name!r}; there are: {', '.join(tools) or 'none'}")
            output: ToolOutput = await tools[name].invoke(arguments)
        except ToolInputError as error:
            return complain(str(error), Exit.USAGE)
        except (MCPError, ToolError) as error:
            return complain(str(error), Exit.FAILED)
    _print_output(output, as_json=as_json)
    return Exit.FAILED if output.is_error else Exit.COMPLETE


def _print_output(output: ToolOutput, *, as_json: bool) -> None:
    if as_json:
        files = [{"media_type": file.media_type, "data": file.data, "url": file.url} for file in output.files]
        _print(json.dumps({"content": output.content, "files": files, "is_error": output.is_error}, ensure_ascii=False))
        return
    text = "" if output.content is None else str(output.content)
    if text or not output.files:
        _print(neutral(text) if sys.stdout.isatty() else text)
    for file in output.files:
        where = file.url or f"{len(file.data or '') * 3 // 4} bytes"
        _print(neutral(f"[{file.media_type} {where}]"))


def _print(text: str) -> None:
    print(text.encode(errors="replace").decode(), flush=True)


def _object(text: str) -> str:
    """`text`, which is a JSON object. Raises `ConfigError` before a server is started for nothing."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the arguments are no JSON: {error}") from error
    if not isinstance(found, dict):
        raise ConfigError("the arguments are a JSON object, like {}")
    return text


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    host = host.strip("[]")
    if not host or not (port.isascii() and port.isdecimal() and int(port[:6]) < 65536):
        raise ConfigError(f"--http {text!r} is not HOST:PORT, like 127.0.0.1:8000")
    return host, int(port)


def _token(variable: str | None) -> str | None:
    if variable is None:
        return None
    token = os.environ.get(variable)
    if not token:
        raise ConfigError(f"--token-variable: the environment variable {variable} is not set")
    return token
