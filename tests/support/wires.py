"""One conversation as the server of each wire format would stream it, with all that may make trouble elsewhere.

Whatever only the provider itself may see again holds its seal, a string that stands nowhere else.
"""

from __future__ import annotations

import base64
import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

from support import chat, claude, google, responses, rules
from support.loopback import Reply
from treadle import Agent, FilePart, ToolError, ToolOutput, tool
from treadle.providers import _MODELS, resolve

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.loopback import Loopback
    from treadle.model import Model

LONG_ID = f"call:{'é' * 30}/{'x' * 70}"
AGAIN = "call:1"  # used in two steps
SAID = ("Let me look.", "One page has it.", "I write it", "It is done.")
ASKED = "What broke last night?"
NEXT = "And before that?"
ANSWER = "Nothing."


def seal(prefix: str, number: int) -> str:
    """Something that only this provider understands: valid base64, since Google insists."""
    return base64.b64encode(f"/{prefix}/{number}/".encode()).decode()


class Wire(NamedTuple):
    """One wire format: its answers, what its servers refuse, and which of its seals must come back."""

    steps: Callable[[str], list[bytes]]
    answer: bytes
    check: Callable[[dict[str, Any], str, str], None]
    seals: Callable[[str], set[int]]


# The same four steps everywhere. First: thinking, text, two calls at once and one without arguments. Then a hosted call
# where there are any, and calls that give files and errors. Then a call that the output limit cuts. Then the answer.


def chat_steps(prefix: str) -> list[bytes]:
    def details(number: int, **more: Any) -> dict[str, Any]:
        item = {"type": "reasoning.encrypted", "data": seal(prefix, number), "format": "x-v1", "index": 0, **more}
        return chat.chunk({"reasoning_details": [item]})

    extra = {"extra_content": {"google": {"thought_signature": seal(prefix, 2)}}}
    return [
        chat.sse(
            chat.chunk({"reasoning_content": f"thought {seal(prefix, 0)}"}),
            details(1),
            chat.text(SAID[0]),
            chat.calls(chat.piece(0, LONG_ID, "look", '{"q": "a"}', **extra)),
            chat.calls(chat.piece(1, AGAIN, "look", '{"q": "ü"}')),
            chat.calls(chat.piece(2, "tool 1", "now", "")),
            chat.chunk(finish="tool_calls"),
            chat.usage(),
            chat.DONE,
        ),
        chat.sse(
            chat.text(" \n"),
            chat.text(SAID[1]),
            chat.calls(chat.piece(0, AGAIN, "draw", "null"), chat.piece(1, "r", "fail", "{}")),
            chat.chunk(finish="tool_calls"),
            chat.DONE,
        ),
        chat.sse(
            chat.text(SAID[2]),
            chat.calls(chat.piece(0, "cut", "look", '{"q": "unfini')),
            chat.chunk(finish="length"),
            chat.DONE,
        ),
        chat.sse(chat.chunk({"reasoning": f"more {seal(prefix, 3)}"}), details(4, type="reasoning.text", text="t"))
        + chat.sse(chat.text(SAID[3]), chat.chunk(finish="stop"), chat.DONE),
    ]


def chat_seals(prefix: str) -> set[int]:
    """`reasoning_details` and signatures of calls go back to whoever sent them, and stand for the plain thoughts."""
    return {1, 2, 4}


def anthropic_steps(prefix: str) -> list[bytes]:
    search = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
    page = {"type": "web_search_result", "url": "https://x", "title": "X", "encrypted_content": seal(prefix, 3)}
    found = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [page]}
    location = {"type": "web_search_result_location", "url": "https://x", "title": "X", "cited_text": "it"}
    cited = {"type": "citations_delta", "citation": {**location, "encrypted_index": seal(prefix, 4)}}
    redacted = {"type": "redacted_thinking", "data": seal(prefix, 5)}
    return [
        claude.answer(
            *claude.thinking("thought", signature=seal(prefix, 0)),
            *claude.text(SAID[0], index=1),
            *claude.call('{"q": "a"}', index=2, id=LONG_ID, name="look", caller={"type": "direct"}),
            *claude.call('{"q": ', '"ü"}', index=3, id=AGAIN, name="look"),
            *claude.call("", index=4, id="tool 1", name="now"),
            reason="tool_use",
        ),
        claude.answer(
            *claude.thinking(signature=seal(prefix, 2)),
            *claude.block(search, {"type": "input_json_delta", "partial_json": '{"query": "it"}'}, index=1),
            *claude.block(found, index=2),
            *claude.block({"type": "text", "text": ""}, {"type": "text_delta", "text": SAID[1]}, cited, index=3),
            *claude.call(index=4, id=AGAIN, name="draw"),
            *claude.call("{}", index=5, id="r", name="fail"),
            reason="tool_use",
        ),
        claude.answer(
            *claude.thinking("never signed", signature=""),
            *claude.text(SAID[2], index=1),
            *claude.call('{"q": "unfini', index=2, id="cut", name="look"),
            reason="max_tokens",
        ),
        claude.answer(
            *claude.block(redacted),
            *claude.text(" \n", index=1),
            *claude.text(SAID[3], index=2),
            *claude.thinking("at the end", signature=seal(prefix, 6), index=3),
        ),
    ]


