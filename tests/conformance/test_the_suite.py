"""The suite itself: it finds every broken rule, skips only with a reason, and runs as a stranger's would."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import warnings
from typing import TYPE_CHECKING, ClassVar

import pytest

from support.lines import LinesModel, lines_wire
from support.mutants import MUTANTS, Mutant
from treadle.messages import ProviderPart
from treadle.testing.conformance import ModelConformance, Reply, Server, Spoken
from treadle.testing.conformance.looking import why_not_extended

if TYPE_CHECKING:
    from collections.abc import Iterator

pytest_plugins = ["pytester"]


class Lines(ModelConformance):
    kind: ClassVar[type[LinesModel]] = LinesModel
    lacks: ClassVar = {"closed_generators": "httpx2 leaves its own to the garbage collector"}
    opaque: ClassVar = (ProviderPart("lines", "redacted", "sealed words"),)
    streams = 20

    def model(self, server: Server) -> LinesModel:
        return self.kind(server.url, server.api_key, server.idle_timeout_seconds)

    def wire(self, spoken: Spoken) -> Reply:
        return lines_wire(spoken)


@pytest.fixture
def careless() -> Iterator[None]:
    """What broken models leave behind is thrown away unseen."""
    hook = sys.unraisablehook
    sys.unraisablehook = lambda _: None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield
        gc.collect()
    sys.unraisablehook = hook


@pytest.mark.usefixtures("careless")
@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_a_model_that_breaks_a_rule_is_found_out(mutant: Mutant):
    hangs = "nothing happened" in mutant.says
    suite = type("Suite", (Lines,), {"kind": mutant.model, "seconds": 1.0 if hangs else Lines.seconds})()
    with pytest.raises((Exception, pytest.fail.Exception), match=mutant.says) as raised:
        getattr(suite, mutant.test)(*mutant.arguments)
    raised.value.__traceback__ = raised.value.__cause__ = raised.value.__context__ = None


def test_generators_left_to_the_garbage_collector_are_found():
    suite = type("Suite", (Lines,), {"lacks": {}})()
    with pytest.raises(AssertionError, match=r"an async generator that nobody closed: LinesModel\.lines"):
        suite.test_a_reader_may_leave_early()


def test_errors_that_nobody_saw_are_found():
    class Careless(LinesModel):
        async def stream(self, request, /):
            async def fail():
                raise ValueError("nobody sees this")

            _ = asyncio.ensure_future(fail())  # noqa: RUF006 - that is what is wrong with it
            async for event in super().stream(request):
                yield event

    suite = type("Suite", (Lines,), {"kind": Careless})()
    with pytest.raises(AssertionError, match="left behind: nobody sees this"):
        suite.test_an_answer_is_deltas_and_then_exactly_one_finish()


async def test_the_server_takes_requests_in_chunks_one_after_the_other():
    async with Server(replies=[Reply((b"one",)), Reply((b"two",), 404, headers={"x-more": "yes"})]) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        for size in (b"5", b"5;name=value"):
            writer.write(b"POST /here HTTP/1.1\r\nX-Case: Mixed\r\nTransfer-Encoding: chunked\r\n\r\n")
            writer.write(size + b"\r\nhello\r\n1\r\n!\r\n0\r\n\r\n")
        answers = await asyncio.wait_for(reader.readuntil(b"3\r\ntwo\r\n0\r\n\r\n"), 10)
        writer.close()
        await writer.wait_closed()
    assert [(seen.method, seen.path, seen.body) for seen in server.requests] == [("POST", "/here", b"hello!")] * 2
    assert server.requests[0].headers["x-case"] == "Mixed"
    assert answers.startswith(b"HTTP/1.1 200 ")
    assert b"HTTP/1.1 404 " in answers
    assert b"x-more: yes\r\n" in answers
    assert server.connections == 1


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (b'{"a":[1,2],"b":1}', b'{"a":[1,2,3],"b":1}', None),
        (b'{"a":[{"c":[1]}]}', b'{"a":[{"c":[1,2]},3]}', None),
        (b'{"a":[{"c":[1]},2]}', b'{"a":[{"c":[1,2]},2]}', "a[0] was"),
        (b'{"a":[1,2]}', b'{"a":[1]}', "had 2 items"),
        (b'{"a":[1,2]}', b'{"a":[1, 3]}', "a[1] was"),
        (b'{"a":1,"b":2}', b'{"b":2,"a":1}', "the keys of the body"),
        (b'{"a":1}', b'{"a":1,"b":2}', "the keys of the body"),
        (b'{"a":"x"}', b'{"a":"xy"}', ".a was"),
        (b'{"a":"\\u00e9"}', '{"a":"é"}'.encode(), ".a was"),
    ],
)
def test_a_request_extends_another_only_at_the_ends_of_its_lists(before: bytes, after: bytes, why: str | None):
    found = why_not_extended(before, after)
    assert found is None if why is None else why in (found or "")


# A project of somebody else's

PROJECT = """
from treadle import AssistantMessage, Capabilities, ModelFinish, TextDelta, TextPart
from treadle.testing.conformance import ModelConformance

