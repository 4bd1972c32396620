"""Glob patterns as regular expressions: `*` and `?` stop at slashes, `**` does not."""

from __future__ import annotations

import re

_CLASSES = {
    "alnum": "a-zA-Z0-9",
    "alpha": "a-zA-Z",
    "blank": " \\t",
    "cntrl": "\\x00-\\x1f\\x7f",
    "digit": "0-9",
    "graph": "\\x21-\\x7e",
    "lower": "a-z",
    "print": "\\x20-\\x7e",
    "punct": "!-/:-@\\[-`{-~",
    "space": "\\s",
    "upper": "A-Z",
    "xdigit": "0-9a-fA-F",
}
_MAX_ALTERNATIVES = 64


def compile_glob(pattern: str) -> re.Pattern[str]:
    """Matches whole relative paths. Without a slash the last name matters, at any depth. `{a,b}` are alternatives.

    What looks like a pattern and is a name is found too: `[a].txt` matches a file of that very name.
    """
    regexes = [re.escape(pattern)]
    regexes += [translated(one.lstrip("/")) for one in _braces(pattern)]
    prefix = "" if "/" in pattern else "(?:.*/)?"
    return re.compile(f"(?s:{prefix}(?:{'|'.join(regexes)}))\\Z")


def translated(pattern: str) -> str:
    """`pattern` as the text of a regular expression, by the rules of gitignore files. A broken one matches nothing."""
    done: list[str] = []
    index = 0
    while index < len(pattern):
        char = pattern[index]
        if char == "*":
            text, index = _stars(pattern, index)
        elif char == "[":
            text, index = _bracket(pattern, index + 1)
        elif char == "\\":
            text, index = re.escape(pattern[index + 1 : index + 2]) or "(?!)", index + 2
        else:
            text, index = "[^/]" if char == "?" else re.escape(char), index + 1
        done.append(text)
    return "".join(done)


def _stars(pattern: str, index: int) -> tuple[str, int]:
    """What one or several stars at `index` stand for, and where they end."""
    end = index
    while pattern[end : end + 1] == "*":
        end += 1
    whole_name = index == 0 or pattern[index - 1] == "/"
    if end - index == 1 or not whole_name:
        return "[^/]*", end
    if end == len(pattern):
        return ".+" if index else ".*", end
    if pattern[end] == "/":
        return "(?:.*/)?", end + 1
    return ".*" if pattern.startswith("\\/", end) else "[^/]*", end


def _bracket(pattern: str, index: int) -> tuple[str, int]:
    """The set that begins at `index`, and where it ends."""
    negated = pattern[index : index + 1] in ("!", "^")
    index += negated
    items: list[str] = []
    while index < len(pattern) and (pattern[index] != "]" or not items):
        if pattern.startswith("[:", index) and (end := pattern.find(":]", index)) > 0:
            items.append(_CLASSES.get(pattern[index + 2 : end], ""))
            index = end + 2
            continue
        index += pattern[index] == "\\"
        low = pattern[index : index + 1]
        index += 1
        high = low
        if pattern[index : index + 1] == "-" and pattern[index + 1 : index + 2] not in ("]", ""):
            index += 1 + (pattern[index + 1] == "\\")
            high = pattern[index : index + 1]
            index += 1
        items.append(_range(low, high))
    if index >= len(pattern):
        return "(?!)", index
    inside = "".join(items)
    if not inside:
        return ("[^/]" if negated else "(?!)"), index + 1
    return f"(?!/)[{'^' if negated else ''}{inside}]", index + 1


def _range(low: str, high: str) -> str:
    if not low or not high:
        return ""
    return re.escape(low) if low >= high else f"{re.escape(low)}-{re.escape(high)}"


def _braces(pattern: str) -> list[str]:
    """The alternatives of `{a,b}`, of which there may be several."""
    found: list[str] = []
    todo = [pattern]
    while todo and len(found) + len(todo) <= _MAX_ALTERNATIVES:
        one = todo.pop()
        match = re.search(r"\{([^{}]*,[^{}]*)\}", one)
        if match is None:
            found.append(one)
        else:
            todo += [one[: match.start()] + choice + one[match.end() :] for choice in match[1].split(",")]
    return found + todo
