"""The stream: bytes of an answer in, events out."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from treadle.errors import ContextOverflowError, ModelError, ModelResponseError
from treadle.events import ModelFinish
from treadle.messages import AssistantMessage, ModelRef, ProviderPart, clean, encodable
from treadle.providers._errors import refusal_in
from treadle.providers._event_stream import EventSplitter, collect
from treadle.providers._lenient import whole_pairs
from treadle.providers._unread import Unread
from treadle.providers.anthropic._blocks import (
    CallBlock,
    HostedCallBlock,
    HostedResultBlock,
    OpaqueBlock,
    TextBlock,
    ThinkingBlock,
)
from treadle.providers.anthropic._usage import PAUSED, is_cut_off, stop_of, usage_of
from treadle.providers.anthropic._wire import (
    CONTAINER,
    PROVIDER,
    STOP_DETAILS,
    Delta,
    decode_any,
    decode_event,
    decode_message,
    input_text,
)
from treadle.usage import StopReason

if TYPE_CHECKING:
    from collections.abc import Callable

    import msgspec

    from treadle.events import ModelEvent
    from treadle.messages import AssistantPart
    from treadle.providers._errors import Refusal
    from treadle.providers.anthropic._blocks import Block
    from treadle.providers.anthropic._wire import Event, Message
    from treadle.usage import Usage

_OVERFLOW = "model_context_window_exceeded"


class AnswerReader:
    """Turns the bytes of one answer into our events, and knows at the end what the answer was.

    An answer may take several requests: the server pauses a long turn, and `begin` goes on with it. `refused` makes the
    error of a refusal inside the stream, `mask` takes the key out of what errors quote.
    Set `is_document` where the body is one JSON value.
    """

    def __init__(
        self,
        name: str,
        refused: Callable[[Refusal], ModelError],
        mask: Callable[[str], str] = str,
        provider: str = PROVIDER,
    ) -> None:
        self._mask = mask
        self._ref = ModelRef(provider, name)
        self._refused = refused
        self._blocks: list[Block] = []
        self._calls: list[CallBlock] = []
        self._hosted: dict[str, HostedCallBlock] = {}
        self._earlier: Usage | None = None
        self._told: dict[str, Any] = {}
        self._mending = False
        self._container: Any = None
        self._id = ""
        self.begin()

    def begin(self) -> None:
        """Gets ready for the next body. What came before stays."""
        self._earlier, self._told = self._usage(), {}
        self._splitter = EventSplitter()
        self._document = bytearray()
        self._open: dict[int, Block] = {}
        self._raw_stop: str | None = None
        self._stop_details: Any = None
        self._unread = Unread(self._ref, self._mask)
        self.is_document = False
        self.done = False

    @property
    def finished(self) -> bool:
        """Whether the server said that the answer ended."""
        return self._raw_stop is not None or self.done

    @property
    def paused(self) -> bool:
        """Whether the server waits to be asked for the rest of this turn."""
        return self._raw_stop == PAUSED

    def feed(self, data: bytes) -> list[ModelEvent]:
        """What the next bytes of the body say."""
        if self.is_document:
            collect(self._document, data)
            return []
        events: list[ModelEvent] = []
        for _, payload in self._splitter.feed(data):
            if not self.done:
                self._take(payload, events)
        return events

    def end(self) -> list[ModelEvent]:
        """What the end of the body says: a last event without its blank line, or the whole of a document."""
        events: list[ModelEvent] = []
        if self.is_document:
            self._take_document(bytes(self._document).strip(), events)
        for _, payload in self._splitter.finish():
            self._take(payload, events, last=True)
        for index in list(self._open):
            self._close(index, events)
        return events

    def _take(self, data: bytes, events: list[ModelEvent], *, last: bool = False) -> None:
        event, tidy = decode_event(data)
        if event is None:
            self._unread.skip(data, last=last, answered=self.finished)
            return
        self._mending = self._mending or not tidy
        kind, delta = event.type, event.delta
        if kind == "content_block_delta":
            if delta is not None:
                self._add(event.index, delta, data, events)
        elif kind == "content_block_start":
            self._start(event.index, event.content_block, events)
        elif kind == "content_block_stop":
            self._close(event.index, events)
        elif kind == "message_delta":
            self._note(delta, event.usage)
        elif kind == "message_stop":
            self.done = True
        else:
            self._take_rare(event)

    def _take_rare(self, event: Event) -> None:
        """The head of a message, which may come twice, and errors. Pings and unknown kinds are skipped."""
        if event.type == "message_start" and event.message is not None:
            self._id = event.message.id or ""
            self._note(None, event.message.usage)
        elif event.type == "error" or event.error:
            self._fail(event)

    def _take_document(self, body: bytes, events: list[ModelEvent]) -> None:
        if not body.startswith(b"{"):
            # Some servers stream under the wrong content type.
            found = self._splitter.feed(body + b"\n\n")
            if body and not found:
                raise self._unread.page(body)
            for _, payload in found:
                self._take(payload, events)
            return
        message, (head, _) = decode_message(body), decode_event(body)
        if head is not None and (head.type == "error" or head.error):
            self._fail(head)
        elif message is None:
            raise self._unread.broke_off()
        else:
            self._take_message(message, events)

    def _take_message(self, message: Message, events: list[ModelEvent]) -> None:
        self._id = message.id or ""
        for index, block in enumerate(message.content):
            self._start(index, block, events, whole=True)
            self._close(index, events)
        end = Delta(stop_reason=message.stop_reason, stop_details=message.stop_details, container=message.container)
        self._note(end, message.usage)
        self.done = True

    # Blocks

    def _start(self, index: int, raw: msgspec.Raw, events: list[ModelEvent], *, whole: bool = False) -> None:
        self._close(index, events)
        block = decode_any(raw)
        if not isinstance(block, dict):
            return
        made = self._block(block, raw, whole=whole)
        self._blocks.append(made)
        self._open[index] = made
        if (event := made.begin()) is not None:
            events.append(event)

    def _block(self, block: dict[str, Any], raw: msgspec.Raw, *, whole: bool) -> Block:
        kind = str(block.get("type"))
        if kind == "text":
            return TextBlock(block)
        if kind == "thinking":
            return ThinkingBlock(block)
        if kind.endswith("tool_use"):
            return self._call(block, input_text(raw) if whole or block.get("input") else "")
        if kind.endswith("_tool_result"):
            call = self._hosted.get(str(block.get("tool_use_id")))
            return HostedResultBlock(block, call, len(self._hosted))
        return OpaqueBlock(block)

    def _call(self, block: dict[str, Any], given: str) -> CallBlock:
        call_id = self._free_id(encodable(str(block.get("id") or "")))
        if block["type"] != "tool_use":
            hosted = self._hosted[call_id] = HostedCallBlock(block, call_id, len(self._hosted), given)
            return hosted
        call = CallBlock(block, call_id, len(self._calls), given)
        self._calls.append(call)
        return call

    def _free_id(self, sent_id: str) -> str:
        """The sent id, or an invented one, made unique within the answer."""
        taken = {call.id for call in (*self._calls, *self._hosted.values())}
        seed = f"{self._id}/{len(taken)}"
        base = sent_id or f"toolu_{hashlib.sha256(seed.encode()).hexdigest()[:24]}"
        found, number = base, 2
        while found in taken:
            found, number = f"{base}_{number}", number + 1
        return found

    def _add(self, index: int, delta: Delta, data: bytes, events: list[ModelEvent]) -> None:
        block = self._open.get(index)
        if block is None:
            block = self._open[index] = self._unannounced(delta)
        if isinstance(block, OpaqueBlock):
            value = decode_any(data)
            block.merge(value.get("delta") if isinstance(value, dict) else None)
            return
        if self._mending:
            _mend(block, delta)
        if (event := block.add(delta)) is not None:
            events.append(event)

    def _unannounced(self, delta: Delta) -> Block:
        """A block whose start never came. Arguments of a call without a name are a fault."""
        block: Block
        if delta.text is not None or delta.citation is not None:
            block = TextBlock({})
        elif delta.thinking is not None or delta.signature is not None:
            block = ThinkingBlock({})
        elif delta.partial_json:
            raise self._unread.error(ModelResponseError, "arguments came for a call that was never begun")
        else:
            return OpaqueBlock({})  # of no known kind: taken, and left out of the message
        self._blocks.append(block)
        return block

    def _close(self, index: int, events: list[ModelEvent]) -> None:
        block = self._open.pop(index, None)
        if block is not None and (event := block.close()) is not None:
            events.append(event)

    # The end

    def _note(self, delta: Delta | None, usage: dict[str, Any] | None) -> None:
        """Counts are totals: the last one told counts. A null says nothing."""
        self._told |= {key: value for key, value in (usage or {}).items() if value is not None}
        if delta is not None:
            self._raw_stop = delta.stop_reason or self._raw_stop
            self._stop_details = delta.stop_details or self._stop_details
            self._container = delta.container or self._container

    def _usage(self) -> Usage | None:
        usage = usage_of(self._told)
        return usage if self._earlier is None else self._earlier if usage is None else self._earlier + usage

    def _parts(self) -> tuple[AssistantPart, ...]:
        parts = [part for block in self._blocks for part in block.parts()]
        beside = ((CONTAINER, self._container), (STOP_DETAILS, self._stop_details))
        return (*parts, *(ProviderPart(PROVIDER, kind, data) for kind, data in beside if data is not None))

    def finish(self) -> ModelFinish:
        """The whole answer. Raises where there is none."""
        if not self.finished:
            raise self._unread.broke_off()
        if not self._blocks and self._raw_stop is None:
            raise self._unread.empty()
        stop = stop_of(self._raw_stop, calls=bool(self._calls))
        last = self._blocks[-1] if self._blocks else None
        if is_cut_off(stop) and isinstance(last, CallBlock):
            last.cut = True  # it is not whole, whatever it looks like
        message, usage = AssistantMessage(self._parts(), stop, self._ref), self._usage()
        return clean(ModelFinish(message=message, usage=usage, stop=stop, raw_stop=self._raw_stop, model=self._ref))

    def so_far(self) -> AssistantMessage:
        """The turn that the server paused, as it must go back."""
        return clean(AssistantMessage(self._parts(), StopReason.OTHER, self._ref))

    # What goes wrong

    def _fail(self, event: Event) -> None:
        """An error inside the stream. Only an overflow of the context is a stop; it leaves what came before."""
        failure = self._refused(refusal_in(event.error)._replace(request_id=event.request_id))
        if not isinstance(failure, ContextOverflowError):
            raise failure
        self._raw_stop, self.done = _OVERFLOW, True


def _mend(block: Any, delta: Delta) -> None:
    """Makes the delta's text valid. Half a surrogate pair waits for the other half, in the next piece of its block."""
    for field in ("text", "thinking", "partial_json"):
        text = getattr(delta, field)
        if text is None:
            continue
        text, block.held = whole_pairs(block.held + text)
        setattr(delta, field, text)
