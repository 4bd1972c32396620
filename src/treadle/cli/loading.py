"""Objects named on the command line as `module:name`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from treadle.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from treadle import Tool


def load(name: str) -> Any:
    """The object that `module:name` names. The working directory is searched first. Raises `ConfigError`."""
    module_name, _, path = name.partition(":")
    if not module_name or not path:
        raise ConfigError(f"{name!r} is not MODULE:NAME, like mytools:search")
    found = _import(module_name, name)
    for attribute in path.split("."):
        try:
            found = getattr(found, attribute)
        except AttributeError:
            raise ConfigError(f"{name}: {module_name} has no {path!r}") from None
    return found


def kind(found: object) -> str:
    """What something is, with its article."""
    name = type(found).__name__
    return f"{'an' if name[0] in 'aeioAEIO' else 'a'} {name}"


def _import(module_name: str, name: str) -> Any:
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(module_name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - whatever somebody's module raises, also SystemExit, is theirs
        if isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}."):
            raise ConfigError(f"{name}: there is no module {error.name!r} here or installed") from None
        raise ConfigError(f"{name}: importing {module_name} raised {type(error).__name__}: {error}") from None


def load_tools(names: Iterable[str]) -> list[Tool[..., Any]]:
    """The tools that `module:name`s name: each a tool, a plain function, or a list of these."""
    return [made for name in names for made in _tools_in(load(name), name)]


def _tools_in(found: Any, name: str) -> list[Tool[..., Any]]:
    from treadle import Tool, tool

    if isinstance(found, Tool):
        return [found]
    if isinstance(found, list | tuple):
        return [made for one in found for made in _tools_in(one, name)]
    if not callable(found):
        raise ConfigError(f"{name} is {kind(found)}, not a tool, a function or a list of them")
    return [tool(found)]
