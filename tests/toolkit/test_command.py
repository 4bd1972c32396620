"""`run_command`: how it ends, what it hands back, and that nothing of it is left."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import signal
import subprocess
import sys
import textwrap
import uuid
from pathlib import Path
from time import monotonic

import pytest

from support.desk import Desk, alive, until
from treadle import Agent, ToolOutput
from treadle.testing import ScriptedModel, call
from treadle.toolkit import Workspace
from treadle.toolkit._command import environment
from treadle.toolkit._supervisor import HEAD_BYTES, TAIL_BYTES, Output, _listed_by_ps, family

BOUND = 30.0  # seconds; what takes longer hangs
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has subreapers and a process file system")


@pytest.fixture
def desk(folder: Path) -> Desk:
    return Desk(folder)


@pytest.fixture
def name() -> str:
    """A word that stands in the command line of every process of a test."""
    return f"mark-{uuid.uuid4().hex}"


async def run(desk: Desk, command: str, seconds: float = BOUND) -> ToolOutput:
    async with asyncio.timeout(BOUND + seconds):
        return await desk.output("run_command", command=command, timeout_seconds=seconds)


# What comes back


async def test_a_command_runs_in_the_root_and_tells_its_output_and_exit_code(desk: Desk, folder: Path):
    output = await run(desk, "pwd; ls; echo problem >&2; exit 3")
    text, _, end = output.content.rpartition("\n")
    assert text == f"{folder}\nREADME.md\nsrc\nproblem"
    assert end.startswith("[exit code 3 after 0.") and not output.is_error


async def test_a_command_without_output_says_so(desk: Desk):
    assert (await run(desk, "true")).content.startswith("(no output)\n[exit code 0 after ")


async def test_a_command_ended_by_a_signal_names_it(desk: Desk):
    assert "[ended by signal SIGSEGV after " in (await run(desk, "kill -SEGV $$")).content


async def test_long_output_keeps_its_beginning_and_its_end(desk: Desk):
    output = await run(desk, "echo begin; head -c 5000000 /dev/zero | tr '\\0' x; echo; echo end")
    assert output.content.startswith("begin\nxxx")
    assert "xxx\nend\n[exit code 0" in output.content
    cut = 5_000_000 + len("begin\n\nend\n") - HEAD_BYTES - TAIL_BYTES
    assert f"\n[... {cut} bytes cut ...]\n" in output.content
    assert len(output.content) < HEAD_BYTES + TAIL_BYTES + 200


async def test_a_cut_never_lies_inside_a_character(desk: Desk):
    output = await run(desk, "printf x; i=0; while [ $i -lt 40 ]; do printf 'é%.0s' $(seq 1500); i=$((i+1)); done")
    assert "\ufffd" not in output.content and " bytes cut " in output.content


async def test_output_that_is_no_text_does_no_harm(desk: Desk):
    assert (await run(desk, "printf 'a\\377b\\0c\\n'")).content.startswith("a\ufffdb\0c\n[exit code 0")


async def test_an_endless_output_is_ended_in_time(desk: Desk):
    output = await run(desk, "yes", 0.5)
    assert output.is_error and "stopped: it had not ended after 0.5 s" in output.content
    assert len(output.content) < HEAD_BYTES + TAIL_BYTES + 300


@pytest.mark.parametrize("command", ["", "   ", "a\0b", "x" * 200_000])
async def test_a_command_that_is_none_is_refused(desk: Desk, command):
    assert "a command has 1 to" in await desk.refusal("run_command", command=command)


@pytest.mark.parametrize("seconds", [0, -1, 601, 1e308])
async def test_a_time_that_is_none_is_refused(desk: Desk, seconds):
    assert "timeout_seconds is above 0 and at most 600" in await desk.refusal(
        "run_command", command="true", timeout_seconds=seconds
    )


def test_output_is_kept_exactly_up_to_the_cut():
    for sizes in (
        [1],
        [HEAD_BYTES],
        [HEAD_BYTES + TAIL_BYTES],
        [HEAD_BYTES + 1, TAIL_BYTES - 1],
        [7] * 9000,
        [200_000] * 3,
    ):
        output, whole = Output(), bytearray()
        for number, size in enumerate(sizes):
            data = bytes([number % 256]) * size
            whole += data
            output.add(data)
        head, tail, cut = output.finish()
        assert (head + tail).encode("latin-1") == whole[:HEAD_BYTES] + whole[max(HEAD_BYTES, len(whole) - TAIL_BYTES) :]
        assert cut == max(0, len(whole) - HEAD_BYTES - TAIL_BYTES)


# What it gets


async def test_no_secret_of_the_host_reaches_a_command(folder: Path, monkeypatch):
    monkeypatch.setenv("SOME_PROVIDER_API_KEY", "sk-secret")
    monkeypatch.setenv("HTTPS_PROXY", "http://user:sk-secret@proxy")
    monkeypatch.setenv("BASH_ENV", "/nowhere")
    desk = Desk(folder, environment={"FROM_THE_HOST": "given", "EDITOR": "ed"})
    output = await run(desk, "env; cat /proc/$PPID/environ 2>/dev/null | tr '\\0' '\\n'; cat /proc/$PPID/cmdline")
    assert "sk-secret" not in output.content and "BASH_ENV" not in output.content
    assert "FROM_THE_HOST=given" in output.content and "EDITOR=ed\n" in output.content
    assert f"PATH={os.environ['PATH']}" in output.content and f"HOME={os.environ['HOME']}" in output.content


def test_the_environment_of_a_command_is_a_short_list(monkeypatch):
    for name in list(os.environ):
        monkeypatch.delenv(name)
    assert environment({})["PATH"] == os.defpath
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("PATH", "/bin")
    monkeypatch.setenv("ANYTHING_ELSE", "x")
    assert set(environment({"MORE": "1"})) == {
        *("PATH", "HOME", "TERM", "PAGER", "GIT_PAGER", "EDITOR", "VISUAL"),
        *("GIT_EDITOR", "GIT_SEQUENCE_EDITOR", "GIT_TERMINAL_PROMPT", "MORE"),
    }


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("cat", "(no output)\n[exit code 0"),
        ("read x; echo got $?", "got 1"),
        (f"{sys.executable} -i", ">>>"),
        (f"{sys.executable}", "(no output)\n[exit code 0"),
        ("echo x > /dev/tty", "[exit code"),
        ("tty", "not a tty"),
        ("exec 3<>/dev/tty || echo none", "none"),
    ],
)
async def test_a_command_that_asks_gets_no_answer_and_no_terminal(desk: Desk, command, told):
    output = await run(desk, command, 20)
    assert told in output.content and not output.is_error


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
async def test_git_changes_no_history_by_itself(desk: Desk, folder: Path):
    identity = "git -c user.name=x -c user.email=x@example.org"
    setup = f"git init -q . && git add . && {identity} commit -qm one && {identity} commit -qm two --allow-empty"
    assert "[exit code 0" in (await run(desk, setup)).content
    before = (await run(desk, "git rev-parse HEAD")).content.split("\n")[0]
    for command in (f"{identity} commit --allow-empty", f"{identity} rebase -i HEAD~1", f"{identity} commit --amend"):
        output = await run(desk, command)
        assert "[exit code 0" not in output.content
    assert (await run(desk, "git rev-parse HEAD")).content.split("\n")[0] == before
    assert "one" in (await run(desk, "git log")).content  # no pager waits


@on_linux
async def test_a_command_inherits_no_descriptor_and_no_ignored_signal(desk: Desk):
    output = await run(desk, "ls /proc/self/fd; grep -E 'SigIgn|SigBlk' /proc/self/status")
    assert output.content.split("\n")[:4] == ["0", "1", "2", "3"]  # the last one is the listing's own
    blocked, ignored = (int(line.split()[1], 16) for line in output.content.splitlines() if line.startswith("Sig"))
    of_the_system = 0b11 << 31  # 32 and 33: the C library's own, which no program may touch
    assert (blocked & ~of_the_system, ignored & ~of_the_system) == (0, 0)


@on_linux
async def test_a_command_that_opens_a_terminal_does_not_get_hold_of_it(desk: Desk):
    main, other = os.openpty()
    try:
        output = await run(desk, f"exec 5<>{os.ttyname(other)}; ps -o tty= -p $$; exec 6<>/dev/tty || echo none")
    finally:
        os.close(main)
        os.close(other)
    assert output.content.startswith("?") and "none" in output.content


# What is left: nothing

STUBBORN = """
import os, signal, sys, time
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1):
    signal.signal(number, signal.SIG_IGN)