def anthropic_seals(prefix: str) -> set[int]:
    return {0, 2, 3, 4, 5}  # thinking at the very end would be refused


def responses_steps(prefix: str) -> list[bytes]:
    def thought(number: int) -> dict[str, Any]:
        return responses.reasoning("thought", sealed=seal(prefix, number), id=f"rs_{prefix}_{number}")

    def body(*items: dict[str, Any], **more: Any) -> bytes:
        return chat.sse(
            *itertools.chain.from_iterable(
                (responses.added(index, item), responses.done(index, item)) for index, item in enumerate(items)
            ),
            responses.completed(*items, usage=responses.usage(), **more),
        )

    def called(arguments: str, call_id: str, name: str, number: int, **more: Any) -> dict[str, Any]:
        return responses.call(arguments, call_id, name, id=f"fc_{seal(prefix, number)}", **more)

    search = {"type": "web_search_call", "id": f"ws_{seal(prefix, 5)}", "status": "completed"}
    search["action"] = {"type": "search", "query": "it", "sources": [{"type": "url", "url": "https://x"}]}
    note = {"type": "url_citation", "url": "https://x", "title": "X", "start_index": 0, "end_index": 2}
    cited = {"type": "output_text", "text": SAID[1], "annotations": [note]}
    return [
        body(
            thought(0),
            responses.message(SAID[0], phase="commentary"),
            called('{"q": "a"}', LONG_ID[:64], "look", 1),
            called('{"q": "ü"}', AGAIN, "look", 2),
            called("", "tool 1", "now", 3),
        ),
        body(
            thought(4),
            search,
            responses.message(content=[cited]),
            called("{}", AGAIN, "draw", 6),
            called("{}", "r", "fail", 7),
        ),
        body(
            responses.message(SAID[2]),
            called('{"q": "unfini', "cut", "look", 9, status="incomplete"),
            status="incomplete",
            incomplete_details={"reason": "max_output_tokens"},
        ),
        body(
            {"type": "compaction", "id": "cmp_1", "encrypted_content": seal(prefix, 10)},
            thought(8),
            responses.message(" \n", SAID[3]),
        ),
    ]


def responses_seals(prefix: str) -> set[int]:
    return {0, 1, 2, 3, 4, 5, 6, 7, 8, 10}


