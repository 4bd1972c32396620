"""Permissions of the command line: which calls run, which are asked about, which are denied."""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.cli.permissions._judge import MODES, Mode, Permissions, Saving
from treadle.cli.permissions._rules import PermissionRule, parse_rule
from treadle.cli.permissions._saved import SavedRules
from treadle.cli.permissions._suggesting import Suggestion

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from treadle.cli.settings import Settings

__all__ = [
    "MODES",
    "Mode",
    "PermissionRule",
    "Permissions",
    "SavedRules",
    "Saving",
    "Suggestion",
    "load_permissions",
    "parse_rule",
]


def load_permissions(
    settings: Settings, *, root: Path, environ: Mapping[str, str], granted: Iterable[PermissionRule] = ()
) -> Permissions:
    """The permissions for work in `root`: the rules of the settings, those saved for it, and `granted` ones.

    Raises `ConfigError` where the saved rules cannot be read.
    """
    from treadle.cli.settings import paths

    where = paths(environ)
    saved = SavedRules(where.rules_file, root, environ)
    own = (where.config_dir, where.data_dir, where.state_dir)
    return Permissions(settings.mode, [*settings.rules, *saved.rules(), *granted], saved, root=root, own=own)
