"""The request: messages on their way out."""

from __future__ import annotations

import base64
import binascii
import itertools
import json
import re
from typing import TYPE_CHECKING, Any

import msgspec

from treadle.errors import UnsupportedError
from treadle.messages import (
    AssistantMessage,
    ProviderPart,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolMessage,
    ToolResultPart,
    UserMessage,
    encodable,
)
from treadle.providers._arguments import legal_arguments
from treadle.providers._call_ids import CallIds
from treadle.providers._faults import unsupported
from treadle.providers._result_files import untaken
from treadle.providers.anthropic._platform import ANTHROPIC, FAMILY, Platform
from treadle.providers.anthropic._wire import CITATIONS, CONTAINER, PROVIDER, STOP_DETAILS
from treadle.usage import StopReason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from treadle.messages import AssistantPart, FilePart, Message

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}", re.ASCII)
_LEGAL_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}", re.ASCII)
_IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_TEXTS = frozenset({"application/json", "application/xml", "application/yaml", "application/x-yaml"})
_THINKING = frozenset({"thinking", "redacted_thinking"})
_NO_BLOCKS = frozenset({CITATIONS, CONTAINER, STOP_DETAILS})


class MessageWriter:
    """Writes one message at a time, in a form that the server takes whoever said it."""

    def __init__(self, name: str, platform: Platform = ANTHROPIC) -> None:
        self._name, self._platform = name, platform
        self._ids = CallIds(_LEGAL_ID, "toolu_")

    def write(self, message: Message, before: Message | None) -> list[dict[str, Any]]:
        """Our message as theirs: none or one. `before` is the message that it follows."""
        self._ids.enter(message, before)
        if isinstance(message, UserMessage):
            content = [self._text_or_file(part) for part in message.content if not _is_blank(part)]
            return _message("user", content)
        if isinstance(message, ToolMessage):
            return _message("user", self._results(message, before))
        return _message("assistant", self.blocks(message))

    # What users say

    def _text_or_file(self, part: TextPart | FilePart) -> dict[str, Any]:
        return {"type": "text", "text": part.text} if isinstance(part, TextPart) else self.file(part)

    def file(self, part: FilePart) -> dict[str, Any]:
        """A file as a block. Raises `UnsupportedError` for one that the server does not take."""
        media_type = part.media_type.partition(";")[0].strip().lower()
        model = f"{self._platform.provider}:{self._name}"
        if part.url is not None and not self._platform.file_urls:
            raise unsupported(model, "files", "no file by url: pass its data")
        if media_type in _IMAGES or (part.url is not None and media_type == "image/*"):
            return {"type": "image", "source": _source(part, media_type)}
        document = {"type": "document", **({"title": part.name} if part.name else {})}
        if media_type == "application/pdf":
            return {**document, "source": _source(part, media_type)}
        if media_type.startswith("text/") or media_type in _TEXTS:
            text = _decoded(part)
            if text is not None and text.strip():
                return {**document, "source": {"type": "text", "media_type": "text/plain", "data": text}}
        where = "" if part.url is None or media_type not in _TEXTS else " by url: pass its data"
        raise unsupported(model, "files", f"no file of type {media_type}{where}")

    # What the model said

    def blocks(self, message: AssistantMessage, *, paused: bool = False) -> list[dict[str, Any]]:
        """The blocks of an answer. What is the provider's own goes back as it came, and only to itself.

        Thinking goes to other places of the same models, too.
        `paused`: the turn goes on behind these blocks, so that they are all sent, up to a call that has no result yet.
        """
        said_by = self._platform.provider if message.model is None else message.model.provider
        own, kin = said_by == self._platform.provider, said_by in FAMILY
        content = list(self._blocks(message, own=own, kin=kin, paused=paused))
        while content and not paused and content[-1]["type"] in _THINKING:
            content.pop()  # refused at the end
        return content

    def _blocks(self, message: AssistantMessage, *, own: bool, kin: bool, paused: bool) -> Iterator[dict[str, Any]]:
        calls = [call for call in message.calls if call.finished]
        ids = iter(self._ids.of(message, [call.id for call in calls]))
        hosted = {part.id for part in message.content if isinstance(part, ToolCallPart) and part.hosted}
        answered = {part.call_id for part in message.content if isinstance(part, ToolResultPart)}
        # A hosted call may wait for the results of our own calls, which it made itself. An answer whose results name
        # calls that it does not have is not ours to judge.
        waiting = paused or message.stop is StopReason.TOOL_CALLS or not answered <= hosted
        for part, following in itertools.zip_longest(message.content, message.content[1:]):
            if isinstance(part, ToolCallPart) and not part.hosted:
                yield _call(part, next(ids), own=own) if part.finished else _cut_call(part)
            elif isinstance(part, TextPart):
                if part.text.strip():
                    yield {"type": "text", "text": part.text, **(_citations(following) if own else {})}
            elif (own and (not isinstance(part, ToolCallPart) or waiting or part.id in answered)) or (
                kin and _is_thinking(part)
            ):
                yield from self._own_block(part)

    def _own_block(self, part: AssistantPart) -> Iterator[dict[str, Any]]:
        """A block that only the provider itself understands. Thinking without its signature would be refused."""
        if isinstance(part, ReasoningPart):
            if part.signature:
                yield {"type": "thinking", "thinking": part.text, "signature": part.signature}
        elif isinstance(part, ProviderPart):
            if part.provider == PROVIDER and part.kind not in _NO_BLOCKS and _is_block(part.data):
                yield part.data
        elif isinstance(part, ToolResultPart | ToolCallPart) and _is_block(part.raw) and _is_whole(part):
            yield part.raw

    # What tools say

    def _results(self, message: ToolMessage, before: Message | None) -> list[dict[str, Any]]:
        """Results first, as the server asks. Those of calls that went as text are text too."""
        asked = before if isinstance(before, AssistantMessage) else AssistantMessage(())
        ids = iter(self._ids.of(asked, [call.id for call in asked.calls if call.finished]))
        results: list[dict[str, Any]] = []
        told: list[dict[str, Any]] = []
        for result, call in itertools.zip_longest(message.results, asked.calls[: len(message.results)]):
            if call is not None and call.finished:
                results.append(self._result(result, next(ids)))
            else:
                text = f"[result of the call to {result.name} that was cut off: {result.content}]"
                told.append({"type": "text", "text": text})
        return results + told

    def _result(self, result: ToolResultPart, call_id: str) -> dict[str, Any]:
        written: dict[str, Any] = {"type": "tool_result", "tool_use_id": call_id}
        content: list[dict[str, Any]] = []
        if result.content.strip() or (result.is_error and not result.files):
            content.append({"type": "text", "text": result.content if result.content.strip() else "It failed."})
        for file in result.files:
            try:
                content.append(self.file(file))
            except UnsupportedError:
                content.append({"type": "text", "text": untaken(file)})
        if content:
            written["content"] = content
        return {**written, "is_error": True} if result.is_error else written


