"""Answers that call tools, in the words of each wire, with arguments and names of any sort."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from support import chat, claude, google, responses

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ABSENT = object()
"""Arguments that are not told at all."""


class Call(NamedTuple):
    """A call as the model wrote it: `args` is text, None, or `ABSENT`."""

    id: str
    name: str
    args: Any = "{}"


def chat_calls(calls: Sequence[Call], *, cut: bool = False) -> bytes:
    pieces = []
    for index, call in enumerate(calls):
        function = {"name": call.name} if call.args is ABSENT else {"name": call.name, "arguments": call.args}
        pieces.append({"index": index, "id": call.id, "type": "function", "function": function})
    return chat.sse(
        chat.text("I call."), chat.calls(*pieces), chat.chunk(finish="length" if cut else "tool_calls"), chat.DONE
    )


def anthropic_calls(calls: Sequence[Call], *, cut: bool = False) -> bytes:
    blocks = [
        claude.call(
            *([] if call.args is ABSENT or call.args is None else [call.args]), index=n, id=call.id, name=call.name
        )
        for n, call in enumerate(calls, 1)
    ]
    events = [event for block in blocks for event in block]
    return claude.answer(*claude.text("I call."), *events, reason="max_tokens" if cut else "tool_use")


def responses_calls(calls: Sequence[Call], *, cut: bool = False) -> bytes:
    items = [responses.message("I call.")]
    for number, call in enumerate(calls):
        last = cut and number == len(calls) - 1
        item = responses.call("", call.id, call.name, id=f"fc_{number}", status="incomplete" if last else "completed")
        item.pop("arguments")
        items.append(item if call.args is ABSENT else {**item, "arguments": call.args})
    events = [event for n, item in enumerate(items) for event in (responses.added(n, item), responses.done(n, item))]
    more = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}} if cut else {}
    return chat.sse(*events, responses.completed(*items, **more))


def google_calls(calls: Sequence[Call], *, cut: bool = False) -> bytes:
    """Arguments are values here; text that is none is a string."""
    parts = [google.call(call.name, _value(call.args), id=call.id) for call in calls]
    return google.sse(
        google.chunk(google.text("I call.")), google.chunk(*parts, finish="MAX_TOKENS" if cut else "STOP")
    )


def _value(args: Any) -> Any:
    if args is ABSENT or args is None or not args.strip():
        return None
    try:
        return json.loads(args)
    except ValueError:
        return args


_CALLS: dict[str, Callable[..., bytes]] = {
    "openai_chat": chat_calls,
    "anthropic": anthropic_calls,
    "openai": responses_calls,
    "google": google_calls,
}

OVERLOADED = "overloaded_error"
_HALF_CALLS: dict[str, bytes] = {
    "openai_chat": chat.sse(chat.text("Hello wor"), chat.calls(chat.piece(0, "a", "look", '{"q":"a'))),
    "anthropic": claude.sse(
        claude.start(), *claude.text("Hello wor"), *claude.call('{"q":"a', index=1, id="a", name="look")[:-1]
    ),
    "openai": chat.sse(
        responses.text("Hello wor"), responses.added(1, responses.call("", "a", "look")), responses.args('{"q":"a', 1)
    ),
    "google": google.sse(
        google.chunk(google.text("Hello wor")), google.chunk(google.call("look", id="a", willContinue=True))
    ),
}
_ERROR = {"type": OVERLOADED, "message": "Overloaded"}
_ERRORS: dict[str, bytes] = {
    "openai_chat": chat.sse({"error": {**_ERROR, "code": 503}}),
    "anthropic": claude.sse({"type": "error", "error": _ERROR}),
    "openai": chat.sse({"type": "error", "code": "server_error", "message": "Overloaded"}),
    "google": google.sse({"error": {"code": 503, "status": "UNAVAILABLE", "message": "Overloaded"}}),
}


def calls_body(wire: str, *calls: Call, cut: bool = False) -> bytes:
    """An answer that says something and calls these; `cut` by the output limit."""
    return _CALLS[wire](calls, cut=cut)


def half_a_call(wire: str) -> bytes:
    """Text and the beginning of a call, and no end."""
    return _HALF_CALLS[wire]


def error_event(wire: str) -> bytes:
    """An overloaded server, told inside of a stream."""
    return _ERRORS[wire]
