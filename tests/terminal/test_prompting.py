"""What the prompt can do beside taking a line: files, commands of one's own, and a while in the background."""

from __future__ import annotations

import shlex

from support.provider import words
from support.terminal import Terminal, environment, python, strange


def test_a_file_is_found_by_a_few_of_its_letters_and_a_command_of_ones_own_goes_along(chat, provider, root):
    (root / "中 文.txt").write_text("x")
    server = provider(words("Seen."))
    terminal = chat(server)
    terminal.say("!echo from me")
    terminal.has("from me\n[exit code 0")
    assert server.bodies == []
    terminal.feed("Look at @nts")
    terminal.sees("notes.txt")
    terminal.press("tab")
    terminal.sees("@notes.txt")
    terminal.feed(" and @中")
    terminal.sees("中 文.txt")
    terminal.press("tab")
    terminal.sees('@"中 文.txt"')
    terminal.press("enter", "enter")
    terminal.has("Seen.")
    assert "$ echo from me\nfrom me" in server.asked[-1]
    assert server.asked[-1].endswith('Look at @notes.txt and @"中 文.txt"')


def test_alt_enter_and_a_backslash_begin_new_lines(chat, provider):
    server = provider(words("Seen."))
    terminal = chat(server)
    terminal.feed("one")
    terminal.press("alt-enter")
    terminal.feed("two\\")
    terminal.press("enter")
    terminal.feed("three")
    terminal.sees("> one\n  two\n  three")
    assert server.bodies == []
    terminal.press("enter")
    terminal.has("Seen.")
    assert server.asked[-1] == "user: one\ntwo\nthree"


def test_in_the_background_the_terminal_is_the_shells_and_a_draft_is_kept(provider, root, home):
    server = provider(words("Seen."))
    shell = ["bash", "--norc", "--noprofile", "-i"]
    terminal = Terminal(shell, root, environment(home, PS1="shell: ", HISTFILE=""))
    try:
        terminal.sees("shell:")
        terminal.feed(shlex.join(python("-m", "treadle", "chat", *server.model)) + "\r")
        terminal.matches("(?m)^>$")
        terminal.feed("a draft")
        terminal.sees("> a draft")
        terminal.press("ctrl-z")
        terminal.sees("Stopped")
        terminal.feed("stty -a | grep -ow -- '-\\?echo'\r")
        terminal.matches("(?m)^echo$")
        assert "> a draft" not in terminal.text
        terminal.feed("fg\r")
        terminal.sees("> a draft")
        terminal.press("enter")
        terminal.has("Seen.")
        terminal.press("ctrl-d")
        terminal.matches(r"(?s)Seen\.\nto go on with session \S+: treadle chat --continue\nshell:\Z")
        terminal.feed("exit\r")
        terminal.restored(0)
        assert strange(terminal.raw) == []
    finally:
        terminal.close()
