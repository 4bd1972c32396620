"""The client with its keys, on a pipe and into a text instead of a terminal."""

from __future__ import annotations

import asyncio
import contextlib
import io
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pyte
import pytest
from prompt_toolkit.data_structures import Size
from prompt_toolkit.input import create_pipe_input

from support.client import make_parts
from support.emulator import Emulator
from treadle import Agent, UserMessage, tool
from treadle.cli.chat.app import App
from treadle.cli.chat.history import HistoryFile
from treadle.cli.chat.inline import SteadyOutput, reflows
from treadle.cli.chat.view import View
from treadle.testing import ScriptedModel, call

BOUND = 6.0
LEFT, ENTER, ESCAPE, UP, TAB, BACK = "\x1b[D", "\r", "\x1b", "\x1b[A", "\t", "\x7f"
PASTE = "\x1b[200~{}\x1b[201~"


class Into(io.StringIO):
    """Draws what is written."""

    def __init__(self, emulator: Emulator) -> None:
        super().__init__()
        self._stream = pyte.Stream(emulator)

    def write(self, text: str) -> int:
        self._stream.feed(text)
        return len(text)


class Terminal:
    """A client that runs, the keys that are pressed, and everything that it wrote."""

    def __init__(self, folder: Path, keys: Any, steps: tuple[Any, ...], *, tools: Any = (), **options: Any) -> None:
        self.model = ScriptedModel(*steps)
        parts = make_parts(folder, **options)
        parts.agents.given = Agent(self.model, tools=tools, toolsets=[parts.workspace], retry=None)
        parts.presence.move_to("first")
        self.size = Size(rows=24, columns=80)
        self.emulator = Emulator(80, 24, lambda _: None)
        output = SteadyOutput(Into(self.emulator), lambda: self.size, term="xterm", enable_cpr=False)
        self.history = HistoryFile(folder / "home" / "history")
        self.app = App(parts, "first", View("none"), self.history, source=keys, output=output)
        self._keys = keys
        self.code: asyncio.Task[int] | None = None

    @property
    def written(self) -> str:
        return "\n".join([*self.emulator.history, *self.emulator.text()])

    @property
    def text(self) -> str:
        return self.app.buffer.text

    def press(self, *keys: str) -> None:
        self._keys.send_text("".join(keys))

    async def until(self, true: Callable[[], Any]) -> None:
        async with asyncio.timeout(BOUND):
            while not true():
                assert self.code is not None and (not self.code.done() or self.code.result() >= 0)
                await asyncio.sleep(0.005)

    async def typed(self, *keys: str) -> None:
        """Presses keys, and waits until all before them have done their work."""
        self.press(*keys, "\x1b[24~")  # F12 is the client's own no-op, so it counts what was taken
        before = self.taken
        await self.until(lambda: self.taken > before)

    taken = 0

    async def seen(self, text: str) -> None:
        await self.until(lambda: text in self.written)

    async def idle(self) -> None:
        await self.until(lambda: not self.app.client.conversation.busy)

    def resize(self, columns: int, rows: int) -> None:
        self.size = Size(rows=rows, columns=columns)
        self.emulator.resize(rows, columns)
        self.app.resized()

    def asked(self, number: int) -> list[str]:
        messages = self.model.requests[number].messages
        return [part.text for message in messages if isinstance(message, UserMessage) for part in message.content]


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Callable[..., Any]]:
    async with contextlib.AsyncExitStack() as stack:

        async def begin(*steps: Any, **options: Any) -> Terminal:
            terminal = Terminal(tmp_path, stack.enter_context(create_pipe_input()), steps, **options)

            def count(_: object) -> None:
                terminal.taken += 1

            terminal.app.key_bindings.add("f12")(count)
            terminal.code = asyncio.create_task(terminal.app.run(["treadle"]))
            stack.push_async_callback(end, terminal)
            await terminal.seen(">")
            return terminal

        async def end(terminal: Terminal) -> None:
            terminal.app.leave()
            assert terminal.code is not None
            await asyncio.wait_for(terminal.code, BOUND)

        yield begin


async def test_a_line_is_sent_and_its_answer_printed(start) -> None:
    at = await start("Hello there.")
    at.press("hi", ENTER)
    await at.seen("Hello there.")
    assert "> hi" in at.written and at.asked(0) == ["hi"] and at.text == ""


