"""How things look: names of styles, and the codes that a terminal takes for them."""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from treadle.cli.chat.view._cells import plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from treadle.cli.chat.view._cells import Line, Span

Theme: TypeAlias = Literal["dark", "light", "none"]
_SHARED = {
    "dim": "2",
    "strong": "1",
    "emphasis": "3",
    "strike": "9",
    "url": "2",
    "bullet": "2",
    "added": "32",
    "removed": "31",
    "done": "32",
    "tool": "1",
    "comment": "2;3",
    "string": "32",
    "keyword": "35",
    "number": "36",
}
# The sixteen colours of a terminal are its owner's choice, so most names need no more than the sense of one. What is
# hard to read on one of the two grounds differs.
_DARK = {
    "heading": "1;96",
    "code": "96",
    "link": "4;94",
    "user": "1;94",
    "error": "91",
    "warning": "93",
    "running": "96",
    "function": "94",
    "type": "93",
}
_LIGHT = {
    "heading": "1;34",
    "code": "34",
    "link": "4;34",
    "user": "1;34",
    "error": "31",
    "warning": "35",
    "running": "34",
    "function": "34",
    "type": "36",
}
_CODES = {"dark": _SHARED | _DARK, "light": _SHARED | _LIGHT}
_LIGHT_GROUNDS = ("7", "15")  # of the sixteen colours
_DOTS = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_STROKES = "|/-\\"


def choose_theme(setting: str, environ: Mapping[str, str]) -> Theme:
    """The theme for a terminal: none where colours are not wanted or not known, else `setting`, which may be "auto".

    What is not told is taken for dark; terminals that set COLORFGBG tell.
    """
    if environ.get("NO_COLOR") or environ.get("TERM", "dumb") in ("dumb", "unknown", ""):
        return "none"
    for theme in get_args(Theme):
        if setting == theme:
            return theme  # type: ignore[no-any-return]
    ground = environ.get("COLORFGBG", "").rpartition(";")[2]
    return "light" if ground in _LIGHT_GROUNDS else "dark"


class Paint:
    """Makes text of lines: the only place where codes for a terminal are written."""

    coloured: bool

    def __init__(self, theme: Theme) -> None:
        self.coloured = theme != "none"
        self._codes = _CODES.get(theme, {})
        self._known: dict[str, str] = {}
        self._frames = _DOTS if self.coloured else _STROKES

    def __call__(self, lines: Iterable[Line]) -> list[str]:
        """Each line as text. A style is reset where it ends, so that a line stands for itself."""
        return ["".join(self._span(style, spans) for style, spans in groupby(line, itemgetter(0))) for line in lines]

    def spinner(self, now: float) -> str:
        """What turns while something goes on; `now` is in seconds."""
        return self._frames[int(now * 10) % len(self._frames)]

    def _span(self, style: str, spans: Iterable[Span]) -> str:
        text = "".join(text for _, text in spans)
        if not text.isprintable():
            text = plain(text).replace("\n", " ")  # once more: nothing that was made on the way gets around it
        if not self.coloured or not style or not text:
            return text
        code = self._known.get(style)
        if code is None:
            code = self._known[style] = ";".join(self._codes[name] for name in style.split() if name in self._codes)
        return f"\x1b[{code}m{text}\x1b[0m" if code else text
