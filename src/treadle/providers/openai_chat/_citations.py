"""The sources of an answer, by whichever of three ways a server tells them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from treadle.messages import Citation, encodable

if TYPE_CHECKING:
    from collections.abc import Iterable


class Citations:
    """Gathers what stands beside the text: annotations, or else the sources of the whole answer."""

    def __init__(self) -> None:
        self._annotated: list[Citation] = []
        self._sources: Any = None

    def annotate(self, notes: Iterable[Any]) -> None:
        """The annotations of a piece: `url_citation`s of OpenAI and OpenRouter."""
        for note in notes:
            self._annotated += _citation(note) if isinstance(note, dict) else []

    def note(self, sources: Any) -> None:
        """Perplexity's addresses or search results. It repeats them all in every chunk: the last ones count."""
        self._sources = sources

    def all(self) -> tuple[Citation, ...]:
        """Each source once, in order."""
        found = self._annotated
        if not found and isinstance(self._sources, list):
            found = [item for source in self._sources for item in _citation(source)]
        return tuple(dict.fromkeys(found))


def _citation(note: Any) -> list[Citation]:
    if isinstance(note, str):
        return [Citation(url=encodable(note))]
    if not isinstance(note, dict):
        return []
    inner = note.get("url_citation", note)
    if not isinstance(inner, dict) or not isinstance(inner.get("url"), str):
        return []
    title = inner.get("title")
    return [Citation(url=encodable(inner["url"]), title=encodable(title) if isinstance(title, str) else None)]
