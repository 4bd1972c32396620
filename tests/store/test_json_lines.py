"""Sessions as files: what is on the disk, what is torn there, who may write."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from support.runs import bounded
from treadle import (
    Agent,
    AssistantMessage,
    ModelFinish,
    ModelRef,
    NoSuchSessionError,
    RunStart,
    StoreError,
    TextDelta,
    UserMessage,
    tool,
)
from treadle.sessions import load
from treadle.store import JsonLinesStore
from treadle.testing import ScriptedModel, call

MODEL = ModelRef("scripted", "scripted")


@pytest.fixture
def store(tmp_path):
    return JsonLinesStore(tmp_path / "deep" / "sessions")


async def read(store, session="one", after=-1):
    return [stored async for stored in store.read(session, after)]


async def words(store, session="one"):
    return [stored.event.text for stored in await read(store, session)]


def names(store):
    return sorted(path.name for path in store.directory.iterdir())


async def filled(store, *texts):
    for text in texts or ("first", "second größer", "third"):
        await store.append("one", [TextDelta(text)])
    return store.path("one")


# The file


async def test_the_files_are_for_their_owner_alone(store):
    before = os.umask(0)
    try:
        path = await filled(store)
        async with store.claim("one"):
            for made in (path, path.with_suffix(".lock")):
                assert stat.S_IMODE(made.stat().st_mode) == 0o600
    finally:
        os.umask(before)
    assert stat.S_IMODE(store.directory.stat().st_mode) == 0o700
    assert names(store) == ["one.jsonl"]


async def test_a_header_comes_first_and_each_line_has_a_number_a_time_and_an_event(store):
    path = await filled(store)
    header, *lines = map(json.loads, path.read_text().splitlines())
    assert header == {
        "format": 1,
        "session": "one",
        "created": lines[0]["time"],
        "forked_from": None,
        "forked_at": None,
    }
    assert [(set(line), line["seq"]) for line in lines] == [({"seq", "time", "event"}, seq) for seq in range(3)]


async def test_a_fork_says_where_it_came_from(store):
    await filled(store)
    await store.fork("one", 2, "two")
    header = json.loads(store.path("two").read_text().splitlines()[0])
    assert (header["session"], header["forked_from"], header["forked_at"]) == ("two", "one", 2)
    assert [stored.time for stored in await read(store, "two")] == [stored.time for stored in await read(store)][:2]


async def test_a_claim_that_adds_nothing_leaves_nothing(store):
    async with store.claim("one"):
        await store.append("two", [])
    assert await store.list() == [] and names(store) == []


async def test_a_symbolic_link_is_not_followed(store, tmp_path):
    await filled(store)
    target = tmp_path / "target"
    target.write_bytes(b"")
    store.path("two").symlink_to(target)
    for attempt in (store.append("two", [TextDelta("x")]), load(store, "two")):
        with pytest.raises(StoreError):
            await attempt
    assert target.read_bytes() == b""
    assert [info.id for info in await store.list()] == ["one"]


async def test_a_later_format_and_an_unknown_event_are_refused_and_left_as_they_are(store, caplog):
    path = await filled(store)
    whole = path.read_bytes()
    for changed, text in (
        (whole.replace(b'"format":1', b'"format":2'), "later version"),
        (whole.replace(b'"format":1', b'"format":2,"begun":"today"').replace(b'"created"', b'"x"'), "later version"),
        (whole.replace(b'"type":"text_delta"', b'"type":"thought_transfer"', 1), "line 2 of .* does not know"),
    ):
        path.write_bytes(changed)
        for attempt in (load(store, "one"), store.append("one", [TextDelta("x")])):
            with pytest.raises(StoreError, match=text):
                await attempt
        assert path.read_bytes() == changed
    assert names(store) == ["one.jsonl"]
    path.write_bytes(whole.replace(b'"format":1', b'"format":2'))
    assert await store.list() == [] and "left out of the list" in caplog.text


async def test_a_title_is_one_line_without_control_characters(store):
    long = "\x1b[31mred\x07 \n\n and\u202e\u2028 " + "long " * 1_000
    start = RunStart(agent=None, model=MODEL, input=(UserMessage(long),))
    await store.append("one", [start])
    (info,) = await store.list()
    assert info.title.startswith("[31mred and long") and info.title.endswith("…") and len(info.title) <= 80
    await store.append("two", [RunStart(agent=None, model=MODEL, input=(AssistantMessage("hi"),))])
    await store.append("three", [TextDelta("no run")])
    assert {info.id: info.title for info in await store.list()} | {"one": ""} == {"one": "", "two": "", "three": ""}


async def test_the_list_finds_the_end_of_long_files_and_long_lines(store):
    long = "x" * 100_000
    await store.append("one", [TextDelta(long), TextDelta("y"), TextDelta(long)])
    await store.append("two", [TextDelta("z")] * 5_000)
    assert {info.id: info.events for info in await store.list()} == {"one": 3, "two": 5_000}


async def test_reading_in_the_middle_of_a_long_session_may_stop(store):
    await store.append("one", [TextDelta(str(number)) for number in range(3_000)])
    assert [stored.event.text for stored in await read(store, after=2_997)] == ["2998", "2999"]
    reading = store.read("one")
    assert (await anext(reading)).seq == 0
    await reading.aclose()


async def test_a_directory_that_cannot_be_one_is_told_in_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    store = JsonLinesStore(tmp_path / "file" / "sessions")
    with pytest.raises(StoreError, match="Not a directory") as failed:
        await Agent(ScriptedModel("x")).run("go", store=store, session="one")
    assert len(str(failed.value).splitlines()) == 1
    assert await store.list() == []


# Torn files

GARBAGE = b"\xff\xfe{{{ not json \x00\x01\x02"
TORN = {
    "cut inside a character": (
        lambda lines: b"".join(lines)[: -len(lines[3])] + lines[3][: lines[3].index(b"\xc3") + 1],
        [0, 1],
        1,
    ),
    "a whole last line without its end": (lambda lines: b"".join(lines)[:-1], [0, 1, 2], 0),
    "zeros in the middle": (lambda lines: b"".join([*lines[:2], b"\0" * 4096, *lines[2:]]), [0, 1, 2], 1),
    "zeros on a line of their own": (lambda lines: b"".join([*lines[:2], b"\0" * 9 + b"\n", *lines[2:]]), [0, 1, 2], 1),
    "zeros at the end": (lambda lines: b"".join(lines) + b"\0" * 512, [0, 1, 2], 1),
    "a blank line": (lambda lines: b"".join([*lines[:2], b"\n  \r\n", *lines[2:]]), [0, 1, 2], 0),
    "garbage in the middle": (lambda lines: b"".join([*lines[:2], GARBAGE + b"\n", *lines[2:]]), [0, 1, 2], 1),
    "a torn line with a whole one behind": (lambda lines: b"".join([*lines[:2], lines[2][:40], lines[3]]), [0, 2], 1),
    "a number": (lambda lines: b"".join([*lines[:2], b"17\n", *lines[2:]]), [0, 1, 2], 1),
    "deep nesting": (lambda lines: b"".join([*lines[:2], b"[" * 100_000 + b"\n", *lines[2:]]), [0, 1, 2], 1),
    "a torn header": (lambda lines: b"".join([lines[0][:20] + b"\n", *lines[1:]]), [0, 1, 2], 1),
    "no header": (lambda lines: b"".join(lines[1:]), [0, 1, 2], 0),
    "only half a header": (lambda lines: lines[0][:20], [], 1),
    "an empty file": (lambda lines: b"", [], 0),
}


@pytest.mark.parametrize("how", TORN)
async def test_what_is_whole_of_a_torn_file_loads_and_the_rest_is_set_aside(store, caplog, how):
    tear, good, bad = TORN[how]
    path = await filled(store, "first", "second", "third größer")
    path.write_bytes(torn := tear(path.read_bytes().splitlines(keepends=True)))
    # Reading alone changes nothing, and tells.
    assert [stored.seq for stored in await read(store)] == good
    assert path.read_bytes() == torn
    assert (store.damage["one"].lines if bad else "one" not in store.damage) and (
        "could not be read" in caplog.text
    ) == bool(bad)
    assert len(await store.list()) == 1
    # Adding begins on a line of its own.
    again = JsonLinesStore(store.directory)
    expected = max(good, default=-1) + 1
    assert await again.append("one", [TextDelta("fourth")], durable=True) == expected
    assert [stored.seq for stored in await read(again)] == [*good, expected]
    assert (await words(again))[-1] == "fourth"
    # What made no sense is kept, and the file is whole from now on.
    aside = path.with_suffix(".damaged")
    assert aside.exists() == bool(bad)
    if bad:
        assert (again.damage["one"].lines, again.damage["one"].file) == (bad, aside)
        assert stat.S_IMODE(aside.stat().st_mode) == stat.S_IMODE(path.stat().st_mode) == 0o600
        kept = aside.read_bytes().removesuffix(b"\n")
        assert kept in torn or kept in torn + b"\n"
    for line in path.read_bytes().splitlines():
        assert not line.strip() or json.loads(line)
    fresh = JsonLinesStore(store.directory)
    assert [stored.seq for stored in await read(fresh)] == [*good, expected] and not fresh.damage


async def test_what_is_set_aside_later_goes_behind_what_was_there(store):
    path = await filled(store)
    for text in (b"one bad line", b"another"):
        with path.open("ab") as file:
            file.write(text)
        await store.append("one", [TextDelta("more")])
    assert path.with_suffix(".damaged").read_bytes() == b"one bad line\nanother\n"
    assert len(await read(store)) == 5


async def test_any_cut_of_a_file_loads_up_to_there_and_goes_on(store):
    path = await filled(store)
    whole = path.read_bytes()
    ends = [index + 1 for index, byte in enumerate(whole) if byte == ord("\n")][1:]
    for cut in range(0, len(whole), 7):
        path.write_bytes(whole[:cut])
        expected = sum(end <= cut + 1 for end in ends)
        assert await store.append("one", [TextDelta("more")]) == expected
        assert (await words(store))[-1] == "more" and len(await read(store)) == expected + 1


# Reading while another writes


async def test_reading_while_another_writes_gives_whole_events_only(store):
    writing = JsonLinesStore(store.directory)
    await filled(writing, "x" * 10)

    def write():
        async def work():
            async with writing.claim("one"):
                for _ in range(300):
                    await writing.append("one", [TextDelta("y" * 5_000)])

        asyncio.run(work())

    thread = threading.Thread(target=write)
    thread.start()
    count = 0
    while thread.is_alive() or count < 301:
        seqs = [stored.seq for stored in await read(store)]
        assert seqs == list(range(len(seqs))) and len(seqs) >= count
        count = len(seqs)
    thread.join()
    assert not store.damage


async def test_a_last_line_that_is_still_being_written_is_waited_for(store):
    path = await filled(store)
    whole = path.read_bytes()
    path.write_bytes(whole[:-30])
    reader = asyncio.create_task(read(store))

    def finish():
        with path.open("ab") as file:
            file.write(whole[-30:])

    asyncio.get_running_loop().call_later(0.01, finish)
    assert len(await reader) == 3 and not store.damage


# Who may write


async def test_a_claim_that_is_refused_names_the_process_and_what_to_do(store):
    rival = JsonLinesStore(store.directory)
    async with store.claim("one"):
        with pytest.raises(StoreError, match=rf"'one' is in use by this process \({os.getpid()}\): wait .* or fork"):
            async with rival.claim("one"):
                pytest.fail("two hold it")
        (store.directory / "one.lock").write_text("")
        with pytest.raises(StoreError, match="in use by another process"):
            await rival.append("one", [TextDelta("x")])
    with pytest.raises(NoSuchSessionError):
        await read(store)


HOLDER = """
import asyncio, sys
from treadle.store import JsonLinesStore
from treadle import TextDelta

