"""Errors: what the Messages API refuses in ways of its own. The rest is the same for all providers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.providers._errors import model_error
from treadle.providers.anthropic._platform import ANTHROPIC, Platform

if TYPE_CHECKING:
    from treadle.errors import ModelError
    from treadle.providers._errors import Refusal


def refusal_error(refusal: Refusal, model: str, secret: str | None, platform: Platform = ANTHROPIC) -> ModelError:
    """The error of a refusal, with a hint where the model is not there."""
    hint = platform.missing_model if refusal.status == 404 else ""
    return model_error(refusal, provider=platform.provider, model=model, hint=hint, secret=secret)
