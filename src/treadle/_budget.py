"""What a tree of runs may still spend: reserved before a request, settled behind it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from treadle import pricing
from treadle.errors import ConfigError
from treadle.events import ModelFinish, ModelRetry
from treadle.model import close_stream, count_tokens, model_ref
from treadle.retry import endpoints
from treadle.usage import Remaining, Usage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence

    from treadle.events import ModelEvent
    from treadle.limits import Limits
    from treadle.messages import Message
    from treadle.model import Model, ModelRequest

# Vendors put instructions of their own before the tools: some hundred tokens, a thousand at most (2026-11).
_TOOLS_OVERHEAD = 1_000
_MANY = 1_000_000


class BudgetExhausted(Exception):
    """A request does not fit into what is left. `limit` is the field of the limits that says so."""

    def __init__(self, limit: str) -> None:
        super().__init__(limit)
        self.limit = limit


class Amount(msgspec.Struct, frozen=True):
    """Tokens and money of one request."""

    tokens: int = 0
    usd: float = 0.0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.tokens + other.tokens, self.usd + other.usd)


class Account:
    """The limits of one run, and what went from them."""

    def __init__(self, limits: Limits) -> None:
        self.limits: Limits = limits
        self.spent: Amount = Amount()
        self.holds: list[tuple[Budget, Amount]] = []  # what is reserved, and by which run
        self.tool_calls: int = 0

    def left(self, held: Callable[[Budget], bool]) -> Remaining:
        """What there is, with what those runs hold that `held` is true for counted as gone."""
        limits, used = self.limits, sum((amount for run, amount in self.holds if held(run)), self.spent)
        return Remaining(
            None if limits.tokens is None else limits.tokens - used.tokens,
            None if limits.usd is None else limits.usd - used.usd,
            None if limits.tool_calls is None else limits.tool_calls - self.tool_calls,
        )


class Budget:
    """What one run of a tree may use: its own limits and those of all runs above it, `accounts`, itself first."""

    def __init__(self, limits: Limits, parent: Budget | None) -> None:
        self.accounts: tuple[Account, ...] = (Account(limits), *(() if parent is None else parent.accounts))
        self.changed: asyncio.Event = asyncio.Event() if parent is None else parent.changed
        limited = [account.limits for account in self.accounts if account.limits.usd is not None]
        self.bounds_money: bool = bool(limited)
        self.bounds_requests: bool = self.bounds_money or any(one.limits.tokens is not None for one in self.accounts)
        counted = [account for account in self.accounts if account.limits.tool_calls is not None]
        self.is_limited: bool = self.bounds_requests or bool(counted)
        self.takes_unpriced: bool = all(limits.allow_unpriced for limits in limited)

    @property
    def exhausted(self) -> str | None:
        """The limit on requests that is used up."""
        if not self.bounds_requests:
            return None
        for account in self.accounts:
            left = account.left(_nobody)
            for name, rest in (("tokens", left.tokens), ("usd", left.usd)):
                if rest is not None and rest <= 0:
                    return name
        return None

    def remaining(self) -> Remaining:
        """What is left now, by the tightest limit up the tree; what is reserved counts as gone."""
        lefts = [account.left(_anybody) for account in self.accounts]
        tightest = {
            name: min((rest for left in lefts if (rest := getattr(left, name)) is not None), default=None)
            for name in ("tokens", "usd", "tool_calls")
        }
        return Remaining(**tightest)

    def take_call(self) -> bool:
        """Counts a tool call. False where no more may be made."""
        if not self.is_limited:
            return True
        if any(account.left(_nobody).tool_calls == 0 for account in self.accounts):
            return False
        for account in self.accounts:
            account.tool_calls += 1
        return True

    async def reserve(self, least: Amount, each: Amount, most_output: int) -> tuple[Amount, int]:
        """Takes the worst case of a request, and returns it with the output tokens that it allows.

        `least` is what the input costs, `each` what a token of output does. Where the whole output does not fit, a
        smaller one is allowed. What others hold at the moment is waited for, since it may come back; not what the run
        itself holds, since it may be the one to end that. Raises `BudgetExhausted`.
        """
        while True:
            allowed, limit = self._allowed(least, each, most_output, _anybody)
            possible = allowed
            if any(run is not self for account in self.accounts for run, _ in account.holds):
                possible, limit = self._allowed(least, each, most_output, lambda run: run is self)
            if possible < 1:
                raise BudgetExhausted(limit)
            if allowed >= possible:
                taken = least + Amount(each.tokens * allowed, each.usd * allowed)
                for account in self.accounts:
                    account.holds.append((self, taken))
                return taken, allowed
            self.changed.clear()
            await self.changed.wait()

    def _allowed(self, least: Amount, each: Amount, most: int, held: Callable[[Budget], bool]) -> tuple[int, str]:
        """How much output fits beside `least` and what those hold whom `held` picks, and the limit that bounds it."""
        limit = "tokens"
        for account in self.accounts:
            left = account.left(held)
            for name, rest, input_, output in (
                ("tokens", left.tokens, least.tokens, each.tokens),
                ("usd", left.usd, least.usd, each.usd),
            ):
                if rest is None:
                    continue
                fits = -1 if rest < input_ else most if not output else int((rest - input_) / output)
                if fits < most:
                    most, limit = fits, name
        return most, limit

    def settle(self, reserved: Amount, spent: Amount) -> None:
        """Gives a reservation back, and books what was really spent."""
        for account in self.accounts:
            account.holds.remove((self, reserved))
            account.spent += spent
        self.changed.set()


def _nobody(_: Budget) -> bool:
    return False


def _anybody(_: Budget) -> bool:
    return True


class Meter:
    """Puts the requests of one run through its budget. `ask` sends them."""

    def __init__(self, model: Model, budget: Budget, ask: Callable[[ModelRequest], AsyncIterator[ModelEvent]]) -> None:
        self._model = model
        self._budget = budget
        self._ask = ask
        self._sized: tuple[Sequence[Message], int] = ((), 0)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """The answer to `request`, with a smaller output limit where the budget asks for one."""
        reserved, request = await self._reserve(request)
        began, finish, stream = False, None, None
        try:
            stream = self._ask(request)
            async for event in stream:
                began = began or type(event) is not ModelRetry
                if type(event) is ModelFinish:
                    finish = event
                yield event
        finally:
            await close_stream(stream)
            # What broke off after it began may well be billed; what never began is not.
            self._budget.settle(reserved, self._spent(finish, reserved) if began else Amount())

    async def _reserve(self, request: ModelRequest) -> tuple[Amount, ModelRequest]:
        """Reserves by the size of the request, which bounds its tokens; by the real counter where that is too much."""
        size = self._size(request)
        try:
            reserved, most = await self._take(request, size)
        except BudgetExhausted:
            if not self._model.capabilities.token_counting:
                raise
            reserved, most = await self._take(request, min(size, await count_tokens(self._model, request)))
        if most < request.max_output_tokens:
            request = msgspec.structs.replace(request, max_output_tokens=most)
        return reserved, request

    async def _take(self, request: ModelRequest, tokens: int) -> tuple[Amount, int]:
        least, each = 0.0, 0.0
        if self._budget.bounds_money:
            least, each = self._worst_price(tokens)
        return await self._budget.reserve(Amount(tokens, least), Amount(1, each), request.max_output_tokens)

    def _worst_price(self, tokens: int) -> tuple[float, float]:
        """What that much input costs at most, and a token of output, by the dearest of the models that may answer."""
        if not self._budget.takes_unpriced:
            require_prices(self._model)
        priced = [worst_price(model, tokens) for model in endpoints(self._model)]
        found = [price for price in priced if price is not None]
        return max((price[0] for price in found), default=0.0), max((price[1] for price in found), default=0.0)

    def _spent(self, finish: ModelFinish | None, reserved: Amount) -> Amount:
        """What an answer cost. What is not told counts as the worst case."""
        usage = None if finish is None else finish.usage
        if finish is None or usage is None:
            return reserved
        return Amount(usage.total_tokens, self._cost(finish, usage, reserved))

    def _cost(self, finish: ModelFinish, usage: Usage, reserved: Amount) -> float:
        if usage.cost_usd is not None:
            return usage.cost_usd
        if not self._budget.bounds_money:
            return 0.0
        ref = finish.model or model_ref(self._model)
        answered = [model for model in endpoints(self._model) if model_ref(model) == ref] or [self._model]
        costs = [pricing.cost_of(usage, model) for model in answered]
        return max((reserved.usd if cost is None else cost for cost in costs), default=reserved.usd)

    def _size(self, request: ModelRequest) -> int:
        """The bytes of the request: no token is smaller. Messages that were looked at once are not looked at again."""
        known, size = self._sized
        messages = request.messages
        if not (known and len(known) <= len(messages) and messages[len(known) - 1] is known[-1]):
            known, size = (), 0
        size += sum(len(msgspec.json.encode(message)) for message in messages[len(known) :])
        self._sized = (messages, size)
        rest = len(msgspec.json.encode([request.instructions, request.tools, request.output_schema]))
        return size + rest + (_TOOLS_OVERHEAD if request.tools else 0)


def worst_price(model: Model, tokens: int) -> tuple[float, float] | None:
    """Dollars for `tokens` of input, and for one token of output behind them. None where no price is known."""
    plain, written = (pricing.cost_of(usage, model) for usage in (Usage(tokens), Usage(cache_write_tokens=tokens)))
    whole = pricing.cost_of(Usage(tokens, _MANY), model)
    if plain is None or whole is None:
        return None
    return max(plain, written or 0.0), (whole - plain) / _MANY


def require_prices(model: Model) -> None:
    """Raises `ConfigError` where `model` has no price: limited money could not hold it."""
    for asked in endpoints(model):
        if worst_price(asked, 1) is None:
            raise ConfigError(
                f"{model_ref(asked)} has no known price, so Limits(usd=...) cannot hold it: give the model a price "
                "(treadle.pricing.Price), or Limits(allow_unpriced=True) to go by what the provider reports"
            )
