"""What a model is to hear, in words of no wire format: the suite asks for it, a `wire` method says it."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from treadle.errors import (
    AuthenticationError,
    ContextOverflowError,
    InvalidRequestError,
    ModelError,
    OverloadedError,
    RateLimitError,
)
from treadle.messages import ProviderPart, ReasoningPart, ToolCallPart, ToolResultPart
from treadle.usage import StopReason, Usage

Piece: TypeAlias = str | ReasoningPart | ToolCallPart | ToolResultPart | ProviderPart
"""A string is one fragment of text. Calls with `hosted=True` and results are what the provider ran itself."""


class Answer(msgspec.Struct, frozen=True):
    """A whole answer: its pieces in order, why it ended, what it cost.

    Neighbouring strings are fragments of one text, each in an event of its own. `usage=None`: none is reported. A call
    with `finished=False` breaks off in the middle of its arguments. `StopReason.OTHER` is a word that nobody knows.
    """

    pieces: tuple[Piece, ...]
    stop: StopReason = StopReason.END
    usage: Usage | None = Usage(10, 5)

    @property
    def text(self) -> str:
        """All its text."""
        return "".join([piece for piece in self.pieces if isinstance(piece, str)])

    @property
    def calls(self) -> tuple[ToolCallPart, ...]:
        """The calls that the caller must answer."""
        return tuple([piece for piece in self.pieces if isinstance(piece, ToolCallPart) and not piece.hosted])


class Failure(msgspec.Struct, frozen=True):
    """A refusal: an HTTP answer with this status, or an error inside a stream that began well (`in_stream`).

    `error` is the kind that the model must make of it, `message` what the server says. An error inside a stream comes
    after the fragments in `after`; `status` is then for wires that have a code in the body.
    """

    error: type[ModelError]
    status: int
    message: str = "The server says no."
    in_stream: bool = False
    after: tuple[str, ...] = ()


class TokenCount(msgspec.Struct, frozen=True):
    """The answer of the provider's token counter."""

    tokens: int


Spoken: TypeAlias = Answer | Failure | TokenCount

TOO_LONG = "This model's maximum context length is 8192 tokens, your prompt is too long."

REFUSALS: tuple[Failure, ...] = (
    Failure(AuthenticationError, 401, "Invalid API key."),
    Failure(AuthenticationError, 403, "Your key may not use this model."),
    Failure(InvalidRequestError, 400, "The field colour is not known."),
    Failure(InvalidRequestError, 404, "There is no such model."),
    Failure(ContextOverflowError, 400, TOO_LONG),
    Failure(RateLimitError, 429, "Too many requests."),
    Failure(OverloadedError, 500, "Internal error."),
    Failure(OverloadedError, 503, "Overloaded."),
    Failure(OverloadedError, 529, "Overloaded."),
)
"""What every provider may answer instead of an answer."""

REFUSALS_IN_STREAM: tuple[Failure, ...] = (
    Failure(OverloadedError, 503, "Overloaded.", in_stream=True, after=("Half of ",)),
    Failure(OverloadedError, 503, "Overloaded.", in_stream=True),
    Failure(RateLimitError, 429, "Too many requests.", in_stream=True, after=("Half of ",)),
    Failure(InvalidRequestError, 400, "The field colour is not known.", in_stream=True),
)
"""What a provider may say behind a status of 200."""
