"""Calls that wait for the person, and the question at the prompt."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.client import Heard, make_parts
from treadle import Agent, ToolFinish
from treadle.cli.chat.approvals import Question
from treadle.cli.chat.asking import ARMED_SECONDS, Asking
from treadle.cli.chat.client import Client
from treadle.errors import ConfigError
from treadle.testing import ScriptedModel, call

BOUND = 6.0


class Desk:
    """A client whose model asks for calls, and the question about each."""

    def __init__(self, folder: Path, *steps: Any, mode: str = "ask") -> None:
        self.model = ScriptedModel(*steps)
        self.face = Heard()
        parts = make_parts(folder, mode=mode)
        parts.agents.given = Agent(self.model, toolsets=[parts.workspace], retry=None)
        self.parts = parts
        self.client = Client(self.face, parts, "first")
        self.now = 0.0
        self.asking = Asking(parts.approvals, lambda question, _: question.preview.split("\n"), clock=lambda: self.now)
        self.asked = asyncio.Event()
        parts.approvals.changed = self.asked.set
        self.root = folder / "root"

    async def question(self, pending: int = 1) -> Question:
        """The question, once `pending` calls wait. It is old enough to be answered."""
        async with asyncio.timeout(BOUND):
            while len(self.parts.approvals.pending) < pending or self.asking.question is None:
                self.asked.clear()
                await self.asked.wait()
        self.now += ARMED_SECONDS
        assert self.asking.question is not None
        return self.asking.question

    async def press(self, *keys: str) -> None:
        for key in keys:
            self.asking.lines(20)  # is drawn before
            self.asking.press(key, self.face.error)
            await asyncio.sleep(0)

    async def idle(self) -> None:
        async with asyncio.timeout(BOUND):
            await self.client.conversation.idle()

    @property
    def refusals(self) -> list[str]:
        return [e.result.content for e in self.face.events if isinstance(e, ToolFinish) and e.refused]


@pytest.fixture
def desk(tmp_path: Path) -> Callable[..., Desk]:
    return lambda *steps, **options: Desk(tmp_path, *steps, **options)


def write(name: str = "a.txt", content: str = "one\n") -> Any:
    return call("write_file", path=name, content=content)


async def test_a_change_is_shown_and_made_once_it_is_allowed(desk) -> None:
    at = desk(write(), "Done.")
    at.client.enter("go")
    question = await at.question()
    assert "+one" in question.preview and not (at.root / "a.txt").exists()
    await at.press("y")
    await at.idle()
    assert (at.root / "a.txt").read_text() == "one\n"


async def test_once_is_once_and_the_session_is_the_session(desk) -> None:
    at = desk(write("a.txt"), write("b.txt"), write("c.txt"), "Done.")
    at.client.enter("go")
    await at.question()
    await at.press("y")
    await at.question()
    await at.press("s")
    await at.idle()
    assert (at.root / "c.txt").exists()


async def test_always_shows_the_rule_first_and_saves_it_once_confirmed(desk) -> None:
    at = desk(call("run_command", command="echo a"), call("run_command", command="echo a"), "Done.")
    at.client.enter("go")
    await at.question()
    await at.press("a")
    assert at.asking.lines(20)[-2:] == ["always allow: run_command(echo a)", "[y] save this rule  [n] back"]
    await at.press("n")
    assert "[y]es" in at.asking.lines(20)[-1] and not at.parts.rules.rules
    await at.press("a", "y")
    await at.idle()
    assert [rule.text for rule in at.parts.rules.rules] == ["run_command(echo a)"]


async def test_a_rule_that_cannot_be_saved_is_told_and_the_question_stands(desk) -> None:
    at = desk(write(), "Done.")

    class Full:
        def add(self, rules: Any) -> Any:
            raise ConfigError("the disk is full")

    at.parts.rules._saving = Full()
    at.client.enter("go")
    await at.question()
    await at.press("a", "y")
    assert at.face.said[-1] == "error: the disk is full"
    await at.press("y")
    await at.idle()
    assert (at.root / "a.txt").exists()


async def test_a_command_that_no_rule_covers_has_no_always(desk) -> None:
    at = desk(call("run_command", command="echo $(id)"), "Done.")
    at.client.enter("go")
    question = await at.question()
    assert question.rule is None and "always" not in at.asking.lines(20)[-1]
    await at.press("a")
    assert at.asking.stage == "choice"
    at.asking.deny()
    await at.idle()
    assert at.refusals


async def test_the_model_reads_why_a_call_was_denied(desk) -> None:
    at = desk(write(), "Sorry.")
    at.client.enter("go")
    await at.question()
    await at.press("n")
    assert at.asking.stage == "reason"
    at.asking.deny("use\x1b[2J b.txt")
    await at.idle()
    assert "use\\x1b[2J b.txt" in at.refusals[0] and not (at.root / "a.txt").exists()


async def test_back_leads_from_the_reason_to_the_choice_and_from_there_denies(desk) -> None:
    at = desk(write(), "Sorry.")
    at.client.enter("go")
    await at.question()
    await at.press("n")
    at.asking.back()
    assert at.asking.stage == "choice"
    at.asking.back()
    await at.idle()
    assert len(at.refusals) == 1


async def test_questions_come_one_after_the_other(desk) -> None:
    at = desk([call("run_command", command="echo a"), call("run_command", command="echo b")], "Done.")
    at.client.enter("go")
    first = await at.question()
    await at.press("y")
    second = await at.question()
    assert first.preview == "$ echo a" and second.preview == "$ echo b"
    await at.press("n")
    at.asking.deny()
    await at.idle()
    assert len(at.refusals) == 1


async def test_a_new_question_takes_no_key_that_was_meant_for_the_prompt(desk) -> None:
    at = desk(write(), "Done.")
    at.client.enter("go")
    await at.question()
    at.now -= ARMED_SECONDS / 2
    await at.press("y", "s")
    assert at.asking.stage == "none" and at.asking.lines(20)[-1] == ""
    at.now += ARMED_SECONDS
    await at.press("y")
    await at.idle()
    assert (at.root / "a.txt").exists()


async def test_a_mode_that_allows_the_call_answers_the_question(desk) -> None:
    at = desk(write(), "Done.")
    at.client.enter("go")
    await at.question()
    assert at.client.next_mode() == "auto-edit"
    await at.idle()
    assert (at.root / "a.txt").exists() and at.asking.lines(20) == []


async def test_plan_mode_denies_without_a_question(desk) -> None:
    at = desk(write(), "Then not.", mode="plan")
    at.client.enter("go")
    await at.idle()
    assert "Plan mode" in at.refusals[0]


async def test_a_cancelled_run_takes_its_question_with_it(desk) -> None:
    at = desk(write(), "Done.")
    at.client.enter("go")
    await at.question()
    at.client.conversation.cancel()
    await at.idle()
    assert at.asking.question is None and not at.parts.approvals.pending and at.asking.whole() == []


async def test_a_long_change_is_cut_to_the_screen(desk) -> None:
    at = desk(write(content="line\n" * 100), "Done.")
    at.client.enter("go")
    await at.question()
    lines = at.asking.lines(10)
    assert len(lines) == 10 and "more lines; [v] prints them all" in lines[-2]
    assert len(at.asking.whole()) > 100
    at.client.conversation.cancel()
    await at.idle()


async def test_an_agent_with_a_policy_of_its_own_keeps_it(desk) -> None:
    at = desk(write(), "Done.")
    from treadle import Deny

    at.parts.agents.given = Agent(at.model, toolsets=[at.parts.workspace], approve=lambda _: Deny("never"))
    at.client.enter("go")
    await at.idle()
    assert at.refusals == ["Not run, it was denied: never"]


async def test_a_question_waits_until_nobody_types_any_more(desk) -> None:
    at = desk(write(), "Done.")
    at.client.enter("go")
    await at.question()
    at.now -= ARMED_SECONDS / 2
    at.asking.typed()
    at.now += ARMED_SECONDS * 0.9
    await at.press("y")
    assert at.asking.stage == "none" and not (at.root / "a.txt").exists()
    at.asking.typed()
    at.now += ARMED_SECONDS
    at.asking.typed()  # too late: it can be answered
    await at.press("y")
    await at.idle()
    assert (at.root / "a.txt").read_text() == "one\n"


async def test_all_of_a_long_rule_is_seen_before_it_is_saved(desk) -> None:
    command = "make " + " ".join(f"target-{number}" for number in range(12))
    at = desk(call("run_command", command=command), "Done.")
    at.client.enter("go")
    await at.question()
    await at.press("a")
    *shown, choice = at.asking.lines(20, 40)[1:]
    assert "".join(shown) == f"always allow: run_command({command})"
    assert max(map(len, shown)) <= 40 and choice.startswith("[y] save")
    await at.press("n", "n")
    at.asking.deny()
    await at.idle()


@pytest.mark.parametrize(("columns", "rows"), [(1, 1), (20, 2), (10, 4), (40, 0)])
async def test_what_is_not_seen_is_not_allowed(desk, columns: int, rows: int) -> None:
    at = desk(write(content="line\n" * 100), "Done.")
    at.client.enter("go")
    question = await at.question()
    for key in "ysa":
        shown = at.asking.lines(rows, columns)
        assert len(shown) <= rows and not any("[y]" in line for line in shown)
        at.asking.press(key, at.face.error)
        assert at.asking.stage == "choice" and not question.answer.done()
    assert len(at.asking.printed(columns)) > 100
    legible = bool(at.asking.lines(rows, columns)) and columns >= 20
    at.asking.press("y", at.face.error)
    assert question.answer.done() is legible
    at.client.conversation.cancel()
    await at.idle()


async def test_a_key_answers_only_what_was_drawn(desk) -> None:
    at = desk(write(), "Done.")
    at.client.enter("go")
    question = await at.question()
    at.asking.press("y", at.face.error)
    assert not question.answer.done()
    at.asking.lines(20)
    at.asking.press("a", at.face.error)
    at.asking.press("y", at.face.error)  # the rule is not there yet
    assert at.asking.stage == "rule" and not question.answer.done()
    await at.press("y")
    assert question.answer.done()
    await at.idle()


async def test_a_rule_is_saved_only_where_all_of_it_is_seen(desk) -> None:
    command = f"make {'t' * 120}"
    at = desk(call("run_command", command=command), "Done.")
    at.client.enter("go")
    question = await at.question()
    await at.press("a")
    assert at.asking.lines(4, 40) == ["too small: [v] shows all; esc: no"]
    at.asking.press("y", at.face.error)
    assert not question.answer.done()
    printed = "".join(at.asking.printed(40))
    assert printed.endswith(f"always allow: run_command({command})")
    assert at.asking.lines(4, 40) == ["[y] save this rule  [n] back"]
    at.asking.press("y", at.face.error)
    await at.idle()
    assert [rule.text for rule in at.parts.rules.rules] == [f"run_command({command})"]


async def test_a_question_is_laid_out_once_for_a_width(desk) -> None:
    at = desk(write(), "Done.")
    widths: list[int] = []
    asking = Asking(at.parts.approvals, lambda _, width: widths.append(width) or ["it"], clock=lambda: at.now)
    at.client.enter("go")
    await at.question()
    for width in (80, 80, 40, 40):
        asking.lines(20, width)
    assert widths == [80, 40]
    at.client.conversation.cancel()
    await at.idle()


async def test_every_answer_is_named_in_a_narrow_window(desk) -> None:
    at = desk([call("run_command", command="echo a"), call("run_command", command="echo b")], "Done.")
    at.client.enter("go")
    await at.question(2)
    shown = at.asking.lines(8, 40)
    assert max(map(len, shown)) <= 40
    for key in ("[y]es", "[s]ession", "[a]lways", "[n]o, and why", "esc: no", "(1 more after this)"):
        assert any(key in line for line in shown)
    at.client.conversation.cancel()
    await at.idle()