class Parrot:
    provider, name, capabilities = "example", "parrot", Capabilities(tools=False)

    async def stream(self, request, /):
        yield TextDelta("Over and out")
        yield ModelFinish(AssistantMessage((TextPart("Over and out"),)))

class TestParrot(ModelConformance):
    lacks = {"wire": "it answers in process", "script": "it says what it likes"}

    def model(self, server):
        return Parrot()
"""


@pytest.fixture
def run(pytester, monkeypatch):
    """Runs pytest on a project, without the plugins that a stranger may not have."""
    monkeypatch.delenv("TREADLE_CONFORMANCE_STREAMS", raising=False)
    plugins = ("-p", "no:asyncio", "-p", "no:xdist", "-p", "no:cacheprovider", "-p", "no:randomly")

    def start(project, *arguments):
        pytester.makepyfile(project)
        return pytester.runpytest(*plugins, "-rs", *arguments)

    return start


def test_a_model_in_process_skips_what_it_lacks_and_says_why(run):
    result = run(PROJECT)
    outcomes = result.parseoutcomes()
    assert outcomes.keys() == {"passed", "skipped"}
    assert outcomes["passed"] >= 15
    text = result.stdout.str()
    reasons = [line.split(": ", 1)[1] for line in text.splitlines() if line.startswith("SKIPPED")]
    assert {reason.removesuffix(" ") for reason in reasons} == {
        "lacks wire: it answers in process",
        "lacks script: it says what it likes",
        "Capabilities(tools=False)",
        "the model has no check(): it is optional",
    }


def test_a_failing_rule_says_what_the_rule_is(run):
    result = run(PROJECT.replace('TextDelta("Over and out")', 'TextDelta("Over")'), "-k", "exactly_one_finish")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E*AssertionError: the text deltas joined are the text of the message"])


def test_a_suite_without_its_methods_says_which_it_needs(run):
    bare = "from treadle.testing.conformance import ModelConformance\nclass TestBare(ModelConformance): pass\n"
    run(bare, "-k", "exactly_one_finish").stdout.fnmatch_lines(["*TestBare needs a method wire(self, spoken)*"])
    bare = bare.replace("pass", "lacks = {'wire': 'none'}")
    run(bare, "-k", "exactly_one_finish").stdout.fnmatch_lines(["*TestBare needs a method model(self, server)*"])


def test_a_lack_that_the_suite_does_not_know_is_a_mistake(run):
    result = run(PROJECT.replace('"script": ', '"scripts": "", "script": '), "-k", "lacking")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E*the suite knows no feature*scripts*"])


def test_a_lack_needs_a_reason(run):
    result = run(PROJECT.replace("it says what it likes", " "), "-k", "lacking")
    result.assert_outcomes(failed=1)


def test_a_lack_that_is_none_is_found_out():
    suite = type("Suite", (Lines,), {"lacks": {"wire": "it says so"}})()
    with pytest.raises(AssertionError, match="a model that lacks 'wire' asked"):
        suite.test_an_answer_is_deltas_and_then_exactly_one_finish()


def test_the_number_of_streams_can_be_lowered(monkeypatch):
    asked: list[int] = []

    class Counting(LinesModel):
        def body(self, request):
            asked.append(1)
            return super().body(request)

    monkeypatch.setenv("TREADLE_CONFORMANCE_STREAMS", "7")
    type("Suite", (Lines,), {"kind": Counting})().test_many_streams_at_once_stay_apart()
    assert len(asked) == 7


def test_the_option_lowers_the_number_of_streams(run, pytester):
    report = "import os\n\ndef test_it():\n    assert os.environ['TREADLE_CONFORMANCE_STREAMS'] == '12'\n"
    run(report, "--conformance-streams=12").assert_outcomes(passed=1)


def test_a_session_that_forbids_model_requests_does_not_forbid_those_on_loopback(monkeypatch):
    monkeypatch.setenv("TREADLE_MODEL_REQUESTS", "deny")
    Lines().test_an_answer_is_deltas_and_then_exactly_one_finish()
    Lines().test_the_kill_switch_lets_no_byte_out()
    assert os.environ["TREADLE_MODEL_REQUESTS"] == "deny"


def test_every_mutant_has_a_test_that_an_honest_model_passes():
    for mutant in {mutant.test: mutant for mutant in MUTANTS}.values():
        if "cannot_be_carried" not in mutant.test:  # asks for a model that takes no files
            getattr(Lines(), mutant.test)(*mutant.arguments)
