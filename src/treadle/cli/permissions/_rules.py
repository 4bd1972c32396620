"""Rules as text: `run_command(git status *)`, `edit_file(src/**)`, `web_fetch(docs.python.org)`, `TOOL`."""

from __future__ import annotations

import fnmatch
import re
import shlex
from typing import TYPE_CHECKING

import msgspec

from treadle.cli.permissions._shell import NotPlainError, Words, commands, pattern_words
from treadle.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMAND = "run_command"
FETCH = "web_fetch"
EDITS = ("write_file", "edit_file")
FILES = (*EDITS, "read_file", "list_directory", "find_files", "search_content")
_TOOL = re.compile(r"[A-Za-z0-9_.*?-]{1,128}")
_MOST_STARS = 3  # more of them take too long to match
_HOST = re.compile(r"(?:\*\.)?(?:[a-z0-9_-]+\.)*[a-z0-9_-]+")


class PermissionRule(msgspec.Struct, frozen=True):
    """A decision, `allow`, `ask` or `deny`, on the calls that `text` speaks of. `origin` says where it stands."""

    text: str
    decision: str
    origin: str
    tool: str
    about: str | None = None
    words: Words = ()


def parse_rule(text: str, decision: str, origin: str) -> PermissionRule:
    """The rule that `text` is. Raises `ConfigError`, one line that says what is wrong with it."""
    plain = text.strip()
    if not plain.isprintable() or len(plain) > 1000:
        raise ConfigError("a rule is one line of at most 1000 characters")
    tool, bracket, rest = plain.partition("(")
    if not _TOOL.fullmatch(tool) or (bracket and not rest.endswith(")")):
        raise ConfigError(f"{plain!r} is no rule: write TOOL or TOOL(PATTERN), like {COMMAND}(git status *)")
    about = rest[:-1].strip() if bracket else None
    if tool == COMMAND:
        return PermissionRule(plain, decision, origin, tool, about, _command_words(about, decision, plain))
    if about is not None:
        _check(tool, about, plain)
    return PermissionRule(plain, decision, origin, tool, about.lower() if about and tool == FETCH else about)


def _check(tool: str, about: str, text: str) -> None:
    if tool == FETCH:
        if not _HOST.fullmatch(about.lower()):
            raise ConfigError(f"{text!r} takes a host, like {FETCH}(docs.python.org) or {FETCH}(*.python.org)")
    elif tool in FILES:
        names = about.split("/")
        if not about or about[0] in "/~" or ".." in names or "\\" in about or names.count("**") > _MOST_STARS:
            raise ConfigError(f"{text!r} takes a path in the root, like {tool}(src/**)")
    else:
        import difflib

        near = difflib.get_close_matches(tool, [COMMAND, FETCH, *FILES], n=1)
        hint = f"did you mean {near[0]}?" if near else f"only {COMMAND}, {FETCH} and the file tools do"
        raise ConfigError(f"{text!r}: {tool} takes no pattern in brackets; {hint}")


def _command_words(about: str | None, decision: str, text: str) -> Words:
    if about is None:
        if decision == "allow":
            raise ConfigError(f"{text!r} would allow every command: name the program, like {COMMAND}(git status *)")
        return ("*",)
    try:
        words = pattern_words(about)
        if words and decision == "allow":
            commands(shlex.join(words[:1]))
    except NotPlainError as error:
        raise ConfigError(f"{text!r} is no rule for one plain command: {error}") from None
    if not words:
        raise ConfigError(f"{text!r} names no command")
    return words


def words_match(words: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether a command's words are those of the pattern, in which a last `*` stands for any words, also none."""
    if pattern[-1:] == ("*",):
        words, pattern = words[: len(pattern) - 1], pattern[:-1]
    return len(words) == len(pattern) and all(map(fnmatch.fnmatchcase, words, pattern))


def path_matches(path: str, pattern: str) -> bool:
    """Whether a path matches: `*` and `?` stay within a name, `**` stands for any directories, also none."""
    return _parts_match(path.split("/"), pattern.removeprefix("./").split("/"))


def _parts_match(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    if not pattern:
        return not parts
    if pattern[0] == "**":
        if len(pattern) == 1:
            return bool(parts)
        return any(_parts_match(parts[count:], pattern[1:]) for count in range(len(parts)))
    return bool(parts) and fnmatch.fnmatchcase(parts[0], pattern[0]) and _parts_match(parts[1:], pattern[1:])


def host_matches(host: str, pattern: str) -> bool:
    """Whether a host is the one named, or, for `*.name`, below it."""
    return host.endswith(pattern[1:]) if pattern.startswith("*.") else host == pattern
