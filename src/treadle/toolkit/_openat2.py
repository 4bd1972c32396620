"""`openat2(2)` by ctypes: the kernel itself keeps a path beneath a directory (Linux 5.6 and later)."""

from __future__ import annotations

import errno
import functools
import os
import sys
from typing import Any

_SYSCALL = 437  # one number for all architectures but alpha and mips
_MACHINES = frozenset(
    {"x86_64", "i386", "i686", "aarch64", "armv7l", "armv8l", "riscv64", "ppc64le", "s390x", "loongarch64"}
)
_NO_MAGICLINKS, _BENEATH = 0x02, 0x08
_TRIES = 1000  # the kernel gives up with EAGAIN where a rename crossed its way


def available(directory: int) -> bool:
    """Whether this kernel, and what filters its system calls, has it: tried on `directory`."""
    if sys.platform != "linux" or os.uname().machine not in _MACHINES:
        return False
    try:
        os.close(open_beneath(directory, ".", os.O_PATH | os.O_DIRECTORY))
    except (OSError, ImportError):
        return False
    return True


def open_beneath(directory: int, path: str, flags: int) -> int:
    """A descriptor of `path`, which never leads out of `directory`: that is EXDEV, also for an absolute link."""
    import ctypes  # kept out of what importing this module costs

    how = (ctypes.c_uint64 * 3)(flags | os.O_CLOEXEC, 0, _BENEATH | _NO_MAGICLINKS)
    error = 0
    for _ in range(_TRIES):
        found = _syscall()(
            ctypes.c_long(_SYSCALL),
            ctypes.c_int(directory),
            ctypes.c_char_p(os.fsencode(path)),
            ctypes.byref(how),
            ctypes.c_size_t(ctypes.sizeof(how)),
        )
        if found >= 0:
            return int(found)
        if (error := ctypes.get_errno()) not in (errno.EAGAIN, errno.EINTR):
            break
    raise OSError(error, os.strerror(error), path)


@functools.cache
def _syscall() -> Any:
    import ctypes

    return ctypes.CDLL(None, use_errno=True).syscall
