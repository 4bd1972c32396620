"""What the server says in each vendor's words: events in the shape that was recorded from them, built before.

Every event is an HTTP chunk of its own. A call's arguments come in nine fragments, from Google whole.
"""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from scenarios import TOOL_ARGS, TOOL_NAME

if TYPE_CHECKING:
    from collections.abc import Callable

# Ids of a step's calls begin like this; the zeros become the number of the step.
STEP_MARK = "call_000000_"
FRAGMENTS = 9
LAST = b"0\r\n\r\n"


class Answer(NamedTuple):
    """The chunks of a text answer: before, one per delta, behind."""

    opening: list[bytes]
    deltas: list[bytes]
    ending: list[bytes]


class Wire(NamedTuple):
    """One vendor's API. `path` is in its request lines; `steps` and `results` count in a request's body.

    `steps(body, calls)` is the number of answers with `calls` calls each that the body holds.
    """

    path: bytes
    text: Callable[[str, list[str]], Answer]
    calls: Callable[[str, int], list[bytes]]
    steps: Callable[[bytes, int], int]
    results: Callable[[bytes], int]


def wire_of(request_line: bytes) -> Wire | None:
    """The wire that this request speaks."""
    return next((wire for wire in WIRES if wire.path in request_line), None)


def http_chunk(event: bytes) -> bytes:
    """One event as one HTTP chunk."""
    return b"%x\r\n%s\r\n" % (len(event), event)


def _bare(data: object, end: str = "\n\n") -> bytes:
    text = data if isinstance(data, str) else json.dumps(data, separators=(",", ":"))
    return http_chunk(f"data: {text}{end}".encode())


def _named(data: dict[str, Any]) -> bytes:
    return http_chunk(f"event: {data['type']}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n".encode())


def _fragments() -> list[str]:
    cuts = [len(TOOL_ARGS) * i // FRAGMENTS for i in range(FRAGMENTS + 1)]
    return [TOOL_ARGS[a:b] for a, b in itertools.pairwise(cuts)]


def _count(body: bytes, key: str, value: str) -> int:
    """How often this pair is in the body, with or without a space in its JSON."""
    return body.count(f'"{key}":"{value}"'.encode()) + body.count(f'"{key}": "{value}"'.encode())


# Chat Completions


def _chat_frame(model: str, choices: list[Any], usage: dict[str, int] | None = None) -> bytes:
    frame = {"id": "chatcmpl-B1nKq2vYt0xhT5yG3f7c", "object": "chat.completion.chunk", "created": 1767225600}
    more = {"model": model, "service_tier": "default", "system_fingerprint": "fp_50cad350e4"}
    return _bare({**frame, **more, "choices": choices, "usage": usage})


def _chat_delta(model: str, delta: dict[str, Any], finish: str | None = None) -> bytes:
    return _chat_frame(model, [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}])


def _chat_opening(model: str) -> bytes:
    return _chat_delta(model, {"role": "assistant", "content": "", "refusal": None})


def _chat_ending(model: str, finish: str) -> list[bytes]:
    usage = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
    return [_chat_delta(model, {}, finish), _chat_frame(model, [], usage), _bare("[DONE]"), LAST]


def _chat_text(model: str, words: list[str]) -> Answer:
    deltas = [_chat_delta(model, {"content": word}) for word in words]
    return Answer([_chat_opening(model)], deltas, _chat_ending(model, "stop"))


def _chat_calls(model: str, calls: int) -> list[bytes]:
    pieces = [_chat_opening(model)]
    for index in range(calls):
        function = {"name": TOOL_NAME, "arguments": ""}
        call = {"index": index, "id": f"{STEP_MARK}{index}", "type": "function", "function": function}
        pieces.append(_chat_delta(model, {"tool_calls": [call]}))
        for fragment in _fragments():
            part = {"index": index, "function": {"arguments": fragment}}
            pieces.append(_chat_delta(model, {"tool_calls": [part]}))
    return pieces + _chat_ending(model, "tool_calls")


CHAT = Wire(
    b"/chat/completions ",
    _chat_text,
    _chat_calls,
    lambda body, _: _count(body, "role", "assistant"),
    lambda body: _count(body, "role", "tool"),
)


# Anthropic's Messages


def _message_opening(model: str) -> bytes:
    usage = {"input_tokens": 100, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0, "output_tokens": 1}
    message = {"id": "msg_01XFDUDYJgAACzvnptvVoYEL", "type": "message", "role": "assistant", "model": model}
    more: dict[str, Any] = {"content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
    return _named({"type": "message_start", "message": {**message, **more}})


def _block(index: int, block: dict[str, Any], deltas: list[dict[str, Any]]) -> tuple[bytes, list[bytes], bytes]:
    begin = _named({"type": "content_block_start", "index": index, "content_block": block})
    middle = [_named({"type": "content_block_delta", "index": index, "delta": delta}) for delta in deltas]
    return begin, middle, _named({"type": "content_block_stop", "index": index})


def _message_ending(reason: str) -> list[bytes]:
    delta = {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}}
    return [_named({**delta, "usage": {"output_tokens": 20}}), _named({"type": "message_stop"}), LAST]


def _message_text(model: str, words: list[str]) -> Answer:
    deltas = [{"type": "text_delta", "text": word} for word in words]
    begin, middle, end = _block(0, {"type": "text", "text": ""}, deltas)
    return Answer(
        [_message_opening(model), begin, _named({"type": "ping"})], middle, [end, *_message_ending("end_turn")]
    )


