"""The private event loop on which synchronous callers' runs go on: one thread for the process."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextvars
import os
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from treadle.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None

STOP_SECONDS = 2.0


def run_sync(coroutine: Coroutine[Any, Any, T], advice: str) -> T:
    """Runs `coroutine` on the private loop and waits. Interrupting the wait cancels it and waits for its end.

    Raises `ConfigError` with `advice` where an event loop is running in this thread.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        coroutine.close()
        raise ConfigError(f"an event loop is running here, and waiting would block it: {advice}")
    try:
        loop, context = _private_loop(), contextvars.copy_context()
    except BaseException:
        coroutine.close()
        raise
    waiting: concurrent.futures.Future[T] = concurrent.futures.Future()
    tasks: list[asyncio.Task[T]] = []

    def start() -> None:
        tasks.append(loop.create_task(coroutine, context=context))
        tasks[0].add_done_callback(lambda task: _hand_over(task, waiting))

    try:
        loop.call_soon_threadsafe(start)  # inside: an interrupt may come before the next line
        return waiting.result()
    except concurrent.futures.CancelledError:
        raise asyncio.CancelledError from None
    except BaseException:
        if not waiting.done():
            loop.call_soon_threadsafe(_cancel, tasks, coroutine, waiting)
            concurrent.futures.wait([waiting])
        raise


def _cancel(
    tasks: list[asyncio.Task[T]], coroutine: Coroutine[Any, Any, T], waiting: concurrent.futures.Future[T]
) -> None:
    """On the loop's own thread, where the task was made by now unless the interrupt came before it was asked for."""
    if tasks:
        tasks[0].cancel()
    else:
        coroutine.close()
        waiting.cancel()
        waiting.set_running_or_notify_cancel()


def _hand_over(task: asyncio.Task[T], waiting: concurrent.futures.Future[T]) -> None:
    if task.cancelled():
        waiting.cancel()
        waiting.set_running_or_notify_cancel()
    elif (error := task.exception()) is not None:
        waiting.set_exception(error)
    else:
        waiting.set_result(task.result())


def _private_loop() -> asyncio.AbstractEventLoop:
    global _loop  # noqa: PLW0603 - the one loop of the process
    with _lock:
        if _loop is None or _loop.is_closed():
            loop = asyncio.new_event_loop()
            thread = threading.Thread(target=_serve, args=(loop,), name="treadle-run-sync", daemon=True)
            try:
                thread.start()
            except BaseException:
                loop.close()
                raise
            atexit.register(_stop, loop, thread)
            if _loop is None and hasattr(os, "register_at_fork"):
                os.register_at_fork(after_in_child=_forget)
            _loop = loop
        return _loop


def _forget() -> None:
    """In a forked child: the loop is there, its thread is not."""
    global _loop, _lock
    _loop, _lock = None, threading.Lock()


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        while True:
            try:
                loop.run_forever()
            except (KeyboardInterrupt, SystemExit):  # out of one run, whose caller gets it; the others go on
                continue
            break
    finally:
        for task in (tasks := asyncio.all_tasks(loop)):
            task.cancel()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def _stop(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(loop.stop)
        thread.join(STOP_SECONDS)
