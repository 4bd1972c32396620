"""Ctrl-C, SIGTERM, a reader that leaves, and a real terminal."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import signal
import subprocess
import time

from support.program import BOUND, STALL, call, finish, text, wait_for


def assert_interrupted(process: subprocess.Popen[bytes], code: int) -> None:
    outcome = finish(process)
    assert outcome.code == code
    assert "Traceback" not in outcome.err
    assert outcome.err.splitlines()[-1].endswith("stopped: cancelled"), outcome.err


def test_ctrl_c_ends_the_answer_hangs_up_and_still_sums_up(treadle, chat):
    server = chat([{"content": "Hello"}, STALL])
    process = treadle.start("run", *server.model, "hi")
    assert wait_for(process, process.stdout, b"Hello") == b"Hello"
    process.send_signal(signal.SIGINT)
    outcome = finish(process)
    assert (outcome.code, outcome.out) == (130, "\n")
    assert "Traceback" not in outcome.err
    assert outcome.err.splitlines()[-1].endswith("stopped: cancelled")
    assert server.left.wait(BOUND)


def test_an_interrupted_log_is_whole(treadle, chat):
    server = chat([{"content": "Hello"}, STALL])
    process = treadle.start("run", *server.model, "--json", "hi")
    first = wait_for(process, process.stdout, b'"Hello"')
    process.send_signal(signal.SIGINT)
    outcome = finish(process)
    events = [json.loads(line) for line in (first.decode() + outcome.out).splitlines()]
    assert [event["seq"] for event in events] == list(range(len(events)))
    assert (events[-1]["type"], events[-1]["stop"], outcome.code) == ("run_finish", "cancelled", 130)


def test_sigterm_ends_it_as_cleanly(treadle, chat):
    server = chat([{"content": "Hello"}, STALL])
    process = treadle.start("run", *server.model, "hi")
    wait_for(process, process.stdout, b"Hello")
    process.terminate()
    assert_interrupted(process, 143)


def test_ctrl_c_before_the_first_word_is_the_same(treadle, chat):
    server = chat([STALL])
    process = treadle.start("run", *server.model, "hi")
    deadline = time.monotonic() + BOUND
    while not server.bodies and time.monotonic() < deadline:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.02)
    process.send_signal(signal.SIGINT)
    assert_interrupted(process, 130)


def test_ctrl_c_in_a_tool_in_a_thread_does_not_wait_for_it(treadle, chat):
    (treadle.folder / "slow.py").write_text(
        "import sys, time\n"
        "def slow() -> str:\n    'Slow.'\n    sys.stderr.write('BUSY\\n')\n    time.sleep(600)\n    return ''\n"
    )
    server = chat(call("slow", "{}"), text("never"))
    process = treadle.start("run", *server.model, "--tool", "slow:slow", "hi")
    wait_for(process, process.stderr, b"BUSY")
    process.send_signal(signal.SIGINT)
    assert_interrupted(process, 130)


def test_a_second_ctrl_c_leaves_also_when_a_tool_blocks_everything(treadle, chat):
    (treadle.folder / "block.py").write_text(
        "import sys, time\n"
        "async def block() -> str:\n    'Block.'\n    sys.stderr.write('BUSY\\n')\n    time.sleep(600)\n    return ''\n"
    )
    server = chat(call("block", "{}"), text("never"))
    process = treadle.start("run", *server.model, "--tool", "block:block", "hi")
    wait_for(process, process.stderr, b"BUSY")
    deadline = time.monotonic() + BOUND
    while process.poll() is None and time.monotonic() < deadline:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.5)
    assert_interrupted(process, 130)


def test_ctrl_c_while_the_prompt_is_typed_is_quiet(treadle):
    (treadle.folder / "ready.py").write_text("import sys\nprint('READY', file=sys.stderr, flush=True)\ntools = []\n")
    process = treadle.start("run", "-m", "offline:demo", "--tool", "ready:tools", "-", stdin=subprocess.PIPE)
    wait_for(process, process.stderr, b"READY\n")  # the prompt is what it reads next
    process.send_signal(signal.SIGINT)
    process.wait(BOUND)
    assert finish(process) == (130, "", "")


def test_a_reader_that_leaves_ends_the_run_quietly(treadle, chat):
    server = chat(text(*["line\n"] * 200_000))
    process = treadle.start("run", *server.model, "--no-tools", "hi")
    wait_for(process, process.stdout, b"line")
    process.stdout.close()
    process.stdout = None
    outcome = finish(process)
    assert outcome.code == 141
    assert outcome.err == ""


def test_closed_standard_streams_are_no_crash(treadle):
    script = 'exec "$0" -m treadle run -m offline:demo "Read notes.txt" {}'
    for closing in (">&-", "2>&-", "<&-", ">&- 2>&-"):
        process = subprocess.run(
            ["sh", "-c", script.format(closing), _python()],
            cwd=treadle.folder,
            env=treadle.environ,
            capture_output=True,
            timeout=BOUND,
            check=False,
        )
        assert process.returncode == 0, (closing, process.stderr)
        assert b"Traceback" not in process.stderr


def _python() -> str:
    import sys

    return sys.executable


def on_terminal(treadle, *arguments: str) -> tuple[int, bytes]:
    """Runs the program with a pseudo-terminal for all its streams: exit code, and what the terminal was sent."""
    master, slave = pty.openpty()
    process = treadle.start(*arguments, stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    seen, deadline = b"", time.monotonic() + BOUND
    with contextlib.suppress(OSError):  # the way Linux tells that the other end is closed
        while time.monotonic() < deadline and select.select([master], [], [], deadline - time.monotonic())[0]:
            if not (piece := os.read(master, 4096)):
                break
            seen += piece
    os.close(master)
    return process.wait(BOUND), seen


HOSTILE = "a\x1b[2Jb\x1b]0;owned\x07c\x9b31md\u202ee\rf\tg"


def test_a_terminal_never_sees_what_could_steer_it(treadle):
    (treadle.folder / "evil.txt").write_text(HOSTILE)
    (treadle.folder / "n\x1b[31m").touch()
    code, seen = on_terminal(treadle, "run", "-m", "offline:demo", "Read evil.txt and list the files.")
    shown = seen.decode()
    assert code == 0
    assert not any(mark in shown for mark in ("\x1b", "\x07", "\x9b", "\u202e"))
    assert "a\\x1b[2Jb\\x1b]0;owned\\x07c\\x9b31md\\u202eef\tg" in shown
    assert shown.splitlines()[-1].startswith("2 steps, ")


def test_a_pipe_gets_the_answer_as_it_is(treadle):
    (treadle.folder / "evil.txt").write_bytes(HOSTILE.encode())
    outcome = treadle("run", "-m", "offline:demo", "Read evil.txt")
    assert "\x1b[2Jb" in outcome.out
    assert "\x1b" not in outcome.err


def test_on_a_terminal_ctrl_c_reaches_the_run_alone(treadle, chat):
    server = chat([{"content": "Hello"}, STALL])
    master, slave = pty.openpty()
    process = treadle.start("run", *server.model, "hi", stdin=slave, stdout=slave, stderr=slave, start_new_session=True)
    os.close(slave)
    with os.fdopen(master, "r+b", buffering=0) as terminal:
        wait_for(process, terminal, b"Hello")
        process.send_signal(signal.SIGINT)
        assert b"stopped: cancelled" in wait_for(process, terminal, b"stopped: cancelled")
        assert process.wait(BOUND) == 130
