"""What trust in a project would mean, for the person who is asked: nothing that it brings may stay out of sight."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from treadle.cli.settings._project import MCP
from treadle.cli.settings._sources import needing_trust
from treadle.cli.terminal import neutral
from treadle.errors import ConfigError

if TYPE_CHECKING:
    from treadle.cli.settings._project import Project, ProjectFile

_LONGEST = 900


def described(project: Project) -> list[str]:
    """Its files, settings and servers, each on one neutral line; of a line that is cut, how much more there is."""
    lines = [f"{_shown(project.path)} has files that can start programs, allow more, or instruct the model:"]
    lines += [f"  {_shown(path)} ({_kind(file)})" for path, file in project.files.items()]
    if project.changes:
        lines += ["since it was trusted:", *(f"  {_shown(change)}" for change in project.changes)]
    return [*lines, *_settings_lines(project), *_server_lines(project)]


def _shown(text: str) -> str:
    line = neutral(" ".join(text.split()))
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]} ... and {len(line) - _LONGEST} characters more"


def _kind(file: ProjectFile) -> str:
    return f"link to {_shown(os.fsdecode(file.data))}" if file.is_link else f"{file.size} bytes"


def _settings_lines(project: Project) -> list[str]:
    try:
        found = needing_trust(project)
    except ConfigError as error:
        return [f"its settings cannot be read: {_shown(str(error))}"]
    return ["its settings that need trust:", *(f"  {_shown(one.text)}" for one in found)] if found else []


def _server_lines(project: Project) -> list[str]:
    """The programs and addresses of MCP servers: those of any file may be named by the settings."""
    lines = []
    for path, file in project.files.items():
        servers = [] if file.is_link else _servers(file.data)
        if not servers and path == MCP and not file.is_link:
            servers = ["they cannot be read"]
        if servers:
            lines += [f"its servers in {_shown(path)}:", *(f"  {_shown(server)}" for server in servers)]
    return lines


def _servers(data: bytes) -> list[str]:
    try:
        found = json.loads(data.decode("utf-8-sig"))
        servers = found.get("mcpServers", found.get("servers"))
        return [f"{name}: {_server(entry)}" for name, entry in servers.items()]
    except (ValueError, AttributeError, RecursionError):
        return []


def _server(entry: Any) -> str:
    """What is started or asked, and all the rest: an environment or headers may do or tell as much as a command."""
    if not isinstance(entry, dict):
        return "no server"
    rest = dict(entry)
    words = [rest.pop("command" if rest.get("command") else "url", None)]
    if isinstance(rest.get("args"), list):
        words += rest.pop("args")
    more = f", with {json.dumps(rest, ensure_ascii=False)}" if rest else ""
    return f"{' '.join(map(str, words))}{more}"
