"""What all tests share: the hypothesis profiles, and the table of the recordings that were replayed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, settings

from support.recorded import TABLE, Tally

if TYPE_CHECKING:
    import pytest

# Machines differ in speed; a slow example is no failure.
settings.register_profile("default", deadline=None, max_examples=40)
settings.register_profile("ci", deadline=None, max_examples=40, derandomize=True, print_blob=True, database=None)
# `make fuzz`
settings.register_profile("fuzz", deadline=None, max_examples=3_000, suppress_health_check=[HealthCheck.too_slow])

_tally = Tally()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" or report.failed:
        _tally.take(report.user_properties, report.outcome)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if lines := _tally.lines():
        TABLE.parent.mkdir(exist_ok=True)
        TABLE.write_text("\n".join(["# Recordings", "", *lines, ""]))
        terminalreporter.section("recordings")
        terminalreporter.write_line("\n".join(lines))
