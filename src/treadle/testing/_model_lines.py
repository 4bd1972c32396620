"""A model request and its answer as a line of a recording, and back.

A line holds `model`, `request`, `id`, and `answer` (events) or `count` (of tokens); `failure` where there was one, and
`left` where nobody waited for the answer's end. A request that goes on from an earlier one names the id of its line in
`after`, and holds what differs: messages behind the earlier ones, and fields that changed. Fields at their defaults are
left out.
"""

from __future__ import annotations

import hashlib
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from treadle.events import Event, ModelEvent, ModelFinish
from treadle.model import ModelRequest
from treadle.testing._failures import failure_from, failure_value
from treadle.testing._recording_file import RecordingError, encode, plain, read_recording
from treadle.testing._secrets import in_all_texts, without_secret_parameters, without_secret_places
from treadle.testing._shelf import Exchange, digest

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator

    from treadle.messages import Message
    from treadle.testing._secrets import Secrets

KIND = "model"
_EMPTY = ModelRequest(None, ())
_DEFAULTS: dict[str, Any] = plain(_EMPTY)
_BY_NAME = ("settings", "hosted_mcp")  # the fields of a request in which names tell secrets


class Recorded(NamedTuple):
    """A recorded answer: events, or how many `tokens` were counted; `whole` unless nobody waited for its end."""

    events: tuple[ModelEvent, ...]
    tokens: int | None
    failure: dict[str, Any] | None
    whole: bool


# Writing


def answer_value(events: list[ModelEvent], failure: Exception | None, *, ended: bool) -> dict[str, Any]:
    """An answer as it stands in a line. `ended`: it was read to its end."""
    values = [plain(event) for event in events if isinstance(event, ModelEvent)]
    for value in values:
        del value["run_id"], value["seq"]
    answer: dict[str, Any] = {"answer": values}
    if failure is not None:
        answer["failure"] = failure_value(failure)
    elif not ended and not (events and isinstance(events[-1], ModelFinish)):
        answer["left"] = True
    return answer


def count_value(count: int | None, failure: Exception | None = None) -> dict[str, Any]:
    """A count of tokens as it stands in a line."""
    return {"count": count} if failure is None else {"count": count, "failure": failure_value(failure)}


class Lines:
    """Makes the lines of a recording. Keeps the requests, to say which one another goes on from."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        # By the identity of the first message, which lives as long as its request is kept: with the id of the line.
        self._written: dict[int, list[tuple[ModelRequest, str]]] = {}

    def line(self, model: str, request: ModelRequest, answer: dict[str, Any]) -> dict[str, Any]:
        """The line of one exchange, without what is secret by its place."""
        base, after = self._base(request)
        found: set[str] = set()
        value = _request_value(request, base, found)
        self._secrets.learn(found)
        identity = hashlib.blake2b(encode([model, value, after]), digest_size=6).hexdigest()
        if request.messages:
            self._written.setdefault(id(request.messages[0]), []).append((request, identity))
        line = {"id": identity, "model": model, "request": value} | ({"after": after} if after else {})
        if "answer" in answer:
            answer = answer | {"answer": _without_split_secrets(answer["answer"], self._secrets)}
        line |= in_all_texts(answer, without_secret_parameters)
        return line

    def _base(self, request: ModelRequest) -> tuple[ModelRequest, str]:
        """The longest request that this one goes on from, the latest of these, and the id of its line."""
        base, after, longest = _EMPTY, "", 0
        for earlier, identity in reversed(self._written.get(id(request.messages[0]), ()) if request.messages else ()):
            length = len(earlier.messages)
            if length > longest and request.messages[:length] == earlier.messages:
                base, after, longest = earlier, identity, length
        return base, after


def _request_value(request: ModelRequest, base: ModelRequest, found: set[str]) -> dict[str, Any]:
    """What a request holds beyond `base`. What is secret by its place is masked, and added to `found`."""
    value = _fields(request, base, found)
    if len(request.messages) > len(base.messages):
        value["messages"] = [_message_value(message) for message in request.messages[len(base.messages) :]]
    return value


def _fields(request: ModelRequest, base: ModelRequest, found: set[str]) -> dict[str, Any]:
    """The fields that differ, all but the messages."""
    value: dict[str, Any] = {}
    for field in request.__struct_fields__:
        given = getattr(request, field)
        if field == "messages" or given == getattr(base, field):
            continue
        if field in _BY_NAME:
            value[field] = without_secret_places(plain(given), found)
        else:
            value[field] = in_all_texts(plain(given), without_secret_parameters)
    return value


def _message_value(message: Message) -> dict[str, Any]:
    value: dict[str, Any] = in_all_texts(plain(message), without_secret_parameters)
    return value


def _without_split_secrets(answer: list[dict[str, Any]], secrets: Secrets) -> list[dict[str, Any]]:
    """Deltas that are the pieces of a secret become one, in which it can be masked."""
    events: list[dict[str, Any]] = []
    for (field, *_), group in groupby(answer, key=_kind_of_delta):
        pieces = list(group)
        if field is not None:
            texts = [piece[field] for piece in pieces]
            if secrets.span("".join(texts), texts):
                pieces = [pieces[0] | {field: "".join(texts)}]
        events += pieces
    return events


def _kind_of_delta(event: dict[str, Any]) -> tuple[Any, ...]:
    """The field that holds a delta's piece, and what tells the deltas apart that are not joined."""
    field = {"text_delta": "text", "reasoning_delta": "text", "tool_call_delta": "args"}.get(event["type"])
    return field, event["type"], event.get("index"), event.get("call_id"), event.get("name")


