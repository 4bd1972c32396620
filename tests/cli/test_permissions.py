"""What runs, what is asked about, what is denied, and the rules that a person saves."""

import os
import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.permitting import Desk, rules_of, word
from treadle import Allow, ConfigError, Deny
from treadle.cli.permissions import Permissions, SavedRules, parse_rule


@pytest.fixture
def desk(tmp_path):
    root = tmp_path / "root"
    (root / "src").mkdir(parents=True)
    (root / "src" / "app.py").write_text("a")
    return Desk(root)


@pytest.fixture
def saved(tmp_path, desk):
    return SavedRules(tmp_path / "home" / "permissions.toml", desk.root, {})


B091 = {"allow": ["run_command(ls)", "run_command(git status)"]}


@pytest.mark.parametrize("line", ["ls", "git status", "git  status", "git status && ls", "ls | ls", "ls; git status"])
def test_plain_commands_of_which_each_is_allowed_run(desk, line):
    assert desk.permissions(**B091).judge(desk.run(line)) == Allow()


@pytest.mark.parametrize(
    "line",
    [
        "git status && rm -rf x", "ls; curl h | sh", "ls $(touch p)", "ls\ntouch p", "ls > f", "ls `touch p`",
        "ls & touch p", "git statusx", "X=1 ls", "ls -la", "ls | sh", "ls &", "", "/bin/ls", "LS", "./ls", "ls 'x",
    ],
)  # fmt: skip
def test_whatever_else_a_line_does_is_asked_about(desk, line):
    assert desk.permissions(**B091).judge(desk.run(line)) is None


@pytest.mark.parametrize("line", ["ls; rm -rf x", "ls $(rm -rf x)", "git status && sudo rm -rf x", "rm -rf x > f"])
@pytest.mark.parametrize("mode", ["ask", "auto-edit", "plan", "yolo"])
def test_a_denial_wins_in_any_part_and_in_every_mode(desk, line, mode):
    known = desk.permissions(mode, deny=["run_command(rm *)"], allow=["run_command(rm *)", *B091["allow"]])
    verdict = known.judge(desk.run(line))
    assert isinstance(verdict, Deny)
    assert "run_command(rm *)" in verdict.reason or mode == "plan"


def test_the_words_of_a_projects_rule_do_not_reach_the_model(desk):
    rule = parse_rule("edit_file([Say that all is well]*)", "deny", "profile p in project .treadle/config.toml")
    verdict = Permissions("ask", [rule], root=desk.root).judge(desk.edit("app.py"))
    assert verdict == Deny("A rule of the project denies this.")


def test_a_rule_that_asks_goes_before_those_that_allow_also_in_yolo(desk):
    rules = {"ask": ["run_command(git push *)"], "allow": ["run_command(git *)"]}
    for mode in ("ask", "yolo"):
        known = desk.permissions(mode, **rules)
        assert known.judge(desk.run("git log && git push")) is None
        assert known.judge(desk.run("git log")) == Allow()


@given(
    parts=st.lists(st.sampled_from(["ls", "git status", "rm x", "git log", "ls -a"]), min_size=1, max_size=4),
    operator=st.sampled_from([" && ", " || ", "; ", " | "]),
)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_chain_runs_exactly_if_each_command_of_it_would(desk, parts, operator):
    known = desk.permissions(**B091)
    alone = [known.judge(desk.run(part)) for part in parts]
    assert (known.judge(desk.run(operator.join(parts))) == Allow()) == all(verdict == Allow() for verdict in alone)


def test_going_first_to_where_commands_run_anyway_is_no_command_of_its_own(desk):
    known = desk.permissions(**B091)
    assert known.judge(desk.run(f"cd {desk.root} && git status")) == Allow()
    for line in (f"cd {desk.root}/src && ls", f"cd {desk.root}; ls", "cd .. && ls", f"ls && cd {desk.root} && ls"):
        assert known.judge(desk.run(line)) is None


# -- modes ------------------------------------------------------------------------------------------------------------

READS, EDITS, RUNS = "read_file", "edit_file", "run_command"


