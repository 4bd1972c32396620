"""The calls of a run: each a line while it runs, and what it came to when it has ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from treadle.cli.chat.view._cells import beside, clip, line_cells
from treadle.cli.chat.view._describe import amount, duration, named
from treadle.cli.chat.view._notes import retried
from treadle.cli.chat.view._outcome import indented, outcome
from treadle.cli.terminal import one_line
from treadle.events import (
    ApprovalRequest,
    ModelFinish,
    ModelRetry,
    RunFinish,
    StepStart,
    SubagentEvent,
    TextDelta,
    ToolCallDelta,
    ToolFinish,
    ToolProgress,
    ToolStart,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from treadle.cli.chat.view._cells import Line
    from treadle.events import Effect, Event

_SHOWN = 3  # characters of arguments from which on a call that is being written is worth a line


@dataclass
class _Call:
    name: Line
    started: float
    effect: Effect | None = None
    progress: str = ""
    inner: Running | None = None  # the calls of a sub-agent

    @property
    def label(self) -> str:
        return one_line("".join(text for style, text in self.name if style == "tool"), 30)


class Running:
    """What a run and its sub-agents are doing. `change` gives the diff of a call that has ended."""

    def __init__(self, change: Callable[[str], str]) -> None:
        self._change = change
        self._calls: dict[str, _Call] = {}
        self._asked: dict[str, Line] = {}
        self._written: dict[int, tuple[str, int]] = {}  # calls that the model is still writing: name and size
        self._doing = ""

    @property
    def names(self) -> list[str]:
        """The calls that run, in call order."""
        return [call.label for call in self._calls.values()]

    @property
    def since(self) -> float:
        """When the first of the calls that run began."""
        return min([call.started for call in self._calls.values()], default=0.0)

    @property
    def writing(self) -> bool:
        """Whether the model is writing a call."""
        return bool(self._written)

    @property
    def asking(self) -> bool:
        """Whether somebody has to decide on a call."""
        return bool(self._asked)

    def clear(self) -> None:
        """Forgets everything: the run has ended."""
        self._calls.clear()
        self._asked.clear()
        self._written.clear()

    def feed(self, event: Event, now: float, width: int) -> list[Line]:
        """The lines that are finished by an event."""
        match event:
            case ToolCallDelta():
                name, size = self._written.get(event.index, ("", 0))
                self._written[event.index] = (event.name or name, size + len(event.args))
            case ModelFinish() | ModelRetry() | StepStart():
                self._written.clear()
            case ApprovalRequest():
                self._asked[event.call_id] = named(event.name, event.args)
            case ToolStart():
                self._asked.pop(event.call_id, None)
                name_line = named(event.name, event.args, hosted=event.hosted)
                self._calls[event.call_id] = _Call(name_line, now, event.effect)
            case ToolProgress() if event.call_id in self._calls:
                self._calls[event.call_id].progress = _progress(event)
            case ToolFinish():
                return self._finished(event, width)
            case RunFinish():
                self.clear()
            case SubagentEvent():
                return self._within(event, now, width)
            case _:
                pass
        return []

    def live(self, now: float, width: int, spinner: str) -> list[Line]:
        """A line for each call that runs, is being written or waits for a decision, in this order."""
        lines: list[Line] = []
        for call in self._calls.values():
            progress: Line = [("dim", f" · {call.progress}")] if call.progress else []
            took: Line = [("dim", f" · {duration(now - call.started)}")]
            lines.append(beside([("running", f"{spinner} "), *call.name, *progress], took, width))
            if call.inner is not None:
                lines += indented(call.inner.inside(now, width - 2, spinner), width)
        for name, size in self._written.values():
            if size >= _SHOWN:
                words = f" is being written · {amount(size)} characters"
                lines.append(clip([("running", f"{spinner} "), ("tool", one_line(name)), ("dim", words)], width))
        lines += [
            beside([("warning", "? "), *name], [("dim", " · to be allowed")], width) for name in self._asked.values()
        ]
        return lines

    def inside(self, now: float, width: int, spinner: str) -> list[Line]:
        """The live lines of a sub-agent; where no call runs, what it does instead."""
        return self.live(now, width, spinner) or ([[("dim", self._doing)]] if self._doing else [])

    def _finished(self, event: ToolFinish, width: int) -> list[Line]:
        self._asked.pop(event.call_id, None)
        call = self._calls.pop(event.call_id, None)
        name = named(event.name, "") if call is None else call.name
        # The answer of a sub-agent is worth more than its size.
        effect = None if call is None or call.inner is not None else call.effect
        return outcome(name, event, effect, self._change(event.call_id), width)

    def _within(self, event: SubagentEvent, now: float, width: int) -> list[Line]:
        call = self._calls.get(event.call_id)
        if call is None:
            return []
        if call.inner is None:
            call.inner = Running(self._change)
        label: Line = [("dim", f"{call.label} › ")]
        room = width - line_cells(label) - 2
        if room < 10:
            label, room = [], max(1, width - 2)
        first, *rest = [*call.inner.notes(event.event, room), *call.inner.feed(event.event, now, room)] or [[]]
        return indented([[*label, *first], *([("", "  "), *line] for line in rest)], width) if first else []

    def notes(self, event: Event, width: int) -> list[Line]:
        """What else is shown of a sub-agent. Its answer is not: that is the result of its call."""
        match event:
            case StepStart():
                self._doing = "waits for the model"
            case TextDelta():
                self._doing = "writes its answer"
            case ModelRetry():
                return retried(event, width)
            case RunFinish() if not event.stop.complete:
                why = event.error or event.limit
                return [clip([("warning", f"stopped: {event.stop.value}{f': {one_line(why)}' if why else ''}")], width)]
            case _:
                pass
        return []


def _progress(event: ToolProgress) -> str:
    share = ""
    if event.progress is not None:
        share = f"{event.progress:g}" + (f"/{event.total:g}" if event.total else "")
    return " ".join(part for part in (share, one_line(event.message)) if part)
