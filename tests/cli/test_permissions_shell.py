"""What is taken for a plain line, against what a real shell makes of it."""

import contextlib
import shlex
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from treadle import ConfigError
from treadle.cli.permissions import parse_rule
from treadle.cli.permissions._rules import words_match
from treadle.cli.permissions._shell import NotPlainError, commands, pattern_words, spoken_of

PROGRAMS = ["ls", "git", "touch", "rm", "curl", "time", "cd", "eval", "command", "test", "if", "then", "X=1"]
PIECES = [
    *PROGRAMS, "status", "-s", "--x=1", "p", "f", "a b", "2", "1", "12",
    " ", " ", " ", "\t", "\n", "\r", "\x0b", "\u00a0", "é",
    "&&", "||", ";", "|", "&", ";;", "|&", ">", ">>", "<", "<<", "2>&1", "2>/dev/null", ">/dev/null", "> /dev/null",
    "$(", "${", "$", "`", "(", ")", "{", "}", "[", "]", "'", "'", '"', '"', "\\", "!", "#", "~", "*", "?", "%1", "^",
    "$'", "$HOME", "a,b", "{a,b}", "=", "+=", "@", ":", ".", "/",
]  # fmt: skip
WILD = st.lists(st.sampled_from(PIECES), max_size=9).map("".join)
TAME = st.lists(
    st.tuples(
        st.sampled_from(["ls", "git status", "touch p", "rm 'a b'", '"git" -s', "time ls"]),
        st.sampled_from(["", " ", " x", " 'x;y'", " 2>&1", " 2>/dev/null ", "\t-s"]),
        st.sampled_from([" && ", ";", " | ", "||", "", " "]),
        st.one_of(st.just(""), st.sampled_from(PIECES)),
    ),
    min_size=1,
    max_size=3,
).map(lambda parts: "".join("".join(part) for part in parts).rstrip(";|& "))
LINES = st.one_of(WILD, TAME, TAME, TAME)
WORDS = st.lists(st.text(alphabet="abls -_/.*?[]'\"$&;|\\\n", min_size=1, max_size=6), min_size=1, max_size=4)
PLAIN = st.lists(
    st.tuples(
        st.sampled_from(["ls", "git", "touch", "rm"]), WORDS, st.sampled_from([" && ", ";", " | ", "||", " 2>&1 | "])
    ),
    min_size=1,
    max_size=3,
).map(lambda parts: "".join(f"{name} {shlex.join(words)}{end}" for name, words, end in parts))


class Shell:
    """A shell whose only programs write down how they were started."""

    def __init__(self, folder: Path, shell: str) -> None:
        self._shell = shell
        self._log = folder / "log"
        self._bin = folder / "bin"
        self._work = folder / "work"
        self._bin.mkdir()
        self._work.mkdir()
        script = f'#!/bin/sh\nprintf \'%s\\0\' "$#" "${{0##*/}}" "$@" >> {self._log}\n'
        for name in PROGRAMS:
            if name.isalpha():
                (self._bin / name).write_text(script)
                (self._bin / name).chmod(0o755)

    def ran(self, line: str) -> list[tuple[str, ...]]:
        """The commands that really ran, of a line that writes no file."""
        found = self.ran_of_any(line)
        assert not list(self._work.iterdir()), "it wrote a file"
        return found

    def ran_of_any(self, line: str) -> list[tuple[str, ...]]:
        """The commands that really ran, whatever else the line did."""
        for file in self._work.iterdir():
            file.unlink()
        self._log.write_bytes(b"")
        subprocess.run(
            [self._shell, "-c", line], cwd=self._work, env={"PATH": str(self._bin)}, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=30, check=False,
        )  # fmt: skip
        left, found = self._log.read_bytes().decode(errors="replace").split("\0")[:-1], []
        while left:
            count = int(left[0]) + 2
            found.append(tuple(left[1:count]))
            left = left[count:]
        return found


@pytest.fixture(scope="module", params=["bash", "dash"])
def shell(request, tmp_path_factory):
    found = shutil.which(request.param)
    if found is None:
        pytest.skip(f"no {request.param} here")
    return Shell(tmp_path_factory.mktemp("shell"), found)


MANY = settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
FEW = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@MANY
@given(line=LINES)
def test_whatever_a_shell_runs_of_a_plain_line_was_among_its_commands(shell, line):
    try:
        found = commands(line)
    except NotPlainError:
        return
    assert set(shell.ran(line)) <= set(found), line


