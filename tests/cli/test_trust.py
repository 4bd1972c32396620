"""Trust in a directory: what it is bound to, what takes it back, and what cannot fool it."""

import json
import os
import shutil
import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from treadle import ConfigError
from treadle.cli.mcp import load_servers
from treadle.cli.settings import Trust, load_settings, paths, read_project
from treadle.cli.settings._project import KEPT_BYTES, MAX_FILES

FILES = {
    ".treadle/config.toml": "model = 'a:b'",
    ".treadle/commands/review.md": "Review $ARGUMENTS.",
    ".treadle/skills/deploy/SKILL.md": "deploy",
    ".mcp.json": '{"mcpServers": {}}',
    ".agents/skills/test/SKILL.md": "test",
    ".agents/skills/test/scripts/run.sh": "echo",
    ".claude/skills/write/SKILL.md": "write",
}


@pytest.fixture
def where(tmp_path):
    return paths({"TREADLE_HOME": str(tmp_path / "home")})


@pytest.fixture
def trust(where):
    return Trust(where)


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "project"
    write(root, FILES)
    write(
        root, {"AGENTS.md": "text", "README.md": "text", "src/.treadle/config.toml": "x", ".claude/settings.json": "{}"}
    )
    return root


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def test_what_needs_trust_is_settings_servers_skills_and_commands_and_no_text_that_only_instructs(root):
    assert list(read_project(root).files) == sorted(FILES)


def test_a_directory_is_unknown_until_it_is_trusted_and_again_once_it_is_forgotten(trust, root):
    assert trust.status(root).state == "unknown"
    assert not trust.look(root).trusted
    trust.trust(root)
    assert trust.status(root) == ("trusted", ())
    assert trust.look(root).trusted
    assert trust.directories() == [str(root)]
    assert trust.forget(root)
    assert not trust.forget(root)
    assert trust.status(root).state == "unknown"


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("how", ["changed", "removed", "added", "linked"])
def test_any_change_of_a_file_asks_again_and_says_which(trust, root, name, how):
    trust.trust(root)
    path = root / name
    match how:
        case "changed":
            path.write_text(path.read_text() + " ")
        case "removed":
            path.unlink()
        case "added":
            name = f"{path.parent.relative_to(root)}/new.md" if path.parent != root else ".treadle/new.md"
            (root / name).write_text("")
        case "linked":
            copy = root / "copy"
            shutil.copy(path, copy)
            path.unlink()
            path.symlink_to(copy)
    status = trust.status(root)
    how = "changed" if how == "linked" else how
    assert status == ("changed", (f"{how}: {name}",))
    project = trust.look(root)
    assert not project.trusted
    assert project.changes == status.changes
    trust.trust(project)
    assert trust.status(root).state == "trusted"


def test_a_change_elsewhere_does_not_ask_again(trust, root):
    trust.trust(root)
    write(root, {"AGENTS.md": "other", "CLAUDE.md": "new", "src/main.py": "new", ".treadle.md": "new"})
    os.utime(root / ".mcp.json", (0, 0))
    assert trust.status(root).state == "trusted"


