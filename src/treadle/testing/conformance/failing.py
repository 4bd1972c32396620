"""What goes wrong must be told as what it is: refusals, errors inside a stream, answers that break off."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from treadle.errors import (
    ModelConnectionError,
    ModelError,
    OverloadedError,
    RateLimitError,
    StreamIdleError,
)
from treadle.events import ModelFinish, TextDelta
from treadle.messages import ToolCallPart
from treadle.testing.conformance.answers import REFUSALS, REFUSALS_IN_STREAM, Answer, Failure
from treadle.testing.conformance.looking import only, whole
from treadle.testing.conformance.server import CLOSE, RESET, STALL, Reply
from treadle.testing.conformance.suite import ADD, HELLO, Suite, collect, leave
from treadle.usage import StopReason

if TYPE_CHECKING:
    from treadle.events import ModelEvent
    from treadle.model import Model, ModelRequest
    from treadle.testing.conformance.server import Server

_LONG = Answer(("ALPHA ", "beta ", "gamma ", "delta ", "epsilon ", "OMEGA"))
_CALL = Answer(("Let me add.", ToolCallPart("call00001", "add", '{"a": 1, "b": 2}')), StopReason.TOOL_CALLS)
_PAGE = b"<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"


def _named(failure: Failure) -> str:
    return f"{failure.status}-{failure.error.__name__}{'-after-text' if failure.after else ''}"


class FailureTests(Suite):
    """The tests of what goes wrong between a model and its server."""

    @pytest.mark.parametrize("failure", REFUSALS, ids=_named)
    def test_a_refusal_is_an_error_of_its_kind(self, failure: Failure) -> None:
        self.needs("wire")
        error, events = self.failed(self.said(failure))
        assert not events, "nothing comes before a refusal"
        self._is(error, failure)
        assert error.status == failure.status, f"the error tells the status {failure.status}, not {error.status}"

    @pytest.mark.parametrize("failure", REFUSALS_IN_STREAM, ids=_named)
    def test_an_error_inside_the_stream_is_an_error_of_its_kind(self, failure: Failure) -> None:
        self.needs("wire", "errors_in_stream")
        error, events = self.failed(self.said(failure))
        self._is(error, failure)
        assert not only(events, ModelFinish), "an answer that fails has no ModelFinish"
        told = "".join([event.text for event in only(events, TextDelta)])
        assert told == "".join(failure.after), "what came before the error is told"

    def test_the_time_to_come_back_is_carried(self) -> None:
        self.needs("wire", "retry_after")
        refusal = self.said(Failure(RateLimitError, 429, "Too many requests."))
        error, _ = self.failed(refusal.with_header("retry-after", "7"))
        assert error.retry_after_seconds == 7, "Retry-After is carried in seconds"

    @pytest.mark.parametrize("body", [_PAGE, b"", b"{", b"null", b"[]", b"\xff\xfe"], ids=repr)
    def test_a_refusal_that_is_no_json_is_an_error_all_the_same(self, body: bytes) -> None:
        self.needs("wire")
        error, _ = self.failed(Reply((body,) if body else (), status=502, content_type="text/html"))
        assert isinstance(error, OverloadedError), f"a 502 of whatever body is an OverloadedError, not {error!r}"
        assert error.retryable

    def test_nobody_there_is_a_connection_error(self) -> None:
        self.needs("wire")

        async def scene(server: Server, model: Model) -> None:
            await server.stop()
            error, _ = await _failure(model, self.request())
            assert isinstance(error, ModelConnectionError), f"no connection is a ModelConnectionError, not {error!r}"
            assert error.retryable

        self.play(scene)

    def test_an_empty_answer_is_a_broken_one(self) -> None:
        self.needs("wire")
        self.broken(self.said(HELLO).sending())

    @pytest.mark.parametrize("end", [CLOSE, RESET])
    def test_a_connection_that_breaks_is_a_connection_error(self, end: str) -> None:
        self.needs("wire")
        reply = self.said(_LONG)
        half = reply.events[: (len(reply.events) + 1) // 2]
        self.broken(reply.sending(*half, end))

    @pytest.mark.parametrize("end", [CLOSE, RESET])
    def test_a_connection_that_breaks_before_the_answer_is_a_connection_error(self, end: str) -> None:
        self.needs("wire")
        self.broken(Reply((end,), head=False))

    @pytest.mark.parametrize("answer", [_LONG, _CALL], ids=["text", "call"])
    def test_a_body_cut_anywhere_is_no_end(self, answer: Answer) -> None:
        """Behind every event and inside of each: an error, or the whole answer where its end was told already."""
        self.needs("wire", *(() if answer is _LONG else ("tools",)))
        reply = self.said(answer)
        sizes = [len(event) for event in reply.events]
        places = {
            at for number, size in enumerate(sizes) for at in (sum(sizes[:number]), sum(sizes[:number]) + size // 2)
        }
        cuts = [reply.sending(reply.data[:at]) if at else reply.sending() for at in sorted(places)]
        told = self._outcomes(answer, cuts)
        assert told, "every cut was taken for the whole answer"
        for error in told:
            assert isinstance(error, ModelConnectionError), f"a truncated body is a ModelConnectionError, not {error!r}"
            assert error.retryable

    def test_a_server_that_stalls_is_an_idle_error(self) -> None:
        self.needs("wire", "idle_timeout")
        reply = self.said(_LONG)
        half = reply.events[: (len(reply.events) + 1) // 2]
        self._stalls(reply.sending(*half, STALL))

    def test_a_server_that_never_answers_is_an_idle_error(self) -> None:
        self.needs("wire", "idle_timeout")
        self._stalls(Reply((STALL,), head=False))

    def test_a_failure_does_not_spoil_the_next_request(self) -> None:
        self.needs("wire")
        hello = self.said(HELLO)
        refusal = self.said(Failure(OverloadedError, 503))

        async def scene(_: Server, model: Model) -> None:
            await _failure(model, self.request())
            await _failure(model, self.request())
            whole(await collect(model, self.request()))

        self.play(scene, replies=[refusal, hello.sending(hello.events[0], CLOSE), hello])

    # How these tests ask

    def failed(self, reply: Reply, idle_timeout_seconds: float = 60.0) -> tuple[ModelError, list[ModelEvent]]:
        """The error of one request that gets this reply, and the events before it. One request is sent, not more."""

        async def scene(server: Server, model: Model) -> tuple[ModelError, list[ModelEvent]]:
            error, events = await _failure(model, self.request())
            text = str(error)
            assert server.api_key not in f"{text}{error!r}{error.__cause__!r}", "the key shows in the error"
            assert "\n" not in text, "an error is one line"
            assert text.strip(), "an error says something"
            assert len(server.requests) == 1, "a model asks once: retrying is somebody else's business"
            assert error.provider == model.provider, "an error names its provider"
            assert error.model == model.name, "an error names its model"
            await server.until_open(0 if STALL in reply.body else 1)
            return error, events

        return self.play(scene, replies=[reply], idle_timeout_seconds=idle_timeout_seconds)

    def broken(self, reply: Reply) -> None:
        """Raises unless this reply is a connection error that a retry may mend."""
        error, _ = self.failed(reply)
        assert isinstance(error, ModelConnectionError), f"an answer that breaks off is no {error!r}"
        assert error.retryable, "an answer that breaks off may be asked for again"

    def _is(self, error: ModelError, failure: Failure) -> None:
        kind = next(kind for kind in type(error).__mro__ if kind.__module__ == ModelError.__module__)
        assert kind is failure.error, f"{failure!r:.200} is a {failure.error.__name__}, not {error!r}"
        assert error.retryable is failure.error.retryable, f"retryable is {error.retryable}"

    def _stalls(self, reply: Reply) -> None:
        error, _ = self.failed(reply, idle_timeout_seconds=0.2)
        assert isinstance(error, StreamIdleError), f"a stall is a StreamIdleError, not {error!r}"
        assert error.retryable

    def _outcomes(self, answer: Answer, replies: list[Reply]) -> list[ModelError]:
        """The errors that these replies give. Those that give none give the whole answer."""
        request = self.request(tools=(ADD,)) if answer.calls else self.request()

        async def scene(_: Server, model: Model) -> list[ModelError]:
            errors: list[ModelError] = []
            for reply in replies:
                try:
                    finish = whole(await collect(model, request))
                except ModelError as error:
                    errors.append(error)
                    continue
                cut = f"cut behind {reply.data[-80:]!r}"
                assert finish.message.text == answer.text, f"half an answer was taken for a whole one, {cut}"
                assert len(finish.message.calls) == len(answer.calls), f"a call was lost, {cut}"
                assert all(call.finished for call in finish.message.calls), cut
            return errors

        return self.play(scene, replies=replies)


async def _failure(model: Model, request: ModelRequest) -> tuple[ModelError, list[ModelEvent]]:
    events: list[ModelEvent] = []
    stream = model.stream(request)
    try:
        async for event in stream:
            events.append(event)  # noqa: PERF401 - those before the error count
    except ModelError as error:
        return error, events
    finally:
        await leave(stream)
    raise AssertionError(f"no error was raised, and the answer ended with {events[-1:]!r:.300}")
