"""Synchronous tools, each in a daemon thread of its own.

`asyncio.to_thread` has a small pool, and the interpreter waits for it on its way out: one tool that blocks for ever
would keep `asyncio.run` and Ctrl-C waiting. A new thread costs 50 to 100 microseconds more than a pooled one.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from treadle.errors import ToolError, text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")


async def run_in_thread(function: Callable[[], T]) -> T:
    """The value of `function()`, run in a new daemon thread with the caller's context variables.

    What it raises comes out here as an ordinary exception, `KeyboardInterrupt` as itself. A cancelled caller abandons
    the thread: it runs on, and its outcome is thrown away.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def settle(value: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(value)  # type: ignore[arg-type]
        else:
            future.set_exception(error)

    def work() -> None:
        value, error = None, None
        try:
            value = context.run(function)
        except BaseException as raised:  # noqa: BLE001 - it is carried to the caller
            error = ordinary(raised)
        with contextlib.suppress(RuntimeError):  # the loop closed meanwhile: nobody waits any more
            loop.call_soon_threadsafe(settle, value, error)

    threading.Thread(target=work, name="treadle-tool", daemon=True).start()
    try:
        return await future
    finally:
        future.cancel()


async def to_its_end(work: Coroutine[Any, Any, T]) -> tuple[asyncio.Task[T], asyncio.CancelledError | None]:
    """Waits until `work` is done, also where the waiting is cancelled meanwhile: that is returned, to be raised."""
    task, cancelled = asyncio.create_task(work), None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            cancelled = error
    return task, cancelled


def ordinary(error: BaseException) -> BaseException:
    """`error`, or an exception that stands for it where raising it would end a loop, a generator or a task.

    A future refuses `StopIteration`; `SystemExit`, `GeneratorExit` and `CancelledError` mean something else to
    asyncio than to the function that raised them.
    """
    if isinstance(error, StopIteration):
        substitute: Exception = RuntimeError("the function raised StopIteration")
    elif isinstance(error, Exception | KeyboardInterrupt):
        return error
    else:
        substitute = ToolError(f"the function raised {type(error).__name__}: {text_of(error)}")
    substitute.__cause__ = error
    return substitute
