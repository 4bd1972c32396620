"""Paths by which a model might get out of a directory, and the links that they need."""

from __future__ import annotations

import os
from pathlib import Path

from support.desk import SECRET


def lay_traps(folder: Path) -> None:
    """The ways out of the table below."""
    for name, target in {
        "out": "../outside",
        "out-file": "../outside/secret.txt",
        "absolute": str(folder.parent / "outside"),
        "absolute-in": str(folder / "src"),
        "top": "/",
        "proc-root": "/proc/self/root",
        "proc-cwd": "/proc/self/cwd",
        "up": "..",
        "in": "src",
        "loop": "loop",
        "ping": "pong",
        "pong": "ping",
        "dangling": "../outside/new.txt",
        "hidden-up": "src/../../outside",
        "long": "x" * 300,
    }.items():
        (folder / name).symlink_to(target)
    Path(f"{folder}-evil").mkdir()
    Path(f"{folder}-evil", "secret.txt").write_text(SECRET)
    os.mkfifo(folder / "pipe")


WAYS_OUT = [
    "../outside/secret.txt",
    "src/../../outside/secret.txt",
    "./.././outside/secret.txt",
    "../root-evil/secret.txt",
    "{folder}-evil/secret.txt",
    "{folder}/../outside/secret.txt",
    "//etc/passwd",
    "/etc/passwd",
    "/proc/self/root/etc/passwd",
    "out/secret.txt",
    "out-file",
    "absolute/secret.txt",
    "absolute-in/main.py",
    "top/etc/passwd",
    "proc-root/etc/passwd",
    "proc-cwd/secret.txt",
    "up/outside/secret.txt",
    "in/../../outside/secret.txt",
    "out/../outside/secret.txt",
    "loop",
    "loop/x",
    "ping/x",
    "dangling",
    "hidden-up/secret.txt",
    "long/x",
    "a\0b",
    "x/" * 3000,
    "y" * 300,
    "\ud800",
    "..",
    "pipe",
    "pipe/x",
    "README.md/x",
    "README.md/",
    "README.md/..",
]