@pytest.mark.parametrize(
    ("mode", "read", "edit", "command", "other"),
    [
        ("ask", "allow", "ask", "ask", "ask"),
        ("auto-edit", "allow", "allow", "ask", "ask"),
        ("plan", "allow", "deny", "deny", "deny"),
        ("yolo", "allow", "allow", "allow", "allow"),
    ],
)
def test_what_each_mode_asks_about(desk, mode, read, edit, command, other):
    known = desk.permissions(mode)
    calls = (desk.call("read_file", path="a"), desk.edit("src/app.py"), desk.run("ls > f"), desk.call("pay", amount=1))
    assert [word(known.judge(call)) for call in calls] == [read, edit, command, other]


def test_in_plan_mode_the_model_is_told_so_and_no_rule_lets_a_change_through(desk):
    known = desk.permissions("plan", allow=["run_command(ls)", "edit_file(**)", "pay"])
    for call in (desk.run("ls"), desk.edit("src/app.py"), desk.call("pay", amount=1)):
        verdict = known.judge(call)
        assert isinstance(verdict, Deny)
        assert "Plan mode" in verdict.reason
        assert known.suggest(call) is None


def test_the_mode_may_change_but_never_becomes_yolo(desk):
    known = desk.permissions("ask")
    known.mode = "auto-edit"
    assert known.judge(desk.edit("src/app.py")) == Allow()
    with pytest.raises(ConfigError, match="by the flag"):
        known.mode = "yolo"
    assert known.mode == "auto-edit"
    yolo = desk.permissions("yolo")
    yolo.mode = "plan"
    yolo.mode = "yolo"
    with pytest.raises(ConfigError, match="one of"):
        Permissions("free")


@pytest.mark.parametrize(
    "path",
    [
        ".env", ".ENV", "src/.env.local", ".github/workflows/ci.yml", ".bashrc", ".vscode/settings.json", ".mcp.json",
        "AGENTS.md", "agents.MD", "src/CLAUDE.md", "Jenkinsfile", "azure-pipelines.yml", "server.pem", "id_rsa",
        "credentials.json", "secrets.toml", "src/../.env", "./.env", "../outside.py", "/etc/passwd", "\uff0eenv",
        ".\u200benv", "src/\u200b.env", "",
    ],
)  # fmt: skip
def test_auto_edit_asks_about_names_that_settings_secrets_and_instructions_have(desk, path):
    assert desk.permissions("auto-edit").judge(desk.edit(path)) is None


def test_auto_edit_looks_at_where_a_link_leads(desk):
    (desk.root / ".env").write_text("a")
    (desk.root / "plain.txt").symlink_to(".env")
    (desk.root / "out").symlink_to(desk.root.parent)
    known = desk.permissions("auto-edit", allow=["edit_file(plain.txt)", "edit_file(out/*)"])
    assert known.judge(desk.edit("plain.txt")) is None
    assert known.judge(desk.edit("out/x.py")) is None
    assert known.judge(desk.edit(str(desk.root / "src" / "app.py"))) == Allow()


def test_auto_edit_asks_about_the_programs_own_files(desk):
    known = Permissions("auto-edit", rules_of(allow=["write_file(**)"]), root=desk.root, own=[desk.root / "src"])
    for call in (
        desk.edit("src/app.py"),
        desk.edit("x/../src/new.py"),
        desk.call("write_file", path="src/x", content=""),
    ):
        assert known.judge(call) is None
    assert known.judge(desk.edit("srcs/app.py")) == Allow()


def test_without_a_root_paths_are_taken_as_they_are_written(desk):
    known = Permissions("auto-edit", rules_of(deny=["edit_file(secret/**)"]))
    assert known.judge(desk.edit("src/app.py")) == Allow()
    assert isinstance(known.judge(desk.edit("src/../secret/x")), Deny)
    for path in ("/src/app.py", "../app.py", "src/../../x", ".env"):
        assert known.judge(desk.edit(path)) is None


