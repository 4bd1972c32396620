"""Recording runs and replaying them, at the model seam."""

from __future__ import annotations

import asyncio
import contextvars
import json
import stat
import threading

import pytest

from support.runs import bounded, events_of, without_place
from treadle import (
    Agent,
    Limits,
    ModelContractError,
    ModelRequestsDenied,
    ModelRetry,
    RateLimitError,
    Reasoning,
    Retry,
    RunError,
    RunFinish,
    ToolFinish,
    UnsupportedError,
    tool,
)
from treadle.errors import ConfigError, StreamIdleError
from treadle.messages import ProviderPart, TextPart, ToolCallPart, ToolResultPart
from treadle.model import Capabilities, HostedMCP, ModelRequest, ModelSettings, open_stream
from treadle.testing import (
    RecordingError,
    ReplayedError,
    ReplayMismatch,
    ScriptedModel,
    call,
    error,
    record,
    replay,
    step,
    think,
)
from treadle.usage import StopReason, Usage

NO_WAIT = Retry(base_seconds=0, max_seconds=0)


@tool(effect="read")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def agent_of(*steps, tools=(add,), **options):
    return Agent(ScriptedModel(*steps), tools=tools, **options)


def lines(file):
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def file(tmp_path):
    return tmp_path / "runs.jsonl"


async def test_a_replayed_run_has_the_events_of_the_recorded_one(file):
    hosted = ToolCallPart("h1", "search", '{"q": "ä"}', hosted=True, raw={"z": [1, None]})
    script = (
        [think("Two numbers.", "sig"), "Let me ", "add.", call("add", a=2, b=3)],
        [hosted, ToolResultPart("h1", "search", "found", hosted=True), ProviderPart("scripted", "sealed", {"k": 1.5})],
        step("It is ", "5 — naturally.", usage=Usage(3, 4, 5, 6, 2, 0.25), stop="max_tokens", raw_stop="length"),
    )

    def agent(*steps):
        return agent_of(*steps, reasoning=Reasoning(show=True), instructions="Be brief.", stop_when=lambda _: False)

    with record(file):
        recorded = await events_of(agent(*script), "What is 2 + 3?")
        going_on = await events_of(agent("Later."), "And now?")
    with replay(file):
        replayed = await events_of(agent(), "What is 2 + 3?")
        again = await events_of(agent(), "And now?")
    assert without_place(replayed) == without_place(recorded)
    assert without_place(again) == without_place(going_on)


