"""Messages and their parts: frozen values with a versioned JSON form.

`decode_message(encode(message)) == message` for every message. Within a `SCHEMA_VERSION` fields and tags are added,
never changed or removed; an unknown tag is an error.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec

from treadle.usage import StopReason

if TYPE_CHECKING:
    from collections.abc import Iterable

SCHEMA_VERSION = 1


class ModelRef(msgspec.Struct, frozen=True, gc=False):
    """Names a model: `provider:name`."""

    provider: str
    name: str

    def __str__(self) -> str:
        return f"{self.provider}:{self.name}"


class Citation(msgspec.Struct, frozen=True, gc=False):
    """What an answer rests on: a page (`url`) or a document (`file`), and the words quoted from it (`text`)."""

    url: str | None = None
    file: str | None = None
    title: str | None = None
    text: str | None = None


class TextPart(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="text"):
    """Text."""

    text: str
    citations: tuple[Citation, ...] = ()

    def __post_init__(self) -> None:
        _freeze(self, "citations")


class FilePart(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="file"):
    """A file: exactly one of `data` (base64 text; bytes given to the constructor are encoded) and `url`."""

    media_type: str
    data: str | None = None
    url: str | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.data, bytes | bytearray | memoryview):
            msgspec.structs.force_setattr(self, "data", base64.b64encode(self.data).decode())
        if (self.data is None) == (self.url is None):
            raise ValueError("a file part needs exactly one of data and url")


class ReasoningPart(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="reasoning"):
    """The model's visible thinking: one part for one block of the provider's; the signature closes it."""

    text: str
    signature: str | None = None


class ToolCallPart(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="tool_call"):
    """A call the model asks for. `args` is its JSON text byte for byte; `finished=False` marks a call cut off.

    `raw` is the provider's own block where that must go back as it came; `hosted` a call the provider ran itself.
    """

    id: str
    name: str
    args: str
    signature: str | None = None
    finished: bool = True
    hosted: bool = False
    raw: Any = None


class ToolResultPart(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="tool_result"):
    """The answer to one call, as the model reads it."""

    call_id: str
    name: str
    content: str
    is_error: bool = False
    files: tuple[FilePart, ...] = ()
    hosted: bool = False
    raw: Any = None

    def __post_init__(self) -> None:
        _freeze(self, "files")


class ProviderPart(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="provider"):
    """An opaque block that goes back to `provider` as it came, and to nobody else. `data` is a JSON value."""

    provider: str
    kind: str
    data: Any = None


UserPart: TypeAlias = TextPart | FilePart
AssistantPart: TypeAlias = TextPart | ReasoningPart | ToolCallPart | ToolResultPart | ProviderPart
Part: TypeAlias = TextPart | FilePart | ReasoningPart | ToolCallPart | ToolResultPart | ProviderPart


class UserMessage(msgspec.Struct, frozen=True, weakref=True, tag_field="role", tag="user"):
    """What the user says. A plain string given to the constructor becomes one text part."""

    content: tuple[UserPart, ...]

    if TYPE_CHECKING:

        def __init__(self, content: str | Iterable[UserPart]) -> None: ...

    def __post_init__(self) -> None:
        _freeze(self, "content")


class AssistantMessage(msgspec.Struct, frozen=True, weakref=True, tag_field="role", tag="assistant"):
    """What the model says, in the order it said it. Hosted results stand here, where the provider puts them."""

    content: tuple[AssistantPart, ...]
    stop: StopReason = StopReason.END
    model: ModelRef | None = None

    if TYPE_CHECKING:

        def __init__(
            self,
            content: str | Iterable[AssistantPart],
            stop: StopReason = StopReason.END,
            model: ModelRef | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        _freeze(self, "content")
        if type(self.stop) is not StopReason:
            msgspec.structs.force_setattr(self, "stop", StopReason(self.stop))

    @property
    def text(self) -> str:
        """The answer's text, without reasoning."""
        return "".join([part.text for part in self.content if isinstance(part, TextPart)])

    @property
    def calls(self) -> tuple[ToolCallPart, ...]:
        """The calls that we must answer: all but the hosted ones."""
        return tuple([part for part in self.content if isinstance(part, ToolCallPart) and not part.hosted])


class ToolMessage(msgspec.Struct, frozen=True, weakref=True, tag_field="role", tag="tool"):
    """The results of one step: one for each call, in call order."""

    results: tuple[ToolResultPart, ...]

    if TYPE_CHECKING:

        def __init__(self, results: Iterable[ToolResultPart]) -> None: ...

    def __post_init__(self) -> None:
        _freeze(self, "results")


Message: TypeAlias = UserMessage | AssistantMessage | ToolMessage

_encoder = msgspec.json.Encoder()
_message_decoder = msgspec.json.Decoder(Message)
_messages_decoder = msgspec.json.Decoder(tuple[Message, ...])


def encode(value: Message | Iterable[Message]) -> bytes:
    """JSON of a message, or of several as an array. Text that is not valid Unicode is mended."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return _encoder.encode(mended(msgspec.to_builtins(value)))


def decode_message(data: bytes | str) -> Message:
    """The message in `data`. Raises `msgspec.ValidationError` for an unknown role or part type."""
    return _message_decoder.decode(data)


def decode_messages(data: bytes | str) -> tuple[Message, ...]:
    """The messages in a JSON array. Raises like `decode_message`."""
    return _messages_decoder.decode(data)


def encodable(text: str) -> str:
    """`text` with surrogate pairs joined and lone surrogates replaced by U+FFFD, so that it is valid UTF-8."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


_AnyValue = TypeVar("_AnyValue", bound=msgspec.Struct)


def clean(value: _AnyValue) -> _AnyValue:
    """A message or an event with every string encodable; the same object where that holds already."""
    try:
        _encoder.encode(value)
    except UnicodeEncodeError:
        return msgspec.convert(mended(msgspec.to_builtins(value)), type(value))
    return value


def mended(value: Any) -> Any:
    """Plain data (dictionaries, lists, strings) with every string encodable."""
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, dict):
        return {mended(key): mended(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [mended(item) for item in value]
    return value


def _freeze(part: msgspec.Struct, field: str) -> None:
    """Makes a sequence field a tuple, and a string a single text part, so that equal values compare equal."""
    value = getattr(part, field)
    if type(value) is not tuple:
        if isinstance(value, str):
            value = TextPart(value)
        value = (value,) if isinstance(value, msgspec.Struct) else tuple(value)
        msgspec.structs.force_setattr(part, field, value)