@pytest.mark.parametrize("key", ["\x1b\r", "\n", "\\\r"], ids=["alt-enter", "ctrl-j", "backslash"])
async def test_a_prompt_may_have_several_lines(start, key: str) -> None:
    at = await start("Yes.")
    at.press("one", key, "two", ENTER)
    await at.seen("Yes.")
    assert at.asked(0) == ["one\ntwo"]


async def test_a_long_paste_is_folded_and_sent_whole(start) -> None:
    at = await start("Read.")
    pasted = "\r\n".join(f"line {number}" for number in range(10_000))
    await asyncio.to_thread(at.press, "see ", PASTE.format(pasted), " there")  # more than a pipe holds
    await at.seen("[pasted 10,000 lines]")
    await at.typed()
    assert len(at.text) == len("see  there") + 1
    at.press(ENTER)
    await at.seen("Read.")
    assert at.asked(0) == [f"see {pasted.replace(chr(13), '')} there"]
    assert "line 5000" not in at.written
    assert at.history.read() == at.asked(0)


async def test_a_paste_is_removed_as_a_unit_and_a_short_one_stays_text(start) -> None:
    at = await start()
    await at.typed(PASTE.format("x\n" * 50), BACK)
    assert at.text == ""
    await at.typed(PASTE.format("a\tb\nc"))
    assert at.text == "a\tb\nc"


async def test_lines_wait_and_the_up_key_takes_them_back(start) -> None:
    go = asyncio.Event()
    at = await start([go, "One."], "Two.")
    at.press("first", ENTER, "second", ENTER)
    await at.seen("waits: second")
    await at.typed(UP)
    assert at.text == "second" and at.app.client.conversation.queue == []
    at.press(" and more", ENTER)
    await at.seen("waits: second and more")
    go.set()
    await at.seen("Two.")
    assert at.asked(1) == ["first", "second and more"]


async def test_alt_s_steers_the_run_that_goes_on(start) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    @tool(effect="read")
    async def look() -> str:
        """Look."""
        begun.set()
        await go.wait()
        return "seen"

    at = await start(call("look"), "Blue.", tools=[look])
    at.press("paint", ENTER)
    await asyncio.wait_for(begun.wait(), BOUND)
    await at.typed("blue", "\x1bs")
    go.set()
    await at.seen("Blue.")
    assert at.asked(1) == ["paint", "blue"]


@pytest.mark.parametrize("key", ["\x03", "\x1b"], ids=["ctrl-c", "escape"])
async def test_a_run_is_ended_by_a_key_and_the_prompt_is_back(start, key: str) -> None:
    at = await start(["Half", asyncio.Event()], "Whole.")
    at.press("first", ENTER)
    await at.seen("Half")
    at.press(key)
    await at.seen("cancelled")
    await at.idle()
    at.press("second", ENTER)
    await at.seen("Whole.")


async def test_ctrl_c_clears_the_prompt_and_twice_at_an_empty_one_leaves(start) -> None:
    at = await start()
    await at.typed("something", "\x03")
    assert at.text == ""
    at.press("\x03")
    await at.seen("ctrl-c again leaves")
    at.press("\x03")
    assert await asyncio.wait_for(at.code, BOUND) == 0
    assert not at.emulator.cursor.hidden and 2004 << 5 not in at.emulator.mode


async def test_ctrl_d_leaves_only_an_empty_prompt(start) -> None:
    at = await start()
    await at.typed("ab", LEFT, "\x04")
    assert at.text == "a"
    await at.typed("\x05", BACK)
    at.press("\x04")
    assert await asyncio.wait_for(at.code, BOUND) == 0


async def test_quit_leaves(start) -> None:
    at = await start()
    at.press("/quit", ENTER)
    assert await asyncio.wait_for(at.code, BOUND) == 0


async def test_shift_tab_changes_the_mode_and_the_status_shows_it(start) -> None:
    at = await start()
    at.press("\x1b[Z")
    await at.seen("auto-edit")


async def test_a_slash_offers_commands_and_tab_takes_one(start) -> None:
    at = await start()
    at.press("/expo")
    await at.seen("write the conversation as Markdown")
    await at.typed(TAB)
    assert at.text == "/export "


