"""For tests of agents: a scripted model, recordings of real runs, and golden files.

The pytest plugin `treadle.testing.plugin` brings fixtures for all three, and one that forbids model requests.
"""

from __future__ import annotations

from treadle.testing._failures import ReplayedError
from treadle.testing._recording_file import RecordingError
from treadle.testing._shelf import ReplayMismatch
from treadle.testing.golden import assert_matches_golden
from treadle.testing.recorder import record, replay
from treadle.testing.script import call, call_text, error, step, think
from treadle.testing.scripted import ScriptedModel
from treadle.testing.transports import recording_transport, replaying_transport

__all__ = [
    "RecordingError",
    "ReplayMismatch",
    "ReplayedError",
    "ScriptedModel",
    "assert_matches_golden",
    "call",
    "call_text",
    "error",
    "record",
    "recording_transport",
    "replay",
    "replaying_transport",
    "step",
    "think",
]
