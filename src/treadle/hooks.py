"""Hooks: functions that are told of every local tool call before it is approved, and after it ran.

`before_tool` hooks get the `ToolRequest` and return None, `Allow()` or `Deny(reason)`. A denial is final, whatever the
approval would say; so is a crash, a timeout, or any other answer. `after_tool` hooks get the request and the
`ToolOutput`; text that they return is put behind what the model reads. Both may be sync or async.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from treadle.approval import Allow, Deny
from treadle.errors import ConfigError
from treadle.messages import encodable

if TYPE_CHECKING:
    from treadle.tools import ToolOutput
    from treadle.wraps import ToolRequest

_log = logging.getLogger("treadle")

MAX_INJECTED_BYTES = 10_000
"""How much all `after_tool` hooks together may add to what the model reads of one result."""

Hook: TypeAlias = Callable[..., Any]
POINTS = ("before_tool", "after_tool")


class Hooks:
    """The hooks of an agent. Raises `ConfigError` for a point that there is not."""

    def __init__(self, given: Mapping[str, Sequence[Hook]]) -> None:
        if not isinstance(given, Mapping):
            raise ConfigError(f"hooks are {{'before_tool': [...], 'after_tool': [...]}}, not {given!r:.80}")
        if unknown := [point for point in given if point not in POINTS]:
            raise ConfigError(f"there are no hooks {unknown[0]!r}: use {' or '.join(POINTS)}")
        found = {point: _listed(point, given.get(point, ())) for point in POINTS}
        self.before: tuple[Hook, ...] = found["before_tool"]
        self.after: tuple[Hook, ...] = found["after_tool"]

    async def denial(self, request: ToolRequest) -> str | None:
        """Why a hook denies the call; None where none does."""
        for hook in self.before:
            try:
                verdict = await _call(hook, request)
            except Exception:  # noqa: BLE001 - what cannot say yes says no
                _log.exception("the hook %s failed before %s; the call is denied", _name(hook), request.name)
                return "A check before the call failed."
            if isinstance(verdict, Deny):
                return verdict.reason
            if not (verdict is None or isinstance(verdict, Allow)):
                _log.error("the hook %s gave %.80r, neither None nor Allow nor Deny", _name(hook), verdict)
                return "A check before the call gave no decision."
        return None

    async def addition(self, request: ToolRequest, output: ToolOutput) -> str:
        """What the hooks add to a result. One that fails adds nothing."""
        texts: list[str] = []
        for hook in self.after:
            try:
                text = await _call(hook, request, output)
            except KeyboardInterrupt:
                raise
            except BaseException:
                if _is_cancelled():
                    raise
                _log.exception("the hook %s failed after %s; the result stays as it is", _name(hook), request.name)
                continue
            if isinstance(text, str) and text:
                texts.append(text)
            elif text is not None and text != "":
                _log.error("the hook %s gave %.80r, which is no text", _name(hook), text)
        return encodable("\n".join(texts)).encode()[:MAX_INJECTED_BYTES].decode(errors="ignore")


def _listed(point: str, given: Any) -> tuple[Hook, ...]:
    hooks = (given,) if callable(given) else tuple(given)
    if bad := [hook for hook in hooks if not callable(hook)]:
        raise ConfigError(f"{bad[0]!r:.80} in hooks[{point!r}] is no hook: give a function")
    return hooks


def _is_cancelled() -> bool:
    """Whether the call is cancelled, and not only something that a hook waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def with_timeout(hook: Hook, seconds: float) -> Hook:
    """`hook` with a time limit: it fails after `seconds`, which denies the call where it stands before one.

    Only a hook that awaits can be stopped.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
        raise ConfigError(f"with_timeout takes seconds above 0, and got {seconds!r}")

    @functools.wraps(hook)
    async def limited(*args: Any) -> Any:
        async with asyncio.timeout(seconds):
            return await _call(hook, *args)

    return limited


def detached(hook: Hook) -> Hook:
    """`hook` on its own: nothing waits for it, and it can neither deny nor add. What it raises is logged."""
    running: set[asyncio.Task[Any]] = set()  # the event loop itself holds tasks weakly

    @functools.wraps(hook)
    def start(*args: Any) -> None:
        task = asyncio.ensure_future(_call(hook, *args))
        running.add(task)
        task.add_done_callback(ended)

    def ended(task: asyncio.Task[Any]) -> None:
        running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("the detached hook %s failed", _name(hook), exc_info=error)

    return start


async def _call(hook: Hook, *args: Any) -> Any:
    found = hook(*args)
    return await found if inspect.isawaitable(found) else found


def _name(hook: Hook) -> str:
    return getattr(hook, "__name__", repr(hook))