async def test_an_at_offers_files_of_the_root(start, tmp_path: Path) -> None:
    (tmp_path / "root" / "src").mkdir(parents=True)
    (tmp_path / "root" / "src" / "loom weaver.py").write_text("")
    (tmp_path / "root" / "src" / "shuttle.py").write_text("")
    (tmp_path / "root" / ".gitignore").write_text("*.log\n")
    (tmp_path / "root" / "shut.log").write_text("")
    at = await start()
    at.press("see @shut")
    await at.seen("src/shuttle.py")
    await at.typed(TAB)
    assert at.text == "see @src/shuttle.py" and "shut.log" not in at.written
    at.press(" @weav")
    await at.seen("src/loom weaver.py")
    await at.typed(TAB)
    assert at.text == 'see @src/shuttle.py @"src/loom weaver.py"'


async def test_earlier_lines_come_back_also_those_of_earlier_sessions(start, tmp_path: Path) -> None:
    HistoryFile(tmp_path / "home" / "history").add("from before\nin two lines")
    at = await start("Yes.")
    at.press("newest", ENTER)
    await at.seen("Yes.")
    await at.typed(UP)
    assert at.text == "newest"
    await at.typed(UP)
    assert at.text == "from before\nin two lines"
    await at.typed("\x03")
    await at.typed("\x12", "befo", ENTER)
    assert at.text == "from before\nin two lines"


async def test_a_call_is_asked_about_and_the_draft_comes_back(start, tmp_path: Path) -> None:
    at = await start(call("write_file", path="a.txt", content="one\n"), "Done.")
    at.press("go", ENTER)
    await at.until(lambda: at.app.client.parts.approvals.pending)
    await at.typed("yes, and")
    await at.seen("[y]es")
    await at.until(lambda: at.text == "")
    at.press("y")
    await at.seen("Done.")
    assert (tmp_path / "root" / "a.txt").read_text() == "one\n" and at.text == "yes, and"


async def test_a_paste_answers_no_question_and_is_kept_for_the_prompt(start) -> None:
    at = await start(call("run_command", command="date"), "Then not.")
    at.press("go", ENTER)
    await at.seen("[y]es")
    await at.typed(PASTE.format("y"))
    assert at.app.asking.stage == "choice" and at.text == ""
    at.press(ESCAPE)
    await at.seen("Then not.")
    assert at.text == "y"


async def test_a_denied_call_gives_the_model_the_reason(start) -> None:
    at = await start(call("run_command", command="rm -rf x"), "Then not.")
    at.press("go", ENTER)
    await at.seen("[y]es")
    at.press("n")
    await at.seen("why not?")
    at.press("too dangerous", ENTER)
    await at.seen("Then not.")
    assert "too dangerous" in at.model.requests[1].messages[-1].results[0].content


async def test_a_reason_that_is_not_given_is_no_message(start) -> None:
    at = await start(call("run_command", command="date"), "Then not.")
    at.press("go", ENTER)
    await at.seen("[y]es")
    at.press("n")
    await at.seen("why not?")
    await at.typed("beca", "\x1bs")
    assert at.text == "beca"
    at.press(ESCAPE)
    await at.seen("[y]es")
    await at.until(lambda: at.text == "")
    at.press("n")
    await at.until(lambda: at.app.asking.stage == "reason")
    at.press("no", "\x03")
    await at.idle()
    assert at.text == "" and not at.app.client.conversation.queue


async def test_a_question_rings_once(start) -> None:
    at = await start(call("run_command", command="date"), "Fine.")
    at.press("go", ENTER)
    await at.seen("[y]es")
    at.app.client.next_mode()
    assert at.emulator.bells == 1
    at.press(ESCAPE)
    await at.seen("Fine.")


async def test_an_error_of_the_client_costs_a_line_and_no_more(start) -> None:
    at = await start("Still here.")

    def broken(_: object) -> None:
        raise ValueError("broken key")

    at.app.key_bindings.add("f11")(broken)
    at.press("\x1b[23~")
    await at.seen("ValueError: broken key")
    at.press("hi", ENTER)
    await at.seen("Still here.")


async def test_v_prints_the_whole_of_a_long_change(start) -> None:
    at = await start(call("write_file", path="a.txt", content="".join(f"row {n}\n" for n in range(60))), "Done.")
    at.press("go", ENTER)
    await at.seen("more lines; [v] prints them all")
    assert "+row 59" not in at.written
    await at.seen("[y]es")
    at.press("v")
    await at.seen("+row 59")
    at.press(ESCAPE)
    await at.seen("Done.")


