"""The adapters over aiohttp: what holds for httpx2's own connections holds here."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import gzip
import socket
import ssl
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import httpx2
import msgspec
import pytest

from support.chat import DONE, HELLO, chunk, collect, model, sse, text, usage
from support.loopback import BOUND, BREAK, STALL, Loopback, Reply
from support.recorded import names_of
from treadle import Agent, tool
from treadle.errors import (
    AuthenticationError,
    ConfigError,
    ModelConnectionError,
    ModelError,
    ModelResponseError,
    StreamIdleError,
)
from treadle.events import TextDelta, ToolFinish
from treadle.messages import UserMessage
from treadle.model import ModelRequest
from treadle.providers import aiohttp_transport, resolve
from treadle.providers.openai_chat import OpenAIChatModel

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from support.recorded import Recordings

WHOLE = sse(text("hel"), text("lo"), chunk({}, "stop"), usage(), DONE)
GO = ModelRequest(None, HELLO)


@pytest.fixture
async def client() -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(transport=aiohttp_transport()) as made:
        yield made


def others() -> set[asyncio.Task[Any]]:
    return {task for task in asyncio.all_tasks() if task is not asyncio.current_task()}


async def bounded(awaitable: Any) -> Any:
    return await asyncio.wait_for(awaitable, BOUND)


@contextlib.asynccontextmanager
async def raw_server(answer: bytes, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A server that notes the head of each request and sends these bytes, then closes."""
    heads: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            heads.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(answer)
            await writer.drain()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    server = await asyncio.start_server(talk, "127.0.0.1", 0, ssl=tls)
    async with server:
        yield f"http{'s' * (tls is not None)}://127.0.0.1:{server.sockets[0].getsockname()[1]}", heads


@contextlib.asynccontextmanager
async def quiet_server() -> AsyncIterator[tuple[str, asyncio.Event, asyncio.Event]]:
    """A server that takes connections and never says a word; the events: it was asked, the client left."""
    asked, left = asyncio.Event(), asyncio.Event()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        asked.set()
        await reader.read(-1)
        left.set()
        writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", asked, left
        await bounded(left.wait())


# Reuse


async def test_a_connection_is_used_again_for_the_next_request(client: httpx2.AsyncClient) -> None:
    async with Loopback(Reply((WHOLE,))) as server:
        for name in ("one", "two", "two"):
            assert (await collect(model(server, name, client=client)))[-1].message.text == "hello"
        assert (len(server.requests), server.connections) == (3, 1)


async def test_a_connection_is_used_again_when_the_body_ends_a_moment_after_done(client: httpx2.AsyncClient) -> None:
    async with Loopback(Reply((WHOLE, b": bye\n\n"))) as server:
        for _ in range(2):
            await collect(model(server, client=client))
        assert server.connections == 1


async def test_a_connection_is_used_again_after_a_refusal(client: httpx2.AsyncClient) -> None:
    refusal = Reply((b'{"error": {"message": "no"}}',), status=401, content_type="application/json", whole=True)
    async with Loopback(refusal, Reply((WHOLE,))) as server:
        with pytest.raises(AuthenticationError, match="no"):
            await collect(model(server, client=client))
        await collect(model(server, client=client))
        assert server.connections == 1


async def test_a_connection_that_the_server_closed_while_the_loop_was_blocked_is_not_used(
    client: httpx2.AsyncClient,
) -> None:
    closed = threading.Event()

    def serve(listener: socket.socket) -> None:
        for _ in range(2):
            connection, _ = listener.accept()
            while b"\r\n\r\n" not in connection.recv(65_536):
                pass
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
            closed.wait(BOUND)
            connection.close()
            told.set()

    told = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        assert (await client.get(url)).text == "ok"
        closed.set()
        assert told.wait(BOUND)  # blocks the loop
        assert (await client.post(url, content=b"again")).text == "ok"
        thread.join(BOUND)


async def test_a_server_that_keeps_the_body_open_after_done_does_not_hang_us(client: httpx2.AsyncClient) -> None:
    async with Loopback(Reply((WHOLE, STALL))) as server:
        assert (await collect(model(server, client=client)))[-1].message.text == "hello"
        await bounded(server.left.wait())


