"""What happens on the wire: reuse, early ends, stalls, loops, threads, the kill switch."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.chat import DONE, HELLO, chunk, collect, model, sse, text, usage
from support.loopback import BOUND, BREAK, STALL, Loopback, Reply
from treadle.errors import ConfigError, ModelConnectionError, ModelRequestsDenied, StreamIdleError
from treadle.events import ModelFinish, TextDelta
from treadle.messages import UserMessage
from treadle.model import ModelRequest
from treadle.providers import _connection, resolve
from treadle.providers.openai_chat import OpenAIChatModel

WHOLE = sse(text("hel"), text("lo"), chunk({}, "stop"), usage(), DONE)
GO = ModelRequest(None, HELLO)


def others() -> set[asyncio.Task[Any]]:
    return {task for task in asyncio.all_tasks() if task is not asyncio.current_task()}


async def bounded(awaitable: Any) -> Any:
    return await asyncio.wait_for(awaitable, BOUND)


# Reuse


async def test_a_connection_is_used_again_for_the_next_request() -> None:
    async with Loopback(Reply((WHOLE,))) as server:
        asked = model(server)
        for _ in range(5):
            await collect(asked)
        assert (len(server.requests), server.connections) == (5, 1)


async def test_all_models_of_a_loop_share_one_pool() -> None:
    async with Loopback(Reply((WHOLE,))) as server:
        for name in ("one", "two", "three"):
            await collect(model(server, name))
        assert [request.body["model"] for request in server.requests] == ["one", "two", "three"]
        assert server.connections == 1


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_server_on_this_machine_is_asked_past_any_proxy(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    async with Loopback(Reply((WHOLE,))) as server, Loopback(Reply(status=502)) as proxy:
        for variable in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(variable, proxy.url)
        url = server.url.replace("127.0.0.1", host)
        await collect(OpenAIChatModel("m", base_url=url))
        assert (len(server.requests), len(proxy.requests)) == (1, 0)


async def test_a_connection_is_used_again_when_the_body_ends_a_moment_after_done() -> None:
    async with Loopback(Reply((WHOLE, b": bye\n\n"))) as server:
        asked = model(server)
        await collect(asked)
        await collect(asked)
        assert server.connections == 1


async def test_a_server_that_keeps_the_body_open_after_done_does_not_hang_us() -> None:
    async with Loopback(Reply((WHOLE, STALL))) as server:
        events = await collect(model(server))
        assert events[-1].message.text == "hello"
        await bounded(server.left.wait())


async def test_two_hundred_streams_run_at_once() -> None:
    gate = asyncio.Event()

    def reply(seen: Any) -> Reply:
        if len(server.requests) == 200:
            gate.set()
        mine = seen.body["messages"][0]["content"]
        return Reply((sse(text("for ")), gate, sse(text(mine), chunk({}, "stop"), DONE)))

    async with Loopback(reply) as server:
        asked = model(server)
        requests = [ModelRequest(None, (UserMessage(f"run {number}"),)) for number in range(200)]
        found = await bounded(asyncio.gather(*(collect(asked, request) for request in requests)))
        assert [events[-1].message.text for events in found] == [f"for run {number}" for number in range(200)]
        client = await _connection.shared_client()
        kept = client._transport._pool.connections  # type: ignore[attr-defined]
        assert len(kept) <= _connection.IDLE_CONNECTIONS


# Ending early


async def test_leaving_a_stream_early_closes_the_connection_and_leaves_no_task() -> None:
    async with Loopback(Reply((sse(text("hello"), text(" there")), STALL))) as server:
        before = others()
        stream = model(server).stream(GO)
        assert await bounded(anext(stream)) == TextDelta(text="hello")
        alive = others() - before  # the server's
        await bounded(stream.aclose())
        await bounded(server.left.wait())
        gc.collect()
        assert others() - before - alive == set()


async def test_closing_a_stream_that_never_began_sends_nothing() -> None:
    async with Loopback(Reply((WHOLE,))) as server:
        await model(server).stream(GO).aclose()
        assert server.connections == 0


async def test_a_reader_that_raises_closes_the_connection() -> None:
    async with Loopback(Reply((sse(text("hello")), STALL))) as server:

        async def fail() -> None:
            async with contextlib.aclosing(model(server).stream(GO)) as stream:
                async for _ in stream:
                    raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await bounded(fail())
        await bounded(server.left.wait())


async def test_a_cancel_while_the_model_speaks_closes_the_connection() -> None:
    got_some = asyncio.Event()

    async def consume(asked: OpenAIChatModel) -> None:
        async for _ in asked.stream(GO):
            got_some.set()

    async with Loopback(Reply((sse(text("hello")), STALL))) as server:
        before = others()
        task = asyncio.create_task(consume(model(server)))
        await bounded(got_some.wait())
        alive = others() - before - {task}
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await bounded(task)
        await bounded(server.left.wait())
        assert others() - before - alive == set()


async def test_a_cancel_before_the_answer_begins_closes_the_connection() -> None:
    async with Loopback(Reply((STALL,))) as server:
        task = asyncio.create_task(collect(model(server)))
        await bounded(server.asked.wait())
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await bounded(task)
        await bounded(server.left.wait())


async def test_a_connection_that_was_left_early_is_not_used_again() -> None:
    async with Loopback(Reply((sse(text("hello")), STALL)), Reply((WHOLE,))) as server:
        asked = model(server)
        stream = asked.stream(GO)
        await bounded(anext(stream))
        await stream.aclose()
        assert (await collect(asked))[-1].message.text == "hello"
        assert server.connections == 2


# Stalls and breaks


async def test_a_stall_in_the_middle_is_an_idle_error() -> None:
    async with Loopback(Reply((sse(text("hello")), STALL))) as server:
        with pytest.raises(StreamIdleError, match=r"m: nothing came for 0\.05 seconds") as caught:
            await collect(model(server, idle_timeout_seconds=0.05))
        assert caught.value.retryable
        assert isinstance(caught.value.__cause__, httpx2.ReadTimeout)
        await bounded(server.left.wait())


async def test_a_stall_before_the_first_byte_is_an_idle_error() -> None:
    hold = asyncio.Event()

    async def silent(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await hold.wait()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(StreamIdleError):
            await collect(OpenAIChatModel("m", base_url=url, idle_timeout_seconds=0.05))
        hold.set()


async def test_a_stall_behind_the_finish_reason_loses_only_the_usage() -> None:
    async with Loopback(Reply((sse(text("hello"), chunk({}, "stop")), STALL))) as server:
        finish = (await collect(model(server, idle_timeout_seconds=0.05)))[-1]
        assert (finish.message.text, finish.usage) == ("hello", None)


async def test_keepalives_hold_the_idle_timeout_off() -> None:
    beats = [asyncio.Event() for _ in range(8)]
    for number, beat in enumerate(beats):
        asyncio.get_running_loop().call_later(0.1 * (number + 1), beat.set)
    pieces = [piece for beat in beats for piece in (beat, b": still there\n\n")]
    async with Loopback(Reply((*pieces, WHOLE))) as server:
        assert (await collect(model(server, idle_timeout_seconds=0.5)))[-1].message.text == "hello"


@pytest.mark.parametrize("body", [b"", sse(text("hello")), sse(text("hello"))[:-9]], ids=["nothing", "some", "half"])
async def test_a_connection_that_breaks_in_the_middle_is_a_connection_error(body: bytes) -> None:
    async with Loopback(Reply((*filter(None, [body]), BREAK))) as server:
        with pytest.raises(ModelConnectionError, match="the connection broke before the answer's end") as caught:
            await collect(model(server))
        assert type(caught.value) is ModelConnectionError
        assert caught.value.retryable


async def test_no_server_is_a_connection_error_that_names_base_url() -> None:
    async with Loopback(Reply()) as server:
        url = server.url
    with pytest.raises(ModelConnectionError, match=r"cannot connect to 127.0.0.1:\d+ .* is base_url right") as caught:
        await collect(OpenAIChatModel("m", provider="ollama", base_url=url))
    assert caught.value.provider == "ollama"


# The kill switch


async def test_the_kill_switch_opens_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Loopback(Reply((WHOLE,))) as server:
        asked = model(server)
        await collect(asked)
        monkeypatch.setenv("TREADLE_MODEL_REQUESTS", "deny")
        with pytest.raises(ModelRequestsDenied, match="TREADLE_MODEL_REQUESTS=deny"):
            await collect(asked)
        async with httpx2.AsyncClient() as client:
            with pytest.raises(ModelRequestsDenied):
                await collect(model(server, client=client))
        monkeypatch.setenv("TREADLE_MODEL_REQUESTS", "allow")
        await collect(asked)
        assert (len(server.requests), server.connections) == (2, 1)


# A caller's own client


async def test_a_given_client_is_used_and_not_closed() -> None:
    async with Loopback(Reply((WHOLE,))) as server, httpx2.AsyncClient(headers={"x-team": "blue"}) as client:
        await collect(model(server, client=client))
        assert server.requests[0].headers["x-team"] == "blue"
        assert not client.is_closed


async def test_a_packed_answer_is_unpacked() -> None:
    import gzip

    packed = Reply((gzip.compress(WHOLE),), headers={"content-encoding": "gzip"})
    async with Loopback(packed) as server:
        assert (await collect(model(server)))[-1].message.text == "hello"


async def test_a_broken_packing_is_an_error_of_ours() -> None:
    async with Loopback(Reply((b"no gzip at all",), headers={"content-encoding": "gzip"})) as server:
        with pytest.raises(Exception, match="cannot be unpacked"):
            await collect(model(server))


async def test_extra_headers_travel_and_only_plain_ones_are_taken() -> None:
    from treadle.model import ModelSettings

    async with Loopback(Reply((WHOLE,))) as server:
        await collect(model(server), ModelRequest(None, HELLO, settings=ModelSettings(extra_headers={"x-a": "b"})))
        assert server.requests[0].headers["x-a"] == "b"
        assert server.requests[0].headers["authorization"] == "Bearer sk-test-secret"
        other = ModelSettings(extra_headers={"Authorization": "Bearer other"})
        await collect(model(server), ModelRequest(None, HELLO, settings=other))
        assert server.requests[1].headers["authorization"] == "Bearer other"
    for odd in ({"x-a": "ß"}, {"x-a": "sk-secret\n"}, {"x-a\r\nx-b": "sk-secret"}, {"x-a": 5}, {5: "sk-secret"}):
        with pytest.raises(ConfigError, match="extra_headers must be plain ASCII") as caught:
            ModelSettings(extra_headers=odd)  # type: ignore[arg-type]
        assert "sk-secret" not in str(caught.value) and "\n" not in str(caught.value)


async def test_cookies_of_one_model_reach_no_other() -> None:
    async with Loopback(Reply((WHOLE,), headers={"set-cookie": "who=one; Path=/"})) as server:
        await collect(model(server))
        await collect(model(server))
        assert "cookie" not in server.requests[1].headers


# Loops and threads

SCRIPT = """
import asyncio, sys, threading
from support.chat import HELLO, DONE, chunk, collect, model, sse, text
from support.loopback import Loopback, Reply
from treadle.providers import resolve, _connection

