"""The request: messages on their way out."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Any

from treadle.messages import (
    AssistantMessage,
    ProviderPart,
    TextPart,
    ToolCallPart,
    ToolMessage,
    UserMessage,
)
from treadle.providers._arguments import legal_arguments, legal_name
from treadle.providers._call_ids import CallIds
from treadle.providers._faults import unsupported
from treadle.providers._result_files import heading, taken
from treadle.providers.openai._items import (
    APPROVAL_REQUEST,
    FUNCTION_CALL,
    MESSAGE,
    NOT_APPROVED,
    REASONING,
    kind_of,
    unanswered,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from treadle.messages import AssistantPart, FilePart, Message, ToolResultPart
    from treadle.providers.openai._dialects import Dialect

# OpenAI refuses longer ids, and one that comes up twice in a request (2026-11).
_LEGAL_ID = re.compile(r".{1,64}", re.DOTALL)

_Item = dict[str, Any]


class MessageWriter:
    """Writes one message at a time, in a form that the server takes whoever said it."""

    def __init__(self, provider: str, name: str, dialect: Dialect) -> None:
        self._provider, self._name, self._dialect = provider, name, dialect
        self._ids = CallIds(_LEGAL_ID, "call_")

    def write(self, message: Message, before: Message | None) -> list[_Item]:
        """Our message as items: none, one or several. `before` is the message that it follows."""
        self._ids.enter(message, before)
        if isinstance(message, UserMessage):
            return self._user(message.content)
        if isinstance(message, ToolMessage):
            return self._results(message, before)
        return self._assistant(message)

    def _user(self, parts: Iterable[TextPart | FilePart]) -> list[_Item]:
        content = self._content(parts)
        if not content:
            return []
        if all(item["type"] == "input_text" for item in content):
            return [{"role": "user", "content": "\n\n".join(item["text"] for item in content)}]
        return [{"role": "user", "content": content}]

    def _content(self, parts: Iterable[TextPart | FilePart]) -> list[_Item]:
        """Blank text is left out."""
        content: list[_Item] = []
        for part in parts:
            if not isinstance(part, TextPart):
                content.append(self.file(part))
            elif part.text.strip():
                content.append({"type": "input_text", "text": part.text})
        return content

    def file(self, part: FilePart) -> _Item:
        """A file as a part of the content. Raises `UnsupportedError` for one that the server does not take."""
        media_type = part.media_type.partition(";")[0].strip().lower()
        kind = "pdf" if media_type == "application/pdf" else media_type.partition("/")[0]
        if kind not in self._dialect.files:
            raise unsupported(f"{self._provider}:{self._name}", "files", f"no file of type {media_type}")
        data = f"data:{media_type};base64,{part.data}"
        if kind == "image":
            return {"type": "input_image", "image_url": part.url if part.url is not None else data}
        if part.url is not None:
            return {"type": "input_file", "file_url": part.url}
        return {"type": "input_file", "filename": part.name or "document.pdf", "file_data": data}

    def _assistant(self, message: AssistantMessage) -> list[_Item]:
        own = self._is_own(message)
        ids = iter(self._ids.of(message, [call.id for call in message.calls if call.finished]))
        items: list[_Item] = []
        said: _Item | None = None
        phase: _Item = {}
        for part in message.content:
            if isinstance(part, TextPart):
                if said is None:
                    said = {"role": "assistant", "content": "", **phase}
                    items.append(said)
                said["content"] += part.text
            elif isinstance(part, ProviderPart) and part.kind == MESSAGE:
                told = part.provider == self._provider and isinstance(part.data, dict)
                said, phase = None, part.data if told else {}
            elif written := self._part(part, ids, own=own):
                items += written
                said, phase = None, {}
        return self._settled([item for item in items if "type" in item or item["content"].strip()])

    def _part(self, part: AssistantPart, ids: Iterator[str], *, own: bool) -> list[_Item]:
        """A call, or what the provider gets back as it came: the rest of another's answer stays behind."""
        if isinstance(part, ToolCallPart) and not part.hosted:
            if part.finished:
                return [_call(part, next(ids), own=own)]
            return [{"role": "assistant", "content": f"[cut off: {part.name}({part.args} ...]"}]
        if isinstance(part, ToolCallPart):
            return _hosted(part.raw) if own and isinstance(part.raw, dict) and kind_of(part.raw) else []
        if isinstance(part, ProviderPart) and part.provider == self._provider and isinstance(part.data, dict):
            return [part.data] if self._goes_back(part.data) else []
        return []

    def _is_own(self, message: AssistantMessage) -> bool:
        """Whether the provider said this itself: what it gave beside the text goes back to nobody else."""
        return message.model is not None and message.model.provider == self._provider

    def _goes_back(self, item: _Item) -> bool:
        """OpenAI looks up reasoning that it gets without its content, and finds none: nothing was stored."""
        sealed = item.get("encrypted_content") or item.get("content")
        kind = kind_of(item)
        return bool(kind) and (kind != REASONING or bool(sealed) or self._dialect.open_reasoning)

    def _settled(self, items: list[_Item]) -> list[_Item]:
        """Without items that would make the server refuse the rest: unanswered ones, reasoning that led to nothing."""
        loose = [id(item) for item in unanswered(items)]
        items = [item for item in items if id(item) not in loose]
        while items and kind_of(items[-1]) == REASONING:
            items.pop()
        if self._dialect.calls_last:
            items.sort(key=lambda item: kind_of(item) == FUNCTION_CALL)
        return items

    def _results(self, message: ToolMessage, before: Message | None) -> list[_Item]:
        """One output for each result. Results of calls that went as text are text too."""
        asked = before if isinstance(before, AssistantMessage) else None
        own = asked is not None and self._is_own(asked)
        calls = asked.calls if asked is not None else ()
        whole: list[tuple[ToolResultPart, ToolCallPart | None]] = []
        told: list[TextPart | FilePart] = []
        for result, call in itertools.zip_longest(message.results, calls[: len(message.results)]):
            if call is None or call.finished:
                whole.append((result, call))
                told += [] if self._dialect.files_in_results else self._beside(result)
            else:
                told.append(TextPart(f"[result of the call to {result.name} that was cut off: {result.content}]"))
                told += self._beside(result)
        sent = [call.id for call in calls if call.finished]
        ids = iter(self._ids.of(asked, sent) if asked is not None else ())
        outputs = [self._output(result, call if own else None, next(ids, result.call_id)) for result, call in whole]
        return outputs + self._user(told)

    def _output(self, result: ToolResultPart, call: ToolCallPart | None, call_id: str) -> _Item:
        """A result. One that a program of the model's asked for says so again."""
        output: str | list[_Item] = result.content
        if result.files and self._dialect.files_in_results:
            output = self._content([TextPart(result.content), *taken(result, self.file)])
        written = {"type": "function_call_output", "call_id": call_id, "output": output}
        if call is not None and isinstance(call.raw, dict) and call.raw.get("caller"):
            written["caller"] = call.raw["caller"]
        return written

    def _beside(self, result: ToolResultPart) -> list[TextPart | FilePart]:
        return [TextPart(heading(result)), *taken(result, self.file)] if result.files else []


def _call(call: ToolCallPart, call_id: str, *, own: bool) -> _Item:
    """`call_id` pairs a call with its output; the item's own id and whatever else came with it go along."""
    raw = call.raw if own and isinstance(call.raw, dict) else {}
    name, arguments = legal_name(call.name), legal_arguments(call.args)
    return {"type": FUNCTION_CALL, **raw, "call_id": call_id, "name": name, "arguments": arguments}


def _hosted(item: _Item) -> list[_Item]:
    """A hosted call goes back whole. A server that waits for an approval is told no: the conversation goes on."""
    if kind_of(item) != APPROVAL_REQUEST:
        return [item]
    asked = {"approval_request_id": item.get("id"), "approve": False, "reason": NOT_APPROVED}
    return [item, {"type": "mcp_approval_response", **asked}]
