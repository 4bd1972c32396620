"""Sessions across processes: kill -9 loses nothing that was finished, and one session has one client."""

from __future__ import annotations

from support.provider import STALL, tool, words


def killed(terminal) -> None:
    terminal.process.kill()
    terminal.ends()
    terminal.alone()


def test_after_kill_9_in_an_answer_the_session_goes_on_with_all_that_was_finished(chat, provider):
    server = provider(
        tool("read_file", path="notes.txt"),
        words("Two lines."),
        [{"content": "Half an answer"}, STALL],
        words("And on it goes."),
    )
    first = chat(server)
    first.say("Read the notes.")
    first.has("Two lines.")
    first.say("More.")
    first.sees("Half an answer")
    killed(first)
    second = chat(server, "--continue")
    second.has("Read the notes.", "Two lines.")
    second.say("go on")
    second.has("And on it goes.")
    second.press("ctrl-d")
    second.restored(0)
    sent = server.asked
    assert sent[1:5] == [
        "user: Read the notes.", "assistant: [read_file]", "tool: one\ntwo\n", "assistant: Two lines.",
    ]  # fmt: skip
    assert sent[5].startswith("user: More.") and sent[-1] == "user: go on"


def test_after_kill_9_in_a_command_the_command_is_ended_and_the_conversation_is_valid(chat, provider):
    server = provider(tool("run_command", command="sleep 4325"), words("And on it goes."))
    first = chat(server, "--yolo")
    first.say("Run it.")
    first.wait(lambda: any(line.endswith("sleep 4325") for line in first.left_behind()), "the command")
    killed(first)
    second = chat(server, "--continue")
    second.has("Run it.")
    second.say("go on")
    second.has("And on it goes.")
    roles = [line.partition(":")[0] for line in server.asked]
    assert roles == ["system", "user", "assistant", "tool", "user"]
    assert server.missed == 0


def test_a_second_client_on_the_session_is_told(chat, provider):
    server = provider(words("Hello."))
    first = chat(server)
    first.say("first question")
    first.has("Hello.")
    second = chat(server, "--continue")
    second.has(f"process {first.process.pid}", "copy")
    second.press("ctrl-d")
    assert second.ends() == 0
    first.press("ctrl-d")
    first.restored(0)


def test_the_history_of_the_prompt_is_there_in_the_next_session(chat, provider):
    server = provider(words("One."), words("Two."))
    first = chat(server)
    first.say("a memorable question")
    first.has("One.")
    first.press("ctrl-d")
    first.restored(0)
    second = chat(server)
    second.press("up")
    second.sees("a memorable question")
    second.press("enter")
    second.has("Two.")
    assert [line.partition(":")[0] for line in server.asked] == ["system", "user"]


def test_a_new_beginning_sends_less(chat, provider):
    server = provider(*(words(f"Answer {number}.") for number in range(4)))
    terminal = chat(server)
    terminal.say("question 0")
    terminal.has("Answer 0.")
    for number, command in enumerate(("/clear", "/undo", "/fork 1"), 1):
        terminal.say(command)
        terminal.rests(0.15)
        terminal.press("ctrl-u")  # what was taken back stands at the prompt again
        terminal.say(f"question {number}")
        terminal.has(f"Answer {number}.")
        assert server.asked[1:] == [f"user: question {number}"]
