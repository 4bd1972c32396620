"""The head of a Markdown file: `key: text` between two lines of `---`, the small part of YAML that such heads use.

Texts may be plain, quoted, folded (`>`) or literal (`|`). A plain text may hold `: `, and one in brackets is a text
too, since many files are written so. Lists and mappings below a key are passed over. Nothing refers to anything:
anchors, aliases and tags are refused.
"""

from __future__ import annotations

import re
from collections import deque

MAX_LINES = 200
_FENCE = "---"
_KEY = re.compile(r"([A-Za-z_][\w-]*)[ \t]*:(?:[ \t]+(.*)|)")
_BLOCK = re.compile(r"([|>])([+-]?[1-9]?|[1-9][+-])(?:[ \t]+#.*)?")
_DOUBLE = re.compile(r'"((?:[^"\\]|\\.)*)"(?:[ \t]+#.*)?', re.DOTALL)
_SINGLE = re.compile(r"'((?:[^']|'')*)'(?:[ \t]+#.*)?", re.DOTALL)
_ESCAPE = re.compile(r"\\(\n[ \t]*|x[0-9A-Fa-f]{2}|u(?![dD][89a-fA-F])[0-9A-Fa-f]{4}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "e": "\x1b"}
_REFERENCE = re.compile(r"[&!]\S|\*\w")
_BELOW = re.compile(r"-(?:[ \t]|$)|[\"']?[\w .-]+[\"']?[ \t]*:(?:[ \t]|$)")  # what makes a list or a mapping

_Lines = deque[tuple[int, str]]


def front_matter(text: str) -> tuple[dict[str, str], str]:
    """The texts in the head of `text`, and the body below. Without a head all of it is body.

    Raises `ValueError` with the line that cannot be read.
    """
    lines = text.split("\n")
    if lines[0].rstrip() != _FENCE:
        return {}, text
    head = next((i for i, line in enumerate(lines[1 : MAX_LINES + 2], 1) if line.rstrip() in (_FENCE, "...")), None)
    if head is None:
        raise ValueError(f"line 1: no line of --- ends the front matter within {MAX_LINES} lines")
    return _fields(deque(enumerate(lines[1:head], 2))), "\n".join(lines[head + 1 :]).strip("\n")


def _fields(lines: _Lines) -> dict[str, str]:
    fields: dict[str, str] = {}
    while lines:
        number, line = lines.popleft()
        if not line.strip() or line.startswith("#"):
            continue
        found = _KEY.fullmatch(line.rstrip())
        if found is None:
            raise ValueError(f"line {number}: not `key: text`")
        key, value = found[1], (found[2] or "").strip()
        if key in fields:
            raise ValueError(f"line {number}: {key} stands here a second time")
        read = _text(value, lines, number)
        if read is not None:
            fields[key] = read
    return fields


def _text(value: str, lines: _Lines, number: int) -> str | None:
    """The text behind a key, with what belongs to it taken off `lines`; None for a list or a mapping."""
    if _REFERENCE.match(value):
        raise ValueError(f"line {number}: anchors, aliases and tags are not read; put the text in quotes")
    if block := _BLOCK.fullmatch(value):
        return _block_text(_indented(lines), folded=block[1] == ">")
    if value[:1] in ("'", '"'):
        return _quoted("\n".join([value, *_indented(lines)]), number)
    if not value or value.startswith("#"):
        return _below(lines)
    below = [line.strip() for line in _indented(lines)]
    return " ".join([_uncommented(value), *(_uncommented(line) for line in below if line)])


def _below(lines: _Lines) -> str | None:
    """What stands below a key without a text of its own. The items of a list may stand as far left as the key."""
    below = _indented(lines)
    while lines and re.match(r"-(?:[ \t]|$)", lines[0][1]):
        lines.popleft()
        below = ["- ", *_indented(lines)]
    filled = [line.strip() for line in below if line.strip() and not line.strip().startswith("#")]
    if filled and _BELOW.match(filled[0]):
        return None
    return " ".join(map(_uncommented, filled))


def _indented(lines: _Lines) -> list[str]:
    """Takes the lines off that are further right than a key, and blank ones between them."""
    taken = []
    while lines and (not lines[0][1].strip() or lines[0][1][0] in " \t"):
        taken.append(lines.popleft()[1])
    return taken


def _block_text(lines: list[str], *, folded: bool) -> str:
    left = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    text = "\n".join(line[left:].rstrip() for line in lines).strip("\n")
    return re.sub(r"(?<=\S)\n(?=\S)", " ", text).replace("\n\n", "\n") if folded else text


def _quoted(text: str, number: int) -> str:
    text = text.rstrip()
    found = (_DOUBLE if text[0] == '"' else _SINGLE).fullmatch(text)
    if found is None:
        raise ValueError(f"line {number}: the quotes do not end, or something follows them")
    inside = re.sub(r"(?<!\\)[ \t]*\n[ \t]*", " ", found[1])  # a line end in quotes is a space
    return _ESCAPE.sub(_escaped, inside) if text[0] == '"' else inside.replace("''", "'")


def _escaped(found: re.Match[str]) -> str:
    code = found[1]
    if code.startswith("\n"):
        return ""
    if len(code) > 1:
        return chr(int(code[1:], 16))
    return _ESCAPES.get(code, code)


def _uncommented(text: str) -> str:
    return re.split(r"(?:^|[ \t])#", text, maxsplit=1)[0].rstrip()
