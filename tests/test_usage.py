"""Usage adds up, and says what it does not know."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.usage import StopReason, Usage

# Multiples of 1/64 add exactly, so that associativity is a law and not an approximation.
costs = st.none() | st.integers(0, 10_000).map(lambda n: n / 64)
counts = st.integers(0, 10**9)
usages = st.builds(Usage, counts, counts, counts, counts, counts, costs, st.booleans())


@given(usages, usages, usages)
def test_usage_adds_associatively(a: Usage, b: Usage, c: Usage) -> None:
    assert (a + b) + c == a + (b + c)


@given(usages)
def test_no_usage_is_neutral(a: Usage) -> None:
    total = a + Usage()
    assert total == Usage() + a
    assert (total.total_tokens, total.cost_usd, total.cost_complete) == (a.total_tokens, a.cost_usd, a.cost_complete)


def test_what_was_not_reported_at_all_makes_a_cost_incomplete() -> None:
    assert not (Usage(cost_partial=True) + Usage(1, 1, cost_usd=0.5)).cost_complete
    assert not (Usage(1, 1, cost_usd=0.5) + Usage(cost_partial=True)).cost_complete


def test_total_tokens_counts_cached_tokens_once_and_reasoning_as_output() -> None:
    usage = Usage(input_tokens=10, output_tokens=7, cache_read_tokens=30, cache_write_tokens=5, reasoning_tokens=4)
    assert usage.total_tokens == 52


def test_cache_hit_rate_is_the_cached_share_of_what_was_read() -> None:
    assert Usage(input_tokens=10, cache_read_tokens=30, cache_write_tokens=99).cache_hit_rate == 0.75
    assert Usage().cache_hit_rate == 0.0


def test_a_sum_keeps_known_costs_and_says_when_one_is_missing() -> None:
    priced, unpriced = Usage(input_tokens=1, cost_usd=0.5), Usage(input_tokens=1)
    assert priced.cost_complete
    assert not unpriced.cost_complete
    total = priced + unpriced
    assert total.cost_usd == 0.5
    assert not total.cost_complete
    assert not (total + priced).cost_complete
    assert (priced + priced).cost_complete


@pytest.mark.parametrize("stop", list(StopReason))
def test_only_end_and_stop_condition_are_complete(stop: StopReason) -> None:
    assert stop.complete == (stop in {"end", "stop_condition"})
