"""Approval: whether a local tool call may run. Asked once per call, before it starts.

A policy is a function of the `ToolRequest`, sync or async, that returns `Allow()`, `Deny(reason)`, `Edit(args)` or
`Pause(reason)`. Whatever else it does, the call does not run.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import logging
import os
import re
import threading
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from treadle._threads import run_in_thread
from treadle.errors import ConfigError
from treadle.events import Effect
from treadle.messages import AssistantMessage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from treadle.messages import Message, ToolCallPart
    from treadle.wraps import ToolRequest

_log = logging.getLogger("treadle")
_SHOWN = 2_000  # characters of the arguments in a question
_POLL_SECONDS = 0.1
# Characters that count as printable and show nothing, or change the look of the one before them.
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)


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


def call_key(run_id: str, place: int, index: int, call: ToolCallPart) -> str:
    """What a decision on a pending call is bound to: this run, this place in it, this tool, these arguments."""
    bound = msgspec.json.encode([run_id, place, index, call.name, call.args])
    return hashlib.sha256(bound).hexdigest()[:32]


def place_of(messages: Iterable[Message]) -> int:
    """Which answer in the whole conversation is the last one, from 0."""
    return sum(isinstance(message, AssistantMessage) for message in messages) - 1


async def decide(policy: Approve, request: ToolRequest, asked: Callable[[], None]) -> Decision:
    """What `policy` says of the call. A policy that fails, or says something else, denies.

    `asked` is told where somebody has to be waited for.
    """
    try:
        verdict = policy(request)
        if inspect.isawaitable(verdict):
            asked()
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


def visible(text: str) -> str:
    """`text` to show to whoever decides on it: all that is not printed as what it is becomes an escape, like `\\u202e`.

    So nothing in a command or a change can hide, or look like something else, by control characters, directions,
    joiners or characters that leave no mark. Line ends and tabs stay.
    """
    text = _UNSEEN.sub(lambda found: ascii(found[0])[1:-1], text)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in "\n\t" else ascii(char)[1:-1] for char in text)


async def ask_on_terminal(request: ToolRequest) -> Decision:
    """Asks the person at the terminal of this process: `y` or `yes` allows the call.

    Anything else denies it, and is the reason that the model reads. One question stands at a time. Without a terminal,
    or with its input closed, the call is denied.
    """
    try:
        answer = await typed(f"Allow {request.name} {_shown(request.args)}? [y/N] ")
    except OSError:
        return Deny("There is no terminal at which somebody could allow it.")
    if answer.lower() in ("y", "yes"):
        return Allow()
    return Deny() if answer.lower() in ("", "n", "no") else Deny(answer)


async def typed(question: str) -> str:
    """The line that somebody types behind `question` at the terminal of this process; empty at the end of input.

    What was typed before the question stood is dropped. One question stands at a time. Raises `OSError` where there is
    no terminal.
    """
    given_up = threading.Event()
    try:
        return (await run_in_thread(lambda: _question(question, given_up))).strip()
    finally:
        given_up.set()


_terminal = threading.Lock()  # two questions at once could not be told apart


def _question(text: str, given_up: threading.Event) -> str:
    """The line that is typed behind `text`; empty at the end of input, or once `given_up`. Raises `OSError`."""
    import select
    import termios

    with _terminal, contextlib.closing(_Terminal()) as terminal:
        if given_up.is_set():
            return ""
        with contextlib.suppress(termios.error):
            termios.tcflush(terminal.fd, termios.TCIFLUSH)  # what was typed before is no answer
        os.write(terminal.fd, text.encode())
        while not given_up.is_set():
            if select.select([terminal.fd], [], [], _POLL_SECONDS)[0]:
                return os.read(terminal.fd, 65_536).decode(errors="replace")
        return ""


class _Terminal:
    """The terminal that controls this process, whatever its standard streams are joined to."""

    def __init__(self) -> None:
        self.fd = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)

    def close(self) -> None:
        os.close(self.fd)


def _shown(args: str) -> str:
    """Arguments on one line, without what could move the cursor or hide a part of them."""
    text = visible(args).replace("\n", "\\n").replace("\t", "\\t")
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text):,} characters)"
