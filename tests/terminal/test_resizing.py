"""A window that changes its size while an answer streams and while a prompt is open (B096)."""

from __future__ import annotations

import re

import pytest

from support.provider import Hold, words
from support.terminal import LONG, environment, python, strange
from support.tmux import INSTALLED, Tmux

# Marks that fit into the narrowest window of these tests, each in a line of its own.
MARKS = [f"mark {number:02}" for number in range(40)]
SIZES = [(80, 24), (40, 24), (120, 30), (80, 24)]
DRAFT = "a draft that is longer than the line of a narrow window"
QUICK = [(30 + 7 * number % 91, 10 + number % 17) for number in range(20)]


def held(pieces: list[str]) -> tuple[list[object], list[Hold]]:
    """An answer that stops behind each piece."""
    holds = [Hold() for _ in pieces]
    parts = [part for piece, hold in zip(pieces, holds, strict=True) for part in ({"content": piece}, hold)]
    return [*parts, {"finish": "stop"}], holds


def quarters() -> list[str]:
    return ["".join(f"- {mark}\n" for mark in MARKS[at : at + 10]) for at in range(0, 40, 10)]


def once(text: str) -> None:
    assert {mark: text.count(mark) for mark in MARKS} == dict.fromkeys(MARKS, 1)


def test_while_an_answer_streams_and_at_the_prompt_each_message_stays_once(chat, provider):
    answer, holds = held(quarters())
    terminal = chat(provider(answer))
    terminal.say("the question")
    for hold, size, seen in zip(holds, SIZES, MARKS[9::10], strict=True):
        terminal.wait(hold.reached, "the piece")
        terminal.has(seen)
        terminal.resize(*size)
        hold.release()
    terminal.has(MARKS[-1])
    terminal.feed(DRAFT)
    for size in QUICK:
        terminal.resize(*size)
    terminal.resize(80, 24)
    terminal.feed("!")
    terminal.sees(f"{DRAFT}!")
    terminal.press("ctrl-u", "ctrl-d")
    terminal.restored(0)
    once(terminal.text)
    assert strange(terminal.raw) == []


@pytest.mark.parametrize(
    "size",
    [(1, 24), (80, 2), pytest.param((1, 2), marks=LONG), pytest.param((2, 1), marks=LONG)],
    ids=lambda size: f"{size[0]}x{size[1]}",
)
def test_a_window_of_hardly_any_size_is_survived(chat, provider, size):
    answer, (first, second) = held(["One.\n\n", "Two.\n\n"])
    terminal = chat(provider(answer, words("Three.")))
    terminal.say("go")
    terminal.wait(first.reached, "the first piece")
    terminal.resize(*size)
    first.release()
    terminal.wait(second.reached, "the second piece")
    terminal.resize(80, 24)
    second.release()
    terminal.wait(lambda: "Two." in terminal.text.replace("\n", ""), "the second piece")
    terminal.say("more")
    terminal.sees("Three.")
    terminal.press("ctrl-d")
    terminal.restored(0)


@pytest.fixture
def tmux(home, root):
    started = []

    def start(server, *arguments: str, **size: int) -> Tmux:
        command = python("-m", "treadle", "chat", *server.model, *arguments)
        started.append(Tmux(command, root, environment(home), **size))
        started[-1].wait(lambda: re.search("(?m)^>", started[-1].shown), "the prompt")
        return started[-1]

    yield start
    for each in started:
        each.close()


@pytest.mark.skipif(not INSTALLED, reason="needs tmux")
def test_in_tmux_the_scrollback_has_each_message_once_whatever_the_window_did(tmux, provider):
    answer, holds = held(quarters())
    window = tmux(provider(answer, words("And more.")))
    window.say("the question")
    for hold, size, seen in zip(holds, SIZES, MARKS[9::10], strict=True):
        window.has(seen)
        window.resize(*size)
        hold.release()
    window.has(MARKS[-1])
    window.type(DRAFT)
    for size in QUICK:
        window.resize(*size)
    window.resize(80, 24)
    window.type(" indeed")
    window.has(f"{DRAFT} indeed")
    once(window.text)
    assert not window.alternate
    window.press("Enter")
    window.has("And more.")
    window.press("C-d")
    window.has("left with 0")
    once(window.text)
    for said in ("the question", DRAFT, "And more."):
        assert window.text.count(said) == 1, window.text


@LONG
@pytest.mark.skipif(not INSTALLED, reason="needs tmux")
def test_in_tmux_what_was_said_stays_when_the_client_leaves(tmux, provider):
    lines = "".join(f"- {mark}\n" for mark in MARKS)
    window = tmux(provider(words(lines)), columns=40, lines=12)
    window.say("the question")
    window.has(MARKS[-1])
    window.press("C-d")
    window.has("left with 0")
    once(window.text)
    assert not window.alternate
