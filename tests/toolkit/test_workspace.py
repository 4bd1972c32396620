"""A workspace as a whole: which tools there are, what they say of themselves, and that none of them leads out."""

from __future__ import annotations

import difflib
import os
import socket
from pathlib import Path

import pytest

from support.desk import Desk, snapshot
from support.traps import WAYS_OUT, lay_traps
from treadle import Agent, ConfigError, ToolError, Toolset
from treadle.testing import ScriptedModel, call
from treadle.toolkit import Workspace

NAMES = ["read_file", "list_directory", "find_files", "search_content", "write_file", "edit_file"]
PARAMETERS = {
    "read_file": ["path", "start_line", "end_line"],
    "list_directory": ["path"],
    "find_files": ["pattern", "path"],
    "search_content": ["pattern", "path", "literal", "glob", "context_lines"],
    "write_file": ["path", "content"],
    "edit_file": ["path", "edits"],
    "run_command": ["command", "timeout_seconds"],
}


async def test_a_workspace_is_a_toolset_and_runs_commands_only_where_that_is_allowed(folder: Path):
    assert isinstance(Workspace(folder), Toolset)
    assert [tool.name for tool in await Workspace(folder).tools()] == NAMES
    assert [tool.name for tool in await Workspace(folder, allow_commands=True).tools()] == [*NAMES, "run_command"]
    assert [tool.name for tool in Workspace(folder, allow_commands=True).read_only()] == NAMES[:4]


def test_a_workspace_in_the_wrong_place_is_refused_with_the_right_one(folder: Path):
    workspace, model = Workspace(folder), ScriptedModel("done")
    with pytest.raises(ConfigError, match=r"toolsets=\[\.\.\.\] for a toolset"):
        Agent(model, tools=workspace)
    with pytest.raises(ConfigError, match="toolsets is a list"):
        Agent(model, toolsets=workspace)
    with pytest.raises(ConfigError, match=r"put a \* in front of it"):
        Agent(model, tools=[workspace.read_only()])


async def test_every_tool_declares_what_it_does_to_the_world(desk: Desk):
    effects = {name: str(tool.effect) for name, tool in desk.tools.items()}
    assert effects == {
        **dict.fromkeys(NAMES[:4], "read"),
        "write_file": "write",
        "edit_file": "write",
        "run_command": "external",
    }
    assert [name for name, tool in desk.tools.items() if tool.idempotent] == NAMES[:5]
    assert [name for name, tool in desk.tools.items() if tool.sequential] == ["write_file", "edit_file", "run_command"]


def test_the_parameters_are_these_and_every_one_is_described(desk: Desk):
    for name, tool in desk.tools.items():
        properties = tool.input_schema["properties"]
        assert list(properties) == PARAMETERS[name]
        assert all(text.get("description") for text in properties.values()), name
        assert tool.description
    edit = desk.tools["edit_file"].input_schema
    [item] = edit["$defs"].values()
    assert sorted(item["properties"]) == ["new_text", "old_text"]


def test_no_tool_takes_anything_that_could_widen_where_it_works(desk: Desk):
    forbidden = {"root", "cwd", "dir", "directory", "workdir", "working_directory", "base", "chroot", "env", "shell"}

    def names(schema: object) -> set[str]:
        if isinstance(schema, dict):
            own = set(schema.get("properties", ()))
            return own.union(*(names(value) for value in schema.values()))
        return set().union(*(names(value) for value in schema)) if isinstance(schema, list) else set()

    for tool in desk.tools.values():
        found = names(tool.input_schema)
        assert not {name for name in found if name.lower() in forbidden}, tool.name
        assert tool.input_schema["additionalProperties"] is False