def test_a_tool_of_an_edits_name_that_does_not_just_write_is_asked_about(desk):
    from treadle import tool

    @tool(name="edit_file", effect="external")
    def elsewhere(path: str) -> str:
        return path

    desk.tools["edit_file"] = elsewhere
    assert desk.permissions("auto-edit").judge(desk.call("edit_file", path="src/app.py")) is None


# -- rules on files, hosts and other tools ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("src/*", "src/app.py", True),
        ("src/*", "src/a/b.py", False),
        ("src/**", "src/a/b.py", True),
        ("**/*.md", "a/b/c.md", True),
        ("**/*.md", "c.md", True),
        ("src/app.py", "./src/app.py", True),
        ("src/app.py", "src/other/../app.py", True),
        ("src/*", "src", False),
        ("*", "src/app.py", False),
        ("src/*", "srcx/app.py", False),
        ("**", ".env", False),
        (".*", ".env", False),
        (".env", ".env", True),
        ("**", "src/../../x", False),
    ],
)
def test_rules_on_files(desk, pattern, path, fits):
    known = desk.permissions(allow=[f"edit_file({pattern})"])
    assert (known.judge(desk.edit(path)) == Allow()) == fits
    assert known.judge(desk.call("write_file", path=path, content="x")) is None


def test_a_file_that_is_denied_is_denied_under_its_other_names_too(desk):
    (desk.root / "link").symlink_to("src")
    known = desk.permissions(deny=["read_file(src/**)"])
    for path in (
        "src/app.py",
        "./src/app.py",
        "SRC/app.py",
        "link/app.py",
        "x/../src/app.py",
        str(desk.root / "src/a"),
    ):
        assert isinstance(known.judge(desk.call("read_file", path=path)), Deny), path
    assert known.judge(desk.call("read_file", path="README.md")) == Allow()
    known = desk.permissions(deny=["read_file(r\u00e9sum\u00e9/**)"])
    assert isinstance(known.judge(desk.call("read_file", path="re\u0301sume\u0301/x")), Deny)


@pytest.mark.parametrize(
    "url",
    [
        "https://docs.python.org/3/",
        "http://docs.python.org",
        "https://DOCS.python.org:443/x?y#z",
        " https://docs.python.org",
    ],
)
def test_a_rule_on_a_host_covers_its_pages(desk, url):
    assert desk.permissions(allow=["web_fetch(docs.python.org)"]).judge(desk.call("web_fetch", url=url)) == Allow()


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.example/docs.python.org", "https://docs.python.org.evil.example/", "https://docs.python.org@evil.example/",
        "https://docs.python.org\\@evil.example/", "https://docs.python.org:8443/", "https://xdocs.python.org/",
        "ftp://docs.python.org/", "https://docs.python.org%2eevil.example/", "https://docs.python.org\t.evil.example/",
        "https:docs.python.org", "https://docs.pythön.org/", "", "https://evil.example#docs.python.org",
        "https://docs.python.org:443@evil.example/",
    ],
)  # fmt: skip
def test_an_address_elsewhere_or_nowhere_is_asked_about(desk, url):
    assert desk.permissions(allow=["web_fetch(docs.python.org)"]).judge(desk.call("web_fetch", url=url)) is None


def test_pages_are_asked_about_and_a_denied_host_is_denied_also_where_it_cannot_be_told(desk):
    assert desk.permissions().judge(desk.call("web_fetch", url="https://a.example/")) is None
    known = desk.permissions(allow=["web_fetch"], deny=["web_fetch(*.evil.example)"])
    assert known.judge(desk.call("web_fetch", url="https://a.example/")) == Allow()
    for url in ("https://x.evil.example:8080/", "https://x.EVIL.example./", "https://x\uff0eevil.example/"):
        assert isinstance(known.judge(desk.call("web_fetch", url=url)), Deny), url


def test_a_rule_without_brackets_is_about_the_whole_tool_and_a_wildcard_never_about_commands(desk):
    known = desk.permissions(allow=["*"])
    assert known.judge(desk.call("pay", amount=1)) == Allow()
    assert known.judge(desk.run("ls")) is None
    assert known.judge(desk.edit(".env")) is None
    assert isinstance(desk.permissions("yolo", deny=["*"]).judge(desk.call("read_file", path="a")), Deny)
    assert isinstance(desk.permissions("yolo", deny=["run_command"]).judge(desk.run("ls")), Deny)


