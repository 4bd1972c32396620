"""Ctrl-C and every other way out, at every phase (B099): the turn ends, the conversation is valid, the terminal is whole."""

from __future__ import annotations

import os
import signal

import pytest

from support.provider import STALL, Hold, tool, words
from support.terminal import LONG


def ends_the_turn(terminal, server, then: str) -> None:
    """Ctrl-C, then another message, which is answered: what was sent with it is valid, or the server would not be asked."""
    terminal.press("ctrl-c")
    terminal.sees("cancelled")
    terminal.say("go on")
    terminal.has(then)
    terminal.press("ctrl-d")
    terminal.restored(0)


def roles(server) -> list[str]:
    return [line.partition(":")[0] for line in server.asked]


def test_before_the_first_token(chat, provider):
    server = provider([STALL], words("Here I am."))
    terminal = chat(server)
    terminal.say("first")
    terminal.wait(lambda: len(server.bodies) == 1, "the request")
    ends_the_turn(terminal, server, "Here I am.")
    assert server.left.is_set()
    assert "first" in "".join(server.asked) and roles(server)[-1] == "user"


def test_in_the_middle_of_an_answer(chat, provider):
    server = provider([{"content": "Half an answer"}, STALL], words("The other half."))
    terminal = chat(server)
    terminal.say("first")
    terminal.sees("Half an answer")
    ends_the_turn(terminal, server, "The other half.")
    assert "assistant: Half an answer" in server.asked
    assert terminal.text.count("Half an answer") == 1


def test_while_a_command_runs(chat, provider):
    server = provider(tool("run_command", command="echo begun; sleep 4321"), words("Stopped it."))
    terminal = chat(server, "--yolo")
    terminal.say("first")
    terminal.wait(lambda: any(line.endswith("sleep 4321") for line in terminal.left_behind()), "the command")
    ends_the_turn(terminal, server, "Stopped it.")
    assert roles(server) == ["system", "user", "assistant", "tool", "user"]


def test_while_ones_own_command_runs(chat, provider):
    terminal = chat(provider(words("never")))
    terminal.say("!echo begun; sleep 4322")
    terminal.wait(lambda: any(line.endswith("sleep 4322") for line in terminal.left_behind()), "the command")
    terminal.press("ctrl-c")
    terminal.sees("interrupted")
    terminal.press("ctrl-d")
    terminal.restored(0)


def test_while_an_approval_is_asked(chat, provider, root):
    server = provider(tool("run_command", command="touch made"), words("As you wish."))
    terminal = chat(server)
    terminal.say("first")
    terminal.sees("touch made")
    ends_the_turn(terminal, server, "As you wish.")
    assert not (root / "made").exists()
    assert roles(server) == ["system", "user", "assistant", "tool", "user"]


def test_at_an_idle_prompt_once_and_twice(chat, provider):
    terminal = chat(provider(words("never")))
    terminal.feed("a draft")
    terminal.sees("a draft")
    terminal.process.send_signal(signal.SIGSTOP)  # as a shell does, which takes the terminal meanwhile
    os.waitpid(terminal.process.pid, os.WUNTRACED)
    terminal.cooked()
    terminal.process.send_signal(signal.SIGCONT)
    terminal.wait(lambda: terminal.shown.count("a draft") == 2, "the prompt drawn below what the shell wrote")
    assert not (terminal.modes.canonical or terminal.modes.echo)
    terminal.press("ctrl-c")
    terminal.wait(lambda: terminal.shown.count("a draft") == 1, "the draft gone")
    terminal.press("ctrl-c")
    terminal.sees("again")
    assert terminal.process.poll() is None
    terminal.press("ctrl-c")
    terminal.restored(0)


def test_end_of_input_leaves_only_at_an_empty_prompt(chat, provider):
    terminal = chat(provider(words("never")))
    terminal.feed("a draft")
    terminal.sees("a draft")
    terminal.press("ctrl-d")
    terminal.feed("!")
    terminal.sees("a draft!")
    terminal.press("ctrl-u")
    terminal.loses("a draft")
    terminal.press("ctrl-d")
    terminal.restored(0)