async def test_a_recording_is_a_file_of_sorted_lines_that_is_the_same_for_the_same_runs(file, tmp_path):
    async def run(path):
        async with record(path):
            agent = agent_of(call("add", a=2, b=3), "It is 5.", instructions="Be brief.")
            result = await agent.run("What is 2 + 3?")
            await agent_of("Yes.").run("Sure?", messages=result.messages)

    await run(file)
    await run(tmp_path / "again.jsonl")
    assert file.read_bytes() == (tmp_path / "again.jsonl").read_bytes()
    header, first, second, third = lines(file)
    assert header == {"kind": "model", "treadle_recording": 1}
    for line in file.read_text(encoding="utf-8").splitlines():
        assert line == json.dumps(json.loads(line), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert first["model"] == "scripted:scripted"
    assert first["request"]["instructions"] == "Be brief."
    assert [event["type"] for event in first["answer"]] == ["tool_call_delta", "model_finish"]
    assert "run_id" not in file.read_text() and "seq" not in file.read_text()
    # What an earlier line holds already is not said again.
    assert second["after"] == first["id"]
    assert second["request"].keys() == {"messages"}
    assert [message["role"] for message in second["request"]["messages"]] == ["assistant", "tool"]
    assert third["after"] == second["id"]
    assert third["request"]["instructions"] is None
    assert [message["role"] for message in third["request"]["messages"]] == ["assistant", "user"]


async def test_only_the_owner_can_read_a_recording(file):
    with record(file):
        await agent_of("Hello.").run("Hi")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


async def test_an_exchange_is_written_as_it_ends(file, tmp_path):
    release = asyncio.Event()
    with record(file):
        task = asyncio.create_task(agent_of(["Wait.", release]).run("slow"))
        await agent_of("Quick.").run("quick")
        (partial,) = tmp_path.glob("*.partial")
        assert len(lines(partial)) == 2
        assert stat.S_IMODE(partial.stat().st_mode) == 0o600
        release.set()
        await bounded(task)
    assert len(lines(file)) == 3
    assert list(tmp_path.iterdir()) == [file]


async def test_the_failure_of_a_request_comes_again_with_its_class_and_fields(file):
    failure = RateLimitError(
        "slow down", provider="p", model="m", status=429, request_id="req_1", retry_after_seconds=7.5, retryable=False
    )

    async def fail(*steps):
        with pytest.raises(RunError) as caught:
            await agent_of(*steps, retry=NO_WAIT).run("Hi")
        return caught.value

    with record(file):
        recorded = await fail(["Half", error(failure)])
    with replay(file):
        replayed = await fail()
    cause = replayed.__cause__
    assert type(cause) is RateLimitError
    assert vars(cause) == vars(failure)
    assert str(cause) == str(failure)
    assert replayed.result.text == recorded.result.text == "Half"


class OwnError(StreamIdleError):
    """A user's own kind of a known failure."""


class StrangeError(Exception):
    """A failure that nobody knows."""

    def __init__(self, code, place):
        super().__init__(code, place)
        self.code = code

    def __str__(self):
        return f"strange {self.code}"


@pytest.mark.parametrize(
    ("raised", "kind", "text"),
    [
        (FileNotFoundError(2, "no file", "x"), FileNotFoundError, "[Errno 2] no file"),
        (KeyError("k"), KeyError, "'k'"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), ReplayedError, "UnicodeDecodeError"),
        (OwnError("stalled"), StreamIdleError, "stalled"),
        (StrangeError(7, object()), ReplayedError, "test_record.StrangeError: strange 7"),
        (UnsupportedError("no", model="m", feature="files"), UnsupportedError, "no"),
        (ModelRequestsDenied("denied"), ModelRequestsDenied, "denied"),
    ],
)
async def test_any_failure_comes_again_as_near_as_it_can(file, raised, kind, text):
    async def fail(*steps):
        with pytest.raises(RunError) as caught:
            await agent_of(*steps, retry=None).run("Hi")
        return caught.value.__cause__

    with record(file):
        await fail(error(raised))
    with replay(file):
        cause = await fail()
    assert type(cause) is kind
    assert text in str(cause)
    for name, value in vars(raised).items():
        assert getattr(cause, name) == value


async def test_the_text_of_a_file_chooses_no_class_to_make(file):
    with record(file), pytest.raises(RunError):
        await agent_of(error("no"), retry=None).run("Hi")
    for name in ("os.system", "SystemExit", "print", "Exception"):
        file.write_text(file.read_text().replace('"ModelError"', json.dumps(name)))
        with replay(file), pytest.raises(RunError) as caught:
            await agent_of(retry=None).run("Hi")
        assert type(caught.value.__cause__) is ReplayedError
        file.write_text(file.read_text().replace(json.dumps(name), '"ModelError"'))


async def test_retries_are_recorded_with_their_request_and_replayed_without_waiting(file):
    with record(file):
        recorded = await events_of(
            agent_of(error("busy", retryable=True), error("busy", retryable=True), "Hello.", retry=NO_WAIT)
        )
    assert len(lines(file)) == 2
    with replay(file):
        replayed = await events_of(agent_of(retry=Retry(base_seconds=1000, max_seconds=1000)))
    assert [event.attempt for event in replayed if isinstance(event, ModelRetry)] == [1, 2]
    assert without_place(replayed) == without_place(recorded)


async def test_a_broken_contract_comes_again(file):
    for block in (record(file), replay(file)):
        with block, pytest.raises(RunError) as caught:
            await agent_of(step("No end", finish=False)).run("Hi")
        assert type(caught.value) is ModelContractError


async def test_concurrent_runs_get_their_own_answers_whatever_the_order(file):
    def by_request(request):
        number = request.messages[0].content[0].text
        if len(request.messages) == 1:
            return call("add", a=int(number), b=1)
        return f"{number} is followed by {request.messages[-1].results[0].content}."

    numbers = [str(number) for number in range(40)]
    with record(file):
        agent = agent_of(*[by_request] * 80)
        first = await asyncio.gather(*[agent.run(number) for number in numbers])
    with replay(file):
        agent = agent_of()
        second = await asyncio.gather(*[agent.run(number) for number in reversed(numbers)])
    assert [result.text for result in reversed(second)] == [result.text for result in first]
    assert first[7].text == "7 is followed by 8."


