"""What a call would do, shown before somebody decides on it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from treadle.cli.calls import COMMAND
from treadle.cli.chat.view._cells import middle, wrap
from treadle.cli.chat.view._describe import arguments
from treadle.cli.chat.view._outcome import diff
from treadle.cli.terminal import one_line

if TYPE_CHECKING:
    from treadle.cli.chat.view._cells import Line

_LINES = 400  # more than anybody looks through; what is left out is told, in colour


def preview(name: str, args: str, change: str, width: int) -> list[Line]:
    """The diff of a change with its counts, a command as it would run, or the arguments of any other call."""
    given = arguments(args)
    if name == COMMAND and given is not None and isinstance(given.get("command"), str):
        lines = wrap([("dim", "$ "), ("strong", _visible(given.pop("command")))], width, words=False)
        rest = wrap([("dim", json.dumps(given, ensure_ascii=True))], width, words=False) if given else []
        return _whole([*lines, *rest], width)
    head: Line = [("tool", one_line(name))]
    if given is not None and isinstance(given.get("path"), str):
        head.append(("", f" {one_line(given['path'])}"))
    if change:
        added, removed, lines = diff(change, width)
        counts: Line = [("added", f" +{added}"), ("removed", f" -{removed}")]
        if lines:
            return [*wrap([*head, *counts], width), *_whole(lines, width)]
        return [*wrap(head, width), *_whole(wrap([("", change)], width), width)]
    text = args if given is None else json.dumps(given, ensure_ascii=False, indent=2)
    return [*wrap(head, width), *_whole(wrap([("", _visible(text))], width, words=False), width)]


def _visible(text: str) -> str:
    """`text` with everything escaped that is not printed as what it is: what is allowed must be what runs."""
    return "".join(char if char.isprintable() or char in "\n\t" else ascii(char)[1:-1] for char in text)


def _whole(lines: list[Line], width: int) -> list[Line]:
    return middle(lines, _LINES, width, "warning")
