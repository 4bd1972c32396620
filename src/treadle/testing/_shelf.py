"""The exchanges of a recording, and which of them answers a request."""

from __future__ import annotations

import hashlib
import threading
from collections import defaultdict
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from treadle.errors import TreadleError
from treadle.testing._differences import differences, fits
from treadle.testing._secrets import Secrets, in_all_texts

if TYPE_CHECKING:
    from collections.abc import Iterable

AnswerT = TypeVar("AnswerT")

_SHOWN_DIFFERENCES = 8
_SHOWN_UNUSED = 5


class ReplayMismatch(TreadleError, AssertionError):
    """A request was not recorded like this, or a recorded one was not made.

    `differences` tells each place where the request differs from the nearest recorded one: the path, what was
    recorded, what is there now.
    """

    def __init__(self, message: str, *, differences: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.differences: tuple[str, ...] = differences


class Exchange(Generic[AnswerT]):
    """A recorded request and its answer.

    `asked` is JSON data, `key` the same for equal ones; `title` names the request in few words.
    """

    __slots__ = ("answer", "asked", "key", "line", "title", "used")

    def __init__(self, line: int, title: str, asked: dict[str, Any], answer: AnswerT, key: bytes) -> None:
        self.line, self.title, self.asked, self.answer, self.key = line, title, asked, answer, key
        self.used = False


class Shelf(Generic[AnswerT]):
    """Hands out each exchange once, to a request with the same content; equal ones in their order."""

    def __init__(self, path: Any, exchanges: Iterable[Exchange[AnswerT]]) -> None:
        self._path = path
        self._secrets = Secrets()
        self._lock = threading.Lock()
        self._exchanges = list(exchanges)
        self._by_key: dict[bytes, list[Exchange[AnswerT]]] = defaultdict(list)
        for exchange in self._exchanges:
            self._by_key[exchange.key].append(exchange)
        self.failures: list[ReplayMismatch] = []

    def take(self, asked: dict[str, Any], key: bytes) -> AnswerT:
        """The answer to `asked`, whose key is `key`. Raises `ReplayMismatch`."""
        with self._lock:
            same = self._by_key.get(key) or [exchange for exchange in self._exchanges if fits(exchange.asked, asked)]
            for exchange in same:
                if not exchange.used:
                    exchange.used = True
                    return exchange.answer
            failure = self._mismatch(asked, same)
            self.failures.append(failure)
        raise failure

    def assert_used_up(self) -> None:
        """Raises the first mismatch there was, or one for the exchanges that were not asked for."""
        if self.failures:
            raise self.failures[0]
        unused = [exchange for exchange in self._exchanges if not exchange.used]
        if unused:
            lines = [f"  line {exchange.line}: {exchange.title}" for exchange in unused[:_SHOWN_UNUSED]]
            more = [f"  and {len(unused) - _SHOWN_UNUSED} more"] if len(unused) > _SHOWN_UNUSED else []
            text = f"{len(unused)} of {len(self._exchanges)} requests in {self._path} were not made:"
            raise ReplayMismatch("\n".join([text, *lines, *more]))

    def _mismatch(self, asked: dict[str, Any], same: list[Exchange[AnswerT]]) -> ReplayMismatch:
        earlier = f"\nbefore it: {str(self.failures[0]).splitlines()[0]}" if self.failures else ""
        if not self._exchanges:
            return ReplayMismatch(f"{self._path} holds no request")
        if same:
            times = f"{len(same)} times" if len(same) > 1 else "once"
            return ReplayMismatch(
                f"{self._path} holds this request {times} (line {same[-1].line}), and it was made again: "
                f"{same[-1].title}{earlier}"
            )
        nearest = max(self._exchanges, key=lambda exchange: _likeness(exchange, asked))
        hidden = in_all_texts(asked, self._secrets.mask)
        found = tuple(differences(nearest.asked, hidden)) or tuple(differences(nearest.asked, asked))
        shown = [f"  {line}" for line in islice(found, _SHOWN_DIFFERENCES)]
        if len(found) > _SHOWN_DIFFERENCES:
            shown.append(f"  and {len(found) - _SHOWN_DIFFERENCES} more")
        used = ", made already" if nearest.used else ""
        text = f"{self._path} does not hold this request; the nearest is in line {nearest.line}{used}:"
        return ReplayMismatch("\n".join([text, *shown]) + earlier, differences=found)


def digest(content: bytes) -> bytes:
    """A short name for content: the same for the same."""
    return hashlib.blake2b(content, digest_size=16).digest()


def _likeness(exchange: Exchange[Any], asked: dict[str, Any]) -> tuple[int, bool, int, int]:
    """How near an exchange is to a request: the same conversation, not used yet, as long, the same fields."""
    recorded, now = _messages(exchange.asked), _messages(asked)
    common = 0
    for one, two in zip(recorded, now, strict=False):
        if not fits(one, two):
            break
        common += 1
    equal = sum(fits(value, asked.get(key)) for key, value in exchange.asked.items())
    return (common, not exchange.used, -abs(len(recorded) - len(now)), equal)


def _messages(asked: dict[str, Any]) -> list[Any]:
    body = asked.get("json", asked)
    body = body if isinstance(body, dict) else {}
    found = body.get("messages") or body.get("input") or body.get("contents") or []
    return found if isinstance(found, list) else []
