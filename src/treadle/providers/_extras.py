"""Packages that only some need: whether they are there, without loading them."""

from __future__ import annotations

import importlib.util

from treadle.errors import ConfigError


def require(module: str, extra: str) -> None:
    """Raises `ConfigError` where `module` is not installed, and names the extra that brings it."""
    try:
        found = importlib.util.find_spec(module)
    except ModuleNotFoundError:  # the package that it is in is missing, too
        found = None
    if found is None:
        raise ConfigError(f'{module} is not installed: pip install "treadle[{extra}]"')