async def test_five_hundred_streams_run_at_once(client: httpx2.AsyncClient) -> None:
    gate = asyncio.Event()

    def reply(seen: Any) -> Reply:
        if len(server.requests) == 500:
            gate.set()
        return Reply((sse(text("for ")), gate, sse(text(seen.body["messages"][0]["content"]), chunk({}, "stop"), DONE)))

    async with Loopback(reply) as server:
        asked = model(server, client=client)
        requests = [ModelRequest(None, (UserMessage(f"run {number}"),)) for number in range(500)]
        found = await asyncio.wait_for(asyncio.gather(*(collect(asked, request) for request in requests)), 60)
        assert [events[-1].message.text for events in found] == [f"for run {number}" for number in range(500)]
        assert server.connections == 500


# Ending early


async def test_leaving_a_stream_early_closes_the_connection_and_leaves_no_task(client: httpx2.AsyncClient) -> None:
    async with Loopback(Reply((sse(text("hello"), text(" there")), STALL)), Reply((WHOLE,))) as server:
        before = others()
        stream = model(server, client=client).stream(GO)
        assert await bounded(anext(stream)) == TextDelta(text="hello")
        alive = others() - before  # the server's
        await bounded(stream.aclose())
        await bounded(server.left.wait())
        gc.collect()
        assert others() - before - alive == set()
        await collect(model(server, client=client))
        assert server.connections == 2


async def test_a_cancel_while_the_model_speaks_closes_the_connection(client: httpx2.AsyncClient) -> None:
    got_some = asyncio.Event()

    async def consume(asked: OpenAIChatModel) -> None:
        async for _ in asked.stream(GO):
            got_some.set()

    async with Loopback(Reply((sse(text("hello")), STALL))) as server:
        before = others()
        task = asyncio.create_task(consume(model(server, client=client)))
        await bounded(got_some.wait())
        alive = others() - before - {task}
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await bounded(task)
        await bounded(server.left.wait())
        assert others() - before - alive == set()


async def test_a_cancel_before_the_answer_begins_closes_the_connection(client: httpx2.AsyncClient) -> None:
    async with quiet_server() as (address, asked, left):
        task = asyncio.create_task(collect(OpenAIChatModel("m", base_url=f"http://{address}", client=client)))
        await bounded(asked.wait())
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await bounded(task)
        await bounded(left.wait())


async def test_a_body_read_after_its_end_or_close_gives_nothing_more(client: httpx2.AsyncClient) -> None:
    async with Loopback(Reply((WHOLE,)), Reply((WHOLE, STALL))) as server:
        async with client.stream("GET", server.url) as response:
            body = aiter(response.stream)
            assert b"".join([piece async for piece in body]) == WHOLE
            assert [piece async for piece in body] == []
        async with client.stream("GET", server.url) as response:
            inner = response.stream._stream  # the transport's own
            assert (await anext(aiter(inner))).startswith(b"data:")
        assert [piece async for piece in inner] == []


# Stalls and breaks


@pytest.mark.parametrize("begun", [True, False])
async def test_a_stall_is_an_idle_error(client: httpx2.AsyncClient, begun: bool) -> None:
    async with Loopback(Reply((sse(text("hello")), STALL) if begun else (STALL,))) as server:
        with pytest.raises(StreamIdleError, match=r"m: nothing came for 0\.05 seconds") as caught:
            await collect(model(server, client=client, idle_timeout_seconds=0.05))
        assert caught.value.retryable
        assert isinstance(caught.value.__cause__, httpx2.ReadTimeout)
        await bounded(server.left.wait())


async def test_a_server_that_never_answers_is_an_idle_error(client: httpx2.AsyncClient) -> None:
    async with quiet_server() as (address, _, _):
        with pytest.raises(StreamIdleError):
            await collect(OpenAIChatModel("m", base_url=f"http://{address}", client=client, idle_timeout_seconds=0.05))


