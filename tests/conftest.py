"""What all tests share: the hypothesis profiles."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# Machines differ in speed; a slow example is no failure.
settings.register_profile("default", deadline=None, max_examples=60)
settings.register_profile("ci", deadline=None, max_examples=60, derandomize=True, print_blob=True, database=None)
# `make fuzz`
settings.register_profile("fuzz", deadline=None, max_examples=3_000, suppress_health_check=[HealthCheck.too_slow])
