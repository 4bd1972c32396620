"""Approval by rules: which tools, with which arguments, run without asking."""

from __future__ import annotations

import fnmatch
import json
import posixpath
import re
import shlex
from typing import TYPE_CHECKING, Any

import msgspec

from treadle._results import render
from treadle.approval import Allow, Deny, Pause, deny_all
from treadle.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Iterator

    from treadle.approval import Approve, Decision
    from treadle.wraps import ToolRequest

# What a shell does beyond running one program: chains, pipes, redirections, substitutions, variables, history.
_BEYOND_PLAIN = re.compile(r"[;&|<>`$(){}\n\r\\!]")
_BETWEEN_COMMANDS = re.compile(r"[;&|<>`(){}\n\r]|\$\(")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
_JOINED = re.compile(r"\\\n|\$(?=['\"])")  # what a shell takes out of the middle of a word
_BEFORE_COMMANDS = frozenset(
    ("!", "builtin", "command", "coproc", "do", "elif", "else", "env", "eval", "exec", "if", "nohup", "sudo", "then",
     "time", "until", "while")
)  # fmt: skip
_UPWARDS = re.compile(r"(?:^|[/\\])\.\.(?:[/\\]|$)")


class Rule(msgspec.Struct, frozen=True):
    """A decision on calls of `tool` whose arguments match.

    `tool` and the values of `args` are patterns with `*`, `?` and `[...]`, matched against the whole name and the whole
    text of an argument: JSON where it is no string. `command` is matched word by word against the shell command in the
    argument `command`; a last word `*` stands for any words, also none.

    An `Allow` rule takes no doubtful case: no path that goes up by `..`, and only plain commands, without a chain, a
    redirection, a substitution or a variable. A `Deny` or `Pause` rule matches where anything does: a part of the
    command, a string inside of the argument, the path that it comes to. It is no wall: a program can do by itself what
    its command line does not say.
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
        fits = _fits if isinstance(self.decision, Allow) else _touches
        if not all(name in given and fits(given[name], pattern) for name, pattern in self.args.items()):
            return False
        if self.command is None:
            return True
        return self._commands_match(given.get("command"))

    def _commands_match(self, line: Any) -> bool:
        if isinstance(line, list):
            line = shlex.join(map(str, line))
        if not isinstance(line, str) or self.command is None:
            return False
        pattern = self.command.split()
        if isinstance(self.decision, Allow):
            return _BEYOND_PLAIN.search(line) is None and _words_match(_words(line), pattern)
        parts = _BETWEEN_COMMANDS.split(_JOINED.sub("", line))
        return any(_runs(_words(part) or part.split(), pattern) for part in parts)


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
    text = _text(_plain(value))
    return fnmatch.fnmatchcase(text, pattern) and (bool(_UPWARDS.search(pattern)) or not _UPWARDS.search(text))


def _touches(value: Any, pattern: str) -> bool:
    """Whether the argument fits, or a string in it does, as it stands or as the path that it comes to."""
    plain = _plain(value)
    forms = (form for one in (_text(plain), *_strings(plain)) for form in (one, posixpath.normpath(one)))
    return any(fnmatch.fnmatchcase(form, pattern) for form in forms)


def _plain(value: Any) -> Any:
    """The argument as JSON has it. Raises `ValueError`, which denies the call, where that cannot be told."""
    if value is None or isinstance(value, str):
        return value
    output = render(value)
    if output.is_error:
        raise ValueError(output.content)
    try:
        return json.loads(output.content)
    except ValueError:
        return output.content


def _text(plain: Any) -> str:
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False, separators=(",", ":"))


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _strings(each)


def _words(line: str) -> list[str] | None:
    """The words of a plain command; None for one whose quotes do not end."""
    try:
        return shlex.split(line)
    except ValueError:
        return None


def _runs(words: list[str], pattern: list[str]) -> bool:
    """Whether a part of a command line runs what the pattern says, by whatever path."""
    while words:
        named = words if "/" in "".join(pattern[:1]) else [posixpath.basename(words[0]), *words[1:]]
        if _words_match(named, pattern):
            return True
        if not (words[0] in _BEFORE_COMMANDS or _ASSIGNMENT.match(words[0])):
            break
        words = words[1:]
    return False


def _words_match(words: list[str] | None, pattern: list[str]) -> bool:
    if words is None or not words:
        return False
    if pattern and pattern[-1] == "*":
        words, pattern = words[: len(pattern) - 1], pattern[:-1]
    return len(words) == len(pattern) and all(map(fnmatch.fnmatchcase, words, pattern))
