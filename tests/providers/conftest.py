"""The folder of recorded provider traffic, where it is there."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

REPOSITORY = Path(__file__).resolve().parents[2]
FOLDER = Path(os.environ.get("TREADLE_RECORDINGS") or REPOSITORY.parent / "shared" / "recordings")


class Recordings:
    """Recorded exchanges by name, and the server that replays them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        spec = importlib.util.spec_from_file_location("recordings_replay", folder / "replay.py")
        assert spec is not None
        assert spec.loader is not None
        self.replay: Any = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.replay)

        self._stopping = ThreadPoolExecutor(4)
        self.index: list[dict[str, Any]] = json.loads((folder / "index.json").read_text())

    def load(self, name: str) -> dict[str, Any]:
        loaded: dict[str, Any] = self.replay.load(name, str(self.folder))
        return loaded

    @contextlib.contextmanager
    def server(self, name: str, **options: Any) -> Iterator[Any]:
        server = self.replay.ReplayServer(self.load(name), **options).start()
        try:
            yield server
        finally:
            # Its own stop waits for a poll of 50 ms: nobody has to wait for that.
            self._stopping.submit(server.stop)


@pytest.fixture(scope="session")
def recordings() -> Recordings:
    if not FOLDER.is_dir():
        pytest.skip(f"no recordings in {FOLDER}: set TREADLE_RECORDINGS")
    return Recordings(FOLDER)


@pytest.fixture(scope="session")
def chat_recordings(recordings: Recordings) -> list[str]:
    assert recordings
    return _chat_names()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`chat_recording` is the name of each recording with a Chat Completions exchange in it."""
    if "chat_recording" in metafunc.fixturenames:
        names = _chat_names() if FOLDER.is_dir() else []
        absent = pytest.param("", marks=pytest.mark.skip(f"no recordings in {FOLDER}: set TREADLE_RECORDINGS"))
        metafunc.parametrize("chat_recording", names or [absent])


def _chat_names() -> list[str]:
    index = json.loads((FOLDER / "index.json").read_text())
    return [
        entry["name"]
        for entry in index
        if any(
            "/chat/completions" in exchange["request"]["path"]
            for exchange in json.loads((FOLDER / f"{entry['name']}.json").read_text())["exchanges"]
        )
    ]
