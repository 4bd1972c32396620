"""Errors: what Responses servers refuse in ways of their own. The rest is the same for all providers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from treadle.errors import ModelError
from treadle.providers._errors import model_error

if TYPE_CHECKING:
    from treadle.providers._errors import Refusal
    from treadle.providers.openai._dialects import Dialect


class Blocked(ModelError):
    """A filter of the provider's refused the prompt or the answer: a stop, and no error to the caller."""


_BLOCKED = frozenset(
    {"content_filter", "content_policy_violation", "responsibleaipolicyviolation", "image_content_policy_violation"}
    | {"bio_policy", "misalignment_policy_violation"}
)
_POLICY_TEXT = re.compile(r"usage polic|safety reasons|flagged|limited access", re.IGNORECASE)
# Codes of `response.failed` that the request itself is to blame for (openai 3.57, 2026-11).
_INVALID_CODE = re.compile(
    r"(invalid|unsupported|image|empty)_|(failed_to_download_image|data_residency_mismatch)$", re.ASCII
)


def refusal_error(refusal: Refusal, provider: str, model: str, dialect: Dialect, secret: str | None) -> ModelError:
    """The error of a refusal, with a hint where the model is not there."""
    if refusal.status in (None, 400):
        blocked = sorted(_BLOCKED & refusal.words)
        if "invalid_prompt" in refusal.words and _POLICY_TEXT.search(refusal.text):
            blocked.append("invalid_prompt")
        if blocked:
            return Blocked(blocked[0])
    if refusal.status is None and any(_INVALID_CODE.match(word) for word in refusal.words):
        refusal = refusal._replace(words=refusal.words | {"invalid_request_error"})
    hint = dialect.missing_model.format(model=model) if refusal.status == 404 else ""
    return model_error(refusal, provider=provider, model=model, hint=hint, secret=secret)
