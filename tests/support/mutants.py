"""Models that each break one rule, with the test of the conformance suite that must find it and what it says."""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
import uuid
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import httpx2
import msgspec

from support.lines import LinesModel, Reader
from treadle import (
    Capabilities,
    InvalidRequestError,
    ModelFinish,
    OverloadedError,
    ReasoningPart,
    StopReason,
    TextDelta,
    TextPart,
    ToolCallPart,
    ToolMessage,
    Usage,
)
from treadle.testing.conformance import Answer
from treadle.testing.conformance.answers import REFUSALS, REFUSALS_IN_STREAM

if TYPE_CHECKING:
    from collections.abc import Callable


class Mutant(NamedTuple):
    """A model, the test that must fail for it, that test's arguments, and words of the failure."""

    model: type[LinesModel]
    test: str
    arguments: tuple[Any, ...]
    says: str

    def __str__(self) -> str:
        return f"{self.model.__name__}-{self.test}"


MUTANTS: list[Mutant] = []
FINISH = "an_answer_is_deltas_and_then_exactly_one_finish"
SPLIT = "an_answer_is_the_same_in_whatever_pieces_it_comes"
REFUSED, REFUSED_IN_STREAM = "a_refusal_is_an_error_of_its_kind", "an_error_inside_the_stream_is_an_error_of_its_kind"
LONG = Answer(("One ", "two ", "three ", "four."))
RATE_LIMIT = next(failure for failure in REFUSALS if failure.status == 429)


def caught_by(test: str, *arguments: Any, says: str) -> Callable[[type[Any]], type[Any]]:
    """Adds a model, or a reader of its answers, to the list."""

    def add(kind: type[Any]) -> type[Any]:
        model = kind
        if issubclass(kind, Reader):
            model = type(kind.__name__, (LinesModel,), {"reader": lambda _: kind()})
        MUTANTS.append(Mutant(model, f"test_{test}", arguments, says))
        return kind

    return add


# The seam


@caught_by(FINISH, says="exactly one ModelFinish, and this one has 0")
class NeverFinishes(LinesModel):
    async def stream(self, request, /):
        async for event in super().stream(request):
            if not isinstance(event, ModelFinish):
                yield event


@caught_by(FINISH, says="exactly one ModelFinish, and this one has 2")
class FinishesTwice(LinesModel):
    async def stream(self, request, /):
        async for event in super().stream(request):
            yield event
        yield event


@caught_by(FINISH, says="nothing follows the ModelFinish")
class GoesOnAfterTheFinish(LinesModel):
    async def stream(self, request, /):
        async for event in super().stream(request):
            yield event
        yield TextDelta("")


@caught_by(FINISH, says="the text deltas joined are the text")
class TellsOtherTextThanItGives(Reader):
    def finish(self):
        finish = super().finish()
        message = msgspec.structs.replace(finish.message, content=(TextPart(finish.message.text.strip("H")),))
        return msgspec.structs.replace(finish, message=message)


@caught_by("making_a_model_sends_nothing", says="used the network before it was asked")
class ConnectsAtOnce(LinesModel):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        place = urlsplit(self._url)
        socket.create_connection((place.hostname, place.port)).close()


@caught_by("a_check_sends_nothing", says="used the network")
class ChecksByTrying(LinesModel):
    def check(self, request, /):
        place = urlsplit(self._url)
        socket.create_connection((place.hostname, place.port)).close()


@caught_by("one_model_serves_several_event_loops_one_after_the_other", says="Event loop is closed")
class BoundToItsFirstLoop(LinesModel):
    async def aclose(self):
        pass

    def client(self):
        self._one = getattr(self, "_one", None) or super().client()
        return self._one


@caught_by(FINISH, says="left a task behind")
class LeavesATask(LinesModel):
    async def stream(self, request, /):
        self._task = asyncio.ensure_future(asyncio.Event().wait())
        async for event in super().stream(request):
            yield event


@caught_by("a_cancelled_reader_is_cancelled_and_the_model_goes_on", says="left a task behind|left behind")
class PumpsInATaskOfItsOwn(LinesModel):
    async def stream(self, request, /):
        queue = asyncio.Queue()

        async def pump():
            async for event in LinesModel.stream(self, request):
                await queue.put(event)
            await asyncio.Event().wait()

        self._task = asyncio.ensure_future(pump())
        while True:
            event = await queue.get()
            yield event
            if isinstance(event, ModelFinish):
                self._task.cancel()
                return


# Answers


