"""Synchronous functions in threads of their own."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import subprocess
import sys
import threading
from typing import Any

import pytest

from treadle._threads import run_in_thread


async def test_the_value_comes_back():
    assert await run_in_thread(lambda: 5) == 5


async def test_the_context_is_a_copy():
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable")
    variable.set(1)
    assert await run_in_thread(lambda: (variable.get(), variable.set(2))) and variable.get() == 1


async def test_a_thousand_blocking_calls_run_at_the_same_time():
    barrier = threading.Barrier(1_000)
    found = await asyncio.wait_for(asyncio.gather(*[run_in_thread(lambda: barrier.wait(60)) for _ in range(1_000)]), 60)
    assert sorted(found) == list(range(1_000))


async def test_a_cancelled_caller_abandons_its_thread_without_a_word(caplog: pytest.LogCaptureFixture):
    started, release, ended = threading.Event(), threading.Event(), threading.Event()

    def block() -> None:
        started.set()
        release.wait(10)
        ended.set()
        raise ValueError("too late")

    task = asyncio.create_task(run_in_thread(block))
    await asyncio.to_thread(started.wait, 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 5)
    assert not ended.is_set()
    release.set()
    await asyncio.to_thread(ended.wait, 10)
    await asyncio.sleep(0)
    gc.collect()
    assert caplog.text == ""


async def test_a_coroutine_that_is_closed_leaves_no_unread_error(caplog: pytest.LogCaptureFixture):
    release = threading.Event()
    threads = set(threading.enumerate())

    def block() -> None:
        release.wait(10)
        raise ValueError("nobody reads this")

    coroutine = run_in_thread(block)
    coroutine.send(None)
    coroutine.close()
    release.set()
    for thread in set(threading.enumerate()) - threads:
        await asyncio.to_thread(thread.join, 10)
    await asyncio.sleep(0)
    gc.collect()
    assert caplog.text == ""


async def test_keyboard_interrupt_comes_out_as_itself():
    def interrupt() -> None:
        raise KeyboardInterrupt

    coroutine = run_in_thread(interrupt)
    future: Any = coroutine.send(None)
    settled = asyncio.Event()
    future.add_done_callback(lambda _: settled.set())
    await asyncio.wait_for(settled.wait(), 10)
    with pytest.raises(KeyboardInterrupt):
        coroutine.send(None)


PROGRAM = """
import asyncio, sys, threading
from treadle._threads import run_in_thread

release = threading.Event()
ended = threading.Event()

def block():
    release.wait()
    ended.set()
    raise ValueError("after the loop")

async def main():
    task = asyncio.create_task(run_in_thread(block))
    await asyncio.wait([task], timeout=0.05)
    task.cancel()
    await asyncio.wait([task])
    print("abandoned", task.cancelled())

asyncio.run(main())
{after}
"""


def run(after: str) -> subprocess.CompletedProcess[str]:
    program = PROGRAM.format(after=after)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)


def test_a_thread_that_never_ends_holds_up_neither_the_loop_nor_the_interpreter():
    done = run(after="")
    assert done.stderr == ""
    assert (done.returncode, done.stdout) == (0, "abandoned True\n")


def test_a_thread_that_ends_after_its_loop_closed_prints_nothing():
    after = "release.set(); ended.wait(10); [t.join(10) for t in threading.enumerate() if t.name == 'treadle-tool']"
    done = run(after=after)
    assert done.stderr == ""
    assert (done.returncode, done.stdout) == (0, "abandoned True\n")
