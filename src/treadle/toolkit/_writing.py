"""Replacing a file whole or not at all, by (directory, name)."""

from __future__ import annotations

import contextlib
import errno
import os
import stat

from treadle.toolkit._names import RefusedError, same, status_of

# Capabilities and the like go, as they do when a file is written to in place.
_KEPT_ATTRIBUTES = ("user.", "system.posix_acl_access")


def replace(directory: int, name: str, data: bytes, old: os.stat_result | None, path: str) -> None:
    """Puts `data` under `name`, where `old` is what is there now. The old file is whole until the new one is.

    A new file is written beside it and takes over its mode and ownership, so that other names of the old file (hard
    links) keep the old content. Raises `RefusedError` if somebody changed the file meanwhile, or its owner cannot be
    kept.
    """
    if old is not None:
        _check_writable(directory, name, old, path)
    temporary = f".treadle-{os.urandom(8).hex()}.tmp"
    descriptor, named = _create(directory, temporary, 0o666 if old is None else 0o600)
    try:
        if old is not None:
            _take_after(descriptor, directory, name, old, path)
        _write(descriptor, data)
        if not named:
            os.link(f"/proc/self/fd/{descriptor}", temporary, dst_dir_fd=directory, follow_symlinks=True)
            named = True
        _check_unchanged(directory, name, old, path)
        os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
        named = False
    finally:
        os.close(descriptor)
        if named:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=directory)
    sync(directory)


def sync(directory: int) -> None:
    """Makes what was renamed in `directory` last, as far as the file system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _create(directory: int, temporary: str, mode: int) -> tuple[int, bool]:
    """An empty file in `directory`, and whether it has its name already. Without one a crash leaves nothing behind."""
    if hasattr(os, "O_TMPFILE"):
        with contextlib.suppress(OSError):
            flags = os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC
            descriptor = os.open(".", flags, mode, dir_fd=directory)
            if os.path.lexists(f"/proc/self/fd/{descriptor}"):
                return descriptor, False
            os.close(descriptor)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(temporary, flags, mode, dir_fd=directory), True


def _write(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]
    os.fsync(descriptor)


def _check_writable(directory: int, name: str, old: os.stat_result, path: str) -> None:
    # Renaming over a file asks for no right to it, and root has every right: the mode says what is meant.
    may = os.access(name, os.W_OK, dir_fd=directory, effective_ids=os.access in os.supports_effective_ids)
    if not may or not old.st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH):
        raise RefusedError(errno.EACCES, "is read-only", path)


def _take_after(descriptor: int, directory: int, name: str, old: os.stat_result, path: str) -> None:
    new = os.fstat(descriptor)
    if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
        try:
            os.chown(descriptor, old.st_uid, old.st_gid)
        except PermissionError:
            reason = "belongs to another user or group, which only they could keep; it was left alone"
            raise RefusedError(errno.EPERM, reason, path) from None
    _copy_attributes(descriptor, directory, name)
    os.chmod(descriptor, stat.S_IMODE(old.st_mode) & ~(stat.S_ISUID | stat.S_ISGID))


def _copy_attributes(descriptor: int, directory: int, name: str) -> None:
    if not hasattr(os, "listxattr"):
        return
    with contextlib.suppress(OSError):
        source = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
        try:
            for attribute in os.listxattr(source):
                if attribute.startswith(_KEPT_ATTRIBUTES):
                    os.setxattr(descriptor, attribute, os.getxattr(source, attribute))
        finally:
            os.close(source)


def _check_unchanged(directory: int, name: str, old: os.stat_result | None, path: str) -> None:
    now = status_of(name, directory)
    if old is None and now is None:
        return
    unchanged = old is not None and now is not None and same(old, now) and _version(old) == _version(now)
    if not unchanged:
        raise RefusedError(errno.EBUSY, "was changed by somebody else in this moment; look at it again", path)


def _version(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_mtime_ns, status.st_size, status.st_mode