@caught_by("two_calls_stay_two_in_their_order", says="the calls stay apart")
@caught_by("two_calls_of_one_tool_stay_two", says="the calls stay apart")
class MergesCalls(Reader):
    def read(self, line):
        return iter(()) if "call" in line and self.calls else super().read(line)


@caught_by("a_call_is_whole_and_ends_the_answer_with_tool_calls", says="keep the ids they came with")
class InventsIds(Reader):
    def read(self, line):
        return super().read({**line, "call": "call_0"} if "call" in line else line)


@caught_by("two_calls_stay_two_in_their_order", says="two calls of one answer have the same id")
class GivesAllCallsOneId(InventsIds):
    pass


@caught_by("a_call_is_whole_and_ends_the_answer_with_tool_calls", says="arguments stay byte for byte")
class RewritesArguments(Reader):
    def add_args(self, args):
        return super().add_args(args.replace(": ", ":"))


@caught_by("a_call_that_the_output_limit_cut_is_not_finished", says="a call cut off is never run")
class TakesCutCallsForWhole(Reader):
    def finish(self):
        for place in self.calls:
            self.parts[place] = msgspec.structs.replace(self.parts[place], finished=True)
        return super().finish()


@caught_by("calls_count_whatever_the_stop_says", says="wants them run")
class BelievesTheStopWord(Reader):
    def finish(self):
        finish = super().finish()
        return msgspec.structs.replace(finish, stop=self.stop[0])


@caught_by("reasoning_is_a_part_of_its_own_and_no_text", says="and not as text")
class ThinksAloud(Reader):
    def read(self, line):
        return super().read({"text": line["thought"]} if "thought" in line else {} if "signature" in line else line)


@caught_by(
    "a_stop_is_told_by_its_name",
    StopReason.MAX_TOKENS,
    "max_tokens",
    says="the server said max_tokens, and the model end",
)
@caught_by(
    "a_stop_is_told_by_its_name", StopReason.REFUSAL, "refusal", says="the server said refusal, and the model end"
)
@caught_by("a_stop_is_told_by_its_name", StopReason.OTHER, "other", says="the server said other, and the model end")
class AlwaysEndsWell(Reader):
    def read(self, line):
        return super().read({"stop": "end"} if "stop" in line else line)


@caught_by("usage_that_nobody_reported_is_unknown_and_not_zero", says="zero would be a claim")
class TakesUnknownForZero(Reader):
    def finish(self):
        self.usage = self.usage or Usage()
        return super().finish()


@caught_by("cached_tokens_are_counted_once", says="leaves out what was read from the cache")
@caught_by("tokens_written_to_the_cache_are_counted_once", says="leaves out what was read from and written")
class CountsCachedTokensTwice(Reader):
    def finish(self):
        usage = self.usage
        inclusive = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
        self.usage = msgspec.structs.replace(usage, input_tokens=inclusive)
        return super().finish()


@caught_by("a_hosted_call_is_told_and_is_not_ours_to_answer", "hosted_mcp", says="one ToolStart and one ToolFinish")
class WantsHostedCallsRun(Reader):
    def take_hosted(self, call, content):
        self.parts.append(ToolCallPart(call.id, call.name, call.args))
        return iter(())


# History


@caught_by("the_failure_of_a_tool_goes_back", says="what went wrong is told")
@caught_by("a_failing_tool_is_told_to_the_model", says="the failure goes back")
class HidesFailures(LinesModel):
    def written(self, message):
        for item in super().written(message):
            yield {**item, "content": ""} if item.get("failed") else item


@caught_by("reasoning_goes_back", says="reasoning goes back")
@caught_by("signatures_go_back_byte_for_byte", says="a signature goes back as it came")
class ForgetsItsThoughts(LinesModel):
    def written(self, message):
        return (item for item in super().written(message) if "thought" not in item)


@caught_by("opaque_parts_are_kept_and_go_back_as_they_came", says="does not go back")
class ForgetsOpaqueParts(LinesModel):
    def written(self, message):
        return (item for item in super().written(message) if "sealed" not in item)


@caught_by("what_another_provider_sealed_is_not_sent", says="means nothing here and was sent")
class SendsForeignSignatures(LinesModel):
    def written(self, message):
        yield from super().written(message)
        thoughts = [] if isinstance(message, ToolMessage) else message.content
        yield from (
            {"thought": part.text, "signature": part.signature} for part in thoughts if type(part) is ReasoningPart
        )


