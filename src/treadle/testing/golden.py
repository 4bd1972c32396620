"""Golden files: what came out once, was read by a person, and must come out again."""

from __future__ import annotations

import difflib
import os
from pathlib import Path

UPDATE_VARIABLE = "TREADLE_UPDATE_GOLDEN"
_SHOWN_LINES = 200


def assert_matches_golden(path: str | os.PathLike[str], data: bytes | str, *, update: bool | None = None) -> None:
    """Raises `AssertionError` with a diff unless the file at `path` holds exactly `data` (text as UTF-8).

    `update=True` writes the file instead; so do `pytest --update-golden` and `TREADLE_UPDATE_GOLDEN=1`. A missing file
    fails, so that no first result passes unread.
    """
    __tracebackhide__ = True
    file = Path(path)
    got = data.encode() if isinstance(data, str) else bytes(memoryview(data))  # bytes(3) would be three zeros
    if os.environ.get(UPDATE_VARIABLE) == "1" if update is None else update:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(got)
        return
    if not file.is_file():
        raise AssertionError(f"no golden file {file}: run pytest --update-golden to write it, then read it")
    if (expected := file.read_bytes()) != got:
        raise AssertionError(
            f"{file} differs; run pytest --update-golden if the new content is right\n{_diff(expected, got, str(file))}"
        )


def _diff(expected: bytes, got: bytes, name: str) -> str:
    """A unified diff from `expected` to `got`; one line for content that is not text."""
    try:
        before, after = _lines(expected), _lines(got)
    except UnicodeDecodeError:
        return _first_difference(expected, got)
    lines = list(difflib.unified_diff(before, after, name, "now", lineterm=""))
    if (left := len(lines) - _SHOWN_LINES) > 0:
        lines[_SHOWN_LINES:] = [f"... and {left} lines more"]
    return "\n".join(lines)


def _lines(content: bytes) -> list[str]:
    """The lines of a text, with what cannot be seen made visible."""
    lines = content.decode().replace("\r", "\\r").split("\n")
    last = lines.pop()
    return [*lines, f"{last}\\ (no newline at the end)"] if last else lines


def _first_difference(expected: bytes, got: bytes) -> str:
    pairs = zip(expected, got, strict=False)
    at = next((index for index, (one, two) in enumerate(pairs) if one != two), min(len(expected), len(got)))
    return (
        f"bytes differ from offset {at}: {expected[at : at + 16].hex(' ')!r} became {got[at : at + 16].hex(' ')!r}; "
        f"{len(expected)} bytes became {len(got)}"
    )
