"""`treadle run`, as a person and a script see it."""

from __future__ import annotations

import json
import re

import pytest

from support.program import call, text
from treadle import RunFinish, ToolFinish, decode_event

SUMMARY = re.compile(
    r"^\d+ steps?, (at least )?[\d,]+ tokens?, (\$[\d.]+, |~\$[\d.]+ \(estimate\), )?[\d.]+ s(, stopped: .+)?$"
)


def one_complaint(outcome, code: int) -> str:
    """The one line on standard error, where a run never began."""
    assert outcome.code == code, outcome
    assert outcome.out == ""
    (line,) = outcome.err.splitlines()
    assert line.startswith("treadle: ")
    return line


def test_a_prompt_about_files_is_answered_with_tools_and_a_summary(treadle):
    outcome = treadle("run", "-m", "offline:demo", "List the files here and read README.md.")
    assert outcome.code == 0
    assert "notes.txt" in outcome.out and "A loom of our own." in outcome.out
    assert outcome.out.endswith("\n") and not outcome.out.endswith("\n\n\n")
    lines = outcome.err.splitlines()
    assert lines[0] == "offline:demo: using the offline stand-in, which follows fixed rules and is no language model"
    assert 'tool list_directory {"path": "."}' in lines
    assert any(line.startswith("tool read_file done in ") for line in lines)
    assert SUMMARY.match(lines[-1]) and lines[-1].startswith("2 steps, ")


def test_without_any_model_the_first_line_says_what_answers(treadle):
    outcome = treadle("run", "Summarise README.md")
    assert outcome.code == 0
    assert re.fullmatch(
        "no model configured: using the offline stand-in, which follows fixed rules and is no language model; "
        r"set ANTHROPIC_API_KEY, OPENAI_API_KEY(, [A-Z_]+)* or start Ollama",
        outcome.err.splitlines()[0],
    )


def test_a_dash_reads_the_prompt_from_standard_input(treadle):
    outcome = treadle("run", "-m", "offline:demo", "-", input="Read notes.txt\n")
    assert outcome.code == 0 and "one\ntwo" in outcome.out


def test_json_prints_the_event_log_and_nothing_else(treadle):
    (treadle.folder / "noisy.py").write_text(
        "print('imported')\ndef read_file(path: str) -> str:\n    'Read.'\n    print('called')\n    return 'text'\n"
    )
    outcome = treadle("run", "-m", "offline:demo", "--json", "--tool", "noisy:read_file", "Read notes.txt")
    assert outcome.code == 0
    events = [decode_event(line) for line in outcome.out.splitlines()]
    assert [event.seq for event in events] == list(range(len(events)))
    assert isinstance(events[-1], RunFinish)
    (finish,) = [event for event in events if isinstance(event, ToolFinish)]
    assert finish.result.content == "text"
    assert "imported" in outcome.err and "called" in outcome.err


def test_no_tools_leaves_the_model_without_any(treadle, chat):
    server = chat(text("Hello"))
    assert treadle("run", *server.model, "--no-tools", "hi").code == 0
    assert "tools" not in server.bodies[0]


def test_system_tools_and_prompt_reach_the_model_and_its_text_comes_out(treadle, chat):
    server = chat(text("Let me look."), text("never"))
    outcome = treadle("run", *server.model, "--system", "Be brief.", "hi")
    assert (outcome.code, outcome.out) == (0, "Let me look.\n")
    assert outcome.err.splitlines()[-1].startswith("1 step, 120 tokens, ")
    body = server.bodies[0]
    assert [message["role"] for message in body["messages"]] == ["system", "user"]
    assert [tool["function"]["name"] for tool in body["tools"]] == [
        "find_files",
        "list_directory",
        "read_file",
        "search_content",
    ]


def test_the_texts_of_two_steps_stand_on_lines_of_their_own(treadle, chat):
    first = [{"content": "I look."}, *call("read_file", '{"path": "notes.txt"}')]
    server = chat(first, text("Two ", "lines."))
    assert treadle("run", *server.model, "hi").out == "I look.\nTwo lines.\n"


