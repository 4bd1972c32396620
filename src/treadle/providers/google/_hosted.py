"""What Google runs on its side: code, searches, fetched pages. Calls, results and citations out of the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from treadle.events import ToolFinish, ToolStart
from treadle.messages import Citation, ProviderPart, ToolCallPart, ToolResultPart
from treadle.providers._rendered import encode
from treadle.providers.google._calls import invented_id

if TYPE_CHECKING:
    from collections.abc import Iterable

    from treadle.events import ModelEvent

PART = "part"
"""The kind of a `ProviderPart` that is a part of the answer as it came."""
TEXT_SIGNATURE = "text_signature"
"""The kind of a `ProviderPart` that is the signature of the text right before it."""

_SEARCH, _FETCH, _CODE = "google_search", "url_context", "code_execution"


class Hosted:
    """The hosted calls and results of one answer, in the order in which they came. `seed` as for other calls."""

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self.seed = ""
        self._calls: list[ToolCallPart] = []
        self._grounding: list[dict[str, Any]] = []
        self._pages: list[Any] = []

    def take(self, raw: dict[str, Any]) -> tuple[ToolCallPart | ToolResultPart | ProviderPart, list[ModelEvent]]:
        """A part that is neither text nor a call of ours. All of them go back as they came."""
        match raw:
            case {"executableCode": dict(code)}:
                found = self._call(code, _CODE, {key: code[key] for key in code if key != "id"}, raw)
                return found, [self._start(found)]
            case {"toolCall": dict(call)}:
                found = self._call(call, _tool_name(call), call.get("args") or {}, raw)
                return found, [self._start(found)]
            case {"codeExecutionResult": dict(result)}:
                failed = result.get("outcome") not in (None, "OUTCOME_OK")
                output = result.get("output")
                text = output if isinstance(output, str) else ""
                return self._answered(result, _CODE, text, raw, is_error=failed)
            case {"toolResponse": dict(result)}:
                return self._answered(result, _tool_name(result), _json(result.get("response")), raw)
        return ProviderPart(self._provider, PART, raw), []

    def note(self, grounding: dict[str, Any] | None, pages: dict[str, Any] | None, quoted: Any) -> None:
        """What stands beside the answer: it may come once or grow from chunk to chunk."""
        self._grounding += [grounding] if grounding else []
        self._grounding += [{"groundingChunks": [{"web": item} for item in _sources(quoted)]}] if quoted else []
        self._pages += _list(pages or {}, "urlMetadata")

    def beside(self) -> tuple[list[ToolCallPart | ToolResultPart], list[ModelEvent]]:
        """Searches and fetches that are told beside the answer only, as calls and results."""
        parts: list[ToolCallPart | ToolResultPart] = []
        events: list[ModelEvent] = []
        for name, args, content, raw in self._told_beside():
            if not any(call.name.startswith(name) for call in self._calls):
                call = self._call({}, name, args, None)
                result, finished = self._answered({"id": call.id}, name, content, raw)
                parts += [call, result]
                events += [self._start(call), *finished]
        return parts, events

    def _told_beside(self) -> Iterable[tuple[str, Any, str, Any]]:
        if queries := _unique(self._grounding, "webSearchQueries"):
            found = [{"title": item.title, "url": item.url} for item in self.citations()]
            yield _SEARCH, {"queries": queries}, _json(found), {"groundingMetadata": self._grounding[-1]}
        if pages := [page for page in self._pages if isinstance(page, dict)]:
            urls = [page.get("retrievedUrl") for page in pages]
            yield _FETCH, {"urls": urls}, _json(pages), {"urlContextMetadata": {"urlMetadata": pages}}

    def citations(self) -> tuple[Citation, ...]:
        chunks = [chunk for grounding in self._grounding for chunk in _list(grounding, "groundingChunks")]
        return tuple(dict.fromkeys([item for chunk in chunks for item in _citation(chunk)]))

    def _call(self, told: dict[str, Any], name: str, args: Any, raw: Any) -> ToolCallPart:
        call_id = told.get("id")
        if not (isinstance(call_id, str) and call_id):
            call_id = self._invented(len(self._calls))
        call = ToolCallPart(call_id, name, _json(args), hosted=True, raw=raw)
        self._calls.append(call)
        return call

    def _invented(self, place: int) -> str:
        return invented_id("hosted", self.seed, place)

    def _start(self, call: ToolCallPart) -> ModelEvent:
        index = len(self._calls) - 1
        return ToolStart(call_id=call.id, index=index, name=call.name, args=call.args, hosted=True)

    def _answered(
        self, told: dict[str, Any], name: str, content: str, raw: Any, *, is_error: bool = False
    ) -> tuple[ToolResultPart, list[ModelEvent]]:
        """A result belongs to the call with its id, else to the last of its name."""
        places = range(len(self._calls) - 1, -1, -1)
        same = [place for place in places if self._calls[place].id == told.get("id")]
        index = next(iter(same or [place for place in places if self._calls[place].name == name]), len(self._calls))
        call_id = self._calls[index].id if index < len(self._calls) else self._invented(index)
        result = ToolResultPart(call_id, name, content, is_error=is_error, hosted=True, raw=raw)
        finish = ToolFinish(call_id=call_id, index=index, name=name, result=result, is_error=is_error)
        return result, [finish]


def _tool_name(told: dict[str, Any]) -> str:
    kind = told.get("toolType")
    return kind.lower() if isinstance(kind, str) and kind else "hosted_tool"


def _json(value: Any) -> str:
    return encode(value).decode()


def _list(value: dict[str, Any], key: str) -> list[Any]:
    found = value.get(key)
    return found if isinstance(found, list) else []


def _unique(values: Iterable[dict[str, Any]], key: str) -> list[str]:
    return list(dict.fromkeys([item for value in values for item in _list(value, key) if isinstance(item, str)]))


def _sources(quoted: Any) -> list[Any]:
    return _list(quoted, "citationSources") + _list(quoted, "citations") if isinstance(quoted, dict) else []


def _citation(chunk: Any) -> list[Citation]:
    """A source: a page, a place on the map, or a document that was searched, with the words found in it."""
    source = next((value for value in chunk.values() if isinstance(value, dict)), {}) if isinstance(chunk, dict) else {}
    told = {
        key: value
        for key in ("uri", "sourceUri", "title", "text")
        if isinstance(value := source.get(key), str) and value
    }
    uri = told.get("uri") or told.get("sourceUri")
    if uri is None and "title" not in told:
        return []
    if uri is not None and uri.startswith(("http://", "https://")):
        return [Citation(url=uri, title=told.get("title"), text=told.get("text"))]
    return [Citation(file=uri or told["title"], title=told.get("title"), text=told.get("text"))]