async def main():
    store = JsonLinesStore(sys.argv[1])
    async with store.claim("one"):
        await store.append("one", [TextDelta("theirs")])
        print("held", flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""


@contextlib.contextmanager
def holder_of(store):
    """Another process that has claimed the session."""
    command = [sys.executable, "-c", HOLDER, str(store.directory)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        yield holder
        holder.kill()


def test_another_process_that_holds_a_session_is_named_and_a_killed_one_gives_it_free(store):
    agent = Agent(ScriptedModel("back again"))
    with holder_of(store) as holder:
        with pytest.raises(StoreError, match=f"in use by process {holder.pid}:"):
            agent.run_sync("go", store=store, session="one")
        assert asyncio.run(words(store)) == ["theirs"]
    assert (store.directory / "one.lock").exists()
    assert agent.run_sync("go", store=store, session="one").text == "back again"
    assert [stored.seq for stored in asyncio.run(read(store))] == list(range(6))


async def test_many_that_want_the_same_session_get_it_one_after_the_other(store):
    async def work(number):
        mine = JsonLinesStore(store.directory)
        while True:
            try:
                return await mine.append("one", [TextDelta(str(number))])
            except StoreError:
                await asyncio.sleep(0)

    seqs = await bounded(asyncio.gather(*map(work, range(20))))
    assert sorted(seqs) == list(range(20)) == [stored.seq for stored in await read(store)]


@pytest.mark.parametrize("turns", range(4))
async def test_a_claim_whose_wait_is_cancelled_is_given_free(store, turns):
    await filled(store)

    async def claim():
        async with store.claim("one"):
            await asyncio.Event().wait()

    for _ in range(10):
        task = asyncio.create_task(claim())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not (store.directory / "one.lock").exists()
    await store.append("one", [TextDelta("free")])


async def test_reading_may_be_cancelled_at_any_time(store):
    path = await filled(store)
    with path.open("ab") as file:
        file.write(b"half a line")
    for turns in range(4):
        task = asyncio.create_task(read(store))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert len(await read(store)) == 3


async def test_an_append_behind_the_end_of_its_claim_is_refused(store):
    async with store.claim("one"):
        writer = store._writers["one"]
        await store.append("one", [TextDelta("x")])
    with pytest.raises(StoreError, match="claim"):
        writer.append([TextDelta("y")], durable=False)
    assert await words(store) == ["x"]


# A disk that fails

LIMITED = """
import asyncio, resource, sys
from treadle import Agent, RunError, StoreError, tool
from treadle.store import JsonLinesStore
from treadle.testing import ScriptedModel, call

@tool
def talk() -> str:
    return "x" * 1500

async def main():
    store = JsonLinesStore(sys.argv[1])
    agent = Agent(ScriptedModel(*[[call("talk")] for _ in range(20)]), tools=[talk])
    resource.setrlimit(resource.RLIMIT_FSIZE, (8000, resource.RLIM_INFINITY))
    seen = 0
    try:
        async with agent.stream("go", store=store, session="one") as run:
            async for event in run:
                if type(event).__name__ == "ToolFinish" and not event.discarded:
                    seen += 1
    except RunError as error:
        assert isinstance(error.__cause__, StoreError), error.__cause__
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        print(seen, error)

asyncio.run(main())
"""


async def test_a_full_disk_breaks_the_run_and_what_was_stored_stays(store):
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", LIMITED, str(store.directory)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    seen, text = done.stdout.split(" ", 1)
    assert "could not be stored" in text and "File too large" in text and len(text.splitlines()) == 1
    stored = await read(store)
    assert sum(type(one.event).__name__ == "ToolFinish" for one in stored) == int(seen) > 1
    assert store.path("one").read_bytes().endswith(b"\n") and not store.damage
    result = await Agent(ScriptedModel("back again")).run("go on", store=store, session="one")
    assert result.text == "back again" and result.messages[0] == UserMessage("go")


FULL = Path("/dev/full")


@pytest.mark.skipif(not FULL.exists(), reason="this system has no device that is always full")
async def test_nothing_more_is_added_behind_a_failed_write(store):
    await filled(store)
    async with store.claim("one"):
        await store.append("one", [TextDelta("x")])
        with store._writers["one"]._file as real, FULL.open("ab", buffering=0) as full:  # noqa: ASYNC230
            store._writers["one"]._file = full
            with pytest.raises(StoreError, match="No space left on device; free some space"):
                await store.append("one", [TextDelta("y")], durable=True)
            store._writers["one"]._file = real
            with pytest.raises(StoreError, match="an earlier write failed; claim the session again"):
                await store.append("one", [TextDelta("z")])
    assert await store.append("one", [TextDelta("later")]) == 4
    assert (await words(store))[-2:] == ["x", "later"]


# Costs


async def test_an_fsync_leaves_the_event_loop_free(store, monkeypatch):
    loop_thread, threads = threading.get_ident(), []
    real = os.fsync

    def fsync(number):
        threads.append(threading.get_ident())
        real(number)

    monkeypatch.setattr(os, "fsync", fsync)

    @tool
    def act() -> str:
        return "done"

    await Agent(ScriptedModel([call("act")], "ok"), tools=[act]).run("go", store=store, session="one")
    assert len(threads) >= 3 and loop_thread not in threads
    assert isinstance((await read(store))[2].event, ModelFinish)


async def test_a_lock_that_was_taken_away_lets_nobody_add_beside_its_holder(store):
    rival = JsonLinesStore(store.directory)
    async with store.claim("one"):
        await store.append("one", [TextDelta("mine")])
        (store.directory / "one.lock").unlink()
        async with rival.claim("one"):
            with pytest.raises(StoreError, match=r"somebody else is adding to it; wait .* or fork"):
                await rival.append("one", [TextDelta("theirs")])
        await store.append("one", [TextDelta("mine too")])
    assert await words(store) == ["mine", "mine too"]


async def test_giving_a_session_free_leaves_the_lock_of_somebody_else(store):
    rival = JsonLinesStore(store.directory)
    async with store.claim("one"):
        (store.directory / "one.lock").unlink()
        later = rival.claim("one")
        await later.__aenter__()
    assert (store.directory / "one.lock").exists()
    await later.__aexit__(None, None, None)
    assert names(store) == []


async def test_what_is_no_file_is_left_out_of_the_list_and_not_waited_for(store):
    await filled(store)
    os.mkfifo(store.path("pipe"))
    store.path("folder").mkdir()
    before = len(list(Path("/dev/fd").iterdir()))
    assert [info.id for info in await asyncio.wait_for(store.list(), 30)] == ["one"]
    assert len(list(Path("/dev/fd").iterdir())) == before
    with pytest.raises(StoreError, match="regular file"):
        await read(store, "pipe")
