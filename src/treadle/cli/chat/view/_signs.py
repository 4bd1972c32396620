"""The signs of Markdown: what a line begins with, and what that opens."""

from __future__ import annotations

import re
from dataclasses import dataclass

from treadle.cli.chat.view._cells import cells

QUOTE = re.compile(r" {0,3}> ?")
ITEM = re.compile(r"( {0,3})([-+*]|\d{1,9}[.)])( +(?=\S)|\s*$)")
RULE = re.compile(r" {0,3}([-_*])(?: *\1){2,} *")
HEADING = re.compile(r" {0,3}(#{1,6})(?: (.*))?")
UNDERLINE = re.compile(r" {0,3}(=+|-+) *")
FENCE = re.compile(r"( {0,3})(`{3,}(?=[^`]*$)|~{3,}) *([^\s`]*).*")


@dataclass(frozen=True)
class Container:
    """A quote, or an item of a list: `indent` is where its text begins, `label` what stands before its first line."""

    label: str
    indent: int = 0
    number: int | None = None
    kind: str = ">"
    shown: bool = False  # whether the label is

    @property
    def width(self) -> int:
        return cells(self.label)

    def prefix(self) -> tuple[str, str]:
        if self.kind == ">":
            return "dim", self.label
        return ("", " " * self.width) if self.shown else ("bullet", self.label)


def ending(text: str, most: int) -> str:
    """The end of a text, twice `most` characters of it or less. It is cut where it was cut when it was a bit shorter,
    so that a text that grows does not move about.
    """
    return text[(len(text) - 1) // most * most - most :] if len(text) > 2 * most else text


def begins_block(text: str) -> bool:
    """Whether a line begins a block that is no paragraph."""
    return bool(
        QUOTE.match(text) or FENCE.fullmatch(text) or RULE.fullmatch(text) or HEADING.fullmatch(text)
    ) or begins_list(text)


def begins_list(text: str) -> bool:
    """Whether a line begins a list even where a paragraph would go on."""
    found = ITEM.match(text)
    return found is not None and bool(text[found.end() :].strip()) and found[2] in ("-", "+", "*", "1.", "1)")


def without_closing(text: str) -> str:
    """The text of a heading without the signs that may close it."""
    bare = text.strip(" ")
    kept = bare.rstrip("#")
    return kept.rstrip(" ") if not kept or kept.endswith(" ") else bare


def item(found: re.Match[str], closed: Container | None) -> Container:
    """The item that a line begins. It is counted on from the one before, whatever number it is given."""
    sign = found[2]
    spaces = len(found[3])
    indent = len(found[1]) + len(sign) + (spaces if 1 <= spaces <= 4 and found.end() < len(found.string) else 1)
    if sign in ("-", "+", "*"):
        return Container("• ", indent, kind=sign)
    number = int(sign[:-1])
    if closed is not None and closed.number is not None and closed.kind == sign[-1]:
        number = closed.number + 1
    return Container(f"{number}{sign[-1]} ", indent, number, sign[-1])
