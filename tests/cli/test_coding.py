"""`treadle run` as an agent that works: what each option allows, what is shown of it, and what is left behind."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from support.program import BOUND, STALL, call, finish, text, wait_for

READING = "read_file, list_directory, find_files, search_content"


def offered(server) -> list[str]:
    return sorted(tool["function"]["name"] for tool in server.bodies[0].get("tools", ()))


def result(server) -> str:
    """What the model was told of its last call."""
    return server.bodies[-1]["messages"][-1]["content"]


def arguments(**given) -> str:
    return json.dumps(given)


# What is on


@pytest.mark.parametrize(
    ("options", "more", "powers"),
    [
        ((), [], "only reads"),
        (("--allow-writes",), ["edit_file", "write_file"], "may write"),
        (("--allow-commands",), ["run_command"], "may run commands"),
        (("--fetch",), ["web_fetch"], "may read the public web"),
        (("--search-url", "http://127.0.0.1:1"), ["web_search"], "may search the web"),
        (
            ("--allow-writes", "--allow-commands", "--fetch", "--search-url", "http://127.0.0.1:1"),
            ["edit_file", "write_file", "run_command", "web_fetch", "web_search"],
            "may write, may run commands, may read the public web, may search the web",
        ),
    ],
)
def test_each_option_adds_its_tools_and_the_first_line_names_them(treadle, chat, options, more, powers):
    server = chat(text("ok"))
    outcome = treadle("run", *server.model, *options, "hi")
    assert outcome.code == 0
    assert offered(server) == sorted([*READING.split(", "), *more])
    told, summary = outcome.err.splitlines()
    assert told.startswith(f"tools: {READING}") and told.endswith(f" in {treadle.folder.resolve()}; {powers}")
    assert sorted(told.removeprefix("tools: ").partition(" in ")[0].split(", ")) == offered(server)
    assert summary.startswith("1 step, ")


def test_the_environment_may_name_the_search_engine_and_no_tools_leaves_it_out(treadle, chat):
    treadle.environ["TREADLE_SEARCH_URL"] = "http://127.0.0.1:1"
    server = chat(text("ok"), text("ok"), text("ok"))
    assert treadle("run", *server.model, "hi").code == 0
    assert "web_search" in offered(server)
    for options in (("--search-url", ""), ("--no-tools",)):
        other = chat(text("ok"))
        assert treadle("run", *other.model, *options, "hi").code == 0
        assert "web_search" not in offered(other)


def test_without_the_tools_of_the_root_those_of_the_web_can_be_had(treadle, chat):
    server = chat(text("ok"))
    outcome = treadle("run", *server.model, "--no-tools", "--fetch", "hi")
    assert offered(server) == ["web_fetch"]
    assert outcome.err.splitlines()[0] == "tools: web_fetch; may read the public web"


def test_a_missing_extra_is_one_line_and_a_usage_error(treadle):
    (treadle.folder / "sitecustomize.py").write_text("import sys\nsys.modules['selectolax'] = None\n")
    treadle.environ["PYTHONPATH"] = str(treadle.folder)
    outcome = treadle("run", "-m", "offline:demo", "--fetch", "hi")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == "treadle: web_fetch needs the extra web: pip install 'treadle[web]'\n"


def test_the_tools_work_in_the_directory_that_is_named(treadle, chat):
    (treadle.folder / "inner").mkdir()
    server = chat(call("write_file", arguments(path="new.txt", content="x")), text("ok"))
    outcome = treadle("run", *server.model, "--allow-writes", "--root", "inner", "hi")
    assert outcome.err.splitlines()[0].endswith(f" in {treadle.folder.resolve()}/inner; may write")
    assert (treadle.folder / "inner" / "new.txt").read_text() == "x"


def test_a_named_tool_takes_the_place_of_ours_and_is_shown_as_any_other(treadle, chat):
    source = "def run_command(command: str) -> str:\n    'Mine.'\n    return 'my own'\n"
    (treadle.folder / "mine.py").write_text(source)
    server = chat(call("run_command", arguments(command="touch made")), text("ok"))
    outcome = treadle("run", *server.model, "--allow-commands", "--tool", "mine:run_command", "hi")
    assert result(server) == "my own" and not (treadle.folder / "made").exists()
    lines = outcome.err.splitlines()
    assert lines[0].endswith(str(treadle.folder.resolve())) and 'tool run_command {"command": "touch made"}' in lines


# What the model is told


def test_a_model_with_tools_is_told_where_it_works_and_what_it_may(treadle, chat):
    told = {}
    for options in ((), ("--allow-writes",), ("--allow-writes", "--allow-commands")):
        server = chat(text("ok"))
        assert treadle("run", *server.model, *options, "hi").code == 0
        system, user = server.bodies[0]["messages"]
        assert (system["role"], user["role"]) == ("system", "user")
        assert f"in the directory {treadle.folder.resolve()}." in system["content"]
        told[options] = system["content"]
    reading, writing, running = told.values()
    assert "No tool here changes files" in reading and "Read a file before" not in reading
    assert "Read a file before you change it" in writing and "cannot run anything" in writing
    assert "run what tests" in running and "cannot run" not in running


def test_own_instructions_take_the_place_of_ours_and_without_tools_there_are_none(treadle, chat):
    for options, roles in ((("--system", "Be brief."), ["system", "user"]), (("--no-tools",), ["user"])):
        server = chat(text("ok"))
        assert treadle("run", *server.model, "--fetch", *options, "hi").code == 0
        messages = server.bodies[0]["messages"]
        assert [message["role"] for message in messages] == roles
        assert not any("directory" in str(message["content"]) for message in messages)


# What is shown


def test_a_change_is_shown_as_a_diff_and_the_model_gets_its_plain_result(treadle, chat):
    edits = [{"old_text": "two", "new_text": "  zwei"}]
    server = chat(call("edit_file", arguments(path="notes.txt", edits=edits)), text("ok"))
    outcome = treadle("run", *server.model, "--allow-writes", "hi")
    assert (treadle.folder / "notes.txt").read_text() == "one\n  zwei\n"
    assert result(server) == "Edited notes.txt at line 2."
    assert "--- notes.txt\n+++ notes.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+  zwei\n" in outcome.err


def test_a_new_file_is_shown_as_it_comes_and_a_long_one_in_part(treadle, chat):
    content = "".join(f"line {number}\n" for number in range(1000))
    server = chat(call("write_file", arguments(path="sub/new.txt", content=content)), text("ok"))
    outcome = treadle("run", *server.model, "--allow-writes", "hi")
    assert (treadle.folder / "sub" / "new.txt").read_text() == content
    lines = outcome.err.splitlines()
    assert "--- /dev/null" in lines and "+line 0" in lines and "+line 999" in lines
    assert "[... 963 lines ...]" in lines and len(lines) < 60


def test_a_change_that_is_not_made_shows_no_diff(treadle, chat):
    edits = [{"old_text": "nowhere", "new_text": "x"}]
    server = chat(
        call("edit_file", arguments(path="notes.txt", edits=edits)),
        call("edit_file", arguments(path="notes.txt", edits=[{"old": "one"}])),
        text("ok"),
    )
    outcome = treadle("run", *server.model, "--allow-writes", "hi")
    assert outcome.code == 0
    assert outcome.err.count("tool edit_file failed: ") == 2 and "+++" not in outcome.err
    assert "The arguments of edit_file were not accepted" in result(server)
    assert "new_text" in result(server)  # what is missing deep inside is named, too
    assert (treadle.folder / "notes.txt").read_text() == "one\ntwo\n"


def test_a_command_is_shown_with_what_it_prints_and_its_exit_code(treadle, chat):
    server = chat(call("run_command", arguments(command="cat notes.txt\necho '  problem' >&2; exit 3")), text("ok"))
    outcome = treadle("run", *server.model, "--allow-commands", "hi")
    assert outcome.code == 0
    shown = outcome.err.partition("$ ")[2]
    assert shown.startswith("cat notes.txt\necho '  problem' >&2; exit 3\none\ntwo\n  problem\n[exit code 3 after 0.")
    assert result(server).startswith("one\ntwo\n  problem\n[exit code 3")


def test_long_output_is_shown_in_part_and_none_of_it_steers_the_terminal(treadle, chat):
    command = "seq 5000; printf '\\033[2J\\233\\342\\200\\256%0999d\\n' 0"
    server = chat(call("run_command", arguments(command=command)), text("ok"))
    outcome = treadle("run", *server.model, "--allow-commands", "hi")
    lines = outcome.err.splitlines()
    assert "19" in lines and "[... 4962 lines ...]" in lines and "5000" in lines and len(lines) < 60
    assert any(line.startswith("\\x1b[2J") for line in lines) and all(len(line) <= 2000 for line in lines)
    assert not any(mark in outcome.err for mark in ("\x1b", "\x9b", "\u202e"))


def test_a_command_that_cannot_be_read_is_shown_as_it_came(treadle, chat):
    server = chat(call("run_command", arguments(cmd="true")), text("ok"))
    outcome = treadle("run", *server.model, "--allow-commands", "hi")
    assert 'tool run_command {"cmd": "true"}' in outcome.err.splitlines()
    assert "The arguments of run_command were not accepted" in outcome.err


def test_the_event_log_on_standard_output_stays_alone(treadle, chat):
    server = chat(call("run_command", arguments(command="echo hi")), text("ok"))
    outcome = treadle("run", *server.model, "--allow-commands", "--json", "hi")
    kinds = [json.loads(line)["type"] for line in outcome.out.splitlines()]
    assert kinds[-1] == "run_finish" and "tool_finish" in kinds
    assert "$ echo hi\nhi\n[exit code 0" in outcome.err


# What the world feels of it


def test_nothing_is_written_and_nothing_run_that_was_not_allowed(treadle, chat):
    asked = [
        call("write_file", arguments(path="new.txt", content="x")),
        call("edit_file", arguments(path="notes.txt", edits=[{"old_text": "one", "new_text": "x"}])),
        call("run_command", arguments(command="touch made")),
        call("web_fetch", arguments(url="http://127.0.0.1/")),
    ]
    server = chat(*asked, text("ok"))
    before = sorted(treadle.folder.iterdir())
    outcome = treadle("run", *server.model, "hi")
    assert outcome.code == 0 and outcome.err.count(" refused: There is no tool ") == 4
    assert sorted(treadle.folder.iterdir()) == before and (treadle.folder / "notes.txt").read_text() == "one\ntwo\n"


def test_no_key_of_the_environment_reaches_a_command(treadle, chat):
    treadle.environ["OTHER_TOKEN"] = "canary-of-the-host"
    server = chat(call("run_command", arguments(command="env")), text("ok"))
    outcome = treadle("run", *server.model, "--allow-commands", "hi")
    assert "PATH=" in result(server)
    for secret in ("canary-of-the-host", "test-key"):
        assert secret not in json.dumps(server.bodies) + outcome.out + outcome.err


def test_this_machine_is_no_page_of_the_web(treadle, chat, serve):
    secret = serve({"/": {"secret": "of this machine"}})
    server = chat(call("web_fetch", arguments(url=f"http://127.0.0.1:{secret.port}/")), text("ok"))
    outcome = treadle("run", *server.model, "--fetch", "hi")
    assert outcome.code == 0 and secret.requests == []
    assert "private or special address" in result(server)


def test_a_search_asks_the_engine_that_was_named(treadle, chat, serve):
    found = {"results": [{"title": "Looms", "url": "https://loom.example/", "content": "All of them."}]}
    engine = serve({"/search?q=looms&format=json": found})
    server = chat(call("web_search", arguments(query="looms")), text("ok"))
    assert treadle("run", *server.model, "--search-url", f"http://127.0.0.1:{engine.port}", "hi").code == 0
    assert "1. Looms\n   https://loom.example/" in result(server)


def test_mycelium_is_offered_when_asked_for_and_there(treadle, chat):
    program = treadle.folder / "bin" / "mycelium"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable} -IS\nimport sys\nprint(sys.argv[1:])\n")
    program.chmod(0o755)
    asked = call("search_memory", arguments(query="looms"))
    for path, options, there in (
        (f"{program.parent}:{os.environ['PATH']}", ("--mycelium",), True),
        (f"{program.parent}:{os.environ['PATH']}", (), False),
        ("/nowhere", ("--mycelium",), False),
    ):
        treadle.environ["PATH"] = path
        server = chat(asked, text("ok"))
        outcome = treadle("run", *server.model, *options, "hi")
        assert outcome.code == 0
        assert ("run_flow" in offered(server)) == there
        assert ("['memory', 'search', 'looms', '--limit', '10']" in result(server)) == there
        first = outcome.err.splitlines()[0]
        assert first.endswith("may run flows" if there else "no mycelium on this machine" if options else "only reads")


@pytest.mark.skipif(sys.platform != "linux", reason="reads the process file system")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_leaves_no_command_behind(treadle, chat, number, code):
    server = chat(call("run_command", arguments(command="trap '' INT TERM; echo $$ > pid; sleep 1000")), [STALL])
    process = treadle.start("run", *server.model, "--allow-commands", "hi")
    wait_for(process, process.stderr, b"$ trap")
    pid = treadle.folder / "pid"
    _until(lambda: pid.exists() and pid.read_text().strip())
    process.send_signal(number)
    outcome = finish(process)
    assert outcome.code == code and outcome.err.splitlines()[-1].endswith("stopped: cancelled")
    assert not Path("/proc", pid.read_text().strip()).exists()


def _until(condition) -> None:
    import time

    deadline = time.monotonic() + BOUND
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
