"""The client at a terminal: its prompt, what it draws, and how it is left."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from functools import partial
from typing import TYPE_CHECKING, Any

from prompt_toolkit.input.posix_pipe import PosixPipeInput
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.output.color_depth import ColorDepth

from treadle.cli.chat.asking import Asking
from treadle.cli.chat.files import Files
from treadle.cli.chat.inline import Inline, SteadyOutput, quiet_seconds, reflows, shows_notices
from treadle.cli.chat.keys import bindings
from treadle.cli.chat.layout import STYLES, prompt_layout, prompt_rows
from treadle.cli.chat.prompt import prompt_buffer
from treadle.cli.chat.reading import PasteParser
from treadle.cli.chat.screen import Screen
from treadle.cli.chat.streams import printed_above, terminal_output
from treadle.cli.terminal import one_line
from treadle.messages import encodable
from treadle.toolkit import Workspace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from prompt_toolkit.buffer import Buffer
    from prompt_toolkit.data_structures import Size
    from prompt_toolkit.input import Input
    from prompt_toolkit.key_binding import KeyBindings
    from prompt_toolkit.output import Output

    from treadle.cli.chat.approvals import Question
    from treadle.cli.chat.client import Client, Parts
    from treadle.cli.chat.history import HistoryFile
    from treadle.cli.chat.view import View
    from treadle.cli.exits import Signals

ESCAPE_SECONDS = 0.05  # after which an escape is the key, and not the beginning of a sequence
SEQUENCE_SECONDS = 0.25
ROOMY, LOW = 20, 8  # rows: below the one a question stands without what waits, below the other without the status
LOOK_SECONDS = 2.0  # for the files that a name may mean


class App:
    """Joins a client with a terminal."""

    def __init__(
        self,
        parts: Parts,
        session: str,
        view: View,
        history: HistoryFile,
        *,
        source: Input | None = None,
        output: Output | None = None,
    ) -> None:
        from treadle.cli.chat.client import Client

        self.screen: Screen = Screen(
            view,
            self,
            busy=lambda: self.client.conversation.busy,
            give_back=self.put,
            changed=self._changed,
        )
        self.client: Client = Client(self.screen, parts, session)
        self.asking: Asking = Asking(parts.approvals, self._preview)
        looking = Workspace(parts.workspace.root, search_seconds=LOOK_SECONDS)
        find = next(tool for tool in looking.read_only() if tool.name == "find_files")
        self.buffer: Buffer = prompt_buffer(self.client, Files(find), history)
        self.buffer.on_text_changed += lambda _: self.asking.typed()
        self._draft: str | None = None
        self._rung_for: Question | None = None
        self._reasoning = False  # the prompt holds a reason and no message
        self._pastes = self.client.pastes
        self._output = output if output is not None else terminal_output()
        self.key_bindings: KeyBindings = bindings(self)
        self._inline = Inline(
            reflows=reflows(os.environ),
            quiet_seconds=quiet_seconds(os.environ),
            layout=prompt_layout(
                self.buffer,
                self._pastes,
                above=(self._live, self._queue, self._question, self._status),
                sign=self._sign,
            ),
            key_bindings=self.key_bindings,
            style=STYLES[view.theme],
            include_default_pygments_style=False,
            color_depth=ColorDepth.MONOCHROME if view.theme == "none" else None,
            input=source,
            output=self._output,
        )
        keyboard = self._inline.input
        if isinstance(keyboard, Vt100Input | PosixPipeInput):
            keyboard.vt100_parser = PasteParser(keyboard.vt100_parser.feed_key_callback)
        self._inline.ttimeoutlen = ESCAPE_SECONDS
        self._inline.timeoutlen = SEQUENCE_SECONDS

    async def run(
        self, banner: Sequence[str] = (), begin: Callable[[], None] = lambda: None, signals: Signals | None = None
    ) -> int:
        """Runs until the person leaves; the exit code. Whatever was started has ended then."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._failed)
        with self._signals(loop, signals), printed_above(self.screen):
            self.screen.output("\n".join(banner))
            leaving = loop.create_task(self._leave_when_asked())
            begin()
            try:
                code = await self._inline.run_async(set_exception_handler=False)
            except EOFError:  # the terminal is gone
                code = 128 + signal.SIGHUP
            finally:
                leaving.cancel()
                self._inline.settle()
                await self.client.close()
                self.screen.close()
        return code

    # What keys do

    def enter(self) -> None:
        """Sends what is typed, or goes on in a new line behind a backslash."""
        if self.asking.stage == "reason":
            self.asking.deny(self._pastes.whole(self.buffer.text))
            return
        state = self.buffer.complete_state
        if state is not None and state.current_completion is not None:
            self.buffer.complete_state = None
            if not self.buffer.text.startswith("/") or self.buffer.text.endswith(" "):
                return
        text = self.buffer.text
        if text.endswith("\\"):
            self.buffer.cursor_position = len(text)
            self.buffer.delete_before_cursor()
            self.buffer.insert_text("\n")
            return
        self._take(self.client.enter)

    def steer(self) -> None:
        """Says what is typed before the next step of the run that goes on."""
        if not self._reasoning:
            self._take(self.client.steer)

    def answer(self, key: str) -> None:
        """Answers the question that is asked."""
        if key == "v":
            self.print_above(self.asking.printed(self.size()[0]))
        else:
            self.asking.press(key, self.screen.error)
        self._reasoning = self.asking.stage == "reason"
        self.redraw()

    def back(self) -> None:
        """Goes a step back in the question, or says no to it."""
        self.asking.back()
        self._changed()
        self.redraw()

    def put(self, text: str) -> None:
        """Puts a text into the prompt, in front of what is there."""
        there = self.buffer.text
        self.buffer.text = f"{text}\n{there}" if there else text
        self.buffer.cursor_position = len(self.buffer.text)

    def keep(self, text: str) -> None:
        """Keeps a text for the prompt until nothing is asked any more."""
        self._draft = f"{self._draft or ''}{text}"

    def take_back(self) -> None:
        """Puts what waits and was said last into the prompt."""
        self.put(self.client.conversation.take_back() or "")

    def edit(self) -> None:
        """Opens the prompt in the person's editor, pastes and all."""
        self.buffer.text = encodable(self._pastes.whole(self.buffer.text))
        self.screen.away = True
        task = self.buffer.open_in_editor()
        task.add_done_callback(self._edited)

    def leave(self, code: int = 0) -> None:
        """Ends the client."""
        if self._inline.is_running and self._inline.future is not None and not self._inline.future.done():
            self._inline.exit(result=code)

    # What the screen writes on

    def print_above(self, lines: Sequence[str]) -> None:
        """Puts finished lines above what is drawn."""
        self._inline.print_above(lines)

    def redraw(self) -> None:
        """Draws what is below again, soon."""
        self._inline.invalidate()

    def resized(self) -> None:
        """Draws anew for the size that the terminal has now."""
        self._inline.resized()

    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        size: Size = self._output.get_size()
        return size.columns, size.rows

    def ring(self, why: str) -> None:
        """Calls the person, as the settings say."""
        if not self._inline.is_running:
            return
        match self.client.parts.settings.notify:
            case "auto" if shows_notices(os.environ):
                self._output.write_raw(f"\x1b]9;treadle: {why}\x07")
                self._output.flush()
            case "auto" | "bell":
                self._output.bell()

    # What is drawn

    def _live(self) -> list[str]:
        return [] if self.asking.question is not None else self.screen.live()

    def _queue(self) -> list[str]:
        if self.asking.question is not None and self.size()[1] < ROOMY:
            return []
        width = max(4, self.size()[0] - 1)
        return [one_line(f"waits: {self._pastes.shown(text)}", width) for text in self.client.conversation.queue[-3:]]

    def _status(self) -> list[str]:
        return [] if self.asking.question is not None and self.size()[1] < LOW else self.screen.status()

    def _question(self) -> list[str]:
        """The question, in the rows that the other parts leave to it."""
        if self.asking.question is None:
            return []
        columns, rows = self.size()
        prompt = prompt_rows(self._pastes.shown(self.buffer.text), columns)
        return self.asking.lines(rows - prompt - len(self._queue()) - len(self._status()), columns)

    def _preview(self, question: Question, width: int) -> list[str]:
        return self.screen.view.approval(question.request.name, question.request.args, width, change=question.preview)

    def _sign(self) -> str:
        return {"choice": "?", "rule": "?", "reason": "!"}.get(self.asking.stage, ">")

    def _changed(self) -> None:
        parts = self.client.parts
        self.screen.view.model = parts.agents.model
        self.screen.view.mode = parts.rules.mode
        self.screen.view.window = parts.agents.window
        self.screen.view.context = self.client.context_tokens or None
        if self._reasoning and self.asking.stage != "reason":
            self._reasoning = False
            self.buffer.reset()
        if self.asking.question is None:
            if self._draft is not None:
                draft, self._draft = self._draft, None
                self.put(draft)
        elif (seconds := self.asking.seconds_left) > 0:
            if self._rung_for is not self.asking.question:
                self._rung_for = self.asking.question
                self.ring("a call waits for you")
            asyncio.get_running_loop().call_later(seconds, self._arm)

    def _arm(self) -> None:
        """The question can be answered now: what was being typed is kept for later. Not while it is being typed."""
        if (seconds := self.asking.seconds_left) > 0:
            asyncio.get_running_loop().call_later(seconds, self._arm)
            return
        if self.asking.stage == "choice" and self.buffer.text and self._draft is None:
            self._draft = self.buffer.text
            self.buffer.reset()
        self.redraw()

    def _take(self, say: Callable[[str], None]) -> None:
        text = self.buffer.text = encodable(self.buffer.text)
        self.buffer.reset(append_to_history=bool(text.strip()))
        say(text)

    def _edited(self, task: asyncio.Task[None]) -> None:
        self.screen.away = False
        if not task.cancelled() and isinstance(task.exception(), UnicodeError):
            self.screen.error("what the editor wrote is not UTF-8 text; the prompt is as it was before")
        self.buffer.text = self._pastes.fold(self.buffer.text.removesuffix("\n"))
        self.buffer.cursor_position = len(self.buffer.text)
        self.screen.flush()

    # How it is left

    async def _leave_when_asked(self) -> None:
        await self.client.leaving.wait()
        self.leave()

    def _failed(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """An error of the client itself costs a line, and not the conversation."""
        error = context.get("exception")
        self.screen.error(f"{type(error).__name__}: {error}" if error is not None else str(context.get("message")))

    @contextlib.contextmanager
    def _signals(self, loop: asyncio.AbstractEventLoop, signals: Signals | None) -> Iterator[None]:
        """Leaves in order at a signal that would end the program, and when the terminal is gone.

        That a second one ends a loop that is blocked is up to `signals`.
        """
        if isinstance(self._output, SteadyOutput):
            self._output.on_gone = lambda: self.leave(128 + signal.SIGHUP)
        if signals is not None:
            signals.on_first = lambda: loop.call_soon_threadsafe(self.leave, signals.code)
        handlers: dict[int, Callable[[], object]] = {
            signal.SIGHUP: partial(self.leave, 128 + signal.SIGHUP),
            signal.SIGCONT: self._inline.continued,
        }
        before = {number: signal.getsignal(number) for number in handlers}
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler)
        try:
            yield
        finally:
            for number, old in before.items():
                loop.remove_signal_handler(number)
                signal.signal(number, old)
            if signals is not None:
                signals.on_first = None