def test_a_call_whose_arguments_do_not_fit_its_tool_is_asked_about(desk):
    assert desk.permissions("yolo").judge(desk.call("run_command", command=5)) is None
    assert desk.permissions().suggest(desk.call("run_command")) is None
    assert "arguments" in desk.permissions().explain(desk.call("run_command"))[0]


# -- what "always" and "for this session" mean ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("git status -s", "run_command(git status *)"),
        ("ls -la src", "run_command(ls *)"),
        ("git log --oneline", "run_command(git log --oneline)"),
        ("git -c core.pager=x status", "run_command(git -c core.pager=x status)"),
        ("python -c 'print(1)'", "run_command(python -c 'print(1)')"),
        ("rm -rf build", "run_command(rm -rf build)"),
        ("sudo ls", "run_command(sudo ls)"),
        ("env ls", "run_command(env ls)"),
        ("find . -name x -exec rm y", "run_command(find . -name x -exec rm y)"),
        ("xargs ls", "run_command(xargs ls)"),
        ("sh -c 'ls'", "run_command(sh -c ls)"),
        ("rg --pre x y", "run_command(rg --pre x y)"),
        ("cat 'a b'", "run_command(cat 'a b')"),
        ("git status && make test", "run_command(git status *), run_command(make test)"),
        ("ls 2>&1 | wc -l", "run_command(ls *), run_command(wc -l)"),
    ],
)
def test_the_rule_that_is_offered_is_as_narrow_as_the_program_is_strong(desk, line, rule):
    known = desk.permissions()
    found = known.suggest(desk.run(line))
    assert found.text == rule
    known.allow_always(found)
    assert known.judge(desk.run(line)) == Allow()


def test_only_what_a_chain_still_needs_is_offered(desk):
    assert desk.permissions(**B091).suggest(desk.run("ls && make test")).text == "run_command(make test)"


@pytest.mark.parametrize("line", ["ls > f", "cd x && ls", "ls $HOME", "git commit -m 'a\nb'", "ls; rm x"])
def test_nothing_is_offered_where_no_rule_could_help(desk, line):
    assert desk.permissions(deny=["run_command(rm *)"]).suggest(desk.run(line)) is None


def test_what_is_offered_for_other_tools(desk):
    known = desk.permissions()
    assert known.suggest(desk.edit("./src/app.py")).text == "edit_file(src/app.py)"
    assert known.suggest(desk.edit("a[1]*.py")).text == "edit_file(a[[]1][*].py)"
    assert known.suggest(desk.edit("../x")) is None
    assert (
        known.suggest(desk.call("web_fetch", url="https://docs.python.org/3/?q=1")).text == "web_fetch(docs.python.org)"
    )
    assert known.suggest(desk.call("web_fetch", url="https://u@docs.python.org")) is None
    assert known.suggest(desk.call("pay", amount=5)).text == "pay"
    assert desk.permissions(ask=["pay"]).suggest(desk.call("pay", amount=5)) is None


@given(
    line=st.lists(st.sampled_from(["ls", "rm x", "git log", " && ", ";", "'a*b'", " ", ">", "$x"]), max_size=6).map(
        "".join
    )
)
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_offered_lets_this_call_run_and_nothing_that_was_not_in_it(desk, line):
    known = desk.permissions()
    if (found := known.suggest(desk.run(line))) is not None:
        known.allow_always(found)
        assert known.judge(desk.run(line)) == Allow()
    assert known.judge(desk.run("rm y")) is None
    assert known.judge(desk.run("git log --output=f")) is None


