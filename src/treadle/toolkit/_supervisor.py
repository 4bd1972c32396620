"""The process between the host and a command. It ends all that the command started, and outlives neither of them long.

Run as a script, with nothing but the standard library. The request is one line of JSON on standard input; the end of
that input means stop. On Linux this process is a subreaper: whatever the command starts stays below it, also what
forks twice and makes a session of its own. The answer is one JSON object on standard output.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

HEAD_BYTES = TAIL_BYTES = 24 * 1024
TERM_SECONDS = 0.5  # between asking to end and ending
STRAGGLER_SECONDS = 0.2  # for a `tee` or the like that ends just after the command
KILL_SECONDS = 3.0  # after which it is said that something is still alive
_LOOK_SECONDS = 0.5
_HUNTS = 500
_DEATH_SIGNAL, _DUMPABLE, _SUBREAPER = 1, 4, 36
_NAMES = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGTSTP", "SIGTTOU", "SIGTTIN")
_IGNORED = tuple(getattr(signal, name) for name in _NAMES if hasattr(signal, name))


class Process(NamedTuple):
    """A process as the system lists it. `born` tells it from a later one with its number."""

    pid: int
    parent: int
    group: int
    session: int
    state: str
    born: str

    @property
    def alive(self) -> bool:
        return self.state[0] not in "ZX"


def processes() -> dict[int, Process]:
    """All that run now, zombies included."""
    if not sys.platform.startswith("linux"):
        return _listed_by_ps()
    found = {}
    for name in reversed(os.listdir("/proc")):  # noqa: PTH208 - starts faster than with pathlib; the youngest may be gone soon
        if name.isdigit() and (process := _read(int(name))) is not None:
            found[process.pid] = process
    return found


def _read(pid: int) -> Process | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - as above
            fields = file.read().decode(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    if len(fields) < 20:
        return None
    return Process(pid, int(fields[1]), int(fields[2]), int(fields[3]), fields[0], fields[19])


def _listed_by_ps() -> dict[int, Process]:
    command = ["/bin/ps", "-A", "-o", "pid=,ppid=,pgid=,stat=,lstart="]
    lines = subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()  # noqa: S603 - constant
    found = {}
    for line in lines:
        pid, parent, group, state, born = line.split(maxsplit=4)
        found[int(pid)] = Process(int(pid), int(parent), int(group), -1, state, born)
    return found


def family(ancestor: int, group: int = -1) -> list[Process]:
    """The living processes below `ancestor`, and those in the process group `group`."""
    everything = processes()
    known = {ancestor}
    found: dict[int, Process] = {}
    grown = True
    while grown:
        more = [
            one
            for one in everything.values()
            if one.pid not in known and (one.parent in known or (one.group == group and group > 0))
        ]
        known |= {one.pid for one in more}
        found |= {one.pid: one for one in more}
        grown = bool(more)
    return [one for one in found.values() if one.alive]


def send(process: Process, number: int) -> None:
    """Signals `process`, and never another one that got its number meanwhile."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if not hasattr(os, "pidfd_open"):
            os.kill(process.pid, number)
            return
        try:
            descriptor = os.pidfd_open(process.pid)
        except ProcessLookupError:
            return
        except OSError:  # an old kernel
            os.kill(process.pid, number)
            return
        try:
            now = _read(process.pid)
            if now is not None and now.born == process.born:
                signal.pidfd_send_signal(descriptor, number)
        finally:
            os.close(descriptor)


def end_all(ancestor: int, group: int = -1, *, reap: Callable[[], bool] | None = None) -> tuple[int, int]:
    """Kills the family. How many processes were ended, and how many are still there when the time is over.

    `reap` takes leave of the caller's children and says whether there are others. It knows for sure that nothing is
    left: what forks and exits fast enough is in no list of processes.
    """
    until = monotonic() + KILL_SECONDS
    ended: set[tuple[int, str]] = set()
    while (alive := family(ancestor, group)) or (reap is not None and reap()):
        if monotonic() > until:
            return len(ended), len(alive) or 1
        ended |= {(one.pid, one.born) for one in alive}  # most of them are gone before they are listed again
        for number in {one.group for one in alive} - {os.getpgrp()}:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(number, signal.SIGKILL)  # a whole group at once cannot fork its way out
        for one in alive:
            send(one, signal.SIGSTOP)  # so that none starts another while its turn has not come
        for one in family(ancestor, group):
            send(one, signal.SIGKILL)
            ended.add((one.pid, one.born))  # or was started meanwhile
        if reap is not None:
            _hunt(reap)
        sleep(0.002)
    return len(ended), 0


def _hunt(reap: Callable[[], bool]) -> None:
    """Kills children that fork and exit in turn. Until it is reaped a child keeps its number, so none is missed."""
    for _ in range(_HUNTS):
        if not reap():
            return
        try:
            with open("/proc/thread-self/children", "rb") as file:  # noqa: PTH123 - starts faster than with pathlib
                children = file.read().split()
        except OSError:  # this system does not list them
            return
        for pid in children:
            os.kill(int(pid), signal.SIGKILL)


