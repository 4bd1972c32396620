"""`treadle config`, `treadle permissions` and `treadle trust` as they are started."""

import contextlib
import io
import json
import os
import pty
import subprocess
import sys

import pytest

from support.program import Outcome, Program
from treadle.cli import main
from treadle.cli.settings import read_project
from treadle.cli.settings._described import described
from treadle.cli.settings._keys import KEYS


class Here:
    """The program in this process, which takes a tenth of the time. Nobody is at a terminal."""

    def __init__(self, folder, monkeypatch):
        self.folder = folder
        self.setenv = monkeypatch.setenv
        monkeypatch.chdir(folder)
        monkeypatch.setattr("sys.stdin", io.StringIO())
        for name in list(os.environ):
            if name.startswith("TREADLE_"):
                monkeypatch.delenv(name)
        self.setenv("TREADLE_HOME", str(folder / "home"))
        (folder / "home").mkdir()
        (folder / ".treadle").mkdir()

    def __call__(self, *arguments: str) -> Outcome:
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
            code = main(arguments)
        return Outcome(code, out.getvalue(), err.getvalue())


@pytest.fixture
def program(tmp_path, monkeypatch) -> Here:
    return Here(tmp_path, monkeypatch)


def project(program: Here, text: str) -> None:
    (program.folder / ".treadle" / "config.toml").write_text(text)


def test_config_shows_each_value_and_where_it_comes_from(program):
    (program.folder / "home" / "config.toml").write_text('effort = "low"\n[profile.p]\ntheme = "dark"')
    project(program, "model = 'openai-chat:theirs'\nnotify = 'bell'")
    program.setenv("TREADLE_COMPACT_AT", "0.5")
    code, out, err = program("config", "--profile", "p", "-m", "offline:demo", "--no-fetch", "--limit-usd", "2")
    assert code == 0
    lines = {line.split()[0]: " ".join(line.split()[1:]) for line in out.splitlines()}
    user = f"user {program.folder}/home/config.toml"
    files = lines.pop("files:")
    assert "config.toml" in files and lines.keys() == {key.name for key in KEYS}
    assert lines["model"] == '"offline:demo" flag --model'
    assert lines["fetch"] == "false flag --fetch"
    assert lines["limits.usd"] == "2.0 flag --limit-usd"
    assert lines["compact_at"] == "0.5 environment TREADLE_COMPACT_AT"
    assert lines["effort"] == f'"low" {user}'
    assert lines["theme"] == f'"dark" profile p in {user}'
    assert lines["notify"] == '"bell" project .treadle/config.toml'
    assert lines["max_steps"] == "50 default"
    assert err == (
        'ignored until the directory is trusted (treadle trust): model = "openai-chat:theirs", '
        "from project .treadle/config.toml\n"
    )


def test_config_as_json(program):
    project(program, "max_steps = 7\nmodel = 'a:b'")
    assert program("trust", "--yes").code == 0
    code, out, err = program("config", "--json")
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert [setting["name"] for setting in found["settings"]] == [key.name for key in KEYS]
    assert {"name": "max_steps", "value": 7, "origin": "project .treadle/config.toml"} in found["settings"]
    assert (found["trusted"], found["ignored"], found["root"]) == (True, [], str(program.folder))


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["config", "--profile", "x"], "there is no profile 'x'"),
        (["config", "--max-steps", "x"], "--max-steps is a whole number"),
        (["config", "--root", "missing"], "cannot be the root"),
        (["permissions", "explain"], "required"),
        (["trust", "--yes", "--forget"], "not allowed with"),
    ],
)
def test_wrong_use_is_one_line_and_the_exit_code_of_it(program, arguments, complaint):
    code, out, err = program(*arguments)
    assert (code, out) == (2, "")
    assert complaint in err
    assert err.count("\n") == 1


