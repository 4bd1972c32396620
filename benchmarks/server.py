"""A scripted model server on loopback that answers from pre-built bytes, so that it costs its clients nothing.

It speaks the wires of `wires.py`, told by the path. A whole answer is one write (paced ones excepted). The step is
found by counting in the body's bytes. `GET /stats` tells what was asked so far.

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
from typing import TYPE_CHECKING

import scenarios
from wires import STEP_MARK, wire_of

if TYPE_CHECKING:
    from scenarios import Scenario
    from wires import Answer, Wire

LENGTH = re.compile(rb"content-length: *(\d+)")
MODEL = re.compile(rb'"model": ?"([^"]+)"')
MODEL_IN_PATH = re.compile(rb"/models/([^:/?]+):")

HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)


@functools.cache
def text_answer(wire: Wire, scenario: Scenario) -> Answer:
    """The chunks of a text answer."""
    return wire.text(scenario.name, scenarios.words(scenario))


@functools.cache
def whole_text_answer(wire: Wire, scenario: Scenario) -> bytes:
    """The same answer as one piece, with its HTTP head."""
    return HEAD + b"".join(itertools.chain(*text_answer(wire, scenario)))


@functools.cache
def _calls_template(wire: Wire, scenario: Scenario) -> bytes:
    return HEAD + b"".join(wire.calls(scenario.name, scenario.calls))


def calls_answer(wire: Wire, scenario: Scenario, step: int) -> bytes:
    """The answer that asks for the step's calls, whose ids are unique in the run."""
    return _calls_template(wire, scenario).replace(STEP_MARK.encode(), b"call_%06d_" % step)


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
        line = head.partition(b"\r\n")[0]
        wire, model = wire_of(line), MODEL_IN_PATH.search(line) or MODEL.search(body)
        try:
            scenario = scenarios.parse(model[1].decode() if model else "")
        except ValueError as error:
            self._refuse(str(error))
            return
        if wire is None:
            self._refuse(f"no such path: {line.decode()}")
        elif scenario.kind == "paced":
            self._write_paced(text_answer(wire, scenario), 0)
        elif scenario.kind == "text":
            self.transport.write(whole_text_answer(wire, scenario))
        else:
            self._write_step(wire, scenario, body)

    def _write_step(self, wire: Wire, scenario: Scenario, body: bytes) -> None:
        step = wire.steps(body, scenario.calls)
        results = wire.results(body)
        if results != step * scenario.calls:
            self._refuse(f"{results} tool results after {step} steps of {scenario.calls} calls")
        elif step < scenario.steps:
            self.transport.write(calls_answer(wire, scenario, step))
        else:
            self.transport.write(whole_text_answer(wire, scenario))

    def _write_paced(self, answer: Answer, sent: int) -> None:
        """One delta, then the next after the interval; head and opening go with the first, the ending with the last."""
        first, last = sent == 0, sent == len(answer.deltas) - 1
        before = HEAD + b"".join(answer.opening) if first else b""
        self.transport.write(before + answer.deltas[sent] + (b"".join(answer.ending) if last else b""))
        if not last:
            loop = asyncio.get_running_loop()
            self.timer = loop.call_later(self.interval_seconds, self._write_paced, answer, sent + 1)

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
