"""Stores of sessions. `JsonLinesStore` keeps each one as a file of JSON lines."""

from __future__ import annotations

from treadle.sessions import SessionInfo, Store, StoredEvent
from treadle.store.json_lines import Damage, JsonLinesStore

__all__ = ["Damage", "JsonLinesStore", "SessionInfo", "Store", "StoredEvent"]
