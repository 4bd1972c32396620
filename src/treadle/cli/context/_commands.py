"""Custom commands: `commands/NAME.md` is what `/NAME` puts into the prompt. Nothing in it is executed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from treadle.cli.context._front_matter import front_matter
from treadle.cli.context._reading import Own, Place, list_names, note, read_text
from treadle.cli.terminal import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable

USER_FOLDER = "commands"
PROJECT_FOLDER = ".treadle/commands"
MAX_COMMANDS = 100
MAX_FILE_BYTES = 64 * 1024
_FILE = re.compile(r"([A-Za-z0-9][A-Za-z0-9_-]{0,63})\.md\Z")
_PLACEHOLDER = re.compile(r"\$(ARGUMENTS\b|[1-9](?!\d))")


class Command(NamedTuple):
    """What `/name` stands for. `own`: it is the user's, not the project's."""

    name: str
    description: str
    argument_hint: str
    path: Path
    body: str
    own: bool


def find_commands(place: Place, folder: str, notes: list[str]) -> list[Command]:
    """The commands in a directory. One whose name cannot be typed or whose head cannot be read is noted."""
    commands = []
    for entry in list_names(place, folder, notes):
        if not entry.endswith(".md") or entry.startswith("."):
            continue
        path = Path(place.path, folder, entry)
        if (name := _FILE.match(entry)) is None:
            notes.append(note(str(path), "left out, a command's name takes 1 to 64 of a-z, 0-9, - and _"))
            continue
        if (read := read_text(place, f"{folder}/{entry}", MAX_FILE_BYTES, notes)) is None:
            continue
        try:
            commands.append(_command(name[1], path, read.text, own=isinstance(place, Own), cut=read.cut))
        except ValueError as error:
            notes.append(note(str(path), f"left out, {error}"))
    return commands


def _command(name: str, path: Path, text: str, *, own: bool, cut: bool) -> Command:
    if cut:
        raise ValueError(f"it is larger than {MAX_FILE_BYTES >> 10} KiB")
    fields, body = front_matter(text)
    if not body.strip():
        raise ValueError("it has no text")
    described = fields.get("description") or body.strip().split("\n", 1)[0]
    return Command(name, _line(described), _line(fields.get("argument-hint", "")), path, body, own)


def _line(text: str) -> str:
    return one_line(text)


def merged(commands: Iterable[Command], notes: list[str]) -> list[Command]:
    """The commands by name, of two with one name the later."""
    found: dict[str, Command] = {}
    for command in commands:
        if (before := found.get(command.name)) is not None:
            notes.append(note(str(before.path), f"left out, {command.path} has the same name"))
        found[command.name] = command
    if len(found) > MAX_COMMANDS:
        notes.append(f"only {MAX_COMMANDS} of {len(found)} commands are there")
    return [command for _, command in sorted(found.items())[:MAX_COMMANDS]]


def expand(command: Command, args: str) -> str:
    """The prompt: the command's text with `$ARGUMENTS` and `$1` to `$9` in place.

    Words are split as a shell does, quotes included; where they do not end, at spaces. What is missing is empty.
    Arguments for which there is no place follow at the end. What stands in for a placeholder is not looked at again.
    """
    args = args.strip()
    try:
        words = shlex.split(args)
    except ValueError:
        words = args.split()

    def value(found: re.Match[str]) -> str:
        if found[1] == "ARGUMENTS":
            return args
        index = int(found[1]) - 1
        return words[index] if index < len(words) else ""

    text, count = _PLACEHOLDER.subn(value, command.body)
    return f"{text.rstrip()}\n\nArguments: {args}" if args and not count else text
