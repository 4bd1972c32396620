"""Asking again: `Retry` is the one layer that does it, and `fallback` asks somebody else.

Both help only while a request has yielded nothing. Once a consumer may have seen a part of an answer, its failure is
final.
"""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING, Any

import msgspec

from treadle.errors import ConfigError, ModelError, RetryBudgetExceeded, first_line
from treadle.events import ModelFinish, ModelRetry
from treadle.messages import encodable
from treadle.model import Capabilities, Model, as_model, check_request, close, close_stream, count_tokens, model_ref

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable

    from treadle.events import ModelEvent
    from treadle.model import ModelRequest

    FallbackOn = type[Exception] | tuple[type[Exception], ...] | Callable[[Exception], bool]

MAX_RETRY_AFTER_SECONDS = 60.0
"""The longest wait that a provider may ask for, unless `max_seconds` is longer. Told to wait more, the request fails
at once; its error carries the value."""

_log = logging.getLogger("treadle")


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """How often a failed model request is sent again, and after how long.

    `attempts` counts all requests of a step, the first one too. The wait doubles from `base_seconds` up to
    `max_seconds`, less up to a half of it by chance; a provider's Retry-After goes before it, up to a minute. Only
    failures that say `retryable = True` are tried again, and only while nothing of the answer was yielded.
    `budget_seconds` is a deadline for the whole run (for a bare model: for one request and its retries): it also
    interrupts a wait or an answer that is going well, and ends in `RetryBudgetExceeded`.
    """

    attempts: int = 3
    base_seconds: float = 0.5
    max_seconds: float = 8.0
    budget_seconds: float | None = None

    def __post_init__(self) -> None:
        if type(self.attempts) is not int or self.attempts < 1:
            raise ConfigError(
                f"Retry(attempts=...) counts all requests, the first too: {self.attempts!r} is no such number"
            )
        for field in ("base_seconds", "max_seconds", "budget_seconds"):
            value = getattr(self, field)
            if value is None and field == "budget_seconds":
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
                raise ConfigError(f"Retry({field}=...) is a number of seconds from 0 on, and is {value!r:.80}")

    def delay_seconds(self, error: BaseException, attempt: int) -> float | None:
        """How long to wait after attempt number `attempt` failed with `error`; None where it is not to be repeated."""
        if getattr(error, "retryable", False) is not True or attempt >= self.attempts:
            return None
        wanted = getattr(error, "retry_after_seconds", None)
        if isinstance(wanted, int | float) and wanted >= 0:
            return wanted * random.uniform(1, 1.1) if wanted <= max(MAX_RETRY_AFTER_SECONDS, self.max_seconds) else None  # noqa: S311
        return min(self.max_seconds, self.base_seconds * 2.0 ** min(attempt - 1, 60)) * random.uniform(0.5, 1)  # noqa: S311


class Attempts:
    """The requests of one run (one request, for a bare model): each is sent again as `policy` says.

    `deadline` is in the time of the event loop; `failure` is what failed last.
    """

    def __init__(self, model: Model, policy: Retry | None) -> None:
        self._model = model
        self._policy = None if is_retrying(model) else policy
        self.budget_seconds: float | None = None if policy is None else policy.budget_seconds
        self.failure: BaseException | None = None
        self.deadline: float | None = None

    def start(self) -> float | None:
        """Sets the deadline, and returns the seconds until then."""
        if self.budget_seconds is not None:
            self.deadline = asyncio.get_running_loop().time() + self.budget_seconds
        return self.budget_seconds

    def stream(self, request: ModelRequest) -> Any:
        """The answer to `request`, with a `ModelRetry` for each failure that is not final."""
        return self._model.stream(request) if self._policy is None else self._stream(request, self._policy)

    async def _stream(self, request: ModelRequest, policy: Retry) -> AsyncGenerator[ModelEvent, None]:
        attempt = 1
        while True:
            began = False
            stream: Any = None
            try:
                stream = self._model.stream(request)
                async for event in stream:
                    began = began or type(event) is not ModelRetry
                    yield event
                return
            except Exception as error:
                if isinstance(error, ModelError):
                    error.attempt = attempt
                delay = None if began else policy.delay_seconds(error, attempt)
                if delay is None:
                    raise
                self.failure = error
            finally:
                await close_stream(stream)
            if self.deadline is not None and asyncio.get_running_loop().time() + delay > self.deadline:
                raise self.out_of_time()
            yield _told(self.failure, attempt, delay)
            told = first_line(self.failure)
            _log.warning("attempt %d of %d failed, the next in %.1f s: %s", attempt, policy.attempts, delay, told)
            await asyncio.sleep(delay)
            attempt += 1

    def out_of_time(self) -> RetryBudgetExceeded:
        """The error of a deadline that passed. What failed last is its cause."""
        last = self.failure
        told = "" if last is None else f"; the last failure: {first_line(last)}"
        error = RetryBudgetExceeded(
            f"{model_ref(self._model)}: the {self.budget_seconds:g} seconds allowed for it are over{told}",
            provider=self._model.provider,
            model=self._model.name,
            status=getattr(last, "status", None),
            request_id=getattr(last, "request_id", None),
            retry_after_seconds=getattr(last, "retry_after_seconds", None),
            attempt=getattr(last, "attempt", 1),
        )
        error.__cause__ = last
        return error


