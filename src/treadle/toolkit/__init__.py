"""Tools for an agent that works on a directory and reads the web."""

from __future__ import annotations

from treadle.toolkit._mycelium import mycelium
from treadle.toolkit._names import PROTECTED_NAMES, RefusedError
from treadle.toolkit._place import Entry, Listing
from treadle.toolkit.root import Root
from treadle.toolkit.web import web_fetch, web_search
from treadle.toolkit.workspace import Workspace

__all__ = [
    "PROTECTED_NAMES",
    "Entry",
    "Listing",
    "RefusedError",
    "Root",
    "Workspace",
    "mycelium",
    "web_fetch",
    "web_search",
]
