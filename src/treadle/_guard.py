"""What stands between a call and its tool: hooks and approval, as one wrap."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import msgspec

from treadle._results import ToolOutput
from treadle.approval import Allow, Deny, Edit, Pause, decide
from treadle.errors import text_of
from treadle.events import ApprovalRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from treadle.approval import Approve, Decision
    from treadle.hooks import Hooks
    from treadle.tools import Tool
    from treadle.wraps import ToolNext, ToolRequest

    Waits = Callable[[], AbstractContextManager[None]]


class CallPaused(BaseException):
    """Takes a call that waits for a decision out of its wraps: no handler of a tool's failures may catch it."""

    def __init__(self, reason: str | None) -> None:
        super().__init__(reason)
        self.reason = reason


class PersonClock:
    """How long a run waited for decisions. Waits that overlap count once.

    `above` is around each wait as well: that of the run which called this one.
    """

    def __init__(self, above: Waits | None = None) -> None:
        self._above = above
        self._waiting = 0
        self._since = 0.0
        self._waited = 0.0

    @contextlib.contextmanager
    def waits(self) -> Iterator[None]:
        """Around each wait."""
        now = asyncio.get_running_loop().time
        if not self._waiting:
            self._since = now()
        self._waiting += 1
        try:
            with contextlib.nullcontext() if self._above is None else self._above():
                yield
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._waited += now() - self._since

    def waited(self, now: float) -> float:
        """The seconds so far, a wait that goes on included."""
        return self._waited + (now - self._since if self._waiting else 0.0)


class Guard:
    """The hooks and the approval of one run. `decisions` answers the calls of a step by id, in the policy's stead.

    `tell` is called with the `ApprovalRequest` of each call about which somebody is asked. Nobody is asked about calls
    of the tool `free`.
    """

    def __init__(
        self, hooks: Hooks | None, approve: Approve | None, clock: PersonClock, free: Tool[..., Any] | None = None
    ) -> None:
        self._hooks = hooks
        self._approve = approve
        self._clock = clock
        self._free = free
        self.decisions: Mapping[str, Decision] = {}
        self._denied: set[str] = set()
        self.tell: Callable[[ApprovalRequest], None] = _tell_nobody

    async def __call__(self, request: ToolRequest, call_next: ToolNext) -> Any:
        """Hooks, approval, the call, and what the hooks add to its result."""
        if request.tool is self._free:
            return await call_next(request)
        request = msgspec.structs.replace(request, denied=request.name in self._denied)
        if (denied := await self._denial(request)) is not None:
            return denied
        decision = await self._decision(request)
        if isinstance(decision, Pause):
            raise CallPaused(decision.reason)
        if isinstance(decision, Deny):
            return self._deny(request, decision.reason)
        if isinstance(decision, Edit):
            try:
                request = request.replace(args=decision.args)
                request.arguments  # noqa: B018 - raises for what does not fit
            except Exception as error:  # noqa: BLE001 - what is no JSON does not fit either
                fault = text_of(error) or type(error).__name__
                return self._deny(request, f"Its arguments were edited, and do not fit: {fault}")
            if (denied := await self._denial(request)) is not None:
                return denied
        output: ToolOutput = await call_next(request)
        if self._hooks is not None and (text := await self._hooks.addition(request, output)):
            output = ToolOutput(f"{output.content}\n{text}" if output.content else text, output.files, output.is_error)
        return output

    async def _denial(self, request: ToolRequest) -> ToolOutput | None:
        reason = None if self._hooks is None else await self._hooks.denial(request)
        return None if reason is None else self._deny(request, reason)

    async def _decision(self, request: ToolRequest) -> Decision:
        if (decision := self.decisions.get(request.call_id)) is not None:
            return decision
        if self._approve is None:
            return Allow()

        def asked() -> None:
            self.tell(ApprovalRequest(request.call_id, request.name, request.args))

        with self._clock.waits():
            decision = await decide(self._approve, request, asked)
        if isinstance(decision, Pause):
            self.tell(ApprovalRequest(request.call_id, request.name, request.args, decision.reason))
        return decision

    def _deny(self, request: ToolRequest, reason: str) -> ToolOutput:
        self._denied.add(request.name)
        return ToolOutput(f"Not run, it was denied: {reason}", is_error=True)


def _tell_nobody(event: ApprovalRequest) -> None:
    """There is no step to tell of."""