@FEW
@given(line=PLAIN)
def test_quoted_words_reach_the_program_as_they_were_read(shell, line):
    try:
        found = commands(line.rstrip(";|& "))
    except NotPlainError:
        return
    ran = shell.ran(line.rstrip(";|& "))
    assert ran
    assert set(ran) <= set(found)


@settings(MANY, max_examples=120, derandomize=True)  # what is computed while a line runs is not seen
@given(line=st.tuples(LINES, st.sampled_from(["rm", " rm x", "rm -x", "if rm", 'r"m"']), LINES).map("".join))
def test_a_denied_program_that_a_shell_runs_was_seen_in_the_line(shell, line):
    if any(words[0] == "rm" for words in shell.ran_of_any(line)):
        assert any(words[0] == "rm" for words in spoken_of(line)), line


@given(words=WORDS)
@settings(max_examples=300)
def test_quoting_a_command_word_for_word_gives_a_pattern_of_this_command_alone(words):
    words = ["git", *words]
    try:
        pattern = pattern_words(shlex.join(words))
    except NotPlainError:
        return
    assert words_match(words, pattern)
    for change in (["x", *words], [*words, "x"], [*words[:-1], f"{words[-1]}x"]):
        assert not words_match(change, pattern)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("ls", [("ls",)]),
        ("  git\tstatus  -s ", [("git", "status", "-s")]),
        ("git status && ls", [("git", "status"), ("ls",)]),
        ("a;b||c|d", [("a",), ("b",), ("c",), ("d",)]),
        ("git commit -m 'a && b; c $(d) \"e\"'", [("git", "commit", "-m", 'a && b; c $(d) "e"')]),
        ('grep "it\'s" x', [("grep", "it's", "x")]),
        ("echo a'b'\"c\" ''", [("echo", "abc", "")]),
        ("pytest -q 2>&1 | tail -20", [("pytest", "-q"), ("tail", "-20")]),
        ("ls x 2>/dev/null || true", [("ls", "x"), ("true",)]),
        ("git commit -m 'one\ntwo'", [("git", "commit", "-m", "one\ntwo")]),
    ],
)
def test_the_commands_of_plain_lines(line, found):
    assert commands(line) == found


@pytest.mark.parametrize(
    "line",
    [
        "", " ", ";", "ls;", "&& ls", "ls &&", "ls ; ; ls", "ls &", "ls & touch p", "ls > f", "ls >> f", "ls < f",
        "ls 2> f", "ls 2>&1x", "ls >/dev/null/../../f", "ls >/dev/nullx", "> f ls", "`touch p`", "ls `touch p`",
        "ls $(touch p)", "ls $HOME", "ls ${x}", 'ls "$HOME"', 'ls "`id`"', 'ls "a\\"b"', "ls \\\ntouch", "ls\ntouch p",
        "ls\rtouch p", "ls\x00", "ls \x1b[2J", "ls *", "ls ?", "ls [ab]", "ls {a,b}", "ls ~", "ls ~root/x", "ls #x",
        "(ls)", "{ ls; }", "! ls", "!ls", "X=1 ls", "X+=1 ls", "A[0]=1 ls", "'X=1' ls", "if ls", "time ls", "eval ls",
        "source x", ". x", "command ls", "exec ls", "export X=1", "alias ls=rm", "trap 'rm x' EXIT", "cd /tmp && ls",
        "printf -v 'a[$(touch p)]' x", "test -v 'a[$(touch p)]'", "[ -v x ]", "[[ a ]]", "read x", "hash -p /tmp/x ls",
        "ls |& cat", "ls ;; ls", "ls 'a", 'ls "a', "$'ls'", "ls $'a'", "ls\u00a0-la", "ls\u2028touch", "%1", "ls é",
        "function ls", "coproc ls", "'' x", "'ls x'", "case x",
    ],
)  # fmt: skip
def test_lines_that_are_not_plain(line):
    with pytest.raises(NotPlainError):
        commands(line)


