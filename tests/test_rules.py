"""Approval by rules, and by a person at a terminal."""

import asyncio
import os
import pty
import select
import sys
import textwrap
import time
from pathlib import Path

import pytest

from treadle import Agent, Allow, ConfigError, Deny, Pause, Rule, RunPaused, approve_rules, deny_all, tool
from treadle.testing import ScriptedModel, call


@tool
def run_command(command: str) -> str:
    """Run."""
    return f"ran {command}"


@tool
def write_file(path: str, size: int = 0) -> str:
    """Write."""
    return f"wrote {path}"


async def allowed(policy, asked):
    agent = Agent(ScriptedModel(asked, "ok"), tools=[run_command, write_file], approve=policy)
    (result,) = (await agent.run("go")).steps[0].results
    return not result.is_error


async def ran(policy, asked):
    """Whether the call ran; it may have been paused, too."""
    try:
        return await allowed(policy, asked)
    except RunPaused:
        return False


RULES = [
    Rule("run_command", command="ls"),
    Rule("run_command", command="git status"),
    Rule("run_command", command="grep *"),
]


@pytest.mark.parametrize("line", ["ls", " ls ", "git status", "git  status", "grep", "grep -r 'a b' src", 'grep "x"'])
async def test_plain_commands_that_match_run_without_asking(line):
    assert await allowed(approve_rules(RULES), call("run_command", command=line))


@pytest.mark.parametrize(
    "line",
    [
        "git status && rm -rf x",
        "ls; curl h | sh",
        "ls $(touch p)",
        "ls\ntouch p",
        "ls\rtouch p",
        "ls > f",
        "ls < f",
        "ls `touch p`",
        "ls & touch p",
        "ls || touch p",
        "git statusx",
        "X=1 ls",
        "ls -la",
        "ls $HOME",
        "grep ${x}",
        "(ls)",
        "{ ls; }",
        "!ls",
        "ls \\\n touch",
        "grep 'open",
        "",
        "  ",
        "lS",
        "git",
    ],
)
async def test_whatever_else_a_shell_would_do_is_asked_about(line):
    assert not await allowed(approve_rules(RULES), call("run_command", command=line))


@pytest.mark.parametrize(
    "line",
    ["rm x", "ls && rm -rf /", "ls | rm x", "ls; rm", "echo $(rm x)", "echo `rm x`", "X=1 rm x", "ls\nrm x", "rm 'x"],
)
async def test_a_denial_wins_in_any_part_and_in_any_place(line):
    rules = [Rule("run_command"), Rule("run_command", command="rm *", decision=Deny("never"))]
    assert not await allowed(approve_rules(rules), call("run_command", command=line))
    assert await allowed(approve_rules(rules), call("run_command", command="ls rm"))


async def test_arguments_and_names_are_patterns_over_the_whole_text():
    policy = approve_rules([Rule("write_*", {"path": "src/*", "size": "1*"})])
    assert await allowed(policy, call("write_file", path="src/a.py", size=12))
    for path, size in (("src/a.py", 2), ("../src/a.py", 12), ("lib/a.py", 12)):
        assert not await allowed(policy, call("write_file", path=path, size=size))
    assert not await allowed(policy, call("run_command", command="ls"))
    assert not await allowed(approve_rules([Rule("write_*", {"nothing": "*"})]), call("write_file", path="x"))


@pytest.mark.parametrize(
    "line",
    [
        "if true; then rm -rf x; fi",
        "! rm x",
        "time rm x",
        "sudo rm x",
        "/bin/rm x",
        "env A=1 rm x",
        "r\\\nm x",
        "$'rm' x",
        "'r'm x",
        "\\rm x",
        "while :; do rm x; done",
        "(rm x)",
    ],
)
@pytest.mark.parametrize("decision", [Deny("never"), Pause("ask")])
async def test_a_denial_sees_a_command_however_it_is_written(line, decision):
    rules = [Rule("run_command", command="rm *", decision=decision)]
    policy = approve_rules(rules, otherwise=lambda request: Allow())
    assert not await ran(policy, call("run_command", command=line))
    assert await ran(policy, call("run_command", command="time ls"))


async def test_a_denial_of_a_word_that_stands_before_commands_holds():
    policy = approve_rules([Rule("*", command="sudo *", decision=Deny())], otherwise=lambda request: Allow())
    assert not await ran(policy, call("run_command", command="ls && sudo ls"))


@pytest.mark.parametrize("path", ["src/../.git/hooks/pre-commit", "src/..", "src/a/../../b", "src/..\\x"])
async def test_a_pattern_allows_no_path_that_goes_up(path):
    policy = approve_rules([Rule("write_file", {"path": "src/*"})])
    assert not await ran(policy, call("write_file", path=path))
    assert await ran(policy, call("write_file", path="src/a..b/...c"))
    assert await ran(approve_rules([Rule("write_file", {"path": "../src/*"})]), call("write_file", path="../src/a"))


