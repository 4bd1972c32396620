"""Code with colours, in pieces: a long block is shown while it is written, and each line is looked at once."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from treadle.cli.chat.view._cells import plain

if TYPE_CHECKING:
    from treadle.cli.chat.view._cells import Line

_MOST_LINES = 40  # of one piece
# Characters of a line and of a piece; some lexers take a time that grows with the square of that.
_LONGEST = 200
_MOST = 4000
# What begins something that goes over blank lines, and what ends it.
_SPANNING = (("/*", "*/"), ("<!--", "-->"), ('"""', '"""'), ("'''", "'''"))
# From the names that Pygments has for the sorts of code, the widest last.
_STYLES = (
    ("Token.Comment", "comment"),
    ("Token.Literal.String", "string"),
    ("Token.Literal.Number", "number"),
    ("Token.Keyword.Constant", "number"),
    ("Token.Keyword.Type", "type"),
    ("Token.Keyword", "keyword"),
    ("Token.Operator.Word", "keyword"),
    ("Token.Name.Function", "function"),
    ("Token.Name.Class", "type"),
    ("Token.Name.Decorator", "type"),
    ("Token.Name.Tag", "keyword"),
    ("Token.Name.Attribute", "function"),
    ("Token.Name.Builtin", "function"),
    ("Token.Generic.Inserted", "added"),
    ("Token.Generic.Deleted", "removed"),
    ("Token.Generic.Heading", "strong"),
    ("Token.Generic.Subheading", "strong"),
    ("Token.Generic.Prompt", "dim"),
)


class Code:
    """A block of code in `language`, given line by line and finished in pieces that only the lines decide on."""

    def __init__(self, language: str) -> None:
        self._language = language.lower()
        self._piece: list[str] = []

    def add(self, line: str) -> list[Line]:
        """The lines that are finished by this one: all up to a blank line, since hardly anything goes on behind it."""
        line = plain(line)
        if not self._language:
            return [[("", line)]]
        self._piece.append(line)
        full = len(self._piece) >= _MOST_LINES
        return self.end() if full or (not line.strip() and not self._spans()) else []

    def end(self) -> list[Line]:
        """The lines that are left."""
        piece, self._piece = self._piece, []
        return highlighted(piece, self._language)

    def _spans(self) -> bool:
        text = "\n".join(self._piece)
        return any(
            text.count(opens) % 2 if opens == ends else text.rfind(opens) > text.rfind(ends)
            for opens, ends in _SPANNING
        )


def highlighted(lines: list[str], language: str) -> list[Line]:
    """Whole lines of code with styles; without any where the language is not known."""
    sizes = [len(line) for line in lines]
    lexer = _lexer(language) if sizes and max(sizes) <= _LONGEST and sum(sizes) <= _MOST else None
    if lexer is None:
        return [[("", line)] for line in lines]
    made: list[Line] = [[]]
    for kind, text in lexer.get_tokens("\n".join(lines)):
        style = _style(kind)
        first, *others = text.split("\n")
        made[-1].append((style, first))
        made.extend([(style, other)] for other in others)
    made = [[(style, text) for style, text in line if text] for line in made[: len(lines)]]
    same = len(made) == len(lines) and all(
        "".join(text for _, text in line) == source for line, source in zip(made, lines, strict=True)
    )
    return made if same else [[("", line)] for line in lines]


@functools.lru_cache(64)
def _lexer(language: str) -> Any:
    """What splits `language`, or None. Only those that come with Pygments: others would be searched for and loaded."""
    from pygments.lexers import get_lexer_by_name

    return get_lexer_by_name(language, stripnl=False, ensurenl=False) if language in _languages() else None


@functools.cache
def _languages() -> frozenset[str]:
    from pygments.lexers import get_all_lexers

    plain_text = {"text", "output"}
    return frozenset(alias for _, aliases, *_ in get_all_lexers(plugins=False) for alias in aliases) - plain_text


@functools.lru_cache(256)
def _style(kind: Any) -> str:
    name = str(kind)
    return next((style for prefix, style in _STYLES if name == prefix or name.startswith(f"{prefix}.")), "")