async def test_equal_requests_are_answered_in_their_order(file):
    with record(file):
        agent = agent_of("one", "two", "three")
        for _ in range(3):
            await agent.run("Give me a word")
    with replay(file):
        texts = [(await agent_of().run("Give me a word")).text for _ in range(3)]
    assert texts == ["one", "two", "three"]


def test_run_sync_and_threads_of_tools_are_recorded(file):
    def inner(text: str) -> str:
        """Ask another agent."""
        return agent_of("Inner.").run_sync(text).text

    def run(*steps):
        return agent_of(*steps, tools=[tool(inner, effect="read")]).run_sync("Hi").text

    with record(file):
        assert run(call("inner", text="Ask"), "Done.") == "Done."
    assert [line["request"]["messages"][0]["role"] for line in lines(file)[1:]] == ["user", "user", "assistant"]
    with replay(file):
        assert run() == "Done."


async def test_requests_of_sub_tasks_and_of_tools_are_recorded(file):
    async def ask(text: str) -> str:
        """Ask another agent."""
        return (await asyncio.create_task(agent_of(f"Answer to {text}.").run(text))).text

    async def run(*steps):
        return await events_of(agent_of(*steps, tools=[tool(ask, effect="read")]))

    with record(file):
        recorded = await run([call("ask", text="a"), call("ask", text="b")], "Done.")
    assert len(lines(file)) == 5
    with replay(file):
        replayed = await run()
    order = [event for event in without_place(replayed) if event[0] is not ToolFinish]
    assert [event[0] for event in order] == [
        event[0] for event in without_place(recorded) if event[0] is not ToolFinish
    ]
    assert replayed[-1].stop is StopReason.END


async def test_a_block_sees_nothing_of_what_runs_beside_it(file):
    entered, left = asyncio.Event(), asyncio.Event()

    async def recording():
        with record(file):
            await agent_of("Inside.").run("in")
            entered.set()
            await left.wait()

    task = asyncio.create_task(recording())
    await bounded(entered.wait())
    await agent_of("Outside.").run("out")
    left.set()
    await bounded(task)
    assert len(lines(file)) == 2
    assert "Outside" not in file.read_text()


async def test_token_counts_are_recorded_and_replayed(file):
    with record(file):
        assert await agent_of().count_tokens("one two") == 3
        with pytest.raises(UnsupportedError):
            await Agent(ScriptedModel(capabilities=Capabilities())).count_tokens("Hi")
    with replay(file):
        assert await agent_of().count_tokens("one two") == 3
        with pytest.raises(UnsupportedError, match="no token counter"):
            await Agent(ScriptedModel(capabilities=Capabilities())).count_tokens("Hi")
    with pytest.raises(ReplayMismatch, match="asked for: recorded 'a token count', now 'an answer'"), replay(file):  # noqa: SIM117
        with pytest.raises(RunError):
            await agent_of().run("one two")


async def test_an_answer_that_was_left_is_replayed_as_far_as_it_came(file):
    async def leave(*steps, after):
        texts = []
        async with agent_of(*steps).stream("Hi") as run:
            async for text in run.text_stream():
                texts.append(text)
                if len(texts) == after:
                    break
        return texts

    with record(file):
        assert await leave(["a", "b", "c", "d"], after=2) == ["a", "b"]
    assert lines(file)[1]["left"] is True
    with replay(file):
        assert await leave(after=2) == ["a", "b"]
    with pytest.raises(RunError, match="left after 2 events when it was recorded"), replay(file):
        await leave(after=3)


async def test_a_run_that_was_cancelled_is_recorded(file):
    with record(file):
        async with agent_of(["a", asyncio.Event()]).stream("Hi") as run:
            reading = asyncio.create_task(anext(aiter(run.text_stream())))
            assert await bounded(reading) == "a"
    assert lines(file)[1]["left"] is True


# Where the file is, and when


