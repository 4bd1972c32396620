"""What a call came to, folded: the change it made, the end of what a command printed, the beginning of a result."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from treadle.cli.calls import COMMAND
from treadle.cli.chat.view._cells import beside, clip, middle, wrap
from treadle.cli.chat.view._describe import counted, duration, lines_of
from treadle.cli.terminal import LONGEST, one_line
from treadle.events import Effect

if TYPE_CHECKING:
    from treadle.cli.chat.view._cells import Line, Span
    from treadle.events import ToolFinish
    from treadle.messages import ToolResultPart

_DIFF_LINES = 40
_OUTPUT_LINES = 5  # of a command
_RESULT_LINES = 3  # of other calls
_FAULT_LINES = 4
_DONE: Span = ("done", "✓ ")
_FAILED: Span = ("error", "✗ ")
# How a command ended stands in brackets behind what it printed.
_EXIT = re.compile(r"\n?\[((?:exit code|ended by|stopped:)[^\n]*)\]\s*\Z")
_HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")


class Told(NamedTuple):
    """A sign, a few words behind the name of the call, and lines below it."""

    sign: Span
    words: str
    lines: list[Line]


def outcome(name: Line, event: ToolFinish, effect: Effect | None, change: str, width: int) -> list[Line]:
    """The lines of a call that has ended. `change` is a unified diff, or nothing."""
    took: Line = [] if event.refused else [("dim", f" · {duration(event.duration_seconds)}")]
    told = tell(event.result, effect, change, width, refused=event.refused, failed=event.is_error)
    discarded: Line = [("warning", " · discarded")] if event.discarded else []
    words: Line = [("dim", f" · {told.words}")] if told.words else []
    return [beside([told.sign, *name], [*words, *discarded, *took], width), *indented(told.lines, width)]


def tell(
    result: ToolResultPart, effect: Effect | None, change: str, width: int, *, refused: bool, failed: bool
) -> Told:
    """What is said of a result."""
    if refused or (failed and result.name != COMMAND):
        return Told(_FAILED, "", _fault(result.content, "refused" if refused else "failed", width))
    if result.name == COMMAND:
        return _command(result.content, width)
    if change:
        added, removed, lines = diff(change, max(1, width - 2))
        return Told(
            _DONE, f"+{added} -{removed}" if lines else one_line(change), middle(lines, _DIFF_LINES, max(1, width - 2))
        )
    files = [counted(len(result.files), "file")] if result.files else []
    if effect is Effect.READ:
        return Told(
            _DONE, ", ".join([*([lines_of(result.content)] if result.content or not files else []), *files]), []
        )
    return Told(_DONE, ", ".join(files), _beginning(result.content, _RESULT_LINES))


def indented(lines: list[Line], width: int) -> list[Line]:
    """Lines set off from the one above them, as far as the width allows."""
    blank: Line = [("", "  ")] if width >= 10 else []
    return [clip([*blank, *line], width) for line in lines]


def diff(text: str, width: int) -> tuple[int, int, list[Line]]:
    """A unified diff of one file: how many lines it adds and removes, and its lines without the names of the file."""
    added = removed = old = new = 0
    lines: list[Line] = []
    for line in text.split("\n"):
        sign = line[:1]
        if old <= 0 and new <= 0:  # else a line that begins like a name or a hunk is one of the file
            if (hunk := _HUNK.match(line)) is not None:
                old, new = (1 if count is None else int(count) for count in hunk.groups())
                lines += wrap([("dim", line)], width, words=False)
            continue
        added, removed = added + (sign == "+"), removed + (sign == "-")
        old, new = old - (sign != "+"), new - (sign != "-")
        lines += wrap([({"+": "added", "-": "removed"}.get(sign, ""), line)], width, words=False)
    return added, removed, lines


def _command(content: str, width: int) -> Told:
    found = _EXIT.search(content, max(0, len(content) - LONGEST))
    end = "" if found is None else found[1].partition(" after ")[0]
    output = (content if found is None else content[: found.start()]).strip("\n")
    lines = output.split("\n") if output else []
    shown: list[Line] = [[("dim", line[: 4 * width])] for line in lines[-_OUTPUT_LINES:]]
    if (before := len(lines) - _OUTPUT_LINES) > 0:
        shown.insert(0, [("dim", f"[... {counted(before, 'line')} before ...]")])
    return Told(_DONE if end in ("exit code 0", "") else _FAILED, end, shown)


def _fault(content: str, word: str, width: int) -> list[Line]:
    first, _, rest = content.strip().partition("\n")
    lines = wrap([("error", f"{word}: {one_line(first, LONGEST) or '(no reason given)'}")], max(1, width - 2))
    return [*lines[:_FAULT_LINES], *_beginning(rest, _FAULT_LINES - 1)]


def _beginning(text: str, most: int) -> list[Line]:
    text = text.strip("\n")
    lines = text.split("\n", most) if text.strip() else []
    shown: list[Line] = [[("dim", line[:LONGEST])] for line in lines[:most]]
    if len(lines) > most:
        shown.append([("dim", f"[... {counted(lines[most].count(chr(10)) + 1, 'more line')} ...]")])
    return shown
