"""What is typed, made into the parts of a message: files that are named go along, and so does what commands printed."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlsplit

from treadle.cli.attachments import attachment
from treadle.errors import ConfigError
from treadle.messages import FilePart, TextPart

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MEDIA = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".pdf", ".mp3", ".wav")
# `@"a path"` or `@path`, and what terminals type for a file that is dropped on them: quoted, escaped or as a URL.
_NAMED = re.compile(
    r"""(?<!\S)(?:@(?:"(?P<quoted>[^"\n]+)"|(?P<bare>\S+))|(?P<dropped>'/[^'\n]+'|"/[^"\n]+"|file:///\S+|/(?:\\.|[^\s\\])+))"""
)


class Message(NamedTuple):
    """The parts to send, and in words what goes along and what could not."""

    parts: list[TextPart | FilePart]
    notes: list[str]


def message_of(
    text: str, *, root: Path, typed: str | None = None, outputs: Sequence[str] = (), files: bool = True
) -> Message:
    """The message for `text`. Images, PDF and audio that it names are attached, where the model takes `files`.

    Where not all of it was typed, only what is named in `typed` is. `outputs` is what the person's own commands
    printed; it stands before the text.
    """
    attached: list[FilePart] = []
    notes: list[str] = []
    for name, path in _media(text if typed is None else typed, root):
        if not files:
            notes.append(f"{name} stays behind: this model takes no files")
            continue
        if _leads_out(path, root):
            notes.append(f"{name} stays behind: it is a link to somewhere else; give its own path")
            continue
        try:
            part = attachment(str(path))
        except ConfigError as error:
            notes.append(str(error).removeprefix("--file "))
            continue
        if isinstance(part, FilePart):
            attached.append(part)
    along = [part.name or part.media_type for part in attached]
    along += [f"the output of {len(outputs)} command{'s' * (len(outputs) > 1)}"] * bool(outputs)
    if along:
        notes.insert(0, f"along with it: {', '.join(along)}")
    return Message([*attached, *(TextPart(output) for output in outputs), TextPart(text)], notes)


def _media(text: str, root: Path) -> Iterator[tuple[str, Path]]:
    """The media files that `text` names and that are there, each once."""
    seen: set[Path] = set()
    for found in _NAMED.finditer(text):
        name = _dropped(found["dropped"]) if found["dropped"] else found["quoted"] or found["bare"]
        if not name.lower().endswith(MEDIA):
            name = name.rstrip(".,;:!?)")
        path = root / Path(name).expanduser()
        if name.lower().endswith(MEDIA) and path not in seen and _is_file(path):
            seen.add(path)
            yield name, path


def _leads_out(path: Path, root: Path) -> bool:
    """Whether a name within the root is in truth a file outside: a repository may hold links to anything."""
    within = Path(os.path.normpath(path)).is_relative_to(root)
    return within and not path.resolve().is_relative_to(root.resolve())


def _dropped(word: str) -> str:
    if word.startswith("file://"):
        return unquote(urlsplit(word).path)
    if word[0] in "'\"":
        return word[1:-1]
    return re.sub(r"\\(.)", r"\1", word)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False