@pytest.mark.parametrize("target", ["mytools:plain", "mytools:made", "mytools:both", "mytools:Holder.inside"])
def test_a_tool_may_be_a_function_a_tool_a_list_or_an_attribute_of_something(treadle, chat, target):
    (treadle.folder / "mytools.py").write_text(
        "from treadle import tool\n"
        "def plain(n: int) -> int:\n    'Double.'\n    return n * 2\n"
        "@tool(name='made')\ndef _made(n: int) -> int:\n    'Double.'\n    return n * 2\n"
        "made = _made\n"
        "both = [plain, made]\n"
        "class Holder:\n    inside = made\n"
    )
    name = "plain" if target.endswith("plain") else "made"
    server = chat(call(name, '{"n": 21}'), text("done"))
    outcome = treadle("run", *server.model, "--no-tools", "--tool", target, "hi")
    assert outcome.code == 0, outcome
    assert server.bodies[1]["messages"][-1]["content"] == "42"


def test_a_tool_of_the_same_name_takes_the_place_of_ours(treadle):
    (treadle.folder / "mine.py").write_text("def read_file(path: str) -> str:\n    'Read.'\n    return 'my own text'\n")
    assert "my own text" in treadle("run", "-m", "offline:demo", "--tool", "mine:read_file", "Read notes.txt").out


@pytest.mark.parametrize(
    ("source", "target", "said"),
    [
        ("raise ValueError('first\\nsecond')", "broken:x", "importing broken raised ValueError: first second"),
        ("raise SystemExit(7)", "broken:x", "importing broken raised SystemExit: 7"),
        ("import not_there_at_all", "broken:x", "importing broken raised ModuleNotFoundError"),
        ("def x(", "broken:x", "importing broken raised SyntaxError"),
        ("", "broken:x", "broken has no 'x'"),
        ("", "nowhere:x", "there is no module 'nowhere' here or installed"),
        ("x = 3", "broken:x", "broken:x is an int, not a tool, a function or a list of them"),
        ("def x(a): ...", "broken:x", "x"),
        ("", "broken", "'broken' is not MODULE:NAME"),
        ("x = '\\x1b[31m'\nraise ValueError(x)", "broken:x", "\\x1b[31m"),
    ],
)
def test_a_tool_that_cannot_be_had_is_one_line_and_a_usage_error(treadle, source, target, said):
    (treadle.folder / "broken.py").write_text(source)
    line = one_complaint(treadle("run", "-m", "offline:demo", "--tool", target, "hi"), 2)
    assert said in line
    assert "\x1b" not in line


# Files


def test_a_text_file_goes_along_below_its_name_and_an_image_as_a_file(treadle, chat):
    (treadle.folder / "dot.png").write_bytes(b"\x89PNG")
    server = chat(text("ok"))
    assert treadle("run", *server.model, "--file", "notes.txt", "--file", "dot.png", "What is this?").code == 0
    note, image, prompt = server.bodies[0]["messages"][-1]["content"]
    assert note == {"type": "text", "text": "File notes.txt:\n\none\ntwo\n"}
    assert image["image_url"]["url"] == "data:image/png;base64,iVBORw=="
    assert prompt["text"] == "What is this?"


def test_files_that_cannot_be_sent_are_usage_errors(treadle):
    import os

    os.mkfifo(treadle.folder / "pipe")
    (treadle.folder / "data.bin").write_bytes(b"\0\xff")
    with (treadle.folder / "huge.txt").open("wb") as file:
        file.truncate(2_000_000)
    for path, said in {
        "missing.txt": "No such file",
        ".": "irectory",
        "pipe": "not a regular file",
        "data.bin": "neither UTF-8 text nor",
        "huge.txt": "larger than 1024 KiB",
        "/dev/zero": "not a regular file",
    }.items():
        assert said in one_complaint(treadle("run", "-m", "offline:demo", "--file", path, "hi"), 2)


def test_a_file_that_the_model_cannot_take_is_refused_before_anything_is_sent(treadle):
    (treadle.folder / "dot.png").write_bytes(b"\x89PNG")
    outcome = treadle("run", "-m", "offline:demo", "--file", "dot.png", "hi")
    assert outcome.code == 2
    assert outcome.err.splitlines()[-1].startswith("treadle: offline:demo ")