@pytest.mark.parametrize(
    ("phase", "number"),
    [
        pytest.param("idle", signal.SIGTERM),
        pytest.param("streaming", signal.SIGTERM, marks=LONG),
        pytest.param("command", signal.SIGTERM),
        pytest.param("asking", signal.SIGTERM),
        pytest.param("idle", signal.SIGHUP, marks=LONG),
        pytest.param("streaming", signal.SIGHUP),
        pytest.param("command", signal.SIGHUP, marks=LONG),
        pytest.param("asking", signal.SIGHUP, marks=LONG),
    ],
)
def test_a_signal_ends_it_whole_at_every_phase(chat, provider, phase, number):
    answers = {
        "idle": words("never"),
        "streaming": [{"content": "Half an answer"}, STALL],
        "command": tool("run_command", command="sleep 4323"),
        "asking": tool("run_command", command="touch made"),
    }
    terminal = chat(provider(answers[phase]), *(["--yolo"] if phase == "command" else []))
    if phase != "idle":
        terminal.say("first")
    if phase == "command":
        terminal.wait(lambda: any(line.endswith("sleep 4323") for line in terminal.left_behind()), "the command")
    elif phase != "idle":
        terminal.sees({"streaming": "Half an answer", "asking": "touch made"}[phase])
    os.kill(terminal.process.pid, number)
    terminal.restored(128 + number)


@pytest.mark.parametrize("phase", [pytest.param("idle", marks=LONG), pytest.param("streaming", marks=LONG), "command"])
def test_a_closed_window_leaves_no_process_behind(chat, provider, phase):
    answer = tool("run_command", command="sleep 4324") if phase == "command" else [{"content": "Half"}, STALL]
    terminal = chat(provider(answer), "--yolo")
    if phase != "idle":
        terminal.say("first")
    if phase == "streaming":
        terminal.sees("Half")
    if phase == "command":
        terminal.wait(lambda: any(line.endswith("sleep 4324") for line in terminal.left_behind()), "the command")
    terminal.hang_up()
    terminal.ends()
    terminal.alone()


def test_the_second_ctrl_c_in_a_row_leaves_what_does_not_end(chat, provider):
    hold = Hold()
    server = provider([{"content": "Half"}, hold, {"finish": "stop"}])
    terminal = chat(server)
    terminal.say("first")
    terminal.sees("Half")
    terminal.press("ctrl-c")
    terminal.sees("cancelled")
    terminal.press("ctrl-c", "ctrl-c")
    terminal.restored(0)


def test_a_second_signal_ends_a_client_that_its_own_tool_blocks(start, provider, root, home):
    server = provider(tool("block"), words("never"))
    (root / "mine.py").write_text(
        "import os, time\n"
        "from treadle import Agent\n"
        "from treadle.providers import resolve\n"
        "async def block() -> str:\n"
        "    'Block.'\n"
        f"    open({str(home / 'blocked')!r}, 'w').close()\n"
        "    time.sleep(600)\n"
        "    return ''\n"
        f"agent = Agent(resolve('openai-chat:tiny', base_url={server.url!r}), tools=[block])\n"
    )
    terminal = start("chat", "mine:agent", "--yolo")
    terminal.wait(lambda: terminal.modes.paste, "the prompt")
    terminal.say("go")
    terminal.wait((home / "blocked").exists, "the tool")
    terminal.process.terminate()
    terminal.rests()
    terminal.process.terminate()
    terminal.restored(143)


def test_an_error_beside_the_conversation_is_told_and_the_prompt_stays(start, root, provider):
    (root / "mine.py").write_text(
        "import asyncio\n"
        "from treadle import Agent\n"
        "from treadle.providers import resolve\n"
        "async def leave_trouble() -> str:\n"
        "    'Leave.'\n"
        "    asyncio.get_running_loop().call_soon(lambda: 1 / 0)\n"
        "    return 'left'\n"
        "agent = Agent(resolve('openai-chat:tiny', base_url=URL), tools=[leave_trouble])\n".replace(
            "URL", repr((server := provider(tool("leave_trouble"), words("It is left."), words("Still here."))).url)
        )
    )
    terminal = start("chat", "mine:agent", "--yolo")
    terminal.wait(lambda: terminal.modes.paste, "the prompt")
    terminal.say("go")
    terminal.has("It is left.")
    terminal.say("again")
    terminal.has("Still here.")
    terminal.press("ctrl-d")
    terminal.restored(0)
    assert "ZeroDivisionError" in terminal.text and server.missed == 0


def test_a_place_for_sessions_that_cannot_be_used_is_a_line_and_not_a_crash(start, provider, home):
    (home / "taken").write_text("a file")
    server = provider(words("never"))
    terminal = start("chat", *server.model, TREADLE_HOME=str(home / "taken"))
    assert terminal.ends() in (1, 2)
    terminal.restored()
    assert "Traceback" not in terminal.text and "treadle: " in terminal.text
