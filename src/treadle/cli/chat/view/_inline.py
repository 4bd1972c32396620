"""Emphasis, code and links within a paragraph, parsed by markdown-it."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from treadle.cli.chat.view._cells import Line

_LONGEST = 10_000  # characters; nobody writes longer paragraphs, and a parser may be slow with made-up ones
_MOST_BRACKETS = 500  # each of which the parser looks for the other one of
_STYLES = {"strong": "strong", "em": "emphasis", "s": "strike"}
_MARKS = {"strong": "**", "em": "*", "s": "~~"}
_SPECIAL = frozenset("\\`*_~[]<>&!")


def inline(text: str, style: str = "", *, marks: bool = False) -> Line:
    """Markdown text as spans; line ends stay. `marks` keeps the signs of emphasis and code, where no colour tells."""
    if len(text) > _LONGEST or _SPECIAL.isdisjoint(text) or text.count("[") > _MOST_BRACKETS:
        return [(style, text)]
    made = _Inline(style, marks=marks)
    made.add(_parser().parseInline(text)[0].children or ())
    return made.spans


@functools.cache
def _parser() -> Any:
    from markdown_it import MarkdownIt

    # HTML is text here: what is not shown might hide something.
    return MarkdownIt("commonmark", {"html": False}).enable("strikethrough")


class _Inline:
    def __init__(self, style: str, *, marks: bool) -> None:
        self.spans: Line = []
        self._styles = [style] if style else []
        self._marks = marks
        self._links: list[tuple[str, int]] = []  # where each open link leads, and the span that it begins with

    def add(self, tokens: Iterable[Any]) -> None:
        for token in tokens:
            if token.type in ("softbreak", "hardbreak"):
                self._put("\n")
            elif token.type == "code_inline":
                self._put(f"`{token.content}`" if self._marks else token.content, "code")
            elif token.type == "link_open":
                self._links.append((str(token.attrs.get("href", "")), len(self.spans)))
                self._styles.append("link")
            elif token.type == "link_close":
                self._close_link()
            elif token.type == "image":
                self._put(f"[image: {token.content}] ({token.attrs.get('src', '')})", "link")
            elif token.type.endswith(("_open", "_close")):
                self._emphasis(token)
            else:
                self._put(token.content)

    def _put(self, text: str, style: str = "") -> None:
        if text:
            self.spans.append((" ".join([*self._styles, *([style] if style else [])]), text))

    def _emphasis(self, token: Any) -> None:
        mark = _MARKS.get(token.tag, "") if self._marks else ""
        if token.type.endswith("_open"):
            self._put(mark)
            self._styles.append(_STYLES.get(token.tag, ""))
        else:
            self._styles.pop()
            self._put(mark)

    def _close_link(self) -> None:
        """Where a link leads is shown: its text may name another place."""
        self._styles.pop()
        href, begin = self._links.pop()
        text = "".join(text for _, text in self.spans[begin:])
        if href not in (text, f"mailto:{text}", ""):
            self._put(f" ({href})", "url")
