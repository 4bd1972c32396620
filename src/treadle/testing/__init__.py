"""For tests of agents: a scripted model, and golden files.

The pytest plugin `treadle.testing.plugin` brings fixtures for both, and one that forbids model requests.
"""

from __future__ import annotations

from treadle.testing.golden import assert_matches_golden
from treadle.testing.script import call, call_text, error, step, think
from treadle.testing.scripted import ScriptedModel

__all__ = ["ScriptedModel", "assert_matches_golden", "call", "call_text", "error", "step", "think"]
