"""Runs one program of the host's to its end: no shell, no terminal, bounded output, and nothing left when cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

GRACE_SECONDS = 1.0  # how long output is awaited from what the program left running


def find_program(name: str) -> str | None:
    """Where a program is. Relative folders of `PATH` are left out: an agent that writes files could put one there."""
    folders = [folder for folder in os.get_exec_path() if Path(folder).is_absolute()]
    return shutil.which(name, path=os.pathsep.join(folders)) if folders else None


class Outcome(msgspec.Struct, frozen=True):
    """How a program ended. `out` and `err` are at most as long as was asked for; `cut` says that there was more."""

    code: int
    out: bytes
    err: bytes
    cut: bool


async def run_program(
    argv: Sequence[str], *, data: bytes = b"", max_bytes: int, environment: Mapping[str, str] | None = None
) -> Outcome:
    """Starts `argv` with `data` as its input and waits for its end. Raises `OSError` where it cannot be started.

    A cancelled caller ends the program and what it started, unless that left the program's process group.
    """
    loop = asyncio.get_running_loop()
    transport, program = await loop.subprocess_exec(
        lambda: Program(max_bytes), *argv, env=environment, start_new_session=True
    )
    try:
        _feed(transport, data)
        await program.ended()
        code = transport.get_returncode()
        return Outcome(-1 if code is None else code, bytes(program.out[1]), bytes(program.out[2]), program.cut)
    finally:
        try:
            if not program.exited.is_set():
                _kill(transport)
                await program.exited.wait()
        finally:
            transport.close()


def _feed(transport: asyncio.SubprocessTransport, data: bytes) -> None:
    pipe = transport.get_pipe_transport(0)
    assert isinstance(pipe, asyncio.WriteTransport)
    with contextlib.suppress(OSError):  # it does not want to read
        pipe.write(data)
        pipe.close()


def _kill(transport: asyncio.SubprocessTransport) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(transport.get_pid(), signal.SIGKILL)
        else:
            transport.kill()


class Program(asyncio.SubprocessProtocol):
    """Keeps the beginning of what a program writes, and reads on to its end."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.out = {1: bytearray(), 2: bytearray()}
        self.cut = False
        self.exited = asyncio.Event()
        self.closed = asyncio.Event()

    async def ended(self) -> None:
        """Waits for the end of the program and of its output."""
        await self.exited.wait()
        with contextlib.suppress(TimeoutError):  # something that it left behind may hold the pipes for ever
            await asyncio.wait_for(self.closed.wait(), GRACE_SECONDS)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        kept = self.out[fd]
        room = self._max_bytes - len(kept)
        self.cut = self.cut or len(data) > room
        kept += data[:room]

    def process_exited(self) -> None:
        self.exited.set()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - as its seam has it
        self.closed.set()