@pytest.mark.parametrize(
    "line",
    [
        "rm -rf x", "ls && rm -rf x", "ls; rm -rf x", "ls | rm -rf x", "ls & rm -rf x", "ls\nrm -rf x", "(rm -rf x)",
        "ls $(rm -rf x)", "ls `rm -rf x`", "X=1 rm -rf x", "/bin/rm -rf x", "\\rm -rf x", "'rm' -rf x", "sudo rm -rf x",
        "sudo -u me env A=1 nice -n 5 rm -rf x", "timeout 5 rm -rf x", "xargs rm -rf x", "bash -c 'rm -rf x'",
        "sudo bash -c 'ls; rm -rf x'", "if true; then rm -rf x; fi", "! rm -rf x", "rm -rf x > /dev/null",
        "eval 'rm -rf x'", "{ rm -rf x; }", "r'm' -rf x", "echo 'a;b' && rm -rf x", "command rm -rf x",
        "> f rm -rf x", "rm > f -rf x", "2>&1 rm -rf x", "rm 2>/dev/null -rf x", "r\\\nm -rf x", "time -p rm -rf x",
        "coproc rm -rf x", "find . -exec rm -rf {} \\;", "$'rm' -rf x", "su -c 'rm -rf x'", "cat < a | rm -rf x",
        "RM -rf x", "(cd x && rm -rf x)", "while ! rm -rf x; do :; done", "case a in b) rm -rf x;; esac", "f() { rm -rf x; }",
    ],
)  # fmt: skip
def test_a_rule_that_denies_finds_its_command_anywhere_in_a_line(line):
    pattern = parse_rule("run_command(rm -rf *)", "deny", "").words
    assert any(words_match(words, pattern) for words in spoken_of(line)), line


@pytest.mark.parametrize(
    "line",
    [
        "git -c a=b push",
        "git -C /x -p push origin",
        "git --git-dir=/x push",
        "sudo git -c a=b push",
        "/bin/GIT -C x push",
    ],
)
def test_a_rule_that_denies_finds_its_command_behind_options_of_the_program(line):
    pattern = parse_rule("run_command(git push *)", "deny", "").words
    assert any(words_match(words, pattern) for words in spoken_of(line)), line


@pytest.mark.parametrize("line", ["git rm x", "echo 'rm -rf x'", "git commit -m 'rm -rf x'", "ls rm", "rmdir x"])
def test_a_rule_that_denies_is_not_about_words_that_are_no_command(line):
    pattern = parse_rule("run_command(rm *)", "deny", "").words
    assert not any(words_match(words, pattern) for words in spoken_of(line))


@given(line=st.one_of(LINES, st.text(max_size=60)))
@settings(max_examples=300)
def test_every_line_can_be_looked_at(line):
    list(spoken_of(line))
    with contextlib.suppress(NotPlainError):
        assert all(commands(line))


def test_a_line_that_nests_programs_in_programs_is_looked_at_in_bounded_time():
    assert len(list(spoken_of("sudo " * 300 + "rm x"))) < 100_000
    assert len(list(spoken_of("bash -c " * 300))) < 100_000


@pytest.mark.parametrize("line", ["1" * 99_999, "${" * 49_999, "'" * 99_999, ">" * 99_999, "$(" * 49_999])
def test_a_long_line_is_looked_at_in_the_time_that_its_length_takes(line):
    began = time.process_time()
    list(spoken_of(line))
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "no rule"),
        ("run_command", "every command"),
        ("run_command()", "names no command"),
        ("run_command(*)", "plain name"),
        ("run_command(g*t status)", "plain name"),
        ("run_command(ls && rm x)", "background"),
        ("run_command(ls; rm)", "plain"),
        ("run_command(ls > f)", "redirects"),
        ("run_command(sudo $X)", "expanded"),
        ("run_command(eval *)", "own word"),
        ("run_command(ls", "no rule"),
        ("run_comand(ls)", "did you mean run_command"),
        ("pay(5)", "takes no pattern"),
        ("edit_file(/etc/passwd)", "path in the root"),
        ("edit_file(../x)", "path in the root"),
        ("edit_file(~/x)", "path in the root"),
        ("edit_file()", "path in the root"),
        ("edit_file(**/**/**/**/a)", "path in the root"),
        ("web_fetch(https://x.org/)", "takes a host"),
        ("web_fetch(a b)", "takes a host"),
        ("run_command(ls)\nx", "one line"),
        ("ls -la", "no rule"),
    ],
)
def test_a_rule_that_cannot_be_is_refused_in_one_line_that_says_why(text, complaint):
    with pytest.raises(ConfigError, match=complaint) as caught:
        parse_rule(text, "allow", "")
    assert "\n" not in str(caught.value)
