"""The stream: bytes of an answer in, events out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from treadle.errors import ContextOverflowError, ModelError, ModelResponseError
from treadle.events import ModelFinish
from treadle.messages import AssistantMessage, ModelRef, clean
from treadle.providers._errors import refusal_in
from treadle.providers._event_stream import EventSplitter, collect
from treadle.providers._lenient import lenient
from treadle.providers._unread import Unread
from treadle.providers.openai._errors import Blocked
from treadle.providers.openai._incoming import ARGS, Incoming
from treadle.providers.openai._items import FUNCTION_CALL, MESSAGE, REASONING
from treadle.providers.openai._usage import stop_of, usage_of
from treadle.providers.openai._wire import decode_event, decode_item, decode_response
from treadle.usage import StopReason

if TYPE_CHECKING:
    from collections.abc import Callable

    from treadle.events import ModelEvent
    from treadle.providers._errors import Refusal
    from treadle.providers.openai._wire import Event, Response

# Fragments: the item that each belongs to, and the running text in it.
_DELTAS = {
    "response.output_text.delta": (MESSAGE, "text"),
    "response.refusal.delta": (MESSAGE, "text"),
    "response.reasoning_summary_text.delta": (REASONING, "summary"),
    "response.reasoning_text.delta": (REASONING, "content"),
    "response.function_call_arguments.delta": (FUNCTION_CALL, "args"),
}
_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled"})


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
        self._incoming = Incoming(provider)
        self._mending = False
        self._usage: Any = None
        self._response: Response | None = None
        self._stop: tuple[StopReason, str] | None = None
        self.is_document = False

    @property
    def done(self) -> bool:
        """Whether the server said that the answer ended."""
        return self._response is not None or self._stop is not None

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
        found = self._splitter.finish()
        body = bytes(self._document).strip()
        if body.startswith(b"{"):
            self._take_document(body, events)
        elif body:
            found = self._splitter.feed(body + b"\n\n")  # a stream under the wrong content type
            if not found:
                raise self._unread.page(body)
        for _, payload in found:
            if not self.done:
                self._take(payload, events, last=True)
        return events

    def _take(self, data: bytes, events: list[ModelEvent], *, last: bool = False) -> None:
        event, tidy = decode_event(data)
        if event is None:
            self._unread.skip(data, last=last, answered=self.done)
            return
        if not tidy:
            self._mending = True
        kind = event.type
        found = _DELTAS.get(kind)
        if found is not None:
            self._take_delta(*found, event, events)
            return
        if kind.startswith("response."):  # a keepalive is the same in every answer
            self._incoming.seed = self._incoming.seed or data
        if kind in _ENDS:
            self._take_end(decode_response(event.response), events, kind.removeprefix("response."))
        elif kind == "error" or (event.error and not kind.startswith("response.")):
            self._fail(lenient(data))
        else:
            self._take_progress(event, events)

    def _take_delta(self, kind: str, name: str, event: Event, events: list[ModelEvent]) -> None:
        if not event.delta:
            return
        key = (name, event.content_index or event.summary_index or 0)
        channel = self._incoming.channel(event.output_index, kind, key, events)
        if channel is None:
            return
        if self._mending:
            channel.mend(event.delta, events)
        else:
            channel.tell(event.delta, events)

    def _take_progress(self, event: Event, events: list[ModelEvent]) -> None:
        """What opens and closes the items and their texts. Kinds of events that we do not know are skipped."""
        kind, index = event.type, event.output_index
        if kind in ("response.output_item.added", "response.output_item.done"):
            if (item := decode_item(event.item)) is not None:
                take = self._incoming.begin if kind.endswith("added") else self._incoming.finish
                take(index, item, events)
        elif kind in ("response.output_text.done", "response.refusal.done"):
            key = ("text", event.content_index or 0)
            self._incoming.tell_whole(index, key, event.text or event.refusal or "", events)
        elif kind == "response.function_call_arguments.done":
            self._incoming.tell_whole(index, ARGS, event.arguments or "", events)
        elif kind == "response.mcp_call_arguments.done":
            self._incoming.start_hosted(index, event.arguments, events)

    def _take_document(self, body: bytes, events: list[ModelEvent]) -> None:
        response = decode_response(body)
        if response is None:
            raise self._unread.broke_off()
        if response.error and not response.status:
            self._fail(response.error)
            return
        if response.status in ("queued", "in_progress") or (response.status is None and response.output is None):
            why = f": it is {response.status}, and answers in the background are not read" if response.status else ""
            text = f"the document holds no answer{why}"
            raise self._unread.error(ModelResponseError, text, retryable=False)
        self._incoming.seed = body
        self._take_end(response, events, "completed")

    def _take_end(self, response: Response | None, events: list[ModelEvent], status: str) -> None:
        """The whole answer. `status` is that of one which tells none."""
        if response is None:
            raise self._unread.error(ModelResponseError, "the last event holds no answer")
        response.status = response.status or status
        self._usage = response.usage
        if response.error or response.status == "failed":
            self._fail(response.error or "the answer failed, and no reason was given")
            return
        if response.status == "cancelled":
            raise self._unread.error(ModelResponseError, "the answer was cancelled on the provider's side")
        self._response = response
        self._incoming.close(response.output or (), events)

    def finish(self) -> ModelFinish:
        """The whole answer. Raises where there is none."""
        if not self.done:
            raise self._unread.broke_off()
        usage = usage_of(self._usage)
        stop, raw_stop = self._stop or stop_of(self._response, self._incoming.items)
        parts = tuple(self._incoming.parts(cut=stop is StopReason.MAX_TOKENS))
        message = AssistantMessage(parts, stop, self._ref)
        return clean(ModelFinish(message=message, usage=usage, stop=stop, raw_stop=raw_stop, model=self._ref))

    def block(self, reason: str) -> None:
        """The provider's filter refused the prompt, or the answer."""
        self._stop = (StopReason.REFUSAL, reason)

    def _fail(self, error: Any) -> None:
        """An error inside the answer. Overflow of the context and a filter's refusal are stops; what came stays."""
        failure = self._refused(refusal_in(error))
        if isinstance(failure, Blocked):
            self.block(str(failure))
        elif isinstance(failure, ContextOverflowError):
            self._stop = (StopReason.CONTEXT, "context_length_exceeded")
        else:
            raise failure
