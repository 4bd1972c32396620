"""Bracketed paste: a block stays whole, is shown folded, and is sent as it was."""

from __future__ import annotations

from support.provider import words
from support.terminal import strange


def test_ten_thousand_lines_are_folded_and_sent_whole(chat, provider):
    pasted = "".join(f"line {number} of what was pasted, 中文 \U0001f9f5\n" for number in range(10_000))
    server = provider(words("That is long."))
    terminal = chat(server)
    terminal.feed("Look: ")
    terminal.paste(pasted)
    terminal.sees("[pasted 10,000 lines]")
    assert server.bodies == []
    terminal.feed(" and say")
    terminal.sees("and say")
    terminal.press("enter")
    terminal.has("That is long.")
    (said,) = [message["content"] for message in server.bodies[0]["messages"] if message["role"] == "user"]
    assert _text(said) == f"Look: {pasted} and say"
    assert "line 5000 of" not in terminal.text
    terminal.press("ctrl-d")
    terminal.restored(0)


def test_a_short_block_is_shown_as_it_is_and_its_line_ends_do_not_send(chat, provider):
    server = provider(words("Seen."))
    terminal = chat(server)
    terminal.paste("first\nsecond\r\nthird")
    terminal.sees("first", "second", "third")
    assert server.bodies == []
    terminal.press("enter")
    terminal.has("Seen.")
    (said,) = [message["content"] for message in server.bodies[0]["messages"] if message["role"] == "user"]
    assert _text(said) == "first\nsecond\nthird"


def test_control_sequences_in_a_block_do_nothing(chat, provider):
    server = provider(words("Seen."))
    terminal = chat(server)
    terminal.paste("a\x1b[2J\x1b]0;owned\x07b\x03c\x9bd")
    terminal.matches("a.*b.*c.*d")
    terminal.press("enter")
    terminal.has("Seen.")
    assert strange(terminal.raw) == []


def _text(content) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content)
