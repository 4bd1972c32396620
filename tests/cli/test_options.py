"""What of the settings an agent is made with."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from treadle.cli.options import window_of
from treadle.cli.settings import load_settings


def test_the_context_is_as_long_as_settings_say_or_else_as_the_vendor_of_the_model_lists_it(tmp_path):
    pytest.importorskip("genai_prices")
    model = SimpleNamespace(provider="anthropic", name="claude-sonnet-4-5")
    environ = {"TREADLE_HOME": str(tmp_path)}
    settings = load_settings(root=tmp_path, flags={}, environ=environ)
    assert (window_of(settings, model, None) or 0) >= 200_000
    assert window_of(settings, model, "http://127.0.0.1:8000/v1") is None
    typed = load_settings(root=tmp_path, flags={"context_tokens": 7_000}, environ=environ)
    assert window_of(typed, model, None) == 7_000
