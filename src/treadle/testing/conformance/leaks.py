"""What a model left behind: tasks, errors that nobody saw, connections and generators that nobody closed."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from treadle.testing.conformance.server import Server


def note_lost(lost: list[str], *, generators: bool) -> None:
    """Notes what the running loop is told of: errors that nobody saw, and generators that nobody closed."""
    loop, finalizer = asyncio.get_running_loop(), sys.get_asyncgen_hooks().finalizer
    loop.set_exception_handler(lambda _, context: lost.append(f"{context.get('exception') or context['message']}"))
    if not generators:
        return

    def note(generator: Any) -> None:
        lost.append(f"an async generator that nobody closed: {generator.__qualname__}")
        if finalizer is not None:
            finalizer(generator)

    sys.set_asyncgen_hooks(finalizer=note)


async def assert_no_tasks(server: Server) -> None:
    """Raises where tasks are left that are not the server's."""
    await server.settle()
    mine = {asyncio.current_task(), *server.tasks}
    left = [task for task in asyncio.all_tasks() if task not in mine]
    assert not left, f"the model left a task behind: {left}"


@contextlib.contextmanager
def watched() -> Iterator[list[str]]:
    """Collects what objects complain of when they are thrown away: sockets never closed, errors never seen.

    What was there before is left out of the garbage collection, which makes that cheap.
    """
    lost: list[str] = []
    hook = sys.unraisablehook
    gc.freeze()
    sys.unraisablehook = lambda raised: lost.append(f"{raised.exc_value or raised.err_msg}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", ResourceWarning)
            yield lost
            gc.collect()
    finally:
        sys.unraisablehook = hook
        gc.unfreeze()
