"""The pytest plugin: golden files, scripted models, recordings, and a guard against model requests.

Pytest loads it wherever Treadle is installed, so that it does nothing until it is asked: by a fixture, by
`--update-golden` or `--record-model-requests`, or by `treadle_forbid_model_requests = true` in the configuration, which
forbids them for the whole session.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from treadle.testing.golden import UPDATE_VARIABLE, assert_matches_golden
from treadle.testing.recorder import record, replay
from treadle.testing.scripted import ScriptedModel

if TYPE_CHECKING:
    from collections.abc import Generator

    from treadle.testing.recorder import Block
    from treadle.testing.script import StepLike

pytest.register_assert_rewrite("treadle.testing.conformance")  # so that its assertions show their values

_REQUESTS_VARIABLE = "TREADLE_MODEL_REQUESTS"
_STREAMS_VARIABLE = "TREADLE_CONFORMANCE_STREAMS"
_OUTSIDE = pytest.StashKey[dict[str, str | None]]()


class Golden(Protocol):
    """What the fixture `golden` gives: `assert_matches_golden`, its path relative to the folder of the test's file."""

    def __call__(self, path: str | os.PathLike[str], data: bytes | str) -> None: ...


class ScriptedModels(Protocol):
    """What the fixture `scripted_model` gives: a `ScriptedModel` with these steps and keywords."""

    def __call__(self, *steps: StepLike, **options: Any) -> ScriptedModel: ...


class Replayed(Protocol):
    """What the fixture `replayed` gives: `replay`, its path relative to the folder of the test's file.

    with replayed("answers.jsonl"):
        await agent.run("...")
    """

    def __call__(self, path: str | os.PathLike[str]) -> Block: ...


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds `--update-golden`, `--record-model-requests` and `treadle_forbid_model_requests`."""
    group = parser.getgroup("treadle")
    group.addoption("--update-golden", action="store_true", help="write golden files instead of comparing with them")
    group.addoption(
        "--record-model-requests",
        action="store_true",
        help="ask the real models where tests use `replayed`, and record them",
    )
    group.addoption(
        "--conformance-streams",
        type=int,
        metavar="N",
        help="open at most N streams at once in conformance suites (1000 unless a suite says less)",
    )
    parser.addini(
        "treadle_forbid_model_requests", "forbid Treadle's model requests in every test", type="bool", default=False
    )


def pytest_configure(config: pytest.Config) -> None:
    """Sets for the session what was asked for."""
    wanted: dict[str, str] = {}
    if config.getoption("--update-golden"):
        wanted[UPDATE_VARIABLE] = "1"
    if streams := config.getoption("--conformance-streams"):
        wanted[_STREAMS_VARIABLE] = str(streams)
    if config.getini("treadle_forbid_model_requests"):
        wanted[_REQUESTS_VARIABLE] = "deny"
    config.stash[_OUTSIDE] = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Restores the environment."""
    for name, value in config.stash.get(_OUTSIDE, {}).items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@pytest.fixture
def forbid_model_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every model that would use the network raises `ModelRequestsDenied` instead, in this test and what it starts."""
    monkeypatch.setenv(_REQUESTS_VARIABLE, "deny")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """`golden("answer.txt", data)` compares `data` with the file of that name beside the test's file."""

    def compare(path: str | os.PathLike[str], data: bytes | str) -> None:
        __tracebackhide__ = True
        assert_matches_golden(request.path.parent / path, data)

    return compare


@pytest.fixture
def scripted_model(request: pytest.FixtureRequest) -> Generator[ScriptedModels]:
    """`scripted_model(*steps)` makes a `ScriptedModel`; a test that passed must have used up all it made."""
    made: list[ScriptedModel] = []
    failed_before = request.session.testsfailed

    def make(*steps: StepLike, **options: Any) -> ScriptedModel:
        made.append(ScriptedModel(*steps, **options))
        return made[-1]

    yield make
    if request.session.testsfailed == failed_before:  # a failed test has said enough
        for model in made:
            model.assert_used_up()


@pytest.fixture
def replayed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Replayed:
    """Makes blocks that replay a recording beside the test's file.

    `pytest --record-model-requests` records it instead, also where the configuration forbids model requests.
    """
    recording = request.config.getoption("--record-model-requests")
    outside = request.config.stash[_OUTSIDE]
    if recording and _REQUESTS_VARIABLE in outside:
        monkeypatch.setenv(_REQUESTS_VARIABLE, outside[_REQUESTS_VARIABLE] or "")

    def block(path: str | os.PathLike[str]) -> Block:
        __tracebackhide__ = True
        file = request.path.parent / path
        if not recording and not file.exists():
            pytest.fail(f"there is no recording {file}: make it with pytest --record-model-requests")
        return record(file) if recording else replay(file)

    return block