async def test_keepalives_hold_the_idle_timeout_off(client: httpx2.AsyncClient) -> None:
    beats = [asyncio.Event() for _ in range(8)]
    for number, beat in enumerate(beats):
        asyncio.get_running_loop().call_later(0.1 * (number + 1), beat.set)
    pieces = [piece for beat in beats for piece in (beat, b": still there\n\n")]
    async with Loopback(Reply((*pieces, WHOLE))) as server:
        asked = model(server, client=client, idle_timeout_seconds=0.5)
        assert (await collect(asked))[-1].message.text == "hello"


@pytest.mark.parametrize("body", [b"", sse(text("hello")), sse(text("hello"))[:-9]], ids=["nothing", "some", "half"])
async def test_a_connection_that_breaks_in_the_middle_is_a_connection_error(
    client: httpx2.AsyncClient, body: bytes
) -> None:
    async with Loopback(Reply((*filter(None, [body]), BREAK))) as server:
        with pytest.raises(ModelConnectionError, match="the connection broke before the answer's end") as caught:
            await collect(model(server, client=client))
        assert type(caught.value) is ModelConnectionError
        assert caught.value.retryable


CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc",
        CHUNKED + b"3\r\nabc\r\n",
        CHUNKED + b"3\r\nabc\r\nzz\r\n",
    ],
    ids=["no answer", "no HTTP", "short body", "no last chunk", "broken chunk"],
)
async def test_an_answer_that_is_no_whole_http_is_a_retryable_connection_error(
    client: httpx2.AsyncClient, answer: bytes
) -> None:
    async with raw_server(answer) as (url, _):
        with pytest.raises(ModelConnectionError, match="the connection broke before the answer's end") as caught:
            await collect(OpenAIChatModel("m", base_url=url, client=client))
        assert caught.value.retryable
        assert isinstance(caught.value.__cause__, httpx2.RemoteProtocolError)
        assert "\n" not in str(caught.value)


async def test_no_server_is_a_connection_error_that_names_base_url(client: httpx2.AsyncClient) -> None:
    async with Loopback(Reply()) as server:
        url = server.url
    with pytest.raises(ModelConnectionError, match=r"cannot connect .* is base_url right") as caught:
        await collect(OpenAIChatModel("m", base_url=url, client=client))
    assert isinstance(caught.value.__cause__, httpx2.ConnectError)


async def test_an_unknown_host_is_a_connection_error(client: httpx2.AsyncClient) -> None:
    with pytest.raises(ModelConnectionError, match="cannot connect"):
        await collect(OpenAIChatModel("m", base_url="http://nothing.invalid", client=client))


async def test_a_server_that_does_not_take_a_connection_in_time_is_a_connect_timeout() -> None:
    timeout = httpx2.Timeout(None, connect=0.05)
    async with (
        quiet_server() as (address, _, _),
        httpx2.AsyncClient(transport=aiohttp_transport(), timeout=timeout) as client,
    ):
        asked = OpenAIChatModel(
            "m", base_url=f"https://{address}", client=client
        )  # the TLS handshake is never answered
        with pytest.raises(ModelConnectionError, match=r"no connection to 127\.0\.0\.1:\d+ within") as caught:
            await collect(asked)
        assert isinstance(caught.value.__cause__, httpx2.ConnectTimeout)


async def test_a_certificate_that_nobody_signed_is_a_connection_error(client: httpx2.AsyncClient, tmp_path) -> None:
    trusted, tls = certificate(tmp_path)
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
    async with raw_server(answer, tls=tls) as (url, _):
        with pytest.raises(httpx2.ConnectError, match="certificate"):
            await client.get(url)
        async with httpx2.AsyncClient(transport=aiohttp_transport(ssl_context=trusted)) as knowing:
            assert (await knowing.get(url)).text == "ok"


