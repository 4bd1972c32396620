"""Settings of the command line: where each value comes from, profiles, and which directories are trusted."""

from __future__ import annotations

from treadle.cli.settings._flags import add_flags, typed_flags
from treadle.cli.settings._paths import Paths, paths
from treadle.cli.settings._project import Project, read_project
from treadle.cli.settings._resolve import Settings, load_settings
from treadle.cli.settings._sources import Ignored
from treadle.cli.settings._trust import Trust, TrustStatus

__all__ = [
    "Ignored",
    "Paths",
    "Project",
    "Settings",
    "Trust",
    "TrustStatus",
    "add_flags",
    "load_settings",
    "paths",
    "read_project",
    "typed_flags",
]
