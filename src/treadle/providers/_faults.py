"""What of a request does not fit a model: gathered first, told all at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from treadle.errors import UnsupportedError
from treadle.messages import FilePart, UserMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from treadle.messages import Message
    from treadle.providers._rendered import RenderedMessages


def unsupported(model: str, feature: str, text: str) -> UnsupportedError:
    """The error for one thing that `model` lacks. `text` goes on where "the model takes" ends."""
    return UnsupportedError(f"{model} takes {text}", model=model, feature=feature)


class Faults:
    """The faults of one request to `model`."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._features: dict[str, str] = {}  # by what is said of it

    def add(self, feature: str, text: str) -> None:
        """One more thing that the model lacks, as in `unsupported`."""
        self._features.setdefault(text, feature)

    def written(
        self, rendered: RenderedMessages, messages: Sequence[Message], write_file: Callable[[FilePart], Any]
    ) -> list[bytes]:
        """The messages as JSON. Where one of them cannot be written, each file that `write_file` refuses is a fault."""
        try:
            return rendered.pieces(messages)
        except UnsupportedError as error:
            parts = [part for message in messages if isinstance(message, UserMessage) for part in message.content]
            for part in parts:
                if isinstance(part, FilePart):
                    self._try(write_file, part)
            self._take(error)
        return []

    def _try(self, write_file: Callable[[FilePart], Any], part: FilePart) -> None:
        try:
            write_file(part)
        except UnsupportedError as error:
            self._take(error)

    def _take(self, error: UnsupportedError) -> None:
        self.add(error.feature or "files", str(error).removeprefix(f"{self._model} takes "))

    def settle(self) -> None:
        """Raises one `UnsupportedError` for all of them, if there are any; its feature is the first one's."""
        if self._features:
            raise unsupported(self._model, next(iter(self._features.values())), "; ".join(self._features))
