"""The `mcpServers` JSON that other MCP hosts read, too."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from treadle.errors import ConfigError
from treadle.mcp._spec import log
from treadle.mcp.client import MCPServer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_KINDS = {"stdio": "stdio", "http": "http", "streamable-http": "http", "streamablehttp": "http", "local": "stdio"}
_STDIO = {"command": str, "args": list, "env": dict, "cwd": str}
_HTTP = {"url": str, "headers": dict}
_WORDS: dict[type, str] = {str: "a string", list: "an array of strings", dict: "an object of strings"}
_IGNORED = frozenset({"type", "disabled", "description", "alwaysAllow", "autoApprove"})


def load_config(
    path: str | os.PathLike[str], *, only: Iterable[str] | None = None, content: bytes | None = None
) -> list[MCPServer]:
    """The servers in a JSON file: `{"mcpServers": {name: {"command": ..., ...} | {"type": "http", "url": ..., ...}}}`.

    `${VAR}` and `${VAR:-default}` in strings are taken from the environment. `only` names those wanted; a server that
    is `"disabled"` is left out. A relative `cwd` starts at the file's folder. `content` is what is in the file where
    that was read already, say to ask for trust in it. Nothing is started. Raises `ConfigError` with the key to change.
    """
    file = Path(path)
    try:
        data = file.read_bytes() if content is None else content
        found = json.loads(data.decode("utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file} is no JSON: {error}") from error
    servers = found.get("mcpServers", found.get("servers")) if isinstance(found, dict) else None
    if not isinstance(servers, dict):
        raise ConfigError(f'{file}: there is no object "mcpServers" with the servers by name')
    wanted = list(servers) if only is None else list(only)
    if unknown := [name for name in wanted if name not in servers]:
        raise ConfigError(f"{file}: there is no server {unknown[0]!r}; there are: {', '.join(servers) or 'none'}")
    read = (_Entry(file, name, servers[name]) for name in wanted)
    return [entry.server() for entry in read if not entry.disabled]


class _Entry:
    """One server's entry; `where` leads to it in messages."""

    def __init__(self, file: Path, name: str, value: Any) -> None:
        self._folder = file.parent
        self._name = name
        self._where = f"{file}: mcpServers.{name}"
        if not isinstance(value, dict):
            raise ConfigError(f"{self._where} is an object with a command or a url")
        self._value = value
        self.disabled = value.get("disabled") is True

    def server(self) -> MCPServer:
        if self._kind() == "http":
            given = self._fields(_HTTP, "url")
            return MCPServer.http(given["url"], headers=given.get("headers"), name=self._name)
        given = self._fields(_STDIO, "command")
        cwd = given.get("cwd")
        return MCPServer.stdio(
            given["command"],
            given.get("args", ()),
            env=given.get("env"),
            cwd=None if cwd is None else self._folder / Path(cwd).expanduser(),
            name=self._name,
        )

    def _kind(self) -> str:
        given = self._value.get("type", "stdio" if "command" in self._value else "http")
        if str(given).lower() == "sse":
            raise ConfigError(
                f'{self._where}.type is "sse", the transport that Streamable HTTP has replaced: '
                'set "type": "http" and "url" to the server\'s Streamable HTTP address (often .../mcp)'
            )
        kind = _KINDS.get(str(given).lower())
        if kind is None:
            raise ConfigError(f'{self._where}.type is "stdio" or "http", not {given!r}')
        return kind

    def _fields(self, kinds: Mapping[str, type], needed: str) -> dict[str, Any]:
        if needed not in self._value:
            raise ConfigError(f"{self._where}.{needed} is missing")
        if unknown := [key for key in self._value if key not in kinds and key not in _IGNORED]:
            log.warning("%s: nobody reads %s", self._where, ", ".join(unknown))
        return {key: self._field(key, kind) for key, kind in kinds.items() if self._value.get(key) is not None}

    def _field(self, key: str, kind: type) -> Any:
        value, where = self._value[key], f"{self._where}.{key}"
        if not isinstance(value, kind):
            raise ConfigError(f"{where} is {_WORDS[kind]}")
        if isinstance(value, list):
            return [self._expanded(f"{where}.{index}", each) for index, each in enumerate(value)]
        if isinstance(value, dict):
            return {name: self._expanded(f"{where}.{name}", each) for name, each in value.items()}
        return self._expanded(where, value)

    @staticmethod
    def _expanded(where: str, value: Any) -> str:
        """`value` with its variables filled in; an empty one counts as missing where there is a default."""

        def fill(match: re.Match[str]) -> str:
            name, default = match.groups()
            found = os.environ.get(name)
            if found or (found is not None and default is None):
                return found
            if default is None:
                raise ConfigError(
                    f"{where}: the environment variable {name} is not set (or write ${{{name}:-default}})"
                )
            return str(default)

        if not isinstance(value, str):
            raise ConfigError(f"{where} is a string")
        return _VARIABLE.sub(fill, value)
