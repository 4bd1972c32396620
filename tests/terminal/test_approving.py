"""Questions about calls: what is shown, what each answer does, and what it leaves in the settings."""

from __future__ import annotations

from pathlib import Path

from support.picture import shows
from support.provider import Hold, tool, words

GOLDEN = Path(__file__).parent / "golden"
CHOICE = "[y]es"
EDIT = tool("edit_file", path="notes.txt", edits=[{"old_text": "two", "new_text": "three"}])


def command(line: str) -> list[object]:
    return tool("run_command", command=line)


def results(server) -> list[str]:
    return [message["content"] for message in server.bodies[-1]["messages"] if message["role"] == "tool"]


def test_a_change_is_shown_as_a_diff_and_made_when_it_is_allowed(chat, provider, root):
    terminal = chat(provider(EDIT, words("Changed.")))
    terminal.say("Change the notes.")
    terminal.sees(CHOICE)
    shows(terminal, GOLDEN / "question.txt")
    assert (root / "notes.txt").read_text() == "one\ntwo\n"
    terminal.feed("y")
    terminal.has("Changed.")
    shows(terminal, GOLDEN / "changed.txt")
    assert (root / "notes.txt").read_text() == "one\nthree\n"


def test_for_the_session_is_asked_once(chat, provider, root):
    terminal = chat(provider(command("touch made"), command("touch made"), words("Done.")))
    terminal.say("go")
    terminal.sees("touch made", CHOICE)
    terminal.feed("s")
    terminal.has("Done.")
    assert (root / "made").exists()


def test_always_shows_the_rule_saves_it_and_asks_neither_now_nor_in_the_next_client(chat, start, provider, root, home):
    server = provider(
        command("touch made"), command("touch made"), words("Done."), command("touch made"), words("Again."),
        command("touch made && touch other"), words("Refused."),
    )  # fmt: skip
    first = chat(server)
    first.say("go")
    first.sees(CHOICE)
    first.feed("a")
    first.sees("always allow", "touch made", "[y]")
    first.feed("n")
    first.sees(CHOICE)
    assert not list((home / ".treadle-home").rglob("permissions.toml"))
    first.feed("a")
    first.sees("always allow")
    first.feed("y")
    first.has("Done.")
    first.press("ctrl-d")
    first.restored(0)
    (saved,) = (home / ".treadle-home").rglob("permissions.toml")
    assert "touch made" in saved.read_text()
    second = chat(server)
    second.say("go")
    second.has("Again.")
    second.say("and a chain")
    second.sees("touch made && touch other", CHOICE)  # a part of it has no rule
    second.press("escape")
    second.has("Refused.")
    assert not (root / "other").exists()
    listed = start("permissions", "list")
    assert listed.ends() == 0
    assert "touch made" in listed.text


def test_a_refusal_takes_its_reason_to_the_model(chat, provider, root):
    server = provider(command("touch made"), words("As you wish."))
    terminal = chat(server)
    terminal.say("go")
    terminal.sees(CHOICE)
    terminal.feed("n")
    terminal.sees("why not?")
    terminal.feed("use another name")
    terminal.sees("use another name")
    terminal.press("enter")
    terminal.has("As you wish.")
    assert "use another name" in results(server)[0]
    assert not (root / "made").exists()


def test_what_was_being_typed_answers_no_question_and_is_kept(chat, provider, root):
    hold = Hold()
    calling = command("touch made")
    server = provider([hold, *calling], words("Done."))
    terminal = chat(server)
    terminal.say("go")
    terminal.wait(hold.reached, "the request")
    terminal.feed("yes, and say")
    terminal.sees("yes, and say")
    hold.release()
    terminal.sees(CHOICE)
    assert not (root / "made").exists()
    terminal.feed("y")
    terminal.has("Done.")
    terminal.sees("yes, and say")
    assert (root / "made").exists()


def test_a_plan_changes_nothing_and_shift_tab_leaves_it(chat, provider, root):
    server = provider(EDIT, words("Only planned."), EDIT, words("Changed."))
    terminal = chat(server, "--mode", "plan")
    terminal.say("Change the notes.")
    terminal.has("Only planned.")
    assert (root / "notes.txt").read_text() == "one\ntwo\n"
    terminal.feed("\x1b[Z\x1b[Z")
    terminal.sees("auto-edit")
    terminal.say("Now do.")
    terminal.has("Changed.")
    assert (root / "notes.txt").read_text() == "one\nthree\n"


def test_yolo_is_named_where_it_begins(chat, provider, root):
    terminal = chat(provider(command("touch made"), words("Done.")), "--yolo")
    terminal.sees("yolo")
    terminal.say("go")
    terminal.has("Done.")
    assert (root / "made").exists()
