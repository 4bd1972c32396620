"""Other SDKs, each in a virtual environment of its own, made on first use in `.cache/`."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

from clients import CLIENTS

CACHE = Path(__file__).parent / ".cache"


def python_of(client: str) -> str:
    """The interpreter that has this client's packages. Makes and fills its environment if there is none yet."""
    requires = CLIENTS[client].requires
    if not requires:
        return sys.executable
    home = CACHE / client
    python = home / "bin" / "python"
    if not (home / ".complete").exists():
        print(f"installing {client} into {home.relative_to(CACHE.parent)}", file=sys.stderr)
        venv.create(home, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *requires], check=True)
        (home / ".complete").touch()
    return str(python)


def version_of(client: str, distribution: str) -> str:
    """The installed version of a distribution in the client's environment; empty where it is not installed."""
    code = (
        "import importlib.metadata as m, sys\ntry: print(m.version(sys.argv[1]))\nexcept m.PackageNotFoundError: pass"
    )
    command = [python_of(client), "-c", code, distribution]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
