"""Who may talk to the MCP server over HTTP, and how it takes what clients do to it."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from support import mcp_offer
from support.mcp_serving import BOUND, NEW, headers_of, post, request, serving
from treadle import ConfigError
from treadle.mcp import MCPServer, _serve_http, serve_mcp

ADD = request("tools/call", name="add", arguments={"a": 1, "b": 2})
SUM = {"total": 3}


def summed(response: httpx2.Response) -> bool:
    return response.status_code == 200 and response.json()["result"]["structuredContent"] == SUM


async def until(path: Path) -> None:
    """Waits for a file."""
    async with asyncio.timeout(BOUND):
        while not path.exists():  # noqa: ASYNC110 - another thread makes it
            await asyncio.sleep(0.005)


async def test_b095_web_pages_of_others_get_nothing_and_loopback_names_work():
    async with serving(mcp_offer.add) as url:
        port = urlsplit(url).port
        for host in (
            "evil.example",
            f"evil.example:{port}",
            "",
            "localhost.evil.example",
            "127.0.0.1@evil",
            "10.0.0.1",
        ):
            assert (await post(url, ADD, host=host)).status_code == 403, host
        for host in ("localhost", f"localhost:{port}", "LOCALHOST", "127.0.0.1", f"[::1]:{port}", "[::1]"):
            assert summed(await post(url, ADD, host=host)), host
        for origin in ("http://evil.example", "null", "file://", "http://localhost.evil.example", "http://[", ""):
            assert (await post(url, ADD, origin=origin)).status_code == 403, origin
        for origin in ("http://localhost", f"http://127.0.0.1:{port}", "https://localhost:3000", "http://[::1]:1"):
            assert summed(await post(url, ADD, origin=origin)), origin
        async with httpx2.AsyncClient() as client:
            asked = {"origin": "http://evil.example", "access-control-request-method": "POST"}
            foreign = await client.options(url, headers=asked)
            own = await client.options(url, headers=asked | {"origin": "http://localhost:3000"})
        assert (foreign.status_code, own.status_code) == (403, 405)
        plain = await post(url, ADD, content_type="text/plain")
        nothing = await post(url, ADD, content_type=None)
        form = await post(url, ADD, content_type="application/x-www-form-urlencoded")
        assert {plain.status_code, nothing.status_code, form.status_code} == {415}
        assert summed(await post(url, ADD, content_type="application/json; charset=utf-8"))
        answers = (foreign, own, plain, await post(url, ADD, origin="http://localhost"))
        assert not [name for answer in answers for name in answer.headers if name.startswith("access-control")]


async def test_two_hosts_in_one_request_are_refused():
    async with serving(mcp_offer.add) as url:
        parts = urlsplit(url)
        body = json.dumps(ADD)
        lines = ["POST /mcp HTTP/1.1", "Host: localhost", "Host: evil.example", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers_of(ADD).items()]
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        writer.write("\r\n".join([*lines, "", body]).encode())
        status = await asyncio.wait_for(reader.readline(), BOUND)
        writer.close()
        assert status.split()[1] in (b"400", b"403")


async def test_a_token_is_asked_for_where_there_is_one(monkeypatch):
    async def status(url: str, authorization: str | bytes | None) -> int:
        return (await post(url, ADD, authorization=authorization)).status_code

    async with serving(mcp_offer.add, token="s3cret") as url:
        for wrong in (
            None,
            "",
            "Bearer",
            "Bearer s3cre",
            "Bearer s3cret2",
            "Basic s3cret",
            "s3cret",
            "Bearer \u00e9".encode(),
        ):
            assert await status(url, wrong) == 401, wrong
        assert await status(url, "Bearer s3cret") == await status(url, "bearer s3cret") == 200
        refused = await post(url, ADD)
        assert refused.headers["www-authenticate"] == "Bearer" and "s3cret" not in refused.text
        async with MCPServer.http(url, token="s3cret") as server:
            assert [tool.name for tool in await server.tools()] == ["add"]
    monkeypatch.setenv("TREADLE_MCP_TOKEN", "of-the-environment")
    async with serving(mcp_offer.add) as url:
        assert (await status(url, None), await status(url, "Bearer of-the-environment")) == (401, 200)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
async def test_other_addresses_than_loopback_need_a_token_to_start(host, monkeypatch):
    monkeypatch.delenv("TREADLE_MCP_TOKEN", raising=False)
    with pytest.raises(ConfigError, match="can be reached from other machines"):
        await asyncio.wait_for(serve_mcp(mcp_offer.add, "http", host=host, port=0), BOUND)


async def test_an_open_address_answers_to_addresses_and_to_the_names_it_was_given():
    async with serving(mcp_offer.add, host="0.0.0.0", token="t", hosts=["tools.example"]) as shown:
        url = shown.replace("0.0.0.0", "127.0.0.1")
        key = "Bearer t"
        for host in ("192.0.2.7:8000", "tools.example", "localhost"):
            assert summed(await post(url, ADD, host=host, authorization=key)), host
        assert (await post(url, ADD, host="evil.example", authorization=key)).status_code == 403
        assert (await post(url, ADD, origin="http://192.0.2.7", authorization=key)).status_code == 403
        assert summed(await post(url, ADD, origin="https://tools.example", authorization=key))


async def test_ipv6_loopback_works():
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    async with serving(mcp_offer.add, host="::1") as url:
        assert url.startswith("http://[::1]:") and summed(await post(url, ADD))


async def test_requests_that_are_none_are_answered_with_errors():
    async with serving(mcp_offer.add) as url:
        async with httpx2.AsyncClient(timeout=BOUND) as client:
            wrong_path = await client.post(url + "x", json={})
            put = await client.put(url, json={})
            headers = headers_of(ADD)
            broken = await client.post(url, content=b'{"jsonrpc": "2.0", ', headers=headers)
            deep = await client.post(url, content=b"[" * 100_000, headers=headers)
            large = await client.post(url, content=b" " * (_serve_http.MAX_BODY_BYTES + 1), headers=headers)

            async def endless():
                for _ in range(_serve_http.MAX_BODY_BYTES // 65536 + 2):
                    yield b" " * 65536

            chunked = await client.post(url, content=endless(), headers=headers)
            assert summed(await client.post(url + "/", json=ADD, headers=headers))
        assert [wrong_path.status_code, put.status_code] == [404, 405]
        assert broken.status_code == deep.status_code == 400 and broken.json()["error"]["code"] == -32700
        assert large.status_code == chunked.status_code == 413


async def test_a_body_that_never_ends_is_not_waited_for():
    async def reads_its_body(_scope, receive, _send):
        while True:
            await receive()

    pieces = iter([{"type": "http.request", "body": b"{", "more_body": True}])

    async def receive():
        return next(pieces, None) or await asyncio.Event().wait()

    sent = []

    async def send(message):
        sent.append(message)

    guard = _serve_http.Guard(reads_its_body, frozenset({"localhost"}), by_address=False, token=None, body_seconds=0.02)
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/mcp", "headers": headers}
    await asyncio.wait_for(guard(scope, receive, send), BOUND)
    assert sent[0]["status"] == 408


async def test_a_client_that_hangs_up_stops_its_call(tmp_path):
    async with serving([mcp_offer.wait, mcp_offer.add]) as url:
        body = request("tools/call", name="wait", arguments={"folder": str(tmp_path)})
        call = asyncio.create_task(post(url, body))
        await until(tmp_path / "started")
        call.cancel()
        await until(tmp_path / "stopped")
        assert summed(await post(url, ADD))


async def test_leaving_ends_calls_and_open_streams_soon(tmp_path):
    loop = asyncio.get_running_loop()
    async with create_mcp_http_client() as http:
        async with serving([mcp_offer.wait, mcp_offer.block]) as url:
            transport = streamable_http_client(url, http_client=http)
            client = Client(transport, mode="legacy", read_timeout_seconds=BOUND)
            await client.__aenter__()  # with a stream that stays open
            folders = [tmp_path / name for name in ("wait", "block")]
            for folder in folders:
                folder.mkdir()
            calls = [asyncio.create_task(client.call_tool(folder.name, {"folder": str(folder)})) for folder in folders]
            for folder in folders:
                await until(folder / "started")
            before = loop.time()
        assert loop.time() - before < _serve_http.GRACE_SECONDS + 8
        assert (tmp_path / "wait" / "stopped").exists()
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await client.__aexit__(None, None, None)


class OldClient:
    """A session of the older protocol, request by request."""

    def __init__(self, http: httpx2.AsyncClient, url: str) -> None:
        self._http = http
        self._url = url
        self.headers = {"accept": "application/json, text/event-stream"}

    async def open(self) -> None:
        opening = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
        opened = await self.send("initialize", 1, opening)
        self.headers |= {"mcp-session-id": opened.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}
        assert (await self.send("notifications/initialized", None, {})).status_code == 202

    async def send(self, method: str, id: int | None, params: dict[str, Any]) -> httpx2.Response:
        body = {"jsonrpc": "2.0", "method": method, "params": params} | ({} if id is None else {"id": id})
        return await self._http.post(self._url, json=body, headers=self.headers)

    async def close(self) -> httpx2.Response:
        return await self._http.delete(self._url, headers=self.headers)


async def test_a_session_of_the_older_protocol_outlives_a_lost_connection_and_ends_with_its_deletion(tmp_path):
    async with (
        serving([mcp_offer.add, mcp_offer.wait]) as url,
        httpx2.AsyncClient(timeout=BOUND) as http,
    ):
        client = OldClient(http, url)
        await client.open()
        waiting = {"name": "wait", "arguments": {"folder": str(tmp_path)}}
        lost = asyncio.create_task(client.send("tools/call", 2, waiting))
        await until(tmp_path / "started")
        lost.cancel()
        called = await client.send("tools/call", 3, {"name": "add", "arguments": {"a": 1, "b": 2}})
        assert '"structuredContent":{"total":3}' in called.text
        assert not (tmp_path / "stopped").exists()  # the protocol says so: a lost connection cancels nothing here
        assert (await client.close()).status_code == 200
        await until(tmp_path / "stopped")
        assert (await client.send("ping", 4, {})).status_code == 404


def test_the_newest_protocol_is_the_one_that_is_tested():
    from mcp_types.version import LATEST_MODERN_VERSION

    assert LATEST_MODERN_VERSION == NEW