def google_steps(prefix: str) -> list[bytes]:
    code = {"executableCode": {"language": "PYTHON", "code": f"print('{seal(prefix, 3)}')", "id": "c1"}}
    ran = {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": seal(prefix, 4), "id": "c1"}}
    return [
        google.sse(
            google.chunk(google.text("thought", thought=True)),
            google.chunk(google.text(SAID[0])),
            google.chunk(google.call("look", {"q": "a"}, seal(prefix, 0), id=LONG_ID)),
            google.chunk(google.call("look", {"q": "ü"}, id=AGAIN), google.call("now")),
            google.STOP,
        ),
        google.sse(
            google.chunk(code, ran),
            google.chunk(google.text(SAID[1], seal(prefix, 2))),
            google.chunk(google.call("draw", id=AGAIN, signature=seal(prefix, 1)), google.call("fail", {}, id="r")),
            google.STOP,
        ),
        google.sse(
            google.chunk(google.text(SAID[2])),
            google.chunk(google.call("look", {"q": "unfini"}, id="cut"), finish="MAX_TOKENS"),
        ),
        google.sse(
            google.chunk(google.text(SAID[3])),
            google.chunk(google.text("", seal(prefix, 5)), finish="STOP"),
        ),
    ]


def google_seals(prefix: str) -> set[int]:
    return {0, 1, 2, 3, 4, 5}


_CHAT_ANSWER = chat.sse(chat.text(ANSWER), chat.chunk(finish="stop"), chat.DONE)
_DONE = responses.message(ANSWER)
WIRES = {
    "openai_chat": Wire(
        chat_steps, _CHAT_ANSWER, lambda body, prefix, _: rules.assert_chat_takes(body, prefix), chat_seals
    ),
    "anthropic": Wire(
        anthropic_steps,
        claude.answer(*claude.text(ANSWER)),
        lambda body, *_: rules.assert_anthropic_takes(body),
        anthropic_seals,
    ),
    "openai": Wire(
        responses_steps,
        chat.sse(responses.done(0, _DONE), responses.completed(_DONE)),
        lambda body, *_: rules.assert_responses_takes(body),
        responses_seals,
    ),
    "google": Wire(
        google_steps,
        google.sse(google.chunk(google.text(ANSWER), finish="STOP")),
        lambda body, _, name: rules.assert_google_takes(body, modern="gemini-3" in name),
        google_seals,
    ),
}
WITHOUT_WIRE = {"offline", "local"}
WITHOUT_TOOLS = {"perplexity"}
_NAMES = {"anthropic": "claude-opus-4-6", "openai": "gpt-5", "google": "gemini-3-flash"}
_OWN_NAMES = {"snowflake": "claude-4-sonnet", "openai-chat": "gpt-5"}


class Row(NamedTuple):
    """A prefix that `resolve` knows, with a model of it. One that has no tools says only the last step."""

    prefix: str
    name: str
    wire: Wire

    def __str__(self) -> str:
        return f"{self.prefix}:{self.name}"

    @property
    def tools(self) -> bool:
        return self.prefix not in WITHOUT_TOOLS

    @property
    def steps(self) -> list[bytes]:
        return self.wire.steps(self.prefix)[0 if self.tools else -1 :]

    @property
    def seals(self) -> set[int]:
        """What must come back to it."""
        whole = b"".join(self.steps).decode()
        return {number for number in self.wire.seals(self.prefix) if seal(self.prefix, number) in whole}


def kin_seals(one: Row, other: Row) -> set[int]:
    """What goes from a place to another place of the same models: signed thinking is good in all of them."""
    return {0, 2, 5} if one.wire is other.wire is WIRES["anthropic"] else set()


def rows() -> list[Row]:
    """All prefixes that go over HTTP, straight from the table of `resolve`; and models that differ from the others."""
    found = []
    for prefix, (module, _) in _MODELS.items():
        if prefix not in WITHOUT_WIRE:
            room = module.partition(".")[0]
            found.append(Row(prefix, _OWN_NAMES.get(prefix) or _NAMES.get(room, "m"), WIRES[room]))
    return [
        *found,
        Row("google", "gemini-2.5-flash", WIRES["google"]),
        Row("openrouter", "anthropic/claude-sonnet-4.5", WIRES["openai_chat"]),
        Row("cerebras", "zai-glm-4.7", WIRES["openai_chat"]),
    ]


def model_of(row: Row, server: Loopback) -> Model:
    url = server.origin if row.wire is WIRES["google"] else server.url
    return resolve(str(row), base_url=url, api_key="k")


def reply(body: bytes) -> Reply:
    return Reply((body,))


@tool(effect="read")
def look(q: str) -> str:
    """Look something up."""
    return f"found {q}" if q == "a" else ""


@tool(effect="read")
def now() -> dict[str, Any]:
    """The time."""
    return {"$ref": "#/$defs/A", "$defs": {"A": {}}, "at": float("nan")}


@tool(effect="read")
def draw() -> ToolOutput:
    """Draw."""
    files = (
        FilePart("image/png", b"\x89PNG"),
        FilePart("application/pdf", b"%PDF-1.4", name="a.pdf"),
        FilePart("application/x-tar", b"tar", name="a.tar"),
    )
    return ToolOutput("drawn", files)


@tool(effect="read")
def fail() -> str:
    """Fail."""
    raise ToolError(" ")


def agent(model: Model, *, reverse: bool = False) -> Agent[Any, Any]:
    """An agent with the tools that the steps call, if its model has any; `reverse` names them the other way round."""
    tools = [] if model.provider in WITHOUT_TOOLS else [look, now, draw, fail]
    return Agent(model, instructions="Be short.", tools=tools[::-1] if reverse else tools, retry=None)
