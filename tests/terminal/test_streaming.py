"""An answer as it comes: each part once, in the terminal's own scrollback, as golden text at three widths."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.picture import shows
from support.provider import CUT, Hold, Refusal, thought, tool, words
from support.terminal import LONG, strange

GOLDEN = Path(__file__).parent / "golden"
ANSWER = """\
## Two files

The loom has **two** files, `README.md` and `notes.txt`, and *nothing else* of which anybody could speak at length:

1. the first says what it is
2. the second counts

```python
def weave(threads: int) -> str:
    return "over and under " * threads  # as long as there is yarn
```

| file | lines |
| --- | --- |
| README.md | 3 |
| notes.txt | 2 |

That is all.
"""
WIDE = """\
中文也要占两列,而不是一列。日本語の文章も同じように、端で正しく折り返されなければならない。

- 한국어 문장
- emoji 🧵 and 🎉, e\u0301 with a mark of its own

| 名前 | value |
| --- | --- |
| 織機 | 🧵 |
| loom | 1 |
"""


@pytest.mark.parametrize("columns", [40, pytest.param(80, marks=LONG), 200])
def test_an_answer_in_markdown_at_every_width(chat, provider, columns):
    terminal = chat(provider(words(ANSWER)), columns=columns, lines=40)
    terminal.say("What is here?")
    terminal.has("That is all.")
    shows(terminal, GOLDEN / f"answer-{columns}.txt")
    assert strange(terminal.raw) == []


@pytest.mark.parametrize("columns", [40, pytest.param(80, marks=LONG)])
def test_wide_characters_keep_their_columns(chat, provider, columns):
    terminal = chat(provider(words(WIDE)), columns=columns, lines=40)
    terminal.say("織機とは何ですか 🧵")
    terminal.has("│ 1")
    shows(terminal, GOLDEN / f"wide-{columns}.txt")


def test_an_unfinished_answer_is_seen_and_then_stands_once(chat, provider):
    hold = Hold()
    server = provider(
        [{"content": "First paragraph.\n\nSecond, unfin"}, hold, {"content": "ished."}, {"finish": "stop"}]
    )
    terminal = chat(server)
    terminal.say("go")
    terminal.sees("First paragraph.", "Second, unfin")
    hold.release()
    terminal.sees("Second, unfinished.")
    terminal.press("ctrl-d")
    terminal.restored(0)
    assert terminal.text.count("First paragraph.") == 1
    assert terminal.text.count("Second, unfin") == 1


def test_an_answer_longer_than_the_screen_is_whole_in_the_scrollback_and_in_order(chat, provider):
    lines = [f"line {number} of many" for number in range(300)]
    terminal = chat(provider(words("- " + "\n- ".join(lines) + "\n\nThe end.")))
    terminal.say("go")
    terminal.has("The end.")
    terminal.press("ctrl-d")
    terminal.restored(0)
    seen = [line for line in terminal.text.split("\n") if " of many" in line]
    assert [line.partition("line ")[2] for line in seen] == [line.removeprefix("line ") for line in lines]


def test_tool_calls_and_reasoning_are_told_in_lines(chat, provider):
    server = provider(
        thought("They want the notes.", tool("read_file", path="notes.txt")),
        tool("read_file", path="none.txt"),
        words("Two lines."),
    )
    terminal = chat(server, "--show-reasoning")
    terminal.say("Read the notes.")
    terminal.has("Two lines.")
    shows(terminal, GOLDEN / "calls.txt")


def test_a_failure_is_told_and_the_conversation_goes_on(chat, provider):
    refusals = [Refusal(500)] * 3
    server = provider(*refusals, words("Here again."))
    terminal = chat(server)
    terminal.say("first")
    terminal.has("error: ", "500")  # not before the last attempt
    assert len(server.bodies) == 3
    terminal.say("second")
    terminal.has("Here again.")
    assert server.asked[-1].startswith("user: ") and "second" in server.asked[-1]


@LONG
def test_a_limit_of_the_provider_is_waited_for(chat, provider):
    terminal = chat(provider(Refusal(429, "slow down", (("retry-after", "0"),)), words("At last.")))
    terminal.say("go")
    terminal.has("At last.")


def test_a_connection_that_breaks_leaves_what_was_shown_and_a_valid_conversation(chat, provider):
    server = provider([{"content": "Half of it"}, CUT], words("Whole."))
    terminal = chat(server)
    terminal.say("first")
    terminal.has("Half of it")
    terminal.has("error: ")
    terminal.say("second")
    terminal.has("Whole.")
    assert [line.partition(":")[0] for line in server.asked] == ["system", "user", "assistant", "user"]
