"""The client in plain lines: on pipes, and where a person types at a terminal that draws nothing."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import io
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from support.client import make_parts
from treadle import Agent, ToolRequest, UserMessage
from treadle.approval import Deny
from treadle.cli.chat import plain_asking
from treadle.cli.chat.plain import Plain
from treadle.cli.chat.plain_asking import PlainAsking
from treadle.cli.chat.plain_output import PlainOutput, streams_of_this_process
from treadle.cli.chat.view import View
from treadle.cli.exits import Signals
from treadle.errors import ConfigError
from treadle.testing import ScriptedModel, call, error

BOUND = 6.0
TOUCH = call("run_command", command="touch made")


class Broken(io.StringIO):
    """A stream that takes nothing more, once it is `broken` and `after` was written."""

    broken = 0
    after = ""

    def flush(self) -> None:
        if self.broken and self.after in self.getvalue():
            raise OSError(self.broken, os.strerror(self.broken))


class Shell:
    """A client, what is typed, and what it has printed."""

    def __init__(self, folder: Path, *steps: Any, person: bool, side: io.StringIO | None = None) -> None:
        self.folder = folder
        self.model = ScriptedModel(*steps)
        parts = make_parts(folder)
        parts.agents.given = Agent(self.model, toolsets=[parts.workspace], retry=None)
        parts.presence.move_to("first")
        self.out = Broken()
        source, self._keys = os.pipe()
        output = PlainOutput(self.out, side or self.out)
        self.client = Plain(parts, "first", View("none"), source=source, output=output, person=person)
        self._source = source

    @property
    def text(self) -> str:
        return self.out.getvalue()

    @property
    def said(self) -> list[str]:
        """What the person said last, of each request."""
        messages = [request.messages[-1] for request in self.model.requests]
        return [message.content[-1].text for message in messages if isinstance(message, UserMessage)]

    @property
    def results(self) -> str:
        return str(self.model.requests[-1].messages[-1])

    def type(self, text: str | bytes) -> None:
        os.write(self._keys, text if isinstance(text, bytes) else text.encode())

    def end(self) -> None:
        os.close(self._keys)
        self._keys = -1

    async def wait(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(BOUND):
            while not condition():  # noqa: ASYNC110 - a thread reads
                await asyncio.sleep(0.005)

    async def sees(self, text: str) -> None:
        await self.wait(lambda: text in self.text)

    def close(self) -> None:
        if self._keys >= 0:
            self.end()


@contextlib.asynccontextmanager
async def running(shell: Shell) -> AsyncIterator[asyncio.Task[int]]:
    code = asyncio.create_task(shell.client.run(["the banner"]))
    try:
        yield code
    finally:
        shell.close()
        shell.client.leave()
        await code


async def piped(shell: Shell, text: str | bytes) -> int:
    shell.type(text)
    shell.end()
    async with asyncio.timeout(BOUND):
        return await shell.client.run(["the banner"])


async def test_each_line_of_a_pipe_is_answered_before_the_next_is_taken(tmp_path):
    shell = Shell(tmp_path, "First.", "Second.", person=False)
    assert await piped(shell, "one\n/cost\ntwo \\\nand more") == 0
    assert shell.said == ["one", "two \nand more"]
    assert shell.text.index("First.") < shell.text.index("tokens in") < shell.text.index("Second.")
    assert "the banner" not in shell.text and "\x1b" not in shell.text and "\r" not in shell.text


@pytest.mark.parametrize("said", ["", "\n  \n"])
async def test_an_empty_pipe_ends_at_once_and_says_what_to_do(tmp_path, said):
    shell = Shell(tmp_path, person=False)
    with pytest.raises(ConfigError, match="treadle run PROMPT"):
        await piped(shell, said)
    assert not shell.said and not shell.text


async def test_a_line_that_is_not_utf_8_ends_nothing(tmp_path):
    shell = Shell(tmp_path, "First.", "Second.", person=False)
    assert await piped(shell, b"\xff\xfe odd\r\nnext\n") == 0
    assert shell.said == ["\ufffd\ufffd odd", "next"]


async def test_on_a_pipe_what_would_be_asked_is_denied_and_told(tmp_path):
    shell = Shell(tmp_path, TOUCH, "I could not.", person=False)
    assert await piped(shell, "go\n") == 0
    assert "nobody can be asked about run_command" in shell.text
    assert "Nobody can be asked" in shell.results and not (tmp_path / "root" / "made").exists()


async def test_the_code_is_that_of_the_last_run_that_failed(tmp_path):
    shell = Shell(tmp_path, error("broken"), "Fine.", person=False)
    assert await piped(shell, "one\ntwo\n") == 1
    assert "broken" in shell.text and "Fine." in shell.text


async def test_lines_on_a_pipe_are_not_broken_and_controls_are_shown_as_text(tmp_path):
    long = "word " * 60
    shell = Shell(tmp_path, f"{long}\x1b[2Jend", person=False)
    await piped(shell, "go\n")
    assert long.strip() in shell.text and "\x1b" not in shell.text


@pytest.fixture
def at_once(monkeypatch):
    monkeypatch.setattr(plain_asking, "ARMED_SECONDS", 0.0)


async def test_a_person_is_asked_until_the_answer_is_one(tmp_path, at_once):
    shell = Shell(tmp_path, TOUCH, "Done.", person=True)
    async with running(shell) as code:
        await shell.sees("> ")
        shell.type("go\n")
        await shell.sees("[n]o: ")
        assert "$ touch made" in shell.text
        shell.type("what\n")
        await shell.wait(lambda: shell.text.count("[n]o: ") == 2)
        assert not (tmp_path / "root" / "made").exists()
        shell.type("y\n")
        await shell.sees("Done.")
        assert (tmp_path / "root" / "made").exists()
        shell.end()
        assert await code == 0
        assert shell.text.count("[n]o: ") == 2  # it is asked no more once it is answered


async def test_what_is_asked_and_told_is_seen_by_the_person_where_the_conversation_goes_to_a_file(tmp_path, at_once):
    side = io.StringIO()
    shell = Shell(tmp_path, TOUCH, "Done.", person=True, side=side)
    async with running(shell):
        shell.type("go\n")
        await shell.wait(lambda: side.getvalue().endswith("[n]o: "))
        assert "$ touch made\n" in side.getvalue() and "touch" not in shell.text
        shell.type("a\n")
        await shell.wait(lambda: side.getvalue().endswith("save this rule? [y]es [n]o: "))
        assert "always allow: run_command(touch made)\n" in side.getvalue()
        shell.type("n\n")
        await shell.wait(lambda: side.getvalue().endswith("[n]o: ") and "allow? " in side.getvalue()[-60:])
        shell.type("y\n")
        await shell.sees("Done.")
        await shell.wait(lambda: side.getvalue().endswith("> "))
        shell.type("/nope\n")
        await shell.wait(lambda: "there is no /nope" in side.getvalue())
    assert "the banner" in side.getvalue() and "Done." not in side.getvalue()
    assert shell.text.startswith("> go\n") and "banner" not in shell.text and "nope" not in shell.text


@pytest.mark.parametrize("lines", [("n use make\n",), ("n\n", "use make\n")])
async def test_no_takes_a_reason_for_the_model(tmp_path, at_once, lines):
    shell = Shell(tmp_path, TOUCH, "Then not.", person=True)
    async with running(shell):
        shell.type("go\n")
        await shell.sees("[n]o: ")
        shell.type(lines[0])
        if lines[1:]:
            await shell.sees("why not?")
            shell.type(lines[1])
        await shell.sees("Then not.")
        assert "The user did not allow it: use make" in shell.results


async def test_the_rule_is_shown_and_asked_about_before_it_is_saved(tmp_path, at_once):
    shell = Shell(tmp_path, TOUCH, "Done.", person=True)
    async with running(shell):
        shell.type("go\n")
        await shell.sees("[a]lways")
        shell.type("a\n")
        await shell.sees("save this rule?")
        assert "always allow: " in shell.text
        shell.type("n\n")
        await shell.wait(lambda: shell.text.count("[a]lways") == 2)
        shell.type("y\n")
        await shell.sees("Done.")
    assert not shell.client.client.parts.rules.rules


async def test_a_line_that_was_typed_before_the_question_waits_and_does_not_answer_it(tmp_path, monkeypatch):
    monkeypatch.setattr(plain_asking, "ARMED_SECONDS", 60.0)
    shell = Shell(tmp_path, TOUCH, person=True)
    async with running(shell):
        shell.type("go\n")
        await shell.sees("[n]o: ")
        shell.type("y\n")
        await shell.sees("waits its turn")
        assert shell.client.client.conversation.queue == ["y"] and not (tmp_path / "root" / "made").exists()


async def test_a_rule_is_not_saved_by_a_line_that_came_before_it_could_be_read(tmp_path):
    parts, now, shown = make_parts(tmp_path), [0.0], []
    asking = PlainAsking(parts.approvals, lambda made: shown.extend(made(80)), View("none"), clock=lambda: now[0])
    tool = next(tool for tool in await parts.workspace.tools() if tool.name == "run_command")
    args = '{"command": "touch made"}'
    request = ToolRequest(call_id="a", index=0, name=tool.name, args=args, tool=tool, context=None)
    call = asyncio.create_task(parts.approvals(request))
    await asyncio.sleep(0)
    asking.look()
    now[0] = 5.0
    assert asking.takes("a") and not asking.takes("y") and not call.done()
    now[0] = 10.0
    assert asking.takes("n") and asking.takes("n nothing of that kind")
    assert (await call, parts.rules.rules) == (Deny("The user did not allow it: nothing of that kind"), ())


async def test_lines_that_wait_when_the_person_leaves_are_told(tmp_path):
    shell = Shell(tmp_path, TOUCH, person=True)
    async with running(shell) as code:
        shell.type("go\n")
        await shell.sees("[n]o: ")
        shell.client.client.conversation.send("later")
        shell.type("and \\\n")
        shell.end()
        assert await code == 0
    assert "not sent: later\nand \n" in shell.text
    assert not shell.text.rstrip("\n").endswith(("> ", "... "))  # no line is awaited any more


async def test_what_is_given_back_is_shown_whole(tmp_path):
    shell = Shell(tmp_path, person=True)
    async with running(shell):
        shell.client.give_back(shell.client.client.pastes.fold("line\n" * 20 + "the last"))
        assert "the last" in shell.text


async def test_whoever_reads_may_leave_and_that_is_the_exit_code(tmp_path):
    shell = Shell(tmp_path, TOUCH, error("the run fails, too"), person=False)
    shell.out.broken, shell.out.after = errno.EPIPE, "refused: "
    assert await piped(shell, "one\ntwo\n") == 141
    assert "two" not in shell.text


async def test_the_first_reason_to_leave_is_the_exit_code(tmp_path):
    shell = Shell(tmp_path, person=False)
    shell.client.leave(143)
    shell.client.error("too late")
    shell.client.leave()
    assert (await piped(shell, ""), shell.text) == (143, "error: too late\n")


def test_a_full_disk_is_told():
    out, side = Broken(), io.StringIO()
    out.broken = errno.ENOSPC
    output, codes = PlainOutput(out, side), list[int]()
    output.lost = codes.append
    output.lines(["said"])
    assert (codes, side.getvalue()) == ([1], "treadle: cannot write what is said: No space left on device\n")


def test_a_closed_pipe_leaves_no_descriptor_open():
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as out:
        output, codes = PlainOutput(out, io.StringIO()), list[int]()
        output.lost = codes.append
        before = list(Path("/dev/fd").iterdir())
        output.lines(["said"])
        assert (codes, len(list(Path("/dev/fd").iterdir()))) == ([141], len(before))
        output.lines(["into nothing"])
        assert codes == [141]


def test_streams_that_were_closed_before_the_start_take_what_is_said(monkeypatch):
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    output = streams_of_this_process()
    output.lines(["said"])
    output.lines(["aside"], aside=True)


async def test_a_hangup_that_is_ignored_stays_ignored(tmp_path):
    shell = Shell(tmp_path, person=False)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Signals() as signals:
            run = asyncio.create_task(shell.client.run(signals=signals))
            await asyncio.sleep(0)
            os.kill(os.getpid(), signal.SIGHUP)
            await asyncio.sleep(0)
            assert not shell.client.client.leaving.is_set()
            shell.type("/cost")
            shell.end()
            assert await run == 0
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


async def test_ctrl_c_ends_what_goes_on_and_twice_at_an_idle_prompt_leaves(tmp_path):
    shell = Shell(tmp_path, TOUCH, person=True)
    async with running(shell) as code:
        shell.type("go\n")
        await shell.sees("[n]o: ")
        shell.client.interrupt()
        await shell.wait(lambda: not shell.client.client.conversation.busy)
        await shell.wait(lambda: shell.text.endswith("> "))
        shell.client.interrupt()
        assert "ctrl-c again leaves" in shell.text and not code.done()
        shell.client.interrupt()
        assert await code == 0


async def test_quit_leaves_while_a_line_is_awaited(tmp_path):
    shell = Shell(tmp_path, person=True)
    async with running(shell) as code:
        shell.type("/quit\n")
        async with asyncio.timeout(BOUND):
            assert await code == 0