async def test_what_is_written_first_is_there_for_the_command_behind_it(folder: Path):
    model = ScriptedModel(
        [
            call("write_file", path="made.txt", content="made"),
            call("run_command", command="cat made.txt"),
            call("edit_file", path="made.txt", edits=[{"old_text": "made", "new_text": "changed"}]),
            call("read_file", path="made.txt"),
        ],
        "done",
    )
    result = await Agent(model, toolsets=[Workspace(folder, allow_commands=True)]).run("go")
    written, ran, edited, read = result.steps[0].results
    assert written.content == "Made made.txt: 4 bytes."
    assert ran.content.startswith("made\n[exit code 0")
    assert edited.content == "Edited made.txt at line 1."
    assert read.content == "changed"


async def test_a_workspace_serves_runs_at_the_same_time_and_one_after_the_other(folder: Path):
    workspace = Workspace(folder)
    for _ in range(2):
        model = ScriptedModel(call("list_directory"), "done")
        result = await Agent(model, toolsets=[workspace]).run("go")
        assert "README.md" in result.steps[0].results[0].content


@pytest.mark.parametrize(
    "options",
    [
        {"search_seconds": 0}, {"search_seconds": float("inf")}, {"search_seconds": "5"}, {"environment": {"A": 1}},
        {"environment": {"A": "\0"}}, {"environment": {"A=B": ""}}, {"environment": {"": "x"}}, {"environment": ["A"]},
    ],
)  # fmt: skip
def test_settings_that_cannot_be_are_refused(folder: Path, options):
    with pytest.raises(ConfigError):
        Workspace(folder, **options)


# A person decides


async def test_a_preview_shows_what_a_call_would_change_and_changes_nothing(folder: Path, desk: Desk):
    before = snapshot(folder)
    show = desk.workspace.preview
    assert show("write_file", {"path": "new.txt", "content": "one\ntwo\n"}) == (
        "--- /dev/null\n+++ new.txt\n@@ -0,0 +1,2 @@\n+one\n+two"
    )
    edits = [{"old_text": "Text.", "new_text": "Words."}]
    assert show("write_file", {"path": "new.txt", "content": "one"}).endswith("\n+one\n\\ No newline at end of file")
    assert "-Text.\n+Words." in show("edit_file", {"path": "README.md", "edits": edits})
    assert show("run_command", {"command": "make test"}) == "$ make test"
    assert show("read_file", {"path": "README.md"}) == ""
    with pytest.raises(ToolError, match="not found"):
        show("edit_file", {"path": "README.md", "edits": [{"old_text": "nothing", "new_text": ""}]})
    assert snapshot(folder) == before


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("write_file", {}),
        ("write_file", {"path": "x", "content": 1}),
        ("edit_file", {"path": "README.md", "edits": [{"old": "x"}]}),
        ("edit_file", {"path": "README.md", "edits": "x"}),
        ("run_command", {"command": ["ls"]}),
    ],
)
def test_a_preview_of_a_call_that_cannot_be_says_so(desk: Desk, name, arguments):
    with pytest.raises(ToolError, match="cannot be called like this"):
        desk.workspace.preview(name, arguments)


def test_a_preview_hides_nothing_behind_control_characters(desk: Desk):
    shown = desk.workspace.preview("run_command", {"command": "rm -rf x \x1b[2K\r\u202eecho hi\x9b \u3164"})
    assert shown == "$ rm -rf x \\x1b[2K\\r\\u202eecho hi\\x9b \\u3164"


def test_a_preview_names_a_file_in_one_line(desk: Desk):
    shown = desk.workspace.preview("write_file", {"path": "a\n+++ b", "content": "x"})
    assert shown.splitlines()[:2] == ["--- /dev/null", "+++ 'a\\n+++ b'"]


@pytest.mark.parametrize("line", [1, 3, 500, 999, 1000])
def test_a_preview_of_a_long_file_is_the_diff_of_the_whole(folder: Path, desk: Desk, line):
    old = [f"line {number}" for number in range(1, 1001)]
    new = [*old[: line - 1], "other", "more", *old[line:]]
    (folder / "long.txt").write_text("\n".join(old) + "\n")
    expected = "\n".join(difflib.unified_diff(old, new, "long.txt", "long.txt", lineterm=""))
    assert desk.workspace.preview("write_file", {"path": "long.txt", "content": "\n".join(new) + "\n"}) == expected


