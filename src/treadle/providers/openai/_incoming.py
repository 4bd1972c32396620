"""The items of an answer while they come in: which text belongs to which, and what was told of it."""

from __future__ import annotations

import functools
import hashlib
from typing import TYPE_CHECKING, Any

from treadle.events import ReasoningDelta, TextDelta, ToolCallDelta, ToolFinish, ToolStart
from treadle.messages import ProviderPart, encodable
from treadle.providers._arguments import is_cut
from treadle.providers._lenient import whole_pairs
from treadle.providers.openai import _items
from treadle.providers.openai._items import FUNCTION_CALL, MESSAGE, REASONING, kind_of
from treadle.providers.openai._wire import decode_item

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import msgspec

    from treadle.events import ModelEvent
    from treadle.messages import AssistantPart

ARGS = ("args", 0)
_HOSTED = "hosted"
_LOST = "\ufffd"


class Channel:
    """One running text: `make` gives the event of a piece of it."""

    __slots__ = ("held", "make", "pieces")

    def __init__(self, make: Callable[[str], ModelEvent]) -> None:
        self.make = make
        self.pieces: list[str] = []
        self.held = ""

    @property
    def text(self) -> str:
        """What was told so far."""
        return "".join(self.pieces)

    def tell(self, text: str, events: list[ModelEvent]) -> None:
        """Tells a piece that is valid text."""
        self.pieces.append(text)
        events.append(self.make(text))

    def mend(self, text: str, events: list[ModelEvent]) -> None:
        """Tells a piece as valid text. Half a surrogate pair waits for the other half, in the next piece."""
        text, self.held = whole_pairs(self.held + text)
        if text:
            self.tell(text, events)


class Slot:
    """The place of one item. `item` is what is known of it, `whole` whether that is all."""

    __slots__ = ("call_id", "channels", "index", "item", "started", "whole")

    def __init__(self, item: dict[str, Any]) -> None:
        self.item = item
        self.channels: dict[tuple[str, int], Channel] = {}
        self.whole = self.started = False
        self.call_id, self.index = "", -1

    @property
    def kind(self) -> str:
        """The item's type."""
        return kind_of(self.item)


class Incoming:
    """The items of one answer. What is new in them goes to `events`, which is handed to every method."""

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._slots: list[Slot] = []
        self._by_index: dict[int | None, Slot] = {}
        self._taken: set[str] = set()
        self._numbers = {FUNCTION_CALL: 0, _HOSTED: 0}
        self.seed = b""
        """Makes the invented ids of different answers differ."""

    def channel(self, index: int | None, kind: str, key: tuple[str, int], events: list[ModelEvent]) -> Channel | None:
        """The running text of an item. None for a call that nobody announced: its item will tell it whole."""
        slot = self._by_index.get(index)
        if slot is None:
            if kind == FUNCTION_CALL:
                return None
            slot = self._add(index, {"type": kind})
        return slot.channels.get(key) or _open_channel(slot, key, events)

    def begin(self, index: int | None, item: dict[str, Any], events: list[ModelEvent]) -> None:
        """An item was announced."""
        self._announce(self._add(index, item), events)

    def tell_whole(self, index: int | None, key: tuple[str, int], text: str, events: list[ModelEvent]) -> None:
        """The whole of a text, whose deltas some servers leave out."""
        if (slot := self._by_index.get(index)) is not None:
            _catch_up(slot, key, text, events)

    def start_hosted(self, index: int | None, args: str | None, events: list[ModelEvent]) -> None:
        """The arguments of a hosted call are known."""
        if (slot := self._by_index.get(index)) is not None:
            slot.item["arguments"] = args
            _start_hosted(slot, events)

    def finish(self, index: int | None, item: dict[str, Any], events: list[ModelEvent]) -> None:
        """An item is whole. Tells what of it was not told yet. One of another kind is not the item that began there."""
        slot = self._by_index.get(index)
        if slot is None or slot.whole or slot.kind not in ("", kind_of(item)):
            slot = self._add(index, item)
        self._settle(slot, item, events)

    def close(self, output: Sequence[msgspec.Raw], events: list[ModelEvent]) -> None:
        """The answer ended, and holds these items: what the stream left out is taken from there."""
        whole = [slot for slot in self._slots if slot.whole]
        known = {str(slot.item.get("id")) for slot in whole}
        for raw in output if len(output) > len(whole) else ():
            item = decode_item(raw)
            if item is not None and str(item.get("id")) not in known:
                begun = (slot for slot in self._slots if not slot.whole and slot.kind == kind_of(item))
                self._settle(next(begun, None) or self._add(None, item), item, events)
        for slot in self._slots:
            if not slot.whole:
                _break_off(slot, events)

    @property
    def items(self) -> list[dict[str, Any]]:
        """The items so far; those that broke off hold what was told of them."""
        return [slot.item if slot.whole else _told(slot) for slot in self._slots]

    def parts(self, *, cut: bool) -> Iterator[AssistantPart]:
        """The answer as parts. The last call of a `cut` answer is not whole, whatever it looks like."""
        calls = [slot for slot in self._slots if slot.kind == FUNCTION_CALL]
        for slot, item in zip(self._slots, self.items, strict=True):
            kind = slot.kind
            if kind == MESSAGE:
                yield from _items.message_parts(item, self._provider)
            elif kind == REASONING:
                yield from _items.reasoning_parts(item, self._provider, whole=slot.whole)
            elif kind == FUNCTION_CALL:
                finished = slot.whole and not (_is_cut(item) or (slot is calls[-1] and cut))
                yield _items.function_call(item, slot.call_id, finished=finished)
            elif slot.whole and kind:
                hosted = _items.hosted_call(item, slot.call_id)
                yield from (hosted.call, hosted.result) if hosted else (ProviderPart(self._provider, kind, item),)

    def _add(self, index: int | None, item: dict[str, Any]) -> Slot:
        """A place for an item. What comes without an index belongs to the latest one."""
        slot = Slot(item)
        self._slots.append(slot)
        self._by_index[index] = self._by_index[None] = slot
        return slot

    def _settle(self, slot: Slot, item: dict[str, Any], events: list[ModelEvent]) -> None:
        slot.item, slot.whole = item, True
        self._announce(slot, events)
        if slot.kind == MESSAGE:
            texts = _items.texts_of(item)
            if "".join([channel.text for channel in slot.channels.values()]) != "".join(texts):
                for index, text in enumerate(texts):
                    _catch_up(slot, ("text", index), text, events)
        elif slot.kind == REASONING:
            for key, text in _items.thoughts_of(item).items():
                _catch_up(slot, key, text, events)
        elif slot.kind == FUNCTION_CALL:
            _catch_up(slot, ARGS, _items.arguments_of(item), events)
        else:
            _finish_hosted(slot, events)

    def _announce(self, slot: Slot, events: list[ModelEvent]) -> None:
        """Gives a call its index and its id. That a call of ours began is told before its arguments are."""
        if slot.index >= 0:
            return
        if slot.kind == FUNCTION_CALL:
            self._number(slot, FUNCTION_CALL, "call_id", "id")
            events.append(_open_channel(slot, ARGS, events).make(""))
        elif _items.hosted_call(slot.item, "") is not None:
            self._number(slot, _HOSTED, "id", "call_id")

    def _number(self, slot: Slot, kind: str, *fields: str) -> None:
        """The id that was sent, or an invented one, made unique within the answer."""
        slot.index = self._numbers[kind]
        self._numbers[kind] += 1
        sent = next((str(slot.item[field]) for field in fields if slot.item.get(field)), "")
        invented = hashlib.sha256(b"%b/%b/%d" % (self.seed, kind.encode(), slot.index)).hexdigest()[:24]
        base = found = encodable(sent) or f"call_{invented}"
        number = 2
        while found in self._taken:
            found, number = f"{base}_{number}", number + 1
        slot.call_id = found
        self._taken.add(found)


