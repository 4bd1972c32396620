"""An MCP client over stdio that says exactly what a test wants, in the older protocol. Every wait is bounded."""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from pathlib import Path
from typing import Any

from support.program import BOUND, Program, finish

TESTS = Path(__file__).resolve().parent.parent
OPENING = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}


class RawClient:
    """`treadle mcp serve THING` as a child process, opened."""

    def __init__(self, program: Program, thing: str, *arguments: str) -> None:
        program.environ["PYTHONPATH"] = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
        self.process: subprocess.Popen[bytes] = program.start(
            "mcp", "serve", thing, *arguments, stdin=subprocess.PIPE, bufsize=0
        )
        self._rest = b""
        self.seen: list[dict[str, Any]] = []
        self.send("initialize", 0, OPENING)
        self.answer(0)
        self.send("notifications/initialized")

    def send(self, method: str, id: Any = None, params: dict[str, Any] | None = None) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": params or {}}
        self.write(json.dumps(message if id is None else {**message, "id": id}).encode() + b"\n")

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)

    def call(self, id: Any, tool: str, **arguments: Any) -> None:
        self.send("tools/call", id, {"name": tool, "arguments": arguments, "_meta": {"progressToken": f"p{id}"}})

    def cancel(self, id: Any) -> None:
        self.send("notifications/cancelled", params={"requestId": id, "reason": "changed my mind"})

    def answer(self, id: Any) -> dict[str, Any]:
        """The answer to a request; all that comes before it is in `seen`."""
        deadline = time.monotonic() + BOUND
        while True:
            while b"\n" in self._rest:
                line, self._rest = self._rest.split(b"\n", 1)
                message = json.loads(line)  # whatever is not JSON fails the test
                self.seen.append(message)
                if message.get("id") == id:
                    return message
            ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            piece = os.read(self.process.stdout.fileno(), 65536) if ready else b""
            assert piece, (self.seen, self.process.poll())
            self._rest += piece

    def ping(self, id: str = "ping") -> None:
        self.send("ping", id)
        assert self.answer(id)["result"] == {}

    def answers(self, id: Any) -> list[dict[str, Any]]:
        return [message for message in self.seen if message.get("id") == id]

    def close(self) -> tuple[int, str]:
        """Closes its input, and gives exit code and standard error. What is left on standard output is JSON."""
        outcome = finish(self.process)
        self.seen += [json.loads(line) for line in (self._rest + outcome.out.encode()).splitlines()]
        return outcome.code, outcome.err


def wait_until(path: Path) -> None:
    """Waits for a file."""
    deadline = time.monotonic() + BOUND
    while not path.exists():
        assert time.monotonic() < deadline, path
        time.sleep(0.005)
