"""The stream: bytes of an answer in, events out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from treadle.errors import ContextOverflowError, ModelError, ModelResponseError
from treadle.events import ModelFinish, ReasoningDelta, TextDelta, ToolCallDelta
from treadle.messages import (
    AssistantMessage,
    ModelRef,
    ProviderPart,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    clean,
)
from treadle.providers._errors import one_line, refusal_in
from treadle.providers._event_stream import EventSplitter, collect
from treadle.providers._unread import Unread
from treadle.providers.google._calls import Calls, OpenCall
from treadle.providers.google._hosted import PART, TEXT_SIGNATURE, Hosted
from treadle.providers.google._usage import failure_of, stop_of, tells, usage_of
from treadle.providers.google._wire import decode_any, decode_array, decode_chunk, raw_parts
from treadle.usage import StopReason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from treadle.events import ModelEvent
    from treadle.messages import AssistantPart
    from treadle.providers._errors import Refusal
    from treadle.providers.google._wire import Candidate, Chunk, Counts, FunctionCall, Part


class _Block:
    """A run of text or of reasoning: `kind` is the class of its deltas."""

    __slots__ = ("kind", "pieces", "signature")

    def __init__(self, kind: type[TextDelta | ReasoningDelta]) -> None:
        self.kind = kind
        self.pieces: list[str] = []
        self.signature: str | None = None


class AnswerReader:
    """Turns the bytes of one answer into our events, and knows at the end what the answer was.

    `refused` makes the error of a refusal inside the stream, `mask` takes the key out of what errors quote.
    Set `is_document` where the answer is one JSON value.
    """

    def __init__(
        self, provider: str, name: str, refused: Callable[[Refusal], ModelError], mask: Callable[[str], str] = str
    ) -> None:
        self._ref = ModelRef(provider, name)
        self._unread = Unread(self._ref, mask)
        self._refused = refused
        self._splitter = EventSplitter()
        self._document = bytearray()
        self._blocks: list[_Block | OpenCall | ToolCallPart | ToolResultPart | ProviderPart] = []
        self._last: _Block | None = None
        self._calls = Calls()
        self._hosted = Hosted(provider)
        self._counts: Counts | None = None
        self._raw_stop: str | None = None
        self._stop: StopReason | None = None
        self._why_stopped = ""
        self.is_document = False

    @property
    def finished(self) -> bool:
        """Whether the server said that the answer ended."""
        return self._raw_stop is not None

    def feed(self, data: bytes) -> list[ModelEvent]:
        """What the next bytes of the body say."""
        if self.is_document:
            collect(self._document, data)
            return []
        events: list[ModelEvent] = []
        for name, payload in self._splitter.feed(data):
            self._take(name, payload, events)
        return events

    def end(self) -> list[ModelEvent]:
        """What the end of the body says: a last event without its blank line, or the whole of a document."""
        events: list[ModelEvent] = []
        found = self._splitter.finish()
        if self.is_document:
            found = self._in_document(bytes(self._document).strip())
        for name, payload in found:
            self._take(name, payload, events, last=True)
        return events

    def _in_document(self, body: bytes) -> list[tuple[bytes, bytes]]:
        """The chunks of a document: one, an array of them, or a stream under the wrong content type."""
        if body.startswith(b"["):
            chunks = decode_array(body)
            if chunks is None:
                raise self._unread.broke_off()
            return [(b"", chunk) for chunk in chunks]
        found = [(b"", body)] if body.startswith(b"{") else self._splitter.feed(body + b"\n\n")
        if body and not found:
            raise self._unread.page(body)
        return found

    def _take(self, name: bytes, data: bytes, events: list[ModelEvent], *, last: bool = False) -> None:
        chunk = decode_chunk(data)
        if name == b"error" or (chunk is not None and chunk.error):
            self._fail(chunk.error if chunk is not None and chunk.error else decode_any(data))
        elif chunk is None:
            self._unread.skip(data, last=last, answered=self.finished and not self.is_document)
        else:
            self._take_chunk(chunk, data, events)

    def _take_chunk(self, chunk: Chunk, data: bytes, events: list[ModelEvent]) -> None:
        if not self._calls.seed and chunk.candidates:  # a keepalive is the same in every answer
            self._calls.seed = self._hosted.seed = chunk.response_id or data.decode("utf-8", "replace")
        if (counts := chunk.usage_metadata) is not None and tells(counts):
            self._counts = counts
        if chunk.prompt_feedback is not None and chunk.prompt_feedback.block_reason:
            self._raw_stop, self._stop = chunk.prompt_feedback.block_reason, StopReason.REFUSAL
        for candidate in chunk.candidates or ():
            if candidate.index:  # one candidate is asked for
                continue
            if candidate.content is not None and candidate.content.parts:
                for place, part in enumerate(candidate.content.parts):
                    if part.text is not None and part.function_call is None:
                        self._take_text(part, part.text, events)
                    elif part.function_call is not None:
                        self._take_call(part.function_call, part.thought_signature, events)
                    else:
                        self._take_other(raw_parts(data)[place : place + 1], events)
            self._note(candidate)

    def _note(self, candidate: Candidate) -> None:
        """What stands beside the content."""
        if candidate.finish_reason is not None:
            self._raw_stop = candidate.finish_reason
            self._why_stopped = candidate.finish_message or ""
        if candidate.grounding_metadata or candidate.url_context_metadata or candidate.citation_metadata:
            self._hosted.note(candidate.grounding_metadata, candidate.url_context_metadata, candidate.citation_metadata)

    def _take_text(self, part: Part, text: str, events: list[ModelEvent]) -> None:
        """Text or reasoning. A signature closes the reasoning so far, but belongs to its own piece of text only."""
        kind = ReasoningDelta if part.thought else TextDelta
        signature = part.thought_signature
        if signature is not None and not part.thought:
            self._last = None
            if not text:
                self._blocks.append(ProviderPart(self._ref.provider, PART, {"text": "", "thoughtSignature": signature}))
                return
        block = self._last
        if not (text or signature):
            return
        if block is None or block.kind is not kind:
            block = self._last = _Block(kind)
            self._blocks.append(block)
        if text:
            block.pieces.append(text)
            events.append(kind(text=text))
        if signature is not None:
            block.signature, self._last = signature, None

    def _take_call(self, piece: FunctionCall, signature: str | None, events: list[ModelEvent]) -> None:
        known = len(self._calls.all)
        try:
            left, call = self._calls.take(piece, signature)
        except ValueError as error:
            raise self._unread.error(ModelResponseError, str(error)) from error
        if left is not None:
            left.close()
            events.append(self._call_delta(left))
        if call is None:
            return
        if len(self._calls.all) > known:
            self._blocks.append(call)
            self._last = None
        elif call.is_open:
            return
        events.append(self._call_delta(call))

    def _call_delta(self, call: OpenCall) -> ToolCallDelta:
        return ToolCallDelta(index=call.place, call_id=call.id, name=call.name, args=call.args)

    def _take_other(self, found: list[Any], events: list[ModelEvent]) -> None:
        for raw in found:
            if isinstance(raw, dict) and raw:
                part, told = self._hosted.take(raw)
                self._blocks.append(part)
                self._last = None
                events += told

    def conclude(self) -> list[ModelEvent]:
        """The last events before the finish: hosted calls that the answer tells of only beside it."""
        if not self.finished:
            raise self._unread.broke_off()
        parts, events = self._hosted.beside()
        self._blocks += parts
        if (call := self._calls.last_open) is not None:
            call.close(cut=self._raw_stop != "STOP")
            events.append(self._call_delta(call))
        return events

    def finish(self) -> ModelFinish:
        """The whole answer. Raises where there is none."""
        stop = self._why()
        parts = tuple(self._parts(cut=stop is StopReason.MAX_TOKENS))
        message = AssistantMessage(parts, stop, self._ref)
        usage = usage_of(self._counts)
        return clean(ModelFinish(message=message, usage=usage, stop=stop, raw_stop=self._raw_stop, model=self._ref))

    def _why(self) -> StopReason:
        if self._stop is not None:
            return self._stop
        word, calls = self._raw_stop or "", bool(self._calls.all)
        if (failure := failure_of(word, calls=calls)) is not None:
            kind, retryable = failure
            detail = f" ({one_line(self._why_stopped)})" if self._why_stopped else ""
            raise self._unread.error(kind, f"the answer ended with {word}{detail}", retryable=retryable)
        return stop_of(word, calls=calls)

    def _parts(self, *, cut: bool) -> Iterable[AssistantPart]:
        texts = [block for block in self._blocks if isinstance(block, _Block) and block.kind is TextDelta]
        citations = self._hosted.citations()
        for block in self._blocks:
            if isinstance(block, OpenCall):
                finished = not (block.is_cut or (cut and block is self._calls.all[-1]))
                yield ToolCallPart(block.id, block.name, block.args, block.signature, finished=finished)
            elif not isinstance(block, _Block):
                yield block
            elif block.kind is ReasoningDelta:
                yield ReasoningPart("".join(block.pieces), block.signature)
            else:
                yield TextPart("".join(block.pieces), citations if block is texts[-1] else ())
                if block.signature is not None:
                    yield ProviderPart(self._ref.provider, TEXT_SIGNATURE, block.signature)

    def _fail(self, error: Any) -> None:
        """An error inside the stream. Only an overflow of the context is a stop; it leaves what came before."""
        failure = self._refused(refusal_in(error))
        if not isinstance(failure, ContextOverflowError):
            raise failure
        self._raw_stop, self._stop = "context_length_exceeded", StopReason.CONTEXT
