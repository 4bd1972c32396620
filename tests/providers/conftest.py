"""The recorded provider traffic, where it is there."""

from __future__ import annotations

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