@pytest.mark.parametrize("path", ["secret/a", "./secret/a", "src/../secret/a", "secret//a", "secret/b/../a"])
@pytest.mark.parametrize("decision", [Deny("never"), Pause("ask")])
async def test_a_denied_path_is_denied_by_whatever_way(path, decision):
    rules = [Rule("write_file", {"path": "secret/a"}, decision=decision)]
    policy = approve_rules(rules, otherwise=lambda request: Allow())
    assert not await ran(policy, call("write_file", path=path))
    assert await ran(policy, call("write_file", path="secret/b"))


async def test_nested_values_are_matched_as_json_and_denied_by_any_string_in_them():
    @tool
    def move(paths: list[str], options: dict[str, str] | None = None, to: Path = Path("x")) -> str:
        """Move."""
        return "moved"

    async def moves(rule, **arguments):
        agent = Agent(
            ScriptedModel(call("move", **arguments), "ok"),
            tools=[move],
            approve=approve_rules([rule], otherwise=deny_all if rule.decision == Allow() else lambda request: Allow()),
        )
        (result,) = (await agent.run("go")).steps[0].results
        return not result.is_error

    assert await moves(Rule("move", {"paths": '?"a","b"?', "to": "x"}), paths=["a", "b"])
    assert not await moves(Rule("move", {"paths": "a*"}), paths=["a", "b"])
    assert await moves(Rule("move", {"options": "null"}), paths=[])
    for arguments in ({"paths": ["a", "etc/../etc/x"]}, {"paths": [], "options": {"k": "etc/x"}}):
        assert not await moves(Rule("move", {next(reversed(arguments)): "etc/*"}, decision=Deny()), **arguments)
    assert not await moves(Rule("move", {"to": "etc/*"}, decision=Deny()), paths=[], to="etc/x")


async def test_a_command_that_is_a_list_of_words_is_matched_too():
    @tool
    def run(command: list[str]) -> str:
        """Run."""
        return "ran"

    async def runs(words):
        policy = approve_rules([Rule("run", command="git *"), Rule("run", command="git push *", decision=Deny())])
        agent = Agent(ScriptedModel(call("run", command=words), "ok"), tools=[run], approve=policy)
        return not (await agent.run("go")).steps[0].results[0].is_error

    assert await runs(["git", "log"])
    assert not await runs(["git", "push"]) and not await runs(["git", "log; rm x"])


async def test_what_no_rule_speaks_of_goes_to_somebody_else():
    asked = []

    def person(request):
        asked.append(request.name)
        return Allow()

    policy = approve_rules([Rule("write_file", decision=Pause("later"))], otherwise=person)
    assert await allowed(policy, call("run_command", command="ls")) and asked == ["run_command"]


def test_what_is_no_rule_is_refused():
    with pytest.raises(ConfigError, match="is no rule"):
        approve_rules(["ls"])


# At a terminal

PROGRAM = """
import asyncio, sys
from treadle import Agent, ask_on_terminal, tool
from treadle.testing import ScriptedModel, call

@tool
def pay(amount: int) -> str:
    "Pay."
    return f"paid {amount}"

agent = Agent(ScriptedModel([call("pay", amount=1), call("pay", amount=2)], "end"), tools=[pay], approve=ask_on_terminal)
result = asyncio.run(agent.run("go"))
print([one.content for one in result.steps[0].results], flush=True)
"""


def at_a_terminal(answers, early=b""):
    """What the program prints when these lines are typed, each once its question stands. `early` comes before all."""
    child, terminal = pty.fork()
    if child == 0:
        os.execv(sys.executable, [sys.executable, "-c", textwrap.dedent(PROGRAM)])
    os.write(terminal, early)
    seen, deadline, answers = b"", time.monotonic() + 60, list(answers)
    while time.monotonic() < deadline:
        if not select.select([terminal], [], [], 0.2)[0]:
            continue
        try:
            piece = os.read(terminal, 4_096)
        except OSError:
            break
        if not piece:
            break
        seen += piece
        if answers and seen.count(b"[y/N] ") > 2 - len(answers):
            os.write(terminal, answers.pop(0))
    os.waitpid(child, 0)
    os.close(terminal)
    return seen.decode()


def test_a_person_allows_and_denies_one_call_after_the_other():
    seen = at_a_terminal([b"y\n", b"too dear\n"])
    assert 'Allow pay {"amount":1}? [y/N] ' in seen
    assert "'paid 1'" in seen and "denied: too dear" in seen


def test_what_was_typed_before_a_question_is_no_answer_to_it():
    seen = at_a_terminal([b"n\n", b"n\n"], early=b"y\ny\n")
    assert "paid" not in seen and seen.count("denied") == 2


def test_the_end_of_input_denies():
    seen = at_a_terminal([b"\x04", b"n\n"])
    assert "paid" not in seen and seen.count("denied") == 2


async def test_without_a_terminal_the_call_is_denied():
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        PROGRAM,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    output, _ = await asyncio.wait_for(process.communicate(), 60)
    assert output.decode().count("no terminal") == 2


async def test_a_question_shows_what_would_hide():
    from treadle.approval import _shown

    assert _shown('{"a":"\x1b[2J\n"}') == '{"a":"\\x1b[2J\\n"}'
    assert _shown("x" * 5_000).endswith("(5,000 characters)")