asked = {}

async def once(times=1):
    async with Loopback(Reply((sse(text("hello"), chunk({}, "stop"), DONE),))) as server:
        url = server.url
        mine = resolve("openai-chat:m", base_url=url, api_key="k")
        same = asked.setdefault("model", mine)
        same._url = mine._url
        for _ in range(times):
            assert (await collect(same))[-1].message.text == "hello"
"""


def run_script(code: str, *flags: str) -> None:
    """Runs it in development mode: an unclosed client or an unfinished generator would show on stderr."""
    measured = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    done = subprocess.run(
        [sys.executable, *(flags or ("-X", "dev", "-W", "error")), "-c", SCRIPT + code],
        env=measured,
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    noise = [line for line in done.stderr.splitlines() if not line.startswith("Executing <")]
    assert (done.returncode, noise) == (0, [])


def test_two_runs_of_asyncio_with_one_model_leave_nothing_open() -> None:
    run_script("asyncio.run(once(2)); asyncio.run(once()); assert not _connection._clients.loops")


def test_a_loop_closed_by_hand_does_not_harm_the_next() -> None:
    run_script(
        """
loop = asyncio.new_event_loop()
loop.run_until_complete(once())
loop.run_until_complete(loop.shutdown_asyncgens())
loop.close()
asyncio.run(once())
assert not _connection._clients.loops
"""
    )


def test_the_pool_of_a_loop_that_was_closed_too_soon_is_dropped_with_the_next() -> None:
    run_script(
        """