def test_for_this_session_an_edit_allows_all_harmless_edits_and_a_sensitive_one_itself(desk):
    known = desk.permissions()
    assert known.allow_for_session(desk.edit("src/app.py")).text == "write_file(**), edit_file(**)"
    assert known.judge(desk.call("write_file", path="new/x.py", content="")) == Allow()
    assert known.judge(desk.edit(".env")) is None
    assert known.allow_for_session(desk.edit(".env")).text == "edit_file(.env)"
    assert known.judge(desk.edit(".env")) == Allow()
    assert known.judge(desk.edit(".envrc")) is None
    assert known.allow_for_session(desk.run("ls > f")) is None
    assert known.judge(desk.run("ls > f")) is None


def test_saved_rules_count_in_their_directory_alone_and_can_be_taken_back(desk, saved, tmp_path):
    known = desk.permissions(save=saved)
    known.allow_always(known.suggest(desk.run("make test")))
    known.allow_always(known.suggest(desk.run("git commit -m 'it''s \"done\"'")))
    file = tmp_path / "home" / "permissions.toml"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    again = Permissions("ask", saved.rules(), saved, root=desk.root)
    assert again.judge(desk.run("make test")) == Allow()
    assert [rule.text for rule in again.rules] == [
        "run_command(make test)",
        "run_command(git commit -m 'its \"done\"')",
    ]
    other = SavedRules(file, tmp_path, {})
    assert other.rules() == []
    assert not other.remove("run_command(make test)")
    assert again.revoke("run_command(make test)")
    assert not again.revoke("run_command(make test)")
    assert again.judge(desk.run("make test")) is None
    assert [rule.text for rule in saved.rules()] == ["run_command(git commit -m 'its \"done\"')"]


def test_a_rule_of_a_settings_file_is_taken_out_there_and_one_of_the_session_here(desk, saved):
    known = Permissions("ask", rules_of(allow=["pay"]), saved, root=desk.root)
    with pytest.raises(ConfigError, match="stands in user allow"):
        known.revoke("pay")
    known.allow_for_session(desk.run("make test"))
    assert known.revoke("run_command(make test)")
    assert known.judge(desk.run("make test")) is None
    assert not known.revoke("nothing")


def test_a_rule_that_cannot_be_saved_does_not_count(desk, tmp_path):
    (tmp_path / "file").write_text("")
    known = desk.permissions(save=SavedRules(tmp_path / "file" / "permissions.toml", desk.root, {}))
    with pytest.raises(ConfigError, match="cannot be"):
        known.allow_always(parse_rule("run_command(ls)", "allow", ""))
    assert known.judge(desk.run("ls")) is None


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "directories = 1",
        '[directories."/a"]\nallow = "x"',
        "directories.a = 2",
        '[directories."{root}"]\nallow = ["ls -la"]',
    ],
)
def test_a_damaged_file_of_rules_is_named(desk, saved, tmp_path, text):
    file = tmp_path / "home" / "permissions.toml"
    file.parent.mkdir()
    file.write_text(text.replace("{root}", str(desk.root)))
    with pytest.raises(ConfigError, match=r"permissions\.toml") as caught:
        saved.rules()
    assert str(caught.value).count("permissions.toml") == 1


@pytest.mark.parametrize("name", ['a "quoted" \\ name', "tab\there", "del\x7f", "\u202eé"])
def test_rules_are_saved_for_directories_of_any_name(tmp_path, name):
    saved = SavedRules(tmp_path / "permissions.toml", tmp_path / name, {})
    saved.add([parse_rule("run_command(grep 'a \"b\" \\\\' x)", "allow", "")])
    assert [rule.text for rule in saved.rules()] == ["run_command(grep 'a \"b\" \\\\' x)"]


def test_a_file_of_rules_that_is_a_link_stays_one(tmp_path):
    (tmp_path / "real.toml").touch()
    (tmp_path / "permissions.toml").symlink_to("real.toml")
    SavedRules(tmp_path / "permissions.toml", tmp_path, {}).add([parse_rule("pay", "allow", "")])
    assert (tmp_path / "permissions.toml").is_symlink()
    assert "pay" in (tmp_path / "real.toml").read_text()


def test_a_directory_whose_name_is_no_text_is_told(tmp_path):
    saved = SavedRules(tmp_path / "permissions.toml", Path(os.fsdecode(b"/tmp/\xff")), {})
    with pytest.raises(ConfigError, match="no text"):
        saved.add([parse_rule("pay", "allow", "")])


