"""`treadle run` at a terminal: whatever ends it, the terminal and the machine are as before."""

from __future__ import annotations

import pytest

from support.provider import Hold, tool, words
from support.terminal import strange

QUESTION = "or no and why:"


def test_an_answer_is_printed_and_the_terminal_is_as_before(start, provider):
    server = provider(words("Two files, one loom."))
    terminal = start("run", *server.model, "What is here?")
    terminal.restored(0)
    assert "\nTwo files, one loom.\n1 step, " in terminal.text
    assert strange(terminal.raw) == []


def test_a_question_is_shown_at_every_width_and_its_answer_decides(start, provider, root):
    server = provider(tool("run_command", command="echo one > made"), words("Done."))
    terminal = start("run", *server.model, "make it", columns=30)
    terminal.has("$ echo one > made", "Allow?")
    for columns, lines in ((1, 2), (200, 50), (40, 10)):
        terminal.resize(columns, lines)
    terminal.feed("y\r")
    assert terminal.ends() == 0
    assert (root / "made").read_text() == "one\n"


@pytest.mark.parametrize("way", ["ctrl-c", "terminate", "hang up"])
def test_whatever_ends_a_run_in_a_command_ends_the_command_too(start, provider, way):
    server = provider(tool("run_command", command="echo begun; sleep 1234"), words("never"))
    terminal = start("run", *server.model, "--yes", "go")
    terminal.wait(lambda: any(line.endswith("sleep 1234") for line in terminal.left_behind()), "the command")
    if way == "ctrl-c":
        terminal.press("ctrl-c")
        terminal.restored(130)
    elif way == "terminate":
        terminal.process.terminate()
        terminal.restored(143)
    else:
        terminal.hang_up()
        terminal.ends()
        terminal.alone()


def test_ctrl_c_in_the_middle_of_an_answer_leaves_what_was_shown(start, provider):
    hold = Hold()
    server = provider([{"content": "Half an"}, hold, {"content": " answer"}, {"finish": "stop"}])
    terminal = start("run", *server.model, "go")
    terminal.sees("Half an")
    terminal.press("ctrl-c")
    terminal.restored(130)
    assert "Half an" in terminal.text
