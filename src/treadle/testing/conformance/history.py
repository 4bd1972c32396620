"""What goes back to a model: its own answers whole, those of others without their secrets, and all of it stable."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, ClassVar

import msgspec
import pytest

from treadle.messages import (
    AssistantMessage,
    ModelRef,
    ProviderPart,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolMessage,
    ToolResultPart,
    UserMessage,
    decode_messages,
    encode,
)
from treadle.testing.conformance.answers import Answer
from treadle.testing.conformance.looking import carries, carries_value, nodes, whole, why_not_extended
from treadle.testing.conformance.suite import ADD, LOOK, Suite, collect, made
from treadle.usage import StopReason

if TYPE_CHECKING:
    from treadle.messages import Message
    from treadle.model import Model, ModelRequest
    from treadle.testing.conformance.server import Server

_ELSEWHERE = ModelRef("elsewhere", "foreign-model")
FOREIGN: tuple[Message, ...] = (
    UserMessage("Add one and two."),
    AssistantMessage(
        (
            ProviderPart("elsewhere", "sealed", {"data": "foreign-opaque"}),
            ReasoningPart("foreign thought", "foreign-signature"),
            TextPart(""),
            TextPart("Foreign words."),
            ToolCallPart(
                "id:with/odd|signs", "add", '{"a": 1, "b": 2}', "foreign-call-signature", raw={"x": "foreign-raw"}
            ),
            ToolCallPart(f"call_{'x' * 90}", "add", ' {"a":3,"b":4} '),
        ),
        StopReason.TOOL_CALLS,
        _ELSEWHERE,
    ),
    ToolMessage(
        (
            ToolResultPart("id:with/odd|signs", "add", "foreign result one"),
            ToolResultPart(f"call_{'x' * 90}", "add", "foreign result two"),
        )
    ),
    AssistantMessage((TextPart("It is three."),), model=_ELSEWHERE),
)
"""A conversation that was held with another provider."""

ODD_TEXTS = {
    "lone surrogates": "\ud83d \udc4b \ud800",
    "a pair of surrogates": "\ud83d\udc4b",
    "control characters": "\x00 \x07 \x1b[31m \x7f \x85",
    "line separators": "\r\n \u2028 \u2029 \ufeff",
    "quotes and braces": '"}]} \\" \\u0000 ${x} %s {{',
    "event stream": "data: [DONE]\n\nevent: error\ndata: {}\n\n",
    "beyond the basic plane": "👩‍👩‍👧‍👦 𝔘𝔫𝔦 🏳️‍🌈 é",
    "nothing but blanks": "   \n\t ",
}
"""Texts that break careless writers of requests."""

_SECRETS = ("foreign-opaque", "foreign-signature", "foreign-call-signature", "foreign-raw")
_SUM = ToolCallPart("call00001", "add", '{"a": 1, "b": 2}')
_THOUGHT = ReasoningPart("First I add.", "c2lnbmF0dXJlLTE=")


class HistoryTests(Suite):
    """The tests that look at what later requests hold."""

    opaque: ClassVar[tuple[ProviderPart, ...]] = ()

    def test_its_own_answer_goes_back_with_calls_and_results(self) -> None:
        self.needs("script", "wire", "tools")
        *_, body = self._bodies(Answer(("Let me add.", _SUM), StopReason.TOOL_CALLS))
        assert carries(body, "Let me add."), "the text of an answer goes back"
        assert carries_value(body, json.loads(_SUM.args)), "the arguments of a call go back"
        assert carries(body, "result number 1"), "the results go back"
        if self.has("call_ids"):
            assert nodes(body).count(_SUM.id) == 2, "a call and its result go back under the id that came"

    def test_two_calls_go_back_with_their_results(self) -> None:
        self.needs("script", "wire", "tools")
        second = ToolCallPart("call00002", "look", '{"q": "größer"}')
        *_, body = self._bodies(Answer((_SUM, second), StopReason.TOOL_CALLS))
        for number, call in enumerate((_SUM, second), 1):
            assert carries_value(body, json.loads(call.args))
            assert carries(body, f"result number {number}"), "the results go back"
            if self.has("call_ids"):
                assert nodes(body).count(call.id) == 2, "a call and its result go back under the id that came"

    def test_a_call_without_arguments_goes_back(self) -> None:
        self.needs("script", "wire", "tools")
        *_, body = self._bodies(Answer((ToolCallPart("call00003", "look", ""),), StopReason.TOOL_CALLS))
        assert carries(body, "result number 1")
        assert carries_value(body, {}), "a call without arguments goes back with an empty object"

    def test_the_failure_of_a_tool_goes_back(self) -> None:
        self.needs("script", "wire", "tools")
        *_, body = self._bodies(Answer((_SUM,), StopReason.TOOL_CALLS), failed=True)
        assert carries(body, "result number 1"), "what went wrong is told to the model"

    def test_reasoning_goes_back(self) -> None:
        self.needs("script", "wire", "tools", "reasoning", "reasoning_replay")
        *_, body = self._bodies(Answer((_THOUGHT, _SUM), StopReason.TOOL_CALLS))
        assert carries(body, _THOUGHT.text), "reasoning goes back"

    def test_signatures_go_back_byte_for_byte(self) -> None:
        self.needs("script", "wire", "tools", "reasoning", "signatures")
        *_, body = self._bodies(Answer((_THOUGHT, _SUM), StopReason.TOOL_CALLS))
        assert _THOUGHT.signature in nodes(body), "a signature goes back as it came"

    def test_opaque_parts_are_kept_and_go_back_as_they_came(self) -> None:
        self.needs("script", "wire", "tools", "opaque_parts")
        assert self.opaque, "say in `opaque` which parts there are, or lack 'opaque_parts'"
        message, _, body = self._exchange(Answer((*self.opaque, "Let me add.", _SUM), StopReason.TOOL_CALLS))
        for part in self.opaque:
            assert part in message.content, f"{part!r:.200} is not in the message"
            assert carries_value(body, part.data), f"{part!r:.200} does not go back"

    def test_what_another_provider_sealed_is_not_sent(self) -> None:
        self.needs("wire", "tools")
        request = self.request(messages=(*FOREIGN, UserMessage("Go on.")), tools=(ADD,))
        (body,) = self._sent(request)
        for words in ("Foreign words.", "foreign result one", "foreign result two", "It is three.", "Go on."):
            assert carries(body, words), f"{words!r} is lost"
        for secret in _SECRETS:
            assert not carries(body, secret), f"{secret!r} means nothing here and was sent all the same"

    @pytest.mark.parametrize("text", ODD_TEXTS, ids=list(ODD_TEXTS))
    def test_odd_text_arrives_as_valid_text(self, text: str) -> None:
        self.needs("wire")
        (body,) = self._sent(self.request(f"Before {ODD_TEXTS[text]} after."))
        mended = ODD_TEXTS[text].encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        assert carries(body, f"Before {mended} after."), "text arrives as it is, with lone surrogates replaced"

    def test_each_request_extends_the_last_one(self) -> None:
        self.needs("script", "wire", "tools")
        first, second, third, *_ = self._conversation()
        for before, after in ((first, second), (second, third)):
            why = why_not_extended(self.kept(before), self.kept(after))
            assert why is None, f"the rendered prefix is not stable: {why}"

    def test_equal_models_send_equal_requests(self) -> None:
        self.needs("script", "wire", "tools")
        *_, third, again = self._conversation()
        assert self.kept(third) == self.kept(again), "two equal models write the same conversation differently"

    # How these tests ask

    def _sent(self, *requests: ModelRequest) -> list[bytes]:
        async def scene(server: Server, model: Model) -> list[bytes]:
            for request in requests:
                whole(await collect(model, request))
            return [seen.body for seen in server.requests]

        return self.play(scene, *[Answer(("Hello.",))] * len(requests))

    def _bodies(self, answer: Answer, *, failed: bool = False) -> tuple[bytes, bytes]:
        return self._exchange(answer, failed=failed)[1:]

    def _exchange(self, answer: Answer, *, failed: bool = False) -> tuple[AssistantMessage, bytes, bytes]:
        """The answer, and the requests before and behind it."""
        asked = self._asking("Add.")

        async def scene(server: Server, model: Model) -> tuple[AssistantMessage, bytes, bytes]:
            message = whole(await collect(model, asked)).message
            whole(await collect(model, _going_on(asked, message, failed=failed)))
            one, two = [seen.body for seen in server.requests]
            return message, one, two

        return self.play(scene, answer, Answer(("It is 3.",)))

    def _conversation(self) -> tuple[bytes, bytes, bytes, bytes]:
        """Three requests that follow from each other, and the last of them from another model that is equal."""
        one = self._asking("Add.")
        called = Answer(("Let me add.", _SUM), StopReason.TOOL_CALLS)
        if self.capabilities.reasoning:
            called = msgspec.structs.replace(called, pieces=(_THOUGHT, *called.pieces))

        async def scene(server: Server, model: Model) -> tuple[bytes, bytes, bytes, bytes]:
            two = _going_on(one, whole(await collect(model, one)).message)
            said = whole(await collect(model, two)).message
            three = msgspec.structs.replace(two, messages=(*two.messages, said, UserMessage("And now?")))
            whole(await collect(model, three))
            afresh = msgspec.structs.replace(three, messages=decode_messages(encode(three.messages)))
            async with made(self, server) as equal:
                whole(await collect(equal, afresh))
            first, second, third, again = [seen.body for seen in server.requests]
            return first, second, third, again

        return self.play(scene, called, *[Answer(("It is 3.",))] * 3)

    def _asking(self, text: str) -> ModelRequest:
        ask = self.reasoning_request if self.capabilities.reasoning else self.request
        return ask(text, tools=(ADD, LOOK))


def _going_on(request: ModelRequest, message: AssistantMessage, *, failed: bool = False) -> ModelRequest:
    """The next request of a run: the answer, and a result for each of its calls."""
    results = [
        ToolResultPart(call.id, call.name, f"result number {number}", is_error=failed)
        for number, call in enumerate(message.calls, 1)
    ]
    return msgspec.structs.replace(request, messages=(*request.messages, message, ToolMessage(results)))
