"""Running a shell command under a supervisor, from the host's side."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import msgspec

from treadle._results import ToolOutput
from treadle.errors import ToolError
from treadle.toolkit import _supervisor
from treadle.toolkit._processes import Program, find_program

if TYPE_CHECKING:
    from collections.abc import Mapping

    from treadle.toolkit.root import Root

MAX_COMMAND = 100_000
_PASSED = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")
# Nobody is there to answer: what would ask fails, a pager prints, and an editor that was not named says no.
_FIXED = {
    "TERM": "dumb",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "EDITOR": "false",
    "VISUAL": "false",
    "GIT_EDITOR": "false",
    "GIT_SEQUENCE_EDITOR": "false",
    "GIT_TERMINAL_PROMPT": "0",
}
_MARK = "TREADLE_COMMAND"
_STOP_SECONDS = 4.0  # for the supervisor to end all, before its work is done from here
_LATE_SECONDS = _supervisor.TERM_SECONDS + _supervisor.KILL_SECONDS + 1.0  # for its answer after the command's time

_MAX_ANSWER = 8 * (_supervisor.HEAD_BYTES + _supervisor.TAIL_BYTES)  # a byte is at most six characters of JSON


class _Answer(msgspec.Struct, frozen=True):
    """What the supervisor says. The output stands in it a byte a character."""

    reason: str
    code: int | None
    seconds: float
    head: str
    tail: str
    cut: int
    ended: int
    left: int


def environment(added: Mapping[str, str]) -> dict[str, str]:
    """What a command gets: a few variables of this process that hold no secrets, and what the host adds."""
    passed = {name: os.environ[name] for name in _PASSED if name in os.environ}
    return {"PATH": os.defpath, **passed, **_FIXED, **added}


def shell() -> str:
    """The shell that runs commands."""
    return find_program("bash") or "/bin/sh"


async def run(root: Root, command: str, seconds: float, added: Mapping[str, str]) -> ToolOutput:
    """Runs `command` in the root and tells how it went. Whatever it started has ended when this returns or raises."""
    if "\0" in command or not command.strip() or len(command) > MAX_COMMAND:
        raise ToolError(f"a command has 1 to {MAX_COMMAND} characters and no NUL among them")
    try:
        command.encode()
    except UnicodeEncodeError:
        raise ToolError("the command has half a surrogate pair in it, which is no character") from None
    mark = os.urandom(16).hex()
    request = {
        "argv": [shell(), "-c", command],
        "environ": environment(added) | {_MARK: mark},
        "seconds": seconds,
        "root": root.fileno(),
    }
    transport, supervisor = await asyncio.get_running_loop().subprocess_exec(
        lambda: Program(_MAX_ANSWER),
        *(sys.executable, "-I", "-S", "-X", "utf8", _supervisor.__file__),
        stderr=asyncio.subprocess.DEVNULL,
        pass_fds=(root.fileno(),),
        start_new_session=True,
        env={},
    )
    pipe, patience = transport.get_pipe_transport(0), _STOP_SECONDS
    assert isinstance(pipe, asyncio.WriteTransport)
    try:
        pipe.write(json.dumps(request).encode() + b"\n")
        async with asyncio.timeout(seconds + _LATE_SECONDS):
            await supervisor.ended()
    except TimeoutError:
        patience = 0.0  # the supervisor was stopped by what it supervises
    finally:
        pipe.close()
        await _to_its_end(asyncio.ensure_future(_stop(transport, supervisor, mark, patience)))
    try:
        answer = msgspec.json.decode(supervisor.out[1], type=_Answer)
    except msgspec.DecodeError:  # the command may also have written where its supervisor writes
        raise ToolError("the command ended or disturbed its own supervisor and was ended; its output is lost") from None
    return _told(answer, seconds)


async def _to_its_end(stopping: asyncio.Future[None]) -> None:
    """Waits for what must not be left half done, also where the caller is cancelled once more."""
    cancelled: asyncio.CancelledError | None = None
    while not stopping.done():
        try:
            await asyncio.shield(stopping)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    stopping.result()


async def _stop(transport: asyncio.SubprocessTransport, supervisor: Program, mark: str, patience: float) -> None:
    """Waits for the supervisor to end everything, which was told to; does its work if it cannot."""
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await supervisor.exited.wait()
        code = transport.get_returncode()
        if code != 0:
            await asyncio.to_thread(_rescue, transport.get_pid(), mark, gone=code is not None)
            with contextlib.suppress(ProcessLookupError):
                transport.kill()
            await supervisor.exited.wait()
    finally:
        transport.close()


def _rescue(supervisor: int, mark: str, *, gone: bool) -> None:
    """Ends what is below a supervisor that does not answer, or was left by one that is gone."""
    if not gone:
        _supervisor.end_all(supervisor)
    until = monotonic() + _supervisor.KILL_SECONDS
    while monotonic() < until and (left := _left_by(supervisor, mark)):
        for one in left:
            _supervisor.send(one, signal.SIGSTOP)
        for one in left:
            if monotonic() < until:
                _supervisor.end_all(one.pid)
            _supervisor.send(one, signal.SIGKILL)


def _left_by(supervisor: int, mark: str) -> list[_supervisor.Process]:
    """The living processes with the command's mark in their environment, or of the session that has lost its leader."""
    everything = _supervisor.processes()
    session = -2 if supervisor in everything else supervisor
    return [one for one in everything.values() if one.alive and (one.session == session or _has_mark(one.pid, mark))]


def _has_mark(pid: int, mark: str) -> bool:
    try:
        return f"{_MARK}={mark}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def _told(answer: _Answer, seconds: float) -> ToolOutput:
    """The result that a model reads: the output, and in brackets how the command ended."""
    head, tail = (piece.encode("latin-1", "replace") for piece in (answer.head, answer.tail))
    if answer.cut:
        output = f"{head.decode(errors='ignore')}\n[... {answer.cut} bytes cut ...]\n{tail.decode(errors='ignore')}"
    else:
        output = (head + tail).decode(errors="replace")
    code = answer.code
    if answer.reason == "timeout":
        end = f"stopped: it had not ended after {seconds:g} s, and everything it started was ended"
    elif code is not None and code < 0:
        end = f"ended by signal {_signal_name(-code)} after {answer.seconds:.1f} s"
    else:
        end = f"exit code {code} after {answer.seconds:.1f} s"
    notes = [end]
    if answer.ended and answer.reason == "ended":
        notes.append(f"processes it left running were ended: {answer.ended}")
    if answer.left:
        notes.append(f"processes that could not be ended: {answer.left}")
    output = output or "(no output)"
    text = f"{output.removesuffix(chr(10))}\n[{'; '.join(notes)}]"
    return ToolOutput(text, is_error=answer.reason == "timeout")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)
