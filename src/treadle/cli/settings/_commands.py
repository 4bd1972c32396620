"""`treadle config` and `treadle trust`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from treadle.cli.exits import Exit
from treadle.cli.settings._described import described
from treadle.cli.settings._flags import typed_flags
from treadle.cli.settings._keys import KEYS
from treadle.cli.settings._paths import paths, short
from treadle.cli.settings._project import CONFIG
from treadle.cli.settings._resolve import Settings, load_settings
from treadle.cli.settings._secrets import looks_secret
from treadle.cli.settings._sources import spelled
from treadle.cli.settings._trust import Trust
from treadle.cli.terminal import LONGEST, at_a_terminal, complain, neutral, say
from treadle.errors import ConfigError

if TYPE_CHECKING:
    import argparse

    from treadle.cli.settings._project import Project

_QUESTION = "Trust it? [y/N] "
_HIDDEN = "(not shown: it looks like a credential)"


def config(arguments: argparse.Namespace) -> int:
    """Prints each setting and where it comes from."""
    settings = settings_of(arguments)
    shown = [(key.name, _shown(settings.values[key.name]), settings.origin(key.name)) for key in KEYS]
    if arguments.json:
        _print_json(
            {
                "settings": [{"name": name, "value": value, "origin": origin} for name, value, origin in shown],
                "profile": settings.profile,
                "root": settings.project.path,
                "trusted": settings.project.trusted,
                "ignored": [{"name": one.name, "setting": one.text, "origin": one.origin} for one in settings.ignored],
            }
        )
        return Exit.COMPLETE
    rows = [(name, spelled(value), origin) for name, value, origin in shown]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    for name, value, origin in rows:
        print_line(f"{name:<{widths[0]}}  {value:<{min(widths[1], 40)}}  {origin}")
    user = paths(os.environ).config_file
    files = [(CONFIG, Path(settings.project.path, CONFIG)), (short(user, os.environ), user)]
    print_line("files: " + ", ".join(f"{name}{'' if path.exists() else ' (not there)'}" for name, path in files))
    tell_ignored(settings)
    return Exit.COMPLETE


def _shown(value: Any) -> Any:
    """A value, unless a credential stands in it, which a variable or a flag may hold."""
    return _HIDDEN if isinstance(value, str) and looks_secret(value) else value


def trust(arguments: argparse.Namespace) -> int:
    """Shows what there is to trust in a directory, and remembers that it is, or no more."""
    known = Trust(paths(os.environ))
    root = Path(arguments.directory)
    if arguments.list:
        for directory in known.directories():
            print_line(directory)
        return Exit.COMPLETE
    if arguments.forget:
        print_line("it is not trusted any more" if known.forget(root) else "it was not trusted")
        return Exit.COMPLETE
    project = known.look(root)
    if project.trusted or not (project.files or project.problem or project.changes):
        print_line(f"{project.path} is trusted" if project.trusted else f"{project.path} has nothing that needs trust")
        return Exit.COMPLETE
    return _status(project) if arguments.status else _trust(known, project, sure=arguments.yes)


def settings_of(arguments: argparse.Namespace) -> Settings:
    """The settings as the arguments of a command, the environment and the files have them."""
    root = Path(arguments.root)
    project = Trust(paths(os.environ)).look(root)
    flags = typed_flags(arguments)
    profile = getattr(arguments, "profile", None)
    return load_settings(root=root, flags=flags, environ=os.environ, profile=profile, project=project)


def tell_ignored(settings: Settings) -> None:
    """Says which settings of a project do not count before it is trusted, and which variables set nothing."""
    for note in settings.notes:
        say(note)
    for one in settings.ignored:
        say(f"ignored until the directory is trusted (treadle trust): {one.text}, from {one.origin}")


def print_line(text: str) -> None:
    """Prints a line, whatever is in it, on standard output."""
    print(neutral(text.replace("\n", " "))[:LONGEST].encode(errors="replace").decode())


def _status(project: Project) -> int:
    print_line(f"{project.path} {'has changed since it was trusted' if project.changes else 'is not trusted'}")
    for change in project.changes:
        print_line(f"  {change}")
    return Exit.FAILED


def _trust(known: Trust, project: Project, *, sure: bool) -> int:
    if project.problem:
        return complain(f"{project.path} cannot be trusted: {project.problem}", Exit.FAILED)
    for line in described(project):
        print_line(line)
    if not sure:
        if not at_a_terminal():
            raise ConfigError("nobody can be asked here: read the above, and give --yes to trust it")
        print(_QUESTION, end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            print_line("it is not trusted")
            return Exit.FAILED
    known.trust(project)
    print_line(f"{project.path} is trusted as it is now; a change to these files asks again")
    return Exit.COMPLETE


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=2))