@given(
    st.dictionaries(st.sampled_from(["a", "b", "ab", "a/b", "b/a"]), st.sampled_from(["", "a", "b", "ab"]), max_size=3)
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_only_equal_files_have_equal_digests(tmp_path, files):
    folders = [Path(os.path.realpath(tmp_path)) / "one", tmp_path / "other"]
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
    try:
        for folder in folders:
            write(folder / ".treadle", files)
    except OSError:
        return  # a file where a directory has to be
    one, other = (read_project(folder) for folder in folders)
    assert one.digests == other.digests
    write(folders[1] / ".treadle", {"c": ""})
    assert read_project(folders[1]).digests != one.digests


def test_trust_goes_neither_along_with_a_moved_directory_nor_over_to_one_in_its_place(trust, root, tmp_path):
    trust.trust(root)
    moved = tmp_path / "moved"
    root.rename(moved)
    assert trust.status(moved).state == "unknown"
    write(root, {".treadle/config.toml": "model = 'evil:x'"})
    assert trust.status(root).state == "changed"
    (tmp_path / "link").symlink_to(moved)
    trust.trust(tmp_path / "link")
    assert trust.status(moved).state == "trusted"
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to(root)
    assert trust.status(tmp_path / "link").state == "changed"


def test_links_are_seen_but_not_followed(trust, root, tmp_path):
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "SKILL.md").write_text("outside")
    shutil.rmtree(root / ".claude")
    (root / ".claude").symlink_to(secret)
    (root / ".treadle" / "skills" / "out").symlink_to(secret)
    (root / ".treadle" / "loop").symlink_to(".")
    project = trust.trust(root)
    links = {path for path, file in project.files.items() if file.is_link}
    assert links == {".claude", ".treadle/skills/out", ".treadle/loop"}
    for name in (
        ".treadle/skills/out/SKILL.md",
        ".claude/SKILL.md",
        ".treadle/skills/out",
        ".treadle/loop/config.toml",
    ):
        with pytest.raises(FileNotFoundError):
            project.read(name)
    (secret / "SKILL.md").write_text("changed")
    assert trust.status(root).state == "trusted"  # nothing of it is used
    (root / ".treadle" / "skills" / "out").unlink()
    (root / ".treadle" / "skills" / "out").symlink_to(tmp_path)
    assert trust.status(root).changes == ("changed: .treadle/skills/out",)


def test_what_is_trusted_is_what_was_shown_whatever_is_there_by_then(trust, root):
    project = trust.look(root)
    (root / ".mcp.json").write_text('{"mcpServers": {"evil": {"command": "x"}}}')
    trust.trust(project)
    assert project.trusted
    assert trust.status(root) == ("changed", ("changed: .mcp.json",))
    assert project.read(".mcp.json") == FILES[".mcp.json"].encode()
    assert project.content(str(root / ".mcp.json")) == FILES[".mcp.json"].encode()
    assert project.content("/etc/passwd") is None
    assert project.content(str(root / "README.md")) is None


def test_skills_and_commands_are_read_from_what_was_looked_at(root):
    project = read_project(root)
    shutil.rmtree(root / ".treadle")
    assert project.names(".treadle/skills") == ["deploy"]
    assert project.names(".treadle/skills/") == ["deploy"]
    assert project.read(".treadle/skills/deploy/SKILL.md", 3) == b"dep"
    assert project.read("./.treadle/commands/../commands/review.md") == b"Review $ARGUMENTS."
    for name in ("src", ".treadle/none", "", ".treadle/config.toml/x"):
        with pytest.raises(FileNotFoundError):
            project.names(name)
        with pytest.raises(FileNotFoundError):
            project.read(f"{name}/x")


def test_of_a_large_file_all_is_hashed_and_the_beginning_is_kept(trust, root):
    large = root / ".treadle" / "skills" / "data.bin"
    large.write_bytes(b"a" * (KEPT_BYTES + 10))
    project = trust.trust(root)
    assert len(project.read(".treadle/skills/data.bin")) == KEPT_BYTES
    large.write_bytes(b"a" * (KEPT_BYTES + 9) + b"b")
    assert trust.status(root).changes == ("changed: .treadle/skills/data.bin",)


def test_what_is_no_file_is_not_waited_for_and_what_cannot_be_read_is_not_used(trust, root):
    os.mkfifo(root / ".treadle" / "pipe")
    os.mkfifo(root / ".treadle" / "skills" / "pipe")
    trust.trust(root)
    assert trust.status(root).state == "trusted"
    assert ".treadle/pipe" not in read_project(root).files


