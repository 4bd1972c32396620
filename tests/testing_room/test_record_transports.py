"""Recording and replaying whole HTTP answers at the client."""

from __future__ import annotations

import asyncio
import json
import os

import httpx2
import pytest

from support import chat, claude, google, responses
from support.loopback import BREAK, STALL, Loopback, Reply
from support.runs import bounded
from treadle import AuthenticationError, ModelConnectionError, ModelRequestsDenied
from treadle.messages import UserMessage
from treadle.model import ModelRequest
from treadle.testing import RecordingError, ReplayMismatch, recording_transport, replaying_transport

BODIES = {
    "chat": (chat, chat.sse(chat.text("Grüße"), chat.text("!"), chat.chunk(finish="stop"), chat.usage(), chat.DONE)),
    "anthropic": (claude, claude.answer(*claude.text("Grüße", "!"))),
    "openai": (
        responses,
        responses.sse(
            responses.added(0, responses.message()),
            responses.text("Grüße!"),
            responses.done(0, responses.message("Grüße!")),
            responses.completed(responses.message("Grüße!"), usage=responses.usage()),
        ),
    ),
    "google": (google, google.sse(google.chunk(google.text("Grüße")), google.chunk(google.text("!")), google.STOP)),
}


@pytest.fixture
def file(tmp_path):
    return tmp_path / "bodies.jsonl"


def recording(file):
    return httpx2.AsyncClient(transport=recording_transport(httpx2.AsyncHTTPTransport(), file))


def replaying(file):
    return httpx2.AsyncClient(transport=replaying_transport(file))


def lines(file):
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


class Nowhere:
    """Stands for a server that is not there."""

    url = "http://nowhere.invalid/v1"
    origin = "http://nowhere.invalid"


@pytest.mark.parametrize("adapter", BODIES)
async def test_an_adapter_reads_the_same_from_the_recording(file, adapter):
    kit, body = BODIES[adapter]
    pieces = tuple(body[at : at + 7] for at in range(0, len(body), 7))
    async with Loopback(Reply(pieces)) as server, recording(file) as client:
        recorded = await kit.collect(kit.model(server, client=client))
    async with replaying(file) as client:
        replayed = await kit.collect(kit.model(Nowhere(), client=client, api_key="another key"))
    assert replayed[-1] == recorded[-1]
    assert replayed[-1].message.text == "Grüße!"
    assert [type(event) for event in replayed] == [type(event) for event in recorded]
    _, line = lines(file)
    assert line["answer"]["body"].encode() == body
    assert line["request"]["json"] == server.requests[0].body
    assert line["request"]["path"] == server.requests[0].path
    assert line["request"]["method"] == "POST"
    assert set(line["request"]["headers"]) <= {"content-type", "anthropic-version", "anthropic-beta"}


async def test_any_bytes_come_back_as_they_were(file):
    every = bytes(range(256)) * 3
    async with Loopback(Reply((every[:100], every[100:]), content_type="image/png")) as server:  # noqa: SIM117
        async with recording(file) as client:
            assert (await client.put(f"{server.url}/a?b=c&d=%20", content=every)).content == every
    async with replaying(file) as client:
        response = await client.put(f"{Nowhere.url}/a?b=c&d=%20", content=every)
    assert response.content == every
    assert response.headers["content-type"] == "image/png"


async def test_a_refusal_keeps_its_status_and_the_headers_that_matter(file):
    body = json.dumps({"error": {"message": "wrong key"}}).encode()
    head = {"retry-after": "7", "x-request-id": "req_1", "set-cookie": "a=b", "server": "x"}
    async with Loopback(Reply((body,), status=401, content_type="application/json", headers=head)) as server:  # noqa: SIM117
        async with recording(file) as client:
            with pytest.raises(AuthenticationError):
                await chat.collect(chat.model(server, client=client))
    assert lines(file)[1]["answer"]["headers"] == {
        "content-type": "application/json",
        "retry-after": "7",
        "x-request-id": "req_1",
    }
    async with replaying(file) as client:
        with pytest.raises(AuthenticationError) as caught:
            await chat.collect(chat.model(Nowhere(), client=client))
    assert (caught.value.status, caught.value.request_id) == (401, "req_1")


async def test_a_body_that_broke_breaks_again_at_its_end(file):
    async with Loopback(Reply((chat.sse(chat.text("Half")), BREAK))) as server, recording(file) as client:
        with pytest.raises(ModelConnectionError) as recorded:
            await chat.collect(chat.model(server, client=client))
    async with replaying(file) as client:
        stream = chat.model(Nowhere(), client=client).stream(ModelRequest(None, chat.HELLO))
        assert (await anext(stream)).text == "Half"
        with pytest.raises(ModelConnectionError) as replayed:
            await anext(stream)
    assert str(replayed.value) == str(recorded.value)


async def test_a_connection_that_failed_fails_again(file):
    async with Loopback(Reply()) as server:
        pass
    async with recording(file) as client:
        with pytest.raises(ModelConnectionError, match="cannot connect"):
            await chat.collect(chat.model(server, client=client))
    async with replaying(file) as client:
        with pytest.raises(ModelConnectionError, match="cannot connect"):
            await chat.collect(chat.model(Nowhere(), client=client))