def rest():
    while True:
        time.sleep(1)
if os.fork() == 0:                       # a child
    if os.fork() == 0:                   # a grandchild in a session of its own
        os.setsid()
        if os.fork() == 0:               # whose parent goes away
            if os.fork() == 0:
                os.execve(sys.executable, [sys.executable, "-c", "import time; time.sleep(1000)", sys.argv[1]], {})
            rest()
        os._exit(0)
    if os.fork() == 0:                   # one that forks while it is ended
        while True:
            if os.fork() == 0:
                time.sleep(0.01)
                os._exit(0)
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                pass
    rest()
print("grown", flush=True)
"""


@pytest.fixture
def stubborn(folder: Path) -> str:
    (folder / "stubborn.py").write_text(STUBBORN)
    return f"{sys.executable} stubborn.py"


@on_linux
@pytest.mark.parametrize("attempt", range(5))
async def test_nothing_is_left_after_a_timeout_however_it_tries(desk: Desk, stubborn: str, name: str, attempt):
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], start_new_session=True)  # noqa: ASYNC220 - at once
    try:
        output = await run(desk, f"{stubborn} {name}; sleep 1000", 0.7)
        assert not alive(name)
        assert "grown" in output.content and "could not be ended" not in output.content
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


@on_linux
@pytest.mark.parametrize("attempt", range(3))
async def test_nothing_is_left_after_a_cancel_however_it_tries(
    desk: Desk, folder: Path, stubborn: str, name: str, attempt
):
    running = asyncio.create_task(run(desk, f"{stubborn} {name}; sleep 1000"))
    await until(lambda: len(alive(name)) > 4)
    begun = monotonic()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not alive(name)
    assert monotonic() - begun < 5
    assert not family(os.getpid())


@on_linux
async def test_nothing_is_left_after_a_second_cancel_either(desk: Desk, folder: Path, name: str):
    sleeper = f"{sys.executable} -c 'import time; time.sleep(1000)' {name}"
    running = asyncio.create_task(run(desk, f"trap '' TERM; setsid {sleeper} & touch begun; {sleeper}"))
    await until((folder / "begun").exists)
    running.cancel()
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not alive(name) and not family(os.getpid())


@on_linux
async def test_what_runs_in_the_background_neither_hangs_the_command_nor_outlives_it(
    desk: Desk, stubborn: str, name: str
):
    begun = monotonic()
    output = await run(desk, f"{stubborn} {name} & setsid sleep 1000 & echo done")
    assert monotonic() - begun < 15
    assert "done\n" in output.content and "processes it left running were ended: " in output.content
    assert not alive(name) and not output.is_error


async def test_what_ends_just_after_the_command_may_say_its_last_word(desk: Desk):
    assert "late" in (await run(desk, "(sleep 0.05; echo late) & true")).content


async def test_a_command_may_clean_up_when_its_time_is_over(desk: Desk, folder: Path):
    output = await run(desk, "trap 'echo cleaned; rm lock; exit' TERM; touch lock; while :; do sleep 0.05; done", 0.5)
    assert "cleaned" in output.content and not (folder / "lock").exists()


@on_linux
@pytest.mark.parametrize("blow", ["kill -STOP $PPID", "kill -KILL $PPID", "kill -STOP $PPID; kill -KILL $PPID"])
async def test_a_command_that_turns_on_its_supervisor_is_ended_all_the_same(desk: Desk, name: str, blow):
    sleeper = f"{sys.executable} -c 'import time; time.sleep(1000)' {name}"
    begun = monotonic()
    told = await desk.refusal(
        "run_command", command=f"{sleeper} & setsid {sleeper} & {blow}; {sleeper}", timeout_seconds=0.5
    )
    assert "its own supervisor" in told
    assert not alive(name)
    assert monotonic() - begun < BOUND


@on_linux
@pytest.mark.parametrize(
    "blow", ["echo garbage", """echo '{"reason": "ended", "code": "x"}'""", "head -c 100000000 /dev/zero"]
)
async def test_what_a_command_writes_in_its_supervisors_place_is_neither_believed_nor_kept(desk: Desk, name: str, blow):
    sleeper = f"{sys.executable} -c 'import time; time.sleep(1000)' {name}"
    begun = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    command = f"{sleeper} & [ -w /proc/$PPID/fd/1 ] || kill -KILL $PPID; {blow} > /proc/$PPID/fd/1"
    assert "its own supervisor" in await desk.refusal("run_command", command=command, timeout_seconds=BOUND)
    assert not alive(name)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - begun < 50_000  # kB


async def test_a_cancel_does_not_wait_for_an_answer_that_nobody_reads(desk: Desk, folder: Path):
    running = asyncio.create_task(run(desk, "head -c 300000 /dev/urandom; touch begun; sleep 1000"))
    await until((folder / "begun").exists)
    begun = monotonic()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert monotonic() - begun < 3.5


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() == 0, reason="an administrator reaches into everything")
async def test_a_command_does_not_reach_into_its_supervisor(desk: Desk):
    output = await run(desk, "for n in 0 1; do echo x > /proc/$PPID/fd/$n; done; head -c 1 /proc/$PPID/mem")
    assert output.content.count("denied") == 3


RABBIT = """
import os, sys
for chain in range(int(sys.argv[1])):
    if os.fork() == 0:
        for hop in range(20_000):
            if os.fork():
                os._exit(0)
            if sys.argv[2] == "session":
                os.setsid()
        os._exit(0)