def _open_channel(slot: Slot, key: tuple[str, int], events: list[ModelEvent]) -> Channel:
    """A new running text. Paragraphs of reasoning are kept apart."""
    if key == ARGS:
        called = encodable(str(slot.item.get("name") or "unnamed"))
        channel = Channel(functools.partial(ToolCallDelta, slot.index, slot.call_id, called))
    elif key[0] == "text":
        channel = Channel(TextDelta)
    else:
        channel = Channel(ReasoningDelta)
        if slot.channels:
            events.append(ReasoningDelta("\n\n"))
    slot.channels[key] = channel
    return channel


def _catch_up(slot: Slot, key: tuple[str, int], text: str, events: list[ModelEvent]) -> None:
    """Tells the rest of `text`. Where it is not what was told, the message holds it as it is."""
    channel = slot.channels.get(key)
    told = "" if channel is None else channel.text
    if text != told and text.startswith(told):
        channel = channel or _open_channel(slot, key, events)
        channel.tell(text[len(told) :], events)


def _start_hosted(slot: Slot, events: list[ModelEvent]) -> None:
    hosted = _items.hosted_call(slot.item, slot.call_id)
    if hosted is not None and not slot.started:
        slot.started = True
        call = hosted.call
        events.append(ToolStart(call.id, slot.index, call.name, call.args, hosted.effect, hosted=True))


def _break_off(slot: Slot, events: list[ModelEvent]) -> None:
    """The answer ended within this item: half a surrogate pair is lost, and a hosted call that began ends here."""
    for channel in slot.channels.values():
        if channel.held:
            channel.tell(_LOST, events)
    if slot.started:
        slot.item["status"] = "incomplete"
        _finish_hosted(slot, events)


def _finish_hosted(slot: Slot, events: list[ModelEvent]) -> None:
    _start_hosted(slot, events)
    hosted = _items.hosted_call(slot.item, slot.call_id)
    if hosted is not None:
        result, refused = hosted.result, hosted.refused
        events.append(
            ToolFinish(result.call_id, slot.index, result.name, result, is_error=result.is_error, refused=refused)
        )


def _told(slot: Slot) -> dict[str, Any]:
    """An item that broke off, as far as it was told."""
    texts = [(name, channel.text) for (name, _), channel in sorted(slot.channels.items())]
    if slot.kind == FUNCTION_CALL:
        return {**slot.item, "arguments": "".join(text for _, text in texts)}
    fields = ("summary", "content") if slot.kind == REASONING else ("content",)
    told = {field: [{"text": text} for name, text in texts if name in (field, "text")] for field in fields}
    return {**slot.item, **told}


def _is_cut(item: dict[str, Any]) -> bool:
    args = _items.arguments_of(item)
    return item.get("status") == "incomplete" or (bool(args.strip()) and is_cut(args))
