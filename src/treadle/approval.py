"""Approval: whether a local tool call may run. Asked once per call, before it starts.

A policy is a function of the `ToolRequest`, sync or async, that returns `Allow()`, `Deny(reason)`, `Edit(args)` or
`Pause(reason)`. Whatever else it does, the call does not run.
"""

from __future__ import annotations

import hashlib
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from treadle.errors import ConfigError
from treadle.events import Effect

if TYPE_CHECKING:
    from treadle.wraps import ToolRequest

_log = logging.getLogger("treadle")


class Allow(msgspec.Struct, frozen=True, tag_field="decision", tag="allow"):
    """The call may run as it is. `key` binds a decision to one pending call: `PendingCall.key`."""

    key: str | None = None


class Deny(msgspec.Struct, frozen=True, tag_field="decision", tag="deny"):
    """The call must not run. The model reads `reason`."""

    reason: str = "The user did not allow it."
    key: str | None = None


class Edit(msgspec.Struct, frozen=True, tag_field="decision", tag="edit"):
    """The call may run with other arguments: an object, or its JSON text. They are checked like the model's own."""

    args: str | dict[str, Any]
    key: str | None = None


class Pause(msgspec.Struct, frozen=True, tag_field="decision", tag="pause"):
    """Nobody can decide now: the run ends with the stop `paused`, and may be resumed with a decision."""

    reason: str | None = None
    key: str | None = None


Decision: TypeAlias = Allow | Deny | Edit | Pause
Approve: TypeAlias = Callable[["ToolRequest"], Decision | Awaitable[Decision]]


def call_key(run_id: str, step: int, index: int, name: str, args: str) -> str:
    """What a decision on a pending call is bound to: this run, this place in it, this tool, these arguments."""
    place = msgspec.json.encode([run_id, step, index, name, args])
    return hashlib.sha256(place).hexdigest()[:32]


async def decide(policy: Approve, request: ToolRequest, waits: Callable[[], Any]) -> Decision:
    """What `policy` says of the call. A policy that fails, or says something else, denies.

    `waits` is a context manager around the time in which somebody has to be asked.
    """
    try:
        verdict = policy(request)
        if inspect.isawaitable(verdict):
            with waits():
                verdict = await verdict
    except Exception:  # noqa: BLE001 - what cannot say yes says no
        _log.exception("the approval of %s failed; the call is denied", request.name)
        return Deny("The approval failed.")
    if not isinstance(verdict, Allow | Deny | Edit | Pause):
        _log.error("the approval of %s gave %.80r and no decision; the call is denied", request.name, verdict)
        return Deny("The approval gave no decision.")
    return verdict


def deny_all(request: ToolRequest) -> Decision:
    """Denies every call."""
    return Deny(f"{request.name} must not be called here.")


def approve_effects(*effects: Effect | str, otherwise: Approve = deny_all) -> Approve:
    """Allows tools that declare one of these effects. `otherwise` decides on the others; it denies by default."""
    if unknown := [effect for effect in effects if effect not in tuple(Effect)]:
        raise ConfigError(f"an effect is 'read', 'write' or 'external', not {unknown[0]!r}")
    allowed = frozenset(map(Effect, effects))

    def policy(request: ToolRequest) -> Decision | Awaitable[Decision]:
        return Allow() if request.effect in allowed else otherwise(request)

    return policy
