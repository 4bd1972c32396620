"""The files of a directory tree in order, without what ignore files exclude. Links are named and not followed."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, NamedTuple

from treadle.toolkit._ignore import MAX_BYTES, NAMES, Placed, Rules, excluded
from treadle.toolkit._names import status_of
from treadle.toolkit._place import Place, open_regular
from treadle.toolkit._walk import MAX_DEPTH

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from treadle.toolkit.root import Root

_DOWN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_Stack = list[Placed]


class Found(NamedTuple):
    """A file: its path below the root, and the open directory with the name that it has there."""

    path: str
    directory: int
    name: str
    is_directory: bool
    is_regular: bool

    def open(self) -> int:
        """A descriptor of the regular file, to read."""
        return open_regular(Place(self.directory, self.name, status_of(self.name, self.directory)), self.path)


class Tree:
    """What is at and below `path`. `skipped` counts the directories that could not be entered."""

    def __init__(self, root: Root, path: str) -> None:
        self._root = root
        parts = [part for part in root.inside(path).split("/") if part not in ("", ".")]
        self.base = "/".join(parts)
        self.is_file = not stat.S_ISDIR(root.stat(path).st_mode)
        if self.is_file:
            root.open(path).close()  # refuses what is no regular file
        self.skipped = 0
        self._hidden: dict[str, bool] = {}
        self._stacks: dict[str, _Stack] = {}

    @property
    def prefix(self) -> str:
        """What stands in front of the name of each file in the base directory."""
        return f"{self.base}/" if self.base else ""

    def walk(self) -> Iterator[Found]:
        """Everything, each directory in front of what is in it, sorted by name."""
        if self.is_file:
            with self._root.locate(self.base) as place:
                yield Found(self.base, place.directory, place.name, is_directory=False, is_regular=True)
            return
        descriptor = self._root.open_directory(self.base or ".")
        yield from self._below(descriptor, self.prefix, self._stack_above(), 0)

    def _below(self, directory: int, prefix: str, stack: _Stack, depth: int) -> Iterator[Found]:
        """What is in `directory`, which is closed at the end."""
        try:
            with os.scandir(directory) as scan:
                entries = sorted(scan, key=lambda entry: entry.name)
            stack = [*stack, *_rules(directory, prefix, {entry.name for entry in entries})]
            for entry in entries:
                is_directory = entry.is_dir(follow_symlinks=False)
                path = prefix + entry.name
                if excluded(entry.name, stack, path, is_directory=is_directory):
                    continue
                yield Found(path, directory, entry.name, is_directory, entry.is_file(follow_symlinks=False))
                if is_directory and (below := self._enter(directory, entry.name, depth)) is not None:
                    yield from self._below(below, f"{path}/", stack, depth + 1)
        except OSError:
            self.skipped += 1
        finally:
            os.close(directory)

    def _enter(self, directory: int, name: str, depth: int) -> int | None:
        if depth < MAX_DEPTH:
            try:
                return os.open(name, _DOWN, dir_fd=directory)
            except FileNotFoundError:
                return None
            except OSError:
                pass
        self.skipped += 1
        return None

    def shows(self, path: str) -> bool:
        """Whether `walk` would come by the file `path`, which is below the base directory."""
        above, _, name = path.rpartition("/")
        if not self._enters(above):
            return False
        return not excluded(name, self._stack(above), path, is_directory=False)

    def _enters(self, directory: str) -> bool:
        if directory == self.base:
            return True
        if directory not in self._hidden:
            above, _, name = directory.rpartition("/")
            self._hidden[directory] = not self._enters(above) or excluded(
                name, self._stack(above), directory, is_directory=True
            )
        return not self._hidden[directory]

    def _stack_above(self) -> _Stack:
        """The rules from the root down to the base directory, without its own."""
        return [] if not self.base or ".." in self.base.split("/") else self._stack(self.base.rpartition("/")[0])

    def _stack(self, directory: str) -> _Stack:
        """The rules that hold for what is in `directory`."""
        if directory not in self._stacks:
            inherited: _Stack = []
            if directory == self.base:
                inherited = self._stack_above()
            elif directory:
                inherited = self._stack(directory.rpartition("/")[0])
            try:
                descriptor = self._root.open_directory(directory or ".")
            except OSError:
                return inherited
            try:
                prefix = f"{directory}/" if directory else ""
                self._stacks[directory] = [*inherited, *_rules(descriptor, prefix, NAMES)]
            finally:
                os.close(descriptor)
        return self._stacks[directory]


def _rules(directory: int, prefix: str, names: Collection[str]) -> list[Placed]:
    """The rules of the ignore files in `directory` that are among `names`."""
    found = []
    for kind, name in enumerate(NAMES):
        if name in names and (data := _read_ignore(directory, name)) is not None:
            found.append(Placed(kind, len(prefix), Rules(data)))
    return found


def _read_ignore(directory: int, name: str) -> bytes | None:
    status = status_of(name, directory)
    if status is None or not stat.S_ISREG(status.st_mode):
        return None  # git follows no link here either
    try:
        with os.fdopen(open_regular(Place(directory, name, status), name), "rb") as file:
            return file.read(MAX_BYTES)
    except OSError:
        return None
