"""What of an answer cannot be read: the errors that tell of it, the same on every wire."""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.errors import ModelConnectionError, ModelError, ModelResponseError
from treadle.providers._errors import one_line, page_summary

if TYPE_CHECKING:
    from collections.abc import Callable

    from treadle.messages import ModelRef


class Unread:
    """Keeps what one answer holds besides events. `mask` takes the key out of what errors quote."""

    def __init__(self, ref: ModelRef, mask: Callable[[str], str]) -> None:
        self._ref = ref
        self._mask = mask
        self._noise = ""

    def skip(self, data: bytes, *, last: bool, answered: bool) -> None:
        """What is no JSON object is a keepalive mostly; it is told if no answer comes. Half an object is a fault.

        `last` says that nothing comes behind it, `answered` that it does no harm there.
        """
        text = one_line(data.decode("utf-8", "replace"))
        if not text.startswith("{"):
            self._noise = self._noise or text
        elif not last:
            raise self.error(ModelResponseError, f"an event is no JSON: {text}")
        elif not answered:
            raise self.broke_off()

    def broke_off(self) -> ModelError:
        """The body ended before the answer did."""
        noise = f" (it said: {self._noise})" if self._noise else ""
        return self.error(ModelConnectionError, f"the stream ended before the answer did{noise}")

    def empty(self) -> ModelError:
        """The answer is whole and holds nothing."""
        return self.error(ModelResponseError, f"the answer is empty{f': {self._noise}' if self._noise else ''}")

    def page(self, body: bytes) -> ModelError:
        """The body is something else altogether."""
        return self.error(ModelResponseError, f"the answer is {page_summary(body)}", retryable=False)

    def error(self, kind: type[ModelError], text: str, *, retryable: bool = True) -> ModelError:
        """Any other fault of the answer."""
        ref = self._ref
        return kind(f"{ref}: {self._mask(text)}", provider=ref.provider, model=ref.name, retryable=retryable)