async def test_a_request_that_differs_is_told_by_its_fields(file):
    async with Loopback(Reply((BODIES["chat"][1],))) as server, recording(file) as client:
        await chat.collect(chat.model(server, client=client))
    with pytest.raises(ReplayMismatch) as caught:
        async with replaying(file) as client:
            await chat.collect(chat.model(Nowhere(), "other", client=client), ModelRequest(None, (UserMessage("Bye"),)))
    assert caught.value.differences == (
        "json.messages[0 user].content: recorded 'hello', now 'Bye'",
        "json.model: recorded 'm', now 'other'",
    )


async def test_requests_that_nobody_made_are_told_when_the_client_is_closed(file):
    async with Loopback(Reply((b"{}",), content_type="application/json")) as server, recording(file) as client:
        await client.get(f"{server.url}/one")
        await client.get(f"{server.url}/two")
    with pytest.raises(ReplayMismatch, match=r"1 of 2 requests in .* were not made:\n  line 3: GET /v1/two"):
        async with replaying(file) as client:
            await client.get(f"{Nowhere.url}/one")


async def test_equal_requests_are_answered_in_order_and_concurrent_ones_by_content(file):
    def reply(seen):
        return Reply((f"{seen.path} {len(server.requests)}".encode(),), content_type="text/plain")

    async with Loopback(reply) as server, recording(file) as client:
        for _ in range(2):
            await client.get(f"{server.url}/same")
        await asyncio.gather(*[client.get(f"{server.url}/{number}") for number in range(20)])
    async with replaying(file) as client:
        answers = await asyncio.gather(*[client.get(f"{Nowhere.url}/{number}") for number in reversed(range(20))])
        same = [(await client.get(f"{Nowhere.url}/same")).text for _ in range(2)]
    assert [answer.text.split()[0] for answer in answers] == [f"/v1/{number}" for number in reversed(range(20))]
    assert same == ["/v1/same 1", "/v1/same 2"]


async def test_a_new_recording_takes_the_place_of_the_old_one_only_where_the_block_ends_well(file, tmp_path):
    file.write_text("old")
    async with Loopback(Reply((b"{}",), content_type="application/json")) as server:
        with pytest.raises(ZeroDivisionError):  # noqa: PT012
            async with recording(file) as client:
                await client.get(f"{server.url}/one")
                raise ZeroDivisionError
        assert file.read_text() == "old"
        assert len(lines(tmp_path / "bodies.jsonl.partial")) == 2
        async with recording(file) as client:
            await client.get(f"{server.url}/one")
            assert file.read_text() == "old"
        assert len(lines(file)) == 2
        with pytest.raises(RecordingError, match="nothing was recorded"):
            async with recording(file):
                pass
    assert len(lines(file)) == 2
    assert file.stat().st_mode & 0o777 == 0o600


async def test_an_answer_that_is_still_open_is_told(file):
    async with Loopback(Reply((b"x", STALL))) as server:
        client = recording(file)
        response = await client.send(client.build_request("GET", server.url), stream=True)
        with pytest.raises(RecordingError, match="1 answers had not ended when the client was closed"):
            await bounded(client.aclose())
        await response.aclose()


async def test_an_answer_that_was_closed_early_is_recorded_as_far_as_it_came(file):
    async with Loopback(Reply((chat.sse(chat.text("Half")), STALL))) as server, recording(file) as client:
        stream = chat.model(server, client=client).stream(ModelRequest(None, chat.HELLO))
        assert (await bounded(anext(stream))).text == "Half"
        await bounded(stream.aclose())
        await bounded(server.left.wait())
    assert lines(file)[1]["answer"]["body"] == chat.sse(chat.text("Half")).decode()


async def test_a_packed_body_that_is_broken_is_not_recorded(file, tmp_path):
    async with Loopback(Reply((b"no gzip",), headers={"content-encoding": "gzip"})) as server:
        client = recording(file)
        with pytest.raises(RecordingError, match=r"it is packed \(gzip\), and broken"):  # noqa: PT012
            async with client:
                response = await client.send(client.build_request("GET", server.url), stream=True)
                with pytest.raises(httpx2.DecodingError):
                    await response.aread()
                await response.aclose()


async def test_the_kill_switch_comes_before_a_replay(file, monkeypatch):
    async with Loopback(Reply((BODIES["chat"][1],))) as server, recording(file) as client:
        await chat.collect(chat.model(server, client=client))
    monkeypatch.setenv("TREADLE_MODEL_REQUESTS", "deny")
    with pytest.raises(ModelRequestsDenied):
        async with replaying(file) as client:
            await chat.collect(chat.model(Nowhere(), client=client))


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ('{"kind":"model","treadle_recording":1}\n', "of the kind 'model', which is for record and replay"),
        ('{"kind":"http","treadle_recording":1}\n{"request":{},"answer":{}}\n', "line 2 is no exchange"),
        (
            '{"kind":"http","treadle_recording":1}\n{"request":{"method":"GET","path":"/"},"answer":{"status":200,"headers":{},"body_base64":"?"}}\n',
            "line 2 is no exchange",
        ),
    ],
)
def test_what_is_no_recording_of_bodies_is_told(file, content, text):
    file.write_text(content)
    with pytest.raises(RecordingError, match=text):
        replaying_transport(os.fspath(file))
