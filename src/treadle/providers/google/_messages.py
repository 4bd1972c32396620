"""The request: messages on their way out."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, TypeGuard

from treadle.errors import UnsupportedError
from treadle.messages import AssistantMessage, ProviderPart, ReasoningPart, TextPart, ToolCallPart, UserMessage
from treadle.providers._arguments import legal_arguments, legal_name
from treadle.providers._faults import unsupported
from treadle.providers._result_files import heading, untaken
from treadle.providers.google._hosted import PART, TEXT_SIGNATURE
from treadle.providers.google._wire import decode_any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from treadle.messages import AssistantPart, FilePart, Message, ToolMessage, ToolResultPart

# What Gemini 3 takes for a call that it did not make itself (ai.google.dev/gemini-api/docs/thought-signatures, 2026).
_NO_SIGNATURE = "skip_thought_signature_validator"
_HOSTED = ("executableCode", "codeExecutionResult", "toolCall", "toolResponse")
_KINDS = frozenset({"image", "audio", "video", "text"})
_IN_RESULTS = frozenset({"image/png", "image/jpeg", "image/webp", "application/pdf", "text/plain"})


class MessageWriter:
    """Writes one message at a time, in a form that the API takes whoever said it.

    `modern` models (Gemini 3 and later) want each step's first call signed and take files inside of results.
    """

    def __init__(self, provider: str, name: str, *, modern: bool) -> None:
        self._provider, self._name, self._modern = provider, name, modern

    def write(self, message: Message, before: Message | None) -> list[dict[str, Any]]:
        """Our message as their contents: none, one or two. `before` is the message that it follows."""
        if isinstance(message, UserMessage):
            return _content("user", self._user(message.content))
        if isinstance(message, AssistantMessage):
            return _content("model", self._assistant(message))
        return self._results(message, before)

    def _user(self, parts: Iterable[TextPart | FilePart]) -> list[dict[str, Any]]:
        """Blank text is left out: the API refuses a part without content."""
        written = []
        for part in parts:
            if not isinstance(part, TextPart):
                written.append(self.file(part))
            elif part.text.strip():
                written.append({"text": part.text})
        return written

    def file(self, part: FilePart) -> dict[str, Any]:
        """A file as a part of the content. Raises `UnsupportedError` for one that the API does not take."""
        media_type = part.media_type.partition(";")[0].strip().lower()
        if media_type.partition("/")[0] not in _KINDS and media_type != "application/pdf":
            raise unsupported(f"{self._provider}:{self._name}", "files", f"no file of type {media_type}")
        if part.url is not None:
            return {"fileData": {"mimeType": media_type, "fileUri": part.url}}
        return {"inlineData": {"mimeType": media_type, "data": part.data}}

    def _assistant(self, message: AssistantMessage) -> list[dict[str, Any]]:
        own = message.model is None or message.model.provider == self._provider
        ids = iter(_call_ids([call.id for call in message.calls if call.finished]))
        written: list[dict[str, Any]] = []
        for part, following in itertools.zip_longest(message.content, message.content[1:]):
            if isinstance(part, TextPart):
                written += self._text(part, following)
            elif isinstance(part, ToolCallPart) and not part.hosted:
                if part.finished:
                    written.append(_call(part, next(ids), own=own))
                else:
                    written.append({"text": f"[cut off: {part.name}({part.args} ...]"})
            elif own:
                written += self._echo(part, written)
        calls = [part for part in written if "functionCall" in part]
        if self._modern and calls:
            calls[0].setdefault("thoughtSignature", _NO_SIGNATURE)
        return written if any("thought" not in part for part in written) else []

    def _text(self, part: TextPart, following: AssistantPart | None) -> list[dict[str, Any]]:
        if self._is_own(following, TEXT_SIGNATURE):
            return [{"text": part.text, "thoughtSignature": following.data}]
        return [{"text": part.text}] if part.text.strip() else []

    def _echo(self, part: AssistantPart, written: list[dict[str, Any]]) -> list[Any]:
        """Gives Google back what only it can read, each on the part it came with."""
        if isinstance(part, ReasoningPart):
            thought = {"text": part.text, "thought": True}
            if part.signature is not None:
                return [{**thought, "thoughtSignature": part.signature}]
            return [thought] if part.text.strip() else []
        if isinstance(part, ProviderPart):
            if self._is_own(part, TEXT_SIGNATURE) and not (written and "thoughtSignature" in written[-1]):
                return [{"text": "", "thoughtSignature": part.data}]
            return [part.data] if self._is_own(part, PART) and isinstance(part.data, dict) else []
        raw = None if isinstance(part, TextPart) else part.raw
        return [raw] if isinstance(raw, dict) and any(key in raw for key in _HOSTED) else []

    def _is_own(self, part: Any, kind: str) -> TypeGuard[ProviderPart]:
        return isinstance(part, ProviderPart) and part.provider == self._provider and part.kind == kind

    def _results(self, message: ToolMessage, before: Message | None) -> list[dict[str, Any]]:
        """The results as one content. What belongs to calls that went as text is text too, in another one."""
        calls = before.calls if isinstance(before, AssistantMessage) else ()
        pairs = list(itertools.zip_longest(message.results, calls[: len(message.results)]))
        whole = [(result, call) for result, call in pairs if call is None or call.finished]
        ids = iter(_call_ids([result.call_id for result, _ in whole]))
        responses: list[dict[str, Any]] = []
        told: list[dict[str, Any]] = []
        for result, call in pairs:
            inside: list[dict[str, Any]] = []
            if result.files:
                inside, beside = self._files(result)
                told += beside
            if call is None or call.finished:
                responses.append(_response(result, call, next(ids), inside))
            else:
                told.append({"text": f"[result of the call to {result.name} that was cut off: {result.content}]"})
                told += inside
        return [*_content("user", responses), *_content("user", told)]

    def _files(self, result: ToolResultPart) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """A result's files: those that go inside of it, and what goes beside it.

        A file that the model cannot take is named to it: a run must not fail for what a tool found.
        """
        inside: list[dict[str, Any]] = []
        beside: list[dict[str, Any]] = []
        for file in result.files:
            try:
                written = self.file(file)
            except UnsupportedError:
                beside.append({"text": untaken(file)})
                continue
            kind = written.get("inlineData", {}).get("mimeType")
            (inside if self._modern and kind in _IN_RESULTS else beside).append(written)
        return inside, [{"text": heading(result)}, *beside] if beside else []


def _content(role: str, parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"role": role, "parts": parts}] if parts else []


def _call(call: ToolCallPart, call_id: str, *, own: bool) -> dict[str, Any]:
    written: dict[str, Any] = {
        "functionCall": {"id": call_id, "name": legal_name(call.name), "args": _arguments(call.args)}
    }
    if own and call.signature is not None:
        written["thoughtSignature"] = call.signature
    return written


def _response(
    result: ToolResultPart, call: ToolCallPart | None, call_id: str, files: list[dict[str, Any]]
) -> dict[str, Any]:
    """The result as text: as JSON, keys like `$ref` in it would mean something to the API."""
    told = {"error" if result.is_error else "output": result.content}
    name = legal_name(result.name if call is None else call.name)
    written: dict[str, Any] = {"id": call_id, "name": name, "response": told}
    return {"functionResponse": {**written, "parts": files} if files else written}


def _call_ids(call_ids: list[str]) -> list[str]:
    """The ids of one step, no two equal, and the same for a call and its result."""
    ids: list[str] = []
    for call_id in call_ids:
        found, number = call_id, 2
        while found in ids:
            found, number = f"{call_id}_{number}", number + 1
        ids.append(found)
    return ids


def _arguments(args: str) -> Any:
    """Arguments as the JSON object that they are, with all its text valid."""
    return decode_any(legal_arguments(args).encode("utf-8", "replace"))
