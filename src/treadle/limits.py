"""When a run stops: limits and stop conditions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from treadle.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from treadle.run import StepRecord

    StopCondition: TypeAlias = Callable[[Sequence[StepRecord]], bool | Awaitable[bool]]


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much a run may use, with all its sub-agents; None is no limit.

    `steps`: model requests of this agent alone. `tool_calls`: local calls that run. `tokens`: `Usage.total_tokens`.
    `usd`: US dollars, by the provider's own figure or else by list prices. `seconds`: wall clock from the first event
    on, without the time in which somebody is asked for an approval.

    Tokens and dollars are reserved before a request: its size bounds the input (the provider's counter does, where that
    is too much and there is one), and the output limit is lowered to what is left. A request that does not fit is not
    sent. With `usd`, a model without a known price is refused, unless `allow_unpriced`.
    Reaching a limit ends the run with the stop `max_steps` (for steps) or `budget`, and `run()` raises `LimitExceeded`.
    """

    steps: int | None = 50
    tool_calls: int | None = None
    tokens: int | None = None
    seconds: float | None = None
    usd: float | None = None
    allow_unpriced: bool = False

    def __post_init__(self) -> None:
        for field in self.__struct_fields__:
            value = getattr(self, field)
            if value is None or field == "allow_unpriced":
                continue
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ConfigError(f"Limits({field}=...) is a number, and is {value!r}")
            if math.isinf(value):
                raise ConfigError(f"Limits({field}={value!r}) is no limit: leave it out")
            smallest = 0 if field == "tool_calls" else 1
            if not value >= smallest and not (field in ("seconds", "usd") and value > 0):
                raise ConfigError(f"Limits({field}={value!r}) is too small: leave it out for no limit")


class HasToolCall(msgspec.Struct, frozen=True):
    """Stops the run after a step that called the tool `name`."""

    name: str

    def __call__(self, steps: Sequence[StepRecord]) -> bool:
        return bool(steps) and any(call.name == self.name for call in steps[-1].calls)


class StepCount(msgspec.Struct, frozen=True):
    """Stops the run, with a complete result, after `count` steps."""

    count: int

    def __call__(self, steps: Sequence[StepRecord]) -> bool:
        return len(steps) >= self.count


class Repeats:
    """Counts how often a call failed in the same way in steps that follow one another."""

    ORDER_AT = 3
    STOP_AT = 5

    def __init__(self) -> None:
        self._before: dict[tuple[str, str], int] = {}
        self._now: dict[tuple[str, str], int] = {}
        self.exceeded: bool = False

    def failed(self, name: str, args: str) -> int:
        """Notes a failure and tells how many it makes in a row."""
        key = (name, args)
        count = self._now.get(key, self._before.get(key, 0)) + 1
        self._now[key] = count
        self.exceeded |= count >= self.STOP_AT
        return count

    def succeeded(self, name: str, args: str) -> None:
        """Forgets the failures of a call that worked."""
        self._now.pop((name, args), None)
        self._before.pop((name, args), None)

    def end_step(self) -> None:
        """Forgets the failures of calls that were not tried again in this step."""
        self._before, self._now = self._now, {}
