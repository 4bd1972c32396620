"""Record the model requests of real runs, and replay them without network and keys.

A recording is a file of JSON lines: a header, then one line for each request with its whole answer, in the order in
which the answers ended. A request that goes on where an earlier one ended names that one (`after`) and holds only what
is new, so that the file can be read, and its changes reviewed.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Self

from treadle.errors import ConfigError
from treadle.model import close_stream, count_tokens, interceptor, model_ref
from treadle.testing._failures import failure_from
from treadle.testing._model_lines import KIND, Asking, Lines, Recorded, answer_value, count_value, read_exchanges
from treadle.testing._recording_file import RecordingError, RecordingWriter
from treadle.testing._secrets import Secrets
from treadle.testing._shelf import ReplayMismatch, Shelf

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping

    from treadle.events import ModelEvent
    from treadle.model import Interceptor, Model, ModelRequest

    Ask = Callable[[ModelRequest], AsyncIterator[ModelEvent]]


def record(path: str | os.PathLike[str], *, secrets: Iterable[str] = ()) -> Block:
    """Records every request that agents make in a block, with its answer.

        with record("runs.jsonl"):
            await agent.run("...")

    Also requests of tasks, threads and `run_sync` started there. Each is written as it ends, to a file beside `path`.
    A block that ends well puts it in the place of `path`; one that raises leaves the old file as it was, and what was
    recorded until then in `path` with `.partial` behind it. The file can be read by its owner only.

    Secrets are replaced by `[masked]`, which fits anything on replay: tokens of hosted MCP servers, extra headers,
    fields, address parameters and users that are secret by their name, and wherever they turn up the values of request
    headers (the key), of environment variables named like `..._KEY` or `..._TOKEN`, and `secrets`.

    Raises `RecordingError` where nothing was recorded, or a request had not ended with the block.
    """
    return Block(Recorder(path, secrets))


def replay(path: str | os.PathLike[str], *, allow_unused: bool = False) -> Block:
    """Answers every request that agents make in a block from a recording.

        with replay("runs.jsonl"):
            await agent.run("...")

    No model is asked, so that no key and no network is needed. A request gets the answer that was recorded for the same
    content, whatever the order; equal ones get theirs in the order of the file. One that was not recorded raises
    `ReplayMismatch`, which tells where it differs from the nearest one, and which is raised again at the end of the
    block if the run swallowed it. So is one that tells of recorded requests that nobody made, unless `allow_unused`.

    Raises `RecordingError` for a file that is missing, cut off or of another version.
    """
    return Block(Replayer(path, allow_unused=allow_unused))


class Block:
    """A block, `with` or `async with`, in which one stands between agents and their models. It serves once."""

    def __init__(self, between: Recorder | Replayer) -> None:
        self._between = between
        self._outer: Interceptor | None = None
        self._entered = False

    def __enter__(self) -> Self:
        if self._entered:
            raise ConfigError("a recording or replay serves for one block: make another")
        self._entered = True
        self._outer = interceptor.get()
        self._between.start(self._outer)
        interceptor.set(self._between)
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        interceptor.set(self._outer)  # without a token, since a fixture may end in a context of its own
        self._between.end(error)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self.__exit__(kind, error, trace)


class Recorder:
    """Listens, and writes down. See `record`."""

    def __init__(self, path: str | os.PathLike[str], secrets: Iterable[str]) -> None:
        self._path = path
        self._secrets = Secrets(secrets)
        self._lock = threading.Lock()
        self._lines = Lines(self._secrets)
        self._open = 0
        self._ended = False
        self._outer: Interceptor | None = None
        self._writer: RecordingWriter

    def start(self, outer: Interceptor | None) -> None:
        """Opens the file. Requests go on to `outer`."""
        self._outer = outer
        self._writer = RecordingWriter(self._path, KIND, self._secrets)

    def end(self, error: BaseException | None) -> None:
        """Puts the file in its place, or leaves the old one there."""
        with self._lock:
            self._ended = True
            if error is None and not self._open:
                self._writer.publish()
                return
            partial = self._writer.abandon()
        if error is None:
            text = f"{self._open} requests had not ended when the recording did: end runs inside the block"
            raise RecordingError(text)
        if partial is not None:
            error.add_note(f"{self._path} was left as it was; what was recorded until here is in {partial}")

    async def stream(self, model: Model, request: ModelRequest, ask: Ask, /) -> AsyncGenerator[ModelEvent, None]:
        """What the model answers, written down as it ends."""
        stream: Any = None
        events: list[ModelEvent] = []
        failure: Exception | None = None
        ended = False
        with self._lock:
            self._open += 1
        try:
            stream = ask(request) if self._outer is None else self._outer.stream(model, request, ask)
            async for event in stream:
                events.append(event)
                yield event
            ended = True
        except Exception as error:
            failure = error
            raise
        finally:
            try:
                self._add(model, request, answer_value(events, failure, ended=ended), streams=1)
            finally:
                await close_stream(stream)

    async def count_tokens(self, model: Model, request: ModelRequest, /) -> int:
        """What the model counts, written down."""
        try:
            count = await (
                count_tokens(model, request) if self._outer is None else self._outer.count_tokens(model, request)
            )
        except Exception as error:
            self._add(model, request, count_value(None, error))
            raise
        self._add(model, request, count_value(count))
        return count

    def sent(self, url: str, headers: Mapping[str, str], /) -> None:
        """Takes the secrets of a request, to mask them."""
        with self._lock:
            self._secrets.learn_url(url)
            self._secrets.learn_headers(headers)
        if self._outer is not None:
            self._outer.sent(url, headers)

    def _add(self, model: Model, request: ModelRequest, answer: dict[str, Any], streams: int = 0) -> None:
        with self._lock:
            self._open -= streams
            if not self._ended:
                self._writer.append(self._lines.line(str(model_ref(model)), request, answer))


class Replayer:
    """Answers in the models' stead. See `replay`."""

    def __init__(self, path: str | os.PathLike[str], *, allow_unused: bool) -> None:
        self._path = path
        self._allow_unused = allow_unused
        self._asking = Asking()
        self._shelf: Shelf[Recorded]
        self._ended = False

    def start(self, outer: Interceptor | None) -> None:  # noqa: ARG002
        """Reads the file. Nothing goes on to `outer`."""
        self._shelf = Shelf(self._path, read_exchanges(self._path))

    def end(self, error: BaseException | None) -> None:
        """Raises what was swallowed, and what was not asked for."""
        self._ended = True
        failures = self._shelf.failures
        if error is None:
            if failures or not self._allow_unused:
                self._shelf.assert_used_up()
        elif failures and str(failures[0]) not in str(error):
            error.add_note(str(failures[0]))

    async def stream(self, model: Model, request: ModelRequest, ask: Ask, /) -> AsyncGenerator[ModelEvent, None]:  # noqa: ARG002
        """What was recorded for `request`."""
        answer = self._take(model, request, counting=False)
        for event in answer.events:
            yield event
        if answer.failure is not None:
            raise failure_from(answer.failure)
        if not answer.whole:
            failure = ReplayMismatch(
                f"{self._path}: this answer was left after {len(answer.events)} events when it was recorded, and now "
                "more of it is wanted"
            )
            self._shelf.failures.append(failure)
            raise failure

    async def count_tokens(self, model: Model, request: ModelRequest, /) -> int:
        """What was counted for `request`."""
        answer = self._take(model, request, counting=True)
        if answer.failure is not None:
            raise failure_from(answer.failure)
        return int(answer.tokens or 0)

    def sent(self, url: str, headers: Mapping[str, str], /) -> None:
        """Nothing is kept here."""

    def _take(self, model: Model, request: ModelRequest, *, counting: bool) -> Recorded:
        if self._ended:
            raise ReplayMismatch(f"the replay of {self._path} has ended, and a request came: end runs inside the block")
        return self._shelf.take(*self._asking.asked(str(model_ref(model)), request, counting=counting))
