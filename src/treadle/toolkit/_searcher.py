"""The process that finds and searches files for `_search`: patterns run for as long as they like, and it is killed.

It imports nothing but the standard library and modules of this room that do the same, and starts in a few dozen
milliseconds. One request comes as JSON on standard input, one answer goes out as JSON.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import resource
import sys
from time import monotonic
from typing import TYPE_CHECKING, Any

from treadle.toolkit._encoding import encoding_of_all
from treadle.toolkit._glob import compile_glob
from treadle.toolkit._names import explained, shown
from treadle.toolkit._tree import Found, Tree
from treadle.toolkit.root import Root

if TYPE_CHECKING:
    from collections.abc import Iterator

    from treadle.toolkit._ripgrep import Ripgrep

MAX_RESULTS = 1000
MAX_MATCHES = 300
MAX_TEXT = 40 * 1024
MAX_FILE_BYTES = 8 * 1024 * 1024
MAX_LINE = 300
MAX_MEMORY = 1 << 30
_WIDE = (b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")  # how text begins in which ASCII is no ASCII


class PatternError(ValueError):
    """A pattern that is none."""


def main(ripgrep: Ripgrep | None) -> None:
    """Answers one request. `ripgrep` looks for what every match contains, if it is there and there is such a text."""
    request = json.load(sys.stdin)
    cpu = math.ceil(request["seconds"]) + 2  # if nobody is there any more to kill it
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu))
    with contextlib.suppress(ValueError, OSError):  # macOS has no such limit
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    try:
        answer = {"text": respond(request, ripgrep)}
    except (OSError, UnicodeError) as error:
        answer = {"error": explained(error, request["path"])}
    except PatternError as error:
        answer = {"error": str(error)}
    except MemoryError:
        answer = {"error": "the search needs too much memory: make the pattern simpler, or name a path or a glob"}
    json.dump(answer, sys.stdout)


def respond(request: dict[str, Any], ripgrep: Ripgrep | None) -> str:
    """What the tool returns."""
    root = Root.adopt(request["root"], request["backend"])
    tree = Tree(root, request["path"])
    until = monotonic() + request["seconds"]
    if request["what"] == "find":
        return find(tree, request["pattern"], until)
    match = matcher(request["pattern"], literal=request["literal"])
    search = Search(match, request["needle"], request["context_lines"])
    glob = _glob(request["glob"]) if request["glob"] is not None else None
    return search.run(_files(root, tree, ripgrep), tree, glob, until)


def find(tree: Tree, pattern: str, until: float) -> str:
    """The paths that match a glob pattern, a line each."""
    regex, base = _glob(pattern), len(tree.prefix)
    lines: list[str] = []
    notes: list[str] = []
    for found in tree.walk():
        if monotonic() > until:
            notes.append("time is up, and this is not all: name a path to look in")
            break
        if regex.match(found.path if tree.is_file else found.path[base:]):
            if len(lines) == MAX_RESULTS:
                notes.append(f"only the first {MAX_RESULTS} are shown: narrow the pattern or the path")
                break
            lines.append(shown(found.path) + "/" * found.is_directory)
    return "\n".join([*(lines or ["No file matches."]), *_bracketed(notes, tree)])


def matcher(pattern: str, *, literal: bool) -> re.Pattern[str]:
    """What is searched for in each line."""
    try:
        return re.compile(re.escape(pattern) if literal else pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise PatternError(f"the pattern is no regular expression: {error}; literal=true takes it as it is") from None


class Search:
    """Looks for a pattern in files, line by line. Without `needle` in it no file has a match."""

    def __init__(self, regex: re.Pattern[str], needle: str | None, context: int) -> None:
        self._regex = regex
        self._needle = None if needle is None else needle.encode()
        self._context = context
        self._blocks: list[str] = []
        self._room = MAX_TEXT
        self._matches = 0
        self._too_large = 0
        self._unreadable = 0

    def run(self, files: Iterator[Found], tree: Tree, glob: re.Pattern[str] | None, until: float) -> str:
        base, notes = len(tree.prefix), []
        for found in files:
            if monotonic() > until:
                notes.append("time is up, and this is not all: name a path or a glob to look in")
                break
            if not found.is_regular or (glob and not glob.match(found.path if tree.is_file else found.path[base:])):
                continue
            if not self._take(found):
                notes.append(f"only the first {self._matches} matching lines are shown: narrow the pattern or the path")
                break
        for count, what in (
            (self._too_large, f"larger than {MAX_FILE_BYTES >> 20} MiB"),
            (self._unreadable, "unreadable"),
        ):
            if count:
                notes.append(f"not searched, because {what}: {count}")
        return "\n".join(["\n\n".join(self._blocks) or "No line matches.", *_bracketed(notes, tree)])

    def _take(self, found: Found) -> bool:
        """Adds the matching lines of a file; whether there is room for more."""
        lines = self._lines(found)
        hits = [number for number, line in enumerate(lines) if self._regex.search(line)]
        if not hits:
            return True
        block, size = [shown(found.path)], 0
        last, matching = -1, set(hits)
        for hit in hits:
            if self._matches == MAX_MATCHES or size > self._room:
                break
            self._matches += 1
            begin = max(hit - self._context, last + 1)
            if self._context and last >= 0 and begin > last + 1:
                block.append("--")
            last = min(hit + self._context, len(lines) - 1)
            added = [self._line(number, lines[number], matches=number in matching) for number in range(begin, last + 1)]
            block += added
            size += sum(map(len, added))
        self._blocks.append("\n".join(block))
        self._room -= size
        return self._room > 0 and self._matches < MAX_MATCHES

    def _lines(self, found: Found) -> list[str]:
        try:
            with os.fdopen(found.open(), "rb") as file:
                data = file.read(MAX_FILE_BYTES + 1)
        except OSError:
            self._unreadable += 1
            return []
        if len(data) > MAX_FILE_BYTES:
            self._too_large += 1
            return []
        if self._needle is not None and self._needle not in data and not data.startswith(_WIDE):
            return []
        encoding = encoding_of_all(data)
        if encoding is None:
            return []
        text = data[len(encoding.mark) :].decode(encoding.codec, "replace")
        lines = [line.removesuffix("\r") for line in text.split("\n")]
        return lines if lines[-1] else lines[:-1]

    def _line(self, number: int, line: str, *, matches: bool) -> str:
        text = line
        if len(line) > MAX_LINE:
            match = self._regex.search(line) if matches else None
            begin = max(0, (match.start() if match else 0) - MAX_LINE // 3)
            text = "..." * (begin > 0) + line[begin : begin + MAX_LINE] + "..." * (begin + MAX_LINE < len(line))
        return f"{number + 1}{':' if matches else '-'} {text}"


def _files(root: Root, tree: Tree, ripgrep: Ripgrep | None) -> Iterator[Found]:
    """The files to search: all, or those that ripgrep names. What is shown is read here in any case."""
    names = None if ripgrep is None or tree.is_file else ripgrep.names()
    return tree.walk() if names is None else _named(root, tree, names)


def _named(root: Root, tree: Tree, names: list[str]) -> Iterator[Found]:
    for name in sorted(names, key=lambda name: name.split("/")):
        path = tree.prefix + name
        if tree.shows(path):
            try:
                with root.locate(path, follow=False) as place:
                    yield Found(path, place.directory, place.name, is_directory=False, is_regular=True)
            except OSError:
                tree.skipped += 1


def _glob(pattern: str) -> re.Pattern[str]:
    try:
        return compile_glob(pattern)
    except (re.error, OverflowError, RecursionError):
        raise PatternError("the glob pattern cannot be read; patterns are like *.py or src/**/test_*.py") from None


def _bracketed(notes: list[str], tree: Tree) -> list[str]:
    if tree.skipped:
        notes.append(f"directories that could not be looked into: {tree.skipped}")
    return [f"[{note}]" for note in notes]