class RetryModel:
    """A model whose failed requests are sent again. See `retry`."""

    retrying: bool = True

    def __init__(self, model: Model, policy: Retry) -> None:
        self.model: Model = model
        self.policy: Retry = policy

    def __repr__(self) -> str:
        return f"retry({self.model!r}, {self.policy!r})"

    @property
    def provider(self) -> str:
        return self.model.provider

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def capabilities(self) -> Capabilities:
        return self.model.capabilities

    def check(self, request: ModelRequest, /) -> None:
        """What the model's own check says."""
        check_request(self.model, request)

    def stream(self, request: ModelRequest, /) -> AsyncIterator[ModelEvent]:
        """One answer, after as many attempts as it takes. Raises `RetryBudgetExceeded` behind the deadline."""
        attempts = Attempts(self.model, self.policy)
        stream = attempts.stream(request)
        return stream if self.policy.budget_seconds is None else _until_deadline(attempts, stream)

    async def count_tokens(self, request: ModelRequest, /) -> int:
        """The model's own count. Raises `UnsupportedError` where it has none."""
        return await count_tokens(self.model, request)

    async def aclose(self) -> None:
        await close(self.model)


async def _until_deadline(attempts: Attempts, stream: AsyncIterator[ModelEvent]) -> AsyncGenerator[ModelEvent, None]:
    attempts.start()
    try:
        while True:
            timer = asyncio.timeout_at(attempts.deadline)
            try:
                async with timer:
                    event = await anext(stream)
            except StopAsyncIteration:
                return
            except TimeoutError:
                if timer.expired():
                    raise attempts.out_of_time() from attempts.failure
                raise
            yield event
    finally:
        await close_stream(stream)


class FallbackModel:
    """The first of several models that answers. See `fallback`."""

    def __init__(self, models: tuple[Model, ...], on: FallbackOn) -> None:
        self.models: tuple[Model, ...] = models
        self._on = on
        self.provider: str = models[0].provider
        self.name: str = models[0].name
        self.capabilities: Capabilities = _common([model.capabilities for model in models])
        self.retrying: bool = any(is_retrying(model) for model in models)

    def __repr__(self) -> str:
        return f"fallback({', '.join(map(repr, self.models))})"

    def check(self, request: ModelRequest, /) -> None:
        """Raises what any of the models says against the request, since any may have to answer it."""
        for model in self.models:
            check_request(model, request)

    async def stream(self, request: ModelRequest, /) -> AsyncGenerator[ModelEvent, None]:
        """One answer. Raises the last model's error where all of them fail."""
        number = 0
        while True:
            model, number = self.models[number], number + 1
            began = False
            stream: Any = None
            try:
                stream = model.stream(request)
                async for event in stream:
                    began = began or type(event) is not ModelRetry
                    yield _signed(event, model) if type(event) is ModelFinish else event
                return
            except Exception as error:
                if began or number == len(self.models) or not self._falls_back(error):
                    raise
                failure = error
            finally:
                await close_stream(stream)
            _log.warning(
                "%s failed: %s; asking %s", model_ref(model), first_line(failure), model_ref(self.models[number])
            )
            yield _told(failure, number, 0.0)

    def _falls_back(self, error: Exception) -> bool:
        if isinstance(self._on, type | tuple):
            return isinstance(error, self._on)
        return bool(self._on(error))

    async def count_tokens(self, request: ModelRequest, /) -> int:
        """The first model's count. Raises `UnsupportedError` where it has none."""
        return await count_tokens(self.models[0], request)

    async def aclose(self) -> None:
        for model in self.models:
            await close(model)


def retry(model: Model | str, policy: Retry | None = None) -> Model:
    """`model` with failed requests sent again as `policy` says, for use without an agent: agents do it by themselves.

    A model that is wrapped already, also inside a `fallback`, is returned as it is.
    """
    model = as_model(model)
    return model if is_retrying(model) else RetryModel(model, Retry() if policy is None else policy)


def fallback(*models: Model | str, on: FallbackOn = ModelError) -> Model:
    """A model that asks the next of `models` when one fails with `on` before it yielded anything.

    `on` is an error type, a tuple of these, or a function of the error. Each failure that is passed over is a
    `ModelRetry` event and a log line; `ModelFinish.model` says who answered. What the models can do is what all of them
    can. An agent's retry goes round them all again, so that each is asked `attempts` times at most; if one of them is
    wrapped in `retry`, the agent leaves that to it.
    """
    if len(models) < 2:
        raise ConfigError("fallback needs two models or more: fallback(model_a, model_b)")
    return FallbackModel(tuple(as_model(model) for model in models), on)


def is_retrying(model: Model) -> bool:
    """Whether `model` sends failed requests again by itself."""
    return getattr(model, "retrying", False) is True


def endpoints(model: Model) -> list[Model]:
    """The models that may answer for `model`: itself, or those inside its retries and fallbacks."""
    if isinstance(model, RetryModel):
        return endpoints(model.model)
    if isinstance(model, FallbackModel):
        return [one for inside in model.models for one in endpoints(inside)]
    return [model]


def _told(error: BaseException, attempt: int, delay_seconds: float) -> ModelRetry:
    return ModelRetry(attempt, delay_seconds, encodable(first_line(error)))


def _signed(finish: ModelFinish, model: Model) -> ModelFinish:
    """Whoever answered is named, also by a model that does not do so itself."""
    named = finish.model or finish.message.model or model_ref(model)
    return msgspec.structs.replace(finish, model=named)


def _common(capabilities: list[Capabilities]) -> Capabilities:
    """What all can do."""
    fields: dict[str, Any] = {}
    for field in Capabilities.__struct_fields__:
        values = [getattr(one, field) for one in capabilities]
        fields[field] = None if None in values else max(values) if field == "min_reasoning_budget" else all(values)
    return Capabilities(**fields)
