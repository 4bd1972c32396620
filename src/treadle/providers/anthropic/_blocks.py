"""The blocks of an answer: each takes its deltas, and becomes parts of the message."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypeAlias

from treadle.events import ReasoningDelta, TextDelta, ToolCallDelta, ToolFinish, ToolStart
from treadle.messages import (
    Citation,
    ProviderPart,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    encodable,
)
from treadle.providers._arguments import is_cut, is_object
from treadle.providers._rendered import encode
from treadle.providers.anthropic._wire import CITATIONS, PROVIDER, Delta, decode_any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from treadle.events import ModelEvent
    from treadle.messages import AssistantPart


class TextBlock:
    """Text, and what it rests on."""

    def __init__(self, block: dict[str, Any]) -> None:
        self.held = ""
        self.pieces = [str(block.get("text") or "")]
        self.citations: list[Any] = list(block.get("citations") or ())

    def add(self, delta: Delta) -> ModelEvent | None:
        if delta.text:
            self.pieces.append(delta.text)
            return TextDelta(text=delta.text)
        if delta.citation is not None:
            self.citations.append(delta.citation)
        return None

    def begin(self) -> ModelEvent | None:
        return TextDelta(text=self.pieces[0]) if self.pieces[0] else None

    def close(self) -> ModelEvent | None:
        return self.add(Delta(text="\ufffd")) if self.held else None

    def parts(self) -> Iterable[AssistantPart]:
        """Our citations keep what readers want; the server wants them back as they came."""
        text = "".join(self.pieces)
        if text or self.citations:
            yield TextPart(text, tuple(dict.fromkeys(citation(item) for item in self.citations)))
        if self.citations:
            yield ProviderPart(PROVIDER, CITATIONS, self.citations)


class ThinkingBlock:
    """Visible thinking. It may be empty and have a signature all the same."""

    def __init__(self, block: dict[str, Any]) -> None:
        self.held = ""
        self.pieces = [str(block.get("thinking") or "")]
        self.signature = [str(block.get("signature") or "")]

    def add(self, delta: Delta) -> ModelEvent | None:
        if delta.thinking:
            self.pieces.append(delta.thinking)
            return ReasoningDelta(text=delta.thinking)
        if delta.signature:
            self.signature.append(delta.signature)
        return None

    def begin(self) -> ModelEvent | None:
        return ReasoningDelta(text=self.pieces[0]) if self.pieces[0] else None

    def close(self) -> ModelEvent | None:
        return self.add(Delta(thinking="\ufffd")) if self.held else None

    def parts(self) -> Iterable[AssistantPart]:
        text, signature = "".join(self.pieces), "".join(self.signature)
        if text or signature:
            yield ReasoningPart(text, signature or None)


class CallBlock:
    """A call that we must answer. `place` is its place among these; `given` are arguments that came with its start."""

    def __init__(self, block: dict[str, Any], call_id: str, place: int, given: str) -> None:
        self.held = ""
        self.id, self.place, self.given = call_id, place, given
        self.name = encodable(str(block.get("name") or "")) or "unnamed"
        self.pieces: list[str] = []
        self.extra = {key: value for key, value in block.items() if key not in ("type", "id", "name", "input")}
        self.cut = False

    @property
    def args(self) -> str:
        return encodable("".join(self.pieces))

    def add(self, delta: Delta) -> ModelEvent | None:
        if not delta.partial_json:
            return None
        self.pieces.append(delta.partial_json)
        return self._delta(delta.partial_json)

    def begin(self) -> ModelEvent | None:
        return self._delta("")

    def close(self) -> ModelEvent | None:
        last = "\ufffd" if self.held else "" if self.pieces else self.given
        return self.add(Delta(partial_json=last))

    def _delta(self, args: str) -> ModelEvent:
        return ToolCallDelta(index=self.place, call_id=self.id, name=self.name, args=args)

    def parts(self) -> Iterable[AssistantPart]:
        args = self.args
        whole = not args.strip() or is_object(args) or not is_cut(args)
        yield ToolCallPart(self.id, self.name, args, finished=whole and not self.cut, raw=self.extra or None)


class HostedCallBlock(CallBlock):
    """A call that the provider runs itself."""

    def __init__(self, block: dict[str, Any], call_id: str, place: int, given: str) -> None:
        super().__init__(block, call_id, place, given)
        self.block = block
        self.started = time.monotonic()

    def begin(self) -> ModelEvent | None:
        return None

    def add(self, delta: Delta) -> ModelEvent | None:
        super().add(delta)
        return None

    def close(self) -> ModelEvent | None:
        super().close()
        return ToolStart(call_id=self.id, index=self.place, name=self.name, args=self.args, hosted=True)

    def parts(self) -> Iterable[AssistantPart]:
        args = self.args
        value = decode_any(args.encode()) if args.strip() else {}
        raw = {**self.block, "input": value}
        yield ToolCallPart(self.id, self.name, args, finished=isinstance(value, dict), hosted=True, raw=raw)


class OpaqueBlock:
    """A block that goes back as it came."""

    held = ""

    def __init__(self, block: dict[str, Any]) -> None:
        self.block = block

    def merge(self, delta: Any) -> None:
        """Adds a delta of whatever kind: texts grow, everything else is set."""
        for key, value in delta.items() if isinstance(delta, dict) else ():
            known = self.block.get(key)
            if isinstance(value, str) and isinstance(known, str) and key != "type":
                self.block[key] = known + value
            elif value is not None and key != "type":
                self.block[key] = value

    def begin(self) -> ModelEvent | None:
        return None

    def close(self) -> ModelEvent | None:
        return None

    def parts(self) -> Iterable[AssistantPart]:
        if isinstance(kind := self.block.get("type"), str):
            yield ProviderPart(PROVIDER, kind, self.block)


class HostedResultBlock(OpaqueBlock):
    """The result of a hosted call. `call` is the call where this answer has it."""

    def __init__(self, block: dict[str, Any], call: HostedCallBlock | None, place: int) -> None:
        super().__init__(block)
        self._call, self._place = call, place

    def close(self) -> ModelEvent | None:
        result, call = self.result(), self._call
        return ToolFinish(
            call_id=result.call_id,
            index=self._place if call is None else call.place,
            name=result.name,
            result=result,
            is_error=result.is_error,
            duration_seconds=0.0 if call is None else time.monotonic() - call.started,
        )

    def result(self) -> ToolResultPart:
        content = self.block.get("content")
        kind = content.get("type") if isinstance(content, dict) else None
        is_error = bool(self.block.get("is_error")) or str(kind).endswith("_error")
        name = str(self.block["type"]).removesuffix("_tool_result") if self._call is None else self._call.name
        call_id = str(self.block.get("tool_use_id"))
        return ToolResultPart(call_id, name, _readable(content), is_error=is_error, hosted=True, raw=self.block)

    def parts(self) -> Iterable[AssistantPart]:
        yield self.result()


Block: TypeAlias = TextBlock | ThinkingBlock | CallBlock | OpaqueBlock


def citation(told: Any) -> Citation:
    """What readers want of a citation: of a page, of a document, of a search result."""

    def text(*keys: str) -> str | None:
        found = (told.get(key) for key in keys) if isinstance(told, dict) else ()
        return next((encodable(value) for value in found if isinstance(value, str)), None)

    url = text("url", "source")
    file = text("file_id", "document_title") if url is None else None
    return Citation(url=url, file=file, title=text("title", "document_title"), text=text("cited_text"))


def _readable(content: Any) -> str:
    """A hosted result's content as text: texts as they are, found pages with their addresses, the rest as JSON."""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(isinstance(item, dict) for item in content):
        if all(isinstance(item.get("text"), str) for item in content):
            return "\n".join(item["text"] for item in content)
        if all(isinstance(item.get("url"), str) for item in content):
            return "\n".join(f"{item.get('title') or ''} {item['url']}".strip() for item in content)
    return encode(content).decode()
