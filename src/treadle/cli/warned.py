"""What the library warns of in its log, as lines for a person."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

from treadle.cli.terminal import say

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def warnings_shown(log_name: str) -> Iterator[None]:
    """Says what is warned of meanwhile: a tool left out, a server that came back, a session that cannot be read."""
    log, handler = logging.getLogger(log_name), _Spoken(logging.WARNING)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


class _Spoken(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        say(record.getMessage())
