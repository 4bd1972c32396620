"""`AGENTS.md` and `CLAUDE.md`: the user's own, then those from the top of the repository down to the root.

As Codex does (its documentation of AGENTS.md, looked at in 2026) the top is the nearest directory above with a `.git`,
and without one only the root itself is looked at: a file that somebody left in a shared directory above is not read.
Where a directory has both names, both are read, unless one is a link to the other, a copy, or imports it by `@NAME`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from treadle.cli.context._reading import Beneath, Own, Readable, note, read_text
from treadle.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMES = ("AGENTS.md", "CLAUDE.md")
MAX_FILE_BYTES = 32 * 1024
MAX_ALL_BYTES = 64 * 1024
_MAX_LEVELS = 64


class ContextFile(NamedTuple):
    """A file that every run is told. `own`: it is the user's, not the repository's. `cut`: there is more in it."""

    path: str
    text: str
    own: bool
    cut: bool


def context_files(root: Path, config_dir: Path | None, notes: list[str]) -> list[ContextFile]:
    """The files in the order in which they are told, the nearest to the root last."""
    from treadle.toolkit import Root

    root = Path(os.path.realpath(root))
    top = top_of(root)
    left = _Left(MAX_ALL_BYTES)
    own = _in(Own(config_dir), "", left, notes) if config_dir is not None else []
    try:
        held = Root(top)
    except ConfigError:  # a directory above may be closed to us
        held, top = Root(root), root
    with held:
        # The nearest first, so that what is too much is what is furthest away.
        below = [_in(Beneath(held), folder, left, notes) for folder in _folders(top, root)]
    return [*own, *(file for found in reversed(below) for file in found)]


def top_of(root: Path) -> Path:
    """The top of the repository that `root` is in, or `root`. As for git, one that belongs to somebody else is none."""
    ours = {os.getuid(), root.stat().st_uid}
    for folder in (root, *root.parents[:_MAX_LEVELS]):
        try:
            if os.lstat(folder / ".git").st_uid in ours:
                return folder
        except OSError:
            continue
    return root


def _folders(top: Path, root: Path) -> Iterator[str]:
    """The directories from `root` up to `top`, as beginnings of paths beneath `top`."""
    folder = root
    while folder != top:
        yield f"{folder.relative_to(top)}/"
        folder = folder.parent
    yield ""


class _Left:
    """How many bytes may still be read."""

    def __init__(self, count: int) -> None:
        self.count = count

    def take(self, text: str) -> None:
        self.count = max(0, self.count - len(text.encode(errors="replace")))


def _in(place: Readable, folder: str, left: _Left, notes: list[str]) -> list[ContextFile]:
    """The files of one directory, each text once."""
    own = isinstance(place, Own)
    found: dict[str, ContextFile] = {}
    for name in NAMES:
        path = f"{place.path.rstrip('/')}/{folder}{name}"
        read = read_text(place, f"{folder}{name}", min(MAX_FILE_BYTES, left.count), notes)
        if read is None or read.text in (file.text for file in found.values()):
            continue
        if read.cut:
            notes.append(note(path, f"only its first {len(read.text.encode(errors='replace'))} bytes are told"))
        left.take(read.text)
        found[name] = ContextFile(path, read.text, own, read.cut)
    files = [file._replace(text=_without_imports(file.text, found.keys() - {name})) for name, file in found.items()]
    return [file for file in files if file.text.strip()]


def _without_imports(text: str, told: set[str]) -> str:
    imports = {f"@{prefix}{name}" for name in told for prefix in ("", "./")}
    return "\n".join(line for line in text.split("\n") if line.strip() not in imports)
