"""Typing while a run goes on: a line waits its turn and can be taken back, or steers the run at its next step."""

from __future__ import annotations

from support.provider import Hold, tool, words


def test_a_line_waits_is_shown_and_is_sent_when_the_run_has_ended(chat, provider):
    hold = Hold()
    server = provider([{"content": "First answer."}, hold, {"finish": "stop"}], words("Second answer."))
    terminal = chat(server)
    terminal.say("first question")
    terminal.sees("First answer.")
    terminal.say("second question")
    terminal.sees("second question")
    assert len(server.bodies) == 1
    hold.release()
    terminal.has("Second answer.")
    assert server.asked[1:] == ["user: first question", "assistant: First answer.", "user: second question"]


def test_a_waiting_line_can_be_taken_back_and_changed(chat, provider):
    hold = Hold()
    server = provider([{"content": "First answer."}, hold, {"finish": "stop"}], words("Second answer."))
    terminal = chat(server)
    terminal.say("first question")
    terminal.sees("First answer.")
    terminal.say("second questoin")
    terminal.press("up", *["backspace"] * 3)
    terminal.feed("ion")
    terminal.sees("second question")
    terminal.press("enter")
    terminal.sees("second question")
    hold.release()
    terminal.has("Second answer.")
    assert server.asked[-1] == "user: second question"
    assert "questoin" not in terminal.text


def test_a_line_can_steer_the_run_before_its_next_step(chat, provider):
    hold = Hold()
    reading = tool("read_file", path="notes.txt")
    server = provider([*reading[:-1], hold, reading[-1]], words("In French, then."))
    terminal = chat(server)
    terminal.say("Read the notes.")
    terminal.wait(hold.reached, "the call")
    terminal.feed("In French, please.")
    terminal.sees("In French, please.")
    terminal.feed("\x1bs")
    terminal.wait(lambda: terminal.shown.count("In French, please.") >= 1, "the line")
    hold.release()
    terminal.has("In French, then.")
    assert [line.partition(":")[0] for line in server.asked] == ["system", "user", "assistant", "tool", "user"]
    assert server.asked[-1] == "user: In French, please."


def test_an_interrupt_leaves_what_waits_for_the_person_to_decide(chat, provider):
    hold = Hold()
    server = provider([{"content": "First answer."}, hold, {"finish": "stop"}], words("Second answer."))
    terminal = chat(server)
    terminal.say("first question")
    terminal.sees("First answer.")
    terminal.say("second question")
    terminal.press("ctrl-c")
    terminal.sees("cancelled")
    terminal.sees("> second question")  # at the prompt, to be sent or changed
    terminal.feed("!")
    terminal.sees("> second question!")
    assert len(server.bodies) == 1