class Output:
    """What was written: the first and the last bytes, and how many there were."""

    def __init__(self) -> None:
        self.head = bytearray()
        self.tail = bytearray()
        self.total = 0

    def add(self, data: bytes) -> None:
        self.total += len(data)
        room = HEAD_BYTES - len(self.head)
        self.head += data[:room]
        self.tail += data[room:] if room > 0 else data
        if len(self.tail) > 4 * TAIL_BYTES:
            del self.tail[:-TAIL_BYTES]

    def finish(self) -> tuple[str, str, int]:
        """Head, tail, and the number of bytes between them."""
        del self.tail[:-TAIL_BYTES]
        cut = self.total - len(self.head) - len(self.tail)
        return self.head.decode("latin-1"), self.tail.decode("latin-1"), cut


class Supervisor:
    """Runs one command, and ends it with all that it started."""

    def __init__(self, request: dict[str, Any]) -> None:
        self._request = request
        self._parent = os.getppid()
        self._output = Output()
        self._status: int | None = None
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)
        self._wake, wake = os.pipe()
        for descriptor in (self._wake, wake):
            os.set_blocking(descriptor, False)
        for number in _IGNORED:
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        self._prctl(_SUBREAPER, 1)
        self._prctl(_DUMPABLE, 0)  # only an administrator reaches into this process, its pipes and its memory

    def run(self) -> dict[str, Any]:
        begun = monotonic()
        self._pid = self._start()
        # Where there is no subreaper, the group finds those whose parent is gone.
        group = -1 if sys.platform.startswith("linux") else self._pid
        os.close(self._writing)
        reason = self._wait(begun + self._request["seconds"], stoppable=True)
        seconds = monotonic() - begun
        if reason == "ended":
            self._wait(monotonic() + STRAGGLER_SECONDS, stoppable=False)
        else:
            self._end_group(signal.SIGTERM)
            for one in family(os.getpid(), group):
                if one.group != self._pid:
                    send(one, signal.SIGTERM)
            self._wait(monotonic() + TERM_SECONDS, stoppable=False)
            self._end_group(signal.SIGKILL)
        ended, left = end_all(os.getpid(), group, reap=self._reap)
        self._reap()
        self._drain()
        head, tail, cut = self._output.finish()
        code = None if self._status is None else os.waitstatus_to_exitcode(self._status)
        return {"reason": reason, "code": code, "seconds": seconds, "head": head, "tail": tail, "cut": cut,
                "ended": ended, "left": left}  # fmt: skip

    def _start(self) -> int:
        pid = os.fork()
        if pid:
            return pid
        try:
            os.setpgid(0, 0)  # no session of its own: only a session's leader gets a terminal by opening one
            self._prctl(_DEATH_SIGNAL, signal.SIGKILL)
            signal.set_wakeup_fd(-1)
            for number in (*_IGNORED, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_DFL)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(self._writing, 1)
            os.dup2(self._writing, 2)
            os.fchdir(self._request["root"])
            os.execve(self._request["argv"][0], self._request["argv"], self._request["environ"])  # noqa: S606 - meant
        except BaseException as error:  # noqa: BLE001 - two processes must never go on from here
            os.write(2, f"the shell could not be started: {error}\n".encode())
        finally:
            os._exit(127)

    def _end_group(self, number: int) -> None:
        """Signals the command's own group at once: of many thousands a list would take too long."""
        if self._status is None:  # else its number may be another's
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, number)

    @staticmethod
    def _prctl(option: int, value: int) -> None:
        if sys.platform.startswith("linux"):
            with contextlib.suppress(ImportError, OSError, AttributeError):
                import ctypes

                ctypes.CDLL(None).prctl(option, value, 0, 0, 0)

    def _wait(self, until: float, *, stoppable: bool) -> str:
        """Reads and reaps: until the command ended, the host wants a stop, or the time is over.

        Not `stoppable`, until nothing of the family is left or the time is over.
        """
        watched = [self._reading, self._wake, *([0] if stoppable else [])]
        while (left := until - monotonic()) > 0:
            ready, _, _ = select.select(watched, [], [], min(left, _LOOK_SECONDS if stoppable else 0.01))
            if self._reading in ready and not self._read():
                watched.remove(self._reading)
            if self._wake in ready:
                os.read(self._wake, 512)
            more = self._reap()
            if stoppable and self._status is not None:
                return "ended"
            if stoppable and (0 in ready or os.getppid() != self._parent):
                return "stopped"
            if not stoppable and not more:
                break
        return "timeout"

    def _read(self) -> bool:
        """Takes what there is; False at the end."""
        with contextlib.suppress(BlockingIOError):
            data = os.read(self._reading, 1 << 16)
            self._output.add(data)
            return bool(data)
        return True

    def _drain(self) -> None:
        """What was written before all ended. Something that got away may hold the pipe and write on: not for long."""
        until = monotonic() + STRAGGLER_SECONDS
        with contextlib.suppress(BlockingIOError):
            while monotonic() < until and (data := os.read(self._reading, 1 << 16)):
                self._output.add(data)

    def _reap(self) -> bool:
        """Takes leave of those that ended; whether there are others."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._pid:
                self._status = status


def main() -> None:
    """Serves one request."""
    line = bytearray()
    while not line.endswith(b"\n"):
        byte = os.read(0, 1 << 16)
        if not byte:
            return
        line += byte
    request = json.loads(line)
    os.set_inheritable(request["root"], False)  # noqa: FBT003 - the library's signature
    answer = Supervisor(request).run()
    with contextlib.suppress(OSError):
        sys.stdout.write(json.dumps(answer))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
