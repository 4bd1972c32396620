"""What a request must hold, and when nothing may be sent at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from treadle.agent import Agent
from treadle.errors import ModelRequestsDenied, ToolError, UnsupportedError
from treadle.messages import FilePart, TextPart, ToolCallPart, UserMessage
from treadle.model import HostedMCP, ModelSettings, Reasoning
from treadle.testing.conformance.answers import Answer, TokenCount
from treadle.testing.conformance.looking import carries, nodes, whole
from treadle.testing.conformance.suite import ADD, HELLO, Suite, collect
from treadle.tools import tool
from treadle.usage import StopReason

if TYPE_CHECKING:
    from treadle.model import Model, ModelRequest
    from treadle.testing.conformance.server import Seen, Server

_PICTURE = FilePart(
    "image/png",
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
)
_CALL = ToolCallPart("call00001", "add", '{"a": 1, "b": 2}')


class SendingTests(Suite):
    """The tests of what reaches the server, and of what must not."""

    def test_instructions_and_words_reach_the_server(self) -> None:
        self.needs("wire")
        body = self.sent(self.request("The words of the user.", instructions="Speak like a pirate.")).body
        assert carries(body, "The words of the user."), "what the user says is lost"
        assert carries(body, "Speak like a pirate."), "the instructions are lost"

    def test_tools_reach_the_server_with_every_request(self) -> None:
        self.needs("wire", "tools")
        body = self.sent(self.request(tools=(ADD,))).body
        assert "add" in nodes(body), "the name of a tool"
        assert carries(body, ADD.description), "its description"
        assert any(isinstance(node, dict) and {"a", "b"} <= node.keys() for node in nodes(body)), "its schema"

    def test_the_key_travels_outside_of_the_body(self) -> None:
        self.needs("wire")

        async def scene(server: Server, model: Model) -> None:
            whole(await collect(model, self.request()))
            (seen,) = server.requests
            assert server.api_key.encode() not in seen.body, "the key is in the body"
            assert server.api_key not in repr(model), "the key shows in repr(model)"

        self.play(scene, HELLO)

    def test_extra_body_goes_untouched(self) -> None:
        self.needs("wire", "extra_body")
        settings = ModelSettings(extra_body={"conformance_field": {"deep": [1, "two", None]}})
        body = self.sent(self.request(settings=settings)).body
        assert {"deep": [1, "two", None]} in nodes(body), "extra_body is lost"

    def test_extra_headers_go_untouched(self) -> None:
        self.needs("wire", "extra_headers")
        settings = ModelSettings(extra_headers={"X-Conformance": "yes, really"})
        headers = self.sent(self.request(settings=settings)).headers
        assert headers.get("x-conformance") == "yes, really", "extra_headers are lost"

    def test_the_effort_reaches_the_server(self) -> None:
        self.needs("wire", "effort")
        assert "low" in nodes(self.sent(self.request(reasoning=Reasoning(effort="low"))).body), "the effort is lost"

    def test_the_reasoning_budget_reaches_the_server(self) -> None:
        least = self.needs("wire", "min_reasoning_budget").min_reasoning_budget
        budget = max(2_345, least or 0)
        body = self.sent(self.request(reasoning=Reasoning(budget_tokens=budget))).body
        assert budget in nodes(body), "the budget is lost"

    def test_the_output_limit_reaches_the_server(self) -> None:
        self.needs("wire")
        assert 1_234 in nodes(self.sent(self.request(max_output_tokens=1_234)).body), "the limit is lost"

    def test_an_output_schema_reaches_the_server(self) -> None:
        self.needs("wire", "output_schema")
        schema = {
            "type": "object",
            "properties": {"verdict": {"type": "string"}},
            "required": ["verdict"],
            "additionalProperties": False,
        }
        body = self.sent(self.request(output_schema=schema)).body
        assert any(isinstance(node, dict) and "verdict" in node for node in nodes(body)), "the schema is lost"

    def test_a_file_reaches_the_server(self) -> None:
        self.needs("wire", "files")
        body = self.sent(self._with_picture()).body
        assert carries(body, _PICTURE.data or ""), "the file is lost"

    def test_a_file_that_cannot_be_carried_is_refused_and_not_dropped(self) -> None:
        if self.needs("wire").files:
            pytest.skip("Capabilities(files=True)")

        async def scene(server: Server, model: Model) -> None:
            with pytest.raises(UnsupportedError):
                await collect(model, self._with_picture())
            await server.settle()
            assert server.connections == 0, "what is refused is not sent"

        self.play(scene, HELLO)

    def test_a_hosted_server_is_named_with_its_token(self) -> None:
        self.needs("wire", "hosted_mcp")
        server = HostedMCP("docs", "https://example.org/mcp", token="its-own-token", allowed_tools=("look",))  # noqa: S106
        body = self.sent(self.request(hosted_mcp=(server,))).body
        for text in ("docs", server.url, "its-own-token", "look"):
            assert text.encode() in body, f"{text} is lost"

    def test_a_hosted_search_is_asked_for_where_it_is_wanted(self) -> None:
        self.needs("wire", "hosted_web_search")
        plain = self.sent(self.request()).body
        wanted = self.sent(self.request(hosted_web_search=True)).body
        assert self.kept(plain) != self.kept(wanted), "nothing asks for the search"

    def test_tokens_are_counted_by_the_provider(self) -> None:
        self.needs("wire", "token_counting")

        async def scene(_: Server, model: Model) -> None:
            assert await model.count_tokens(self.request(tools=(ADD,))) == 42  # type: ignore[attr-defined]

        self.play(scene, TokenCount(42))

    def test_the_kill_switch_lets_no_byte_out(self) -> None:
        counts = self.needs("wire").token_counting

        async def scene(server: Server, model: Model) -> None:
            with pytest.raises(ModelRequestsDenied):
                await collect(model, self.request())
            if counts:
                with pytest.raises(ModelRequestsDenied):
                    await model.count_tokens(self.request())  # type: ignore[attr-defined]
            await server.settle()
            assert server.connections == 0, "TREADLE_MODEL_REQUESTS=deny is set, and the network was used"

        self.play(scene, HELLO, denied=True)

    def test_an_agent_goes_round_with_a_tool(self) -> None:
        self.needs("script", "tools")
        added: list[int] = []

        @tool(effect="read")
        def add(a: int, b: int) -> int:
            """Add two numbers."""
            added.append(a + b)
            return a + b

        async def scene(server: Server, model: Model) -> None:
            result = await Agent(model, tools=[add]).run("What is 1 + 2?")
            assert added == [3], "the tool ran once, with the arguments of the call"
            assert result.text == "It is 3."
            assert [len(step.calls) for step in result.steps] == [1, 0]
            if self.has("wire"):
                assert len(server.requests) == 2, "one request for each step"

        self.play(scene, Answer((_CALL,), StopReason.TOOL_CALLS), Answer(("It is 3.",)))

    def test_a_failing_tool_is_told_to_the_model(self) -> None:
        self.needs("script", "tools")

        @tool(effect="read")
        def add(a: int, b: int) -> int:
            """Add two numbers."""
            raise ToolError(f"no numbers today, not {a} and not {b}")

        async def scene(server: Server, model: Model) -> None:
            result = await Agent(model, tools=[add]).run("What is 1 + 2?")
            assert result.text == "I cannot add."
            assert [one.is_error for one in result.steps[0].results] == [True]
            if self.has("wire"):
                assert carries(server.requests[1].body, "no numbers today"), "the failure goes back"

        self.play(scene, Answer((_CALL,), StopReason.TOOL_CALLS), Answer(("I cannot add.",)))

    def sent(self, request: ModelRequest) -> Seen:
        """The one request that is sent for this one."""

        async def scene(server: Server, model: Model) -> Seen:
            whole(await collect(model, request))
            (seen,) = server.requests
            return seen

        return self.play(scene, HELLO)

    def _with_picture(self) -> ModelRequest:
        return self.request(messages=(UserMessage((TextPart("What is this?"), _PICTURE)),))
