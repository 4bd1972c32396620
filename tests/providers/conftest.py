"""The recorded provider traffic, where it is there."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable

import pytest

from support.recorded import FOLDER, Recordings, names_of

_ABSENT = pytest.param("", marks=pytest.mark.skip(f"no recordings in {FOLDER}: set TREADLE_RECORDINGS"))
_FIXTURES = {f"{wire}_recording": wire for wire in ("chat", "responses", "anthropic", "google")}


@pytest.fixture(scope="session")
def recordings() -> Recordings:
    if not FOLDER.is_dir():
        pytest.skip(f"no recordings in {FOLDER}: set TREADLE_RECORDINGS")
    return Recordings(FOLDER)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`chat_recording` is the name of each recording with a Chat Completions exchange in it, and so on."""
    for fixture in _FIXTURES.keys() & set(metafunc.fixturenames):
        metafunc.parametrize(fixture, names_of(_FIXTURES[fixture]) or [_ABSENT])


@pytest.fixture(autouse=True)
def _told(request: pytest.FixtureRequest, record_property: Callable[[str, object], None]) -> None:
    """Tells the table of recordings which one a test is about."""
    callspec = getattr(request.node, "callspec", None)
    for fixture in _FIXTURES.keys() & (callspec.params.keys() if callspec is not None else set()):
        record_property("recording", request.getfixturevalue(fixture))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Each recording in other dresses: a quarter of them here, all in the long form (`make fuzz`)."""
    if os.environ.get("TREADLE_LONG_TESTS"):
        return
    of_dresses = [item for item in items if item.path.name == "test_recordings_neighbours.py"]
    left_out = {item for item in of_dresses if zlib.crc32(item.nodeid.encode()) % 4}
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = [item for item in items if item not in left_out]
