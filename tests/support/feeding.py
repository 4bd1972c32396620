"""Recorded answers fed to the readers of the adapters, cut in any way."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from treadle.providers._errors import Refusal, model_error
from treadle.providers.anthropic._errors import refusal_error as anthropic_error
from treadle.providers.anthropic._stream import AnswerReader as AnthropicReader
from treadle.providers.google._stream import AnswerReader as GoogleReader
from treadle.providers.openai._dialects import Dialect
from treadle.providers.openai._errors import refusal_error as responses_error
from treadle.providers.openai._stream import AnswerReader as ResponsesReader
from treadle.providers.openai_chat._stream import AnswerReader as ChatReader

if TYPE_CHECKING:
    from collections.abc import Callable

    from treadle.errors import ModelError


def whole() -> int:
    return 1 << 30


def in_blocks() -> int:
    return 4096


def cuts() -> list[Callable[[], int]]:
    """The sizes of the next pieces: one byte, three, seven, everything, at random."""
    dice = random.Random(7)
    return [lambda: 1, lambda: 3, lambda: 7, whole, lambda: dice.randint(1, 60)]


def reader_of(wire: str, prefix: str) -> Any:
    def refused(refusal: Refusal) -> ModelError:
        return model_error(refusal, provider=prefix, model="m")

    if wire == "chat":
        return ChatReader(prefix, "m", 32_000, refused)
    if wire == "responses":
        return ResponsesReader(prefix, "m", lambda refusal: responses_error(refusal, prefix, "m", Dialect(), None))
    if wire == "anthropic":
        return AnthropicReader("m", lambda refusal: anthropic_error(refusal, "m", None))
    return GoogleReader(prefix, "m", refused)


def feed(wire: str, prefix: str, response: dict[str, Any], cut: Callable[[], int] = in_blocks) -> list[Any]:
    """The events of a recorded answer."""
    reader = reader_of(wire, prefix)
    reader.is_document = "json" in response["headers"].get("content-type", "")
    body = response["body"].encode()
    events, at = [], 0
    while at < len(body):
        size = cut()
        events += reader.feed(body[at : at + size])
        at += size
    events += reader.end()
    if wire == "google":
        events += reader.conclude()
    return [*events, reader.finish()]
