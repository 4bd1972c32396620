"""What goes wrong on the way to a token, whichever library tells of it, as an error of ours."""

from __future__ import annotations

import re

from treadle.errors import AuthenticationError, ModelConnectionError, ModelError, OverloadedError, text_of
from treadle.providers._errors import one_line

# Names, so that no library is imported to look at an error of another one.
_UNREACHABLE = frozenset({
    "azure.core.exceptions.ServiceRequestError",
    "azure.core.exceptions.ServiceResponseError",
    "botocore.exceptions.ConnectionError",
    "botocore.exceptions.HTTPClientError",
    "builtins.ConnectionError",
    "builtins.TimeoutError",
    "google.auth.exceptions.TransportError",
})  # fmt: skip
# Long words with capitals and digits in them: tokens, signed assertions, client secrets. Servers repeat what they got.
_SECRET = re.compile(r"(?=[\w.~+=-]*[A-Z])(?=[\w.~+=-]*[0-9])[\w.~+=-]{32,}", re.ASCII)


def token_error(cloud: str, error: BaseException, hint: str) -> ModelError:
    """The error for one that the cloud's library raised. It shows no secret, so leave its cause behind."""
    text = f"{cloud} gave no token: {one_line(_SECRET.sub('***', _said(error))) or type(error).__name__}"
    causes = _causes(error)
    if any(_is_unreachable(cause) for cause in causes):
        return ModelConnectionError(text)
    if any(_is_broken(cause) for cause in causes):
        return OverloadedError(text)
    return AuthenticationError(f"{text} ({hint})" if hint else text)


def _said(error: BaseException) -> str:
    """google-auth puts the whole answer of the server behind its text, or another error in its place."""
    first = error.args[0] if error.args else None
    if isinstance(first, BaseException):
        return text_of(first)
    return first if isinstance(first, str) else text_of(error)


def _causes(error: BaseException | None) -> list[BaseException]:
    found: list[BaseException] = []
    while error is not None and len(found) < 10:
        found.append(error)
        error = error.__cause__
    return found


def _is_unreachable(error: BaseException) -> bool:
    return any(f"{kind.__module__}.{kind.__qualname__}" in _UNREACHABLE for kind in type(error).__mro__)


def _is_broken(error: BaseException) -> bool:
    """Whether the token server failed on its own side: google-auth's mark, or the status that the others keep."""
    status = getattr(error, "status_code", None)
    return getattr(error, "retryable", False) is True or (isinstance(status, int) and (status == 429 or status >= 500))
