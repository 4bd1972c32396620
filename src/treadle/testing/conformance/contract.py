"""What holds for every model, whatever it answers: the rules of the seam."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, get_args

import pytest

from treadle.agent import Agent
from treadle.errors import UnsupportedError
from treadle.messages import AssistantMessage, ModelRef, ToolCallPart, ToolMessage, ToolResultPart, UserMessage, encode
from treadle.model import Capabilities, Model
from treadle.testing.conformance.history import FOREIGN, ODD_TEXTS
from treadle.testing.conformance.looking import whole
from treadle.testing.conformance.suite import ADD, HELLO, Feature, Suite, close, collect, leave

if TYPE_CHECKING:
    from treadle.testing.conformance.server import Server


class ContractTests(Suite):
    """The tests that need nothing but a model."""

    def test_what_is_lacking_is_said_with_a_reason(self) -> None:
        unknown = set(self.lacks) - set(get_args(Feature))
        assert not unknown, f"the suite knows no feature {sorted(unknown)}"
        assert all(reason.strip() for reason in self.lacks.values()), "whatever is lacking has a reason"

    def test_it_is_a_model(self) -> None:
        async def scene(_: Server, model: Model) -> None:
            assert isinstance(model, Model), "a model has provider, name, capabilities and stream"
            assert isinstance(model.capabilities, Capabilities)
            for text in (model.provider, model.name):
                assert isinstance(text, str), "provider and name are texts"
                assert text, "provider and name are not empty"

        self.play(scene)

    def test_an_answer_is_deltas_and_then_exactly_one_finish(self) -> None:
        self.finish(HELLO)

    def test_the_request_stays_as_it_is(self) -> None:
        request = self.request("One.", "Two.")
        before = encode(request.messages)
        self.ask(HELLO, request=request)
        assert encode(request.messages) == before, "the model changed the request"

    def test_a_check_sends_nothing(self) -> None:
        async def scene(server: Server, model: Model) -> None:
            check = getattr(model, "check", None)
            if check is None:
                pytest.skip("the model has no check(): it is optional")
            assert check(self.request()) is None
            with contextlib.suppress(UnsupportedError):
                check(self.request(hosted_web_search=True, output_schema=ADD.input_schema, tools=(ADD,)))
            await server.settle()
            assert server.connections == 0, "check() used the network"

        self.play(scene)

    def test_making_a_model_sends_nothing(self) -> None:
        async def scene(server: Server, _: Model) -> None:
            await server.settle()
            assert server.connections == 0, "the model used the network before it was asked"

        self.play(scene)

    def test_a_reader_may_leave_early(self) -> None:
        async def scene(_: Server, model: Model) -> None:
            stream = aiter(model.stream(self.request()))
            await anext(stream)
            await leave(stream)
            whole(await collect(model, self.request()))

        self.play(scene, HELLO, HELLO)

    def test_a_cancelled_reader_is_cancelled_and_the_model_goes_on(self) -> None:
        async def scene(_: Server, model: Model) -> None:
            reading = asyncio.Event()

            async def read() -> None:
                stream = model.stream(self.request())
                try:
                    async for _ in stream:
                        reading.set()
                        await asyncio.Event().wait()
                finally:
                    await leave(stream)

            task = asyncio.ensure_future(read())
            await reading.wait()
            task.cancel()
            await asyncio.wait({task})
            assert task.cancelled(), "the cancellation was swallowed"
            whole(await collect(model, self.request()))

        self.play(scene, HELLO, HELLO)

    def test_one_model_serves_several_event_loops_one_after_the_other(self) -> None:
        """Where it has `aclose`, that is called at the end of each loop."""
        self.needs("several_loops")
        made: list[Model] = []
        port = 0

        async def scene(server: Server, model: Model) -> int:
            made.append(model)
            for _ in range(2):
                whole(await collect(made[0], self.request()))
            await close(made[0])
            return server.port

        for _ in range(3):
            port = self.play(scene, *[HELLO] * 6, port=port)

    def test_requests_may_run_side_by_side(self) -> None:
        async def scene(_: Server, model: Model) -> None:
            answers = await asyncio.gather(*[collect(model, self.request(f"Number {number}.")) for number in range(3)])
            for events in answers:
                whole(events)

        self.play(scene, *[HELLO] * 3)

    @pytest.mark.parametrize("text", ODD_TEXTS, ids=list(ODD_TEXTS))
    def test_odd_text_can_be_sent(self, text: str) -> None:
        request = self.request(f"Before {ODD_TEXTS[text]} after.", instructions=f"Be brief. {ODD_TEXTS[text]}")
        self.finish(HELLO, request=request)

    def test_a_conversation_can_be_sent(self) -> None:
        messages = (UserMessage("One."), AssistantMessage("Two."), UserMessage("Three."))
        self.finish(HELLO, request=self.request(messages=messages))

    def test_a_conversation_of_another_provider_can_be_sent(self) -> None:
        self.needs("tools")
        self.finish(HELLO, request=self.request(messages=(*FOREIGN, UserMessage("Go on.")), tools=(ADD,)))

    def test_results_of_all_sorts_can_be_sent(self) -> None:
        self.needs("tools")
        calls = [ToolCallPart(f"call0000{number}", "add", '{"a": 1, "b": 2}') for number in range(3)]
        cut = ToolCallPart("call00009", "add", '{"a": 1, "b', finished=False)
        results = [
            ToolResultPart("call00000", "add", "3"),
            ToolResultPart("call00001", "add", ""),
            ToolResultPart("call00002", "add", "The tool failed.", is_error=True),
            ToolResultPart("call00009", "add", "Not run: the call was cut off.", is_error=True),
        ]
        answer = AssistantMessage((*calls, cut), model=ModelRef("another", "model"))
        messages = (UserMessage("Add."), answer, ToolMessage(results), UserMessage("And now?"))
        self.finish(HELLO, request=self.request(messages=messages, tools=(ADD,)))

    def test_an_agent_runs_on_it(self) -> None:
        async def scene(_: Server, model: Model) -> None:
            result = await Agent(model, instructions="You are a friend.").run("Say hello.")
            assert result.steps, "a run has steps"
            assert result.steps[-1].model is not None, "an answer names its model"

        self.play(scene, HELLO)
