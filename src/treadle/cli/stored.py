"""Where the conversations of a directory are kept."""

from __future__ import annotations

import hashlib
import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from treadle.store import JsonLinesStore, SessionInfo

_NAME_LENGTH = 40


def session_store(root: str | os.PathLike[str], environ: Mapping[str, str]) -> JsonLinesStore:
    """The store of the sessions of `root`: a directory of its own, which is made when something is stored.

    Its name is for people, the hash of the real path behind it for telling directories of one name apart.
    """
    from treadle.cli.settings import paths
    from treadle.store import JsonLinesStore

    path = Path(os.path.realpath(root))
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", path.name)[:_NAME_LENGTH].strip("-.") or "root"
    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:12]
    return JsonLinesStore(paths(environ).data_dir / "sessions" / f"{name}-{digest}")


def chosen(argument: str, sessions: Sequence[str], lists: str = "/sessions") -> str:
    """The session that `argument` names: its id or a beginning that no other has; nothing means the first.

    `lists` is the command that shows all of them.
    """
    if not sessions:
        raise ConfigError("no session of this directory is stored yet")
    if not argument:
        return sessions[0]
    found = [session for session in sessions if session.startswith(argument)]
    if argument in found:
        return argument
    if len(found) != 1:
        count = f"{len(found)} sessions begin" if found else "no session begins"
        raise ConfigError(f"{count} with {argument!r:.60}; {lists} lists them")
    return found[0]


def described(info: SessionInfo, *, current: bool = False) -> str:
    """A session in a line."""
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(info.updated))
    copy = f"  (a copy of {info.forked_from})" if info.forked_from else ""
    return f"{'* ' if current else '  '}{info.id}  {when}  {info.title or '(nothing said)'}{copy}"
