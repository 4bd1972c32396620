"""The items that an answer is made of: what they say, and which parts of ours they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from treadle.events import Effect
from treadle.messages import Citation, ProviderPart, ReasoningPart, TextPart, ToolCallPart, ToolResultPart
from treadle.providers._rendered import encode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from treadle.messages import AssistantPart

MESSAGE = "message"
REASONING = "reasoning"
FUNCTION_CALL = "function_call"
APPROVAL_REQUEST = "mcp_approval_request"
NOT_APPROVED = "Not run: the server asks for an approval, and nobody gave one."

# Calls that the caller's side must run; without an output no server takes them back.
_CALLERS_SIDE = frozenset({"custom_tool_call", "local_shell_call", "shell_call", "apply_patch_call", "computer_call"})


class Hosted(NamedTuple):
    """A call that the provider ran itself, and what came of it."""

    call: ToolCallPart
    result: ToolResultPart
    effect: Effect
    refused: bool = False


def kind_of(item: dict[str, Any]) -> str:
    """The item's type."""
    return _string(item, "type")


def texts_of(item: dict[str, Any]) -> list[str]:
    """The texts of a message, refusals among them, by the index of its content."""
    return [_string(part, "refusal") or _string(part, "text") for part in _parts(item, "content")]


def refuses(item: dict[str, Any]) -> bool:
    """Whether a message holds a refusal."""
    return any(part.get("refusal") for part in _parts(item, "content"))


def thoughts_of(item: dict[str, Any]) -> dict[tuple[str, int], str]:
    """The texts of a reasoning item, by their place in it: summaries, and reasoning that is shown as it is."""
    return {
        (field, index): _string(part, "text")
        for field in ("summary", "content")
        for index, part in enumerate(_parts(item, field))
    }


def arguments_of(item: dict[str, Any]) -> str:
    """The arguments of a call as JSON text."""
    given = item.get("arguments")
    return given if isinstance(given, str) else "" if given is None else encode(given).decode()


def message_parts(item: dict[str, Any], provider: str) -> Iterator[AssistantPart]:
    """A message. What its phase is must go back with it (OpenAI, 2026-11)."""
    if phase := _string(item, "phase"):
        yield ProviderPart(provider, MESSAGE, {"phase": phase})
    for text, part in zip(texts_of(item), _parts(item, "content"), strict=True):
        if text:
            yield TextPart(text, _citations(part))


def reasoning_parts(item: dict[str, Any], provider: str, *, whole: bool) -> Iterator[AssistantPart]:
    """Reasoning as text, if there is any, and the item that goes back; not one that was cut off."""
    if text := "\n\n".join(filter(None, thoughts_of(item).values())):
        yield ReasoningPart(text)
    if whole:
        yield ProviderPart(provider, REASONING, item)


def function_call(item: dict[str, Any], call_id: str, *, finished: bool) -> ToolCallPart:
    """A call of ours. Item id, namespace and caller go back with it."""
    raw = {key: value for key, value in item.items() if key not in ("type", "call_id", "name", "arguments")}
    name = _string(item, "name") or "unnamed"
    return ToolCallPart(call_id, name, arguments_of(item), finished=finished, raw=raw or None)


def hosted_call(item: dict[str, Any], call_id: str) -> Hosted | None:
    """The hosted call that an item is, if it is one."""
    kind, effect, name, args = kind_of(item), Effect.EXTERNAL, _string(item, "name"), arguments_of(item)
    failed = item.get("status") in ("failed", "incomplete")
    content = ""
    if kind == "mcp_call":
        error = item.get("error")
        failed = failed or bool(error)
        content = _plain(error) if error else _plain(item.get("output"))
    elif kind == APPROVAL_REQUEST:
        failed, content = True, NOT_APPROVED
    elif kind == "web_search_call":
        effect, name = Effect.READ, "web_search"
        action = item.get("action")
        fields = action if isinstance(action, dict) else {}
        args = encode({key: value for key, value in fields.items() if key != "sources"}).decode()
        content = "\n".join(filter(None, [_string(source, "url") for source in _parts(fields, "sources")]))
    else:
        return None
    name = name or "unnamed"
    call = ToolCallPart(call_id, name, args, hosted=True, raw=item)
    result = ToolResultPart(call_id, name, content, is_error=failed, hosted=True)
    return Hosted(call, result, effect, kind == APPROVAL_REQUEST)


def unanswered(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The items among these that wait for the caller, who has no way to answer."""
    answered = {str(item.get("call_id")) for item in items if kind_of(item).endswith("_output")}
    return [item for item in items if _for_caller(item) and str(item.get("call_id")) not in answered]


def _for_caller(item: dict[str, Any]) -> bool:
    return kind_of(item) in _CALLERS_SIDE or (kind_of(item) == "tool_search_call" and item.get("execution") == "client")


def _plain(value: Any) -> str:
    """What a hosted server answered, as text."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and (text := _string(value, "message")):
        return text
    return "" if value is None else encode(value).decode()


def _citations(part: dict[str, Any]) -> tuple[Citation, ...]:
    found = []
    for note in _parts(part, "annotations"):
        url, file = _string(note, "url") or None, _string(note, "filename") or _string(note, "file_id") or None
        if url or file:
            found.append(Citation(url=url, file=file, title=_string(note, "title") or None))
    return tuple(dict.fromkeys(found))


def _parts(value: dict[str, Any], field: str) -> list[dict[str, Any]]:
    given = value.get(field)
    if isinstance(given, str):
        return [{"text": given}]
    return [part for part in given if isinstance(part, dict)] if isinstance(given, list) else []


def _string(value: dict[str, Any], field: str) -> str:
    given = value.get(field)
    return given if isinstance(given, str) else ""
