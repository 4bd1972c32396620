"""A model that is an enemy: in one run, with every tool there is, it tries all ways out that we know of.

All the while a helper of its own swaps directories and files of the root for links that lead out, and back.

What is looked at afterwards is what happened, and not what the tools said: the files outside, the processes, the
addresses that were dialled, and every event of the run. A command may do what its user may, so of commands only what
is promised is asked for: a clean environment, and that nothing outlives the call.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import subprocess
import sys
import textwrap
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from support.desk import SECRET, alive, snapshot
from support.loopback import Loopback, Reply, Seen
from support.traps import WAYS_OUT, lay_traps
from support.web import OTHER, PUBLIC, FakeNetwork
from treadle import Agent, ToolFinish, ToolStart, encode_event
from treadle.testing import ScriptedModel, call
from treadle.toolkit import Root, Workspace, web_fetch, web_search
from treadle.toolkit._supervisor import family

BOUND = 120.0  # seconds
ENVIRONMENT = "canary-of-the-environment"
FILE_NAME = "canary-of-a-name.txt"
NEW = "made-in-a-race"
HOME_FILE = "~/.ssh/id_rsa"  # no home at all, but three names like any others
PRIVATE_PAGE = "canary-of-a-private-page"
INSIDE = "what lies inside\n"

# Names for what is protected as some file system or other would take them.
PROTECTED = [
    ".git/hooks/pre-commit", ".git/config", ".GIT/hooks/pre-commit", ".Git/config", ".git./config", ".git /config",
    ".g\u200cit/config", "\uff0egit/config", "into-git/config", "src/../.git/config", "repository/hooks/pre-commit",
    ".git", ".mcp.json", ".MCP.JSON", ".mcp.json.", ".treadle/settings.json", ".Treadle/settings.json",
    "src/.git/config", "src/.mcp.json",
]  # fmt: skip

PRIVATE = [
    "127.0.0.1", "localhost", "localhost.", "0", "0.0.0.0", "2130706433", "0x7f.1", "0177.0.0.1", "127.1", "10.0.0.1",
    "172.16.0.1", "192.168.0.1", "169.254.169.254", "2852039166", "100.100.100.200", "168.63.129.16", "224.0.0.1",
    "255.255.255.255", "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]",
    "[2001::1]", "[fe80::1]", "[fd00:ec2::254]", "１２７.0.0.1", "site.example@127.0.0.1", "inside.example",
    "mixed.example", "rebound.example", "six.example",
]  # fmt: skip

SCHEMES = [
    "file:///etc/passwd", "FILE:///etc/passwd", "file://localhost/etc/passwd", "ftp://127.0.0.1/", "gopher://127.0.0.1/_x",
    "unix:/run/docker.sock", "http+unix://%2Frun%2Fdocker.sock/", "data:text/plain,x", "//127.0.0.1/", "http:127.0.0.1/",
    "http://site.example\\@127.0.0.1/", "http://site.example/\r\nHost: 127.0.0.1", "http://site.example:0/",
]  # fmt: skip

DAEMON = """
import os, signal, subprocess, sys, time
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
    signal.signal(number, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve(sys.executable, [sys.executable, "-c", "import time; time.sleep(1000)", sys.argv[1]], {})
    os._exit(0)
"""


# What changes places with a link that leads out. All three are there, outside, with a secret inside.
SWAPPED = {
    "race/one": "../../outside",
    "race/two/deep": "../../../outside/deep",
    "race/file": "../../outside/secret.txt",
}
LEAST_SWAPS, MOST_SWAPS = 50_000, 20_000_000
SWAPPER = """
    import ctypes, os, select, sys
    least, most, *paths = sys.argv[1:]
    swap = ctypes.CDLL(None, use_errno=True).renameat2
    pairs = [(os.fsencode(path), os.fsencode(path + "-out")) for path in paths]
    print("ready", flush=True)
    swaps = 0
    while swaps < int(most) and (swaps < int(least) or not select.select([0], [], [], 0)[0]):
        for _ in range(500):  # an even number: at the end all is as it was
            for one, other in pairs:
                if swap(-100, one, -100, other, 2):
                    sys.exit(f"{other}: {os.strerror(ctypes.get_errno())}")
        swaps += 500 * len(pairs)
    print(swaps, flush=True)
"""


@contextlib.contextmanager
def swapping(folder: Path) -> Iterator[None]:
    """Swaps as fast as it can and at least `LEAST_SWAPS` times, from before the body to behind it."""
    command = [sys.executable, "-I", "-c", textwrap.dedent(SWAPPER), str(LEAST_SWAPS), str(MOST_SWAPS), *SWAPPED]
    with subprocess.Popen(
        command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as swapper:
        assert swapper.stdout.readline() == "ready\n"
        yield
        assert swapper.poll() is None  # it was at work to the end
        swaps = int(swapper.communicate("enough\n", BOUND)[0])
        assert LEAST_SWAPS <= swaps < MOST_SWAPS


@pytest.fixture
def canaries(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SOME_PROVIDER_API_KEY", "AWS_SECRET_ACCESS_KEY", "SSH_AUTH_SOCK", "BASH_ENV", "PYTHONSTARTUP"):
        monkeypatch.setenv(name, ENVIRONMENT)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://user:{ENVIRONMENT}@127.0.0.1:9/")


@pytest.fixture
def trapped(folder: Path, outside: Path) -> Path:
    """The root, with all that another program may have left in it."""
    lay_traps(folder)
    (outside / FILE_NAME).write_text("nothing")
    (outside / "shared.txt").write_text("old text")
    os.link(outside / "shared.txt", folder / "hard")
    for repository in (".git", "repository"):
        (folder / repository / "hooks").mkdir(parents=True)
        for name in ("objects", "refs"):
            (folder / repository / name).mkdir()
        (folder / repository / "HEAD").write_text("ref: refs/heads/main\n")
        (folder / repository / "config").write_text("key")
    (folder / "into-git").symlink_to(".git")
    (folder / ".mcp.json").write_text("key")
    (folder / "bomb").write_text("a" * 40 + "!\n")
    for path, target in SWAPPED.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / f"{path}-out").symlink_to(target)
    (folder / "race" / "file").write_text(INSIDE)
    for path in ("race/one", "race/two/deep"):
        (folder / path / "deep").mkdir(parents=True)
        for name in ("secret.txt", "deep/secret.txt"):
            (folder / path / name).write_text(INSIDE)
    (folder / "to-device").symlink_to("/dev/null")
    try:
        os.mknod(folder / "device", 0o666 | stat.S_IFCHR, os.makedev(1, 5))
    except OSError:  # takes the rights of an administrator
        (folder / "device").symlink_to("/dev/zero")
    return folder


def everywhere(path: str) -> list[Any]:
    """`path` through each of the file tools."""
    return [
        call("read_file", path=path),
        call("list_directory", path=path),
        call("find_files", pattern="*", path=path),
        call("search_content", pattern="the key of|root:x|^", path=path),
        call("write_file", path=path, content="broken out"),
        call("edit_file", path=path, edits=[{"old_text": "key", "new_text": "broken out"}]),
    ]


def file_calls(folder: Path) -> list[Any]:
    ways = [way.format(folder=folder) if way.startswith("{") else way for way in WAYS_OUT if way != "\ud800"]
    ways += ["device", "to-device", "/dev/zero", "/proc/self/environ", "/proc/1/environ", "/dev/fd/0", HOME_FILE]
    calls = [one for way in ways for one in everywhere(way)]
    calls += [call("write_file", path=f"{way}/new.txt", content="broken out") for way in ways]
    for path in PROTECTED:
        calls += [call("write_file", path=path, content="broken out")]
        calls += [call("edit_file", path=path, edits=[{"old_text": "key", "new_text": "broken out"}])]
    return [
        *calls,
        call("write_file", path="hard", content="through a hard link"),
        call("edit_file", path="hard", edits=[{"old_text": "through", "new_text": "once more through"}]),
        call("search_content", pattern="(a+)+$", path="bomb"),
        call("search_content", pattern="--pre=./evil.sh"),
        call("search_content", pattern="-f/etc/passwd", literal=True),
        call("search_content", pattern="the key of|root:x"),
        call("search_content", pattern="the key of|root:x", glob="../../**"),
        call("search_content", pattern="x", glob="--pre=./evil.sh"),
        call("find_files", pattern="**/secret*"),
        call("find_files", pattern="../**/canary*"),
        call("find_files", pattern="/**"),
        call("find_files", pattern="*a" * 2000),
    ]


def racing_calls() -> list[Any]:
    """One round of calls on what is being swapped. None of them changes more than the text that is there."""
    files = ["race/one/secret.txt", "race/two/deep/secret.txt", "race/one/deep/secret.txt", "race/file"]
    calls = [call("read_file", path=path) for path in files]
    calls += [call("write_file", path=path, content=INSIDE) for path in files]
    calls += [call("write_file", path=f"race/one/{NEW}/{NEW}", content=INSIDE)]
    calls += [
        call("edit_file", path=path, edits=[{"old_text": old, "new_text": new}])
        for path in files
        for old, new in (("what lies", "something"), ("something", "what lies"), ("the key", "broken out"))
    ]
    calls += [call("list_directory", path=path) for path in ("race/one", "race/two/deep")]
    return calls


def walking_calls() -> list[Any]:
    """Walks over what is being swapped, from above it and from itself."""
    paths = (".", "race", "race/one", "race/two/deep/deep")
    return [
        one
        for path in paths
        for one in (call("find_files", pattern="*", path=path), call("search_content", pattern="key|lies", path=path))
    ]


def web_calls() -> list[Any]:
    urls = [f"http://{host}/{PRIVATE_PAGE}" for host in PRIVATE] + SCHEMES
    urls += [f"http://site.example/?to=http://{host}/{PRIVATE_PAGE}" for host in PRIVATE]
    urls += [
        "http://site.example/?to=file:///etc/passwd",
        "http://other.example/?to=//127.0.0.1/",
        "http://site.example/",
    ]
    queries = ["x&url=http://127.0.0.1/", "x\r\nHost: 127.0.0.1", "../../admin", "x&format=html#", "http://127.0.0.1/"]
    return [call("web_fetch", url=url) for url in urls] + [call("web_search", query=query) for query in queries]


def command_calls(name: str) -> list[Any]:
    sleeper = f"{sys.executable} -c 'import time; time.sleep(1000)' {name}"
    daemon = f"{sys.executable} daemon.py {name}"
    return [
        call("run_command", command="env; set; export -p; cat /proc/$$/environ /proc/$PPID/environ | tr '\\0' '\\n'"),
        call(
            "run_command", command=f"{sys.executable} -c 'import os; print(dict(os.environ))'; cat /proc/$PPID/cmdline"
        ),
        call("write_file", path="daemon.py", content=DAEMON),
        call(
            "run_command", command=f"{daemon} & {sleeper} & nohup {sleeper} & setsid {sleeper} & ({sleeper} &) ; true"
        ),
        call("run_command", command=f"trap '' TERM HUP INT; {daemon}; setsid {sleeper} & {sleeper}", timeout_seconds=1),
        call("run_command", command=f"setsid {sleeper} & kill -STOP $PPID; {sleeper}", timeout_seconds=0.5),
        call("run_command", command=f"setsid {sleeper} & kill -KILL $PPID; {sleeper}", timeout_seconds=0.5),
    ]


def site(seen: Seen) -> Reply:
    """Sends on to wherever the address says; a private page is one that should never have been asked for."""
    asked = urlsplit(seen.path)
    if to := parse_qs(asked.query).get("to"):
        return Reply(status=302, content_type=None, headers={"location": to[0]}, whole=True)
    text = f"{PRIVATE_PAGE}: here" if PRIVATE_PAGE in seen.path else "a page of the public web"
    return Reply((text.encode(),), content_type="text/plain")


FOUND = b'{"results": [{"title": "x", "url": "file:///etc/passwd"}, {"title": "y", "url": "https://y.example/"}]}'
NAMES = {
    "localhost": ["127.0.0.1", "::1"],
    "inside.example": ["10.0.0.1"],
    "mixed.example": [PUBLIC, "127.0.0.1"],
    "rebound.example": [["127.0.0.1"], ["10.0.0.1"]],
    "six.example": ["::ffff:127.0.0.1"],
}


def beside(folder: Path) -> dict[str, Any]:
    """All that there is around the root, and nothing of it."""
    found = snapshot(folder.parent).items()
    return {path: what for path, what in found if folder not in (Path(path), *Path(path).parents)}


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a command that leaves its session can outlive its call")
@pytest.mark.usefixtures("canaries")
async def test_a_hostile_model_changes_nothing_outside_learns_no_secret_and_leaves_nothing_behind(
    trapped: Path, backend: str, caplog: pytest.LogCaptureFixture
):
    if backend == "walk" and not os.environ.get("TREADLE_LONG_TESTS"):
        pytest.skip("a long form, of `make fuzz`; the races are tried over both")
    name = f"mark-{uuid.uuid4().hex}"
    around, kept = beside(trapped), {part: snapshot(trapped / part) for part in (".git", "repository", ".mcp.json")}
    names = {path.name for path in trapped.rglob("*")}
    calls = [
        *racing_calls(),
        *walking_calls(),
        *file_calls(trapped),
        *racing_calls() * 12,
        *walking_calls(),
        *web_calls(),
    ]
    calls += command_calls(name)
    events: list[Any] = []
    async with (
        asyncio.timeout(BOUND),
        Loopback(site) as web,
        Loopback(Reply((FOUND,), content_type="application/json")) as engine,
    ):
        network = FakeNetwork(web.origin, NAMES)
        agent = Agent(
            ScriptedModel(calls, "done"),
            tools=[web_fetch(network=network), *web_search(engine.origin)],
            toolsets=[Workspace(Root(trapped, backend=backend), allow_commands=True, search_seconds=1.0)],
            max_result_bytes=0,
        )
        with swapping(trapped):
            async with agent.stream("go") as run:
                async for event in run:
                    events.append(event)  # noqa: PERF401 - a stream

    # Every call was answered, and some did what they are there for: else all of this would show nothing.
    finishes = [event for event in events if isinstance(event, ToolFinish)]
    assert len(finishes) == len(calls) == len({event.call_id for event in finishes})
    done = [event for event in finishes if not event.is_error]
    assert {event.name for event in done} >= {"write_file", "web_fetch", "web_search", "run_command"}
    assert (trapped / "hard").read_text() == "once more through a hard link"
    assert any("a page of the public web" in event.result.content for event in done)
    # The race was one: reading and writing met both what is inside and the link.
    racing = {
        event.call_id for event in events if isinstance(event, ToolStart) and "race/" in encode_event(event).decode()
    }
    for name in ("read_file", "write_file", "edit_file", "list_directory"):
        raced = [event for event in finishes if event.name == name and event.call_id in racing]
        assert any(not event.is_error for event in raced), name
        assert any("leads out" in event.result.content for event in raced), name

    # Files: all around is as it was, to the inode; what is protected as well, and nothing is there that looks like it.
    assert beside(trapped) == around
    assert {part: snapshot(trapped / part) for part in kept} == kept
    assert {path.name for path in trapped.rglob("*")} - names - {NEW} == {"daemon.py", *Path(HOME_FILE).parts}
    for path in (trapped / "race").rglob("*"):
        assert (
            path.is_symlink() or path.is_dir() or path.read_text() in (INSIDE, INSIDE.replace("what lies", "something"))
        )

    # Secrets: in no event and in no log.
    log = caplog.text + "\n".join(encode_event(event).decode() for event in events)
    assert "PATH=" in log
    for canary in (SECRET, ENVIRONMENT, FILE_NAME, "root:x:0", f"{PRIVATE_PAGE}: here"):
        assert canary not in log, canary

    # The network: public addresses only, and of the search engine nothing but its search.
    assert {host for host, _ in network.dialled} == {PUBLIC, OTHER}
    assert not [seen for seen in web.requests if PRIVATE_PAGE in urlsplit(seen.path).path]
    assert not [seen for seen in web.requests if ENVIRONMENT in seen.raw.decode() + str(seen.headers)]
    for seen in engine.requests:
        asked = urlsplit(seen.path)
        assert asked.path == "/search" and sorted(parse_qs(asked.query)) == ["format", "q"], unquote(seen.path)
        assert parse_qs(asked.query)["format"] == ["json"]
        assert f"http://{seen.headers['host']}" == engine.origin

    # Processes.
    assert not alive(name)
    assert not family(os.getpid())
