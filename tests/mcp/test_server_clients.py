"""Clients that others wrote, against `treadle mcp serve`: the official conformance suite, and the MCP inspector."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support import mcp_real
from support.mcp_raw import TESTS
from support.program import BOUND, wait_for

pytestmark = pytest.mark.skipif(
    not mcp_real.installed(), reason="real MCP clients are not installed: python tests/support/mcp_real.py"
)
SERVE = ("-m", "treadle", "mcp", "serve", "support.mcp_offer:everything")
PYTHONPATH = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
EXCEPTIONS = Path(__file__).with_name("conformance-server.yml")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Where it serves over HTTP."""
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH}
    process = subprocess.Popen(
        [sys.executable, *SERVE, "--http", "127.0.0.1:0"], stderr=subprocess.PIPE, env=environment
    )
    try:
        shown = wait_for(process, process.stderr, b"\n").decode()
        draining = threading.Thread(target=process.stderr.read, daemon=True)
        draining.start()
        yield shown.split()[-1]
    finally:
        process.terminate()
        assert process.wait(BOUND) == 143
        draining.join(BOUND)
        process.stderr.close()


def run(tmp_path: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [mcp_real.node(), *arguments], capture_output=True, text=True, timeout=BOUND, check=False, cwd=tmp_path
    )


@pytest.mark.parametrize("revision", ["2026-07-28", "2025-11-25"])
def test_the_conformance_suite_passes_in_all_but_the_listed_scenarios(url, tmp_path, revision):
    done = run(
        tmp_path, mcp_real.script("conformance"), "server", "--url", url, "--requirements", revision,
        "--expected-failures", EXCEPTIONS, "-o", tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert "tools-call-simple-text: 2 passed, 0 failed" in done.stdout


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_the_inspector_calls_a_tool(url, tmp_path, transport):
    where: list[Any] = [url, "--transport", "http"]
    if transport == "stdio":
        where = ["-e", f"PYTHONPATH={PYTHONPATH}", sys.executable, *SERVE]
    inspector = mcp_real.folder() / "node_modules" / ".bin" / "mcp-inspector"
    done = run(
        tmp_path, inspector, "--cli", *where, "--method", "tools/call", "--tool-name", "add",
        "--tool-arg", "a=1", "--tool-arg", "b=2",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["structuredContent"] == {"total": 3}
