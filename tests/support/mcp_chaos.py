"""An MCP server of the older protocol that misbehaves as it is told: `mcp_chaos.py MODE...`. Standard library only.

Modes: `noisy`, `dies` (at start), `mute` (answers nothing), `deaf` (ends at the first message that is no initialize), `ignores` (such a message),
`deep` (two tools with deep schemas), `trap` (one tool with an output schema that takes for ever to check), `paged`, `loops` (its cursor never changes), `sloppy` (one tool with a broken schema), `odd-names`, `stays` (ignores the
end of its input and termination, and has a child that does so, too).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time

MODES = set(sys.argv[1:])
EMPTY = {"type": "object", "properties": {}}
WORDS = "and more words " * 200
lock = threading.Lock()
held: list[tuple[int, dict]] = []
waiting: dict = {}
tools: list[str] = [
    "echo",
    "environment",
    "die",
    "hang",
    "flood",
    "broken",
    "shuffle",
    "change",
    "content",
    "progress",
    "huge",
    "killed",
    "falls_silent",
    "nag",
    "refuse",
    "surrogate",
    "depth",
    "chatter",
    "mumble",
]


def send(message: dict) -> None:
    text = json.dumps({"jsonrpc": "2.0", **message})
    with lock:
        if "noisy" in MODES:
            sys.stderr.write("n" * 256 * 1024 + "\n")
            sys.stderr.flush()
            text = f"Server started\n\n{text}\r"
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def answer(number: int, result: dict) -> None:
    send({"id": number, "result": result})


def text(number: int, value: str) -> None:
    answer(number, {"content": [{"type": "text", "text": value}]})


def listing(params: dict) -> dict:
    cursor = params.get("cursor")
    if "paged" in MODES:
        page = int(cursor or 0)
        names = [f"tool_{page * 2}", f"tool_{page * 2 + 1}"]
        return {"tools": [described(name) for name in names], "nextCursor": str(page + 1) if page < 2 else ""}
    if "loops" in MODES:
        return {"tools": [described("first" if cursor is None else "second")], "nextCursor": "always"}
    if "odd-names" in MODES:
        names = ["a.b", "a_b", "read/file", "x" * 70 + "1" * 20, "x" * 70 + "2" * 20, "検索"]
        return {"tools": [described(name) for name in names]}
    found = [described(name) for name in tools]
    if "deep" in MODES:
        found += [
            described("bottomless") | {"inputSchema": nested(300)},
            described("deep") | {"inputSchema": nested(90)},
        ]
    if "trap" in MODES:
        word = {"type": "string", "pattern": "^(a+)+$"}
        found += [described("trap") | {"outputSchema": {"type": "object", "properties": {"word": word}}}]
    if "sloppy" in MODES:
        found += [{"name": "bad", "inputSchema": "none"}, {"name": "worse"}, "worst", {"inputSchema": EMPTY}]
    return {"tools": found}


def nested(levels: int) -> dict:
    schema = {"type": "object"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"x": schema}}
    return schema


def described(name: str) -> dict:
    hints = {"readOnlyHint": True} if name == "echo" else {"destructiveHint": False, "idempotentHint": name == "change"}
    return {"name": name, "description": f"Does {name}.", "inputSchema": EMPTY, "annotations": hints}


CONTENT = {
    "content": [
        {"type": "text", "text": "words"},
        {"type": "image", "data": "aW1n", "mimeType": "image/png"},
        {"type": "audio", "data": "c25k", "mimeType": "audio/wav"},
        {"type": "resource", "resource": {"uri": "file:///a.txt", "mimeType": "text/plain", "text": "inside"}},
        {"type": "resource", "resource": {"uri": "file:///b.bin", "blob": "YmxvYg=="}},
        {"type": "resource_link", "uri": "file:///c.txt", "name": "c", "description": "a third"},
        {"type": "hologram", "shape": "cube"},
    ],
    "structuredContent": {"x": 1},
}
CONTENTS = {
    "all": CONTENT,
    "same": {"content": [{"type": "text", "text": '{"x": 1}'}], "structuredContent": {"x": 1}},
    "wrapped": {
        "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "2"}],
        "structuredContent": {"result": ["a", 2]},
    },
    "error": {"content": [], "structuredContent": {"code": 7}, "isError": True},
    "empty": {"content": []},
    "silent error": {"content": [], "isError": True},
}


def environment(number: int, arguments: dict, meta: dict) -> None:
    text(number, json.dumps(dict(os.environ)))


def die(number: int, arguments: dict, meta: dict) -> None:
    sys.stderr.write("the disk is full\n")
    sys.stderr.flush()
    os._exit(3)


def killed(number: int, arguments: dict, meta: dict) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def falls_silent(number: int, arguments: dict, meta: dict) -> None:
    os.close(1)
    time.sleep(600)


def hang(number: int, arguments: dict, meta: dict) -> None:
    return


def flood(number: int, arguments: dict, meta: dict) -> None:
    for count in range(3_000):
        send({"method": "notifications/message", "params": {"level": "info", "data": f"{count} {WORDS}"}})
    text(number, "after the flood")


def broken(number: int, arguments: dict, meta: dict) -> None:
    with lock:
        sys.stdout.write(f'{{"jsonrpc": "2.0", "id": {number}, "result": {{"content": [\n')
        sys.stdout.flush()


def shuffle(number: int, arguments: dict, meta: dict) -> None:
    """Answers the last of a bunch first."""
    held.append((number, arguments))
    if len(held) == arguments["of"]:
        for waiting, given in reversed(held):
            text(waiting, str(given["number"]))
        held.clear()


def change(number: int, arguments: dict, meta: dict) -> None:
    tools[:] = arguments.get("to", ["echo", "brand_new"])
    send({"method": "notifications/tools/list_changed"})
    text(number, "changed")


def content(number: int, arguments: dict, meta: dict) -> None:
    answer(number, CONTENTS[arguments["which"]])


def progress(number: int, arguments: dict, meta: dict) -> None:
    for step in range(3):
        told = {"progressToken": meta["progressToken"], "progress": step, "total": 3, "message": f"step {step}"}
        send({"method": "notifications/progress", "params": told})
    text(number, "done")


def huge(number: int, arguments: dict, meta: dict) -> None:
    text(number, "h" * arguments["size"])


def refuse(number: int, arguments: dict, meta: dict) -> None:
    send({"id": number, "error": {"code": -32000, "message": "\x1b[2Jno\n" + "!" * 10_000}})


def surrogate(number: int, arguments: dict, meta: dict) -> None:
    text(number, "half \ud800 a character")


def depth(number: int, arguments: dict, meta: dict) -> None:
    answer(number, {"content": [{"type": "text", "text": "deep"}], "structuredContent": nested(arguments["levels"])})


def mumble(number: int, arguments: dict, meta: dict) -> None:
    send({"method": "notifications/progress", "params": {"progressToken": {}, "progress": "some"}})
    text(number, "said")


def chatter(number: int, arguments: dict, meta: dict) -> None:
    told = {"progressToken": meta["progressToken"], "progress": 1, "message": "m" * 100_000}
    send({"method": "notifications/progress", "params": told})
    text(number, "done")


def trap(number: int, arguments: dict, meta: dict) -> None:
    answer(number, {"content": [], "structuredContent": {"word": "a" * 40 + "!"}})


def nag(number: int, arguments: dict, meta: dict) -> None:
    """Asks the person again and again, and never answers the call."""
    waiting.update(schema=arguments.get("schema", EMPTY), asked=0)
    ask()


def ask() -> None:
    waiting["asked"] += 1
    params = {"message": "And now?", "requestedSchema": waiting["schema"]}
    send({"id": f"q{waiting['asked']}", "method": "elicitation/create", "params": params})


def answered(message: dict) -> None:
    if "schema" in waiting:
        time.sleep(0.05)
        ask()


TOOLS = {
    each.__name__: each
    for each in (
        killed,
        falls_silent,
        environment,
        die,
        hang,
        flood,
        broken,
        shuffle,
        change,
        content,
        progress,
        huge,
        trap,
        nag,
        refuse,
        surrogate,
        depth,
        chatter,
        mumble,
    )
}


def call(number: int, name: str, arguments: dict, meta: dict) -> None:
    if name in TOOLS:
        TOOLS[name](number, arguments, meta)
    else:
        text(number, f"{name}: {arguments.get('text', '')}")


def handle(message: dict) -> None:
    number, method, params = message.get("id"), message.get("method"), message.get("params") or {}
    if method is None:
        answered(message)
        return
    if "mute" in MODES or number is None or ("ignores" in MODES and method == "server/discover"):
        return
    if method == "initialize":
        info = {"name": "chaos", "version": "1"}
        answer(
            number,
            {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {"listChanged": True}},
                "serverInfo": info,
            },
        )
    elif "deaf" in MODES and method == "server/discover":
        os._exit(9)
    elif method == "tools/list":
        answer(number, listing(params))
    elif method == "tools/call":
        call(number, params["name"], params.get("arguments") or {}, params.get("_meta") or {})
    else:
        send({"id": number, "error": {"code": -32601, "message": "Method not found"}})


def main() -> None:
    if "dies" in MODES:
        sys.stderr.write("first line\ncannot open the database: no such file\n")
        sys.exit(2)
    if "stays" in MODES:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
        child = subprocess.Popen([sys.executable, "-c", stubborn], stdin=subprocess.DEVNULL)
        tools[:] = [f"pid_{os.getpid()}", f"pid_{child.pid}"]
    for line in sys.stdin:
        handle(json.loads(line))
    if "stays" in MODES:
        time.sleep(600)


main()
