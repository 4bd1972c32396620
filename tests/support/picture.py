"""Screens as they go into golden files and into the docs: as text, and as an SVG drawn from the same cells."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections.abc import Iterator
from html import escape
from pathlib import Path

from pyte.screens import Char
from wcwidth import wcswidth

from support.emulator import Emulator
from support.terminal import Terminal
from treadle.testing import assert_matches_golden

# What differs from run to run, and what stands for it; of the same length, so that columns stay where they are.
_VARIES = [
    (re.compile(r"[⠀-⣿]"), "⠋"),  # the spinner
    (re.compile(r"\b\d+(\.\d+) ?(m?s)\b"), lambda found: re.sub(r"\d", "0", found[0])),
    (re.compile(r"(?<![\d.])\d+ s\b"), "0.0 s"),  # ten seconds and more have no fraction: a machine may be that busy
    (re.compile(r"\b\d{8}-\d{6}-[0-9a-f]{6}\b"), "20261130-120000-abcdef"),
]
_WIDE, _HIGH, _SIZE = 9, 20, 15  # pixels: a cell, and its letters
_COLOURS = {
    "default": "#d8dee9", "black": "#3b4252", "red": "#e06c75", "green": "#98c379", "brown": "#e5c07b",
    "blue": "#61afef", "magenta": "#c678dd", "cyan": "#56b6c2", "white": "#d8dee9",
    "brightblack": "#7f8796", "brightred": "#ff7a85", "brightgreen": "#b5e890", "brightbrown": "#ffd98a",
    "brightyellow": "#ffd98a", "brightblue": "#80c8ff", "brightmagenta": "#e096f5", "bfightmagenta": "#e096f5",
    "brightcyan": "#78d6e2", "brightwhite": "#ffffff",
}  # fmt: skip
_GROUND = "#1e222a"


def tidy(line: str) -> str:
    """`line` with the same in place of what is never the same."""
    for pattern, stands in _VARIES:
        line = pattern.sub(stands, line)
    return line


def page(text: str) -> str:
    """A text with the rulers of a golden file: trailing blanks would be lost, and nobody would see them."""
    return "".join(f"{tidy(line).rstrip()}\n" for line in text.split("\n"))


def shows(terminal: Terminal, golden: Path, *, drawing: bool = False) -> None:
    """Waits until the text of `terminal` is that of the golden file. With `drawing` an SVG lies beside it."""
    if os.environ.get("TREADLE_UPDATE_GOLDEN") == "1":
        terminal.rests()
    elif golden.is_file():
        wanted = golden.read_text(encoding="utf-8")
        with contextlib.suppress(AssertionError):
            terminal.wait(lambda: page(terminal.text) == wanted, str(golden), bound=10)
    assert_matches_golden(golden, page(terminal.text))
    if drawing:
        assert_matches_golden(golden.with_suffix(".svg"), drawn(terminal.screen))


def drawn(screen: Emulator) -> str:
    """The screen as an SVG, down to its last line."""
    rows = len(screen.text())
    width, height = screen.columns * _WIDE + 24, rows * _HIGH + 24
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">',
        f'<rect width="{width}" height="{height}" rx="8" fill="{_GROUND}"/>',
        f'<g font-family="ui-monospace, Menlo, Consolas, monospace" font-size="{_SIZE}" xml:space="preserve">',
        *(part for y in range(rows) for part in _row(screen, y)),
        "</g>",
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _row(screen: Emulator, y: int) -> Iterator[str]:
    cells = screen.cells(y)
    line = "".join(cell.data for cell in cells)
    if len(line) == len(cells):  # else a character is joined of several, and such lines do not vary
        cells = [cell._replace(data=data) for cell, data in zip(cells, tidy(line), strict=True)]
    column = 0
    for style, group in itertools.groupby(cells, lambda cell: cell._replace(data="")):
        text = "".join(cell.data for cell in group)
        width = max(0, wcswidth(text))
        yield from _run(text, style, column, width, y)
        column += width


def _run(text: str, style: Char, column: int, width: int, y: int) -> Iterator[str]:
    left, top, long = 12 + column * _WIDE, 12 + y * _HIGH, width * _WIDE
    ink, ground = _colour(style.fg, _COLOURS["default"]), _colour(style.bg, _GROUND)
    if style.reverse:
        ink, ground = ground, ink
    if ground != _GROUND:
        yield f'<rect x="{left}" y="{top}" width="{long}" height="{_HIGH}" fill="{ground}"/>'
    if not text.strip():
        return
    looks = "".join(
        f' {name}="{value}"'
        for name, value, on in (
            ("font-weight", "bold", style.bold),
            ("font-style", "italic", style.italics),
            ("opacity", "0.6", style.blink),  # faint, see the emulator
            ("text-decoration", "underline", style.underscore),
            ("text-decoration", "line-through", style.strikethrough and not style.underscore),
        )
        if on
    )
    yield (
        f'<text x="{left}" y="{top + _SIZE}" textLength="{long}" lengthAdjust="spacingAndGlyphs" fill="{ink}"{looks}>'
        f"{escape(text)}</text>"
    )


def _colour(name: str, default: str) -> str:
    if name == "default":
        return default
    return _COLOURS.get(name) or f"#{name}"
