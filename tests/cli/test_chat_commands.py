"""The commands of the client."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from support.client import Heard, make_client, make_parts
from support.provider import Provider
from support.provider import words as said_by
from treadle import Agent, Compaction, RunFinish, UserMessage, decode_messages, tool
from treadle.cli.chat.client import Client
from treadle.cli.chat.commands import COMMANDS, shadowed
from treadle.cli.chat.presence import Presence
from treadle.cli.exporting import as_markdown
from treadle.errors import StoreError
from treadle.messages import AssistantMessage, FilePart, TextPart, ToolCallPart, ToolMessage, ToolResultPart
from treadle.sessions import load
from treadle.testing import ScriptedModel, call

BOUND = 20.0


async def do(client: Client, *lines: str) -> None:
    """Enters lines, each once all before it has ended."""
    for line in lines:
        client.enter(line)
        async with asyncio.timeout(BOUND):
            await client.settled()


def said(face: Heard) -> str:
    return "\n".join(face.said)


def words(messages: Any) -> list[str]:
    return [part.text for message in messages if isinstance(message, UserMessage) for part in message.content]


async def test_help_lists_every_command_and_the_keys(tmp_path: Path) -> None:
    client, face = make_client(tmp_path, ScriptedModel())
    await do(client, "/help")
    assert all(f"/{command.name}" in said(face) for command in COMMANDS) and len(COMMANDS) >= 15
    assert "alt-s" in said(face)
    await client.close()


async def test_a_command_of_the_users_with_a_name_of_the_clients_is_told_of(tmp_path: Path) -> None:
    folder = tmp_path / "home" / "commands"
    folder.mkdir(parents=True)
    for name in ("help", "weave"):
        (folder / f"{name}.md").write_text("mine")
    client, face = make_client(tmp_path, ScriptedModel())
    assert shadowed(client.parts.context) == [f"{folder / 'help.md'}: left out, /help is a command of the client"]
    await do(client, "/help")
    assert "the commands and the keys" in said(face) and "/weave" in said(face)
    await client.close()


async def test_an_unknown_command_names_the_nearest(tmp_path: Path) -> None:
    client, face = make_client(tmp_path, ScriptedModel())
    await do(client, "/exprt x", "/zzzz")
    assert face.said[0] == "error: there is no /exprt; did you mean /export?; /help lists the commands"
    assert face.said[1] == "error: there is no /zzzz; /help lists the commands"
    await client.close()


async def test_the_model_is_changed_for_the_next_run_and_a_wrong_one_is_not(tmp_path: Path) -> None:
    face = Heard()
    client = Client(face, make_parts(tmp_path, model="offline:demo"), "first")
    await do(client, "/model", "/model nobody:x", "/model", "/effort high")
    assert "the model is offline:demo;" in face.said[0]
    assert face.said[1].startswith("error: ") and "the model is offline:demo;" in face.said[2]
    assert face.said[3].startswith("error: ")  # the stand-in thinks in no way
    await do(client, "/model openai-chat:some-model", "/effort high", "/effort", "/effort default")
    assert face.said[4:] == [
        "note: the model is openai-chat:some-model from the next message on",
        "note: the effort is high from the next message on",
        "note: the effort is high; /effort low, medium, high changes it, /effort default leaves it",
        "note: the effort is left to the model from the next message on",
    ]
    await client.close()


async def test_the_mode_goes_round_and_is_never_yolo(tmp_path: Path) -> None:
    client, face = make_client(tmp_path, ScriptedModel())
    assert [client.next_mode() for _ in range(3)] == ["auto-edit", "plan", "ask"]
    await do(client, "/mode plan", "/mode yolo", "/mode")
    assert face.said == [
        "note: the mode is plan",
        "error: a mode is ask, auto-edit, plan, and not 'yolo'",
        "note: the mode is plan; /mode ask, auto-edit, plan changes it, and so does shift-tab",
    ]
    await client.close()


async def test_clear_begins_a_new_session_and_resume_goes_back(tmp_path: Path) -> None:
    model = ScriptedModel("One.", "Two.", "Three.")
    client, face = make_client(tmp_path, model)
    await do(client, "first", "/clear", "second", "/sessions")
    assert words(model.requests[1].messages) == ["second"]
    assert "/resume first goes back" in said(face)
    assert "first  " in face.said[-1] and "* " in face.said[-1]
    await do(client, "/resume fir", "third")
    assert words(face.replayed) == ["first"]
    assert words(model.requests[2].messages) == ["first", "third"]
    await client.close()


async def test_resume_says_what_it_does_not_find(tmp_path: Path) -> None:
    client, face = make_client(tmp_path, ScriptedModel("One.", "Two."))
    await do(client, "/resume", "first", "/clear", "second", "/resume nothing")
    assert face.said[0] == "error: no session of this directory is stored yet"
    assert face.said[-1] == "error: no session begins with 'nothing'; /sessions lists them"
    await client.close()


async def test_undo_takes_the_last_message_back_and_the_log_keeps_it(tmp_path: Path) -> None:
    model = ScriptedModel("One.", "Two.", "Other.")
    client, face = make_client(tmp_path, model)
    await do(client, "first", "second", "/undo")
    assert face.given_back == ["second"]
    assert words(await load(client.parts.store, "first")) == ["first", "second"]
    await do(client, "other")
    assert words(model.requests[2].messages) == ["first", "other"]
    await do(client, "/undo", "/undo", "/undo")
    assert face.said[-1] == "error: there is nothing to take back"
    await client.close()


async def test_a_fork_goes_on_from_before_any_message(tmp_path: Path) -> None:
    model = ScriptedModel("One.", "Two.", "Three.")
    client, face = make_client(tmp_path, model)
    await do(client, "/fork", "/fork 1", "first", "second", "/fork", "/fork 7", "/fork 2")
    assert face.said[:2] == ["error: there is nothing to fork yet"] * 2
    assert "1  first\n" in said(face) and "2  second" in said(face)
    assert "error: /fork takes a number from 1 to 2; /fork alone lists them" in face.said
    assert face.given_back == ["second"] and client.conversation.session != "first"
    await do(client, "third")
    assert words(model.requests[2].messages) == ["first", "third"]
    await client.close()


async def test_a_fork_goes_on_from_before_what_steered_a_run(tmp_path: Path) -> None:
    @tool(effect="read")
    def look() -> str:
        """Looks."""
        client.steer("rather blue")
        return "a loom"

    model = ScriptedModel(call("look"), "Blue.", "Red.")
    client, face = make_client(tmp_path, model, tools=[look])
    await do(client, "weave", "/fork", "/fork 2")
    assert "1  weave\n" in said(face) and "2  rather blue" in said(face) and face.given_back == ["rather blue"]
    await do(client, "rather red")
    assert words(model.requests[2].messages) == ["weave", "rather red"]
    assert [type(message) for message in model.requests[2].messages].count(ToolMessage) == 1
    await client.close()


async def test_an_export_has_what_a_summary_stands_for(tmp_path: Path) -> None:
    client, _ = make_client(tmp_path, ScriptedModel("One.", "All about looms.", "Two."))
    await do(client, "first", "/compact", "second", "/export out.json")
    exported = json.loads((tmp_path / "root" / "out.json").read_text())["messages"]
    assert words(decode_messages(json.dumps(exported))) == ["first", "second"]
    await client.close()


async def test_compact_goes_on_from_a_summary(tmp_path: Path) -> None:
    model = ScriptedModel("One.", "All about looms.", "Two.")
    client, face = make_client(tmp_path, model)
    await do(client, "/compact", "first", "/compact the looms", "second")
    assert face.said[0] == "error: there is nothing to sum up yet"
    assert [event.summary for event in face.events if isinstance(event, Compaction)] == ["All about looms."]
    assert "the looms" in words(model.requests[1].messages)[-1]
    asked = words(model.requests[2].messages)
    assert "All about looms." in asked[0] and asked[-1] == "second" and "first" not in asked
    await client.close()


async def test_a_conversation_that_fills_the_context_is_summed_up_by_itself(tmp_path: Path) -> None:
    face = Heard()
    with contextlib.closing(Provider(said_by("One."), said_by("All about looms."), said_by("Two."))) as server:
        parts = make_parts(tmp_path, model="openai-chat:tiny", base_url=server.url, context_tokens=6_250)
        client = Client(face, parts, "first")
        await do(client, "weave " * 10_000, "dye " * 15_000)
        await client.close()
    assert [event.summary for event in face.events if isinstance(event, Compaction)] == ["All about looms."]
    assert "All about looms." in words(await load(parts.store, "first"))[0]
    assert words(await load(parts.store, "first", originals=True)) == ["weave " * 10_000, "dye " * 15_000]


async def test_what_changes_the_session_has_to_wait_for_a_run(tmp_path: Path) -> None:
    go = asyncio.Event()
    client, face = make_client(tmp_path, ScriptedModel([go, "One."]))
    client.enter("first")
    for line in ("/clear", "/undo", "!ls"):
        client.enter(line)
    assert [line for line in face.said if "has to wait" in line] == [
        "error: /clear has to wait: something goes on; ctrl-c ends it",
        "error: /undo has to wait: something goes on; ctrl-c ends it",
        "error: a command has to wait: something goes on; ctrl-c ends it",
    ]
    go.set()
    await do(client, "/cost")
    await client.close()


async def test_a_conversation_is_written_as_markdown_and_as_json(tmp_path: Path) -> None:
    client, face = make_client(tmp_path, ScriptedModel("One."))
    await do(client, "/export", "first", "/export", "/export out.json", "/export out.json")
    assert face.said[0] == "error: there is nothing to export yet"
    root = tmp_path / "root"
    assert (root / "treadle-first.md").read_text() == "# Session first\n\n## User\n\nfirst\n\n## Assistant\n\nOne.\n"
    data = json.loads((root / "out.json").read_text())
    assert data["session"] == "first"
    assert decode_messages(json.dumps(data["messages"])) == await load(client.parts.store, "first")
    assert face.said[-1] == f"error: {root / 'out.json'} is there already; name another file"
    await client.close()


def test_markdown_keeps_fences_apart() -> None:
    exported = as_markdown(
        "s",
        [
            UserMessage((FilePart("image/png", data=b"x", name="a.png"), TextPart("look"))),
            AssistantMessage((ToolCallPart("1", "read_file", '{"path":"a"}'),)),
            ToolMessage((ToolResultPart("1", "read_file", "````\nhello"),)),
        ],
    ).decode()
    assert "[image/png a.png]\n\nlook" in exported
    assert 'Call of `read_file`:\n\n```json\n{"path":"a"}\n```' in exported
    assert "Result of `read_file`:\n\n`````\n````\nhello\n`````" in exported


async def test_the_others_say_what_they_are_asked(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "AGENTS.md").write_text("Weave.")
    face = Heard()
    client = Client(face, make_parts(tmp_path, model="offline:demo", context_tokens=1000), "first")
    await do(client, "/tools", "/mcp", "/cost", "/context", "/permissions", "/permissions ls", "list files", "/context")
    text = said(face)
    assert "run_command (external)  Run a shell command" in text
    assert "no MCP servers" in text and "note: nothing" in text and "AGENTS.md" in text
    assert "the mode is ask\n  there are no rules" in text and "no rule covers it" in text
    assert "the next answer tells" in text and " of 1,000 (" in face.said[-1]
    await do(client, "/quit")
    assert client.leaving.is_set()
    await client.close()


async def test_commands_and_skills_of_the_user_put_their_text_into_the_conversation(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "commands").mkdir(parents=True)
    (home / "commands" / "review.md").write_text("Review $ARGUMENTS with care.")
    (home / "skills" / "weave").mkdir(parents=True)
    (home / "skills" / "weave" / "SKILL.md").write_text(
        "---\nname: weave\ndescription: How to weave\n---\nOver, under.\n"
    )
    model = ScriptedModel("One.", "Two.")
    client, face = make_client(tmp_path, model)
    await do(client, "/review a.py", "/skill:weave a scarf", "/help")
    assert words(model.requests[0].messages) == ["Review a.py with care."]
    assert "Over, under." in words(model.requests[1].messages)[-1] and words(model.requests[1].messages)[-1].endswith(
        "a scarf"
    )
    assert "user: [/review a.py]" in face.said and "user: [skill weave]\n\na scarf" in face.said
    assert "/skill:weave" in face.said[-1] and "/review" in face.said[-1]
    await client.close()


async def test_a_session_that_another_client_has_open_is_not_joined(tmp_path: Path) -> None:
    client, face = make_client(tmp_path, ScriptedModel("One."))
    await do(client, "first")
    other = Presence(tmp_path / "home" / "open")
    with pytest.raises(StoreError, match=r"session first is open in another client, process \d+"):
        other.move_to("first")
    await do(client, "/clear")
    other.move_to("first")
    await do(client, "/resume first")
    assert face.said[-1].startswith("error: session first is open in another client")
    assert client.conversation.session != "first"
    other.leave()
    await do(client, "/resume first")
    assert client.conversation.session == "first"
    await client.close()


async def test_a_server_that_does_not_start_is_told_and_left_out(tmp_path: Path) -> None:
    (tmp_path / "servers.json").write_text('{"mcpServers": {"looms": {"command": "/nowhere/loom-server"}}}')
    face = Heard()
    parts = make_parts(tmp_path, model="offline:demo", mcp=[str(tmp_path / "servers.json")])
    client = Client(face, parts, "first")
    await do(client, "list the files", "/mcp")
    assert face.said[1] == "note: starting 1 MCP server ..."
    assert face.said[2].startswith("note: ") and "looms" in face.said[2]
    assert "  left out: " in face.said[-1] and "looms" in face.said[-1] and isinstance(face.events[-1], RunFinish)
    await client.close()


async def test_without_the_extra_servers_are_left_out_and_the_chat_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    text = '{"mcpServers": {"looms": {"command": "looms"}, "threads": {"command": "threads"}}}'
    (tmp_path / "servers.json").write_text(text)
    face = Heard()
    client = Client(face, make_parts(tmp_path, model="offline:demo", mcp=[str(tmp_path / "servers.json")]), "first")
    await do(client, "list the files", "/mcp")
    assert len([line for line in face.said if line.startswith("note: ") and 'pip install "treadle[mcp]"' in line]) == 1
    assert "left out: " in face.said[-1] and isinstance(face.events[-1], RunFinish)
    await client.close()


async def test_tools_that_the_settings_forbid_are_not_offered(tmp_path: Path) -> None:
    face = Heard()
    parts = make_parts(tmp_path, model="offline:demo", allow_writes=False, allow_commands=False)
    client = Client(face, parts, "first")
    await do(client, "/tools", "!echo mine")
    assert "read_file" in face.said[0] and "write_file" not in face.said[0] and "run_command" not in face.said[0]
    assert "mine" in face.said[-1]
    await client.close()


async def test_the_context_of_a_known_model_is_looked_up(tmp_path: Path) -> None:
    parts = make_parts(tmp_path, model="anthropic:claude-sonnet-4-5")
    agent = await parts.agents.agent()
    assert parts.agents.window == 200_000
    assert [wrap.at_tokens for wrap in agent.wrap_model] == [160_000]


async def test_an_agent_of_ones_own_keeps_its_model_tools_and_hooks(tmp_path: Path) -> None:
    seen: list[str] = []
    own = Agent(
        ScriptedModel(call("look"), "Done."),
        tools=[tool(effect="read")(look)],
        hooks={"before_tool": [lambda request: seen.append(request.name)]},
        instructions="Look.",
    )
    face = Heard()
    client = Client(face, make_parts(tmp_path, own), "first")
    await do(client, "go", "/model")
    assert seen == ["look"] and isinstance(face.events[-1], RunFinish)
    assert own.model.requests[0].instructions == "Look." and own.taps == ()
    assert "scripted:scripted" in face.said[-1]
    await client.close()


def look() -> str:
    """Look."""
    return "seen"


async def test_without_a_model_one_is_chosen_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.endswith("_API_KEY")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TREADLE_MODEL_REQUESTS", "deny")  # nor is a server of this machine looked for
    monkeypatch.delenv("TREADLE_MODEL", raising=False)
    face = Heard()
    client = Client(face, make_parts(tmp_path), "first")
    assert client.parts.agents.model == ""
    await asyncio.gather(client.choose_model(), client.parts.agents.agent())
    assert client.parts.agents.model == "offline:demo"
    assert len(face.said) == 1 and "no model configured" in face.said[0]
    await client.close()
