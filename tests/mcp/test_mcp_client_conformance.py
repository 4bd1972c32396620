"""The official conformance suite with our client as its subject: a part of it. `make conformance` runs the whole."""

from __future__ import annotations

import subprocess

import pytest

from support import mcp_real

pytestmark = pytest.mark.skipif(
    not mcp_real.installed(), reason="the conformance suite is not installed: python tests/support/mcp_real.py"
)


@pytest.mark.parametrize(
    "scenario",
    [
        "tools_call",
        "request-metadata",
        "sep-2322-client-request-state",
        "http-custom-headers",
        "auth/scope-step-up",
        "auth/pre-registration",
    ],
)
def test_the_client_passes_a_scenario_of_the_newest_protocol(scenario, tmp_path):
    command = mcp_real.suite("--scenario", scenario, "--spec-version", "2026-07-28", "--timeout", "60000")
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "0 failed" in done.stdout + done.stderr