@caught_by("a_call_without_arguments_goes_back", says="with an empty object")
class SendsArgumentsAsTheyCame(LinesModel):
    def written(self, message):
        for item in super().written(message):
            yield {**item, "args": ""} if item.get("args") == "{}" else item


@caught_by("each_request_extends_the_last_one", says="the rendered prefix is not stable")
class RewritesOldMessages(LinesModel):
    def body(self, request):
        body = json.loads(super().body(request))
        for item in body["say"][:-1]:
            item.pop("content", None)
        return json.dumps(body).encode()


@caught_by("each_request_extends_the_last_one", says="the rendered prefix is not stable")
class NumbersItsRequests(LinesModel):
    numbers = itertools.count()

    def body(self, request):
        return json.dumps({"number": next(self.numbers), **json.loads(super().body(request))}).encode()


@caught_by("equal_models_send_equal_requests", says="two equal models write the same conversation differently")
class NamesItself(LinesModel):
    def body(self, request):
        self._own = getattr(self, "_own", None) or uuid.uuid4().hex
        return json.dumps({**json.loads(super().body(request)), "user": self._own}).encode()


@caught_by("odd_text_arrives_as_valid_text", "lone surrogates", says="not valid UTF-8")
class SendsSurrogates(LinesModel):
    def body(self, request):
        return json.dumps(json.loads(super().body(request)), ensure_ascii=False).encode("utf-8", "surrogatepass")

    def written(self, message):
        yield {"user": "".join(part.text for part in message.content)}


@caught_by("odd_text_can_be_sent", "lone surrogates", says="surrogates not allowed")
class ChokesOnSurrogates(LinesModel):
    def body(self, request):
        "".join(part.text for message in request.messages for part in message.content).encode()
        return super().body(request)


@caught_by("odd_text_arrives_as_valid_text", "control characters", says="text arrives as it is")
class CleansText(LinesModel):
    def body(self, request):
        return super().body(request).replace(b"\\u0007", b"")


# What is sent


@caught_by("the_kill_switch_lets_no_byte_out", says="DID NOT RAISE")
class IgnoresTheKillSwitch(LinesModel):
    def check_allowed(self):
        pass


@caught_by("the_kill_switch_lets_no_byte_out", says="the network was used")
class AsksTheKillSwitchTooLate(LinesModel):
    def client(self):
        place = urlsplit(self._url)
        socket.create_connection((place.hostname, place.port)).close()
        return super().client()

    def check_allowed(self):
        self.client()
        super().check_allowed()


@caught_by("a_file_that_cannot_be_carried_is_refused_and_not_dropped", says="DID NOT RAISE")
class DropsFiles(LinesModel):
    capabilities = Capabilities(files=False)

    def written(self, message):
        return (item for item in super().written(message) if "file" not in item)


@caught_by("a_file_reaches_the_server", says="the file is lost")
class PromisesFilesAndDropsThem(DropsFiles):
    capabilities = Capabilities(files=True)


@caught_by("extra_body_goes_untouched", says="extra_body is lost")
@caught_by("extra_headers_go_untouched", says="extra_headers are lost")
@caught_by("the_output_limit_reaches_the_server", says="the limit is lost")
class DropsSettings(LinesModel):
    def body(self, request):
        return super().body(msgspec.structs.replace(request, settings=None, max_output_tokens=7))

    def open(self, path, request):
        return super().open(path, msgspec.structs.replace(request, settings=None))


# What goes wrong


@caught_by(REFUSED, RATE_LIMIT, says="is a RateLimitError, not InvalidRequestError")
class TakesEveryRefusalForOurFault(LinesModel):
    def error(self, kind, text, **more):
        return super().error(InvalidRequestError if kind.__name__ == "RateLimitError" else kind, text, **more)


@caught_by(REFUSED, RATE_LIMIT, says="the key shows in the error")
class ShowsTheKey(LinesModel):
    def error(self, kind, text, **more):
        return super().error(kind, f"{text} ({self._key})", **more)


@caught_by(REFUSED, RATE_LIMIT, says="an error is one line")
class TalksTooMuch(LinesModel):
    def error(self, kind, text, **more):
        return super().error(kind, f"{text}\nand more", **more)


@caught_by(REFUSED, RATE_LIMIT, says="a model asks once")
class RetriesByItself(LinesModel):
    async def stream(self, request, /):
        for _ in range(2):
            async with self.open("answer", request) as response:
                await response.aread()
        async for event in super().stream(request):
            yield event


