"""One thing per event loop, such as a pool of connections, that closes with its loop."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
import weakref
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

T = TypeVar("T")

# What each loop has: by its `PerLoop`, the thing itself and the generator that holds it.
_held: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[PerLoop[Any], tuple[Any, AsyncGenerator[Any, None]]]]
_held = weakref.WeakKeyDictionary()
_lock = threading.Lock()


class PerLoop(Generic[T]):
    """What `make()` gives, once for each event loop, closed by `close(it)` when the loop ends.

    `asyncio.run` and `asyncio.Runner` finish a loop's asynchronous generators before they close it; each thing is held
    by such a generator. A loop of asyncio's own that is closed by hand closes it first, too.
    """

    def __init__(self, make: Callable[[], T], close: Callable[[T], Awaitable[object]]) -> None:
        self._make, self._close = make, close

    @property
    def loops(self) -> list[asyncio.AbstractEventLoop]:
        """The loops that have one."""
        return [loop for loop, held in list(_held.items()) if self in held]

    async def get(self) -> T:
        """The one of the running loop, made when first asked for."""
        loop = asyncio.get_running_loop()
        found: tuple[T, Any] | None = _held.get(loop, {}).get(self)
        if found is not None:
            return found[0]
        keeper = self._keep(loop)
        made = await anext(keeper)
        with _lock:
            for other in [other for other in _held if other.is_closed()]:
                del _held[other]
            if loop not in _held:
                _held[loop] = {}
                _close_things_first(loop)
            _held[loop][self] = made, keeper
        return made

    async def close(self) -> None:
        """Closes the one of the running loop, if there is one. The next `get` makes another."""
        found = _held.get(asyncio.get_running_loop(), {}).get(self)
        if found is not None:
            await found[1].aclose()

    async def _keep(self, loop: asyncio.AbstractEventLoop) -> AsyncGenerator[T, None]:
        made = self._make()
        try:
            yield made
        finally:
            with _lock:
                held = _held.get(loop, {})
                held.pop(self, None)
                if not held:
                    _held.pop(loop, None)
            await self._close(made)


def _close_things_first(loop: asyncio.AbstractEventLoop) -> None:
    with contextlib.suppress(AttributeError):  # loops of other makers may not be touched
        loop.close = functools.partial(_close, weakref.ref(loop), type(loop).close)  # type: ignore[method-assign]


def _close(found: weakref.ref[asyncio.AbstractEventLoop], close: Callable[[asyncio.AbstractEventLoop], None]) -> None:
    loop = found()
    if loop is None:
        return
    if not (loop.is_closed() or loop.is_running()):
        for _, keeper in list(_held.get(loop, {}).values()):
            loop.run_until_complete(keeper.aclose())
    close(loop)