async def test_a_question_is_whole_in_a_low_window_with_lines_that_wait(start) -> None:
    at = await start(call("write_file", path="a.txt", content="".join(f"row {n}\n" for n in range(60))), "Done.")
    at.press("go", ENTER)
    await at.until(lambda: at.app.client.parts.approvals.pending)
    at.app.client.conversation.queue += ["one", "two", "three"]
    for columns, rows in ((40, 10), (40, 8)):
        at.resize(columns, rows)
        await at.seen("esc: no")
        await at.typed()
        screen = at.emulator.text()
        assert any("more lines; [v] prints them all" in line for line in screen) and screen[-1].startswith("?")
        assert all(any(key in line for line in screen) for key in ("[y]es", "[s]ession", "[a]lways", "[n]o, and why"))
    at.resize(20, 3)
    await at.until(lambda: "too small: [v] shows" in at.emulator.text()[0])
    await at.typed("y")
    assert at.app.asking.question is not None
    at.press("v")
    await at.seen("[y] [s] [a] [n] esc")
    at.app.client.conversation.queue.clear()
    at.press("y")
    await at.idle()
    assert len(at.model.requests) == 2


async def test_a_search_finds_a_line_of_an_earlier_session_and_sends_nothing(start, tmp_path: Path) -> None:
    for line in ("warp the loom", "weave", "dye"):
        HistoryFile(tmp_path / "home" / "history").add(line)
    at = await start("Yes.")
    await at.typed("\x12", "warp")
    at.press(ENTER)
    await at.until(lambda: at.text == "warp the loom")
    assert not at.model.requests
    at.press(ENTER)
    await at.seen("Yes.")


async def test_a_search_in_earlier_lines_answers_no_question(start, tmp_path: Path) -> None:
    at = await start(call("run_command", command="touch made"), "Done.")
    at.press("yes", ENTER, "\x12", "y")
    await at.seen("[y]es")
    await at.typed("e", "y")
    assert at.app.asking.question is not None
    await at.typed("\x07")
    at.press(ESCAPE)
    await at.seen("Done.")
    assert not (tmp_path / "root" / "made").exists()


async def test_half_characters_are_no_error_wherever_they_go(start) -> None:
    at = await start("Yes.")
    for line in ("!echo \ud800", "/export \ud800.md", "/weave \ud800", "say \udcff"):
        at.app.buffer.text = line
        at.press(ENTER)
        await at.until(lambda: at.text == "")
        await asyncio.wait_for(at.app.client.settled(), BOUND)
    await at.seen("Yes.")
    assert "UnicodeEncodeError" not in at.written and at.history.read()[-1] == "say \ufffd"


async def test_an_editor_that_writes_no_text_changes_nothing(start, tmp_path: Path, monkeypatch) -> None:
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nprintf "\\377" > "$1"\n')
    editor.chmod(0o755)
    monkeypatch.setenv("VISUAL", str(editor))
    at = await start()
    await at.typed("a draft")
    at.press("\x18\x05")
    await at.seen("what the editor wrote is not UTF-8 text")
    assert at.text == "a draft" and not at.app.screen.away


async def test_what_a_tool_prints_goes_above_the_prompt_without_its_control_sequences(start) -> None:
    @tool(effect="read")
    def shout() -> str:
        """Shout."""
        sys.stderr.write("loud\x1b[2J\n")
        return ""

    at = await start(call("shout"), "Done.", tools=[shout])
    at.press("go", ENTER)
    await at.seen("Done.")
    await at.seen("loud\\x1b[2J")


async def test_nothing_crashes_at_any_size(start) -> None:
    at = await start(["One ", "two three."], call("run_command", command="ls"), "Done.")
    for columns, rows in [
        (1, 24),
        (80, 2),
        (1, 1),
        (40, 10),
        (200, 60),
        *[(20 + n, 3 + n) for n in range(15)],
        (80, 24),
    ]:
        at.resize(columns, rows)
        await at.typed("x")
    assert at.text == "x" * 21
    at.press(ENTER)
    await at.seen("two three.")
    assert at.written.count("two three.") == 1


async def test_a_message_is_printed_once_whatever_the_size_becomes(start) -> None:
    go = asyncio.Event()
    at = await start(["A first paragraph.\n\n", "And a second", go, " one."])
    at.press("go", ENTER)
    await at.seen("A first paragraph.")
    for columns in (40, 120, 80):
        at.resize(columns, 24)
        await at.typed()
    go.set()
    await at.idle()
    assert at.written.count("A first paragraph.") == 1


def test_terminals_that_wrap_anew_are_known_by_their_variables() -> None:
    assert reflows({"TMUX": "/tmp/x"}) and reflows({"TERM_PROGRAM": "vscode"})
    assert not reflows({"TERM": "xterm-256color"})
