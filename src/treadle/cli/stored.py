"""Where the conversations of a directory are kept."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from treadle.store import JsonLinesStore

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
