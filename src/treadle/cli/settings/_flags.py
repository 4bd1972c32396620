"""The options of a command that set something. One that is not typed leaves no trace."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from treadle.cli.settings._keys import KEYS, Key

if TYPE_CHECKING:
    from collections.abc import Collection

_PREFIX = "setting:"


def add_flags(parser: argparse.ArgumentParser, *, without: Collection[str] = ()) -> None:
    """Adds `--profile` and an option for each setting that has one. `without` names settings to leave out.

    A switch comes with its `--no-` form. `typed_flags` reads what was typed.
    """
    parser.add_argument("--profile", metavar="NAME", help="the [profile.NAME] of the settings files to use")
    for key in KEYS:
        if key.flag is not None and key.name not in without:
            _add(parser, key)


def typed_flags(arguments: argparse.Namespace) -> dict[str, Any]:
    """The settings that were typed as options, for `load_settings(flags=...)`."""
    found = vars(arguments).items()
    return {name.removeprefix(_PREFIX): value for name, value in found if name.startswith(_PREFIX)}


def _add(parser: argparse.ArgumentParser, key: Key) -> None:
    names = [name for name in (key.short_flag, key.flag) if name is not None]
    kind: dict[str, Any] = {"dest": f"{_PREFIX}{key.name}", "default": argparse.SUPPRESS}
    kind["help"] = key.what.replace("`", "").replace("%", "%%")
    if key.is_switch:
        parser.add_argument(*names, action=argparse.BooleanOptionalAction, **kind)
    elif key.is_list:
        parser.add_argument(*names, action="append", metavar=key.metavar, **kind)
    else:
        parser.add_argument(*names, metavar=key.metavar, **kind)
