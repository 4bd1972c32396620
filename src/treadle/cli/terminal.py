"""What a person sees: the answer on standard output, everything else on standard error."""

from __future__ import annotations

import contextlib
import io
import sys
import time
from json import dumps
from typing import TYPE_CHECKING, NamedTuple, TextIO

from treadle.errors import ConfigError
from treadle.events import (
    Compaction,
    ModelFinish,
    ModelRetry,
    RunFinish,
    StepFinish,
    TextDelta,
    ToolFinish,
    ToolProgress,
    ToolStart,
    encode_event,
)
from treadle.usage import StopReason, Usage

if TYPE_CHECKING:
    from treadle.cli.calls import Calls
    from treadle.events import Event
    from treadle.messages import ModelRef

MAX_LINE = 200
LONGEST = 2000  # of what is not only a glimpse
MAX_LINES = 40
# Control characters steer a terminal, and the bidirectional ones reorder what is read; models, tools and files may
# hold any. A carriage return goes: shown it would mark every line of some files, obeyed it would overwrite one.
_VISIBLE = {code: f"\\x{code:02x}" for code in (*range(32), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}
_VISIBLE |= {
    code: f"\\u{code:04x}" for code in (0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
}
_VISIBLE[ord("\r")] = ""


def neutral(text: str) -> str:
    """`text` with nothing in it that a terminal would obey, except line ends and tabs."""
    return text if text.isprintable() else text.translate(_VISIBLE)


def one_line(text: str, longest: int = MAX_LINE) -> str:
    """`text` as one neutral line of at most `longest` characters."""
    line = neutral(" ".join(text[: longest * 4].split()))
    return line if len(line) <= longest else line[: longest - 3] + "..."


def some_lines(text: str, longest: int = MAX_LINE) -> list[str]:
    """The lines of `text`, neutral and cut at `longest`; of more than `MAX_LINES` the first and the last ones."""
    lines = text.removesuffix("\n").split("\n")
    if len(lines) > MAX_LINES:
        half = MAX_LINES // 2
        lines = [*lines[:half], f"[... {len(lines) - 2 * half} lines ...]", *lines[-half:]]
    return [line if len(line) <= longest else f"{line[: longest - 3]}..." for line in map(neutral, lines)]


def say(line: str) -> None:
    """Prints a line on standard error, if there is one."""
    show([one_line(line, LONGEST)])


def show(lines: list[str]) -> None:
    """Prints neutral lines on standard error, if there is one."""
    with contextlib.suppress(OSError, ValueError):
        print("\n".join(lines), file=sys.stderr, flush=True)


def at_a_terminal() -> bool:
    """Whether somebody reads what is said, and can type an answer."""
    streams = (sys.stdin, sys.stderr)
    return all(stream is not None and stream.isatty() for stream in streams)


def complain(message: str, code: int = 1) -> int:
    """Prints an error as one line, and returns `code`."""
    say(f"treadle: {message}")
    return code


class Cost(NamedTuple):
    """US dollars. `estimated`: by a price list. `partial`: of some requests it is not known."""

    usd: float
    estimated: bool = False
    partial: bool = False

    def __str__(self) -> str:
        about, unsure = "~" * self.estimated, " (estimate)" * self.estimated
        return f"{'at least ' * self.partial}{about}${self.usd:.4f}{unsure}"


class Tally:
    """The summary of a run, from its events: also of one that is cut off before its `run_finish`.

    `listed_prices` says that the model is asked where its provider's list prices hold.
    """

    def __init__(self, *, listed_prices: bool = True) -> None:
        self._listed_prices = listed_prices
        self._started = time.monotonic()
        self._usage = Usage()
        self._unknown = False
        self._requests: list[tuple[Usage, ModelRef | None]] = []
        self._steps = 0
        self.stop: StopReason = StopReason.CANCELLED
        self.finished: bool = False
        self.limit: str | None = None

    def feed(self, event: Event) -> None:
        match event:
            case ModelFinish():
                self._usage += event.usage or Usage()
                self._unknown |= event.usage is None
                if event.usage is not None:
                    self._requests.append((event.usage, event.model))
            case Compaction(usage=Usage() as usage):
                self._usage += usage
            case StepFinish():
                self._steps = event.index + 1
            case RunFinish():
                self._usage, self._steps, self.stop, self.limit = event.usage, event.steps, event.stop, event.limit
                self.finished = True

    @property
    def usage(self) -> Usage:
        """What is counted so far."""
        return self._usage

    def cost(self, *, estimate: bool = True) -> Cost | None:
        """The cost so far, None where it is not known. An estimate, where the provider told none, may load a list."""
        if (told := self._usage.cost_usd) is not None:
            return Cost(told, partial=not self._usage.cost_complete)
        return self._estimate() if estimate and self._listed_prices else None

    def line(self, *, estimate: bool = True) -> str:
        """The whole summary. An estimate of the cost, where the provider told none, may load a price list."""
        seconds = time.monotonic() - self._started
        cost = self.cost(estimate=estimate)
        told = [] if cost is None else [str(cost)]
        parts = [f"{self._steps} step{'s' * (self._steps != 1)}", self._tokens(), *told, f"{seconds:.1f} s"]
        if not self.stop.complete:
            parts.append(f"stopped: {self.stop.value}" + (f" (limit: {self.limit})" if self.limit else ""))
        return ", ".join(parts)

    def _tokens(self) -> str:
        total = self._usage.total_tokens
        if self._unknown and not total:
            return "tokens unknown"
        return f"{'at least ' * self._unknown}{total:,} token{'s' * (total != 1)}"

    def _estimate(self) -> Cost | None:
        """By request, since prices may rise with the size of one. Nothing where a request's price is not known."""
        from treadle.pricing import estimate

        try:
            costs = [None if model is None else estimate(usage, model) for usage, model in self._requests]
        except ConfigError:  # the price list is an extra
            return None
        known = [cost for cost in costs if cost is not None]
        if not known or len(known) < len(costs):
            return None
        counted = sum(usage.total_tokens for usage, _ in self._requests)
        partly = self._unknown or counted < self._usage.total_tokens
        return Cost(sum(known), estimated=True, partial=partly)


class Screen:
    """Shows a run's events as they come."""

    def __init__(self, out: TextIO | None, calls: Calls, *, json: bool = False, listed_prices: bool = True) -> None:
        self._out = out
        self._calls = calls
        self._json = json
        self._tty = out is not None and out.isatty()
        self._in_line = False
        self._names: dict[str, str] = {}
        self._listed_prices = listed_prices
        self.tally: Tally = Tally(listed_prices=listed_prices)
        if isinstance(out, io.TextIOWrapper):
            out.reconfigure(errors="backslashreplace")

    def show(self, event: Event) -> None:
        """Raises `BrokenPipeError` when whoever reads standard output is gone."""
        self.tally.feed(event)
        if self._json:
            self._write(encode_event(event).decode() + "\n")
        match event:
            case TextDelta(text=text) if not self._json and text:
                self._write(neutral(text) if self._tty else text)
                self._in_line = not text.endswith("\n")
            case ModelFinish():
                self.end_line()
            case ModelRetry():
                self._note(f"attempt {event.attempt} failed, the next in {event.delay_seconds:.1f} s: {event.error}")
            case ToolStart():
                self._names[event.call_id] = event.name
                self._show(self._calls.begun(event))
            case ToolProgress():
                self._note(f"tool {self._names.get(event.call_id, '')}: {event.message}")
            case ToolFinish():
                self._show(self._calls.ended(event))

    def next_run(self) -> None:
        """What comes now is another run's, with a summary of its own."""
        self.tally = Tally(listed_prices=self._listed_prices)
        self._names.clear()

    def fault(self, text: str) -> None:
        """A line of the log that is no event: something that another program said could not be done."""
        self._write(dumps({"type": "error", "error": text}) + "\n")

    def end_line(self) -> None:
        """Ends the line that the answer is in, so that every answer ends with a newline."""
        if self._in_line:
            self._in_line = False
            self._write("\n")

    def _note(self, text: str) -> None:
        self._show([one_line(text)])

    def _show(self, lines: list[str]) -> None:
        if self._tty:
            self.end_line()
        show(lines)

    def _write(self, text: str) -> None:
        if self._out is not None:
            self._out.write(text)
            self._out.flush()