def _message_calls(model: str, calls: int) -> list[bytes]:
    pieces = [_message_opening(model)]
    for index in range(calls):
        block = {"type": "tool_use", "id": f"{STEP_MARK}{index}", "name": TOOL_NAME, "input": {}}
        deltas = [{"type": "input_json_delta", "partial_json": fragment} for fragment in _fragments()]
        begin, middle, end = _block(index, block, deltas)
        pieces += [begin, *middle, end]
    return pieces + _message_ending("tool_use")


ANTHROPIC = Wire(
    b"/messages ",
    _message_text,
    _message_calls,
    lambda body, _: _count(body, "role", "assistant"),
    lambda body: _count(body, "type", "tool_result"),
)


# OpenAI's Responses


def _numbered(events: list[dict[str, Any]]) -> list[bytes]:
    return [_named({"type": event["type"], "sequence_number": at, **event}) for at, event in enumerate(events)]


def _response(model: str, kind: str, output: list[Any], usage: dict[str, Any] | None = None) -> dict[str, Any]:
    status = "completed" if kind == "completed" else "in_progress"
    response = {"id": "resp_0050471a34b36ae60068c97b94a48081", "object": "response", "created_at": 1767225600}
    more = {"status": status, "error": None, "incomplete_details": None, "model": model, "output": output}
    rest = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "usage": usage, "metadata": {}}
    return {"type": f"response.{kind}", "response": {**response, **more, **rest}}


def _response_opening(model: str) -> list[dict[str, Any]]:
    return [_response(model, "created", []), _response(model, "in_progress", [])]


def _response_ending(model: str, output: list[Any]) -> dict[str, Any]:
    counts: dict[str, Any] = {"input_tokens": 100, "output_tokens": 20, "total_tokens": 120}
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    return _response(model, "completed", output, {**counts, **details})


def _response_text(model: str, words: list[str]) -> Answer:
    whole = {"type": "output_text", "text": "".join(words), "annotations": [], "logprobs": []}
    item = {"id": "msg_0050471a34b36ae60068c97bf1", "type": "message", "role": "assistant", "status": "completed"}
    at: dict[str, Any] = {"item_id": item["id"], "output_index": 0, "content_index": 0}
    opening = [
        *_response_opening(model),
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}},
        {"type": "response.content_part.added", **at, "part": {**whole, "text": ""}},
    ]
    kind = {"type": "response.output_text.delta", **at}
    deltas = [{**kind, "delta": word, "logprobs": [], "obfuscation": "wFUJRS2q9P1"} for word in words]
    done = {**item, "content": [whole]}
    ending = [
        {"type": "response.output_text.done", **at, "text": whole["text"], "logprobs": []},
        {"type": "response.content_part.done", **at, "part": whole},
        {"type": "response.output_item.done", "output_index": 0, "item": done},
        _response_ending(model, [done]),
    ]
    chunks = _numbered([*opening, *deltas, *ending])
    begin, end = len(opening), len(opening) + len(deltas)
    return Answer(chunks[:begin], chunks[begin:end], [*chunks[end:], LAST])


def _response_calls(model: str, calls: int) -> list[bytes]:
    events, output = _response_opening(model), []
    for index in range(calls):
        call = {"id": f"fc_{STEP_MARK}{index}", "call_id": f"{STEP_MARK}{index}", "name": TOOL_NAME}
        item = {**call, "type": "function_call", "arguments": "", "status": "in_progress"}
        done = {**item, "arguments": TOOL_ARGS, "status": "completed"}
        at = {"item_id": call["id"], "output_index": index}
        events.append({"type": "response.output_item.added", "output_index": index, "item": item})
        kind = {"type": "response.function_call_arguments.delta", **at}
        events += [{**kind, "delta": fragment, "obfuscation": "wFUJRS2q9P1"} for fragment in _fragments()]
        events.append({"type": "response.function_call_arguments.done", **at, "arguments": TOOL_ARGS})
        events.append({"type": "response.output_item.done", "output_index": index, "item": done})
        output.append(done)
    return [*_numbered([*events, _response_ending(model, output)]), LAST]


RESPONSES = Wire(
    b"/responses ",
    _response_text,
    _response_calls,
    lambda body, calls: _count(body, "type", "function_call") // calls,
    lambda body: _count(body, "type", "function_call_output"),
)


# Google's Gemini API


def _candidate(model: str, parts: list[Any], finish: str | None = None) -> bytes:
    candidate: dict[str, Any] = {"content": {"parts": parts, "role": "model"}, "index": 0}
    if finish:
        candidate["finishReason"] = finish
    counts = {"promptTokenCount": 100, "candidatesTokenCount": 20, "totalTokenCount": 120}
    details = [{"modality": "TEXT", "tokenCount": 100}]
    usage = {**counts, "promptTokensDetails": details}
    frame = {"candidates": [candidate], "usageMetadata": usage, "modelVersion": model, "responseId": "x8QfaKv2GJ"}
    return _bare(frame, "\r\n\r\n")


def _google_text(model: str, words: list[str]) -> Answer:
    deltas = [_candidate(model, [{"text": word}]) for word in words]
    return Answer([], deltas, [_candidate(model, [{"text": ""}], "STOP"), LAST])


def _google_calls(model: str, calls: int) -> list[bytes]:
    call = {"functionCall": {"name": TOOL_NAME, "args": json.loads(TOOL_ARGS)}}
    pieces = [_candidate(model, [call]) for _ in range(calls)]
    return [*pieces, _candidate(model, [{"text": ""}], "STOP"), LAST]


GOOGLE = Wire(
    b":streamGenerateContent?",
    _google_text,
    _google_calls,
    lambda body, _: _count(body, "role", "model"),
    lambda body: body.count(b'"functionResponse"'),
)

WIRES = (CHAT, ANTHROPIC, RESPONSES, GOOGLE)
