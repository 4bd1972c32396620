"""What an answer says must be what the server said: text, reasoning, calls, stops, usage."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from treadle.events import ModelFinish, ReasoningDelta, TextDelta, ToolCallDelta, ToolFinish, ToolStart
from treadle.messages import ProviderPart, ReasoningPart, TextPart, ToolCallPart, ToolResultPart
from treadle.model import HostedMCP
from treadle.testing.conformance.answers import Answer
from treadle.testing.conformance.looking import only, whole
from treadle.testing.conformance.suite import ADD, LOOK, NOW, Suite
from treadle.usage import StopReason, Usage

if TYPE_CHECKING:
    from treadle.messages import AssistantMessage
    from treadle.testing.conformance.suite import Feature

SUM = ToolCallPart("call00001", "add", '{"a": 1, "b": 2}')
SEARCH = ToolCallPart("call00002", "look", '{"q": "größer 🌍"}')
TIME = ToolCallPart("call00003", "now", "")
THOUGHT = ReasoningPart("First I add.", "c2lnbmF0dXJlLTE=")
STOPS: tuple[tuple[StopReason, Feature], ...] = (
    (StopReason.MAX_TOKENS, "max_tokens"),
    (StopReason.REFUSAL, "refusal"),
    (StopReason.CONTEXT, "context"),
    (StopReason.OTHER, "other"),
)


class ContentTests(Suite):
    """The tests that need a model which can be told what to answer."""

    def test_text_is_the_text_of_the_message(self) -> None:
        self.needs("script")
        finish = self.finish(Answer(("It is ", "größer", " als 🌍.\n", "  Ende\u2028 ")))
        assert finish.message.text == "It is größer als 🌍.\n  Ende\u2028 "
        assert [type(part) for part in finish.message.content] == [TextPart], "neighbouring text is one part"
        assert finish.stop is finish.message.stop is StopReason.END

    def test_each_fragment_is_a_delta_of_its_own(self) -> None:
        self.needs("script", "streaming")
        fragments = tuple(f"word{number} " for number in range(8))
        events = self.ask(Answer(fragments))
        whole(events)
        assert len(only(events, TextDelta)) == len(fragments), "one delta for each fragment that the server sends"

    def test_a_long_answer_is_whole(self) -> None:
        self.needs("script")
        answer = Answer(tuple(f"Sentence {number} of a long answer. " for number in range(2_000)))
        assert self.finish(answer).message.text == answer.text

    def test_reasoning_is_a_part_of_its_own_and_no_text(self) -> None:
        self.needs("script", "reasoning")
        events = self.ask(Answer((THOUGHT, "It is 3.")), request=self.reasoning_request())
        finish = whole(events)
        told = "".join([event.text for event in only(events, ReasoningDelta)])
        assert told == THOUGHT.text, "reasoning is told while it comes in, and not as text"
        thoughts = [part.text for part in only(finish.message.content, ReasoningPart)]
        assert thoughts == [THOUGHT.text], "one block of reasoning is one part"
        assert finish.message.text == "It is 3."
        kinds = [type(part) for part in finish.message.content if not isinstance(part, ProviderPart)]
        assert kinds == [ReasoningPart, TextPart], "parts stand in the order in which they came"

    def test_a_call_is_whole_and_ends_the_answer_with_tool_calls(self) -> None:
        self.needs("script", "tools")
        events = self.ask(Answer(("Let me add.", SUM), StopReason.TOOL_CALLS), request=self.request(tools=(ADD,)))
        finish = whole(events)
        self.same_calls(finish.message, SUM)
        assert finish.stop is StopReason.TOOL_CALLS
        assert finish.message.text == "Let me add."
        assert only(events, ToolCallDelta), "a call is told while it comes in"

    def test_two_calls_stay_two_in_their_order(self) -> None:
        self.needs("script", "tools")
        answer = Answer((SUM, SEARCH), StopReason.TOOL_CALLS)
        self.same_calls(self.finish(answer, request=self.request(tools=(ADD, LOOK))).message, SUM, SEARCH)

    def test_two_calls_of_one_tool_stay_two(self) -> None:
        self.needs("script", "tools")
        again = ToolCallPart("call00004", "add", '{"a": 3, "b": 4}')
        answer = Answer((SUM, again), StopReason.TOOL_CALLS)
        self.same_calls(self.finish(answer, request=self.request(tools=(ADD,))).message, SUM, again)

    def test_a_call_without_arguments_is_a_whole_call(self) -> None:
        self.needs("script", "tools")
        answer = Answer((TIME,), StopReason.TOOL_CALLS)
        finish = self.finish(answer, request=self.request(tools=(NOW,)))
        (call,) = finish.message.calls
        assert call.finished, "a call without arguments is finished"
        assert json.loads(call.args.strip() or "{}") == {}

    def test_calls_count_whatever_the_stop_says(self) -> None:
        self.needs("script", "wire", "tools")
        finish = self.finish(Answer((SUM,), StopReason.END), request=self.request(tools=(ADD,)))
        assert finish.stop is StopReason.TOOL_CALLS, "an answer with calls wants them run"

    def test_a_call_that_the_output_limit_cut_is_not_finished(self) -> None:
        self.needs("script", "tools", "max_tokens", "cut_calls")
        cut = ToolCallPart("call00005", "look", '{"q": "half of', finished=False)
        finish = self.finish(Answer((SUM, cut), StopReason.MAX_TOKENS), request=self.request(tools=(ADD, LOOK)))
        assert finish.stop is StopReason.MAX_TOKENS
        assert [call.finished for call in finish.message.calls] == [True, False], "a call cut off is never run"

    @pytest.mark.parametrize(("stop", "feature"), STOPS, ids=[feature for _, feature in STOPS])
    def test_a_stop_is_told_by_its_name(self, stop: StopReason, feature: Feature) -> None:
        self.needs("script", feature)
        finish = self.finish(Answer(("Half of the ",), stop))
        assert finish.stop is stop, f"the server said {stop.value}, and the model {finish.stop.value}"
        assert finish.message.stop is stop, "the message says the same"
        assert finish.message.text == "Half of the ", "what came before the stop is kept"
        if self.has("wire"):
            assert finish.raw_stop, "the provider's own word for the stop is kept"

    def test_usage_is_what_was_reported(self) -> None:
        self.needs("script", "usage")
        assert self._usage(Usage(1_234, 56)) == Usage(1_234, 56)

    def test_cached_tokens_are_counted_once(self) -> None:
        self.needs("script", "usage", "cache_reads")
        told = Usage(100, 20, cache_read_tokens=900)
        assert self._usage(told) == told, "input_tokens leaves out what was read from the cache"

    def test_tokens_written_to_the_cache_are_counted_once(self) -> None:
        self.needs("script", "usage", "cache_writes")
        told = Usage(100, 20, cache_read_tokens=900, cache_write_tokens=300)
        assert self._usage(told) == told, "input_tokens leaves out what was read from and written to the cache"

    def test_reasoning_tokens_are_a_part_of_the_output(self) -> None:
        self.needs("script", "usage", "reasoning_tokens")
        told = Usage(100, 50, reasoning_tokens=30)
        assert self._usage(told) == told

    def test_usage_that_nobody_reported_is_unknown_and_not_zero(self) -> None:
        self.needs("script", "unknown_usage")
        assert self._usage(None) is None, "usage that nobody reported is None: zero would be a claim"

    def test_the_cost_is_the_providers_own_figure(self) -> None:
        self.needs("script", "usage", "cost")
        told = self._usage(Usage(10, 5, cost_usd=0.00125))
        assert told is not None
        assert told.cost_usd == pytest.approx(0.00125)

    @pytest.mark.parametrize("kind", ["hosted_mcp", "hosted_web_search"])
    def test_a_hosted_call_is_told_and_is_not_ours_to_answer(self, kind: str) -> None:
        self.needs("script", kind, "hosted_events")
        name, args = ("web_search", '{"query": "news"}') if kind == "hosted_web_search" else ("look", '{"q": "news"}')
        call = ToolCallPart("hosted001", name, args, hosted=True)
        result = ToolResultPart("hosted001", name, "https://example.org/news", hosted=True)
        wanted = {"hosted_mcp": (HostedMCP("docs", "https://example.org/mcp"),), "hosted_web_search": True}[kind]
        events = self.ask(Answer((call, result, "It is in the news.")), request=self.request(**{kind: wanted}))
        finish = whole(events)
        starts, ends = only(events, ToolStart), only(events, ToolFinish)
        assert len(starts) == len(ends) == 1, f"a hosted call is one ToolStart and one ToolFinish, not {starts} {ends}"
        assert starts[0].call_id == ends[0].call_id, "the result belongs to the call"
        end = ends[0]
        assert "example.org/news" in end.result.content
        assert not end.is_error
        assert finish.message.calls == (), "a hosted call is not ours to answer"
        assert finish.message.text == "It is in the news."
        assert finish.stop is StopReason.END

    def _usage(self, told: Usage | None) -> Usage | None:
        finish: ModelFinish = self.finish(Answer(("Hello.",), usage=told))
        return finish.usage

    def same_calls(self, message: AssistantMessage, *wanted: ToolCallPart) -> None:
        """Raises unless the calls are these, as exactly as the wire can carry them."""
        calls = message.calls
        assert [call.name for call in calls] == [call.name for call in wanted], "the calls stay apart and in order"
        if self.has("exact_arguments"):
            assert [call.args for call in calls] == [call.args for call in wanted], "arguments stay byte for byte"
        assert [json.loads(call.args) for call in calls] == [json.loads(call.args) for call in wanted]
        if self.has("call_ids"):
            assert [call.id for call in calls] == [call.id for call in wanted], "calls keep the ids they came with"
        assert all(call.finished for call in calls)
