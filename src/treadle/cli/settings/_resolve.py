"""The one place where settings are put together: flags, environment, project file, user file, defaults."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from treadle.cli.settings._keys import BY_NAME, KEYS, RULES, Key
from treadle.cli.settings._project import MCP, Project, read_project
from treadle.cli.settings._sources import PROJECT_LABEL, Ignored, Source, Sources, odd_variables
from treadle.errors import ConfigError
from treadle.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from treadle.cli.permissions import PermissionRule

_DEFAULT = "default"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Every setting, as it counts, and where it comes from: `origin`. Made by `load_settings`.

    `allow_writes` and `allow_commands` are None where nobody said anything. `mcp` are absolute paths, `.mcp.json` of a
    trusted project among them. `limits` has the steps in it. `rules` come from all sources together. `ignored` is what
    a project would set if it were trusted, `project` what was read of it. `notes` are lines about variables that set
    nothing. `values` has everything by full name.
    """

    model: str | None
    base_url: str | None
    effort: str | None
    max_steps: int
    max_output_tokens: int | None
    mode: Literal["ask", "auto-edit", "plan", "yolo"]
    theme: Literal["auto", "dark", "light", "none"]
    show_reasoning: bool
    notify: Literal["auto", "bell", "none"]
    allow_writes: bool | None
    allow_commands: bool | None
    env: tuple[str, ...]
    fetch: bool
    search_url: str | None
    mycelium: bool
    mcp: tuple[str, ...]
    context_tokens: int | None
    compact_at: float
    limits: Limits
    rules: tuple[PermissionRule, ...]
    profile: str | None
    ignored: tuple[Ignored, ...]
    project: Project
    values: dict[str, Any]
    origins: dict[str, str]
    notes: tuple[str, ...] = ()

    def origin(self, name: str) -> str:
        """Where a setting comes from.

        `flag --model`, `environment TREADLE_MODEL`, `project .treadle/config.toml`,
        `user ~/.config/treadle/config.toml`, `profile NAME in` one of these files, or `default`.
        """
        return self.origins.get(name, _DEFAULT)

    def content(self, path: str) -> bytes | None:
        """What was read of a file of `mcp` when trust was looked at, so that nothing else is used; None for others."""
        return self.project.content(path)


def load_settings(
    *,
    root: Path,
    flags: Mapping[str, Any],
    environ: Mapping[str, str],
    profile: str | None = None,
    trusted: bool = False,
    project: Project | None = None,
) -> Settings:
    """The settings for work in `root`.

    Flags go before `TREADLE_*` variables, these before the project's file, that before the user's, and that before the
    defaults. `flags` are those that were typed, by the name of the setting; None is as good as not typed. A profile
    goes before the top level of the file that it is in, and no further. Rules are collected from all.

    `project` is what `Trust.look` read, with its own `trusted`. Raises `ConfigError`, one line that names the source,
    the key and the nearest name.
    """
    project = read_project(root) if project is None else project
    believed = trusted or project.trusted
    chosen = profile or environ.get("TREADLE_PROFILE") or None
    sources = Sources(project, flags, environ, trusted=believed)
    sources.check_profile(chosen)
    return replace(_settled(sources, chosen, trusted=believed), notes=tuple(odd_variables(environ)))


class _Merged:
    """The values of all layers together."""

    def __init__(self, project: Project) -> None:
        self.values: dict[str, Any] = {key.name: key.default for key in KEYS}
        self.origins: dict[str, str] = {}
        self.rules: list[PermissionRule] = []
        self._ranks: dict[str, int] = {}
        self._project = project

    def add(self, source: Source) -> None:
        """Takes from a source what no stronger one has set, and all its rules."""
        origin = source.layer.origin
        for name, value in source.layer.values.items():
            if name in RULES:
                self.rules += _rules(value, RULES[name], origin)
                self.values[name] = (*self.values[name], *value)
                self.note(name, origin)
            elif name not in self.origins:
                self.origins[name], self._ranks[name] = origin, source.rank
                self.values[name] = _placed(BY_NAME[name], value, source.folder, origin, self._project)

    def note(self, name: str, origin: str) -> None:
        """Adds an origin to those that a list has already."""
        self.origins[name] = ", ".join([*filter(None, [self.origins.get(name)]), origin])

    def leave_address(self) -> None:
        """Drops an address beside which another model was named: the key for this one must not go there."""
        if self._ranks.get("model", 99) < self._ranks.get("base_url", 0):
            self.values["base_url"] = None
            self.origins["base_url"] = f"default, since {self.origins['model']} names another model"


def _settled(sources: Sources, profile: str | None, *, trusted: bool) -> Settings:
    merged = _Merged(sources.project)
    for source in sources.layers(profile, trusted=trusted):
        merged.add(source)
    merged.leave_address()
    values = merged.values
    if (servers := _with_project_servers(values["mcp"], sources, trusted=trusted)) != values["mcp"]:
        values["mcp"] = servers
        merged.note("mcp", f"project {MCP}")
    fields = {name: value for name, value in values.items() if "." not in name}
    limits = {name.removeprefix("limits."): values[name] for name in values if name.startswith("limits.")}
    return Settings(
        **fields,
        limits=Limits(steps=fields["max_steps"], **limits),
        rules=tuple(merged.rules),
        profile=profile,
        ignored=tuple(sources.ignored),
        project=sources.project,
        values=values,
        origins=merged.origins,
    )


def _with_project_servers(given: tuple[str, ...], sources: Sources, *, trusted: bool) -> tuple[str, ...]:
    """`given` and the servers that the project itself offers, once it is trusted."""
    found = sources.project.files.get(MCP)
    if found is None or found.is_link:
        return given
    if not trusted:
        sources.ignored.append(Ignored("mcp", f"the servers in {MCP}", f"project {MCP}"))
        return given
    path = str(sources.project.root / MCP)
    return given if path in given else (*given, path)


def _placed(key: Key, value: Any, folder: Path, origin: str, project: Project) -> Any:
    """`value` with paths made absolute. Those of a project are of files that its trust covers."""
    if not key.is_path:
        return value
    try:
        placed = tuple(os.path.normpath(folder / Path(path).expanduser()) for path in value)
    except RuntimeError:  # of `~somebody` who is not there
        raise ConfigError(f"{origin}: {key.name}: a path begins with the home directory of nobody") from None
    if PROJECT_LABEL in origin:
        for given, path in zip(value, placed, strict=True):
            if project.content(path) is None:
                text = f"{given!r} has to be {MCP} or a file below .treadle, which trust in the directory covers"
                raise ConfigError(f"{origin}: {key.name}: {text}")
    return placed


def _rules(texts: tuple[str, ...], decision: str, origin: str) -> list[PermissionRule]:
    from treadle.cli.permissions import parse_rule

    return [parse_rule(text, decision, origin) for text in texts]
