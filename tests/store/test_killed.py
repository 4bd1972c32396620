"""A process that is killed at any moment loses nothing of what its consumer had seen, and its session goes on."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import threading
import time

from test_transcript import assert_valid
from treadle import Agent, ModelFinish, SubagentEvent, TextDelta, ToolFinish, decode_event
from treadle.sessions import conversation
from treadle.store import JsonLinesStore
from treadle.testing import ScriptedModel

SECONDS = 60.0 if os.environ.get("TREADLE_LONG_TESTS") else 3.0

# Works on one session without end, run after run, and acknowledges each event that it has seen.
WORKER = """
import asyncio, sys
from treadle import Agent, TextDelta, ToolCallDelta, encode_event, tool
from treadle.store import JsonLinesStore
from treadle.testing import ScriptedModel, call

@tool(effect="write")
async def act(number: int, size: int) -> str:
    await asyncio.sleep(0)
    return "x" * size

async def main():
    store, runs = JsonLinesStore(sys.argv[1]), int(sys.argv[2])
    child = Agent(ScriptedModel(*["deep"] * 1000)).as_tool(forward_events=True)
    while True:
        runs += 1
        step = [call("act", number=runs, size=runs * 97 % 9000), call("subagent", prompt="dig"), "and "]
        agent = Agent(ScriptedModel(step, ["all ", "done"]), tools=[act, child])
        async with agent.stream(f"run {runs}", store=store, session="one") as run:
            async for event in run:
                if not isinstance(event, TextDelta | ToolCallDelta):
                    sys.stdout.buffer.write(encode_event(event) + b"\\n")
                    sys.stdout.buffer.flush()

asyncio.run(main())
"""


def killed_after(directory, start, seconds):
    """What a worker acknowledged until it was killed, that long after its first word."""
    command = [sys.executable, "-c", WORKER, str(directory), str(start)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as worker:
        lines = [worker.stdout.readline()]
        killer = threading.Timer(seconds, worker.kill)
        killer.start()
        lines += worker.stdout.readlines()
        killer.join()
        assert (worker.stderr.read(), worker.wait()) == (b"", -signal.SIGKILL)
    return [decode_event(line) for line in lines if line.endswith(b"\n")]


def is_stored(event):
    inner = event.event if isinstance(event, SubagentEvent) else event
    return not isinstance(inner, TextDelta)


async def everything(directory):
    return [stored async for stored in JsonLinesStore(directory).read("one")]


def test_nothing_that_was_seen_is_missing_after_a_kill(tmp_path):
    chance, end, seen, kills = random.Random(), time.monotonic() + SECONDS, [], 0
    while time.monotonic() < end or kills < 3:
        seen += killed_after(tmp_path, kills * 10_000, chance.uniform(0, 0.12))
        kills += 1
        stored = asyncio.run(everything(tmp_path))
        known = {repr(one.event) for one in stored}
        assert not [event for event in seen if is_stored(event) and repr(event) not in known]
        assert [one.seq for one in stored] == list(range(len(stored)))
        messages = conversation([one.event for one in stored])
        assert_valid(messages)
    assert len([event for event in seen if isinstance(event, ToolFinish)]) > kills
    # The session goes on, and the model reads all that was finished.
    model = ScriptedModel("here again")
    result = asyncio.run(Agent(model).run("still there?", store=JsonLinesStore(tmp_path), session="one"))
    assert result.text == "here again" and model.requests[0].messages[:-1] == messages
    answers = [event.message.text for event in seen if isinstance(event, ModelFinish)]
    assert [getattr(message, "text", None) for message in messages].count("all done") >= answers.count("all done")
