"""What the conformance suite wants said, in the wire format of each adapter.

Text goes out as UTF-8, each event in a piece of its own.
"""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

from support import chat, claude, google, responses
from treadle.errors import (
    AuthenticationError,
    ContextOverflowError,
    InvalidRequestError,
    OverloadedError,
    RateLimitError,
)
from treadle.messages import ProviderPart, ReasoningPart, ToolCallPart, ToolResultPart
from treadle.testing.conformance import Answer, Failure, Reply, TokenCount
from treadle.usage import StopReason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from treadle import Usage
    from treadle.testing.conformance import Spoken

UNKNOWN = "martian"


def event(value: Any, name: str | None = None, end: str = "\n\n") -> bytes:
    head = "" if name is None else f"event: {name}\n"
    return f"{head}data: {json.dumps(value, ensure_ascii=False)}{end}".encode()


def document(value: Any, status: int = 200) -> Reply:
    return Reply((json.dumps(value, ensure_ascii=False).encode(),), status, "application/json")


def halves(text: str) -> list[str]:
    """A text in two pieces; none of nothing."""
    return [piece for piece in (text[: len(text) // 2], text[len(text) // 2 :]) if piece]


# Chat Completions

_CHAT_STOPS = {
    StopReason.END: "stop",
    StopReason.TOOL_CALLS: "tool_calls",
    StopReason.MAX_TOKENS: "length",
    StopReason.REFUSAL: "content_filter",
    StopReason.OTHER: UNKNOWN,
}
_CHAT_CODES = {
    AuthenticationError: "invalid_api_key",
    InvalidRequestError: "invalid_request_error",
    ContextOverflowError: "context_length_exceeded",
    RateLimitError: "rate_limit_exceeded",
    OverloadedError: "server_error",
}


def chat_wire(spoken: Spoken, reasoning: str = "reasoning_content") -> Reply:
    """`reasoning` is the field that holds it, `thinking` for parts of the content, `details` for OpenRouter's blocks."""
    if isinstance(spoken, Failure):
        error = {"error": {"message": spoken.message, "type": _CHAT_CODES[spoken.error], "code": spoken.status}}
        if not spoken.in_stream:
            return document(error, spoken.status)
        return Reply(tuple(event(value) for value in (*map(chat.text, spoken.after), error)))
    assert isinstance(spoken, Answer)
    return Reply((*(event(value) for value in _chat_chunks(spoken, reasoning)), b"data: [DONE]\n\n"))


def _chat_chunks(answer: Answer, reasoning: str) -> Iterator[dict[str, Any]]:
    yield chat.chunk({"role": "assistant", "content": ""})
    calls = 0
    for piece in answer.pieces:
        if isinstance(piece, str):
            yield chat.text(piece)
        elif isinstance(piece, ReasoningPart):
            yield from (chat.chunk(delta) for delta in _chat_thoughts(piece, reasoning))
        elif isinstance(piece, ProviderPart):
            yield chat.chunk({piece.kind: piece.data})
        elif isinstance(piece, ToolCallPart):
            yield chat.calls(chat.piece(calls, piece.id, piece.name, ""))
            yield from (chat.calls(chat.piece(calls, args=args)) for args in halves(piece.args))
            calls += 1
    if answer.stop is StopReason.CONTEXT:
        yield {"error": {"message": "too long", "code": "context_length_exceeded"}}
        return
    yield chat.chunk(finish=_CHAT_STOPS[answer.stop])
    if answer.usage is not None:
        yield chat.usage(*_chat_usage(answer.usage)[:2], **_chat_usage(answer.usage)[2])


def _chat_thoughts(part: ReasoningPart, reasoning: str) -> Iterator[dict[str, Any]]:
    for text in halves(part.text):
        if reasoning == "thinking":
            yield {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": text}]}]}
        elif reasoning == "details":
            detail = {"type": "reasoning.text", "index": 0, "format": "anthropic-claude-v1", "text": text}
            yield {"reasoning": text, "reasoning_details": [detail]}
        else:
            yield {reasoning: text}
    if reasoning == "details":
        detail = {"type": "reasoning.text", "index": 0, "format": "anthropic-claude-v1", "signature": part.signature}
        yield {"reasoning_details": [detail]}


def _chat_usage(usage: Usage) -> tuple[int, int, dict[str, Any]]:
    prompt = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
    cached = {"cached_tokens": usage.cache_read_tokens, "cache_write_tokens": usage.cache_write_tokens}
    written = {"reasoning_tokens": usage.reasoning_tokens}
    details: dict[str, Any] = {"prompt_tokens_details": cached, "completion_tokens_details": written}
    return prompt, usage.output_tokens, {**details, **({} if usage.cost_usd is None else {"cost": usage.cost_usd})}


# Messages

_CLAUDE_STOPS = {
    StopReason.END: "end_turn",
    StopReason.TOOL_CALLS: "tool_use",
    StopReason.MAX_TOKENS: "max_tokens",
    StopReason.REFUSAL: "refusal",
    StopReason.CONTEXT: "model_context_window_exceeded",
    StopReason.OTHER: UNKNOWN,
}
_CLAUDE_ERRORS = {
    AuthenticationError: "authentication_error",
    InvalidRequestError: "invalid_request_error",
    ContextOverflowError: "invalid_request_error",
    RateLimitError: "rate_limit_error",
    OverloadedError: "overloaded_error",
}


def claude_wire(spoken: Spoken) -> Reply:
    if isinstance(spoken, TokenCount):
        return document({"input_tokens": spoken.tokens})
    if isinstance(spoken, Failure):
        error = {"type": "error", "error": {"type": _CLAUDE_ERRORS[spoken.error], "message": spoken.message}}
        if not spoken.in_stream:
            return document(error, spoken.status)
        values = [claude.start(), *(claude.text(*spoken.after) if spoken.after else []), error]
    else:
        values = list(_claude_events(spoken))
    return Reply(tuple(event(value, value["type"]) for value in values))


def _claude_events(answer: Answer) -> Iterator[dict[str, Any]]:
    counts, written = ({}, {}) if answer.usage is None else _claude_usage(answer.usage)
    yield {"type": "message_start", "message": {"id": "msg_1", "role": "assistant", "content": [], "usage": counts}}
    groups = itertools.groupby(answer.pieces, key=lambda piece: isinstance(piece, str))
    blocks = [group for is_text, found in groups for group in ([tuple(found)] if is_text else found)]
    for index, block in enumerate(blocks):
        yield from _claude_block(block, index)
    delta = {"stop_reason": _CLAUDE_STOPS[answer.stop], "stop_sequence": None}
    yield {"type": "message_delta", "delta": delta, "usage": written}
    yield {"type": "message_stop"}


def _claude_block(block: Any, index: int) -> list[dict[str, Any]]:
    if isinstance(block, tuple):
        return claude.text(*block, index=index)
    if isinstance(block, ReasoningPart):
        return claude.thinking(*halves(block.text), signature=block.signature or "", index=index)
    if isinstance(block, ProviderPart):
        return claude.block(block.data, index=index)
    if isinstance(block, ToolResultPart):
        return claude.block(_claude_result(block), index=index)
    kind = "tool_use" if not block.hosted else "server_tool_use" if block.name == "web_search" else "mcp_tool_use"
    more = {"server_name": "docs"} if kind == "mcp_tool_use" else {}
    return claude.call(*halves(block.args), index=index, kind=kind, id=block.id, name=block.name, **more)


def _claude_result(part: ToolResultPart) -> dict[str, Any]:
    if part.name == "web_search":
        page = {"type": "web_search_result", "url": part.content, "title": "News", "encrypted_content": "c2Vh"}
        return {"type": "web_search_tool_result", "tool_use_id": part.call_id, "content": [page]}
    content = [{"type": "text", "text": part.content}]
    return {"type": "mcp_tool_result", "tool_use_id": part.call_id, "is_error": part.is_error, "content": content}


def _claude_usage(usage: Usage) -> tuple[dict[str, Any], dict[str, Any]]:
    counts = {
        "input_tokens": usage.input_tokens,
        "cache_read_input_tokens": usage.cache_read_tokens,
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "output_tokens": 1,
    }
    details = {"thinking_tokens": usage.reasoning_tokens}
    return counts, {"output_tokens": usage.output_tokens, "output_tokens_details": details}


# Responses

_INCOMPLETE = {
    StopReason.MAX_TOKENS: "max_output_tokens",
    StopReason.CONTEXT: "context_length_exceeded",
    StopReason.OTHER: UNKNOWN,
}


def responses_wire(spoken: Spoken) -> Reply:
    if isinstance(spoken, TokenCount):
        return document({"object": "response.input_tokens", "input_tokens": spoken.tokens})
    if isinstance(spoken, Failure):
        error = {"message": spoken.message, "type": "error", "code": _CHAT_CODES[spoken.error], "param": None}
        if not spoken.in_stream:
            return document({"error": error}, spoken.status)
        said = [responses.text(text) for text in spoken.after]
        values = [*([responses.added(0, responses.message())] if said else []), *said]
        failed = responses.document(status="failed") | {"error": error}
        values.append(responses.event("failed", response=failed))
    else:
        values = list(_responses_events(spoken))
    return Reply(tuple(event(value, value["type"]) for value in values))


def _responses_events(answer: Answer) -> Iterator[dict[str, Any]]:
    yield responses.event("created", response=responses.document(status="in_progress"))
    items: list[dict[str, Any]] = []
    for is_text, found in itertools.groupby(answer.pieces, key=lambda piece: isinstance(piece, str)):
        pieces = [*found]
        if is_text:
            yield from _message_events(pieces, len(items), items, refusal=answer.stop is StopReason.REFUSAL)
            continue
        results = {part.call_id: part for part in pieces if isinstance(part, ToolResultPart)}
        for part in pieces:
            if not isinstance(part, ToolResultPart):
                yield from _item_events(part, len(items), items, results)
    usage = {} if answer.usage is None else {"usage": _responses_usage(answer.usage)}
    if answer.stop in _INCOMPLETE:
        details = {"reason": _INCOMPLETE[answer.stop]}
        end = responses.document(*items, status="incomplete", incomplete_details=details, **usage)
        yield responses.event("incomplete", response=end)
    else:
        yield responses.completed(*items, **usage)


def _message_events(texts: list[str], index: int, items: list[Any], *, refusal: bool) -> Iterator[dict[str, Any]]:
    kind = "refusal" if refusal else "output_text"
    content = {"type": "refusal", "refusal": "".join(texts)} if refusal else {"type": kind, "text": "".join(texts)}
    item = responses.message(content=[content], id=f"msg_{index}")
    yield responses.added(index, {**item, "status": "in_progress", "content": []})
    for text in texts:
        yield responses.event(f"{kind}.delta", output_index=index, content_index=0, delta=text)
    yield responses.done(index, item)
    items.append(item)


def _item_events(
    part: Any, index: int, items: list[Any], results: dict[str, ToolResultPart]
) -> Iterator[dict[str, Any]]:
    if isinstance(part, ReasoningPart):
        item = responses.reasoning(part.text, sealed=part.signature, id=f"rs_{index}")
        yield responses.added(index, {**item, "summary": []})
        for text in halves(part.text):
            yield responses.event("reasoning_summary_text.delta", output_index=index, summary_index=0, delta=text)
    elif isinstance(part, ProviderPart):
        item = part.data
        yield responses.added(index, item)
    elif part.hosted:
        item = _hosted_item(part, results[part.id])
        yield responses.added(index, {**item, "status": "in_progress"})
    else:
        status = "completed" if part.finished else "incomplete"
        item = responses.call(part.args, part.id, part.name, status=status)
        yield responses.added(index, {**item, "arguments": "", "status": "in_progress"})
        for args in halves(part.args):
            yield responses.args(args, index)
    yield responses.done(index, item)
    items.append(item)


def _hosted_item(call: ToolCallPart, result: ToolResultPart) -> dict[str, Any]:
    if call.name == "web_search":
        action = {"type": "search", **json.loads(call.args), "sources": [{"type": "url", "url": result.content}]}
        return {"type": "web_search_call", "id": call.id, "status": "completed", "action": action}
    told = {"id": call.id, "server_label": "docs", "name": call.name, "arguments": call.args, "output": result.content}
    return {"type": "mcp_call", "status": "completed", "error": None, **told}


def _responses_usage(usage: Usage) -> dict[str, Any]:
    prompt, output, more = _chat_usage(usage)
    more["input_tokens_details"] = more.pop("prompt_tokens_details")
    more["output_tokens_details"] = more.pop("completion_tokens_details")
    return responses.usage(prompt, output, **more)


# Gemini

_GOOGLE_STOPS = {
    StopReason.END: "STOP",
    StopReason.TOOL_CALLS: "STOP",
    StopReason.MAX_TOKENS: "MAX_TOKENS",
    StopReason.REFUSAL: "SAFETY",
    StopReason.OTHER: "MARTIAN",
}
_GOOGLE_STATUSES = {
    AuthenticationError: "UNAUTHENTICATED",
    InvalidRequestError: "INVALID_ARGUMENT",
    ContextOverflowError: "INVALID_ARGUMENT",
    RateLimitError: "RESOURCE_EXHAUSTED",
    OverloadedError: "UNAVAILABLE",
}


def google_wire(spoken: Spoken) -> Reply:
    if isinstance(spoken, TokenCount):
        return document({"totalTokens": spoken.tokens})
    if isinstance(spoken, Failure):
        fields = {"code": spoken.status, "message": spoken.message, "status": _GOOGLE_STATUSES[spoken.error]}
        if not spoken.in_stream:
            return document({"error": fields}, spoken.status)
        values = [*(google.chunk(google.text(text)) for text in spoken.after), {"error": fields}]
    else:
        values = list(_google_chunks(spoken))
    return Reply(tuple(event(value, end="\r\n\r\n") for value in values))


def _google_chunks(answer: Answer) -> Iterator[dict[str, Any]]:
    more: dict[str, Any] = {}
    for piece in answer.pieces:
        if isinstance(piece, str):
            yield google.chunk(google.text(piece))
        elif isinstance(piece, ReasoningPart):
            first, *rest = halves(piece.text)
            yield google.chunk(google.text(first, thought=True))
            yield google.chunk(google.text("".join(rest), piece.signature, thought=True))
        elif isinstance(piece, ProviderPart):
            yield google.chunk(piece.data)
        elif isinstance(piece, ToolResultPart):
            more["groundingChunks"] = [{"web": {"uri": piece.content, "title": "News"}}]
        elif piece.hosted:
            more["webSearchQueries"] = [json.loads(piece.args)["query"]]
        else:
            yield google.chunk(google.call(piece.name, json.loads(piece.args or "{}"), id=piece.id))
    if answer.stop is StopReason.CONTEXT:
        yield {"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": "The input token count exceeds it"}}
        return
    counts = {} if answer.usage is None else {"usageMetadata": _google_usage(answer.usage)}
    beside = {"groundingMetadata": more} if more else None
    yield google.chunk(finish=_GOOGLE_STOPS[answer.stop], more=beside, **counts)


def _google_usage(usage: Usage) -> dict[str, Any]:
    prompt, output = usage.input_tokens + usage.cache_read_tokens, usage.output_tokens
    return {
        "promptTokenCount": prompt,
        "cachedContentTokenCount": usage.cache_read_tokens,
        "candidatesTokenCount": output - usage.reasoning_tokens,
        "thoughtsTokenCount": usage.reasoning_tokens,
        "totalTokenCount": prompt + output,
    }
