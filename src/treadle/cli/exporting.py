"""A conversation as a file to read or to work on."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from treadle.errors import ConfigError
from treadle.messages import (
    SCHEMA_VERSION,
    AssistantMessage,
    FilePart,
    TextPart,
    ToolCallPart,
    ToolMessage,
    UserMessage,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from treadle import Message


def exported(session: str, messages: Sequence[Message], *, as_json: bool) -> bytes:
    """The conversation as JSON for programs, or as Markdown for people."""
    return _as_json(session, messages) if as_json else as_markdown(session, messages)


def write_new(path: Path, data: bytes) -> None:
    """Writes a file that is not there yet. Raises `ConfigError`."""
    try:
        with path.open("xb") as file:
            file.write(data)
    except FileExistsError:
        raise ConfigError(f"{path} is there already; name another file") from None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None


def _as_json(session: str, messages: Sequence[Message]) -> bytes:
    """The messages as they are, for programs: `decode_messages` reads the list of them back."""
    exported = {"version": SCHEMA_VERSION, "session": session, "messages": messages}
    return msgspec.json.format(msgspec.json.encode(exported), indent=1) + b"\n"


def as_markdown(session: str, messages: Sequence[Message]) -> bytes:
    """The conversation for people: texts as they are, calls and results in fences."""
    blocks = [block for message in messages for block in _blocks(message)]
    return "\n\n".join([f"# Session {session}", *blocks]).encode(errors="replace") + b"\n"


def _blocks(message: Message) -> Iterator[str]:
    match message:
        case UserMessage(content=content):
            yield "## User"
            for part in content:
                yield f"[{part.media_type} {part.name or part.url or ''}]" if isinstance(part, FilePart) else part.text
        case AssistantMessage(content=content):
            yield "## Assistant"
            for piece in content:
                if isinstance(piece, TextPart):
                    yield piece.text
                elif isinstance(piece, ToolCallPart):
                    yield f"Call of `{piece.name}`:\n\n{_fenced(piece.args, 'json')}"
        case ToolMessage(results=results):
            for result in results:
                yield f"{'Error' if result.is_error else 'Result'} of `{result.name}`:\n\n{_fenced(result.content)}"


def _fenced(text: str, language: str = "") -> str:
    """`text` in a fence that is longer than any in it."""
    longest = max((len(ticks) for ticks in re.findall("`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"
