"""Shell lines, as far as it is certain what a shell makes of them.

A line is plain if it is a chain of commands whose words stand there as they will be passed on: nothing is expanded,
redirected (but for output that is thrown away or joined) or put into the background. Everything that is not known to be
plain is not. The grammar is the part that bash 3.2 to 5.3 and dash agree on.
"""

from __future__ import annotations

import contextlib
import functools
import glob
import re
import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# Standing outside quotes, each of these is itself for every shell.
_LITERAL = re.compile(r"[A-Za-z0-9_./:=,@%+^-]+")
_SINGLE = re.compile(r"'([^'\x00-\x08\x0b-\x1f\x7f]*)'")
_DOUBLE = re.compile(r"\"([^\"$`\\!\x00-\x08\x0b-\x1f\x7f]*)\"")
_BLANK = re.compile(r"[ \t]+")
_OPERATOR = re.compile(r"&&|\|\||[;|]")
_HARMLESS = re.compile(r"(?:2>&1|[12]?>[ \t]*/dev/null)(?=[ \t;|&]|\Z)")

# Words that mean something to a shell at the beginning of a command, and builtins that change what the shell does
# next, evaluate text as code (also `test -v` and `printf -v`, by the subscript of a name), or start what they are told.
_RESERVED = frozenset({
    "!", "{", "}", "[[", "]]", "case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for", "foreach",
    "function", "if", "in", "nocorrect", "repeat", "select", "then", "time", "until", "while",
})  # fmt: skip
_BUILTINS = frozenset({
    ".", "[", "alias", "autoload", "bg", "bind", "break", "builtin", "caller", "cd", "chdir", "command", "compgen",
    "complete", "compopt", "continue", "coproc", "declare", "dirs", "disown", "enable", "eval", "exec", "exit",
    "export", "fc", "fg", "getopts", "hash", "history", "jobs", "let", "local", "logout", "mapfile", "noglob", "popd",
    "print", "printf", "pushd", "read", "readarray", "readonly", "return", "set", "setopt", "shift", "shopt",
    "source", "suspend", "test", "times", "trap", "typeset", "ulimit", "umask", "unalias", "unset", "wait", "zmodload",
})  # fmt: skip

_BETWEEN = re.compile(r"\$\(|[;&|<>`(){}\n\r]")
_REDIRECTION = re.compile(r"\d{0,9}&?(?:>[>|&]?|<{1,3}&?)[ \t]*[^ \t\n;&|<>()]+")
_VARIABLE = re.compile(r"\$(?:\w+|\{[^}]*+\}?|[*@#?$!-])")  # which may be empty
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
_WRAPPERS = frozenset({
    "builtin", "busybox", "caffeinate", "chronic", "chroot", "command", "coproc", "doas", "env", "exec", "find",
    "flock", "ionice", "ltrace", "nice", "nohup", "nsenter", "parallel", "runuser", "script", "setsid", "stdbuf",
    "strace", "sudo", "taskset", "time", "timeout", "unshare", "watch", "xargs",
})  # fmt: skip
_SHELLS = frozenset({"ash", "bash", "dash", "eval", "fish", "ksh", "sh", "su", "zsh"})
_MOST_OPTIONS = 32
_MOST_LINES = 200
_MOST_CHARACTERS = 300_000  # of all these lines together

Words = tuple[str, ...]
ANYTHING: Words = ()  # among what is spoken of: what else there may be was not looked at


_PATTERN = re.compile(r"[A-Za-z0-9_./:=,@%+^*?-]+")


class NotPlainError(ValueError):
    """A line that no rule covers. The text says why, in words that follow the line."""


def commands(line: str) -> list[Words]:
    """The commands of a plain line, each with its words as the program gets them. Raises `NotPlainError`."""
    found = [tuple(words) for words in _split(line)]
    for words in found:
        _check_program(words)
    return found


def _split(line: str) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    word: str | None = None
    place = 0
    while place < len(line):
        if match := _BLANK.match(line, place):
            parts[-1] += [] if word is None else [word]
            word = None
        elif word is None and parts[-1] and (match := _HARMLESS.match(line, place)):
            pass
        elif match := _OPERATOR.match(line, place):
            parts[-1] += [] if word is None else [word]
            word = None
            parts.append([])
        elif match := _LITERAL.match(line, place) or _SINGLE.match(line, place) or _DOUBLE.match(line, place):
            word = (word or "") + (match[match.lastindex or 0])
        else:
            raise NotPlainError(_reason(line[place]))
        place = match.end()
    parts[-1] += [] if word is None else [word]
    if not all(parts):
        raise NotPlainError("a command is missing in it" if len(parts) > 1 else "it is empty")
    return parts