# Comparing


class Conversation(NamedTuple):
    """The messages of a request, each with the digest of its JSON."""

    messages: list[dict[str, Any]]
    digests: list[bytes]

    def then(self, messages: Iterable[dict[str, Any]]) -> Conversation:
        """A longer one."""
        new = list(messages)
        return Conversation(self.messages + new, self.digests + [digest(encode(message)) for message in new])


class Asking:
    """Makes what is compared of a request. Each message is looked at once, however often it is sent again."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[Message, dict[str, Any], bytes]] = {}  # by the identity of the message

    def asked(self, model: str, request: ModelRequest, *, counting: bool) -> tuple[dict[str, Any], bytes]:
        """All fields of a request, and who is asked for what; with a key that is the same for equal ones."""
        seen = [self._look(message) for message in request.messages]
        conversation = Conversation([value for _, value, _ in seen], [found for _, _, found in seen])
        return _asked(model, _DEFAULTS | _fields(request, _EMPTY, set()), conversation, counting=counting)

    def _look(self, message: Message) -> tuple[Message, dict[str, Any], bytes]:
        found = self._seen.get(id(message))
        if found is None:
            value = _message_value(message)
            found = self._seen[id(message)] = message, value, digest(encode(value))
        return found


def _asked(
    model: str, fields: dict[str, Any], conversation: Conversation, *, counting: bool
) -> tuple[dict[str, Any], bytes]:
    what = "a token count" if counting else "an answer"
    key = digest(encode([what, model, fields | {"messages": None}]) + b"".join(conversation.digests))
    return {"asked for": what, "model": model, **fields, "messages": conversation.messages}, key


# Reading


def read_exchanges(path: str | os.PathLike[str]) -> Iterator[Exchange[Recorded]]:
    """The exchanges of a recording. Raises `RecordingError`."""
    requests: dict[str, tuple[dict[str, Any], Conversation]] = {"": (_DEFAULTS, Conversation([], []))}
    for number, line in read_recording(path, KIND):
        try:
            if (after := line.get("after", "")) not in requests:
                raise RecordingError(f"{path}: line {number} goes on from {after!r}, which no line before it is")
            fields, conversation = requests[after]
            fields = fields | line["request"]
            conversation = conversation.then(line["request"].get("messages", ()))
            requests[line["id"]] = fields, conversation
            compared, key = _asked(line["model"], fields, conversation, counting="count" in line)
            yield Exchange(number, _title(compared), compared, _recorded(line), key)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise RecordingError(f"{path}: line {number} is no exchange: {error!r}") from error


def _recorded(line: dict[str, Any]) -> Recorded:
    if (failure := line.get("failure")) is not None:
        failure_from(failure)  # told here, with its line, if it is broken
    events = tuple(msgspec.convert(event, Event) for event in line.get("answer", ()))
    return Recorded(events, line["count"] if "answer" not in line else None, failure, "left" not in line)


def _title(compared: dict[str, Any]) -> str:
    """A request in few words: its model, and the last of its messages."""
    last = compared["messages"][-1] if compared["messages"] else {}
    parts = last.get("content", last.get("results", []))
    texts = [str(part.get("text", part.get("content", f"[{part.get('type')}]"))) for part in parts]
    words = " ".join(" ".join(texts).split())
    return f"{compared['model']}, {compared['asked for']} to {last.get('role', 'no message')}: {words[:80]}"
