"""The `treadle` command."""

from __future__ import annotations

from treadle.cli.command import main

__all__ = ["main"]
