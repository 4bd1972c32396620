"""What servers and their tools are called here."""

from __future__ import annotations

import re
import threading
from pathlib import PurePath
from typing import TYPE_CHECKING

from treadle._tool_names import hashed_name, legal_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_LAUNCHERS = frozenset({"bun", "bunx", "deno", "node", "npx", "pipx", "py", "python", "python3", "uv", "uvx"})
_TELL_NOTHING = frozenset({"bin", "build", "dist", "exec", "index", "main", "run", "server", "src", "tool", "x", ""})


class Names:
    """The names of one server's tools. One that is given stays, whatever else the server offers later."""

    def __init__(self) -> None:
        self._given: dict[str, str] = {}
        self._lock = threading.Lock()  # runs on several event loops share a server

    def give(self, originals: Iterable[str]) -> dict[str, str]:
        """A legal name for each of the server's own. One that is legal already keeps it before all others."""
        with self._lock:
            new = sorted(set(originals) - self._given.keys(), key=lambda name: (legal_name(name) != name, name))
            taken = set(self._given.values())
            for name in new:
                given = legal_name(name)
                self._given[name] = hashed_name(name) if given in taken else given
                taken.add(self._given[name])
            return dict(self._given)


def name_of(command: str, args: Sequence[str]) -> str:
    """What a command line starts: the program, or what a launcher such as npx is told to start."""
    program = PurePath(command).stem
    if program.lower() in _LAUNCHERS:
        for word in (word for word in args if not word.startswith("-")):
            names = [PurePath(part).stem for part in PurePath(re.sub(r"(?<=.)@[^@/]*$", "", word)).parts]
            if telling := [name for name in names if name not in _TELL_NOTHING]:
                return telling[-1]
    return program or "server"