loop = asyncio.new_event_loop()
loop.run_until_complete(once())
loop.close()

async def next_one():
    await once()
    assert _connection._clients.loops == [asyncio.get_running_loop()]

asyncio.run(next_one())
""",
        "-W",
        "ignore",
    )


def test_a_stream_abandoned_with_its_loop_leaves_no_noise() -> None:
    run_script(
        """
from treadle.model import ModelRequest
from support.loopback import STALL

async def leave():
    async with Loopback(Reply((sse(text("a"), text("b")), STALL))) as server:
        stream = resolve("openai-chat:m", base_url=server.url, api_key="k").stream(ModelRequest(None, HELLO))
        async for event in stream:
            break

asyncio.run(leave())
"""
    )


async def test_a_loop_that_is_closed_by_hand_closes_its_pool() -> None:
    script = """
import asyncio
from treadle import Agent
from treadle.providers import resolve
loop = asyncio.new_event_loop()
async def main(url):
    return (await Agent(resolve("openai-chat:m", base_url=url, api_key="k")).run("hi")).text
import sys
print(loop.run_until_complete(main(sys.argv[1])))
loop.close()
assert loop.is_closed()
"""
    async with Loopback(Reply((WHOLE,))) as server:
        done = await asyncio.create_subprocess_exec(
            *(sys.executable, "-W", "error", "-c", script, server.url),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await bounded(done.communicate())
    assert (out, err) == (b"hello\n", b"")


async def test_several_threads_use_one_model_at_once() -> None:
    start = threading.Barrier(4)

    async def ask(asked: OpenAIChatModel, name: str) -> list[str]:
        request = ModelRequest(None, (UserMessage(name),))
        return [(await collect(asked, request))[-1].message.text for _ in range(10)]

    def work(asked: OpenAIChatModel, name: str) -> list[str]:
        start.wait(BOUND)
        return asyncio.run(ask(asked, name))

    async with Loopback(lambda seen: Reply((sse(text(seen.body["messages"][0]["content"]), DONE),))) as server:
        asked = model(server)
        names = ["red", "green", "blue", "grey"]
        found = await bounded(asyncio.gather(*(asyncio.to_thread(work, asked, name) for name in names)))
        assert found == [[name] * 10 for name in names]


def test_resolving_and_constructing_load_no_http_client() -> None:
    code = (
        "import sys; from treadle.providers import resolve; resolve('openai-chat:gpt-5', api_key='k');"
        "bad = [name for name in ('httpx2', 'httpcore2', 'anyio', 'pydantic') if name in sys.modules];"
        "assert not bad, bad"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
    assert resolve("openai-chat:gpt-5").name == "gpt-5"


async def test_a_model_finish_is_the_only_end() -> None:
    async with Loopback(Reply((WHOLE,))) as server:
        events = await collect(model(server))
        assert [type(event) for event in events] == [TextDelta, TextDelta, ModelFinish]