def test_what_a_hostile_project_calls_its_keys_and_values_steers_no_terminal(program):
    project(program, '"\\u001b[2Jmodel" = 1')
    assert "\x1b" not in program("config").err
    project(program, '[permissions]\nallow = ["pay\\u202e"]')
    assert "\u202e" not in program("config").err
    project(program, "mcp = ['\\x1b[2J\\u202e']".replace("\\x1b", "\x7f"))
    (program.folder / ".treadle" / "\x1b[2Jname.md").write_text("x")
    (program.folder / ".mcp.json").write_text('{"mcpServers": {"\\u001b[2Jx": {"command": "\\u001b]0;title\\u0007"}}}')
    for command in (["config"], ["trust", "--yes"], ["trust", "--status"]):
        found = program(*command)
        assert not {"\x1b", "\x07", "\x7f", "\u202e"} & set(found.out + found.err), command


@pytest.mark.parametrize(
    ("servers", "shown"),
    [
        ({"far": {"url": "https://e.example", "headers": {"X": "${OPENAI_API_KEY}"}}}, "${OPENAI_API_KEY}"),
        ({"near": {"command": "ls", "env": {"LD_PRELOAD": "./evil.so"}, "cwd": "bin"}}, '{"LD_PRELOAD": "./evil.so"}'),
        ({"near": {"command": "ls", "url": "https://e.example"}}, "https://e.example"),
        ({"near": {"command": "ls", "args": [" " * 9000, "evil"]}}, "near: ls evil"),
        ({"near\n\nharmless": {"command": "ls"}}, "near harmless: ls"),
        ({"near": {"command": "ls", "args": ["x" * 9000]}}, "characters more"),
    ],
)
@pytest.mark.parametrize("place", [".mcp.json", ".treadle/servers.txt"])
def test_nothing_of_a_server_stays_out_of_sight_of_whoever_is_asked_to_trust_it(program, servers, shown, place):
    text = json.dumps({"mcpServers": servers}).replace("mcpServers", "mcp\\u0053ervers")
    (program.folder / place).write_text(text)
    (line,) = [line for line in described(read_project(program.folder)) if shown in line]
    assert len(line) < 2000 and line.isprintable()
    assert shown in program("trust").out


def test_a_variable_that_looks_like_a_setting_and_is_none_is_told(program):
    for name in (
        "TREADLE_MODLE",
        "TREADLE_LIMIT_USD",
        "TREADLE_PERMISSIONS_ALLOW",
        "TREADLE_OF_MY_OWN",
        "TREADLE_MODE",
    ):
        program.setenv(name, "plan")
    err = program("config").err
    assert "TREADLE_MODLE sets nothing; did you mean TREADLE_MODEL?" in err
    assert "TREADLE_LIMIT_USD sets nothing; did you mean TREADLE_LIMITS_USD?" in err
    assert "TREADLE_PERMISSIONS_ALLOW sets nothing: rules stand in settings files" in err
    assert len(err.splitlines()) == 3


def test_trust_shows_what_a_directory_would_do_and_is_not_given_where_nobody_is_asked(program):
    project(
        program,
        "model = 'openai-chat:theirs'\n[permissions]\nallow = ['run_command(make *)']\n[profile.p]\nmode = 'auto-edit'",
    )
    servers = {"words": {"command": "touch", "args": ["pwned"]}, "far": {"url": "https://evil.example/mcp"}, "odd": 5}
    (program.folder / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))
    code, out, err = program("trust")
    assert code == 2
    for wanted in (
        ".treadle/config.toml",
        "openai-chat:theirs",
        "make *",
        'mode = "auto-edit"',
        "words: touch pwned",
        "https://evil",
    ):
        assert wanted in out
    assert "give --yes" in err
    (program.folder / ".treadle" / "more.json").write_text('{"servers": {"deep": {"command": "sh"}}}')
    assert "deep: sh" in program("trust").out
    assert program("trust", "--status").code == 1
    assert program("trust", "--list").out == ""
    assert program("trust", "--yes").code == 0
    assert program("trust", "--status").code == 0
    assert program("trust", "--list").out == f"{program.folder}\n"
    project(program, "")
    code, out, _ = program("trust", "--status")
    assert code == 1
    assert "changed: .treadle/config.toml" in out
    assert "not trusted any more" in program("trust", "--forget").out
    assert not (program.folder / "pwned").exists()


