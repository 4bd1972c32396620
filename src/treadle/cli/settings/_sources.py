"""Everything that sets something: flags, variables, the project's file, the user's file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from treadle.cli.settings._checks import YOLO
from treadle.cli.settings._files import Layer, SettingsFile, check, nearest, parse, read_user_file
from treadle.cli.settings._keys import BY_NAME, KEYS, RULES
from treadle.cli.settings._paths import paths, short
from treadle.cli.settings._project import CONFIG
from treadle.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from treadle.cli.settings._project import Project

_PREFIX = "TREADLE_"
_OTHERS = ("TREADLE_HOME", "TREADLE_MCP_TOKEN", "TREADLE_MODEL_REQUESTS", "TREADLE_PROFILE")
PROJECT_LABEL = f"project {CONFIG}"


class Ignored(msgspec.Struct, frozen=True):
    """A setting of a project that is not trusted, and so does not count. `text` says what it would be, for a person."""

    name: str
    text: str
    origin: str


class Source(NamedTuple):
    """A layer, the place of its source among all, from the strongest on, and where its paths begin."""

    rank: int
    layer: Layer
    folder: Path


class Sources:
    """Everything that sets something, read and checked. A project's file that cannot be read ends nothing before the
    project is `trusted`: it is ignored.
    """

    def __init__(
        self, project: Project, flags: Mapping[str, Any], environ: Mapping[str, str], *, trusted: bool
    ) -> None:
        where = paths(environ)
        self.ignored: list[Ignored] = []
        if project.problem:
            text = f"all that the project sets, since {project.problem}"
            self.ignored.append(Ignored("project", text, f"project {project.path}"))
        self.project = project
        user_label = f"user {short(where.config_file, environ)}"
        self.user: SettingsFile | None = read_user_file(where.config_file, user_label)
        self.own: SettingsFile | None = self._own(trusted=trusted)
        self._typed = list(_typed(flags))
        self._exported = list(_exported(environ))
        self._config_dir = where.config_dir

    def _own(self, *, trusted: bool) -> SettingsFile | None:
        try:
            return _file_of(self.project)
        except ConfigError as error:
            if trusted:
                raise
            self.ignored.append(Ignored("project", f"its settings, which cannot be read ({error})", PROJECT_LABEL))
            return None

    def check_profile(self, chosen: str | None) -> None:
        there = [name for file in (self.own, self.user) if file is not None for name in file.profiles]
        if chosen is not None and chosen not in there:
            known = f"there are: {', '.join(sorted(set(there)))}" if there else "there is no [profile.NAME] in any file"
            raise ConfigError(f"there is no profile {chosen!r}{nearest(chosen, there)}; {known}")

    def layers(self, chosen: str | None, *, trusted: bool) -> Iterator[Source]:
        """The strongest first."""
        yield from (Source(0, layer, Path.cwd()) for layer in self._typed)
        yield from (Source(1, layer, Path.cwd()) for layer in self._exported)
        for rank, layer in enumerate(self.own.layers(chosen) if self.own is not None else (), 2):
            yield Source(rank, layer if trusted else self._harmless(layer), self.project.root)
        for rank, layer in enumerate(self.user.layers(chosen) if self.user is not None else (), 4):
            yield Source(rank, layer, self._config_dir)

    def _harmless(self, layer: Layer) -> Layer:
        """What of a layer counts before its directory is trusted. The rest is noted as ignored."""
        ignored = _needing_trust(layer)
        self.ignored += ignored
        names = {one.name for one in ignored}
        return Layer(layer.origin, {name: value for name, value in layer.values.items() if name not in names})


def needing_trust(project: Project) -> list[Ignored]:
    """Every setting of a project, also of its profiles, that counts only once it is trusted. Raises `ConfigError`."""
    file = _file_of(project)
    layers = [] if file is None else [file.top, *file.profiles.values()]
    return [one for layer in layers for one in _needing_trust(layer)]


def _needing_trust(layer: Layer) -> list[Ignored]:
    values = layer.values.items()
    return [
        Ignored(name, f"{name} = {spelled(value)}", layer.origin)
        for name, value in values
        if not BY_NAME[name].free(value)
    ]


def _file_of(project: Project) -> SettingsFile | None:
    found = project.files.get(CONFIG)
    if found is None or found.is_link:
        return None
    if found.size > len(found.data):
        raise ConfigError(f"{PROJECT_LABEL} is larger than {len(found.data) >> 10} KiB")
    return parse(found.data, PROJECT_LABEL)


def _typed(flags: Mapping[str, Any]) -> Iterator[Layer]:
    for name, value in flags.items():
        if name not in BY_NAME:
            raise ConfigError(f"there is no setting {name!r} that a flag could set{nearest(name, BY_NAME)}")
        if value is None:
            continue
        key = BY_NAME[name]
        flag = key.flag or name
        is_yolo = name == "mode" and value == YOLO
        yield Layer(f"flag {flag}", {name: value if is_yolo else check(name, key.from_text(value), flag)})


def _exported(environ: Mapping[str, str]) -> Iterator[Layer]:
    for key in KEYS:
        text = environ.get(key.environment, "").strip()
        if not text or key.name in RULES:
            continue
        value = key.from_text(text)
        if key.is_list:
            value = [part for part in text.split(os.pathsep if key.is_path else ",") if part.strip()]
        yield Layer(f"environment {key.environment}", {key.name: check(key.name, value, key.environment)})


def odd_variables(environ: Mapping[str, str]) -> Iterator[str]:
    """A line for each variable that looks as if it set something and does not. Others may be anybody's."""
    known = {key.environment: key for key in KEYS}
    for name in sorted(environ):
        if not name.startswith(_PREFIX) or name in _OTHERS:
            continue
        if name not in known:
            near = _nearest_variable(name, known)
            if near is not None:
                yield f"{name} sets nothing; did you mean {near}?"
        elif known[name].name in RULES:
            yield f"{name} sets nothing: rules stand in settings files"


def _nearest_variable(name: str, known: Iterable[str]) -> str | None:
    """The variable that is meant, told by what is behind the beginning that all have."""
    import difflib

    end = name.removeprefix(_PREFIX).upper()
    found = difflib.get_close_matches(end, [other.removeprefix(_PREFIX) for other in known], n=3, cutoff=0.75)
    found.sort(key=lambda one: sorted(one) != sorted(end))  # as for names in files
    return f"{_PREFIX}{found[0]}" if found else None


def spelled(value: Any) -> str:
    """A value as a settings file would have it."""
    import json

    if value is None:
        return "not set"
    return json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)
