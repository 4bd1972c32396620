"""Tools for files, confined to one directory."""

from __future__ import annotations

from treadle.toolkit.files import read_only_tools

__all__ = ["read_only_tools"]
