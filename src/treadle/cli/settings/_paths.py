"""Where the user's files are.

`TREADLE_HOME` puts all of them into one directory. Otherwise the XDG base directories hold on every system where they
are set, and where they are not: `~/Library/Application Support/treadle` on macOS, the XDG defaults elsewhere.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from treadle.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

CONFIG_FILE = "config.toml"
RULES_FILE = "permissions.toml"
TRUST_FILE = "trust.json"


class Paths(msgspec.Struct, frozen=True):
    """Directories of the user's, none of which has to exist: settings, sessions, and what the program remembers."""

    config_dir: Path
    data_dir: Path
    state_dir: Path

    @property
    def config_file(self) -> Path:
        """The user's settings."""
        return self.config_dir / CONFIG_FILE

    @property
    def rules_file(self) -> Path:
        """The rules that were saved by answering "always"."""
        return self.config_dir / RULES_FILE

    @property
    def trust_file(self) -> Path:
        """The directories that are trusted."""
        return self.state_dir / TRUST_FILE


def paths(environ: Mapping[str, str], platform: str = sys.platform) -> Paths:
    """The user's directories, by the conventions of `platform`.

    Raises `ConfigError` where neither `TREADLE_HOME` nor `HOME` is an absolute path.
    """
    if given := environ.get("TREADLE_HOME", ""):
        if not Path(given).is_absolute():
            raise ConfigError(f"TREADLE_HOME is an absolute path, not {given!r}")
        return Paths(Path(given), Path(given, "data"), Path(given, "state"))
    try:
        home = Path(environ.get("HOME") or Path.home())
    except RuntimeError:  # a user whom the system does not know
        raise ConfigError("there is no home directory: set HOME, or TREADLE_HOME") from None
    if not home.is_absolute():
        raise ConfigError(f"HOME is an absolute path, not {str(home)!r}: set it, or TREADLE_HOME")
    if platform == "darwin":
        library = home / "Library" / "Application Support"
        defaults = (library / "treadle", library / "treadle" / "data", library / "treadle" / "state")
    else:
        defaults = (home / ".config/treadle", home / ".local/share/treadle", home / ".local/state/treadle")
    names = ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")
    return Paths(*(_base(environ.get(name, ""), default) for name, default in zip(names, defaults, strict=True)))


def short(path: Path, environ: Mapping[str, str]) -> str:
    """`path` as a person writes it: with `~` for the home directory."""
    home, text = environ.get("HOME", ""), str(path)
    return f"~{text[len(home) :]}" if len(home) > 1 and text.startswith(f"{home}/") else text


def _base(given: str, default: Path) -> Path:
    return Path(given, "treadle") if Path(given).is_absolute() else default  # a relative one counts as unset (XDG 0.8)