def test_a_directory_with_too_much_in_it_cannot_be_trusted(trust, root):
    trust.trust(root)
    many = root / ".treadle" / "many"
    many.mkdir()
    for index in range(MAX_FILES + 1):
        (many / str(index)).touch()
    project = trust.look(root)
    assert not project.trusted
    assert "more than 2,000 files" in project.problem
    assert project.files == {}
    environ = {"TREADLE_HOME": str(root.parent / "home")}
    (told,) = load_settings(root=root, flags={}, environ=environ, project=project).ignored
    assert "more than 2,000 files" in told.text
    with pytest.raises(ConfigError, match="cannot be trusted: there are more than"):
        trust.trust(project)
    shutil.rmtree(many)
    deep = root / ".treadle" / "/".join("d" * 20)
    deep.mkdir(parents=True)
    (deep / "x").touch()
    assert "deep" in trust.look(root).problem
    assert trust.status(root).state == "unknown"


def test_a_file_that_is_not_utf8_by_name_is_trusted_like_any_other(trust, root):
    try:
        (root / ".treadle" / os.fsdecode(b"\xff.md")).write_text("x")
    except OSError:
        pytest.skip("this file system has no such names")
    trust.trust(root)
    assert trust.status(root).state == "trusted"


def test_the_file_of_trust_is_for_the_user_alone_and_keeps_other_directories(trust, where, root, tmp_path):
    write(tmp_path / "other", {".mcp.json": "{}"})
    trust.trust(tmp_path / "other")
    trust.trust(root)
    assert stat.S_IMODE(where.trust_file.stat().st_mode) == 0o600
    assert stat.S_IMODE(where.state_dir.stat().st_mode) == 0o700
    assert trust.directories() == sorted([str(root), str(tmp_path / "other")])
    assert "a:b" not in where.trust_file.read_text()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"version": 2, "directories": {}}',
        '{"version": 1, "directories": []}',
        "\xff",
        "[" * 50_000,
    ],
)
def test_a_damaged_file_of_trust_trusts_nothing_and_is_replaced(trust, where, root, text):
    trust.trust(root)
    where.trust_file.write_bytes(text.encode("latin-1"))
    assert trust.status(root).state == "unknown"
    trust.trust(root)
    assert trust.status(root).state == "trusted"


def test_entries_of_another_shape_trust_nothing(trust, where, root):
    trust.trust(root)
    found = json.loads(where.trust_file.read_text())
    for entry in (None, 5, {}, {"files": []}, {"files": {}}):
        found["directories"][str(root)] = entry
        where.trust_file.write_text(json.dumps(found))
        assert trust.status(root).state != "trusted"


def test_a_file_of_trust_that_others_may_write_or_that_is_a_link_is_not_believed(trust, where, root, tmp_path):
    trust.trust(root)
    for mode in (0o620, 0o602):
        where.trust_file.chmod(mode)
        assert trust.status(root).state == "unknown"
    where.trust_file.chmod(0o600)
    assert trust.status(root).state == "trusted"
    where.trust_file.rename(tmp_path / "moved.json")
    where.trust_file.symlink_to(tmp_path / "moved.json")
    assert trust.status(root).state == "unknown"


def test_trust_that_cannot_be_remembered_is_told(tmp_path, root):
    (tmp_path / "file").write_text("")
    trust = Trust(paths({"TREADLE_HOME": str(tmp_path / "file")}))
    with pytest.raises(ConfigError, match="cannot be written"):
        trust.trust(root)


def test_a_directory_that_is_not_there_is_told(trust, tmp_path):
    with pytest.raises(ConfigError, match="cannot be the root"):
        trust.look(tmp_path / "missing")


def test_a_directory_without_such_files_has_nothing_to_trust(trust, tmp_path):
    (tmp_path / "plain").mkdir()
    project = trust.look(tmp_path / "plain")
    assert (project.files, project.problem, project.trusted) == ({}, "", False)


def test_the_servers_of_a_project_are_those_that_were_looked_at(trust, root):
    (root / ".mcp.json").write_text('{"mcpServers": {"shown": {"command": "true"}}}')
    trust.trust(root)
    project = trust.look(root)
    (root / ".mcp.json").write_text('{"mcpServers": {"swapped": {"command": "true"}}}')
    environ = {"TREADLE_HOME": str(root.parent / "home")}
    settings = load_settings(root=root, flags={}, environ=environ, project=project)
    assert [server.name for server in load_servers(settings.mcp, settings.content)] == ["shown"]
