"""A directory with a secret beside it, and its tools over both ways of staying inside."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from support.desk import SECRET, Desk
from treadle.toolkit import Root


@pytest.fixture(params=["openat2", "walk"])
def backend(request) -> str:
    if request.param == "openat2" and (sys.platform != "linux" or Root(os.sep).backend != "openat2"):
        pytest.skip("this kernel has no openat2")
    return request.param


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text(SECRET)
    (outside / "deep").mkdir()
    (outside / "deep" / "secret.txt").write_text(SECRET)
    return outside


@pytest.fixture
def folder(tmp_path: Path, outside: Path) -> Path:
    folder = tmp_path / "root"
    (folder / "src").mkdir(parents=True)
    (folder / "README.md").write_text("# Title\n\nText.\n")
    (folder / "src" / "main.py").write_text("print('hi')\n")
    return folder


@pytest.fixture
def root(folder: Path, backend: str) -> Root:
    return Root(folder, backend=backend)


@pytest.fixture
def desk(folder: Path, backend: str) -> Desk:
    return Desk(folder, backend)
