"""The narrow rules that "always" offers."""

from __future__ import annotations

import glob
import shlex
from typing import TYPE_CHECKING

import msgspec

from treadle.cli.permissions._calls import Call, Place, host_of
from treadle.cli.permissions._rules import COMMAND, EDITS, FETCH, FILES, PermissionRule, parse_rule
from treadle.cli.permissions._shell import NotPlainError
from treadle.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from treadle.cli.permissions._shell import Words

# Of these any arguments only look, and tell names and numbers, not what is in files: no option of theirs writes, starts
# a program or loads code. Of everything else the command is offered word for word: `git log --output=FILE` writes,
# `rg --pre` and `find -exec` start programs, `pytest -p` loads code, `cat` and `wc --files0-from` show keys.
LOOKING = tuple(
    tuple(words.split())
    for words in (
        "basename",
        "dirname",
        "false",
        "git ls-files",
        "git rev-parse",
        "git status",
        "id",
        "ls",
        "pwd",
        "realpath",
        "true",
        "uname",
        "which",
        "whoami",
    )
)


class Suggestion(msgspec.Struct, frozen=True):
    """The rules that would let a call run from now on, each as narrow as it is of use."""

    rules: tuple[PermissionRule, ...]

    @property
    def text(self) -> str:
        """The rules in a line, to be shown before they are saved."""
        return ", ".join(rule.text for rule in self.rules)


def suggestion(call: Call, place: Place, is_covered: Callable[[Words], bool]) -> Suggestion | None:
    """The rules for a call; for a command those that its uncovered parts still need. None where no rule would do."""
    try:
        rules = tuple(parse_rule(text, "allow", "") for text in dict.fromkeys(_texts(call, place, is_covered)))
    except (ConfigError, NotPlainError):
        return None
    return Suggestion(rules) if rules else None


def edits_for_now() -> Suggestion:
    """What "for this session" means for an edit: all edits of files that are not sensitive."""
    return Suggestion(tuple(parse_rule(f"{name}(**)", "allow", "") for name in EDITS))


def _texts(call: Call, place: Place, is_covered: Callable[[Words], bool]) -> list[str]:
    if call.name == COMMAND:
        parts = place.plain_commands(call.line or "")
        return [f"{COMMAND}({_pattern(words)})" for words in parts if not is_covered(words)]
    if call.name == FETCH:
        host = host_of(call)
        return [] if host is None else [f"{FETCH}({host})"]
    if call.name in FILES:
        return [f"{call.name}({glob.escape(path)})" for path in place.paths(call)[-1:]]
    return [call.name]


def _pattern(words: Words) -> str:
    for looking in LOOKING:
        if words[: len(looking)] == looking:
            return " ".join([*looking, "*"])
    return shlex.join(words)
