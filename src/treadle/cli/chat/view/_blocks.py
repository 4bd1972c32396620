"""Markdown while it is written: lines in, finished lines out.

The blocks are those of CommonMark as far as a terminal shows them: paragraphs, headings, lists, quotes, code, tables
and rules. A paragraph or a table is finished when the next block begins or an empty line comes; code goes out in
pieces. What stands in lists and quotes is treated alike, so that nothing waits for a whole list. References to links
that are defined elsewhere stay as they were written.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from treadle.cli.chat.view._cells import plain, wrap
from treadle.cli.chat.view._code import Code
from treadle.cli.chat.view._inline import inline
from treadle.cli.chat.view._signs import (
    FENCE,
    HEADING,
    ITEM,
    QUOTE,
    RULE,
    UNDERLINE,
    Container,
    begins_block,
    begins_list,
    ending,
    item,
    without_closing,
)
from treadle.cli.chat.view._table import begins_table, table

if TYPE_CHECKING:
    import re

    from treadle.cli.chat.view._cells import Line

_DEEPEST = 16  # containers within each other
_MOST_LINES = 100  # of a paragraph; what goes on is no prose, and somebody waits to see it
_MOST = 10_000  # characters of a table, for the same reason
_LEAST = 10  # cells for text; containers give way to it


@dataclass
class _Leaf:
    """What lines are being collected for."""

    kind: Literal["paragraph", "table", "fence", "indented"]
    lines: list[str] = field(default_factory=list)
    code: Code | None = None
    fence: str = ""
    indent: int = 0

    def last(self, most: int) -> list[str]:
        """The lines at the end, of about `most` characters, behind the head of a table."""
        head = 2 if self.kind == "table" else 0
        size, begin = 0, len(self.lines)
        while begin > head and size <= most:
            begin -= 1
            size += len(self.lines[begin]) + 1
        return self.lines[:head] + [ending(line, most) for line in self.lines[begin:]]

    def full(self) -> bool:
        """Whether it is to be shown before it has ended."""
        return len(self.lines) >= _MOST_LINES or (self.kind == "table" and sum(map(len, self.lines)) >= _MOST)


class Blocks:
    """Takes the lines of a Markdown text one by one. `marks` keeps the signs of emphasis, where no colour tells."""

    def __init__(self, *, marks: bool = False) -> None:
        self._marks = marks
        self._containers: list[Container] = []
        self._leaf: _Leaf | None = None
        self._blank: int | None = None  # how many quotes the last empty line stood in, if one came since the last block
        self._begun = False
        self._made: list[Line] = []

    def shorten(self, most: int) -> None:
        """Makes a shallow copy one that stands for itself, without what is far before its last `most` characters."""
        self._containers, self._made = list(self._containers), []
        if self._leaf is not None:
            self._leaf = replace(self._leaf, lines=self._leaf.last(most), code=copy.deepcopy(self._leaf.code))

    def line(self, text: str, width: int) -> list[Line]:
        """Takes a line without its end. The lines that are finished with it, in at most `width` cells."""
        self._take(plain(text), width)
        made, self._made = self._made, []
        return made

    def more(self, text: str, width: int) -> list[Line]:
        """Takes how the last line goes on, which is too long to be looked at whole: as text, whatever it looks like."""
        if self._leaf is None or self._leaf.code is None:
            self._flush(width)
            self._emit(self._cut([[("", plain(text))]], width), width)
        else:
            self._emit(self._cut(self._leaf.code.add(text), width), width)
        made, self._made = self._made, []
        return made

    def end(self, width: int) -> list[Line]:
        """The lines that are left."""
        self._close(0, width)
        made, self._made = self._made, []
        return made

    def _take(self, text: str, width: int) -> None:
        depth, rest = self._match(text)
        within = depth == len(self._containers)
        leaf = self._leaf
        if within and leaf is not None and leaf.code is not None and self._code(leaf, rest, width):
            return
        if not rest.strip():
            self._empty(depth, width)
            return
        closed = None
        if not within:
            if leaf is not None and leaf.kind == "paragraph" and not (ITEM.match(rest) or begins_block(rest)):
                self._go_on(leaf, rest, width)  # a paragraph may go on without the signs of what it is in
                return
            closed = self._containers[depth]
            self._close(depth, width)
        self._add(self._open(rest, closed, width), width)

    def _match(self, text: str) -> tuple[int, str]:
        """How many of the open containers the line goes on with, and what stands behind their signs."""
        for depth, container in enumerate(self._containers):
            if container.kind == ">":
                found = QUOTE.match(text)
                if found is None:
                    return depth, text
                text = text[found.end() :]
            elif not text.strip():
                text = ""
            elif len(text) - len(text.lstrip(" ")) >= container.indent:
                text = text[container.indent :]
            else:
                return depth, text
        return len(self._containers), text

    def _open(self, text: str, closed: Container | None, width: int) -> str:
        """Opens the containers that a line begins; what stands behind their signs."""
        while len(self._containers) < _DEEPEST and text.strip():
            if (found := QUOTE.match(text)) is not None:
                opened = Container("│ ")
            elif self._lists(text) and (found := ITEM.match(text)) is not None:
                opened = item(found, closed)
            else:
                break
            self._flush(width)
            self._containers.append(opened)
            text, closed = text[found.end() :], None
        return text

    def _lists(self, text: str) -> bool:
        if RULE.fullmatch(text) is not None:
            return False
        in_paragraph = self._leaf is not None and self._leaf.kind == "paragraph"
        return not in_paragraph or begins_list(text)

    def _empty(self, depth: int, width: int) -> None:
        quotes = sum(one.kind == ">" for one in self._containers[:depth])
        first = next((i for i in range(depth, len(self._containers)) if self._containers[i].kind == ">"), None)
        if first is not None:
            self._close(first, width)  # an empty line ends a quote; the items of a list may go on
        elif self._leaf is not None and self._leaf.kind == "indented":
            self._leaf.lines.append("")
            return
        self._flush(width)
        self._blank = quotes if self._blank is None else min(self._blank, quotes)

    def _add(self, text: str, width: int) -> None:
        """Adds what is left of a line to the leaf, or begins another one."""
        leaf = self._leaf
        if leaf is not None and leaf.kind == "paragraph" and self._continues(leaf, text, width):
            return
        if leaf is not None and leaf.kind == "table" and not begins_block(text):
            if leaf.full():
                self._flush(width)
                self._leaf = leaf = _Leaf("table", leaf.lines[:2])  # goes on below its head, shown once more
            leaf.lines.append(text)
            return
        if (fence := FENCE.fullmatch(text)) is not None:
            self._fence(fence, width)
        elif (heading := HEADING.fullmatch(text)) is not None:
            self._flush(width)
            self._emit_text(f"{heading[1]} ", without_closing(heading[2] or ""), width)
        elif RULE.fullmatch(text) is not None:
            self._flush(width)
            self._emit([[("dim", "─" * min(80, self._room(width)))]], width)
        elif text.startswith("    "):
            if leaf is None or leaf.kind != "indented" or (leaf.full() and leaf.lines[-1]):
                self._flush(width)
                self._leaf = leaf = _Leaf("indented")
            leaf.lines.append(text[4:])
        elif text.strip():
            self._flush(width)
            self._leaf = _Leaf("paragraph", [text.strip(" ")])

    def _continues(self, leaf: _Leaf, text: str, width: int) -> bool:
        if (line := UNDERLINE.fullmatch(text)) is not None:
            self._leaf = None
            self._emit_text("# " if line[1][0] == "=" else "## ", "\n".join(leaf.lines), width)
        elif begins_table(leaf.lines[-1], text):
            header = leaf.lines.pop()
            self._leaf = leaf if leaf.lines else None
            self._flush(width)
            self._leaf = _Leaf("table", [header, text])
        elif not begins_block(text):
            self._go_on(leaf, text, width)
        else:
            return False
        return True

    def _go_on(self, paragraph: _Leaf, text: str, width: int) -> None:
        if paragraph.full():
            self._flush(width)
            self._leaf = paragraph = _Leaf("paragraph")
        paragraph.lines.append(text.strip(" "))

    def _fence(self, found: re.Match[str], width: int) -> None:
        self._flush(width)
        self._emit(self._cut([[("dim", found[0].strip(" "))]], width), width)
        self._leaf = _Leaf("fence", code=Code(found[3]), fence=found[2], indent=len(found[1]))

    def _code(self, leaf: _Leaf, text: str, width: int) -> bool:
        """Takes a line of code. Its fence is closed by one of the same sign that is not shorter."""
        assert leaf.code is not None
        bare = text.strip()
        spaces = len(text) - len(text.lstrip(" "))
        if spaces < 4 and len(bare) >= len(leaf.fence) and not bare.strip(leaf.fence[0]):
            self._flush(width)
            return True
        self._emit(self._cut(leaf.code.add(text[min(spaces, leaf.indent) :]), width), width)
        return True

    def _flush(self, width: int) -> None:
        """Finishes the leaf."""
        leaf, self._leaf = self._leaf, None
        if leaf is None:
            return
        if leaf.code is not None:
            self._emit(self._cut([*leaf.code.end(), [("dim", leaf.fence)]], width), width)
        elif leaf.kind == "table":
            self._emit(table(leaf.lines, self._room(width), marks=self._marks), width)
        elif leaf.kind == "indented":
            kept = "\n".join(leaf.lines).rstrip("\n ").split("\n")
            self._emit(self._cut([[("code", line)] for line in kept], width), width)
            self._blank = 0 if len(kept) < len(leaf.lines) else None
        else:
            self._emit(wrap(inline("\n".join(leaf.lines), marks=self._marks), self._room(width)), width)

    def _close(self, depth: int, width: int) -> None:
        """Finishes the leaf and all containers but the first `depth`."""
        self._flush(width)
        while len(self._containers) > depth:
            if not all(one.shown or one.kind == ">" for one in self._containers[depth:]):
                self._emit([[]], width)  # an item without text
            self._containers.pop()

    def _cut(self, lines: list[Line], width: int) -> list[Line]:
        room = self._room(width)
        return [part for line in lines for part in wrap(line, room, words=False)]

    def _emit_text(self, sign: str, text: str, width: int) -> None:
        spans = [("dim", sign), *inline(text, "heading", marks=self._marks)]
        self._emit(wrap(spans, self._room(width)), width)

    def _shown(self, width: int) -> int:
        """From which container on there is room for their signs."""
        begin = 0
        while begin < len(self._containers) and width - sum(one.width for one in self._containers[begin:]) < _LEAST:
            begin += 1
        return begin

    def _room(self, width: int) -> int:
        return width - sum(one.width for one in self._containers[self._shown(width) :])

    def _emit(self, lines: list[Line], width: int) -> None:
        """Makes lines final, with the signs of the containers they are in before them."""
        if not lines:
            return
        begin = self._shown(width)
        if self._blank is not None and self._begun:
            quotes = [one for one in self._containers[begin:] if one.kind == ">"][: self._blank]
            self._made.append([("dim", "".join(one.label for one in quotes).rstrip())] if quotes else [])
        self._blank, self._begun = None, True
        for line in lines:
            prefix = [one.prefix() for one in self._containers[begin:]]
            if not all(one.shown for one in self._containers):
                self._containers = [replace(one, shown=True) for one in self._containers]
            self._made.append([*prefix, *line] if line or any(text.strip() for _, text in prefix) else [])
