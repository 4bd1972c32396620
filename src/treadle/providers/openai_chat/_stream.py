"""The stream: bytes of an answer in, events out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from treadle.errors import ContextOverflowError, ModelError
from treadle.events import ModelFinish, ReasoningDelta, TextDelta, ToolCallDelta
from treadle.messages import (
    AssistantMessage,
    ModelRef,
    ProviderPart,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    clean,
    encodable,
)
from treadle.providers._arguments import is_cut
from treadle.providers._errors import refusal_in
from treadle.providers._event_stream import EventSplitter, collect
from treadle.providers._lenient import lenient, whole_pairs
from treadle.providers._rendered import encode
from treadle.providers._unread import Unread
from treadle.providers.openai_chat._calls import CallPieces, OpenCall
from treadle.providers.openai_chat._citations import Citations
from treadle.providers.openai_chat._details import Details
from treadle.providers.openai_chat._usage import failure_of, is_output_limit, stop_of, usage_of
from treadle.providers.openai_chat._wire import DETAILS, EXTRA, CallPiece, Function, decode_chunk
from treadle.usage import StopReason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from treadle.events import ModelEvent
    from treadle.messages import AssistantPart
    from treadle.providers._errors import Refusal
    from treadle.providers.openai_chat._wire import Choice, Chunk, Delta
    from treadle.usage import Usage

_LOST = "\ufffd"


class _Block:
    """A run of text or of reasoning: `kind` is the class of its deltas."""

    __slots__ = ("kind", "pieces")

    def __init__(self, kind: type[TextDelta | ReasoningDelta]) -> None:
        self.kind = kind
        self.pieces: list[str] = []


class AnswerReader:
    """Turns the bytes of one answer into our events, and knows at the end what the answer was.

    `refused` makes the error of a refusal inside the stream, `mask` takes the key out of what errors quote.
    Set `is_document` where the answer is one JSON value.
    """

    def __init__(
        self,
        provider: str,
        name: str,
        limit: int,
        refused: Callable[[Refusal], ModelError],
        mask: Callable[[str], str] = str,
    ) -> None:
        self._ref = ModelRef(provider, name)
        self._unread = Unread(self._ref, mask)
        self._limit = limit
        self._refused = refused
        self._splitter = EventSplitter()
        self._document = bytearray()
        self._blocks: list[_Block | OpenCall | Details] = []
        self._last: _Block | None = None
        self._calls = CallPieces()
        self._details = Details()
        self._citations = Citations()
        self._held: dict[Any, str] = {}
        self._mending = False
        self._usage: dict[str, Any] | None = None
        self._raw_stop: str | None = None
        self._native_stop: str | None = None
        self._stop: StopReason | None = None
        self._id: str | None = None
        self.is_document = False
        self.done = False

    @property
    def finished(self) -> bool:
        """Whether the server said that the answer ended."""
        return self._raw_stop is not None or self.done

    def feed(self, data: bytes) -> list[ModelEvent]:
        """What the next bytes of the body say."""
        if self.is_document:
            collect(self._document, data)
            return []
        events: list[ModelEvent] = []
        for name, payload in self._splitter.feed(data):
            if not self.done:
                self._take(name, payload, events)
        return events

    def end(self) -> list[ModelEvent]:
        """What the end of the body says: a last event without its blank line, or the whole of a document."""
        events: list[ModelEvent] = []
        found = self._splitter.finish()
        if self.is_document:
            body = bytes(self._document).strip()
            # Some servers stream under the wrong content type.
            found = [(b"", body)] if body.startswith(b"{") else self._splitter.feed(body + b"\n\n")
            self.done = body.startswith(b"{")
            if body and not found:
                raise self._unread.page(body)
        for name, payload in found:
            self._take(name, payload, events, last=True)
        self._let_go(events)
        return events

    def _take(self, name: bytes, data: bytes, events: list[ModelEvent], *, last: bool = False) -> None:
        if data == b"[DONE]":
            self.done = True
            return
        chunk, tidy = decode_chunk(data)
        if name == b"error" or (chunk is not None and chunk.error):
            self._fail((chunk.error if chunk is not None else None) or data)
            return
        if chunk is None:
            self._unread.skip(data, last=last, answered=self.finished and not self.is_document)
            return
        self._mending = self._mending or not tidy
        if chunk.usage or chunk.x_groq or chunk.citations or chunk.search_results:
            self._note(chunk)
        self._id = chunk.id
        for choice in chunk.choices or ():
            if not choice.index:  # one candidate is asked for
                self._take_choice(choice, events)

    def block(self, reason: str) -> None:
        """The provider refused the prompt itself."""
        self._raw_stop, self._stop, self.done = reason, StopReason.REFUSAL, True

    def _note(self, chunk: Chunk) -> None:
        """What stands beside the choices. Totals grow from chunk to chunk: the last one counts."""
        if chunk.usage:
            self._usage = chunk.usage
        elif chunk.x_groq and isinstance(usage := chunk.x_groq.get("usage"), dict):
            self._usage = self._usage or usage
        if chunk.search_results or chunk.citations:
            self._citations.note(chunk.search_results or chunk.citations)

    def _take_choice(self, choice: Choice, events: list[ModelEvent]) -> None:
        delta = choice.delta
        if choice.message is not None and (self.is_document or not (delta or self._blocks)):
            delta = choice.message  # Perplexity gives both
        if delta is not None:
            if reasoning := delta.reasoning_content or delta.reasoning:
                self._add(ReasoningDelta, reasoning, events)
            if delta.reasoning_details:
                self._take_details(
                    delta.reasoning_details, events, shown=bool(reasoning), whole=delta is not choice.delta
                )
            if content := delta.content:
                if type(content) is str:
                    self._add(TextDelta, content, events)
                else:
                    self._take_parts(content, events)
            if delta.tool_calls or delta.function_call or delta.refusal or delta.annotations:
                self._take_rest(delta, events)
        if choice.finish_reason is not None:
            self._raw_stop = choice.finish_reason
            self._native_stop = choice.native_finish_reason or self._native_stop

    def _add(self, kind: type[TextDelta | ReasoningDelta], text: str, events: list[ModelEvent]) -> None:
        if self._mending:
            text = self._mend(kind, text)
            if not text:
                return
        block = self._last
        if block is None or block.kind is not kind:
            block = self._last = _Block(kind)
            self._blocks.append(block)
        block.pieces.append(text)
        events.append(kind(text=text))

    def _take_parts(self, parts: Any, events: list[ModelEvent]) -> None:
        """Content in parts: Mistral thinks in them."""
        for part in parts:
            if isinstance(part, str):
                self._add(TextDelta, part, events)
            elif isinstance(part, dict):
                inner = part.get("thinking")
                thinking = part.get("type") in ("thinking", "reasoning")
                text = _joined(inner if inner is not None else part.get("text"))
                if text:
                    self._add(ReasoningDelta if thinking else TextDelta, text, events)

    def _take_details(self, details: list[Any], events: list[ModelEvent], *, shown: bool, whole: bool) -> None:
        """Opaque reasoning: it has its place in the answer, and its text is shown where nothing else tells it."""
        for detail in details:
            if not isinstance(detail, dict):
                continue
            if not self._details:
                self._blocks.append(self._details)
            self._details.add(detail, whole=whole)
            text = detail.get("text") or detail.get("summary")
            if not shown and isinstance(text, str) and text:
                self._add(ReasoningDelta, text, events)

    def _take_rest(self, delta: Delta, events: list[ModelEvent]) -> None:
        if delta.refusal:
            self._stop = StopReason.REFUSAL
            self._add(TextDelta, delta.refusal, events)
        pieces = delta.tool_calls or []
        old = delta.function_call
        if not pieces and old is not None and (old.name or old.arguments):
            pieces = [CallPiece(0, None, old)]
        for piece in pieces:
            self._take_call(piece, events)
        self._citations.annotate(delta.annotations or ())

    def _take_call(self, piece: CallPiece, events: list[ModelEvent]) -> None:
        function = piece.function or Function()
        args = function.arguments
        text = args if isinstance(args, str) else "" if args is None else encode(args).decode()
        known = len(self._calls.calls)
        self._calls.seed = self._calls.seed or self._id or ""
        call = self._calls.take(piece.index, encodable(piece.id or ""), encodable(function.name or ""), text)
        if len(self._calls.calls) > known:
            self._blocks.append(call)
            self._last = None
        if piece.extra_content is not None:
            call.extra = piece.extra_content
        if self._mending:
            text = self._mend(call, text)
        events.append(self._call_delta(call, text))

    def _call_delta(self, call: OpenCall, args: str) -> ToolCallDelta:
        return ToolCallDelta(index=call.place, call_id=call.id, name=call.name, args=args)

    def _mend(self, channel: Any, text: str) -> str:
        """`text` as valid text. Half a surrogate pair waits for the other half, in the next piece of its channel."""
        text, half = whole_pairs(self._held.pop(channel, "") + text)
        if half:
            self._held[channel] = half
        return text

    def _let_go(self, events: list[ModelEvent]) -> None:
        """Halves of pairs whose other half never came are told as such."""
        held, self._held = self._held, {}
        for channel in held:
            if isinstance(channel, OpenCall):
                events.append(self._call_delta(channel, _LOST))
            else:
                self._add(channel, _LOST, events)

    def finish(self) -> ModelFinish:
        """The whole answer. Raises where there is none."""
        if not self.finished:
            raise self._unread.broke_off()
        if not self._blocks and self._raw_stop is None:
            raise self._unread.empty()
        usage = usage_of(self._usage)
        stop, raw_stop = self._why(usage)
        parts = tuple(self._parts(cut=stop is StopReason.MAX_TOKENS))
        message = AssistantMessage(parts, stop, self._ref)
        return clean(ModelFinish(message=message, usage=usage, stop=stop, raw_stop=raw_stop, model=self._ref))

    def _parts(self, *, cut: bool) -> Iterable[AssistantPart]:
        last_text = next((block for block in reversed(self._blocks) if _is_text(block)), None)
        for block in self._blocks:
            if isinstance(block, OpenCall):
                yield self._call_part(block, cut=cut)
            elif isinstance(block, Details):
                yield ProviderPart(self._ref.provider, DETAILS, block.whole())
            elif block.kind is ReasoningDelta:
                yield ReasoningPart("".join(block.pieces))
            else:
                yield TextPart("".join(block.pieces), self._citations.all() if block is last_text else ())

    def _call_part(self, call: OpenCall, *, cut: bool) -> ToolCallPart:
        """The last call of a cut answer is not whole, whatever it looks like; nor is one whose JSON just ends."""
        args = encodable("".join(call.args))
        last = call is self._calls.calls[-1]
        finished = not (last and (cut or is_cut(args)))
        raw = None if call.extra is None else {EXTRA: call.extra}
        return ToolCallPart(call.id, call.name or "unnamed", args, finished=finished or not args.strip(), raw=raw)

    def _why(self, usage: Usage | None) -> tuple[StopReason, str | None]:
        """Why the answer ended, and the provider's own word for it."""
        if is_output_limit(self._native_stop):  # OpenRouter says `tool_calls` beside it
            return StopReason.MAX_TOKENS, self._native_stop
        calls = self._calls.calls
        if self._stop is not None and not calls:
            return self._stop, self._raw_stop
        word = self._raw_stop or ""
        if (failure := failure_of(word)) is not None:
            raise self._unread.error(failure, f"the provider broke the answer off: {word}")
        stop = stop_of(word, calls=bool(calls))
        full = usage is not None and usage.output_tokens >= self._limit
        if stop is StopReason.TOOL_CALLS and full and is_cut("".join(calls[-1].args)):
            stop = StopReason.MAX_TOKENS
        return stop, self._raw_stop

    def _fail(self, error: Any) -> None:
        """An error inside the stream. Only an overflow of the context is a stop; it leaves what came before."""
        if isinstance(error, bytes):
            error = lenient(error) or error.decode("utf-8", "replace")
        failure = self._refused(refusal_in(error))
        if not isinstance(failure, ContextOverflowError):
            raise failure
        self._raw_stop, self._stop, self.done = "context_length_exceeded", StopReason.CONTEXT, True


def _is_text(block: Any) -> bool:
    return isinstance(block, _Block) and block.kind is TextDelta


def _joined(value: Any) -> str:
    if isinstance(value, list):
        return "".join([_joined(item.get("text") if isinstance(item, dict) else item) for item in value])
    return value if isinstance(value, str) else ""
