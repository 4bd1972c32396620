"""A scripted model server on loopback: Chat Completions from pre-built bytes, so that it costs its clients nothing.

Every event is an HTTP chunk of its own and a whole answer is one write (paced ones excepted). The step is found by
counting assistant messages in the body's bytes. `GET /stats` tells what was asked so far.

    python server.py [--interval-seconds 1.0]      prints its port, ends when its standard input closes
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import itertools
import json
import re
import sys
from typing import Any

import scenarios
from scenarios import Scenario

LENGTH = re.compile(rb"content-length: *(\d+)")
MODEL = re.compile(rb'"model": ?"([^"]+)"')

HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
LAST = b"0\r\n\r\n"
STEP_MARK = b"call_000000_"
FRAGMENTS = 9
USAGE = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}


def http_chunk(data: str) -> bytes:
    """One server-sent event as one HTTP chunk."""
    event = f"data: {data}\n\n".encode()
    return b"%x\r\n%s\r\n" % (len(event), event)


def completion(model: str, delta: dict[str, Any], finish: str | None = None) -> bytes:
    """One streamed piece of an answer, in the shape the OpenAI API sends."""
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return http_chunk(json.dumps({**_frame(model), "choices": [choice], "usage": None}, separators=(",", ":")))


def _frame(model: str) -> dict[str, Any]:
    return {
        "id": "chatcmpl-B1nKq2vYt0xhT5yG3f7c",
        "object": "chat.completion.chunk",
        "created": 1767225600,
        "model": model,
        "service_tier": "default",
        "system_fingerprint": "fp_50cad350e4",
    }


def _ending(model: str, finish: str) -> list[bytes]:
    usage = json.dumps({**_frame(model), "choices": [], "usage": USAGE}, separators=(",", ":"))
    return [completion(model, {}, finish), http_chunk(usage), http_chunk("[DONE]"), LAST]


def _opening(model: str) -> bytes:
    return completion(model, {"role": "assistant", "content": "", "refusal": None})


@functools.cache
def text_answer(scenario: Scenario) -> list[bytes]:
    """The chunks of a text answer: the opening, one per delta, then the ending."""
    deltas = [completion(scenario.name, {"content": word}) for word in scenarios.words(scenario)]
    return [_opening(scenario.name), *deltas, *_ending(scenario.name, "stop")]


@functools.cache
def whole_text_answer(scenario: Scenario) -> bytes:
    """The same answer as one piece, with its HTTP head."""
    return HEAD + b"".join(text_answer(scenario))


@functools.cache
def _calls_template(scenario: Scenario) -> bytes:
    pieces = [_opening(scenario.name)]
    for index in range(scenario.calls):
        function = {"name": scenarios.TOOL_NAME, "arguments": ""}
        call = {"index": index, "id": f"{STEP_MARK.decode()}{index}", "type": "function", "function": function}
        pieces.append(completion(scenario.name, {"tool_calls": [call]}))
        for fragment in _fragments():
            part = {"index": index, "function": {"arguments": fragment}}
            pieces.append(completion(scenario.name, {"tool_calls": [part]}))
    return HEAD + b"".join(pieces + _ending(scenario.name, "tool_calls"))


def _fragments() -> list[str]:
    args = scenarios.TOOL_ARGS
    cuts = [len(args) * i // FRAGMENTS for i in range(FRAGMENTS + 1)]
    return [args[a:b] for a, b in itertools.pairwise(cuts)]


def calls_answer(scenario: Scenario, step: int) -> bytes:
    """The answer that asks for the step's calls, whose ids are unique in the run."""
    return _calls_template(scenario).replace(STEP_MARK, b"call_%06d_" % step)


def count_role(body: bytes, role: bytes) -> int:
    """How many messages of that role the body holds, with or without a space in its JSON."""
    return body.count(b'"role":"' + role + b'"') + body.count(b'"role": "' + role + b'"')


def plain(status: str, body: bytes, media_type: str = "application/json") -> bytes:
    """A response that is no stream."""
    return b"HTTP/1.1 %s\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n%s" % (
        status.encode(),
        media_type.encode(),
        len(body),
        body,
    )


class Stats:
    """What the server was asked since it started."""

    def __init__(self) -> None:
        self.connections = 0
        self.requests = 0
        self.body_bytes = 0
        self.last_body_bytes = 0

    def as_json(self) -> bytes:
        return json.dumps(vars(self)).encode()


class Connection(asyncio.Protocol):
    """One client connection: collects requests, writes answers."""

    transport: asyncio.Transport

    def __init__(self, stats: Stats, interval_seconds: float) -> None:
        self.stats = stats
        self.interval_seconds = interval_seconds
        self.buffer = bytearray()
        self.needed = 0
        self.body_at = 0
        self.timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.stats.connections += 1

    def connection_lost(self, exc: Exception | None) -> None:
        if self.timer:
            self.timer.cancel()

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        if not self.needed and not self._read_head():
            return
        if len(self.buffer) >= self.needed:
            head, body = bytes(self.buffer[: self.body_at]), bytes(self.buffer[self.body_at : self.needed])
            del self.buffer[: self.needed]
            self.needed = 0
            self._answer(head, body)

    def _read_head(self) -> bool:
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            return False
        length = LENGTH.search(bytes(self.buffer[:end]).lower())
        self.body_at = end + 4
        self.needed = self.body_at + (int(length[1]) if length else 0)
        return True

    def _answer(self, head: bytes, body: bytes) -> None:
        if head.startswith(b"GET /stats "):
            self.transport.write(plain("200 OK", self.stats.as_json()))
            return
        self.stats.requests += 1
        self.stats.body_bytes += len(body)
        self.stats.last_body_bytes = len(body)
        model = MODEL.search(body)
        try:
            scenario = scenarios.parse(model[1].decode() if model else "")
        except ValueError as error:
            self._refuse(str(error))
            return
        if scenario.kind == "paced":
            self._write_paced(text_answer(scenario), 0)
        elif scenario.kind == "text":
            self.transport.write(whole_text_answer(scenario))
        else:
            self._write_step(scenario, body)

    def _write_step(self, scenario: Scenario, body: bytes) -> None:
        step = count_role(body, b"assistant")
        results = count_role(body, b"tool")
        if results != step * scenario.calls:
            self._refuse(f"{results} tool results after {step} steps of {scenario.calls} calls")
        elif step < scenario.steps:
            self.transport.write(calls_answer(scenario, step))
        else:
            self.transport.write(whole_text_answer(scenario))

    def _write_paced(self, chunks: list[bytes], sent: int) -> None:
        """One delta, then the next after the interval; head and opening go with the first, the ending with the last."""
        first, last = sent == 0, sent == len(chunks) - 6
        begin = 0 if first else sent + 1
        end = len(chunks) if last else sent + 2
        self.transport.write((HEAD if first else b"") + b"".join(chunks[begin:end]))
        if not last:
            loop = asyncio.get_running_loop()
            self.timer = loop.call_later(self.interval_seconds, self._write_paced, chunks, sent + 1)

    def _refuse(self, reason: str) -> None:
        self.transport.write(plain("400 Bad Request", json.dumps({"error": {"message": reason}}).encode()))


async def serve(interval_seconds: float) -> None:
    """Serves until standard input closes."""
    stats = Stats()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(stats, interval_seconds), "127.0.0.1", 0, backlog=2048)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--interval-seconds", type=float, default=1.0)
    asyncio.run(serve(parser.parse_args().interval_seconds))


if __name__ == "__main__":
    main()
