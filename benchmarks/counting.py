"""Operation counts of one run: what no load on the machine can change.

`sys.setprofile` sees every call, Python and C. At each Python call the stack is walked, so that generators are counted
where they are really nested: inside a read that the server fed.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
import urllib.request
from collections import Counter
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any

import msgspec
import scenarios
from scenarios import tally

if TYPE_CHECKING:
    from clients import Client

OURS = "treadle"
LOOP_CALLS = {
    "BaseEventLoop.create_task": "tasks",
    "BaseEventLoop.call_at": "timers",
    "Lock.acquire": "locks",
    "Queue.put": "queues",
    "Queue.get": "queues",
}


class Profile:
    """Counts calls while it is installed."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.generators = 0
        self.our_generators = 0

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        if event == "call":
            self.counts["python_calls"] += 1
            if kind := LOOP_CALLS.get(frame.f_code.co_qualname):
                self.counts[kind] += 1
            self._walk(frame)
        elif event == "c_call" and arg.__name__ in ("encode", "encode_into") and _is_encoder(arg.__self__):
            self.counts["encodes"] += 1

    def _walk(self, frame: FrameType | None) -> None:
        depth = ours = 0
        while frame is not None:
            if frame.f_code.co_flags & inspect.CO_ASYNC_GENERATOR:
                depth += 1
                ours += frame.f_globals.get("__name__", "").partition(".")[0] == OURS
            frame = frame.f_back
        self.generators = max(self.generators, depth)
        self.our_generators = max(self.our_generators, ours)


def _is_encoder(owner: object) -> bool:
    if isinstance(owner, ModuleType):
        return owner.__name__.startswith("msgspec")
    return isinstance(owner, msgspec.json.Encoder)


async def count(client: Client, base_url: str, scenario: str) -> dict[str, Any]:
    """Counts one run after a warm-up: calls, encodings, tasks, timers, generators, and what the server was sent."""
    await client.run("tools-1x2", lambda _: None)
    tally.clear()
    before = await asyncio.to_thread(_server_stats, base_url)
    profile = Profile()
    sys.setprofile(profile)
    try:
        answer = await client.run(scenario, tally.text)
    finally:
        sys.setprofile(None)
    after = await asyncio.to_thread(_server_stats, base_url)
    await client.aclose()
    scenarios.check(scenarios.parse(scenario), answer)
    sent = {key: after[key] - before[key] for key in ("requests", "connections", "body_bytes")}
    names = ("python_calls", "encodes", "tasks", "timers", "locks", "queues")
    return {
        **{name: profile.counts[name] for name in names},
        "generators": profile.generators,
        "our_generators": profile.our_generators,
        **sent,
        # The request that asked for the statistics came over a connection of its own.
        "connections": sent["connections"] - 1,
        "last_body_bytes": after["last_body_bytes"],
    }


def _server_stats(base_url: str) -> dict[str, int]:
    with urllib.request.urlopen(base_url.removesuffix("/v1") + "/stats") as response:
        stats: dict[str, int] = json.load(response)
    return stats