@caught_by("the_time_to_come_back_is_carried", says="carried in seconds")
class ForgetsWhenToComeBack(LinesModel):
    def error(self, kind, text, **more):
        return super().error(kind, text, **{**more, "retry_after_seconds": None})


@caught_by(REFUSED_IN_STREAM, REFUSALS_IN_STREAM[0], says="no error was raised")
class OverlooksErrorsInTheStream(Reader):
    def read(self, line):
        return super().read({"stop": "end"} if "kind" in line else line)


@caught_by("an_empty_answer_is_a_broken_one", says="no error was raised")
@caught_by("a_body_cut_anywhere_is_no_end", LONG, says="half an answer was taken for a whole one")
class TakesAnyEndForTheEnd(Reader):
    def finish(self):
        self.stop = self.stop or (StopReason.END, "end")
        return super().finish()


@caught_by("a_connection_that_breaks_is_a_connection_error", "close", says="peer closed connection")
class LetsForeignErrorsOut(LinesModel):
    def connection_error(self, error):
        return error


@caught_by("a_connection_that_breaks_is_a_connection_error", "reset", says="no OverloadedError")
class TakesABreakForTheServersFault(LinesModel):
    def connection_error(self, error):
        return self.error(OverloadedError, "it broke")


@caught_by("a_server_that_stalls_is_an_idle_error", says="nothing happened for")
@caught_by("a_server_that_never_answers_is_an_idle_error", says="nothing happened for")
class WaitsForever(LinesModel):
    def __init__(self, url, key, idle_timeout_seconds):
        super().__init__(url, key, None)


@caught_by("a_slow_answer_may_take_longer_than_a_silence_may", says="too slow")
class HurriesTheWholeAnswer(LinesModel):
    async def stream(self, request, /):
        end = asyncio.get_running_loop().time() + self._idle
        async for event in super().stream(request):
            if asyncio.get_running_loop().time() > end:
                raise self.error(OverloadedError, "too slow")
            yield event


# Streams


@caught_by(SPLIT, (1,), says="change nothing")
@caught_by(SPLIT, (3,), says="change nothing")
class DropsSplitCharacters(LinesModel):
    async def lines(self, response):
        rest = ""
        async for data in response.aiter_raw():
            *whole, rest = (rest + data.decode("utf-8", "ignore")).split("\n")
            for line in whole:
                yield json.loads(line)


@caught_by(SPLIT, (7,), says="Unterminated string")
class BelievesInWholeLines(LinesModel):
    async def lines(self, response):
        async for data in response.aiter_raw():
            for line in data.splitlines():
                yield json.loads(line)


@caught_by(SPLIT, (1,), says="Unterminated string")
class SplitsAtEveryLineSeparator(LinesModel):
    async def lines(self, response):
        async for line in response.aiter_lines():
            yield json.loads(line)


@caught_by("text_is_told_before_the_answer_is_whole", says="nothing happened for")
class ReadsAllBeforeItTells(LinesModel):
    async def stream(self, request, /):
        for event in [event async for event in super().stream(request)]:
            yield event


@caught_by("leaving_early_closes_the_connection", says="nothing happened for")
class LeavesConnectionsOpen(LinesModel):
    async def close(self, response):
        pass

    async def lines(self, response):
        self._held = super().lines(response)  # else the garbage collector would close it
        async for line in self._held:
            yield line


@caught_by("connections_do_not_pile_up", says="nothing happened for")
class OpensAClientForEachRequest(LinesModel):
    def client(self):
        self._all = [*getattr(self, "_all", []), httpx2.AsyncClient(trust_env=False)]
        return self._all[-1]


@caught_by("a_cancel_in_the_middle_closes_the_connection", says="a cancelled request is cancelled")
@caught_by("a_cancel_before_the_answer_closes_the_connection", says="a cancelled request is cancelled")
class SwallowsCancels(LinesModel):
    async def stream(self, request, /):
        try:
            async for event in super().stream(request):
                yield event
        except asyncio.CancelledError:
            return


@caught_by("many_streams_at_once_stay_apart", says="the text deltas joined")
class SharesOneReader(LinesModel):
    def reader(self):
        self._reader = getattr(self, "_reader", None) or Reader()
        return self._reader


@caught_by("many_streams_at_once_stay_apart", says="nothing happened for")
class AsksOneAfterTheOther(LinesModel):
    async def stream(self, request, /):
        self._lock = getattr(self, "_lock", None) or asyncio.Lock()
        async with self._lock:
            async for event in super().stream(request):
                yield event
