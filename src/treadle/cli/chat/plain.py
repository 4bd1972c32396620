"""The client where nothing can be drawn, at a dumb terminal or on a pipe: lines in, finished lines out."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import time
from typing import TYPE_CHECKING

from treadle.approval import Deny
from treadle.cli.asking import NOBODY
from treadle.cli.chat.client import Client
from treadle.cli.chat.plain_asking import PlainAsking
from treadle.cli.chat.reading_lines import Lines
from treadle.cli.chat.streams import printed_above
from treadle.cli.exits import Exit
from treadle.cli.terminal import LONGEST, neutral, one_line
from treadle.events import RunFinish

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import TextIO

    from treadle import Event, Message
    from treadle.cli.chat.client import Parts
    from treadle.cli.chat.view import View
    from treadle.cli.exits import Signals

LEAVE_SECONDS = 2.0
UNBROKEN = 10_000  # columns, where the output is not a terminal: lines that are searched are not broken


class Plain:
    """A face that prints, and a prompt that reads lines. No escape sequence and no carriage return is written.

    Where a `person` types, lines are taken while a run goes on, and calls are asked about. Otherwise each line waits
    for the end of what the one before began, and what would be asked is denied.
    """

    def __init__(
        self, parts: Parts, session: str, view: View, *, source: int, out: TextIO, side: TextIO, person: bool
    ) -> None:
        self.view: View = view
        self.client: Client = Client(self, parts, session)
        self.code: int = Exit.COMPLETE
        self._asking = PlainAsking(parts.approvals, self._print, view)
        self._lines = Lines(source)
        self._out, self._side, self._person = out, side, person
        self._standing = ""  # the prompt behind which the cursor stands
        self._typed = ""  # what the terminal has shown already
        self._begun: list[str] = []  # lines that a backslash goes on from
        self._asked = -LEAVE_SECONDS

    async def run(
        self, banner: Sequence[str] = (), begin: Callable[[], None] = lambda: None, signals: Signals | None = None
    ) -> int:
        """Runs until the input ends or the person leaves; the exit code. Whatever was started has ended then."""
        loop = asyncio.get_running_loop()
        with self._signals(loop, signals), printed_above(self):
            if self._person:
                self.output("\n".join(banner))
            begin()
            self._prompt()
            tasks = [loop.create_task(self._read()), loop.create_task(self.client.leaving.wait())]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                await self.client.close()
                self._end_prompt()
        return self.code

    async def _read(self) -> None:
        while not self.client.leaving.is_set() and (line := await self._lines.next()) is not None:
            self._standing = ""
            self._take(line)
            if not self._person:
                await self.client.settled()
            self._prompt()
        if self._begun:
            self._take("")
            await self.client.settled()

    def _take(self, line: str) -> None:
        """Does what a line says: it answers what is asked, or goes to the client once no backslash ends it."""
        if self._person and self._asking.takes(line):
            return
        if line.endswith("\\"):
            self._begun.append(line[:-1])
            return
        text, self._begun = "\n".join([*self._begun, line]), []
        busy = self.client.conversation.busy
        self._typed = "" if busy else text
        self.client.enter(text)
        if busy and text in self.client.conversation.queue:
            self.note("waits its turn")

    def leave(self, code: int = Exit.COMPLETE) -> None:
        """Ends the client."""
        self.code = code
        self.client.leaving.set()

    def interrupt(self) -> None:
        """Ends what goes on; else forgets the lines begun; at an idle prompt twice within two seconds leaves."""
        self._end_prompt()
        now = time.monotonic()
        if self.client.conversation.cancel():
            return
        if self._begun:
            self._begun = []
        elif now - self._asked < LEAVE_SECONDS:
            self.leave()
        else:
            self._asked = now
            self.note("ctrl-c again leaves")
        self._prompt()

    # What is told

    def event(self, event: Event) -> None:
        """Prints what is finished."""
        self._typed = ""
        self._print(self.view.feed(event, time.monotonic(), self._width()))
        if isinstance(event, RunFinish) and not event.stop.complete and not self._person:
            from treadle.cli.running import exit_code

            self.code = exit_code(event.stop)

    async def room(self) -> None:
        """What is told is printed by then."""

    def user(self, text: str) -> None:
        """Prints what the person said, unless it stands there, as it was typed."""
        if not (self._person and self._out.isatty() and self._typed and text == self._typed.rstrip()):
            self._print(self.view.user(text, self._width()))
        self._typed = ""

    def output(self, text: str) -> None:
        """Prints lines."""
        self._print(self.view.note(text.removesuffix("\n"), self._width()))

    def note(self, text: str) -> None:
        """Prints a line."""
        self._print(self.view.note(one_line(text, LONGEST), self._width()))

    def error(self, text: str) -> None:
        """Prints what went wrong."""
        self._print(self.view.error(one_line(text, LONGEST), self._width()))
        if not self._person:
            self.code = self.code or Exit.FAILED

    def replay(self, messages: Sequence[Message]) -> None:
        """Prints an earlier conversation."""
        self._print(self.view.replay(messages, self._width()))

    def give_back(self, text: str) -> None:
        """Shows what will not be said by itself, to be typed or copied again."""
        self.output(f"not sent: {self.client.pastes.shown(text)}")

    def cost(self) -> str:
        """What was spent, in words."""
        usage = self.view.usage
        return f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out; {self.view.cost or 'cost unknown'}"

    def changed(self) -> None:
        """Asks what is to be asked, or shows that a line is awaited."""
        if not self._person:
            self._refuse()
            return
        self._asking.look(self._width())
        asyncio.get_running_loop().call_soon(self._prompt)

    def _refuse(self) -> None:
        approvals = self.client.parts.approvals
        while (question := approvals.question) is not None:
            question.answer.set_result(Deny(NOBODY))
            rule = f"; the rule {question.rule.text} would allow it" if question.rule is not None else ""
            self.note(f"nobody can be asked about {question.request.name} here, so it is denied{rule}")

    # What is printed

    def _width(self) -> int:
        return max(1, shutil.get_terminal_size().columns) if self._out.isatty() else UNBROKEN

    def _print(self, lines: Sequence[str]) -> None:
        if lines:
            self._end_prompt()
            self._write(self._out, "".join(f"{neutral(line)}\n" for line in lines))
            if self._person:
                asyncio.get_running_loop().call_soon(self._prompt)

    def _prompt(self) -> None:
        """Shows what is awaited, once."""
        due = self._asking.prompt or ("" if self.client.conversation.busy else "... " if self._begun else "> ")
        if self._person and not self._standing and due and not self.client.leaving.is_set():
            self._standing = due
            self._write(self._side, due)

    def _end_prompt(self) -> None:
        if self._standing:
            self._standing = ""
            self._write(self._side, "\n")

    def _write(self, stream: TextIO, text: str) -> None:
        try:
            stream.write(text)
            stream.flush()
        except OSError:  # nobody reads it any more
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            self.leave(Exit.CLOSED_PIPE)

    @contextlib.contextmanager
    def _signals(self, loop: asyncio.AbstractEventLoop, signals: Signals | None) -> Iterator[None]:
        """At a terminal ctrl-c is a key like another; the other signals leave in order."""
        if signals is None:
            yield
            return
        signals.on_first = lambda: loop.call_soon_threadsafe(self.leave, signals.code)
        handlers = {signal.SIGHUP: lambda: self.leave(128 + signal.SIGHUP)}
        if self._person:
            handlers[signal.SIGINT] = self.interrupt
        before = {number: signal.getsignal(number) for number in handlers}
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler)
        try:
            yield
        finally:
            for number, handler_before in before.items():
                loop.remove_signal_handler(number)
                signal.signal(number, handler_before)
            signals.on_first = None


def plain(parts: Parts, session: str, view: View) -> Plain:
    """The client on the streams of this process. Prompts go where somebody sees them."""
    for stream in (sys.stdout, sys.stderr):
        if (reconfigure := getattr(stream, "reconfigure", None)) is not None:
            reconfigure(errors="replace")
    person = sys.stdin is not None and sys.stdin.isatty()
    side = sys.stdout if sys.stdout.isatty() else sys.stderr
    return Plain(parts, session, view, source=0, out=sys.stdout, side=side, person=person)
