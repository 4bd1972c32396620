"""The client where nothing can be drawn, at a dumb terminal or on a pipe: lines in, finished lines out."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from typing import TYPE_CHECKING

from treadle.approval import Deny
from treadle.cli.asking import NOBODY
from treadle.cli.chat.client import Client
from treadle.cli.chat.plain_asking import PlainAsking
from treadle.cli.chat.plain_output import PlainOutput, streams_of_this_process
from treadle.cli.chat.reading_lines import Lines
from treadle.cli.chat.streams import printed_above
from treadle.cli.exits import Exit
from treadle.cli.terminal import LONGEST, one_line
from treadle.errors import ConfigError
from treadle.events import RunFinish

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from treadle import Event, Message
    from treadle.cli.chat.client import Parts
    from treadle.cli.chat.view import View
    from treadle.cli.exits import Signals

LEAVE_SECONDS = 2.0


class Plain:
    """A face that prints, and a prompt that reads lines.

    Where a `person` types, lines are taken while a run goes on, and calls are asked about. Otherwise each line waits
    for the end of what the one before began, and what would be asked is denied.
    """

    def __init__(
        self, parts: Parts, session: str, view: View, *, source: int, output: PlainOutput, person: bool
    ) -> None:
        self.view: View = view
        self.client: Client = Client(self, parts, session)
        self.code: int = Exit.COMPLETE
        self._asking = PlainAsking(parts.approvals, self._ask, view)
        self._lines = Lines(source)
        self._output, self._person = output, person
        output.lost = self.leave
        self._typed = ""  # what the terminal has shown already
        self._begun: list[str] = []  # lines that a backslash goes on from
        self._asked = -LEAVE_SECONDS

    async def run(
        self, banner: Sequence[str] = (), begin: Callable[[], None] = lambda: None, signals: Signals | None = None
    ) -> int:
        """Runs until the input ends or the person leaves; the exit code. Whatever was started has ended then.

        Raises `ConfigError` where neither a person nor anything else says a word.
        """
        loop = asyncio.get_running_loop()
        with self._signals(loop, signals), printed_above(self):
            if self._person:
                self._aside(self.view.note, "\n".join(banner))
            begin()
            self._prompt()
            tasks = [loop.create_task(self._read()), loop.create_task(self.client.leaving.wait())]
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            finally:
                for task in tasks:
                    task.cancel()
                await self._close()
        return self.code

    async def _close(self) -> None:
        self.leave(self.code)
        if waiting := [*self.client.conversation.queue, *self._begun]:
            self.give_back("\n".join(waiting))
        await self.client.close()
        self._output.end_prompt()

    async def _read(self) -> None:
        empty = True
        while not self.client.leaving.is_set() and (line := await self._lines.next()) is not None:
            empty = empty and not line.strip()
            self._output.entered()
            self._take(line)
            if not self._person:
                await self.client.settled()
            self._prompt_soon()  # below what a command prints at once
        if self._begun and not self._person:
            self._take("")
            await self.client.settled()
        if empty and not self._person and not self.client.leaving.is_set():
            raise ConfigError("standard input has no message; write one a line there, or `treadle run PROMPT`")

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
        """Ends the client. The first reason is the one that counts."""
        if not self.client.leaving.is_set():
            self.code = code
        self.client.leaving.set()

    def _failed(self, code: int) -> None:
        if not self._person and not self.client.leaving.is_set():
            self.code = code

    def interrupt(self) -> None:
        """Ends what goes on; else forgets the lines begun; at an idle prompt twice within two seconds leaves."""
        self._output.end_prompt()
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
        self._print(self.view.feed(event, time.monotonic(), self._output.width()))
        if isinstance(event, RunFinish) and not event.stop.complete:
            from treadle.cli.running import exit_code

            self._failed(exit_code(event.stop))

    async def room(self) -> None:
        """What is told is printed by then."""

    def user(self, text: str) -> None:
        """Prints what the person said, unless it stands there, as it was typed."""
        stands = self._person and self._output.shows_typing and self._typed
        if not (stands and text == self._typed.rstrip()):
            self._print(self.view.user(text, self._output.width()))
        self._typed = ""

    def output(self, text: str) -> None:
        """Prints lines."""
        self._print(self.view.note(text.removesuffix("\n"), self._output.width()))

    def note(self, text: str) -> None:
        """Tells the person, in a line."""
        self._aside(self.view.note, one_line(text, LONGEST))

    def error(self, text: str) -> None:
        """Tells the person what went wrong."""
        self._aside(self.view.error, one_line(text, LONGEST))
        self._failed(self.code or Exit.FAILED)

    def replay(self, messages: Sequence[Message]) -> None:
        """Prints an earlier conversation."""
        self._print(self.view.replay(messages, self._output.width()))

    def give_back(self, text: str) -> None:
        """Shows the whole of what will not be said by itself, to be typed or copied again."""
        self._aside(self.view.note, f"not sent: {self.client.pastes.whole(text)}")

    def cost(self) -> str:
        """What was spent, in words."""
        return self.view.spent

    def changed(self) -> None:
        """Asks what is to be asked, or shows that a line is awaited."""
        if self._person:
            self._asking.look()
            self._prompt_soon()
        else:
            self._refuse()

    def _refuse(self) -> None:
        approvals = self.client.parts.approvals
        while (question := approvals.question) is not None:
            question.answer.set_result(Deny(NOBODY))
            rule = f"; the rule {question.rule.text} would allow it" if question.rule is not None else ""
            self.note(f"nobody can be asked about {question.request.name} here, so it is denied{rule}")

    # What is printed

    def _print(self, lines: Sequence[str], *, aside: bool = False) -> None:
        if lines:
            self._output.lines(lines, aside=aside)
            self._prompt_soon()

    def _aside(self, made: Callable[[str, int], Sequence[str]], text: str) -> None:
        self._print(made(text, self._output.width(aside=True)), aside=True)

    def _ask(self, made: Callable[[int], Sequence[str]]) -> None:
        self._print(made(self._output.width(aside=True)), aside=True)

    def _prompt_soon(self) -> None:
        if self._person:
            asyncio.get_running_loop().call_soon(self._prompt)

    def _prompt(self) -> None:
        due = self._asking.prompt or ("" if self.client.conversation.busy else "... " if self._begun else "> ")
        if self._person and due and not self.client.leaving.is_set():
            self._output.prompt(due)

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
        before = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}  # by nohup
        for number in before:
            loop.add_signal_handler(number, handlers[number])
        try:
            yield
        finally:
            for number, handler_before in before.items():
                loop.remove_signal_handler(number)
                signal.signal(number, handler_before)
            signals.on_first = None


def plain(parts: Parts, session: str, view: View) -> Plain:
    """The client on the streams of this process. It asks nobody where nobody sees the question."""
    seen = any(stream is not None and stream.isatty() for stream in (sys.stdout, sys.stderr))
    person = seen and sys.stdin is not None and sys.stdin.isatty()
    source = os.open(os.devnull, os.O_RDONLY) if sys.stdin is None else 0  # 0 may be another file's by now
    return Plain(parts, session, view, source=source, output=streams_of_this_process(), person=person)