async def test_a_new_recording_takes_the_place_of_the_old_one_at_the_end(file):
    file.write_text("old")
    with record(file):
        await agent_of("Hello.").run("Hi")
        assert file.read_text() == "old"
    assert len(lines(file)) == 2


async def test_a_block_that_raises_leaves_the_old_file_and_says_where_the_rest_is(file, tmp_path):
    file.write_text("old")
    with pytest.raises(RunError) as caught, record(file):  # noqa: PT012
        await agent_of("Hello.").run("Hi")
        await agent_of(error("broken"), retry=None).run("Hi again")
    assert file.read_text() == "old"
    partial = tmp_path / "runs.jsonl.partial"
    assert caught.value.__notes__ == [f"{file} was left as it was; what was recorded until here is in {partial}"]
    with replay(partial):
        assert (await agent_of().run("Hi")).text == "Hello."
        with pytest.raises(RunError, match="broken"):
            await agent_of(retry=None).run("Hi again")


async def test_a_block_that_raises_before_anything_came_leaves_nothing_behind(file, tmp_path):
    with pytest.raises(ZeroDivisionError), record(file):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


async def test_nothing_recorded_is_told_and_keeps_the_old_file(file, tmp_path):
    file.write_text("old")
    with pytest.raises(RecordingError, match=r"nothing was recorded to runs\.jsonl"), record(file):
        pass
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


async def test_a_request_that_outlives_the_block_is_told(file):
    never = asyncio.Event()
    with pytest.raises(RecordingError, match="1 requests had not ended"):  # noqa: PT012
        async with record(file):
            run = agent_of(["a", never]).stream("Hi")
            await run.__aenter__()
            await anext(aiter(run.text_stream()))
    assert not file.exists()
    await run.__aexit__(None, None, None)


async def test_after_the_block_models_are_asked_again_and_tasks_from_inside_are_told(file):
    go = asyncio.Event()

    async def late():
        await go.wait()
        return await agent_of("Hello.").run("late")

    with record(file):
        await agent_of("Hello.").run("Hi")
    assert (await agent_of("Real.").run("Hi")).text == "Real."
    with replay(file):
        await agent_of().run("Hi")
        task = asyncio.create_task(late())
        await asyncio.sleep(0)
    go.set()
    with pytest.raises(RunError, match=r"the replay of .*runs\.jsonl has ended, and a request came"):
        await bounded(task)


async def test_a_block_serves_once(file):
    block = record(file)
    with block:
        await agent_of("Hello.").run("Hi")
    with pytest.raises(ConfigError, match="serves for one block"), block:
        pass


async def test_a_folder_is_made_and_one_that_cannot_be_is_told(tmp_path):
    with record(tmp_path / "new" / "deep" / "runs.jsonl"):
        await agent_of("Hello.").run("Hi")
    (tmp_path / "plain").write_text("")
    with pytest.raises(RecordingError, match="cannot record to"), record(tmp_path / "plain" / "runs.jsonl"):
        pass


async def test_the_path_counts_from_where_the_block_began(tmp_path, monkeypatch):
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    monkeypatch.chdir(tmp_path / "one")
    with record("runs.jsonl"):
        await agent_of("Hello.").run("Hi")
        monkeypatch.chdir(tmp_path / "two")
    assert [path.name for path in (tmp_path / "one").iterdir()] == ["runs.jsonl"]
    assert list((tmp_path / "two").iterdir()) == []


async def test_blocks_inside_each_other_both_record(file, tmp_path):
    other = tmp_path / "other.jsonl"
    with record(file):
        await agent_of("One.").run("one")
        with record(other):
            await agent_of("Two.").run("two")
            assert await agent_of().count_tokens("a b") == 3
    assert (len(lines(file)), len(lines(other))) == (4, 3)
    copy = tmp_path / "copy.jsonl"
    with replay(file), record(copy):
        for text in ("one", "two"):
            await agent_of().run(text)
        await agent_of().count_tokens("a b")
    assert copy.read_bytes() == file.read_bytes()