"""


@on_linux
@pytest.mark.parametrize("chains", [1, 10])
@pytest.mark.parametrize("how", ["group", "session"])
async def test_what_goes_on_from_process_to_process_is_caught(desk: Desk, folder: Path, chains, how):
    (folder / "rabbit.py").write_text(RABBIT)
    os.mkfifo(folder / "held")
    held = os.open(folder / "held", os.O_RDONLY | os.O_NONBLOCK)
    try:
        output = await run(desk, f"exec 9<>held; {sys.executable} -S rabbit.py {chains} {how}; sleep 0.1")
        assert os.read(held, 1) == b""  # nobody has it open: while one lives, this would be an error
    finally:
        os.close(held)
    assert "[exit code 0" in output.content and "could not be ended" not in output.content


HOST = """
    import asyncio, sys
    from treadle.toolkit import Workspace

    async def main():
        run = (await Workspace(sys.argv[1], allow_commands=True).tools())[-1]
        await run.invoke({"command": sys.argv[2]})

    asyncio.run(main())
"""


@on_linux
async def test_nothing_is_left_when_the_host_dies(folder: Path, stubborn: str, name: str):
    command = [sys.executable, "-c", textwrap.dedent(HOST), folder, f"{stubborn} {name}; sleep 1000"]
    with subprocess.Popen(command) as host:  # noqa: ASYNC220 - at once
        await until(lambda: len(alive(name)) > 4)
        host.send_signal(signal.SIGKILL)
        await until(lambda: not alive(name))


async def test_a_cancelled_run_ends_its_commands(folder: Path, name: str):
    model = ScriptedModel(call("run_command", command=f"touch begun; sleep 1000; : {name}"))
    agent = Agent(model, toolsets=[Workspace(folder, allow_commands=True)])
    running = asyncio.create_task(agent.run("go"))
    await until((folder / "begun").exists)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not family(os.getpid())


async def test_commands_at_the_same_time_do_not_end_one_another(folder: Path):
    desk = Desk(folder)
    outputs = await asyncio.gather(
        run(desk, "sleep 1000", 0.3), *[run(desk, f"sleep 0.6; echo {number}") for number in range(3)]
    )
    assert outputs[0].is_error
    assert [output.content[0] for output in outputs[1:]] == ["0", "1", "2"]


async def test_the_loop_is_free_while_a_command_floods(desk: Desk):
    running = asyncio.create_task(run(desk, "yes", 1.0))
    ticks = 0
    while not running.done():
        await asyncio.sleep(0.01)
        ticks += 1
    assert ticks > 20


@pytest.mark.skipif(not Path("/bin/ps").exists(), reason="there is no ps")
def test_where_there_is_no_process_file_system_ps_tells_the_same():
    listed = _listed_by_ps()[os.getpid()]
    assert (listed.parent, listed.group, listed.alive) == (os.getppid(), os.getpgrp(), True)


async def test_no_descriptor_is_left_open(desk: Desk):
    async def used() -> int:
        await asyncio.sleep(0)
        return len(list(Path("/dev/fd").iterdir()))

    await run(desk, "true")
    before = await used()
    for _ in range(3):
        await run(desk, "echo x")
        await run(desk, "sleep 9", 0.05)
    assert await used() <= before
