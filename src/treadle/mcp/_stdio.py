"""A server as a child process: messages over its standard streams, one JSON text on a line.

The SDK's own transport has no bound on a line, tells no exit code, and logs a traceback for each line of noise.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
from collections import deque
from typing import TYPE_CHECKING, Any, cast

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from treadle._arguments import decode_leniently
from treadle.mcp._spec import MAX_MESSAGE_BYTES, log, printable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from treadle.mcp._spec import Command, Life

SAFE_VARIABLES = (
    "HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER",
    "APPDATA", "COMSPEC", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATHEXT", "PROCESSOR_ARCHITECTURE",
    "PROGRAMFILES", "SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP", "USERNAME", "USERPROFILE",
)  # fmt: skip
_BACKLOG_BYTES = 4 * 1024 * 1024  # read ahead of the session
_KILLED_SECONDS = 0.5  # until the system tells of the end of a killed process
_OUTGOING = 1_000  # messages that wait for a server that does not read; a cancellation must not wait
_DRAIN_SECONDS = 0.5
_POLL_SECONDS = 0.01
_NOISE_SHOWN = 3


@contextlib.asynccontextmanager
async def stdio(command: Command, life: Life) -> AsyncIterator[tuple[Any, Any]]:
    """The streams of a new child process, which is gone with all its children when the context is left."""
    child = await _start(command, life)
    try:
        incoming, read_stream = anyio.create_memory_object_stream[Any](0)
        write_stream, outgoing = anyio.create_memory_object_stream[Any](_OUTGOING)
        async with incoming, read_stream, write_stream, outgoing, anyio.create_task_group() as pumps:
            pumps.start_soon(_receive, child, incoming, life)
            pumps.start_soon(_send, child, outgoing)
            try:
                yield read_stream, write_stream
            finally:
                pumps.cancel_scope.cancel()
    finally:
        await child.stop(life.timeouts.close)


async def _start(command: Command, life: Life) -> Child:
    env = {name: os.environ[name] for name in SAFE_VARIABLES if name in os.environ} | dict(command.env)
    program = command.command
    if sys.platform == "win32":
        program = shutil.which(program, path=env.get("PATH")) or program
    child = Child(life)
    try:
        await asyncio.get_running_loop().subprocess_exec(
            lambda: child, program, *command.args, env=env, cwd=command.cwd, start_new_session=True
        )
    except FileNotFoundError as error:
        missing = "working directory" if command.cwd and not os.path.isdir(command.cwd) else "command"  # noqa: ASYNC240, PTH112
        raise life.error(f"the {missing} {error.filename!r} does not exist") from error
    except (OSError, ValueError) as error:
        raise life.error(f"{command.command!r} cannot be started: {error}") from error
    return child


async def _receive(child: Child, incoming: Any, life: Life) -> None:
    noise = 0
    async with incoming:
        while (line := await child.next_line()) is not None:
            if not line.strip():
                continue
            try:
                message = _message(line)
            except (ValueError, RecursionError):
                noise += 1
                if noise <= _NOISE_SHOWN:
                    more = "; further such lines are skipped silently" if noise == _NOISE_SHOWN else ""
                    shown = printable(line[:200].decode(errors="replace"))
                    log.warning("MCP server %s: skipped a line that is no message: %s%s", life.name, shown, more)
                continue
            try:
                await incoming.send(SessionMessage(message))
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                break
        life.end(await child.epitaph())


def _message(line: bytes) -> Any:
    """What a server wrote. Deep nesting and lone surrogates are JSON as well: one of them must not cost an answer."""
    try:
        return jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        found = decode_leniently(line.decode(errors="replace"))
        return jsonrpc_message_adapter.validate_python(found, by_name=False)


async def _send(child: Child, outgoing: Any) -> None:
    async with outgoing:
        async for item in outgoing:
            await child.send(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")


class Child(asyncio.SubprocessProtocol):
    """The process. It leads a process group of its own, so that its children can be ended with it."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._lines: deque[bytes] = deque()
        self._partial = bytearray()
        self._backlog = 0
        self._paused = False
        self._fault: str | None = None
        self._ended = False  # no further line will come
        self._news = asyncio.Event()
        self._exited = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.SubprocessTransport", transport)
        self._pid = self._transport.get_pid()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            self._life.tail.add(data)
        elif not self._ended:
            first, *others = data.split(b"\n")
            self._add(first)
            for piece in others:
                self._lines.append(bytes(self._partial))
                self._partial.clear()
                self._add(piece)
            self._pause_if_far_ahead()
            self._news.set()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        if fd == 1:
            self._end()
        elif fd == 0:
            self._writable.set()

    def process_exited(self) -> None:
        self._exited.set()
        # A child of its own may hold the pipe open for ever.
        asyncio.get_running_loop().call_later(_DRAIN_SECONDS, self._end)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # Messages

    async def next_line(self) -> bytes | None:
        """The next line; None at the end."""
        while not self._lines:
            if self._ended:
                return None
            self._news.clear()
            await self._news.wait()
        line = self._lines.popleft()
        self._backlog -= len(line)
        if self._paused and self._backlog < _BACKLOG_BYTES // 2:
            self._resume()
        return line

    async def send(self, data: bytes) -> None:
        stdin = cast("asyncio.WriteTransport", self._transport.get_pipe_transport(0))
        if not stdin.is_closing():
            stdin.write(data)
            await self._writable.wait()

    async def epitaph(self) -> str:
        """Why no further line will come."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN_SECONDS):
                await self._exited.wait()
        code = self._transport.get_returncode()
        if self._fault is not None:
            return self._fault
        if code is None:
            return "it closed its standard output"
        return f"it was ended by signal {-code}" if code < 0 else f"it ended with exit code {code}"

    def _add(self, piece: bytes) -> None:
        self._partial += piece
        self._backlog += len(piece)
        if len(self._partial) > MAX_MESSAGE_BYTES:
            self._fault = f"it wrote a message of more than {MAX_MESSAGE_BYTES // 1024**2} MiB"
            self._end()

    def _end(self) -> None:
        self._ended = True
        self._partial.clear()
        self._news.set()

    def _pause_if_far_ahead(self) -> None:
        pipe = self._transport.get_pipe_transport(1)
        if self._lines and self._backlog > _BACKLOG_BYTES and not self._paused and pipe is not None:
            self._paused = True
            cast("asyncio.ReadTransport", pipe).pause_reading()

    def _resume(self) -> None:
        self._paused = False
        if (pipe := self._transport.get_pipe_transport(1)) is not None and not pipe.is_closing():
            cast("asyncio.ReadTransport", pipe).resume_reading()

    # The end

    async def stop(self, seconds: float) -> None:
        """Closes its standard input, waits, terminates, waits, kills: at most `seconds` in all, and a moment more."""
        self._end()
        self._lines.clear()
        if self._paused:
            self._resume()
        try:
            if (stdin := self._transport.get_pipe_transport(0)) is not None:
                stdin.close()
            if await self._gone(seconds / 2, self._exited.is_set):
                self._signal(signal.SIGTERM)
            else:
                log.debug("MCP server %s goes on after its input was closed and is terminated", self._life.name)
                self._signal(signal.SIGTERM)
            await self._gone(seconds / 2, self._is_empty)
        finally:
            self._signal(getattr(signal, "SIGKILL", signal.SIGTERM))
            try:  # its end is waited for: an event loop that closes before would leave it behind as a zombie
                await self._gone(_KILLED_SECONDS, self._exited.is_set)
            finally:
                with contextlib.suppress(PermissionError):  # it changed its user
                    self._transport.close()

    async def _gone(self, seconds: float, gone: Any) -> bool:
        end = asyncio.get_running_loop().time() + seconds
        while not gone():
            if asyncio.get_running_loop().time() >= end:
                return False
            await asyncio.sleep(_POLL_SECONDS)
        return True

    def _is_empty(self) -> bool:
        """Whether nobody of the process group is left."""
        if not hasattr(os, "killpg"):
            return self._exited.is_set()
        try:
            os.killpg(self._pid, 0)
        except ProcessLookupError:
            return self._exited.is_set()
        except PermissionError:
            pass
        return False

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if hasattr(os, "killpg"):
                os.killpg(self._pid, number)
            elif not self._exited.is_set():
                self._transport.send_signal(number)
