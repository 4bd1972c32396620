"""Programs of the host's: their output is bounded, and none is left when nobody waits for it any more."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from support.loopback import BOUND
from treadle.toolkit._processes import run_program


def python(code: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", code]


async def gone(pid: int) -> None:
    async with asyncio.timeout(BOUND):
        while True:
            try:
                os.kill(pid, 0)
                if Path(f"/proc/{pid}/stat").exists() and ") Z " in Path(f"/proc/{pid}/stat").read_text():
                    return  # an orphan that its new parent has not looked after yet
            except ProcessLookupError:
                return
            await asyncio.sleep(0.01)


async def test_input_goes_in_and_both_outputs_and_the_code_come_out():
    code = "import sys; print(sys.stdin.read()[::-1]); print('bad', file=sys.stderr); sys.exit(3)"
    ended = await run_program(python(code), data=b"abc", max_bytes=100)
    assert (ended.code, ended.out, ended.err, ended.cut) == (3, b"cba\n", b"bad\n", False)


async def test_much_output_is_read_to_its_end_and_cut():
    code = "import sys; [sys.stdout.write('x' * 65536) for _ in range(200)]; print('end', file=sys.stderr)"
    ended = await run_program(python(code), max_bytes=1000)
    assert (ended.code, ended.out, ended.err, ended.cut) == (0, b"x" * 1000, b"end\n", True)


async def test_a_program_that_reads_nothing_may_be_given_much():
    assert (await run_program(python("pass"), data=b"x" * 10_000_000, max_bytes=10)).code == 0


async def test_an_environment_may_be_none_at_all(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SECRET", "yes")
    code = "import os; print(os.environ.get('SECRET'))"
    assert (await run_program(python(code), max_bytes=10)).out == b"yes\n"
    assert (await run_program(python(code), max_bytes=10, environment={})).out == b"None\n"


async def test_a_program_that_is_not_there_raises():
    with pytest.raises(OSError):
        await run_program(["/no/such/program"], max_bytes=10)


async def test_a_cancel_ends_the_program_and_what_it_started(tmp_path: Path):
    ready = tmp_path / "ready"
    os.mkfifo(ready)
    code = f"""
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = os.fork()
if child:
    with open({str(ready)!r}, "w") as file:
        file.write(f"{{os.getpid()}} {{child}}")
signal.pause()
"""
    task = asyncio.create_task(run_program(python(code), max_bytes=10))
    async with asyncio.timeout(BOUND):
        pids = [int(pid) for pid in (await asyncio.to_thread(ready.read_text)).split()]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    for pid in pids:
        await gone(pid)


async def test_something_left_running_that_holds_the_output_is_not_waited_for():
    code = "import os, signal\nif pid := os.fork(): print(pid)\nelse: signal.pause()"
    async with asyncio.timeout(BOUND):
        ended = await run_program(python(code), max_bytes=10)
    os.kill(int(ended.out), 9)
    assert ended.code == 0
