"""The lower edge of the terminal: lines go up into its scrollback for good, and only what is below is drawn again."""

from __future__ import annotations

import termios
from typing import TYPE_CHECKING, Any

from prompt_toolkit.application import Application
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.utils import get_cwidth

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping, Sequence

_TOGETHER, _DONE = "\x1b[?2026h", "\x1b[?2026l"  # synchronized output, which other terminals ignore
# Terminals that wrap the rows on their screen anew when they become narrower, by a variable that they set.
_REFLOWING = ("TMUX", "VTE_VERSION", "KITTY_WINDOW_ID", "ALACRITTY_WINDOW_ID", "WT_SESSION", "WEZTERM_PANE")
_REFLOWING_PROGRAMS = ("iTerm.app", "Apple_Terminal", "vscode", "WezTerm", "ghostty")

_NOTIFYING = ("iTerm.app", "WezTerm", "ghostty")


class SteadyOutput(Vt100_Output):
    """An output that may be held, so that what belongs together reaches the terminal at once.

    A terminal that is gone takes nothing more, and `on_gone` is called.
    """

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.on_gone: Callable[[], object] = lambda: None
        self._held = False
        self._gone = False

    def hold(self) -> None:
        """Keeps everything until `release`."""
        if not self._held:
            self._held = True
            self.write_raw(_TOGETHER)

    def release(self) -> None:
        """Lets everything through."""
        if self._held:
            self._held = False
            self.write_raw(_DONE)
            self.flush()

    def flush(self) -> None:
        """Writes, unless it is held."""
        if self._held:
            return
        if self._gone:
            self._buffer.clear()
            return
        try:
            super().flush()
        except OSError:
            self._gone = True
            self.on_gone()


class Inline(Application[int]):
    """An application that is drawn below the lines it prints, and leaves nothing else behind.

    After a change of the terminal's size nothing is drawn for `quiet_seconds`, in case that it is not the last one.
    """

    def __init__(self, *, reflows: bool, quiet_seconds: float = 0.0, **options: Any) -> None:
        super().__init__(full_screen=False, erase_when_done=True, **options)
        self._reflows = reflows
        self._quiet_seconds = quiet_seconds
        self._quiet: asyncio.TimerHandle | None = None
        self._waiting: list[str] = []
        self._width = 0  # of what is drawn
        self.before_render += self._adapt
        self.after_render += lambda _: self.settle()

    def print_above(self, lines: Sequence[str]) -> None:
        """Puts finished lines, SGR sequences and all, above what is drawn. Nothing ever takes them back."""
        if self._quiet is not None and self.is_running:
            self._waiting += lines
            return
        lines, self._waiting = [*self._waiting, *lines], []
        if not lines:
            return
        output = self.output
        if isinstance(output, SteadyOutput) and self.is_running:
            output.hold()
        if self.is_running:
            self._adapt()
            self.renderer.erase()
        for line in lines:
            output.write_raw(f"{line}\x1b[0m\r\n" if "\x1b" in line else f"{line}\r\n")
        if self.is_running:
            self.invalidate()
        output.flush()

    def settle(self) -> None:
        """Lets through what is held."""
        if isinstance(self.output, SteadyOutput):
            self.output.release()

    def resized(self) -> None:
        """The terminal has another size."""
        if self.context is not None:
            self.context.copy().run(self._on_resize)

    def continued(self) -> None:
        """The process was stopped and goes on: draws anew where the terminal was somebody else's meanwhile."""
        if self.is_running and not self._running_in_terminal and _reads_lines(self.input.fileno()):
            self.input.raw_mode().__enter__()  # left with the one that the application is in
            self.renderer.reset()
            self.invalidate()

    def _on_resize(self) -> None:
        """Draws anew, once the size stays as it is. The library calls this."""
        if self._quiet is not None:
            self._quiet.cancel()
        if self._quiet_seconds and self.loop is not None:
            self._quiet = self.loop.call_later(self._quiet_seconds, self._resize)
        else:
            self._resize()

    def _resize(self) -> None:
        self._quiet = None
        if self.is_running:
            self._adapt()
            super()._on_resize()
            self.print_above([])

    def _redraw(self, render_as_done: bool = False) -> None:  # noqa: FBT001, FBT002 - the library's signature
        if self._quiet is None or render_as_done:
            super()._redraw(render_as_done)

    def _adapt(self, _: object = None) -> None:
        """In a terminal of another width, erases what is drawn, as far up as that has wrapped it anew."""
        width = self.output.get_size().columns
        if width != self._width:
            if self._reflows and width < self._width:
                self.output.cursor_up(self._rows_more(width))
            self.renderer.erase()
            self._width = width

    def _rows_more(self, width: int) -> int:
        """How many rows more what is above the cursor takes in a terminal that has become narrower."""
        screen = self.renderer.last_rendered_screen
        if screen is None:
            return 0
        cursor = screen.get_cursor_position(self.layout.current_window)
        more = cursor.x // width
        for row in range(cursor.y):
            cells = [
                column + get_cwidth(cell.char) for column, cell in screen.data_buffer[row].items() if cell.char != " "
            ]
            more += max(0, -(-max(cells, default=0) // width) - 1)
        return more


def _reads_lines(descriptor: int) -> bool:
    """Whether a terminal is as a shell wants it."""
    try:
        return bool(termios.tcgetattr(descriptor)[3] & termios.ICANON)
    except (OSError, termios.error):
        return False


def quiet_seconds(environ: Mapping[str, str]) -> float:
    """How long a size has to last. tmux tells of one up to a quarter of a second after it has changed its rows."""
    return 0.3 if "TMUX" in environ else 0.0


def reflows(environ: Mapping[str, str]) -> bool:
    """Whether the terminal is one that wraps its rows anew. Of others it is not known, and none is assumed."""
    return any(name in environ for name in _REFLOWING) or environ.get("TERM_PROGRAM") in _REFLOWING_PROGRAMS


def shows_notices(environ: Mapping[str, str]) -> bool:
    """Whether the terminal shows a notice by OSC 9; a multiplexer in between keeps it to itself."""
    return "TMUX" not in environ and environ.get("TERM_PROGRAM") in _NOTIFYING
