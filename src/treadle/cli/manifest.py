"""`treadle manifest`."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from treadle.cli.exits import Exit
from treadle.cli.loading import kind, load
from treadle.cli.terminal import complain, neutral
from treadle.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from treadle import Agent


def write_or_check(names: Sequence[str], *, check: str | None, output: str | None) -> int:
    """Prints or writes the manifest of the named agents, or compares it with the file `check`."""
    from treadle.manifest import manifest

    with contextlib.redirect_stdout(sys.stderr):  # what somebody's module prints at import is no part of a manifest
        agents = [_agent(name) for name in names]
    if check is not None:
        return _check(check, agents)
    data = manifest(*agents)
    if output is None:
        sys.stdout.buffer.write(data)
    else:
        try:
            Path(output).write_bytes(data)
        except OSError as error:
            raise ConfigError(f"{output}: {error.strerror}") from None
    return Exit.COMPLETE


def _agent(name: str) -> Agent[Any, Any]:
    from treadle import Agent

    found = load(name)
    if not isinstance(found, Agent):
        raise ConfigError(f"{name} is {kind(found)}, not an Agent")
    return found


def _check(path: str, agents: Sequence[Agent[Any, Any]]) -> int:
    from treadle.manifest import check

    try:
        expected = Path(path).read_bytes()
    except FileNotFoundError:
        return complain(f"{path} is missing; -o {path} writes it", Exit.FAILED)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    if not (difference := check(expected, *agents)):
        return Exit.COMPLETE
    print(neutral(difference))
    return complain(f"{path} is not what the agents are now; -o {path} writes it anew", Exit.FAILED)