# How it ends


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "treadle run PROMPT"),
        (("run",), "PROMPT"),
        (("run", "  "), "the prompt is empty"),
        (("run", "hi", "--max-steps", "0"), "from 1 on"),
        (("run", "hi", "--max-steps", "many"), "from 1 on"),
        (("run", "hi", "--nonsense"), "--nonsense"),
        (("run", "hi", "-m", "nothing"), "nothing"),
        (("run", "hi", "-m", "acme:gpt"), "acme"),
        (("run", "hi", "-m", "offline:other"), "offline:demo"),
        (("run", "hi", "--base-url", "http://127.0.0.1:1/v1"), "-m"),
        (("run", "hi", "-m", "openai-chat:x", "--chat-template", "x"), "local:"),
        (("run", "hi", "-m", "local:x.gguf", "--base-url", "http://127.0.0.1:1/v1"), "local:"),
        (
            ("run", "hi", "--no-tools", "--allow-writes"),
            "--no-tools goes with neither --allow-writes nor --allow-commands",
        ),
        (("run", "hi", "--no-tools", "--allow-commands"), "--no-tools"),
        (("run", "hi", "--root", "nowhere"), "'nowhere' cannot be the root: No such file or directory"),
        (("run", "hi", "--root", "README.md"), "'README.md' cannot be the root: Not a directory"),
        (("run", "hi", "--search-url", "nonsense"), "--search-url is an address like http://"),
        (("manifest",), "MODULE:AGENT"),
    ],
)
def test_wrong_usage_is_one_line_and_code_2(treadle, arguments, said):
    outcome = treadle(*arguments)
    assert outcome.code == 2
    assert outcome.out == ""
    line = outcome.err.splitlines()[-1]
    assert line.startswith("treadle: ") and said in line
    assert "Traceback" not in outcome.err


def test_a_bad_model_in_the_environment_is_a_usage_error(treadle):
    treadle.environ["TREADLE_MODEL"] = "acme:gpt"
    outcome = treadle("run", "hi")
    assert outcome.code == 2
    assert outcome.err.splitlines()[-1].startswith("treadle: ") and "acme" in outcome.err


def test_a_model_of_the_environment_is_taken_and_told(treadle):
    treadle.environ["TREADLE_MODEL"] = "offline:demo"
    outcome = treadle("run", "Read notes.txt")
    assert outcome.code == 0
    assert outcome.err.splitlines()[0] == "using offline:demo (TREADLE_MODEL)"


@pytest.mark.parametrize(("stop", "code"), [("stop", 0), ("length", 3), ("content_filter", 3)])
def test_the_exit_code_tells_how_the_answer_ended(treadle, chat, stop, code):
    server = chat(text("Some ", "text", stop=stop))
    outcome = treadle("run", *server.model, "hi")
    assert (outcome.code, outcome.out) == (code, "Some text\n")
    assert ("stopped: " in outcome.err.splitlines()[-1]) == (code != 0)


def test_a_limit_is_code_3_and_named_in_the_summary(treadle):
    outcome = treadle("run", "-m", "offline:demo", "--max-steps", "1", "Read notes.txt")
    assert outcome.code == 3
    assert outcome.err.splitlines()[-1].endswith("stopped: max_steps (limit: steps)")


