"""Approval by rules: which tools, with which arguments, run without asking."""

from __future__ import annotations

import fnmatch
import re
import shlex
from typing import TYPE_CHECKING, Any

import msgspec

from treadle.approval import Allow, Deny, Pause, deny_all
from treadle.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable

    from treadle.approval import Approve, Decision
    from treadle.wraps import ToolRequest

# What a shell does beyond running one program: chains, pipes, redirections, substitutions, variables, history.
_BEYOND_PLAIN = re.compile(r"[;&|<>`$(){}\n\r\\!]")
_BETWEEN_COMMANDS = re.compile(r"[;&|<>`(){}\n\r]|\$\(")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")


class Rule(msgspec.Struct, frozen=True):
    """A decision on calls of `tool` whose arguments match.

    `tool` and the values of `args` are patterns with `*`, `?` and `[...]`, matched against the whole name and the whole
    text of an argument. `command` is matched word by word against the shell command in the argument `command`; a last
    word `*` stands for any words, also none. `Allow` and `Pause` rules only match plain commands: a chain, a
    redirection, a substitution or a variable never does. A `Deny` rule matches where any part does.
    """

    tool: str
    args: dict[str, str] = {}
    command: str | None = None
    decision: Allow | Deny | Pause = Allow()

    def matches(self, request: ToolRequest) -> bool:
        """Whether the rule speaks of this call."""
        if not fnmatch.fnmatchcase(request.name, self.tool):
            return False
        given = request.arguments
        if not all(name in given and _fits(given[name], pattern) for name, pattern in self.args.items()):
            return False
        if self.command is None:
            return True
        return self._commands_match(given.get("command"))

    def _commands_match(self, line: Any) -> bool:
        if not isinstance(line, str) or self.command is None:
            return False
        pattern = self.command.split()
        if isinstance(self.decision, Deny):
            parts = _BETWEEN_COMMANDS.split(line)
            return any(_words_match(_without_assignments(_words(part) or part.split()), pattern) for part in parts)
        return _BEYOND_PLAIN.search(line) is None and _words_match(_words(line), pattern)


def approve_rules(rules: Iterable[Rule], otherwise: Approve = deny_all) -> Approve:
    """Decides by the rules: a `Deny` that matches wins, then the first other one. `otherwise` decides on the rest."""
    known = tuple(rules)
    if bad := [rule for rule in known if not isinstance(rule, Rule)]:
        raise ConfigError(f"{bad[0]!r:.80} is no rule: write Rule('tool', {{'argument': 'pattern'}})")
    ordered = sorted(known, key=lambda rule: not isinstance(rule.decision, Deny))

    def policy(request: ToolRequest) -> Decision | Awaitable[Decision]:
        found = next((rule.decision for rule in ordered if rule.matches(request)), None)
        return otherwise(request) if found is None else found

    return policy


def _fits(value: Any, pattern: str) -> bool:
    text = value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=str).decode().strip('"')
    return fnmatch.fnmatchcase(text, pattern)


def _words(line: str) -> list[str] | None:
    """The words of a plain command; None for one whose quotes do not end."""
    try:
        return shlex.split(line)
    except ValueError:
        return None


def _without_assignments(words: list[str] | None) -> list[str] | None:
    while words and _ASSIGNMENT.match(words[0]):
        words = words[1:]
    return words


def _words_match(words: list[str] | None, pattern: list[str]) -> bool:
    if words is None or not words:
        return False
    if pattern and pattern[-1] == "*":
        words, pattern = words[: len(pattern) - 1], pattern[:-1]
    return len(words) == len(pattern) and all(map(fnmatch.fnmatchcase, words, pattern))
