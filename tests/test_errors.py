"""The errors: one tree, texts for people, fields for programs."""

from __future__ import annotations

import pickle

import pytest

from treadle import (
    ConfigError,
    LimitExceeded,
    ModelError,
    OverloadedError,
    RateLimitError,
    RunError,
    RunPaused,
    TreadleError,
    UnsupportedError,
)


def test_configuration_errors_are_value_errors() -> None:
    assert issubclass(ConfigError, ValueError)
    assert issubclass(UnsupportedError, ConfigError)


@pytest.mark.parametrize(("kind", "retryable"), [(ModelError, False), (OverloadedError, True), (RateLimitError, True)])
def test_an_error_of_a_model_says_whether_a_retry_may_help(kind: type[ModelError], retryable: bool) -> None:
    assert kind("x").retryable is retryable
    assert kind("x", retryable=not retryable).retryable is not retryable


@pytest.mark.parametrize(
    "error",
    [
        UnsupportedError("no", model="a:b", feature="files"),
        LimitExceeded("enough", limit="steps", step=3),
        RunPaused("wait", pending=["call_1"]),
        ModelError("x", provider="p", model="m", status=429, request_id="r", retry_after_seconds=1.5, attempt=2),
    ],
)
def test_errors_keep_their_fields_between_processes(error: TreadleError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))
    assert isinstance(copy, RunError | ModelError | ConfigError)