def certificate(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """What trusts a new certificate for this machine, and what serves with it."""
    key, pem = folder / "key.pem", folder / "certificate.pem"
    subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", *subject]
    try:
        subprocess.run([*command, "-keyout", str(key), "-out", str(pem)], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("no openssl here")
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(pem, key)
    return ssl.create_default_context(cafile=str(pem)), serving


# What travels


async def test_the_request_arrives_as_httpx2_would_send_it(client: httpx2.AsyncClient) -> None:
    async def sent(asked: httpx2.AsyncClient) -> list[bytes]:
        async with raw_server(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n") as (url, heads):
            port = url.rpartition(":")[2].encode()
            for method in ("GET", "POST", "PUT"):
                await asked.request(
                    method, f"{url}/a%2Fb%3Ac/%41?x=%41&y=a+b%3A", headers={"X-Two-Words": "grüß".encode()}
                )
            await asked.post(url, content=b"body")
        return sorted(line.lower() for head in heads for line in head.replace(port, b"PORT").split(b"\r\n"))

    async with httpx2.AsyncClient() as plain:
        assert await sent(client) == await sent(plain)


async def test_a_large_body_and_one_of_unknown_length_arrive_whole(client: httpx2.AsyncClient) -> None:
    big = b"x" * 3_000_000

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield big[:1_000_000]

    async with Loopback(Reply((b"ok",))) as server:
        await client.post(server.url, content=big)
        assert server.requests[0].raw == big
    received: list[bytes] = []

    async def chunked(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await reader.readuntil(b"\r\n\r\n"))
        received.append(await reader.readuntil(b"\r\n0\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(chunked, "127.0.0.1", 0, limit=1 << 26)
    async with server:
        await client.post(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", content=pieces())
    assert received[0].lower().count(b"transfer-encoding: chunked") == 1
    assert received[1].count(b"x") == len(big)


async def test_a_header_with_a_line_end_is_refused_before_it_is_sent(client: httpx2.AsyncClient) -> None:
    async with raw_server(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n") as (url, heads):
        with pytest.raises(httpx2.LocalProtocolError):
            await client.get(url, headers={"x-a": "b\r\nx-b: c"})
        assert heads == []


async def test_an_address_that_is_no_http_is_refused(client: httpx2.AsyncClient) -> None:
    with pytest.raises(httpx2.UnsupportedProtocol):
        await client.get("ftp://127.0.0.1/file")


async def test_a_redirect_is_an_answer_and_not_followed(client: httpx2.AsyncClient) -> None:
    async with Loopback(Reply(status=307, headers={"location": "/elsewhere"})) as server:
        with pytest.raises(ModelError, match="307"):
            await collect(model(server, client=client))
        assert len(server.requests) == 1


async def test_a_packed_answer_is_unpacked_once(client: httpx2.AsyncClient) -> None:
    packed = Reply((gzip.compress(WHOLE),), headers={"content-encoding": "gzip"})
    async with Loopback(packed) as server:
        assert (await collect(model(server, client=client)))[-1].message.text == "hello"


async def test_a_broken_packing_is_an_error_of_ours(client: httpx2.AsyncClient) -> None:
    async with Loopback(Reply((b"no gzip at all",), headers={"content-encoding": "gzip"})) as server:
        with pytest.raises(ModelResponseError, match="cannot be unpacked"):
            await collect(model(server, client=client))


async def test_the_transport_keeps_no_cookies() -> None:
    transport = aiohttp_transport()
    async with Loopback(Reply((WHOLE,), headers={"set-cookie": "who=one; Path=/"})) as server:
        url = server.url.replace("127.0.0.1", "localhost")  # aiohttp's own jar takes none from bare addresses
        for _ in range(2):
            async with httpx2.AsyncClient(transport=Unclosed(transport)) as client:
                assert (await client.get(url)).headers["set-cookie"] == "who=one; Path=/"
        assert "cookie" not in server.requests[1].headers
    await transport.aclose()


class Unclosed(httpx2.AsyncBaseTransport):
    """A transport that outlives the client it is in."""

    def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
        self.handle_async_request = inner.handle_async_request  # type: ignore[method-assign]


# Proxies


@pytest.fixture
def proxied(monkeypatch: pytest.MonkeyPatch) -> Any:
    def through(url: str) -> None:
        for variable in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "NO_PROXY", "no_proxy"):
            monkeypatch.delenv(variable, raising=False)
        monkeypatch.setenv("ALL_PROXY", url)

    return through


async def test_a_proxy_of_the_environment_is_used_with_its_password(proxied: Any) -> None:
    async with Loopback(Reply((b"by proxy",))) as proxy:
        proxied(proxy.origin.replace("//", "//me:secret@"))
        async with httpx2.AsyncClient(transport=aiohttp_transport()) as client:
            assert (await client.get("http://provider.invalid/v1")).text == "by proxy"
        assert proxy.requests[0].path == "http://provider.invalid/v1"
        assert proxy.requests[0].headers["proxy-authorization"] == "Basic bWU6c2VjcmV0"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_server_on_this_machine_is_asked_past_any_proxy(proxied: Any, host: str) -> None:
    async with Loopback(Reply((WHOLE,))) as server, Loopback(Reply(status=502)) as proxy:
        proxied(proxy.origin)
        async with httpx2.AsyncClient(transport=aiohttp_transport()) as client:
            await collect(OpenAIChatModel("m", base_url=server.url.replace("127.0.0.1", host), client=client))
        assert (len(server.requests), len(proxy.requests)) == (1, 0)


async def test_no_proxy_and_trust_env_keep_the_proxy_out(proxied: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Loopback(Reply((b"by proxy",))) as proxy:
        proxied(proxy.origin)
        async with httpx2.AsyncClient(transport=aiohttp_transport(trust_env=False)) as client:
            with pytest.raises(httpx2.ConnectError):
                await client.get("http://provider.invalid")
        monkeypatch.setenv("NO_PROXY", ".invalid")
        async with httpx2.AsyncClient(transport=aiohttp_transport()) as client:
            with pytest.raises(httpx2.ConnectError):
                await client.get("http://provider.invalid")
            assert (await client.get("http://other.test")).text == "by proxy"


@pytest.mark.parametrize(
    ("status", "url", "expected"),
    [(407, "https://provider.invalid", "the proxy refused"), (None, "http://provider.invalid", "the proxy refused")],
)
async def test_a_proxy_that_refuses_is_told_as_one_without_its_password(
    proxied: Any, status: int | None, url: str, expected: str
) -> None:
    async with Loopback(Reply(status=status or 200, content_type=None, whole=True)) as proxy:
        proxied(proxy.origin.replace("//", "//me:secret@"))
        if status is None:
            await proxy.__aexit__()
        async with httpx2.AsyncClient(transport=aiohttp_transport()) as client:
            with pytest.raises(ModelConnectionError, match=expected) as caught:
                await collect(OpenAIChatModel("m", base_url=url, client=client))
        assert "secret" not in str(caught.value)
        assert "secret" not in str(caught.value.__cause__)


async def test_a_proxy_of_another_kind_is_refused_with_the_fix(proxied: Any) -> None:
    proxied("socks5://127.0.0.1:1080")
    async with httpx2.AsyncClient(transport=aiohttp_transport()) as client:
        with pytest.raises(ConfigError, match="aiohttp knows no socks5 proxy: name an http one in HTTPS_PROXY"):
            await collect(OpenAIChatModel("m", base_url="https://provider.invalid", client=client))


# Loops, closing, the extra

SCRIPT = """
import asyncio, gc, sys
import httpx2
from support.chat import HELLO, DONE, chunk, collect, sse, text
from support.loopback import STALL, Loopback, Reply
from treadle.model import ModelRequest
from treadle.providers import aiohttp_transport, resolve

client = httpx2.AsyncClient(transport=aiohttp_transport())

async def once(close=False):
    async with Loopback(Reply((sse(text("hello"), chunk({}, "stop"), DONE),))) as server:
        asked = resolve("openai-chat:m", base_url=server.url, api_key="k", client=client)
        for _ in range(2):
            assert (await collect(asked))[-1].message.text == "hello"
        assert server.connections == 1
    if close:
        await client.aclose()
"""


def run_script(code: str) -> None:
    """Runs it in development mode: an unclosed session or connection would show on stderr."""
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", SCRIPT + code],
        cwd=__file__.rpartition("/providers/")[0],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    noise = [line for line in done.stderr.splitlines() if not line.startswith("Executing <")]
    assert (done.returncode, noise) == (0, [])


@pytest.mark.parametrize(
    "code",
    [
        "asyncio.run(once(close=True)); gc.collect()",
        "asyncio.run(once()); asyncio.run(once()); gc.collect()",
        "loop = asyncio.new_event_loop(); loop.run_until_complete(once()); loop.close(); asyncio.run(once())",
        """
import threading
threads = [threading.Thread(target=lambda: asyncio.run(once())) for _ in range(4)]
[thread.start() for thread in threads]; [thread.join() for thread in threads]; gc.collect()
""",
        """
async def leave():
    async with Loopback(Reply((sse(text("a"), text("b")), STALL))) as server:
        asked = resolve("openai-chat:m", base_url=server.url, api_key="k", client=client)
        async for event in asked.stream(ModelRequest(None, HELLO)):
            break

asyncio.run(leave()); gc.collect()
""",
    ],
    ids=["closed", "two loops", "closed by hand", "threads", "abandoned"],
)
def test_a_client_leaves_nothing_open_behind_its_loops(code: str) -> None:
    run_script(code)


async def test_closing_the_client_closes_its_idle_connections() -> None:
    async with Loopback(Reply((WHOLE,))) as server:
        async with httpx2.AsyncClient(transport=aiohttp_transport()) as client:
            await collect(model(server, client=client))
            serving = {task for task in server._tasks if not task.done()}
            assert len(serving) == 1
        await bounded(asyncio.wait(serving))


def test_the_missing_extra_is_named() -> None:
    code = (
        "import sys; sys.modules['aiohttp'] = None\n"
        "from treadle.providers import aiohttp_transport\n"
        "try: aiohttp_transport()\n"
        "except ValueError as error: print(type(error).__name__, error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == 'ConfigError aiohttp_transport() needs aiohttp: pip install "treadle[aiohttp]"\n'


async def test_an_agent_runs_over_it(client: httpx2.AsyncClient) -> None:
    @tool(effect="read")
    def double(number: int) -> int:
        """Double a number."""
        return number * 2

    call = {"index": 0, "id": "a", "function": {"name": "double", "arguments": '{"number": 21}'}}
    first = sse(chunk({"tool_calls": [call]}), chunk({}, "tool_calls"), DONE)
    async with Loopback(Reply((first,)), Reply((sse(text("42"), chunk({}, "stop"), DONE),))) as server:
        result = await Agent(model(server, client=client), tools=[double]).run("twice 21?")
        assert result.text == server.requests[1].body["messages"][-1]["content"] == "42"
        assert server.connections == 1


# Recorded traffic

ADAPTERS = {"chat": "openai-chat", "anthropic": "anthropic", "responses": "openai", "google": "google"}


def streams(recordings: Recordings, wire: str) -> list[tuple[str, bytes]]:
    """The bodies of all recorded streams of one wire, by name."""
    found = []
    for name in names_of(wire):
        for number, exchange in enumerate(recordings.load(name)["exchanges"]):
            answer = exchange["response"]
            if answer["status"] == 200 and "event-stream" in answer["headers"].get("content-type", ""):
                found.append((f"{name} {number}", answer["body"].encode()))
    return found


async def replayed(adapter: str, body: bytes, size: int, client: httpx2.AsyncClient | None) -> Any:
    """The events of this body in pieces of `size` bytes, or the error."""
    pieces = tuple(body[at : at + size] for at in range(0, len(body), size))
    async with Loopback(Reply(pieces)) as server:
        asked = resolve(f"{adapter}:m", base_url=server.url, api_key="k", client=client)
        try:
            events = [event async for event in asked.stream(ModelRequest(None, HELLO, max_output_tokens=64))]
        except ModelError as error:
            return type(error), str(error)
    took = {"duration_seconds": 0.0}
    return [msgspec.structs.replace(event, **took) if isinstance(event, ToolFinish) else event for event in events]


@pytest.mark.parametrize("wire", ADAPTERS)
@pytest.mark.parametrize("size", [7, 100_000])
async def test_every_recorded_stream_gives_the_same_events_as_over_httpx2(
    recordings: Recordings, client: httpx2.AsyncClient, wire: str, size: int
) -> None:
    bodies = streams(recordings, wire)
    assert len(bodies) > 10
    if size < 100:
        bodies = sorted(bodies, key=lambda named: len(named[1]))[:12]  # a chunk for every few bytes is slow
    for name, body in bodies:
        ours = await bounded(replayed(ADAPTERS[wire], body, size, client))
        assert ours == await bounded(replayed(ADAPTERS[wire], body, size, None)), name