def test_a_preview_that_would_take_minutes_is_short_as_well(folder: Path, desk: Desk):
    (folder / "many.txt").write_text("".join(f"{number}\n{-number}\n" for number in range(40_000)))
    content = "".join(f"{number}\n-{-number}\n" for number in range(1, 40_000))
    assert "characters become" in desk.workspace.preview("write_file", {"path": "many.txt", "content": content})


def test_a_preview_of_something_huge_is_short(desk: Desk):
    shown = desk.workspace.preview("write_file", {"path": "big", "content": "x" * 2_000_000})
    assert shown == "big: 0 characters become 2000000"


# Ways out, through every tool

CALLS = {
    "read_file": lambda way: {"path": way},
    "list_directory": lambda way: {"path": way},
    "find_files": lambda way: {"pattern": "*", "path": way},
    "search_content": lambda way: {"pattern": "house|root", "path": way},
    "write_file": lambda way: {"path": way, "content": "broken out"},
    "edit_file": lambda way: {"path": way, "edits": [{"old_text": "key", "new_text": "broken out"}]},
}


@pytest.mark.parametrize("name", CALLS)
async def test_no_way_leads_out_of_any_tool(folder: Path, desk: Desk, name):
    lay_traps(folder)
    before = snapshot(folder.parent)
    for way in WAYS_OUT:
        if way == "\ud800":
            continue  # is mended before a tool sees it
        way = way.format(folder=folder) if way.startswith("{") else way  # noqa: PLW2901 - the same, filled in
        told = await desk.refusal(name, **CALLS[name](way))
        assert "root:" not in told and len(told) < 600, way
        if name in ("list_directory", "write_file"):
            await desk.refusal(name, **CALLS[name](f"{way}/new"))
    assert snapshot(folder.parent) == before


@pytest.mark.parametrize("name", ["write_file", "edit_file"])
async def test_no_tool_writes_to_what_is_protected(folder: Path, desk: Desk, name):
    (folder / ".git" / "hooks").mkdir(parents=True)
    (folder / ".git" / "config").write_text("key")
    (folder / ".mcp.json").write_text("key")
    (folder / "in").symlink_to(".git")
    before = snapshot(folder)
    for path in (".git/config", ".GIT/config", "in/config", "src/../.git/config", ".mcp.json", ".MCP.json"):
        assert "protected" in await desk.refusal(name, **CALLS[name](path)) or not (folder / path).exists()
    assert snapshot(folder) == before


async def test_every_tool_answers_at_once_for_what_is_no_file(folder: Path, desk: Desk):
    os.mkfifo(folder / "pipe")
    (folder / "empty.txt").touch()
    with socket.socket(socket.AF_UNIX) as listener:
        here = Path.cwd()
        os.chdir(folder)  # the path of a socket is short
        try:
            listener.bind("socket")
        finally:
            os.chdir(here)
        for path, what in (("pipe", "pipe"), ("socket", "socket"), ("src", "directory")):
            for name in ("read_file", "write_file", "edit_file"):
                assert what in await desk.refusal(name, **CALLS[name](path))
        assert await desk("search_content", pattern="hi") == "src/main.py\n1: print('hi')"
        assert "not found" in await desk.refusal("edit_file", **CALLS["edit_file"]("empty.txt"))
        assert await desk("search_content", pattern="x", path="empty.txt") == "No line matches."


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no devices here")
async def test_a_device_is_refused_by_every_tool(tmp_path: Path, backend):
    desk = Desk(Path("/dev"), backend)
    for name in ("read_file", "write_file", "edit_file"):
        assert "is a device" in await desk.refusal(name, **CALLS[name]("zero"))
    assert "is a device" in await desk.refusal("search_content", pattern="x", path="zero")
