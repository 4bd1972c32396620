"""Errors: what Chat Completions servers refuse in ways of their own. The rest is the same for all providers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from treadle.errors import ModelError
from treadle.providers._errors import model_error

if TYPE_CHECKING:
    from treadle.providers._errors import Refusal
    from treadle.providers.openai_chat._dialects import Dialect


class PromptBlocked(ModelError):
    """The provider's filter refused the prompt: a stop, and no error to the caller."""


# OpenRouter's moderation and xAI's usage guidelines answer 403 (2026-11).
_BLOCKED_TEXT = re.compile(r"input was flagged|violates usage guidelines", re.IGNORECASE)
_BLOCKED = frozenset({"content_filter", "content_policy_violation", "responsibleaipolicyviolation"})


def refusal_error(refusal: Refusal, provider: str, model: str, dialect: Dialect, secret: str | None) -> ModelError:
    """The error of a refusal, with a hint where the model is not there."""
    if refusal.status == 400 and (words := sorted(_BLOCKED & refusal.words)):
        return PromptBlocked(words[0])
    if refusal.status == 403 and _BLOCKED_TEXT.search(refusal.text):
        return PromptBlocked("content_filter")
    hint = dialect.missing_model.format(model=model) if refusal.status == 404 else ""
    return model_error(refusal, provider=provider, model=model, hint=hint, secret=secret)
