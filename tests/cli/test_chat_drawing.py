"""How the client is put together, and what it draws with."""

from __future__ import annotations

import asyncio
import io
import itertools
from pathlib import Path
from typing import Any

import pytest
from prompt_toolkit.data_structures import Size

from support.client import Heard, make_parts
from treadle import Agent
from treadle.cli.chat.building import build
from treadle.cli.chat.client import Client
from treadle.cli.chat.inline import SteadyOutput, quiet_seconds, shows_notices
from treadle.cli.chat.layout import fragments
from treadle.cli.chat.screen import LONG_SECONDS, Screen
from treadle.cli.chat.view import View
from treadle.cli.settings import Trust, load_settings, paths
from treadle.cli.stored import session_store
from treadle.errors import ConfigError
from treadle.events import ModelFinish, ReasoningDelta, RunFinish, RunStart, TextDelta
from treadle.messages import AssistantMessage, ModelRef, TextPart
from treadle.testing import ScriptedModel
from treadle.usage import StopReason, Usage


class Gone(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(5, "Input/output error")


def output(into: io.StringIO) -> SteadyOutput:
    return SteadyOutput(into, lambda: Size(24, 80), term="xterm", enable_cpr=False)


def test_what_belongs_together_is_written_at_once() -> None:
    written = io.StringIO()
    out = output(written)
    out.hold()
    for text in ("one", "two"):
        out.write_raw(text)
        out.flush()
    assert written.getvalue() == ""
    out.release()
    out.release()
    assert written.getvalue() == "\x1b[?2026honetwo\x1b[?2026l"


def test_a_terminal_that_is_gone_is_told_once_and_takes_nothing_more() -> None:
    told: list[str] = []
    out = output(Gone())
    out.on_gone = lambda: told.append("gone")
    for _ in range(3):
        out.write_raw("text")
        out.flush()
    assert told == ["gone"]


def test_lines_keep_their_colours_as_fragments() -> None:
    assert fragments("plain") == [("", "plain")]
    made = fragments("a \x1b[1;31mred\x1b[0m end")
    assert [text for _, text, *_ in made] == ["a ", "red", " end"]
    assert "ansired" in made[1][0] and "bold" in made[1][0] and made[0][0] == made[2][0]


def test_terminals_with_notices_are_known() -> None:
    assert shows_notices({"TERM_PROGRAM": "WezTerm"})
    assert not shows_notices({"TERM_PROGRAM": "WezTerm", "TMUX": "x"}) and not shows_notices({})
    assert quiet_seconds({"TMUX": "x"}) > 0.25 and quiet_seconds({}) == 0


class Sheet:
    """Paper that remembers."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.rung: list[str] = []

    def print_above(self, lines: Any) -> None:
        self.lines += lines

    def redraw(self) -> None: ...

    def size(self) -> tuple[int, int]:
        return 80, 24

    def ring(self, why: str) -> None:
        self.rung.append(why)


class Fed(View):
    """A view that counts what it is fed with."""

    def __init__(self) -> None:
        super().__init__("none", show_reasoning=True)
        self.fed: list[str] = []

    def feed(self, event: Any, now: float, width: int) -> list[str]:
        self.fed.append(f"{type(event).__name__} {getattr(event, 'text', '')}".strip())
        return super().feed(event, now, width)


async def test_text_reaches_the_view_once_a_tick_and_in_its_order() -> None:
    now, sheet, view = 0.0, Sheet(), Fed()
    screen = Screen(view, sheet, busy=lambda: True, give_back=print, changed=lambda: None, clock=lambda: now)
    screen.event(RunStart(None, ModelRef("a", "b"), ()))
    for text in ("Hmm", "."):
        screen.event(ReasoningDelta(text))
    for text in ("One ", "two ", "three."):
        screen.event(TextDelta(text))
    assert view.fed == ["RunStart"]
    screen.note("by the way")
    assert view.fed[2:] == ["TextDelta One two three."]
    screen.event(TextDelta("And four."))
    now = LONG_SECONDS + 1
    screen.event(RunFinish(Usage(), 1, StopReason.END))
    assert view.fed[3:] == ["TextDelta And four.", "RunFinish"] and sheet.rung == ["the answer is there"]
    screen.close()
    shown = "\n".join(sheet.lines)
    assert shown.index("by the way") < shown.index("And four.")


@pytest.mark.parametrize("whole", [False, True])
async def test_text_that_comes_faster_than_it_can_be_shown_waits_and_keys_do_not(whole: bool) -> None:
    ticks, sheet = itertools.count(), Sheet()
    screen = Screen(
        View("none"), sheet, busy=lambda: True, give_back=print, changed=lambda: None, clock=lambda: next(ticks) / 50
    )
    seen: list[int] = []

    async def keys() -> None:
        while True:
            seen.append(len(sheet.lines))
            await asyncio.sleep(0)

    looking = asyncio.create_task(keys())
    screen.event(RunStart(None, ModelRef("a", "b"), ()))
    text = "".join(f"{number}\n\n" for number in range(5000))
    if not whole:
        screen.event(TextDelta(text))
    model = ModelRef("a", "b")
    screen.event(ModelFinish(AssistantMessage((TextPart(text),)), Usage(), StopReason.END, model))
    screen.note("the end")
    await screen.room()
    looking.cancel()
    assert len(set(seen)) > 5
    screen.event(RunFinish(Usage(), 1, StopReason.END))
    screen.close()
    assert [line for line in sheet.lines if line] == [*map(str, range(5000)), "the end"]


@pytest.fixture
def made(tmp_path: Path) -> Any:
    """Builds a client as the command line does, for the sessions that are wanted."""
    root, environ = tmp_path / "root", {"TREADLE_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)}
    root.mkdir()

    async def make(wanted: str | None) -> Any:
        project = Trust(paths(environ)).look(root)
        flags = {"model": "offline:demo"}
        settings = load_settings(root=root, flags=flags, environ=environ, project=project)
        built = await build(settings, wanted, environ, None)
        return Client(Heard(), built.parts, built.opened.session), built.opened

    make.store = session_store(root, environ)
    return make


async def test_a_client_begins_anew_or_with_the_last_session(made: Any) -> None:
    client, opened = await made(None)
    assert opened.messages == () and client.conversation.session == opened.session
    client.enter("list the files")
    await client.settled()
    await client.close()
    client, again = await made("")
    assert again.session == opened.session and len(again.messages) >= 2
    assert again.notes == (f"session {opened.session} goes on",)
    with pytest.raises(ConfigError, match="no session begins with 'nowhere'"):
        await made("nowhere")
    await client.close()


async def test_of_a_session_that_is_open_elsewhere_a_copy_goes_on(made: Any) -> None:
    agent = Agent(ScriptedModel("One."))
    await agent.run("hi", store=made.store, session="shared")
    first, _ = await made("shared")
    second, opened = await made("shared")
    assert opened.session != "shared" and "open in another client" in opened.notes[0]
    assert len(opened.messages) == 2 and second.conversation.session == opened.session
    await first.close()
    await second.close()


async def test_closing_ends_what_goes_on_and_says_nothing_that_waits(tmp_path: Path) -> None:
    model = ScriptedModel(["One", asyncio.Event()])
    face = Heard()
    client = Client(face, make_parts(tmp_path, Agent(model)), "first")
    begun = asyncio.Event()
    face.on_event = lambda event: begun.set() if isinstance(event, TextDelta) else None
    client.enter("hi")
    client.enter("waits")
    await asyncio.wait_for(begun.wait(), 10)
    await asyncio.wait_for(client.close(), 10)
    assert not client.conversation.busy and len(model.requests) == 1
    assert face.events[-1].stop is StopReason.CANCELLED and face.given_back == []
