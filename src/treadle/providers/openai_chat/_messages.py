"""The request: messages on their way out."""

from __future__ import annotations

import hashlib
import itertools
from typing import TYPE_CHECKING, Any

from treadle.messages import (
    AssistantMessage,
    ProviderPart,
    ReasoningPart,
    TextPart,
    ToolMessage,
    UserMessage,
    encodable,
)
from treadle.providers._arguments import legal_arguments, legal_name
from treadle.providers._faults import unsupported
from treadle.providers._result_files import heading, taken
from treadle.providers.openai_chat._wire import DETAILS, EXTRA

if TYPE_CHECKING:
    from collections.abc import Iterable

    from treadle.messages import FilePart, Message, ToolCallPart, ToolResultPart
    from treadle.providers.openai_chat._dialects import Dialect

_MAX_CALL_ID = 40  # OpenAI refuses longer ones
_AUDIO = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/wave": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}


class MessageWriter:
    """Writes one message at a time, in a form that the server takes whoever said it."""

    def __init__(self, provider: str, name: str, dialect: Dialect) -> None:
        self._provider, self._name, self._dialect = provider, name, dialect

    def write(self, message: Message, before: Message | None) -> list[dict[str, Any]]:
        """Our message as theirs: none, one or several. `before` is the message that it follows."""
        if isinstance(message, UserMessage):
            content = self._content(message.content)
            return self._after_tools([{"role": "user", "content": content}], before) if content else []
        if isinstance(message, ToolMessage):
            return self._results(message, before)
        return self._assistant(message) or self._after_tools([], before)

    def _after_tools(self, found: list[dict[str, Any]], before: Message | None) -> list[dict[str, Any]]:
        """Mistral refuses a user message right behind tool results (2026-11). An empty answer does not stand there."""
        if not self._dialect.user_after_tool and isinstance(before, ToolMessage):
            return [{"role": "assistant", "content": "OK"}, *found]
        return found

    def _content(self, parts: Iterable[TextPart | FilePart]) -> str | list[dict[str, Any]]:
        """Blank text is left out: most servers refuse it."""
        content: list[dict[str, Any]] = []
        for part in parts:
            if not isinstance(part, TextPart):
                content.append(self.file(part))
            elif part.text.strip():
                content.append({"type": "text", "text": part.text})
        if content and all(item["type"] == "text" for item in content):
            return self.text("\n\n".join(item["text"] for item in content))
        return content

    def text(self, text: str) -> str | list[dict[str, Any]]:
        """Text as content. In parts where they may be marked: what is cached must not change its form later."""
        return [{"type": "text", "text": text}] if self._dialect.cache_marks and text.strip() else text

    def file(self, part: FilePart) -> dict[str, Any]:
        """A file as a part of the content. Raises `UnsupportedError` for one that the server does not take."""
        media_type = part.media_type.partition(";")[0].strip().lower()
        kind = "pdf" if media_type == "application/pdf" else media_type.partition("/")[0]
        url = part.url if part.url is not None else f"data:{media_type};base64,{part.data}"
        if kind in self._dialect.files:
            if kind == "image":
                return {"type": "image_url", "image_url": {"url": url}}
            if kind == "audio" and media_type in _AUDIO and part.data is not None:
                return {"type": "input_audio", "input_audio": {"data": part.data, "format": _AUDIO[media_type]}}
            if kind == "pdf" and (part.data is not None or self._dialect.pdf_urls):
                return {"type": "file", "file": {"filename": part.name or "document.pdf", "file_data": url}}
        where = "" if part.url is None or kind not in self._dialect.files else " by url: pass its data"
        raise unsupported(f"{self._provider}:{self._name}", "files", f"no file of type {media_type}{where}")

    def _assistant(self, message: AssistantMessage) -> list[dict[str, Any]]:
        own = message.model is None or message.model.provider == self._provider
        text = "".join([part.text for part in message.content if isinstance(part, TextPart)])
        texts = [text] if text.strip() else []
        texts += [_call_as_text(call) for call in message.calls if not self._is_sent(call)]
        sent = [call for call in message.calls if self._is_sent(call)]
        ids = self._call_ids([call.id for call in sent])
        calls = [_call(call, call_id, own=own) for call, call_id in zip(sent, ids, strict=True)]
        written: dict[str, Any] = {"role": "assistant"}
        if texts:
            written["content"] = "\n\n".join(texts)
        if calls:
            written["tool_calls"] = calls
        if not (texts or calls):
            return []
        if own:
            self._echo(message, written)
        if self._dialect.reasoning_always and self._dialect.reasoning_field is not None:
            written.setdefault(self._dialect.reasoning_field, " ")
        return [written]

    def _echo(self, message: AssistantMessage, written: dict[str, Any]) -> None:
        """Gives a provider its own reasoning back, in the form it asks for."""
        details = [
            item
            for part in message.content
            if isinstance(part, ProviderPart) and part.provider == self._provider and part.kind == DETAILS
            for item in part.data
        ]
        if details:
            written[DETAILS] = details
        field = self._dialect.reasoning_field
        text = "".join([part.text for part in message.content if isinstance(part, ReasoningPart)])
        if field is None or not text or details:
            return
        if field == "thinking":
            thinking: list[Any] = [{"type": "thinking", "thinking": [{"type": "text", "text": text}]}]
            if "content" in written:
                thinking.append({"type": "text", "text": written["content"]})
            written["content"] = thinking
        elif field == "<think>":
            written["content"] = f"<think>\n{text}\n</think>\n\n{written.get('content', '')}"
        else:
            written[field] = text

    def _is_sent(self, call: ToolCallPart | None) -> bool:
        """Whether a call goes as one: those that were cut off, and all where the model has no tools, go as text."""
        return self._dialect.tools and (call is None or call.finished)

    def _call_ids(self, call_ids: list[str]) -> list[str]:
        """The ids of one step as the server takes them: no two equal, and the same for a call and its result."""
        ids: list[str] = []
        for call_id in call_ids:
            found, number = self._call_id(call_id), 2
            while found in ids:
                found, number = self._call_id(f"{call_id}_{number}"), number + 1
            ids.append(found)
        return ids

    def _call_id(self, call_id: str) -> str:
        """The id in a form the server takes, whoever invented it."""
        length = self._dialect.call_id_length
        if length is not None:
            if len(call_id) == length and call_id.isascii() and call_id.isalnum():
                return call_id
            return hashlib.sha256(encodable(call_id).encode()).hexdigest()[:length]
        if len(call_id) <= _MAX_CALL_ID:
            return call_id
        return f"call_{hashlib.sha256(encodable(call_id).encode()).hexdigest()[:24]}"

    def _results(self, message: ToolMessage, before: Message | None) -> list[dict[str, Any]]:
        """One message for each result. Results of calls that went as text are text too; files follow in a message."""
        calls = before.calls if isinstance(before, AssistantMessage) else ()
        whole: list[ToolResultPart] = []
        told: list[TextPart | FilePart] = []
        for result, call in itertools.zip_longest(message.results, calls[: len(message.results)]):
            if self._is_sent(call):
                whole.append(result)
            else:
                cut = "" if call is None or call.finished else " that was cut off"
                told.append(TextPart(f"[result of the call to {result.name}{cut}: {result.content}]"))
            told += self._beside(result)
        ids = self._call_ids([result.call_id for result in whole])
        written: list[dict[str, Any]] = [
            {"role": "tool", "tool_call_id": call_id, "content": self.text(result.content)}
            for call_id, result in zip(ids, whole, strict=True)
        ]
        if told:
            follow_up = [{"role": "user", "content": self._content(told)}]
            written += self._after_tools(follow_up, message if written else None)
        return written

    def _beside(self, result: ToolResultPart) -> list[TextPart | FilePart]:
        return [TextPart(heading(result)), *taken(result, self.file)] if result.files else []


def _call_as_text(call: ToolCallPart) -> str:
    return f"[called {call.name}({call.args})]" if call.finished else f"[cut off: {call.name}({call.args} ...]"


def _call(call: ToolCallPart, call_id: str, *, own: bool) -> dict[str, Any]:
    function = {"name": legal_name(call.name), "arguments": legal_arguments(call.args)}
    written = {"id": call_id, "type": "function", "function": function}
    if own and isinstance(call.raw, dict) and EXTRA in call.raw:
        written[EXTRA] = call.raw[EXTRA]
    return written
