"""Counts in the usage that a provider reports."""

from __future__ import annotations

from typing import Any

_TICKS_PER_USD = 10_000_000_000  # xAI, 2026-11


def inner(given: dict[str, Any], key: str) -> dict[str, Any]:
    """The object at `key`, or an empty one."""
    value = given.get(key)
    return value if isinstance(value, dict) else {}


def count(given: dict[str, Any], key: str) -> int | None:
    """The count at `key`, or None where there is none that makes sense."""
    value = given.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**53:
        return None
    return int(value)


def cost_usd(given: dict[str, Any]) -> float | None:
    """The provider's own figure: OpenRouter a number, Perplexity a table, xAI ticks (0 ticks say nothing)."""
    cost = given.get("cost")
    if isinstance(cost, dict):
        cost = cost.get("total_cost")
    if isinstance(cost, int | float) and not isinstance(cost, bool) and 0 <= cost < 1e9:
        return float(cost)
    ticks = count(given, "cost_in_usd_ticks")
    return ticks / _TICKS_PER_USD if ticks else None
