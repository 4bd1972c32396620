"""Every recording is replayed, or left out for a reason. The table of what came of them is printed behind the tests."""

from __future__ import annotations

from collections import Counter
from typing import Any

from support.recorded import ERRORS, FOLDER, Tally, all_paths, failure_of, left_out, names_of

WIRES = ("chat", "responses", "anthropic", "google")


def test_every_recording_is_replayed_or_left_out_for_a_reason(recordings: Any) -> None:
    replayed = {name for wire in WIRES for name in names_of(wire)}
    assert replayed.isdisjoint(left_out())
    assert replayed | left_out().keys() == {path.stem for path in FOLDER.glob("*--*.json")}
    assert all(left_out().values()), left_out()
    assert {all_paths()[name][0] for name in left_out()} <= {"google-interactions", "ollama-native"}
    assert len(replayed) >= 224


def test_what_we_know_of_errors_is_what_their_bodies_say(recordings: Any) -> None:
    known = [key for key in ERRORS if key[0] in all_paths()]
    for name, number in known:
        told = failure_of(recordings.load(name)["exchanges"][number]["response"])
        assert told is not None, (name, number)
        assert issubclass(ERRORS[name, number], told), (name, number)


def test_the_table_counts_each_recording_once_by_what_its_tests_came_to(recordings: Any) -> None:
    first, second, third = names_of("anthropic")[:3]
    tally = Tally()
    assert tally.lines() == []
    for name, outcome in ((first, "passed"), (first, "passed"), (second, "passed"), (second, "failed")):
        tally.take([("recording", name), ("other", third)], outcome)
    lines = tally.lines()
    total = len(names_of("anthropic"))
    assert f"| anthropic | 1 | 1 | 0 | {total - 2} |" in lines
    providers = Counter(provider for provider, _ in all_paths().values())
    assert f"| ollama-native | 0 | 0 | {providers['ollama-native']} | 0 |" in lines
    assert any(line.startswith("- google-interactions: the Interactions API") for line in lines)
