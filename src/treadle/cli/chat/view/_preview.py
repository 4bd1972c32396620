"""What a call would do, shown before somebody decides on it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from treadle.approval import visible
from treadle.cli.calls import COMMAND
from treadle.cli.chat.view._cells import wrap
from treadle.cli.chat.view._describe import arguments
from treadle.cli.chat.view._outcome import diff
from treadle.cli.terminal import one_line

if TYPE_CHECKING:
    from treadle.cli.chat.view._cells import Line


def preview(name: str, args: str, change: str, width: int) -> list[Line]:
    """All of it: the diff of a change with its counts, a command as it would run, or the arguments of another call."""
    given = arguments(args, len(args))
    if name == COMMAND and given is not None and isinstance(given.get("command"), str):
        lines = wrap([("dim", "$ "), ("strong", visible(given.pop("command")))], width, words=False)
        rest = wrap([("dim", json.dumps(given, ensure_ascii=True))], width, words=False) if given else []
        return [*lines, *rest]
    head: Line = [("tool", visible(one_line(name)))]
    if given is not None and isinstance(given.get("path"), str):
        head.append(("", " " + visible(given["path"]).replace("\n", "\\n")))
    added, removed, lines = diff(visible(change), width)
    if lines:
        return [*wrap([*head, ("added", f" +{added}"), ("removed", f" -{removed}")], width), *lines]
    told = wrap([("", visible(change))], width) if change else []
    text = args if given is None else json.dumps(given, ensure_ascii=False, indent=2)
    text = visible(text).replace("\\n", "\\n\n")  # a line of an argument is a line here
    return [*wrap(head, width), *told, *wrap([("", text)], width, words=False)]


def exact(text: str, width: int) -> list[str]:
    """`text` in rows of at most `width` cells, with nothing in it that is not seen."""
    return ["".join(piece for _, piece in line) for line in wrap([("", visible(text))], max(1, width), words=False)]
