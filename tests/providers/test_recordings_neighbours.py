"""Recorded streams as other servers might have sent them: the same answer in another dress. (B007 and its kind)"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from support.feeding import feed
from support.recorded import error_of, prefix_of

Change = Callable[[str], str]


def unified(body: str) -> str:
    return body.replace("\r\n", "\n")


def with_crlf(body: str) -> str:
    return unified(body).replace("\n", "\r\n")


def with_comments(body: str) -> str:
    """Keepalives of every sort, ids and retries, between all events."""
    noise = (
        ': PROCESSING\n\n:\n\ndata:\n\ndata: : keepalive\n\nid: 7\nretry: 10\n\nevent: ping\ndata: {"type": "ping"}\n\n'
    )
    return noise + re.sub(r"\n\n+", lambda _: f"\n\n{noise}", unified(body).rstrip("\n") + "\n\n")


def with_names_and_ids(body: str) -> str:
    return re.sub(r"^data:", "id: 1\ndata:", unified(body), flags=re.MULTILINE)


def without_spaces(body: str) -> str:
    return re.sub(r"^(data|event): ", r"\1:", unified(body), flags=re.MULTILINE)


def without_the_last_blank_line(body: str) -> str:
    return unified(body).rstrip("\n")


def in_ascii(body: str) -> str:
    """Every other character escaped."""
    return each_value(body, lambda value: value, ascii_only=True)


def pretty(body: str) -> str:
    """JSON over several lines, each of them a line of data."""
    return re.sub(
        r"^data: ?(\{.*\})$",
        lambda found: "\n".join(f"data: {line}" for line in json.dumps(json.loads(found[1]), indent=1).split("\n")),
        unified(body),
        flags=re.MULTILINE,
    )


def with_more_fields(body: str) -> str:
    """Fields that nobody knows."""
    return each_value(body, lambda value: {**value, "x_new": {"a": [None]}, "x_null": None})


def each_value(body: str, change: Callable[[Any], Any], *, ascii_only: bool = False) -> str:
    return re.sub(
        r"^data: ?(\{.*\})$",
        lambda found: f"data: {json.dumps(change(json.loads(found[1])), ensure_ascii=ascii_only)}",
        unified(body),
        flags=re.MULTILINE,
    )


CHANGES: list[Change] = [
    with_crlf,
    with_comments,
    with_names_and_ids,
    without_spaces,
    without_the_last_blank_line,
    in_ascii,
    pretty,
    with_more_fields,
]


def answers(recordings: Any, name: str) -> list[tuple[str, dict[str, Any]]]:
    """The streams of a recording that hold an answer, each with the prefix of its provider."""
    recording = recordings.load(name)
    return [
        (prefix_of(recording["provider"]), exchange["response"])
        for number, exchange in enumerate(recording["exchanges"])
        if "event-stream" in exchange["response"]["headers"].get("content-type", "")
        and not error_of(name, number, exchange["response"])
    ]


def assert_the_same(wire: str, recordings: Any, name: str, change: Change) -> None:
    for prefix, response in answers(recordings, name):
        if "pause_turn" in response["body"]:
            continue  # half a turn
        finish = feed(wire, prefix, response)[-1]
        other = feed(wire, prefix, {**response, "body": change(response["body"])})[-1]
        assert plain(other.message) == plain(finish.message)
        assert (other.usage, other.stop, other.raw_stop) == (finish.usage, finish.stop, finish.raw_stop)


def plain(message: Any) -> list[Any]:
    """The parts without invented ids, and with arguments as values: Gemini's are JSON inside of JSON."""
    found = []
    for part in message.content:
        value = msgspec.to_builtins(part)
        if re.fullmatch(r"(call|hosted|toolu)_[0-9a-f]{24}", str(value.get("id") or value.get("call_id"))):
            value |= {"id": "", "call_id": ""}
        if value.get("finished"):
            value["args"] = json.loads(value["args"] or "{}")
        found.append(value)
    return found


each_change = pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)


@each_change
def test_a_chat_stream_in_another_dress_is_the_same_answer(
    recordings: Any, chat_recording: str, change: Change
) -> None:
    assert_the_same("chat", recordings, chat_recording, change)


@each_change
def test_a_responses_stream_in_another_dress_is_the_same_answer(
    recordings: Any, responses_recording: str, change: Change
) -> None:
    assert_the_same("responses", recordings, responses_recording, change)


@each_change
def test_a_messages_stream_in_another_dress_is_the_same_answer(
    recordings: Any, anthropic_recording: str, change: Change
) -> None:
    assert_the_same("anthropic", recordings, anthropic_recording, change)


@each_change
def test_a_gemini_stream_in_another_dress_is_the_same_answer(
    recordings: Any, google_recording: str, change: Change
) -> None:
    assert_the_same("google", recordings, google_recording, change)