def test_what_cannot_be_trusted_or_read_is_told(program):
    project(program, "x = [")
    (program.folder / ".mcp.json").write_text("[")
    out = program("trust", "--yes").out
    assert "its settings cannot be read: project .treadle/config.toml is no TOML" in out
    assert "they cannot be read" in out
    (program.folder / ".treadle" / "/".join("d" * 20)).mkdir(parents=True)
    (program.folder / ".treadle" / "/".join("d" * 20) / "x").touch()
    code, out, err = program("trust", "--yes")
    assert (code, out) == (1, "")
    assert "cannot be trusted: the directories" in err


def test_a_directory_that_brings_nothing_needs_no_trust(program):
    for option in ([], ["--status"], ["--yes"]):
        code, out, _ = program("trust", *option)
        assert code == 0
        assert "nothing that needs trust" in out


@pytest.mark.parametrize(("answer", "trusted"), [(b"y\n", True), (b"\n", False)])
def test_at_a_terminal_trust_is_asked_about(program, treadle: Program, answer, trusted):
    project(program, "model = 'a:b'")
    treadle.environ["TREADLE_HOME"] = str(program.folder / "home")
    ours, theirs = pty.openpty()
    process = treadle.start("trust", stdin=theirs, stderr=theirs)
    os.close(theirs)
    os.write(ours, answer)
    out, _ = process.communicate(timeout=60)
    os.close(ours)
    assert process.returncode == (0 if trusted else 1)
    assert (b"is trusted as it is now" in out) == trusted
    assert (program("trust", "--status").code == 0) == trusted


def test_rules_are_listed_explained_and_revoked(program):
    (program.folder / "home" / "config.toml").write_text(
        "[permissions]\nallow = ['run_command(ls)']\ndeny = ['run_command(rm *)']"
    )
    saved = f'[directories."{program.folder}"]\nallow = ["run_command(make test)"]\n'
    (program.folder / "home" / "permissions.toml").write_text(saved)
    code, out, _ = program("permissions")  # alone it lists
    user, always = f"user {program.folder}/home/config.toml", f"saved rules {program.folder}/home/permissions.toml"
    assert code == 0
    assert out.splitlines() == [
        "mode ask, from default",
        f"deny   run_command(rm *)  from {user}",
        f"allow  run_command(ls)  from {user}",
        f"allow  run_command(make test)  from {always}",
    ]
    found = json.loads(program("permissions", "list", "--json").out)
    assert found["rules"][2] == {"decision": "allow", "rule": "run_command(make test)", "origin": always}
    assert "It runs" in program("permissions", "explain", "ls && make test").out
    assert "It is denied" in program("permissions", "explain", "ls; rm x").out
    assert program("permissions", "revoke", "run_command(make test)").code == 0
    (program.folder / "home" / "permissions.toml").write_text(saved.replace("make test", "ls"))
    assert program("permissions", "revoke", "run_command(ls)").out.endswith(f"it still stands in {user}\n")
    assert program("permissions", "revoke", "run_command(make test)").code == 1
    code, _, err = program("permissions", "revoke", "run_command(ls)")
    assert code == 2
    assert "take it out there" in err
    assert program("permissions", "list", "--root", "/").out.count("make test") == 0


def test_starting_the_program_reads_no_toml_parser_where_no_file_is():
    code = (
        "import sys\nfrom treadle.cli.command import _parser\n_parser()\n"
        "heavy = {'tomllib', 'pydantic', 'httpx2', 'tempfile', 'difflib', 'rich', 'prompt_toolkit'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        "from pathlib import Path\nfrom treadle.cli.settings import load_settings\n"
        "load_settings(root=Path('/'), flags={}, environ={'TREADLE_HOME': '/nonexistent'})\n"
        "assert not heavy - {'tempfile', 'difflib'} & set(sys.modules), heavy & set(sys.modules)\n"
    )
    environ = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, env=environ)


@pytest.mark.parametrize("arguments", [("config",), ("config", "--json")])
def test_config_shows_no_credential_that_a_variable_holds(program, arguments):
    program.setenv("TREADLE_MODEL", "openai-chat:x")
    program.setenv("TREADLE_BASE_URL", "https://models.example/v1?api_key=abcdef1234567")
    code, out, err = program(*arguments)
    assert code == 0
    assert "abcdef1234567" not in out + err
    assert "environment TREADLE_BASE_URL" in out
