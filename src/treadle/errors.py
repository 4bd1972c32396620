"""Every error Treadle raises.

TreadleError
├── ConfigError (also a ValueError)     wrong or clashing configuration; the text says what to change
│   └── UnsupportedError                the model cannot do what was asked of it
├── RunError                            a run did not give a whole answer; `.result` holds what there is
│   ├── LimitExceeded                   a limit of the run was reached
│   ├── RunPaused                       the run waits for a decision on tool calls
│   ├── OutputError                     the answers did not fit the output type
│   └── ModelContractError              a `Model` broke the rules of its seam
├── RunConsumedError                    the events of a run were asked for twice
├── ModelError                          one model request failed
│   ├── ModelConnectionError            no connection, or it broke before the answer's end
│   │   └── StreamIdleError             the answer stalled
│   ├── AuthenticationError             the key is missing, wrong or not allowed
│   ├── RateLimitError                  too many requests, or a quota is used up
│   ├── OverloadedError                 the provider is overloaded or broken on its side
│   ├── InvalidRequestError             the provider refuses the request as it is
│   │   └── ContextOverflowError        the request does not fit the model's context
│   ├── ModelResponseError              an answer that could not be understood
│   └── RetryBudgetExceeded             the time allowed for retries is over
├── ModelRequestsDenied                 model requests are switched off in this process
├── ToolError                           raised by tools: a failure the model should read
│   ├── ToolInputError                  the arguments do not fit the tool's schema
│   └── NoSuchToolError                 no tool has that name
├── MCPError
├── StoreError                          a session could not be stored or read
│   └── NoSuchSessionError              no session has that id
└── SandboxError
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from treadle.run import RunResult


def text_of(error: BaseException) -> str:
    """What an exception says; empty where it says nothing, or cannot even say that."""
    try:
        return str(error).strip()
    except Exception:  # noqa: BLE001 - a broken `__str__` must not hide the failure it belongs to
        return ""


def first_line(error: BaseException) -> str:
    """The first line of what an exception says, or its kind."""
    return next(iter(text_of(error).splitlines()), type(error).__name__)


class TreadleError(Exception):
    """Base of every error that Treadle raises on its own account."""


class ConfigError(TreadleError, ValueError):
    """Wrong or clashing configuration. Raised before anything is sent."""


class UnsupportedError(ConfigError):
    """The model cannot do what was asked of it.

    `model` is the model's `provider:name`, `feature` the name of the capability it lacks.
    """

    def __init__(self, message: str, *, model: str | None = None, feature: str | None = None) -> None:
        super().__init__(message)
        self.model = model
        self.feature = feature


class RunError(TreadleError):
    """A run ended without a whole answer. A model's own failure is the `__cause__`.

    `step` is the index of the step that was going on, `result` everything up to there: its messages are a valid
    next request.
    """

    def __init__(self, message: str, *, step: int = 0, result: RunResult[Any] | None = None) -> None:
        super().__init__(message)
        self.step = step
        self.result = result


class LimitExceeded(RunError):
    """A limit stopped the run. `limit` is the name of the `Limits` field, or `repeated_calls`."""

    def __init__(self, message: str, *, limit: str = "", step: int = 0, result: RunResult[Any] | None = None) -> None:
        super().__init__(message, step=step, result=result)
        self.limit = limit


class RunPaused(RunError):
    """The run waits for a decision. `pending` lists the calls that wait."""

    def __init__(
        self,
        message: str,
        *,
        pending: Sequence[Any] = (),
        step: int = 0,
        result: RunResult[Any] | None = None,
    ) -> None:
        super().__init__(message, step=step, result=result)
        self.pending: tuple[Any, ...] = tuple(pending)


class OutputError(RunError):
    """The model's answers did not fit the output type, also after they went back to it."""


class ModelContractError(RunError):
    """A `Model` broke the rules of its seam, for instance by ending without a `model_finish`."""


class RunConsumedError(TreadleError):
    """The events of a run were asked for a second time."""


class ModelError(TreadleError):
    """One model request failed.

    `status` is the HTTP status, or the code in the body where the failure came inside a 200. `retryable` says
    whether the same request may well succeed later. `attempt` counts from 1.
    """

    retryable: bool = False

    def __init__(
        self,
        message: str,
        *,
        provider: str | None = None,
        model: str | None = None,
        status: int | None = None,
        request_id: str | None = None,
        retryable: bool | None = None,
        retry_after_seconds: float | None = None,
        attempt: int = 1,
    ) -> None:
        super().__init__(message)
        self.provider = provider
        self.model = model
        self.status = status
        self.request_id = request_id
        if retryable is not None:
            self.retryable = retryable
        self.retry_after_seconds = retry_after_seconds
        self.attempt = attempt


class ModelConnectionError(ModelError):
    """No connection to the provider, or one that broke before the end of the answer."""

    retryable = True


class StreamIdleError(ModelConnectionError):
    """The provider kept the connection open and sent nothing for too long."""


class AuthenticationError(ModelError):
    """The key is missing, wrong or not allowed to do this."""


class RateLimitError(ModelError):
    """Too many requests or tokens, or a quota is used up."""

    retryable = True


class OverloadedError(ModelError):
    """The provider is overloaded or failed on its own side."""

    retryable = True


class InvalidRequestError(ModelError):
    """The provider refuses the request as it is; sending it again does not help."""


class ContextOverflowError(InvalidRequestError):
    """The request does not fit into the model's context."""


class ModelResponseError(ModelError):
    """The provider's answer could not be understood."""


class RetryBudgetExceeded(ModelError):
    """The time allowed for a run with retries is over."""


class ModelRequestsDenied(TreadleError):
    """Model requests are switched off: `TREADLE_MODEL_REQUESTS=deny` is set."""


class ToolError(TreadleError):
    """A failure that the model should read. Tools raise it; inside a run it becomes an error result."""


class ToolInputError(ToolError):
    """The arguments of a call do not fit the tool's schema. The text is meant for the model."""


class NoSuchToolError(ToolError):
    """No tool has the asked name. The text lists those there are."""


class MCPError(TreadleError):
    """An MCP server could not be reached, or broke its protocol."""


class StoreError(TreadleError):
    """A session could not be stored or read."""


class NoSuchSessionError(StoreError):
    """No session has the asked id."""


class SandboxError(TreadleError):
    """The sandbox itself failed, not the command in it."""
