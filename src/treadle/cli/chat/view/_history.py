"""Messages as lines: what the user says, and a conversation of earlier."""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.cli.chat.view._answer import Stream, Thought
from treadle.cli.chat.view._blocks import Blocks
from treadle.cli.chat.view._cells import beside, clip, folded, wrap
from treadle.cli.chat.view._describe import counted, named
from treadle.cli.chat.view._outcome import indented, tell
from treadle.cli.chat.view._words import Spacing
from treadle.cli.terminal import one_line
from treadle.messages import (
    AssistantMessage,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolMessage,
    ToolResultPart,
    UserMessage,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from treadle.cli.chat.view._cells import Line
    from treadle.messages import AssistantPart, Message

_SAID_LINES = 30
_REPLAYED = 50_000  # characters; more takes longer than anybody waits for a prompt
_EACH = 200  # characters that a message counts for besides its text


def said(text: str, width: int) -> list[Line]:
    """What the user said, marked as such; of long texts the beginning and the end."""
    sign = width >= 10
    room = width - 2 * sign
    lines = folded(text.rstrip("\n"), _SAID_LINES, room, lambda some: wrap([("", some)], room))
    if not sign:
        return [clip(line, width) for line in lines]
    return [clip([("user", "> " if index == 0 else "  "), *line], width) for index, line in enumerate(lines)]


def replayed(messages: Iterable[Message], width: int, *, show_reasoning: bool, marks: bool) -> list[Line]:
    """A conversation: what was said by both sides, and each call in a line with what it came to."""
    messages, spacing = list(messages), Spacing()
    begin = _begin(messages)
    note = f"[... {counted(begin, 'earlier message')} not shown ...]"
    lines = spacing.apart([clip([("dim", note)], width)] if begin else [])
    for index, message in enumerate(messages[begin:], begin):
        if isinstance(message, UserMessage):
            blocks = [spacing.apart(said(_of_user(message), width))]
        elif isinstance(message, AssistantMessage):
            results = _results(messages, index)
            parts = message.content if show_reasoning else _without_reasoning(message)
            blocks = [spacing.put(_part(part, results, width, marks=marks), _kind(part)) for part in parts]
            spacing.apart([])
        else:
            continue
        for block in blocks:
            lines += block
    return lines


def _begin(messages: list[Message]) -> int:
    """Which of the messages at the end is the first that is shown."""
    size, begin = 0, len(messages)
    while begin and size < _REPLAYED:
        begin -= 1
        message = messages[begin]
        parts = message.content if isinstance(message, UserMessage | AssistantMessage) else ()
        size += _EACH + sum(len(part.text) for part in parts if isinstance(part, TextPart | ReasoningPart))
    return begin


def _of_user(message: UserMessage) -> str:
    return "\n".join(
        part.text if isinstance(part, TextPart) else f"[{one_line(part.name or part.url or part.media_type)}]"
        for part in message.content
    )


def _results(messages: list[Message], index: int) -> dict[str, ToolResultPart]:
    """The results of an answer's calls: in the message behind it, or in itself for hosted ones."""
    answer = messages[index]
    after = messages[index + 1] if index + 1 < len(messages) else None
    results = list(after.results) if isinstance(after, ToolMessage) else []
    return {part.call_id: part for part in (*results, *_hosted(answer))}


def _hosted(message: Message) -> Iterator[ToolResultPart]:
    for part in message.content if isinstance(message, AssistantMessage) else ():
        if isinstance(part, ToolResultPart):
            yield part


def _without_reasoning(message: AssistantMessage) -> list[AssistantPart]:
    return [part for part in message.content if not isinstance(part, ReasoningPart)]


def _kind(part: AssistantPart) -> str:
    return "calls" if isinstance(part, ToolCallPart) else f"text {id(part)}"


def _part(part: AssistantPart, results: dict[str, ToolResultPart], width: int, *, marks: bool) -> list[Line]:
    if isinstance(part, TextPart | ReasoningPart):
        stream = Stream(Blocks(marks=marks) if isinstance(part, TextPart) else Thought())
        early = max(0, len(part.text) - _REPLAYED)
        note = [clip([("dim", f"[... {counted(early, 'character')} before ...]")], width)] if early else []
        return [*note, *stream.feed(part.text[early:], width), *stream.end(width)]
    if not isinstance(part, ToolCallPart):
        return []
    name = named(part.name, part.args, hosted=part.hosted)
    result = results.get(part.id)
    if result is None:
        return [beside([("dim", "· "), *name], [("dim", " · no result")], width)]
    told = tell(result, None, "", width, refused=False, failed=result.is_error)
    words: Line = [("dim", f" · {told.words}")] if told.words else []
    return [beside([told.sign, *name], words, width), *indented(told.lines, width)]
