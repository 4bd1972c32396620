"""Drives `treadle run --json` from another program: prompts in, the event log out, each call decided on here.

python examples/driver.py "Read README.md." "And what is here?"
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Event = dict[str, Any]


class Treadle:
    """A `treadle run --json` process. `decide` is asked about each call that changes something."""

    def __init__(self, *options: str, decide: Callable[[Event], Event]) -> None:
        command = [sys.executable, "-m", "treadle", "run", "--json", *options]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: S603
        self._decide = decide

    def ask(self, prompt: str, **more: Any) -> Iterator[Event]:
        """The events of one run. Raises `RuntimeError` for what could not be done."""
        self._send({"type": "prompt", "text": prompt, **more})
        assert self._process.stdout is not None
        for line in self._process.stdout:
            event = json.loads(line)
            if event["type"] == "error":
                raise RuntimeError(event["error"])
            if event["type"] == "approval_request":
                self._send({"type": "decision", "call_id": event["call_id"], **self._decide(event)})
            yield event
            if event["type"] == "run_finish":
                return
        raise RuntimeError(f"treadle ended with code {self._process.wait()}")

    def close(self) -> int:
        """Ends the input, waits for the end, and gives the exit code."""
        self._process.communicate()
        return self._process.returncode

    def _send(self, command: Event) -> None:
        assert self._process.stdin is not None
        print(json.dumps(command), file=self._process.stdin, flush=True)


def no_commands(request: Event) -> Event:
    if request["name"] == "run_command":
        return {"decision": "deny", "reason": "No commands today."}
    return {"decision": "allow"}


if __name__ == "__main__":
    treadle = Treadle("-m", "offline:demo", decide=no_commands)
    for prompt in sys.argv[1:]:
        for event in treadle.ask(prompt):
            if event["type"] == "text_delta":
                print(event["text"], end="", flush=True)
        print()
    sys.exit(treadle.close())
