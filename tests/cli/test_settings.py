"""Where each setting comes from, what a file may hold, and what a project may set before it is trusted."""

import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle import ConfigError, Limits
from treadle.cli.settings import Trust, load_settings, paths
from treadle.cli.settings._keys import BY_NAME, KEYS
from treadle.cli.settings._secrets import is_secret_name, looks_secret

ROOT = Path(__file__).parents[2]


class Machine:
    """A user's directories, and a project."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.root = folder / "project"
        self.environ = {"HOME": str(self.home), "XDG_CONFIG_HOME": str(self.home / ".config")}
        (self.home / ".config" / "treadle").mkdir(parents=True)
        (self.root / ".treadle").mkdir(parents=True)
        self.user_file = self.home / ".config" / "treadle" / "config.toml"
        self.project_file = self.root / ".treadle" / "config.toml"

    def user(self, text: str) -> None:
        self.user_file.write_text(text, encoding="utf-8")

    def project(self, text: str) -> None:
        self.project_file.write_text(text, encoding="utf-8")

    def load(self, *, trusted: bool = True, profile: str | None = None, environ: dict[str, str] | None = None, **flags):
        return load_settings(
            root=self.root, flags=flags, environ=self.environ | (environ or {}), profile=profile, trusted=trusted
        )


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


USER = "user ~/.config/treadle/config.toml"
PROJECT = "project .treadle/config.toml"


def test_without_any_source_the_defaults_hold(machine):
    settings = machine.load()
    assert settings.model is None
    assert settings.mode == "ask"
    assert settings.limits == Limits(steps=50)
    assert settings.allow_commands is None
    assert {settings.origin(key.name) for key in KEYS} == {"default"}


def test_each_source_goes_before_the_next_one(machine):
    machine.user('model = "a:user"\n[profile.p]\nmodel = "a:user-profile"')
    assert (machine.load().model, machine.load().origin("model")) == ("a:user", USER)
    found = machine.load(profile="p")
    assert (found.model, found.origin("model")) == ("a:user-profile", f"profile p in {USER}")
    machine.project('model = "a:project"')
    assert machine.load(profile="p").model == "a:project"
    machine.project('model = "a:project"\n[profile.p]\nmodel = "a:project-profile"')
    found = machine.load(profile="p")
    assert (found.model, found.origin("model")) == ("a:project-profile", f"profile p in {PROJECT}")
    assert machine.load().origin("model") == PROJECT
    found = machine.load(profile="p", environ={"TREADLE_MODEL": "a:env"})
    assert (found.model, found.origin("model")) == ("a:env", "environment TREADLE_MODEL")
    found = machine.load(profile="p", environ={"TREADLE_MODEL": "a:env"}, model="a:flag")
    assert (found.model, found.origin("model")) == ("a:flag", "flag --model")


@given(st.lists(st.sampled_from(["flag", "environment", "project", "user"]), unique=True))
def test_the_strongest_source_that_is_there_decides(tmp_path_factory, sources):
    machine = Machine(tmp_path_factory.mktemp("machine"))
    values = {"flag": 1, "environment": 2, "project": 3, "user": 4}
    flags = {"max_steps": 1} if "flag" in sources else {}
    environ = {"TREADLE_MAX_STEPS": "2"} if "environment" in sources else {}
    machine.project("max_steps = 3" if "project" in sources else "")
    machine.user("max_steps = 4" if "user" in sources else "")
    settings = machine.load(environ=environ, **flags)
    assert settings.max_steps == settings.limits.steps == min((values[source] for source in sources), default=50)
    assert settings.origin("max_steps").startswith(tuple(sources) or "default")


def test_a_flag_that_was_not_typed_does_not_count(machine):
    machine.user("max_steps = 4")
    assert machine.load(max_steps=None).max_steps == 4


def test_a_profile_is_chosen_by_the_environment_too_and_has_to_be_there(machine):
    machine.user("[profile.fast]\nmax_steps = 3\n[profile.slow]")
    assert machine.load(environ={"TREADLE_PROFILE": "fast"}).max_steps == 3
    assert machine.load(environ={"TREADLE_PROFILE": "fast"}, profile="slow").max_steps == 50
    with pytest.raises(ConfigError, match=r"no profile 'fats'; did you mean fast\?; there are: fast, slow"):
        machine.load(profile="fats")


def test_an_empty_text_unsets_what_weaker_sources_set_and_an_empty_variable_is_none(machine):
    machine.user('search_url = "http://127.0.0.1:8888"')
    assert machine.load(environ={"TREADLE_SEARCH_URL": " "}).search_url == "http://127.0.0.1:8888"
    settings = machine.load(search_url="")
    assert (settings.search_url, settings.origin("search_url")) == (None, "flag --search-url")
    machine.project('search_url = ""')
    assert machine.load().search_url is None


def test_an_address_is_left_behind_where_a_stronger_source_names_another_model(machine):
    machine.user('model = "openai-chat:tiny"\nbase_url = "http://127.0.0.1:8000/v1"')
    assert machine.load().base_url == "http://127.0.0.1:8000/v1"
    settings = machine.load(model="anthropic:claude")
    assert settings.base_url is None
    assert "flag --model names another model" in settings.origin("base_url")
    assert machine.load(base_url="http://127.0.0.1:9/v1").base_url == "http://127.0.0.1:9/v1"
    both = {"TREADLE_MODEL": "openai-chat:x", "TREADLE_BASE_URL": "http://127.0.0.1:7/v1"}
    assert machine.load(environ=both).base_url == "http://127.0.0.1:7/v1"
    assert machine.load(environ=both, model="anthropic:claude").base_url is None
    for flags in (
        {"model": "a:b", "base_url": "http://127.0.0.1:6/v1"},
        {"base_url": "http://127.0.0.1:6/v1", "model": "a:b"},
    ):
        assert machine.load(environ=both, **flags).base_url == "http://127.0.0.1:6/v1"
    machine.user('base_url = "http://127.0.0.1:8000/v1"\n[profile.big]\nmodel = "anthropic:claude"')
    assert machine.load(profile="big").base_url is None


def test_rules_of_all_sources_count_together(machine):
    machine.user('[permissions]\nallow = ["run_command(ls)"]\ndeny = ["run_command(rm *)"]')
    machine.project('[permissions]\nallow = ["run_command(make test)"]')
    rules = [(rule.decision, rule.text, rule.origin) for rule in machine.load().rules]
    assert sorted(rules) == [
        ("allow", "run_command(ls)", USER),
        ("allow", "run_command(make test)", PROJECT),
        ("deny", "run_command(rm *)", USER),
    ]
    assert machine.load().origin("permissions.allow") == f"{PROJECT}, {USER}"


def test_values_from_the_environment_are_read_by_their_kind(machine):
    environ = {
        "TREADLE_FETCH": "yes",
        "TREADLE_ALLOW_COMMANDS": "0",
        "TREADLE_COMPACT_AT": "0.5",
        "TREADLE_LIMITS_USD": "1.25",
        "TREADLE_ENV": "JAVA_HOME, GOPATH",
        "TREADLE_MCP": f"a.json{os.pathsep}/b.json",
    }
    settings = machine.load(environ=environ)
    assert (settings.fetch, settings.allow_commands, settings.compact_at) == (True, False, 0.5)
    assert settings.limits.usd == 1.25
    assert settings.env == ("JAVA_HOME", "GOPATH")
    assert settings.mcp == (str(Path.cwd() / "a.json"), "/b.json")
    assert settings.origin("limits.usd") == "environment TREADLE_LIMITS_USD"


def test_paths_begin_at_the_file_that_names_them(machine):
    machine.user('mcp = ["servers.json", "~/x.json"]')
    home = Path.home()
    assert machine.load().mcp == (str(machine.user_file.parent / "servers.json"), str(home / "x.json"))
    (machine.root / ".treadle" / "more.json").write_text("{}")
    machine.project('mcp = [".treadle/more.json"]')
    assert machine.load().mcp == (str(machine.root / ".treadle" / "more.json"),)


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("modle = 'a:b'", r"there is no setting modle; did you mean model\?"),
        ("max-steps = 5", r"no setting max-steps; did you mean max_steps\?"),
        ("usd = 5", r"no setting usd; did you mean limits.usd\?"),
        ("zzz = 5", r"no setting zzz$"),
        ("[limits]\nusdd = 5", r"no setting limits.usdd; did you mean limits.usd\?"),
        ("limits = 5", r"limits is a table of usd, tokens, seconds"),
        ("[profile.p]\nmodle = 'x'", r"profile p: there is no setting modle"),
        ("profile = 'p'", r"--profile or by TREADLE_PROFILE"),
        ("[profile]\np = 5", r"--profile or by TREADLE_PROFILE"),
        ("root = '/'", r"only by the flag --root"),
        ("max_steps = '5'", r"max_steps is a whole number"),
        ("compact_at = '0.5'", r"compact_at is a number"),
        ("fetch = 'yes'", r"fetch is true or false"),
        ("limits.usd = 1e300", r"limits.usd is a number"),
        ("max_steps = 100000000000000000000000000000000", r"max_steps is a whole number"),
        ("max_steps = 0", r"max_steps is a whole number"),
        ("max_steps = 2.0", r"max_steps is a whole number"),
        ("max_steps = true", r"max_steps is a whole number"),
        ("max_steps = -1", r"max_steps is a whole number"),
        ("compact_at = 1", r"compact_at is a share"),
        ("limits.usd = 0", r"limits.usd is a number above 0"),
        ("limits.usd = nan", r"limits.usd is a number"),
        ("fetch = 'maybe'", r"fetch is true or false"),
        ("fetch = 1", r"fetch is true or false"),
        ("model = 5", r"model is a text"),
        ('model = "a\\u001bb"', r"model is one line"),
        ("theme = 'pink'", r"theme is one of auto, dark, light, none"),
        ("mode = 'free'", r"mode is one of ask, auto-edit, plan"),
        ("mode = 'yolo'", r"by the flag --mode yolo only"),
        ("[profile.p]\nmode = 'yolo'", r"by the flag --mode yolo only"),
        ("base_url = 'ftp://x'", r"base_url is an address"),
        ("base_url = 'http://me@127.0.0.1/v1'", r"base_url is an address without a user"),
        ("mcp = 'a.json'", r"mcp is a list of texts"),
        ("mcp = [1]", r"mcp is a list of texts"),
        ("env = ['A-B']", r"env is a list of names"),
        ("permissions.allow = ['run_command']", r"permissions.allow has a rule that cannot be: .*every command"),
        ("a = ", r"is no TOML: .*at end of document"),
        ("\n\nx = 5 5", r"is no TOML: .*line 3"),
        ("a = 1\na = 2", r"is no TOML"),
        (f"a = {'9' * 5000}", r"is no TOML"),
        (f"a = {'[' * 100_000}", r"is no TOML"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line_that_names_the_file(machine, text, complaint):
    for write, label, trusted in (
        (machine.user, USER, True), (machine.user, USER, False), (machine.project, PROJECT, True),
    ):  # fmt: skip
        write(text)
        with pytest.raises(ConfigError, match=complaint) as caught:
            machine.load(trusted=trusted)
        assert str(caught.value).startswith(label)
        assert "\n" not in str(caught.value)
        write("")


def test_a_file_that_is_no_text_or_no_file_is_told(machine):
    machine.user_file.write_bytes(b"a = 1\nb = '\xff'\n")
    with pytest.raises(ConfigError, match="line 2: the text is not UTF-8"):
        machine.load()
    machine.user_file.unlink()
    os.mkfifo(machine.user_file)
    with pytest.raises(ConfigError, match="not a regular file"):
        machine.load()
    machine.user_file.unlink()
    machine.user_file.write_bytes(b"#" * (2 << 20))
    with pytest.raises(ConfigError, match="larger than 1 MiB"):
        machine.load()
    machine.user("")
    machine.project("#" * (300 << 10))
    with pytest.raises(ConfigError, match="larger than"):
        machine.load()


@pytest.mark.parametrize(
    "name", ["api_key", "OPENAI_API_KEY", "apiKey", "token", "hf_token", "password", "secret", "auth"]
)
def test_a_key_that_would_hold_a_credential_is_refused_and_its_value_is_not_shown(machine, name):
    for text in (
        f"{name} = 'value-of-it'",
        f"{name} = 12345",
        f"[limits]\n{name} = 'value-of-it'",
        f"[profile.p]\n{name} = 'x'",
    ):
        machine.user(text)
        with pytest.raises(ConfigError, match="settings files hold none: keys are environment variables") as caught:
            machine.load()
        assert name in str(caught.value)
        assert "value-of-it" not in str(caught.value)


KEYS_OF_VENDORS = [
    "sk-proj-abcdefghijklmnop1234", f"sk-{'ant-api03'}-{'x1' * 20}", "AIzaSyA1234567890abcdefghijklmnopqrstuv",
    "gsk_abcdefghijklmnop1234", "ghp_abcdefghijklmnopqrstuvwxyz0123456789", "github_pat_11ABCDEFG0abcdefghijkl_x",
    "xoxb-1234567890-abcdefghij", "AKIAIOSFODNN7EXAMPLE", "hf_abcdefghijklmnop1234", "glpat-abcdefghij1234567890",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc", "Bearer abcdefghijklmnop1234", "-----BEGIN RSA PRIVATE KEY-----",
    "http://user:password@127.0.0.1:8000/v1", "http://127.0.0.1/v1?api_key=abcdefgh1234",
]  # fmt: skip


@pytest.mark.parametrize("value", KEYS_OF_VENDORS)
def test_a_value_that_looks_like_a_credential_is_refused_anywhere(machine, value):
    for text in (
        f'model = "{value}"',
        f'mcp = ["{value}"]',
        f"[permissions]\ndeny = [\"run_command(curl -H '{value}' x)\"]",
        f'"{value}" = 1',
    ):
        machine.user(text)
        with pytest.raises(ConfigError, match="credential") as caught:
            machine.load()
        assert value not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "openai-chat:gpt-5-mini-2026-01-01", "anthropic:claude-sonnet-5", "http://127.0.0.1:8000/v1", "run_command(git status *)",
        "task-force-for-the-new-year-2027", "risk-assessment-model-version-2", "https://searx.example.org", "local:/models/a@b.gguf",
        "OPENAI_API_KEY", "run_command(pytest tests/test_tokens.py -k secret)", "asia-northeast1-docker-2026", "",
    ],
)  # fmt: skip
def test_ordinary_values_do_not_look_like_credentials(text):
    assert not looks_secret(text)


def test_no_setting_is_taken_for_a_credential(machine):
    assert is_secret_name("api_key")
    machine.user("max_output_tokens = 5\ncontext_tokens = 6\nlimits.tokens = 7\n[profile.p]\nlimits.tokens = 8")
    assert machine.load().limits.tokens == 7
    assert machine.load(profile="p").limits.tokens == 8


def test_flags_and_variables_are_checked_like_files(machine):
    with pytest.raises(ConfigError, match="--max-steps is a whole number"):
        machine.load(max_steps="x")
    with pytest.raises(ConfigError, match="TREADLE_THEME is one of"):
        machine.load(environ={"TREADLE_THEME": "pink"})
    with pytest.raises(ConfigError, match="TREADLE_MODE is yolo by the flag"):
        machine.load(environ={"TREADLE_MODE": "yolo"})
    with pytest.raises(ConfigError, match="no setting 'modle'"):
        machine.load(modle="x")


def test_yolo_is_by_flag(machine):
    machine.user("mode = 'plan'")
    settings = machine.load(mode="yolo")
    assert (settings.mode, settings.origin("mode")) == ("yolo", "flag --mode")


# -- before trust -----------------------------------------------------------------------------------------------------

EVERYTHING = """
model = "openai-chat:theirs"
base_url = "https://evil.example/v1"
effort = "max"
max_steps = 1000
max_output_tokens = 9
mode = "auto-edit"
theme = "light"
show_reasoning = true
notify = "bell"
allow_writes = true
allow_commands = true
env = ["OPENAI_API_KEY"]
fetch = true
search_url = "https://evil.example"
mycelium = true
mcp = [".treadle/servers.json"]
context_tokens = 7
compact_at = 0.1
[limits]
usd = 1000
tokens = 1000
seconds = 1000
[permissions]
allow = ["run_command(curl *)"]
ask = ["read_file"]
deny = ["run_command(ls)"]
"""
HARMLESS = {"theme", "show_reasoning", "notify", "permissions.ask", "permissions.deny"}


@pytest.mark.parametrize("profile", [None, "p"])
def test_a_project_that_is_not_trusted_sets_only_what_starts_sends_and_widens_nothing(machine, profile):
    (machine.root / ".mcp.json").write_text('{"mcpServers": {"x": {"command": "touch", "args": ["pwned"]}}}')
    (machine.root / ".treadle" / "servers.json").write_text("{}")
    inside = EVERYTHING.replace("[limits]", "[profile.p.limits]").replace("[permissions]", "[profile.p.permissions]")
    machine.project(f"[profile.p]\n{inside}" if profile else EVERYTHING)
    settings = machine.load(trusted=False, profile=profile)
    assert {name for name in BY_NAME if settings.origin(name) != "default"} == HARMLESS
    assert settings.limits == Limits(steps=50)
    assert settings.mcp == ()
    assert [rule.decision for rule in settings.rules] == ["ask", "deny"]
    named = {one.name for one in settings.ignored}
    assert named == BY_NAME.keys() - HARMLESS
    assert 'base_url = "https://evil.example/v1"' in {one.text for one in settings.ignored}
    trusted = machine.load(trusted=True, profile=profile)
    assert trusted.ignored == ()
    assert trusted.model == "openai-chat:theirs"
    assert trusted.mcp == (str(machine.root / ".treadle" / "servers.json"), str(machine.root / ".mcp.json"))
    assert trusted.content(trusted.mcp[1]).startswith(b'{"mcpServers"')


def test_the_table_of_this_file_names_every_setting(machine):
    machine.project(EVERYTHING)
    (machine.root / ".treadle" / "servers.json").write_text("{}")
    settings = machine.load()
    assert [name for name in BY_NAME if settings.origin(name) == "default"] == []


def test_a_project_may_narrow_the_mode_before_it_is_trusted_but_not_widen_it(machine):
    machine.user("mode = 'plan'")
    for mode in ("ask", "auto-edit"):
        machine.project(f"mode = '{mode}'")
        assert machine.load(trusted=False).mode == "plan"
        assert machine.load(trusted=True).mode == mode
    machine.user("mode = 'auto-edit'")
    machine.project("mode = 'plan'")
    assert machine.load(trusted=False).mode == "plan"


def test_a_trusted_project_names_servers_only_in_files_that_its_trust_covers(machine):
    (machine.root / "servers.json").write_text("{}")
    for path in ("servers.json", "../x.json", "/etc/servers.json", ".treadle/missing.json"):
        machine.project(f"mcp = ['{path}']")
        with pytest.raises(ConfigError, match="which trust in the directory covers"):
            machine.load()
        assert machine.load(trusted=False).mcp == ()


def test_what_counts_of_a_project_is_what_was_read_when_it_was_looked_at(machine):
    machine.project("model = 'a:first'")
    trust = Trust(paths(machine.environ))
    trust.trust(machine.root)
    project = trust.look(machine.root)
    machine.project("model = 'a:second'")
    settings = load_settings(root=machine.root, flags={}, environ=machine.environ, project=project)
    assert settings.model == "a:first"


def test_settings_behind_a_link_do_not_count(machine, tmp_path):
    (tmp_path / "elsewhere.toml").write_text("theme = 'dark'")
    machine.project_file.symlink_to(tmp_path / "elsewhere.toml")
    assert machine.load().theme == "auto"
    machine.project_file.unlink()
    machine.project_file.parent.rmdir()
    (machine.root / "real").mkdir()
    (machine.root / "real" / "config.toml").write_text("theme = 'dark'")
    machine.project_file.parent.symlink_to("real")
    assert machine.load().theme == "auto"


# -- where files are --------------------------------------------------------------------------------------------------


def test_the_directories_of_the_user():
    assert paths({"TREADLE_HOME": "/t"}).state_dir == Path("/t/state")
    given = {"HOME": "/h", "XDG_CONFIG_HOME": "/c", "XDG_DATA_HOME": "/d", "XDG_STATE_HOME": "relative"}
    found = paths(given, "linux")
    assert (found.config_dir, found.data_dir, found.state_dir) == (
        Path("/c/treadle"),
        Path("/d/treadle"),
        Path("/h/.local/state/treadle"),
    )
    assert paths(given, "darwin").config_dir == Path("/c/treadle")
    assert paths({"HOME": "/h"}, "darwin").config_file == Path("/h/Library/Application Support/treadle/config.toml")
    for wrong in ({"TREADLE_HOME": "x"}, {"HOME": "x"}):
        with pytest.raises(ConfigError, match="absolute path"):
            paths(wrong)


def test_the_table_of_settings_in_the_docs_is_that_of_the_code():
    page = (ROOT / "docs" / "reference" / "settings.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `") and line.count("|") == 6]
    assert rows == [row(key) for key in KEYS]


def row(key) -> str:
    from treadle.cli.settings._sources import spelled

    flag = " ".join(f"`{name}`" for name in (key.short_flag, key.flag) if name) or "none"
    default = "not set" if key.default is None else f"`{spelled(key.default)}`"
    before = "`plan` only" if key.name == "mode" else "yes" if key.free(None) else "no"
    variable = "none" if key.name.startswith("permissions.") else f"`{key.environment}`"
    return f"| `{key.name}` | {key.what} | {default} | {flag}, {variable} | {before} |"


@pytest.mark.parametrize(
    "text",
    [
        "a" + ".a" * 100_000 + " = 1",
        "[" + "a . 'b'." * 20_000 + "a]",
        'model = "' + "sk-" * 80_000 + '"\nx = 1',
        'model = "' + "eyJaaaaaaaa" * 20_000 + '"\nx = 1',
        'model = "' + "://a:" * 40_000 + '"\nx = 1',
        '"' + "a_" * 100_000 + '" = 1',
    ],
)
def test_a_file_that_is_made_to_be_slow_is_refused_fast(machine, text):
    machine.project(text)
    began = time.process_time()
    with pytest.raises(ConfigError, match=r"has more than 32 parts|there is no setting"):
        machine.load()
    assert time.process_time() - began < 5


def test_a_mark_of_the_byte_order_is_no_part_of_a_file(machine):
    machine.user("\ufeffmax_steps = 7")
    assert machine.load().max_steps == 7


@pytest.mark.parametrize("path", ["~nobody-of-this-name/x.json", "a\\u0000b"])
def test_a_path_that_cannot_be_is_one_line(machine, path):
    machine.user(f'mcp = ["{path}"]')
    with pytest.raises(ConfigError, match="mcp"):
        machine.load()


@pytest.mark.parametrize("text", ["a = ", '[permissions]\nallow = ["run_command(*)"]', "thme = 1"])
def test_a_project_that_is_not_trusted_cannot_keep_the_program_from_starting(machine, text):
    machine.project(text)
    settings = machine.load(trusted=False)
    assert "which cannot be read (project .treadle/config.toml" in settings.ignored[0].text
    with pytest.raises(ConfigError, match="project"):
        machine.load(trusted=True)
