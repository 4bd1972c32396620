"""Agent Skills: a directory with a `SKILL.md`, whose head names and describes it (agentskills.io/specification, 2026).

A model is told names and descriptions, and loads the rest when a task takes it. A skill that breaks the rules is left
out with a note, except that its directory may have another name and its description may be too long: then it is cut.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from treadle.cli.context._front_matter import front_matter
from treadle.cli.context._reading import Beneath, Own, Place, Readable, list_names, note, read_text, shown
from treadle.cli.terminal import neutral, one_line
from treadle.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from treadle import Tool

FILE = "SKILL.md"
PROJECT_FOLDERS = (".claude/skills", ".agents/skills", ".treadle/skills")  # of two skills of one name the later
MAX_SKILLS = 100
MAX_FILE_BYTES = 256 * 1024
MAX_DESCRIPTION = 1024
_MAX_NAMED_FILES = 50
_NAME = re.compile(r"(?=.{1,64}\Z)[a-z0-9]+(?:-[a-z0-9]+)*\Z")


class Skill(NamedTuple):
    """A skill that can be loaded. `path` is its directory; `own`: it is the user's, not the project's."""

    name: str
    description: str
    path: Path
    own: bool
    place: Place
    folder: str


def find_skills(place: Place, folder: str, notes: list[str]) -> list[Skill]:
    """The skills in a directory of skills."""
    skills = []
    for entry in list_names(place, folder, notes):
        inside = f"{folder}/{entry}"
        if entry.startswith(".") or (read := read_text(place, f"{inside}/{FILE}", MAX_FILE_BYTES, notes)) is None:
            continue
        path = Path(place.path, inside)
        try:
            fields, _ = front_matter(read.text)
            name, description = _checked(fields)
        except ValueError as error:
            notes.append(note(str(path / FILE), f"left out, {error}"))
            continue
        skills.append(Skill(name, description, path, isinstance(place, Own), place, inside))
    return skills


def _checked(fields: Mapping[str, str]) -> tuple[str, str]:
    name, description = fields.get("name", ""), neutral(" ".join(fields.get("description", "").split()))
    if not _NAME.match(name):
        raise ValueError(f"name is {name[:80]!r}: it takes 1 to 64 of a-z, 0-9 and single hyphens between them")
    if not description:
        raise ValueError("it has no description")
    return name, description if len(description) <= MAX_DESCRIPTION else f"{description[: MAX_DESCRIPTION - 3]}..."


def merged(skills: list[Skill], notes: list[str]) -> dict[str, Skill]:
    """The skills by name. Of two with one name the later counts, which is said where they are not the same file."""
    found: dict[str, Skill] = {}
    for skill in skills:
        before = found.pop(skill.name, None)
        if before is not None and os.path.realpath(before.path) != os.path.realpath(skill.path):
            notes.append(note(str(before.path), f"left out, {skill.path} has the same name"))
        found[skill.name] = skill
    if len(found) > MAX_SKILLS:
        notes.append(f"only {MAX_SKILLS} of {len(found)} skills are told")
    return dict(sorted(found.items())[:MAX_SKILLS])


def skill_text(skill: Skill, file: str | None = None) -> str:
    """What a model is given of a skill: its text, where it is and what else is there; or another file of it.

    The user's own is read anew each time. Raises `ToolError` where there is nothing to read.
    """
    notes: list[str] = []
    place, name = _where(skill, file)
    read = read_text(place, name, MAX_FILE_BYTES, notes)
    if read is None:
        raise ToolError(notes[0] if notes else f"the skill {skill.name} has no file {one_line(file or FILE)}")
    text = read.text + f"\n[cut after {MAX_FILE_BYTES >> 10} KiB]" * read.cut
    if file is not None:
        return text
    with contextlib.suppress(ValueError):  # it was sound when it was found
        text = front_matter(text)[1]
    others = [one_line(name) for name in _files(skill) if name != FILE]
    more = f"\n\nOther files in it: {', '.join(others)}" if others else ""
    return f"Skill {skill.name}, in {shown(skill.path)}; paths in it begin there.\n\n{text}{more}"


def _where(skill: Skill, file: str | None) -> tuple[Readable, str]:
    """Where to read. What a model names is in the user's skill, or in what the project was trusted with."""
    from treadle.toolkit import Root

    if file is not None and skill.own:
        return Beneath(Root(skill.path)), file
    return skill.place, f"{skill.folder}/{file or FILE}"


def _files(skill: Skill) -> list[str]:
    """The first files of the directory by name, two levels deep, relative to it."""
    found: list[str] = []
    for name in _named(skill, ""):
        inside = _named(skill, name)
        found += [f"{name}/{below}" for below in inside] if inside else [name]
    return found[:_MAX_NAMED_FILES]


def _named(skill: Skill, folder: str) -> list[str]:
    notes: list[str] = []
    names = list_names(skill.place, f"{skill.folder}/{folder}".rstrip("/"), notes)
    return [name for name in names if not name.startswith(".")]


def skill_tool(skills: Mapping[str, Skill]) -> Tool[..., Any]:
    """The tool by which a model loads skills and the files in them."""
    from treadle import tool

    def load_skill(name: str, file: str | None = None) -> str:
        """Load a skill: how to do a kind of task. Do so before you begin a task that its description fits.

        Args:
            name: The skill's name, as listed in the instructions.
            file: Another file of the skill to read instead, relative to its directory.
        """
        if name not in skills:
            raise ToolError(f"there is no skill {one_line(name)!r}; there are: {', '.join(skills)}")
        return skill_text(skills[name], file)

    return tool(load_skill, effect="read")