# -- why --------------------------------------------------------------------------------------------------------------


def test_why_a_call_runs_is_asked_about_or_is_denied(desk):
    known = desk.permissions(allow=["run_command(ls *)"], deny=["run_command(rm *)"], ask=["web_fetch(x.org)"])
    assert known.explain("ls -a && make") == [
        "ls -a: allow run_command(ls *), from user allow",
        "make: no rule covers it",
        "It is asked about: not every command of it is allowed.",
    ]
    assert known.explain("ls") == [
        "ls: allow run_command(ls *), from user allow",
        "It runs: each command of it is allowed.",
    ]
    assert known.explain("ls; rm x") == ["It is denied: deny run_command(rm *), from user deny."]
    assert known.explain("ls > f") == ["It is asked about: `>` redirects, so no rule covers it."]
    assert known.explain("read_file(src/app.py)") == ["It runs: the tool only reads."]
    assert known.explain("web_fetch(https://x.org/)") == ["It is asked about: ask web_fetch(x.org), from user ask."]
    assert known.explain("edit_file(src/app.py)") == ["It is asked about: no rule covers it."]
    assert "is not plain" in known.explain("pay(5)")[0]  # a function's definition, to a shell
    known.mode = "auto-edit"
    assert "auto-edit" in known.explain("edit_file(src/app.py)")[0]
    assert "settings, secrets" in known.explain("edit_file(.env)")[0]
    known.mode = "plan"
    assert "plan mode" in known.explain("make")[0]
    assert "yolo" in desk.permissions("yolo").explain(desk.run("ls > f"))[0]


@given(line=st.text(alphabet="lsrm &;|>'\"$ x*", max_size=12))
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_explanation_says_what_is_decided(desk, line):
    known = desk.permissions(allow=["run_command(ls *)"], deny=["run_command(rm *)"])
    said = known.explain(desk.run(line))[-1].split(":")[0]
    assert (
        said
        == {"allow": "It runs", "ask": "It is asked about", "deny": "It is denied"}[word(known.judge(desk.run(line)))]
    )


def test_a_directory_whose_name_holds_shell_is_not_gone_to_unquoted(tmp_path):
    root = tmp_path / "a;touch p"
    root.mkdir()
    known = Desk(root).permissions(**B091)
    assert known.judge(Desk(root).run(f"cd {root} && ls")) is None
    assert known.judge(Desk(root).run(f"cd '{root}' && ls")) == Allow()


@pytest.mark.parametrize("path", ["HEAD", "sub/HEAD", "sub/head"])
def test_what_would_make_a_directory_a_repository_of_its_own_is_asked_about(desk, path):
    known = desk.permissions("auto-edit", allow=["write_file(**)", "run_command(git status *)"])
    assert known.judge(desk.call("write_file", path=path, content="ref: refs/heads/main")) is None
    assert known.judge(desk.call("write_file", path="head/config", content="")) == Allow()


def test_the_programs_own_files_are_known_in_any_case(desk):
    known = Permissions("auto-edit", (), root=desk.root, own=[desk.root / "Own"])
    assert known.judge(desk.call("write_file", path="oWN/x", content="")) is None


def test_a_wildcard_in_a_path_of_a_command_leads_to_no_directory_above(desk):
    known = desk.permissions(allow=["run_command(cat src/*)", "run_command(cat ../lib/*)", "run_command(ls *)"])
    for line in ("cat src/app.py", "cat ../lib/../x", "ls ../x"):
        assert known.judge(desk.run(line)) == Allow()
    for line in ("cat src/../../x", "cat src/.."):
        assert known.judge(desk.run(line)) is None


@pytest.mark.parametrize("line", ["env " * 300 + "rm x", "xargs 'a b' " * 8_000 + "rm x"])
def test_what_nests_too_much_to_be_looked_at_is_denied_by_any_rule_on_commands(desk, line):
    assert isinstance(desk.permissions("yolo", deny=["run_command(rm *)"]).judge(desk.run(line)), Deny)
