"""One fetch for everybody who waits: a thing has one maker at a time, in whatever event loops its readers are."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")


class OneFetch(Generic[T]):
    """Lets one fetch run at a time and gives its outcome to all who asked meanwhile.

    A reader that is cancelled takes nothing from the others. `keep` gets what was fetched, before any reader does.
    """

    def __init__(self, keep: Callable[[T], None]) -> None:
        self._keep = keep
        self._lock = threading.Lock()
        self._running: Future[T] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, fetch: Callable[[], Awaitable[T]]) -> Future[T]:
        """The fetch that runs already, else this one. It ends with the running event loop."""
        with self._lock:
            if self._running is None:
                future = self._running = Future[T]()
                future.set_running_or_notify_cancel()  # from here on no reader can cancel it
                task = asyncio.get_running_loop().create_task(self._work(fetch, future))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            return self._running

    async def outcome(self, fetch: Callable[[], Awaitable[T]], seconds: float) -> T:
        """What the fetch brings, or raises; `TimeoutError` when it takes longer, and the next one begins anew."""
        future = self.begin(fetch)
        try:
            async with asyncio.timeout(seconds) as limit:
                return await asyncio.wrap_future(future)
        finally:
            if limit.expired():
                self._forget(future)

    async def _work(self, fetch: Callable[[], Awaitable[T]], future: Future[T]) -> None:
        try:
            value = await fetch()
            self._keep(value)
        except Exception as error:  # noqa: BLE001 - it is carried to the readers
            self._forget(future)
            future.set_exception(error)
        except BaseException:
            self._forget(future)
            future.set_exception(ConnectionError("the fetch was cancelled"))
            raise
        else:
            self._forget(future)
            future.set_result(value)

    def _forget(self, future: Future[T]) -> None:
        with self._lock:
            if self._running is future:
                self._running = None
