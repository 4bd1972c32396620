"""A directory, and nothing outside it."""

from __future__ import annotations

import contextlib
import errno
import heapq
import os
import stat
import weakref
from typing import TYPE_CHECKING, Literal

from treadle.toolkit import _openat2, _walk, _writing
from treadle.toolkit._names import PROTECTED_NAMES, Protection, RefusedError, status_of
from treadle.toolkit._place import Listing, Place, check_regular, entry_of, open_regular

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from io import BufferedReader
    from typing import Self

Backend = Literal["openat2", "walk"]
MAX_PATH_BYTES = 4096
_PASS = getattr(os, "O_PATH", os.O_RDONLY)
_OUTSIDE = "leads out of the working directory; name a path inside it, like README.md"


class Root:
    """A directory held open, and every file operation beneath it by (open directory, last name).

    Paths are relative to it; an absolute one has to begin with the directory's own path. Links are followed as long as
    they stay inside and are relative. `backend` tells what keeps paths inside: the kernel (`openat2`) or a walk of our
    own (`walk`); it is chosen by what there is unless it is named. Writing is refused to or below a name in
    `protected`, inside git repositories' own directories whatever their name, and inside the Python environment that
    this process runs from, unless `protected` is empty.
    Failures are `OSError`s, a `RefusedError` where only this class forbids it. Safe to use from several threads.

    Raises `ConfigError` if there is no such directory, `UnsupportedError` on systems that cannot open a file relative
    to a directory, such as Windows. What is mounted inside counts as inside.
    """

    path: str
    backend: Backend

    def __init__(
        self,
        path: str | os.PathLike[str] = ".",
        *,
        backend: Backend | None = None,
        protected: Collection[str] = PROTECTED_NAMES,
    ) -> None:
        if not all(hasattr(os, flag) for flag in ("O_NOFOLLOW", "O_DIRECTORY")) or os.open not in os.supports_dir_fd:
            from treadle.errors import UnsupportedError

            text = "the file tools need a system that opens files relative to a directory, like Linux or macOS"
            raise UnsupportedError(text)
        if isinstance(protected, str) or backend not in (None, "openat2", "walk"):
            from treadle.errors import ConfigError

            raise ConfigError("protected is a list of names, and backend is 'openat2' or 'walk' if it is named")
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            from treadle.errors import ConfigError

            raise ConfigError(f"{os.fspath(path)!r} cannot be the root: {error.strerror}") from None
        self._hold(descriptor, os.path.realpath(path), backend, protected)
        self._given = os.path.abspath(path)  # noqa: PTH100 - as it was given, links unresolved

    @classmethod
    def adopt(cls, descriptor: int, backend: Backend) -> Self:
        """A root of a directory that is open already. Takes the descriptor over."""
        root = cls.__new__(cls)
        root._hold(descriptor, "/", backend, ())  # noqa: SLF001 - a constructor
        root._given = "/"  # noqa: SLF001 - as above
        return root

    def _hold(self, descriptor: int, path: str, backend: Backend | None, protected: Collection[str]) -> None:
        self.path = path
        self._descriptor = descriptor
        self._closing = weakref.finalize(self, os.close, descriptor)
        has_openat2 = backend != "walk" and _openat2.available(descriptor)
        if backend == "openat2" and not has_openat2:
            from treadle.errors import UnsupportedError

            raise UnsupportedError("this kernel has no openat2: leave backend out, or name 'walk'")
        self.backend = "openat2" if has_openat2 else "walk"
        self._open_beneath = (_openat2 if has_openat2 else _walk).open_beneath
        self._protection = Protection(protected, os.fstat(descriptor))

    def fileno(self) -> int:
        """The descriptor of the directory, which stays this object's."""
        if not self._closing.alive:
            raise ValueError("this root is closed")
        return self._descriptor

    def close(self) -> None:
        """Gives the directory back. Happens by itself when nobody holds the object any more."""
        self._closing()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Root {self.path} by {self.backend}>"

    def open(self, path: str) -> BufferedReader:
        """The regular file `path`, to read. Nothing else is even opened: no pipe, device or socket."""
        with self.locate(path) as place:
            return os.fdopen(open_regular(place, path), "rb")

    def read(self, path: str, limit: int = -1) -> bytes:
        """The first `limit` bytes of a regular file, or all of it."""
        with self.open(path) as file:
            return file.read(limit)

    def write(self, path: str, data: bytes, *, expected: os.stat_result | None = None) -> bool:
        """Writes the whole of a file, or nothing: `data` is on the disk before it takes the old file's place.

        Mode and ownership stay as they were; other hard links keep the old content. With `expected`, the status of the
        file when it was read, it is refused if somebody changed it since. Returns whether the file is new.
        """
        with self._writable(path) as place:
            if place.status is None and place.linked:
                raise RefusedError(errno.ENOENT, "is a link to something that does not exist", path)
            if place.status is not None:
                check_regular(place.status, path)
            elif expected is not None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            _writing.replace(place.directory, place.name, data, expected or place.status, path)
            return place.status is None

    def mkdir(self, path: str, *, parents: bool = False) -> None:
        """Makes a directory; with `parents` those above it as well, and then it may exist."""
        if not parents:
            with self._writable(path, follow=False) as place:
                os.mkdir(place.name, dir_fd=place.directory)
            return
        parts = [part for part in self.inside(path).split("/") if part not in ("", ".")]
        for count in range(1, len(parts) + 1):
            above = "/".join(parts[:count])
            if parts[count - 1] != ".." and self._missing(above):
                with contextlib.suppress(FileExistsError):
                    self.mkdir(above)

    def rename(self, old: str, new: str) -> None:
        """Renames a file or directory; a file in the way is replaced. Links are renamed themselves."""
        with self._writable(old, follow=False) as source, self._writable(new, follow=False) as target:
            os.rename(source.name, target.name, src_dir_fd=source.directory, dst_dir_fd=target.directory)
            _writing.sync(target.directory)

    def unlink(self, path: str) -> None:
        """Removes a name that is no directory. Links are removed themselves."""
        with self._writable(path, follow=False) as place:
            os.unlink(place.name, dir_fd=place.directory)

    def stat(self, path: str, *, follow: bool = True) -> os.stat_result:
        """The status of a file, or with `follow=False` of a link itself."""
        with self.locate(path, follow=follow) as place:
            if place.status is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            return place.status

    def scandir(self, path: str = ".", *, limit: int | None = None) -> Listing:
        """What is in a directory, the first `limit` entries by name."""
        descriptor = self.open_directory(path)
        try:
            names = os.listdir(descriptor)  # noqa: PTH208 - pathlib takes no descriptor
            first = sorted(names) if limit is None else heapq.nsmallest(limit, names)
            entries = [entry for name in first if (entry := entry_of(name, descriptor)) is not None]
            return Listing(entries, len(names))
        finally:
            os.close(descriptor)

    def open_directory(self, path: str, flags: int = os.O_RDONLY) -> int:
        """A descriptor of the directory `path`, which the caller closes."""
        inside = self.inside(path)
        try:
            return int(self._open_beneath(self.fileno(), inside, flags | os.O_DIRECTORY))
        except OSError as error:
            if error.errno == errno.EXDEV:
                raise RefusedError(errno.EXDEV, _OUTSIDE, path) from None
            raise

    @contextlib.contextmanager
    def locate(self, path: str, *, follow: bool = True) -> Iterator[Place]:
        """Where `path` ends. Its last name is no link any more, unless `follow` is false."""
        inside = self.inside(path)
        for links in range(_walk.MAX_LINKS + 1):
            above, name = _parted(inside)
            directory = self.open_directory(above, _PASS)
            try:
                status = status_of(name, directory)
                if not follow or status is None or not stat.S_ISLNK(status.st_mode):
                    yield Place(directory, name, status, links > 0)
                    return
                target = os.readlink(name, dir_fd=directory)
            finally:
                os.close(directory)
            if target.startswith("/"):
                raise RefusedError(errno.EXDEV, _OUTSIDE, path)
            inside = self._checked(f"{above}/{target}")
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)

    @contextlib.contextmanager
    def _writable(self, path: str, *, follow: bool = True) -> Iterator[Place]:
        reason = "is protected: nothing is written there"
        if self._protection.names_one(self.inside(path).split("/")):
            raise RefusedError(errno.EPERM, reason, path)
        with self.locate(path, follow=follow) as place:
            if self._protection.covers(place.directory, place.name):
                raise RefusedError(errno.EPERM, reason, path)
            yield place

    def _missing(self, path: str) -> bool:
        with self.locate(path) as place:
            return place.status is None

    def inside(self, path: str) -> str:
        """`path` relative to the root. Only what leads here is taken off: where the rest leads, the system says."""
        if not path.startswith("/"):
            return self._checked(path)
        for own in (self.path, self._given):
            if path == own or path.startswith(own.rstrip("/") + "/"):
                return self._checked(path[len(own) :].lstrip("/"))
        raise RefusedError(errno.EXDEV, _OUTSIDE, path)

    def _checked(self, path: str) -> str:
        if "\0" in path:
            raise RefusedError(errno.EINVAL, "has a NUL in it, which no file name has", path)
        if len(os.fsencode(path)) > MAX_PATH_BYTES or path.count("/") > _walk.MAX_DEPTH:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), path)
        return path or "."


def _parted(path: str) -> tuple[str, str]:
    """The directory part and the last name, which is `.` where `path` can only mean a directory."""
    above, _, name = path.rstrip("/").rpartition("/")
    if name in ("", ".", "..") or path.endswith("/"):
        return path, "."
    return above or ".", name