def test_a_recording_made_in_many_threads_is_whole(file):
    texts = [f"Question {number}" for number in range(24)]

    def ask(text):
        assert agent_of(f"Answer to {text}").run_sync(text).text == f"Answer to {text}"

    with record(file):
        threads = [threading.Thread(target=contextvars.copy_context().run, args=(ask, text)) for text in texts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
    assert len(lines(file)) == 25
    with replay(file):
        for text in texts:
            assert agent_of().run_sync(text).text == f"Answer to {text}"


# Files that are no whole recording


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, r"no recording can be read at .*No such file.*; make it with record\("),
        ("", "is empty: record it again"),
        ("hello\n", "line 1 is not JSON"),
        ('{"some": "json"}\n', "is no recording: its first line names no treadle_recording"),
        ('{"kind":"model","treadle_recording":2}\n', "a recording of version 2, and this Treadle reads 1: update"),
        ('{"kind":"http","treadle_recording":1}\n', "of the kind 'http', which is for recording_transport"),
        ('{"kind":"model","treadle_recording":1}\n7\n', "line 2 is no exchange but b'7'"),
        ('{"kind":"model","treadle_recording":1}\n{}\n', "line 2 is no exchange: KeyError"),
        ('{"kind":"model","treadle_recording":1}\n<<<<<<< ours\n{}\n', "line 2 is not JSON"),
        (
            '{"kind":"model","treadle_recording":1}\n{"after":"f00","id":"1","model":"m","request":{},"answer":[]}\n',
            "line 2 goes on from 'f00', which no line before it is",
        ),
        (
            '{"kind":"model","treadle_recording":1}\n{"id":"1","model":"m","request":{},"answer":[{"type":"new"}]}\n',
            "line 2 is no exchange: .*new",
        ),
        (
            '{"kind":"model","treadle_recording":1}\n{"id":"1","model":"m","request":{},"answer":[],"failure":{}}\n',
            "line 2 is no exchange: KeyError",
        ),
    ],
)
def test_what_is_no_recording_is_told(file, content, text):
    if content is not None:
        file.write_text(content)
    with pytest.raises(RecordingError, match=text), replay(file):
        pytest.fail("the block must not begin")


async def test_a_line_that_is_cut_off_is_told(file):
    with record(file):
        await agent_of("Hello.").run("Hi")
        await agent_of("Bye.").run("Later")
    whole = file.read_bytes()
    for cut in (whole[:-2], whole[:-100], whole[: whole.rfind(b"\n", 0, -1) + 2]):
        file.write_bytes(cut)
        with pytest.raises(RecordingError, match="line 3, the last, is cut off: the recording was interrupted"):
            replay(file).__enter__()
    # A whole last line without its end is whole.
    file.write_bytes(whole[:-1])
    with replay(file):
        await agent_of().run("Hi")
        await agent_of().run("Later")
    file.write_bytes(whole.replace(b"\n", b"\r\n"))
    with replay(file):
        await agent_of().run("Hi")
        await agent_of().run("Later")


async def test_every_option_of_a_request_is_recorded_and_text_that_is_none_is_mended(file):
    def agent(*steps):
        return agent_of(
            *steps,
            settings=ModelSettings(
                temperature=0.5, stop_sequences=("END",), extra_body={"n": float("nan"), "x": (1, 2)}
            ),
            hosted_mcp=[HostedMCP("docs", "https://mcp.example/x")],
            hosted_web_search=True,
            max_output_tokens=77,
            limits=Limits(steps=3),
        )

    with record(file):
        await agent(["Half \ud83d", "\ude00 a \ud800", TextPart("x")]).run("Say \ud800")
    request = lines(file)[1]["request"]
    assert request["max_output_tokens"] == 77
    assert request["settings"]["extra_body"] == {"n": None, "x": [1, 2]}
    with replay(file):
        result = await agent().run("Say \ud800")
    assert result.complete


async def test_long_runs_make_files_that_grow_with_their_length_only(file):
    steps = [call("add", a=number, b=1) for number in range(60)]
    with record(file):
        await agent_of(*steps, "Done.", limits=Limits(steps=None)).run("x" * 5000)
    assert file.stat().st_size < 80_000
    with replay(file):
        events = await events_of(agent_of(limits=Limits(steps=None)), "x" * 5000)
    assert isinstance(events[-1], RunFinish) and events[-1].steps == 61


def test_without_a_block_nothing_stands_between_an_agent_and_its_model():
    model, answer = ScriptedModel(), object()
    assert open_stream(model, ModelRequest(None, ()), lambda _: answer) is answer