def pattern_words(text: str) -> Words:
    """The words of a pattern, for `fnmatch`: quoted as in a shell, where `*` and `?` stand for themselves.

    Raises `NotPlainError`.
    """
    words: list[str] = []
    place, inside = 0, False
    while place < len(text):
        if match := _BLANK.match(text, place):
            inside = False
        else:
            bare = _PATTERN.match(text, place)
            match = bare or _SINGLE.match(text, place) or _DOUBLE.match(text, place)
            if match is None:
                raise NotPlainError(_reason(text[place]))
            piece = match[0] if bare else glob.escape(match[1])
            words[-1:] = [words[-1] + piece] if inside else [*words[-1:], piece]
            inside = True
        place = match.end()
    return tuple(words)


def _check_program(words: Words) -> None:
    program = words[0]
    if program in _RESERVED or program in _BUILTINS:
        raise NotPlainError(f"`{program}` is the shell's own word and may change what the rest means")
    if not re.fullmatch(r"[A-Za-z0-9_./+-]+", program):
        raise NotPlainError("it does not begin with the plain name of a program")


def _reason(character: str) -> str:
    if character in "'\"":
        return "its quotes do not end, or something in them is expanded"
    if character == "&":
        return "`&` puts a command into the background"
    if character in "<>":
        return f"`{character}` redirects"
    if character in "$`":
        return f"`{character}` is expanded"
    if character in "\n\r":
        return "it has more than one line"
    if character in "*?[]{}~":
        return f"`{character}` is expanded outside quotes"
    return f"{character!r} is not plain outside quotes"


@functools.lru_cache(maxsize=16)
def spoken_of(line: str) -> tuple[Words, ...]:
    """Every command that may be meant somewhere in a line, for rules that deny or ask: rather too many than too few.

    Also those behind programs that start others, in what a shell is given by `-c`, and without the program's directory.
    What is computed when the line runs is not found: a denial is no sandbox. `ANYTHING` stands for the rest of a line
    that nests too much.
    """
    return tuple(dict.fromkeys(_spoken_of(line)))


def _spoken_of(line: str) -> Iterator[Words]:
    seen, todo, length = {line}, [line], 0
    while todo:
        text = todo.pop()
        length += len(text)
        if len(seen) > _MOST_LINES or length > _MOST_CHARACTERS:
            yield ANYTHING
            return
        for words in _candidates(text):
            plain = _without_prefix(words)
            if not plain:
                continue
            program = plain[0].rpartition("/")[2].lstrip("\\$")
            yield plain
            yield from _named(program, plain[1:])
            behind = [line for line in _behind(program, plain) if line not in seen]
            seen.update(behind)
            todo += behind


def _named(program: str, words: Words) -> Iterator[Words]:
    """The command by the name of its program, also without the options before its first word, which may take words."""
    starts = range(min(len(words), _MOST_OPTIONS)) if words[:1] and words[0].startswith("-") else range(0)
    for name in dict.fromkeys((program, program.lower())):  # file systems that do not tell case find either
        yield (name, *words)
        yield from ((name, *words[start:]) for start in starts if not words[start].startswith("-"))


def _without_prefix(words: Words) -> Words:
    while words and (_ASSIGNMENT.match(words[0]) or words[0] in _RESERVED - _WRAPPERS):
        words = words[1:]
    return words


def _behind(program: str, words: Words) -> list[str]:
    """The lines that a program may run by itself."""
    if program in _WRAPPERS:
        return [shlex.join(words[count:]) for count in range(1, min(len(words), 32))]
    return list(words[1:]) if program in _SHELLS else []


def _candidates(line: str) -> Iterator[Words]:
    with contextlib.suppress(NotPlainError):
        yield from map(tuple, _split(line))
    joined = line.replace("\\\n", "")
    empty = _VARIABLE.sub("", joined)
    for text in dict.fromkeys((joined, *(_REDIRECTION.sub(" ", one) for one in (joined, empty)), empty)):
        for part in _BETWEEN.split(text):
            try:
                yield tuple(shlex.split(part))
            except ValueError:
                yield tuple(part.split())