def _message(role: str, content: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"role": role, "content": content}] if content else []


def _is_blank(part: TextPart | FilePart) -> bool:
    """Blank text is left out: the server refuses it."""
    return isinstance(part, TextPart) and not part.text.strip()


def _source(part: FilePart, media_type: str) -> dict[str, Any]:
    if part.url is not None:
        return {"type": "url", "url": part.url}
    return {"type": "base64", "media_type": media_type, "data": part.data}


def _decoded(part: FilePart) -> str | None:
    try:
        return None if part.data is None else base64.b64decode(part.data).decode("utf-8", "replace")
    except (binascii.Error, ValueError):
        return None


def _citations(following: AssistantPart | None) -> dict[str, Any]:
    """The citations of a text stand behind it, as they came."""
    if isinstance(following, ProviderPart) and following.kind == CITATIONS:
        return {CITATIONS: following.data}
    return {}


def _is_block(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("type"), str)


def _is_thinking(part: AssistantPart) -> bool:
    return isinstance(part, ReasoningPart) or (isinstance(part, ProviderPart) and part.kind in _THINKING)


def _is_whole(part: ToolResultPart | ToolCallPart) -> bool:
    return isinstance(part, ToolResultPart) or part.finished


def _call(call: ToolCallPart, call_id: str, *, own: bool) -> dict[str, Any]:
    extra = call.raw if own and isinstance(call.raw, dict) else {}
    name = call.name if _LEGAL_NAME.fullmatch(call.name) else re.sub(r"[^a-zA-Z0-9_-]", "_", call.name)[:128]
    return {**extra, "type": "tool_use", "id": call_id, "name": name or "unnamed", "input": _input(call.args)}


def _input(args: str) -> Any:
    """The model's own text, wherever that is an object. Halves of surrogate pairs, which it may escape, are refused."""
    text = encodable(legal_arguments(args))
    return json.loads(text) if "\\ud" in text.lower() else msgspec.Raw(text.encode())


def _cut_call(call: ToolCallPart) -> dict[str, Any]:
    return {"type": "text", "text": f"[cut off: {call.name}({call.args} ...]"}
