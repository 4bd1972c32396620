"""The files of tool results, where a wire has no place for them inside of a result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from treadle.errors import UnsupportedError
from treadle.messages import FilePart, TextPart

if TYPE_CHECKING:
    from collections.abc import Callable

    from treadle.messages import ToolResultPart


def untaken(file: FilePart) -> str:
    """What is said of a file that the model cannot take: a run must not fail for what a tool found."""
    return f"[{file.name or 'a file'} of type {file.media_type}: this model cannot take it]"


def heading(result: ToolResultPart) -> str:
    """What stands before the files of `result` when they come behind it."""
    return f"[files of the result of {result.name}, call {result.call_id}]"


def taken(result: ToolResultPart, write_file: Callable[[FilePart], Any]) -> list[TextPart | FilePart]:
    """The files that `write_file` does not refuse, and words in the place of the others."""
    return [file if _fits(file, write_file) else TextPart(untaken(file)) for file in result.files]


def _fits(file: FilePart, write_file: Callable[[FilePart], Any]) -> bool:
    try:
        write_file(file)
    except UnsupportedError:
        return False
    return True
