"""The event log as a conversation in a terminal: calls, notes, the status line, and what hostile text can do."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from wcwidth import wcswidth, wcwidth

from treadle.cli.chat.view import View, choose_theme
from treadle.events import (
    ApprovalRequest,
    Compaction,
    Effect,
    ModelFinish,
    ModelRetry,
    ReasoningDelta,
    RunFinish,
    RunStart,
    StepFinish,
    StepStart,
    SubagentEvent,
    TextDelta,
    ToolCallDelta,
    ToolFinish,
    ToolProgress,
    ToolStart,
)
from treadle.messages import (
    AssistantMessage,
    Citation,
    FilePart,
    ModelRef,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolMessage,
    ToolResultPart,
    UserMessage,
)
from treadle.testing import assert_matches_golden
from treadle.usage import StopReason, Usage

GOLDEN = Path(__file__).parents[1] / "golden" / "view"
SGR = re.compile(r"\x1b\[[0-9;]*m")
STEERS = re.compile(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200e\u200f\u2028\u2029\ud800-\udfff]")
MODEL = ModelRef("scripted", "loom-1")
DIFF = "--- a.py\n+++ a.py\n@@ -1,3 +1,4 @@\n one\n-two\n--- three\n+zwei\n+drei\n four"


def args(**given) -> str:
    return json.dumps(given)


def started(name: str, index: int = 0, effect: Effect | None = Effect.READ, hosted: bool = False, **given) -> ToolStart:
    return ToolStart(call_id=f"{name}{index}", index=index, name=name, args=args(**given), effect=effect, hosted=hosted)


def ended(name: str, content: str, index: int = 0, seconds: float = 1.5, **facts) -> ToolFinish:
    call_id, is_error = f"{name}{index}", facts.get("is_error", False)
    result = ToolResultPart(call_id, name, content, is_error)
    return ToolFinish(call_id=call_id, index=index, name=name, result=result, duration_seconds=seconds, **facts)


class Screen:
    """A view whose time passes only when told."""

    def __init__(self, width: int = 72, theme="none", **given) -> None:
        self.width, self.now = width, 0.0
        self.view = View(theme, **given)
        self.log: list[str] = []

    def feed(self, *events, after: float = 0.0) -> list[str]:
        self.now += after
        lines = [line for event in events for line in self.view.feed(event, self.now, self.width)]
        self.log += lines
        return lines

    def live(self, height: int = 12) -> list[str]:
        return self.view.live(self.now, self.width, height)

    def status(self) -> str:
        return self.view.status(self.now, self.width)

    def begin(self) -> None:
        self.feed(RunStart(agent=None, model=MODEL, input=()), StepStart(index=0))


@pytest.fixture
def screen() -> Screen:
    screen = Screen()
    screen.begin()
    return screen


def story() -> list:
    """A run with everything in it: what comes after how many seconds."""
    inner = [
        StepStart(index=0),
        started("web_fetch", url="https://loom.example/threads"),
        ended("web_fetch", "one\ntwo\n"),
        RunFinish(usage=Usage(), steps=1, stop=StopReason.MAX_STEPS, limit="steps"),
    ]
    return [
        (0.0, RunStart(agent=None, model=MODEL, input=())),
        (0.0, StepStart(index=0)),
        (2.0, ModelRetry(attempt=1, delay_seconds=2, error="overloaded\ntry later")),
        (3.0, ReasoningDelta(text="Where would it be? ")),
        (2.4, ReasoningDelta(text="In a.py.")),
        (0.6, TextDelta(text="I will look at **the")),
        (0.5, TextDelta(text=" files**.\n\nThen:\n- change\n- te")),
        (0.1, TextDelta(text="st")),
        (0.1, ToolCallDelta(index=0, call_id="read_file0", name="read_file", args='{"path": "a.py", "offset": 3}')),
        (0.5, ModelFinish(message=AssistantMessage("..."), usage=Usage(12_000, 500, cost_usd=0.07), model=MODEL)),
        (0.0, started("read_file", 0, path="a.py", offset=3)),
        (0.0, started("search", 1, Effect.EXTERNAL, query="broken thread", limit=4)),
        (0.0, started("researcher", 2, prompt="Find out what a thread is")),
        (1.0, ToolProgress(call_id="search1", message="page 2", progress=2, total=5)),
        *((0.5, SubagentEvent(call_id="researcher2", event=event)) for event in inner),
        (0.2, ended("search", "\n".join(f"hit {number}" for number in range(9)), 1)),
        (0.1, ended("read_file", "line\n" * 120, 0, 0.04)),
        (0.1, ended("researcher", "It is a *line*.\nOf wool.", 2, 3.2)),
        (0.0, StepFinish(index=0, usage=None, stop=StopReason.TOOL_CALLS)),
        (0.0, StepStart(index=1)),
        (1.0, started("edit_file", 3, Effect.WRITE, path="a.py", edits=[1, 2])),
        (0.1, ended("edit_file", "Edited a.py", 3, 0.02)),
        (0.1, ApprovalRequest(call_id="run_command4", name="run_command", args=args(command="pytest -q"))),
        (4.0, started("run_command", 4, Effect.EXTERNAL, command="pytest -q")),
        (
            2.0,
            ended(
                "run_command",
                "\n".join(f"test {number}" for number in range(20)) + "\n[exit code 1 after 1.5 s]",
                4,
            ),
        ),
        (0.0, started("write_file", 5, Effect.WRITE, path="b.py", content="x\ny\n")),
        (0.0, ended("write_file", "Not there, please.", 5, 0.0, is_error=True, refused=True)),
        (0.0, ended("no_such_tool", "There is no tool of this name.", 6, 0.0, is_error=True)),
        (0.5, Compaction(summary="Threads.", messages=24)),
        (0.0, StepStart(index=2)),
        (0.5, started("web_search", 7, None, hosted=True, query="loom")),
        (0.5, ended("web_search", "", 7)),
        (0.5, TextDelta(text="It was a *typo*:\n\n```python\nx = 1\n```\n")),
        (
            0.1,
            ModelFinish(
                message=AssistantMessage([TextPart("...", (Citation(url="https://loom.example", title="Looms"),))]),
                usage=Usage(22_000, 700, cost_usd=0.1),
                model=MODEL,
            ),
        ),
        (0.0, RunFinish(usage=Usage(34_000, 1_200, cost_usd=0.17), steps=3, stop=StopReason.MAX_STEPS, limit="steps")),
    ]


@pytest.mark.parametrize(("theme", "width"), [("none", 80), ("none", 40), ("dark", 80), ("light", 80)])
def test_a_run_looks_as_agreed(theme, width):
    screen = Screen(
        width,
        theme,
        change=lambda call_id: DIFF if call_id == "edit_file3" else "",
        window=200_000,
        mode="ask",
    )
    page = [*screen.view.user("Please mend it.\nAnd test it.", width)]
    for after, event in story():
        page += screen.feed(event, after=after)
        below = [*screen.live(8), screen.status()]
        page += [f"        ┆ {line}" for line in below]
    page += [*screen.view.note("A note.", width), *screen.view.error("something\nbroke", width)]
    assert_matches_golden(GOLDEN / f"run-{theme}-{width}.txt", "\n".join(page).replace("\x1b", "␛") + "\n")


def test_what_was_asked_for_is_shown_whole_before_the_question():
    view = View("none")
    assert view.approval("edit_file", args(path="a.py", edits=[]), 60, change=DIFF) == [
        "edit_file a.py +2 -2",
        "@@ -1,3 +1,4 @@",
        " one",
        "-two",
        "--- three",
        "+zwei",
        "+drei",
        " four",
    ]
    assert view.approval("run_command", args(command="make a\nrm -rf b\t\x1b[2Jc"), 60) == [
        "$ make a",
        r"rm -rf b    \x1b[2Jc",
    ]
    hidden = args(command="ls\r\u200b\u2060x", timeout_seconds=5)
    assert view.approval("run_command", hidden, 60) == [r"$ ls\r\u200b\u2060x", '{"timeout_seconds": 5}']
    shown = view.approval("send", args(to="somebody", body=["a\u202eb"]), 60)
    assert "\n".join(shown) == 'send\n{\n  "to": "somebody",\n  "body": [\n    "a\\u202eb"\n  ]\n}'


def test_all_of_a_long_change_is_there_before_somebody_decides():
    body = "\n".join(f"+line {number}" for number in range(1_000))
    shown = View("none").approval(
        "write_file", args(path="x"), 60, change=f"--- /dev/null\n+++ x\n@@ -0,0 +1,1000 @@\n{body}"
    )
    assert "+1000" in shown[0] and [f"+line {number}" for number in range(1_000)] == shown[2:]


def test_a_name_cannot_pass_for_lines_of_a_change():
    shown = View("none").approval("write_file", args(path="a\n+b"), 60, change="@@ -0,0 +1,1 @@\n+x")
    assert shown == [r"write_file a\n+b +1 -0", "@@ -0,0 +1,1 @@", "+x"]


def test_a_change_without_a_diff_is_shown_by_its_arguments():
    shown = View("none").approval(
        "write_file", args(path="x", content="row\n" * 60_000), 60, change="x: 0 characters become 240000"
    )
    assert shown[:2] == ["write_file x", "x: 0 characters become 240000"]
    assert sum(line.endswith("row\\n") for line in shown) == 60_000


def test_what_is_printed_as_nothing_is_escaped_in_what_is_decided_on():
    shown = View("none").approval("run_command", args(command="a\u3164b\ufe0f\U000e0101"), 60)
    assert shown == [r"$ a\u3164b\ufe0f\U000e0101"]
    shown = View("none").approval("write_file", args(path="x"), 60, change="@@ -0,0 +1,1 @@\n+a\u2800b")
    assert shown[-1] == r"+a\u2800b"


def test_lines_that_go_on_stand_below_their_text():
    text = "commands:\n  /a [B]  one two three four\n  /long [ARGUMENT HERE]  five six\nplain words that go on"
    assert View("none").note(text, 20) == [
        "commands:", "  /a [B]  one two", "          three four", "  /long [ARGUMENT", "    HERE]  five six",
        "plain words that go", "on",
    ]  # fmt: skip


def test_nothing_is_shown_as_what_goes_on_before_a_run_and_after_it(screen):
    assert screen.live() == ["| waiting for the model 0.0 s"]
    screen.feed(RunFinish(usage=Usage(), steps=1, stop=StopReason.END))
    assert screen.live() == []
    assert Screen().live() == []


def test_before_the_first_token_something_turns(screen):
    frames = set()
    for _ in range(8):
        screen.now += 0.1
        frames.add(screen.live()[0][0])
    assert len(frames) == 4


def test_calls_stay_in_call_order_while_they_run_and_come_out_as_they_end(screen):
    screen.feed(*(started(f"tool_{letter}", index) for index, letter in enumerate("abc")))
    assert [line.split()[1] for line in screen.live()] == ["tool_a", "tool_b", "tool_c"]
    assert screen.feed(ended("tool_c", "", 2))[0].startswith("✓ tool_c")
    assert [line.split()[1] for line in screen.live()] == ["tool_a", "tool_b"]
    assert screen.feed(ended("tool_a", "", 0))[0].startswith("✓ tool_a")


def test_more_calls_than_there_is_room_for_are_counted(screen):
    screen.feed(*(started("tool", index) for index in range(30)))
    live = screen.live(5)
    assert len(live) == 5 and live[-1] == "... and 26 more"


def test_the_time_of_a_call_is_kept_at_the_end_of_its_line_however_long_its_arguments_are(screen):
    screen.feed(started("read_file", path="x" * 500))
    screen.now += 3
    assert screen.live()[0].endswith("… · 3.0 s") and len(screen.live()[0]) == 72


def test_a_command_shows_its_exit_code_and_its_last_lines(screen):
    screen.feed(started("run_command", 0, Effect.EXTERNAL, command="ls"))
    shown = screen.feed(ended("run_command", "a\nb\n[exit code 0 after 0.1 s]"))
    assert shown == ["✓ $ ls · exit code 0 · 1.5 s", "  a", "  b"]


def test_what_ran_but_was_thrown_away_says_so(screen):
    screen.feed(started("search", 0, Effect.EXTERNAL))
    assert "discarded" in screen.feed(ended("search", "x", discarded=True))[0]


def test_an_error_shows_its_first_lines(screen):
    shown = screen.feed(started("search"), ended("search", "it broke\nhere\nthere", is_error=True))
    assert shown == ["✗ search · 1.5 s", "  failed: it broke", "  here", "  there"]


def test_reasoning_is_shown_dimmed_when_that_is_wanted():
    screen = Screen(theme="dark", show_reasoning=True)
    screen.begin()
    assert screen.feed(ReasoningDelta(text="First\nsec")) == ["\x1b[2mFirst\x1b[0m"]
    assert screen.live() == ["\x1b[2msec\x1b[0m"]
    assert screen.feed(TextDelta(text="Answer\n\n"), after=1) == ["\x1b[2msec\x1b[0m", "", "Answer"]


def test_an_answer_that_comes_whole_is_shown(screen):
    message = AssistantMessage([TextPart("All *there*."), ReasoningPart("hidden")])
    assert screen.feed(ModelFinish(message=message)) == ["All *there*."]


def test_an_answer_that_comes_whole_after_an_empty_piece_is_shown(screen):
    assert screen.feed(TextDelta(text=""), ModelFinish(message=AssistantMessage("Here"))) == ["Here"]


def test_an_answer_that_came_in_pieces_is_not_shown_twice(screen):
    assert screen.feed(TextDelta(text="Hello"), ModelFinish(message=AssistantMessage("Hello"))) == ["Hello"]


def test_a_cancelled_run_keeps_what_was_shown_and_says_so(screen):
    screen.feed(TextDelta(text="Half a sen"), started("search", 0))
    shown = screen.feed(RunFinish(usage=Usage(), steps=1, stop=StopReason.CANCELLED, error="cancelled"), after=2)
    assert screen.log[0] == "Half a sen"
    assert shown[-1] == "cancelled; what was shown is kept · 2.0 s"
    assert screen.live() == []


@pytest.mark.parametrize("stop", [stop for stop in StopReason if not stop.complete])
def test_every_short_stop_is_named(screen, stop):
    shown = screen.feed(RunFinish(usage=Usage(), steps=1, stop=stop))
    assert len(shown) == 1 and len(shown[0]) > 10


def test_an_error_that_ends_a_run_is_one_line(screen):
    shown = screen.feed(RunFinish(usage=Usage(), steps=0, stop=StopReason.ERROR, error="no key:\n  set\x1b[2J it"))
    assert shown == [r"error: no key: set\x1b[2J it"]


def test_what_a_failed_attempt_had_shown_is_marked_as_void(screen):
    shown = screen.feed(TextDelta(text="Hel"), ModelRetry(attempt=1, delay_seconds=1, error="gone"))
    assert shown == ["Hel", "", "attempt 1 failed, next in 1.0 s: gone", "what it had answered so far does not count"]


def test_the_status_line_leaves_out_the_least_important_first(screen):
    screen.view.mode, screen.view.window = "yolo", 100_000
    screen.feed(ModelFinish(message=AssistantMessage("x"), usage=Usage(30_000, 2_000, cost_usd=0.5)))
    wide = "| waiting for the model 0.0 s · yolo · scripted:loom-1 · context 32% · 30.0k in / 2.0k out · $0.5000"
    assert screen.view.status(0, 200) == wide
    parts = [len(screen.view.status(0, width).split(" · ")) for width in range(200, 0, -1)]
    assert parts == sorted(parts, reverse=True) and parts[-1] == 1
    assert "scripted" not in screen.view.status(0, len(wide) - 1)
    assert "yolo" in screen.view.status(0, 40)


def test_tokens_and_cost_go_on_over_runs(screen):
    finish = ModelFinish(message=AssistantMessage("x"), usage=Usage(100, 10, cost_usd=0.25))
    end = RunFinish(usage=Usage(100, 10, cost_usd=0.25), steps=1, stop=StopReason.END)
    screen.feed(finish, end)
    screen.begin()
    screen.feed(finish)
    assert screen.view.usage.total_tokens == 220
    assert screen.view.cost == "$0.5000"
    assert "200 in / 20 out" in screen.view.status(0, 200)


def test_an_estimate_is_marked():
    screen = Screen()
    screen.begin()
    model = ModelRef("anthropic", "claude-sonnet-4-5")
    screen.feed(ModelFinish(message=AssistantMessage("x"), usage=Usage(1000, 100), model=model))
    assert "~$" in screen.status() and screen.view.cost.endswith("(estimate)")


def test_what_is_waited_for_is_named(screen):
    assert "waiting for the model" in screen.status()
    screen.feed(ModelRetry(attempt=1, delay_seconds=4, error="x"))
    assert "retry in 4.0 s" in screen.status()
    screen.feed(ReasoningDelta(text="hm"))
    assert "thinking" in screen.status()
    screen.feed(TextDelta(text="a"))
    assert "answering" in screen.status()
    screen.feed(ApprovalRequest(call_id="read_file0", name="read_file", args="{}"))
    assert "approval" in screen.status()
    screen.feed(started("read_file"))
    assert "read_file" in screen.status()


def test_a_resumed_conversation_is_shown_as_it_was():
    messages = [
        UserMessage([TextPart("Look at this"), FilePart("image/png", data=b"x", name="a.png")]),
        AssistantMessage(
            [
                ReasoningPart("hm"),
                TextPart("I *look*."),
                ToolCallPart("1", "read_file", args(path="p")),
                ToolCallPart("2", "run_command", args(command="ls")),
                ToolCallPart("3", "lost", "{}"),
                ToolCallPart("4", "web_search", "{}", hosted=True),
                ToolResultPart("4", "web_search", "found", hosted=True),
            ]
        ),
        ToolMessage(
            [
                ToolResultPart("1", "read_file", "no such file", True),
                ToolResultPart("2", "run_command", "a\n[exit code 0 after 0.1 s]"),
            ]
        ),
        AssistantMessage("Done.\n\n- really"),
        UserMessage("Thanks"),
    ]
    assert View("none").replay(messages, 60) == [
        "> Look at this",
        "  [a.png]",
        "",
        "I *look*.",
        "",
        "✗ read_file p",
        "  failed: no such file",
        "✓ $ ls · exit code 0",
        "  a",
        "· lost · no result",
        "✓ web_search (hosted)",
        "  found",
        "",
        "Done.",
        "",
        "• really",
        "",
        "> Thanks",
    ]  # fmt: skip


def test_of_a_very_long_conversation_the_end_is_shown_and_what_is_not_is_counted():
    message = AssistantMessage("word " * 200)
    shown = View("none").replay([UserMessage("early"), *[message] * 300, UserMessage("late")], 60)
    assert shown[0] == "[... 259 earlier messages not shown ...]" and shown[-1] == "> late"
    shown = View("none").replay([UserMessage("early"), AssistantMessage("a" * 100_000 + " End.")], 60)
    assert shown[:2] == ["[... 1 earlier message not shown ...]", ""]
    assert shown[2] == "[... 50,005 characters before ...]" and shown[-1].endswith(" End.")


def test_of_a_text_of_megabytes_only_its_ends_are_looked_at():
    view, begun = View("none"), time.process_time()
    for shown in (view.user("begin " + "漢" * 3_000_000 + " end", 60), view.note("x " * 1_500_000 + "end", 60)):
        assert len(shown) <= 202 and any("characters and more" in line for line in shown) and shown[-1].endswith("end")
    assert time.process_time() - begun < 3


def test_a_pasted_book_is_shown_by_its_ends():
    shown = View("none").user("\n".join(map(str, range(10_000))), 60)
    assert len(shown) < 40 and shown[0] == "> 0" and shown[-1] == "  9999"


@pytest.mark.parametrize(
    ("setting", "environ", "theme"),
    [
        ("auto", {"TERM": "xterm-256color"}, "dark"),
        ("auto", {"TERM": "xterm", "COLORFGBG": "0;15"}, "light"),
        ("auto", {"TERM": "xterm", "COLORFGBG": "15;default;0"}, "dark"),
        ("light", {"TERM": "xterm"}, "light"),
        ("none", {"TERM": "xterm"}, "none"),
        ("dark", {"TERM": "dumb"}, "none"),
        ("dark", {}, "none"),
        ("dark", {"TERM": "xterm", "NO_COLOR": "1"}, "none"),
        ("dark", {"TERM": "xterm", "NO_COLOR": ""}, "dark"),
    ],
)
def test_the_theme_fits_the_terminal(setting, environ, theme):
    assert choose_theme(setting, environ) == theme


hostile = st.text(max_size=20) | st.sampled_from(
    ["\x1b[2J", "\x1b]0;t\x07", "\x9b31m", "\u202eabc", "a\nb\n", "\r\n", "\t\tx", "日本語" * 9, "👨‍👩‍👧‍👦" * 5, "🇩🇪", "x" * 300, "e" + "\u0301" * 50, "\ud800", ""]
)  # fmt: skip
effects = st.sampled_from([None, *Effect])
ids = st.sampled_from(["a", "b"])
results = st.builds(ToolResultPart, ids, hostile | st.just("run_command"), hostile, st.booleans())
simple = st.one_of(
    st.builds(TextDelta, text=hostile),
    st.builds(ReasoningDelta, text=hostile),
    st.builds(ToolCallDelta, index=st.integers(0, 2), call_id=ids, name=hostile, args=hostile),
    st.builds(ModelRetry, attempt=st.just(1), delay_seconds=st.just(1.0), error=hostile),
    st.builds(ApprovalRequest, call_id=ids, name=hostile, args=hostile),
    st.builds(ToolStart, call_id=ids, index=st.just(0), name=hostile | st.just("run_command"), args=hostile | st.builds(lambda text: args(command=text, path=text), hostile), effect=effects, hosted=st.booleans()),
    st.builds(ToolProgress, call_id=ids, message=hostile, progress=st.none() | st.floats(0, 9), total=st.none() | st.just(9.0)),
    st.builds(ToolFinish, call_id=ids, index=st.just(0), name=hostile | st.just("run_command"), result=results, is_error=st.booleans(), refused=st.booleans()),
    st.builds(StepStart, index=st.just(1)),
    st.builds(ModelFinish, message=st.builds(AssistantMessage, hostile)),
    st.builds(Compaction, summary=hostile, messages=st.just(3)),
    st.builds(RunStart, agent=hostile, model=st.builds(ModelRef, hostile, hostile), input=st.just(())),
    st.builds(RunFinish, usage=st.just(Usage(5, 5)), steps=st.just(1), stop=st.sampled_from(StopReason), error=st.none() | hostile, limit=st.none() | hostile),
)  # fmt: skip
events = simple | st.builds(SubagentEvent, call_id=ids, event=simple)


def check(lines: list[str], width: int, theme: str) -> None:
    for line in lines:
        bare = SGR.sub("", line) if theme != "none" else line
        assert not STEERS.search(bare), line
        assert max(cell_len(bare), wcswidth(bare), sum(map(wcwidth, bare))) <= width, line


@given(
    st.lists(events, max_size=12),
    st.sampled_from([1, 2, 3, 5, 9, 10, 11, 40, 80]),
    st.sampled_from(["dark", "none"]),
    st.booleans(),
)
def test_no_log_breaks_the_view_steers_the_terminal_or_leaves_its_width(log, width, theme, reasoning):
    screen = Screen(width, theme, show_reasoning=reasoning, change=lambda call_id: DIFF if call_id == "a" else "")
    screen.begin()
    for event in log:
        check(screen.feed(event, after=0.3), width, theme)
        for height in (0, 1, 4):
            live = screen.live(height)
            assert len(live) <= height
            check(live, width, theme)
        check([screen.status()], width, theme)


@given(hostile, hostile, st.sampled_from([1, 2, 5, 12, 40]))
def test_what_else_is_shown_fits_too(one, two, width):
    view = View("none")
    shown = [*view.user(one, width), *view.note(two, width), *view.error(one, width)]
    shown += [*view.approval(one, two, width), *view.approval("run_command", args(command=two), width)]
    shown += view.approval("edit_file", args(path=one), width, change=f"@@ -1,1 +1,1 @@\n-{one}\n+{two}")
    shown += view.replay(
        [UserMessage(one), AssistantMessage([TextPart(two), ToolCallPart("1", one or "x", two)])], width
    )
    check(shown, width, "none")


@given(st.lists(simple, max_size=10), st.integers(1, 60))
def test_lines_that_are_out_are_the_same_however_often_somebody_looks(log, width):
    looked, blind = Screen(width), Screen(width)
    for event in [RunStart(agent=None, model=MODEL, input=()), *log]:
        looked.feed(event, after=0.1)
        looked.live(5)
        blind.feed(event, after=0.1)
    assert looked.log == blind.log


def test_loading_the_view_loads_neither_a_parser_nor_a_highlighter():
    code = "import sys, treadle.cli.chat.view; print([m for m in sys.modules if m.split('.')[0] in ('rich', 'pygments', 'markdown_it', 'prompt_toolkit', 'httpx2', 'pydantic')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
