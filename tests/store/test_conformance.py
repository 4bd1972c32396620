"""The conformance suite of stores, for the one of JSON lines and for the one in memory that other tests use."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from support.stores import MemoryStore
from treadle.store import JsonLinesStore
from treadle.testing.conformance import StoreConformance

if TYPE_CHECKING:
    from pathlib import Path

    from treadle.store import Store


class TestJsonLinesStore(StoreConformance):
    def store(self, directory: Path) -> Store:
        return JsonLinesStore(directory / "sessions")


class TestMemoryStore(StoreConformance):
    places: ClassVar[dict[Path, MemoryStore]] = {}

    def store(self, directory: Path) -> Store:
        return MemoryStore(self.places.setdefault(directory, MemoryStore()))
