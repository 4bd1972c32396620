"""`treadle run --json` driven by another program: commands as JSON lines in, the event log as JSON lines out."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Literal, TextIO

import msgspec

from treadle.approval import Allow, Decision, Deny, Edit
from treadle.cli.exits import Exit
from treadle.cli.lines import MAX_LINE_BYTES, lines
from treadle.cli.terminal import say
from treadle.errors import ConfigError, RunError, TreadleError, text_of
from treadle.messages import FilePart, TextPart

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from treadle import Agent, Event, Message, Run
    from treadle.cli.exits import Signals
    from treadle.cli.terminal import Screen
    from treadle.wraps import ToolRequest

_OVER = "The input has ended, so nobody can decide on it."


class Prompt(msgspec.Struct, frozen=True, tag="prompt", forbid_unknown_fields=True):
    """What to do next. `files` are paths of files to send along. While a run goes on it waits for its turn."""

    text: str
    files: tuple[str, ...] = ()


class Decided(msgspec.Struct, frozen=True, tag="decision", forbid_unknown_fields=True):
    """What becomes of a call that an `approval_request` told of. `args` are for `edit`, `reason` for `deny`."""

    call_id: str
    decision: Literal["allow", "deny", "edit"]
    reason: str | None = None
    args: dict[str, Any] | str | None = None


class Steer(msgspec.Struct, frozen=True, tag="steer", forbid_unknown_fields=True):
    """Something to say before the next step of the run that goes on."""

    text: str


class Cancel(msgspec.Struct, frozen=True, tag="cancel", forbid_unknown_fields=True):
    """Ends the run that goes on, or the prompt that would be next where none does yet, and nothing else."""


_decoder = msgspec.json.Decoder(Prompt | Decided | Steer | Cancel)


class Driver:
    """Takes commands from `stream`, the standard input, until it ends and every prompt is answered.

    All runs belong to one conversation. A line that cannot be obeyed is answered by a line with an error, and changes
    nothing. `ask` is the policy for calls that somebody has to decide on: it waits for the line that does.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._prompts: asyncio.Queue[Prompt | None] = asyncio.Queue()
        self._waiting: dict[str, deque[asyncio.Future[Decision]]] = {}
        self._over = False
        self._messages: tuple[Message, ...] = ()
        self._run: Run[Any] | None = None
        self._task: asyncio.Task[None] | None = None
        self._code: int = Exit.COMPLETE
        self._asked = 0  # prompts that are not answered yet
        self._cancelled = False  # before the run began

    def ask(self, request: ToolRequest) -> Decision | Awaitable[Decision]:
        """Waits for the decision on a call. Those that have the same id are decided on in their order."""
        if self._over:
            return Deny(_OVER)
        future: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(request.call_id, deque()).append(future)
        return future

    async def drive(
        self, agent: Agent[Any, Any], screen: Screen, signals: Signals, log: deque[Event], place: dict[str, Any]
    ) -> int:
        """Obeys until the input ends. Returns the exit code: that of the last run."""
        self._agent, self._screen, self._signals, self._log, self._place = agent, screen, signals, log, place
        listening = asyncio.create_task(self._listen())
        try:
            while (prompt := await self._next(listening)) is not None:
                await self._answer(prompt)
        finally:
            listening.cancel()
            await asyncio.wait((listening,))
        return self._code

    async def _next(self, listening: asyncio.Task[None]) -> Prompt | None:
        """The next prompt; None at the end. What breaks the listening is raised."""
        waits = asyncio.create_task(self._prompts.get())
        try:
            await asyncio.wait((waits, listening), return_when=asyncio.FIRST_COMPLETED)
            if listening.done() and not waits.done():
                listening.result()
            return await waits
        finally:
            waits.cancel()

    async def _answer(self, prompt: Prompt) -> None:
        """One run, which a command or a signal may cancel."""
        self._screen.next_run()
        if self._cancelled:
            self._end(None, cancelled=True)
            return
        self._task = asyncio.create_task(self._stream_events(prompt))
        try:
            await asyncio.wait((self._task,))
        except asyncio.CancelledError:  # by a signal
            self._task.cancel()
            await asyncio.wait((self._task,))
            self._show_rest()
            raise
        task, self._task = self._task, None
        self._waiting.clear()
        fault = None if task.cancelled() else task.exception()
        if isinstance(fault, BrokenPipeError):  # nobody reads the rest either
            raise fault
        self._show_rest()
        self._end(fault, cancelled=task.cancelled())

    async def _stream_events(self, prompt: Prompt) -> None:
        from treadle.cli.attachments import attachment

        parts: list[TextPart | FilePart] = [*map(attachment, prompt.files), TextPart(prompt.text)]
        place: dict[str, Any] = self._place or {"messages": self._messages}
        self._run = run = self._agent.stream(parts, **place)
        try:
            async with run:
                async for _ in run:
                    self._screen.show(self._log.popleft())
        finally:
            self._run = None
            self._messages = run.so_far().messages or self._messages
            if run.unsent:
                self._screen.fault("the run ended before it took what was steered: send it as a prompt")

    def _show_rest(self) -> None:
        """What a run that was cancelled told its taps only."""
        while self._log:
            self._screen.show(self._log.popleft())

    def _end(self, fault: BaseException | None, *, cancelled: bool) -> None:
        from treadle.cli.running import exit_code

        tally = self._screen.tally
        self._asked, self._cancelled = self._asked - 1, False
        if cancelled and not tally.finished:
            self._screen.fault("the run was cancelled before it began")
        if fault is not None and not tally.finished:
            cause = fault.__cause__ if isinstance(fault, RunError) and fault.__cause__ is not None else fault
            self._screen.fault(text_of(cause) or type(cause).__name__)
        self._code = Exit.USAGE if isinstance(fault, ConfigError) else int(exit_code(tally.stop))
        if fault is not None or cancelled:
            self._code = self._code or Exit.FAILED
        if tally.finished:
            say(tally.line())

    async def _listen(self) -> None:
        async for line in lines(self._stream):
            self._obey(line)
        self._over = True
        for waiting in self._waiting.values():
            for future in waiting:
                if not future.done():
                    future.set_result(Deny(_OVER))
        self._prompts.put_nowait(None)

    def _obey(self, line: bytes | None) -> None:
        """Does what a line says; None stands for one that is too long."""
        if line is None:
            self._screen.fault(f"a line is longer than {MAX_LINE_BYTES >> 20} MiB")
            return
        if not line.strip():
            return
        try:
            command = _decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            self._screen.fault(f"not a command: {text_of(error) or type(error).__name__}")
            return
        try:
            self._do(command)
        except TreadleError as error:
            self._screen.fault(text_of(error))

    def _do(self, command: Prompt | Decided | Steer | Cancel) -> None:
        match command:
            case Prompt(text=text):
                if not text.strip():
                    raise ConfigError("the prompt is empty")
                self._asked += 1
                self._prompts.put_nowait(command)
            case Decided():
                self._decide(command)
            case Steer(text=text):
                if self._run is None:
                    raise ConfigError("there is no run to steer: send a prompt")
                self._run.steer(text)
            case Cancel():
                if self._task is not None:
                    self._task.cancel()
                elif self._asked:
                    self._cancelled = True
                else:
                    raise ConfigError("there is no run to cancel")

    def _decide(self, command: Decided) -> None:
        waiting = self._waiting.get(command.call_id, deque())
        while waiting and waiting[0].done():
            waiting.popleft()
        if not waiting:
            raise ConfigError(f"no call {command.call_id!r:.80} waits for a decision")
        if (command.args is None) == (command.decision == "edit"):
            raise ConfigError("a decision has args if it is edit, and only then")
        waiting.popleft().set_result(_decision(command))


def _decision(command: Decided) -> Decision:
    if command.decision == "allow":
        return Allow()
    if command.decision == "edit" and command.args is not None:
        return Edit(command.args)
    return Deny() if command.reason is None else Deny(command.reason)
