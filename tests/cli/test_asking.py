"""`treadle run` at a terminal: each change and each command is shown and asked about."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import termios
import time

import pytest

from support.program import BOUND, call, finish, text

QUESTION = b"or no and why: "


def arguments(**given) -> str:
    return json.dumps(given)


class Person:
    """The program at a terminal of its own, and what is typed there, one line for each question."""

    def __init__(self, treadle, *options: str) -> None:
        self.terminal, slave = pty.openpty()

        def control() -> None:
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.process = treadle.start("run", *options, stdin=slave, stderr=slave, preexec_fn=control)
        os.close(slave)
        self.seen = b""

    def types(self, *lines: str) -> tuple[int, str, str]:
        """The exit code, the answer, and what stood on the terminal."""
        lines_left, deadline = list(lines), time.monotonic() + BOUND
        while time.monotonic() < deadline:
            if select.select([self.terminal], [], [], 0.1)[0]:
                try:
                    piece = os.read(self.terminal, 65_536)
                except OSError:  # nobody holds the other end any more
                    break
                self.seen += piece
            if lines_left and self.seen.count(QUESTION) > len(lines) - len(lines_left):
                os.write(self.terminal, lines_left.pop(0).encode() + b"\n")
        os.close(self.terminal)
        self.process.stderr = None
        assert not lines_left, self.seen.decode()
        out = self.process.stdout.read().decode()
        return self.process.wait(BOUND), out, self.seen.decode().replace("\r\n", "\n")


@pytest.fixture
def person(treadle):
    return lambda *options: Person(treadle, *options)


def results(server) -> list[str]:
    return [message["content"] for message in server.bodies[-1]["messages"] if message["role"] == "tool"]


def test_a_change_is_shown_and_made_once_it_is_allowed(treadle, chat, person):
    (treadle.folder / "a.txt").write_text("one\ntwo\n")
    edit = arguments(path="a.txt", edits=[{"old_text": "two", "new_text": "three"}])
    server = chat(call("edit_file", edit), text("done"))
    code, out, seen = person(*server.model, "edit it").types("y")
    assert (code, out) == (0, "done\n")
    assert "asks first" in seen and "-two\n+three" in seen
    assert (treadle.folder / "a.txt").read_text() == "one\nthree\n"


def test_a_refusal_reaches_the_model_with_its_reason(treadle, chat, person):
    server = chat(call("write_file", arguments(path="b.txt", content="x")), text("as you wish"))
    code, out, _ = person(*server.model, "write it").types("use another name")
    assert (code, out) == (0, "as you wish\n")
    assert "use another name" in results(server)[0]
    assert not (treadle.folder / "b.txt").exists()


def test_commands_are_asked_about_until_they_are_allowed_for_the_session(treadle, chat, person):
    server = chat(
        call("run_command", arguments(command="echo one > 1")),
        call("run_command", arguments(command="echo two > 2")),
        call("run_command", arguments(command="echo three > 3")),
        text("done"),
    )
    code, _, seen = person(*server.model, "go").types("n", "s")
    assert code == 0
    assert "$ echo one > 1" in seen and "$ echo three > 3" in seen
    assert [(treadle.folder / name).exists() for name in "123"] == [False, True, True]


def test_reading_is_not_asked_about(treadle, chat, person):
    (treadle.folder / "a.txt").write_text("secret")
    server = chat(call("read_file", arguments(path="a.txt")), text("read"))
    code, _, seen = person(*server.model, "read it").types()
    assert code == 0 and QUESTION.decode() not in seen and "secret" in results(server)[0]


def test_yes_asks_about_nothing(treadle, chat, person):
    server = chat(call("run_command", arguments(command="echo one > 1")), text("done"))
    code, _, seen = person(*server.model, "--yes", "go").types()
    assert code == 0 and QUESTION.decode() not in seen and (treadle.folder / "1").exists()


def test_a_tool_that_was_named_is_trusted(treadle, chat, person):
    (treadle.folder / "mine.py").write_text(
        "from pathlib import Path\ndef note(line: str) -> str:\n    Path('n').write_text(line)\n    return 'noted'\n"
    )
    server = chat(call("note", arguments(line="x")), text("done"))
    code, _, seen = person(*server.model, "--tool", "mine:note", "go").types()
    assert code == 0 and QUESTION.decode() not in seen and (treadle.folder / "n").exists()


def test_a_call_that_would_fail_anyway_is_not_asked_about(treadle, chat, person):
    edit = arguments(path="none.txt", edits=[{"old_text": "a", "new_text": "b"}])
    server = chat(call("edit_file", edit), text("done"))
    code, _, seen = person(*server.model, "go").types()
    assert code == 0 and QUESTION.decode() not in seen and "none.txt" in results(server)[0]


def test_ctrl_c_at_a_question_ends_the_run(treadle, chat, person):
    server = chat(call("run_command", arguments(command="echo one > 1")), text("never asked for"))
    code, _, seen = person(*server.model, "go").types("\x03")
    assert code == 130 and not (treadle.folder / "1").exists()
    assert "stopped: cancelled" in seen


def test_away_from_a_terminal_nothing_is_asked_and_nothing_is_on_by_itself(treadle, chat):
    server = chat(text("ok"))
    outcome = finish(treadle.start("run", *server.model, "--yes", "hi"))
    assert outcome.code == 0
    names = {tool["function"]["name"] for tool in server.bodies[0]["tools"]}
    assert not names & {"write_file", "edit_file", "run_command"}


def test_a_call_that_fails_when_it_is_looked_at_does_not_run_unseen_later(treadle, chat, person):
    write = arguments(path="a.sh", content="echo hello")
    edit = arguments(path="a.sh", edits=[{"old_text": "hello", "new_text": "$(id)"}])
    (first, finish), (second, _) = call("write_file", write), call("edit_file", edit)
    second["tool_calls"][0] |= {"index": 1, "id": "b"}
    server = chat([first, second, finish], text("done"))
    code, _, _ = person(*server.model, "go").types("y")
    assert code == 0 and "would fail" in json.dumps(server.bodies[-1])
    assert (treadle.folder / "a.sh").read_text() == "echo hello"


def test_what_a_rule_has_asked_about_is_asked_about_again_in_the_same_session(treadle, chat, person):
    treadle.home.mkdir()
    (treadle.home / "config.toml").write_text('[permissions]\nask = ["run_command(touch *)"]\n')
    server = chat(
        call("run_command", arguments(command="touch 1")), call("run_command", arguments(command="touch 2")), text("ok")
    )
    code, _, _ = person(*server.model, "go").types("s", "n")
    assert code == 0 and [(treadle.folder / name).exists() for name in "12"] == [True, False]