@pytest.mark.parametrize(
    ("status", "error", "code"),
    [
        (401, {"message": "Incorrect API key", "code": "invalid_api_key"}, 1),
        (500, {"message": "broken\non two lines \x1b[31m"}, 1),
        (400, {"message": "maximum context length exceeded", "code": "context_length_exceeded"}, 3),
    ],
)
def test_a_failed_request_is_one_line_and_the_summary_still_comes(treadle, serve, chat, status, error, code):
    def refuse(handler):
        data = json.dumps({"error": error}).encode()
        handler.send_response(status)
        handler.send_header("content-type", "application/json")
        handler.send_header("content-length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    server = serve({"/v1/chat/completions": refuse})
    outcome = treadle("run", "-m", "openai-chat:tiny", "--base-url", server.url, "hi")
    assert (outcome.code, outcome.out) == (code, "")
    complaint, summary = outcome.err.splitlines()[-2:]
    assert complaint.startswith("treadle: openai-chat:tiny: ")
    assert summary.startswith("0 steps, ")
    assert "Traceback" not in outcome.err and "\x1b" not in outcome.err


def test_a_key_that_is_not_there_is_a_matter_of_configuration(treadle):
    del treadle.environ["TREADLE_MODEL_REQUESTS"]
    treadle.environ["HTTPS_PROXY"] = "http://127.0.0.1:9"  # whatever happens, nothing leaves this machine
    outcome = treadle("run", "-m", "anthropic:tiny", "hi")
    assert outcome.code == 2
    assert outcome.err.splitlines()[-1].startswith("treadle: anthropic:tiny: no API key: set ANTHROPIC_API_KEY")


def test_where_nobody_answers_the_error_is_one_line(treadle, chat, serve):
    server = serve({})
    server.close()
    outcome = treadle("run", "-m", "openai-chat:tiny", "--base-url", server.url, "hi")
    assert outcome.code == 1
    assert outcome.err.splitlines()[-2].startswith("treadle: openai-chat:tiny: cannot connect")


def test_denied_requests_are_refused_in_one_line(treadle):
    treadle.environ["OPENAI_API_KEY"] = "test-key"
    outcome = treadle("run", "hi")
    assert outcome.code == 1
    assert outcome.err.splitlines()[0].startswith("using openai:")
    assert "TREADLE_MODEL_REQUESTS=deny" in outcome.err.splitlines()[-2]


def test_a_crash_inside_a_tool_goes_to_the_model_and_not_to_the_person(treadle, chat):
    (treadle.folder / "bad.py").write_text("def boom() -> str:\n    'Boom.'\n    raise RuntimeError('\\x1b[2Jno')\n")
    server = chat(call("boom", "{}"), text("It failed."))
    outcome = treadle("run", *server.model, "--tool", "bad:boom", "hi")
    assert (outcome.code, outcome.out) == (0, "It failed.\n")
    assert "tool boom failed: " in outcome.err
    assert "Traceback" not in outcome.err and "\x1b" not in outcome.err


def test_names_and_arguments_of_a_model_cannot_steer_the_terminal(treadle, chat):
    server = chat(call("\x1b]0;owned\x07", json.dumps({"a": "\x9b31m\u202e" + "x" * 5000})), text("ok"))
    outcome = treadle("run", *server.model, "hi")
    assert outcome.code == 0
    assert not any(mark in outcome.err for mark in ("\x1b", "\x07", "\x9b", "\u202e"))
    assert "tool \\x1b]0;owned\\x07" in outcome.err
    assert all(len(line) < 300 for line in outcome.err.splitlines())


# The program itself


def test_help_names_every_exit_code_and_loads_no_http_client(treadle):
    import subprocess
    import sys

    outcome = treadle("run", "--help")
    assert outcome.code == 0
    for code in ("0", "1", "2", "3", "130", "141", "143"):
        assert re.search(rf"^  {code} +\S", outcome.out, re.MULTILINE)
    script = (
        "import sys; from treadle.cli import main; code = main(['run', '--help']); "
        "print(code, [name for name in ('httpx2', 'pydantic', 'http.client', 'urllib.request') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.splitlines()[-1] == "0 []"


def test_the_version_is_that_of_the_package(treadle):
    import treadle as package

    assert treadle("--version").out == f"treadle {package.__version__}\n"


def test_main_returns_the_exit_code_and_leaves_the_process_as_it_was(monkeypatch, capsys):
    import signal
    import sys

    from treadle.cli import main

    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    out = sys.stdout
    assert main(["run", "-m", "offline:demo", "hello"]) == 0
    assert main(["run", "-m", "offline:demo", "--max-steps", "1", "ls"]) == 3
    assert main(["run"]) == 2
    assert main(["--help"]) == 0
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers
    assert sys.stdout is out
    assert "stand-in" in capsys.readouterr().out


def test_the_summary_estimates_a_cost_that_the_provider_does_not_tell(treadle, chat):
    server = chat(call("read_file", '{"path": "notes.txt"}'), text("Hello"))
    treadle.environ["OPENAI_BASE_URL"] = server.server.url
    last = treadle("run", "-m", "openai-chat:gpt-4o", "hi").err.splitlines()[-1]
    # Twice 100 tokens in at 2.50 dollars for a million and 20 out at 10.
    assert last.startswith("2 steps, 240 tokens, ~$0.0009 (estimate), ") and SUMMARY.match(last)


def test_no_cost_is_estimated_for_a_server_of_ones_own_or_without_the_price_list(treadle, chat):
    server = chat(text("Hello"), text("Hello"))
    assert "$" not in treadle("run", "-m", "openai-chat:gpt-4o", "--base-url", server.server.url, "hi").err
    treadle.environ["OPENAI_BASE_URL"] = server.server.url
    (treadle.folder / "genai_prices.py").write_text("raise ImportError")
    treadle.environ["PYTHONPATH"] = str(treadle.folder)
    assert "$" not in treadle("run", "-m", "openai-chat:gpt-4o", "hi").err
