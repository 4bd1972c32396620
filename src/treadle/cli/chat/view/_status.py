"""The status line: what is waited for, and what it has taken so far."""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.cli.chat.view._cells import clip, line_cells
from treadle.cli.chat.view._describe import amount, duration
from treadle.cli.terminal import Cost, Tally, one_line
from treadle.events import Compaction, ModelFinish, RunFinish, RunStart
from treadle.usage import Usage

if TYPE_CHECKING:
    from treadle.cli.chat.view._cells import Line
    from treadle.events import Event

_BETWEEN = " · "


class Spent:
    """Tokens and money of a conversation, of the runs before and of the one that goes on."""

    def __init__(self, *, listed_prices: bool) -> None:
        self._listed_prices = listed_prices
        self._tally: Tally | None = None
        self._before = Usage()
        self._costs: list[Cost] = []  # of the runs before
        self._unknown = False  # what one of them cost
        self._known: tuple[int, Cost | None] = (-1, None)
        self._requests = 0
        self.context: int | None = None  # tokens of the last request and its answer

    @property
    def usage(self) -> Usage:
        """All tokens so far."""
        return self._before if self._tally is None else self._before + self._tally.usage

    def feed(self, event: Event) -> None:
        """Counts what an event tells of."""
        if isinstance(event, RunStart):
            self._close()
            self._tally = Tally(listed_prices=self._listed_prices)
        if self._tally is None:
            return
        self._tally.feed(event)
        if isinstance(event, ModelFinish) and event.usage is not None:
            self.context = event.usage.total_tokens
        if isinstance(event, ModelFinish | RunFinish):
            self._requests += 1
        if isinstance(event, Compaction):
            self.context = None  # not known before the next request
        if isinstance(event, RunFinish):
            self._close()

    def cost(self) -> Cost | None:
        """What all runs cost, as far as that is known."""
        now = self._now()
        costs = [*self._costs, *([now] if now is not None else [])]
        if not costs:
            return None
        partial = self._unknown or any(cost.partial for cost in costs)
        return Cost(sum(cost.usd for cost in costs), any(cost.estimated for cost in costs), partial)

    def _now(self) -> Cost | None:
        """The cost of the run that goes on. Worked out once for each request, since prices are looked up in a list."""
        if self._tally is None:
            return None
        if self._known[0] != self._requests:
            self._known = (self._requests, self._tally.cost())
        return self._known[1]

    def _close(self) -> None:
        if self._tally is None:
            return
        self._before += self._tally.usage
        if (cost := self._now()) is not None:
            self._costs.append(cost)
        elif self._tally.usage.total_tokens:
            self._unknown = True
        self._tally = None


def status_line(doing: Line, *, model: str, mode: str, spent: Spent, window: int | None, width: int) -> Line:
    """One line. What does not fit is left out, the least important first."""
    usage = spent.usage
    read = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
    tokens = f"{amount(read)} in / {amount(usage.output_tokens)} out" if usage.total_tokens else ""
    # As shown, each with its rank: the highest goes first.
    parts: list[tuple[int, Line]] = [
        (0, doing),
        (1, [("warning" if mode == "yolo" else "", one_line(mode))]),
        (5, [("", one_line(model))]),
        (2, [("", _context(spent.context, window))]),
        (4, [("", tokens)]),
        (3, [("", _money(spent.cost()))]),
    ]
    parts = [(rank, line) for rank, line in parts if line_cells(line)]
    while len(parts) > 1 and _size(parts) > width:
        parts.remove(max(parts, key=lambda part: part[0]))
    line: Line = []
    for _, part in parts:
        line += [*([("dim", _BETWEEN)] if line else []), *part]
    return clip([(style or "dim", text) for style, text in line], width)


def waiting(spinner: str, what: str, seconds: float) -> Line:
    """What is waited for, and since when."""
    return [("running", f"{spinner} {what}"), ("", f" {duration(seconds)}")]


def _size(parts: list[tuple[int, Line]]) -> int:
    return sum(line_cells(line) for _, line in parts) + len(_BETWEEN) * (len(parts) - 1)


def _money(cost: Cost | None) -> str:
    """A cost in few signs; a tilde marks an estimate."""
    if cost is None:
        return ""
    least = ">" * cost.partial
    return f"{least}{'~' * cost.estimated}${cost.usd:.{2 if cost.usd >= 1 else 4}f}"


def _context(used: int | None, window: int | None) -> str:
    if used is None:
        return ""
    return f"context {min(999, round(100 * used / window))}%" if window else f"context {amount(used)}"
