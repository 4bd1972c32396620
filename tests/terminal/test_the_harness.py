"""The terminal of these tests notices what it is there for."""

from __future__ import annotations

import pytest

from support.terminal import FRESH, Terminal, environment, strange


@pytest.fixture
def shell(tmp_path):
    started = []

    def start(script: str, **size: int) -> Terminal:
        started.append(Terminal(["sh", "-c", script], tmp_path, environment(tmp_path), **size))
        return started[-1]

    yield start
    for terminal in started:
        terminal.close()


@pytest.mark.parametrize(
    "left",
    [
        ("stty -echo", "echo"),
        ("stty -icanon", "canonical"),
        (r"printf '\033[?25l'", "cursor"),
        (r"printf '\033[?2004h'", "paste"),
        (r"printf '\033[?1049h'", "alternate"),
        (r"printf '\033[?1000h'", "mouse"),
    ],
    ids=lambda left: left[1],
)
def test_a_mode_that_is_left_behind_is_told(shell, left):
    script, name = left
    terminal = shell(script)
    assert terminal.ends() == 0
    assert terminal.modes._asdict() == {**FRESH._asdict(), name: not getattr(FRESH, name)}


def test_a_program_that_leaves_nothing_behind_is_told_as_such(shell):
    terminal = shell("stty -echo; stty echo; echo done")
    assert terminal.ends() == 0
    assert (terminal.modes, terminal.text, terminal.left_behind()) == (FRESH, "done", [])


def test_a_process_that_is_left_behind_is_told(shell):
    terminal = shell("trap '' HUP; sleep 77 >/dev/null 2>&1 & echo gone")
    assert terminal.ends() == 0
    (left,) = terminal.left_behind()
    assert "sleep 77" in left  # or the shell that is about to become it


def test_keys_reach_the_program_and_its_lines_the_history(shell):
    terminal = shell("read line; seq 1 100; echo $line; read more", lines=10)
    terminal.say("all of it")
    terminal.sees("100\nall of it")
    assert terminal.text.split("\n")[1:101] == [str(number) for number in range(1, 101)]
    assert terminal.shown.split("\n")[0] == "93"


def test_a_closed_window_is_a_hangup(shell):
    terminal = shell("trap 'exit 7' HUP; echo ready; while :; do sleep 0.01; done")
    terminal.sees("ready")
    terminal.hang_up()
    assert terminal.ends() == 7


def test_a_program_is_told_of_a_new_size(shell):
    terminal = shell("trap 'stty size' WINCH; echo ready; while :; do sleep 0.01; done")
    terminal.sees("ready")
    terminal.resize(33, 7)
    terminal.sees("7 33")


def test_wide_and_joined_characters_keep_their_text(shell):
    terminal = shell("printf '中文 e\\314\\201 ❤️ 👩‍👩‍👧 end\\n'")
    terminal.ends()
    assert terminal.text == "中文 é ❤️ 👩‍👩‍👧 end"
    assert terminal.screen.column_of(0, "é") == 5


@pytest.mark.parametrize(
    "sequence",
    [
        "\x1b]0;owned\x07",
        "\x1b]52;c;aGk=\x1b\\",
        "\x1b[2J",
        "\x1b[3J",
        "\x1b[5;5H",
        "\x1b[?1049h",
        "\x1bP+q\x1b\\",
        "\x1bc",
        "\x9b31m",
        "\x07",
        "\u202e",
        "\x1b[5i",
        "\x1b[c",
    ],
)
def test_what_a_terminal_would_obey_is_strange(sequence):
    assert strange(f"before{sequence}after".encode())


def test_colours_moves_and_text_are_not_strange():
    assert strange("\x1b[0;38;5;2mgreen\x1b[0m\r\n\x1b[2A\x1b[K\x1b[J\x1b[?25l\x1b[?2004h 中文\t\x1b[6n".encode()) == []
