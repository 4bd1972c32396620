"""What a caller hands to a run, made into valid messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from treadle.errors import ConfigError, UnsupportedError
from treadle.messages import (
    AssistantMessage,
    FilePart,
    Message,
    TextPart,
    ToolMessage,
    UserMessage,
    UserPart,
    clean,
)
from treadle.model import model_ref
from treadle.sessions import check_session_id
from treadle.transcript import repair

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from treadle.model import Model
    from treadle.sessions import Store

Input: TypeAlias = "str | UserPart | Message | Sequence[UserPart] | Sequence[Message]"


def take_input(
    given: Input, messages: Iterable[Message], model: Model
) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """The repaired history and the repaired new messages. Raises `ConfigError` where there is nothing to answer."""
    before = tuple(clean(message) for message in messages)
    everything = repair((*before, *(clean(message) for message in _as_messages(given))))
    history = repair(before)
    same = 0  # new results may answer calls of the history: what they change counts as new
    while same < len(history) and (history[same] is everything[same] or history[same] == everything[same]):
        same += 1
    if not everything or isinstance(everything[-1], AssistantMessage) or _is_blank(everything[-1]):
        raise ConfigError("there is nothing to answer: give a prompt that is not blank, or messages that end with one")
    if not model.capabilities.files and any(map(_has_file, everything)):
        raise UnsupportedError(
            f"{model_ref(model)} takes no files: leave them out, or choose another model",
            model=str(model_ref(model)),
            feature="files",
        )
    return everything[:same], everything[same:]


def session_place(store: Store | None, session: str | None, messages: Iterable[Message]) -> tuple[Store, str] | None:
    """The store and the session of a run; None without. Raises `ConfigError` for what does not go together."""
    if store is None and session is None:
        return None
    if store is None or session is None:
        raise ConfigError('a session needs both: give store=JsonLinesStore(directory) and session="some-id"')
    if not isinstance(messages, tuple | list) or messages:
        raise ConfigError("the history comes from the session: leave out messages= and result=")
    return store, check_session_id(session)


def _as_messages(given: Input) -> Sequence[Message]:
    if isinstance(given, str):
        return (UserMessage((TextPart(given),)),) if given else ()
    items = (given,) if isinstance(given, TextPart | FilePart | UserMessage | AssistantMessage | ToolMessage) else given
    parts = [item for item in items if isinstance(item, TextPart | FilePart)]
    whole = [item for item in items if isinstance(item, UserMessage | AssistantMessage | ToolMessage)]
    if parts and not whole and len(parts) == len(items):
        return (UserMessage(tuple(parts)),)
    if len(whole) != len(items):
        raise ConfigError(
            "the input is a string, a list of text and file parts, or a list of messages; do not mix them"
        )
    return whole


def _is_blank(message: Message) -> bool:
    return isinstance(message, UserMessage) and not any(
        isinstance(part, FilePart) or part.text.strip() for part in message.content
    )


def _has_file(message: Message) -> bool:
    """Whether the user gave a file. Those that tools found are named to a model that takes none."""
    return isinstance(message, UserMessage) and any(isinstance(part, FilePart) for part in message.content)
