from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import batch
import custom_model
import team

from treadle import Allow, Deny, Model, Usage
from treadle.testing import ScriptedModel, call, error

if TYPE_CHECKING:
    import pytest

    from treadle import Decision, ModelRequest, PendingCall

ROOT = Path(__file__).parents[2]


def answer(request: ModelRequest) -> object:
    prompt = request.messages[0].content[0].text
    return error("no luck") if prompt == "bad" else f"answer to {prompt}"


async def test_a_batch_keeps_the_order_of_its_prompts_and_a_failing_one_stops_no_other():
    prompts = ["one", "bad", *[f"number {number}" for number in range(10)]]
    rows = await batch.run_all(ScriptedModel(answer, by_position=True, usage=Usage(3, 2)), prompts)
    assert [row.prompt for row in rows] == prompts
    assert [row.outcome for row in rows] == ["end", "RunError", *["end"] * 10]
    assert rows[2].answer == "answer to number 0"
    lines = batch.table(rows).splitlines()
    assert len(lines) == len(prompts) + 2
    assert "no luck" in lines[2]
    assert lines[-1].split() == ["sum", str(11 * 5)]


def test_the_batch_script_prints_its_table():
    command = [sys.executable, "examples/batch.py", "offline:demo", "Read README.md.", "List the files in examples."]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["outcome", "end", "end", "sum"]


def test_the_chat_goes_on_with_its_session_the_next_time(tmp_path: Path):
    (tmp_path / "loom.md").write_text("A loom has four treadles.\x1b[2J\n", encoding="utf-8")
    command = [sys.executable, str(ROOT / "examples" / "sessions.py"), "offline:demo", "looms"]

    def say(*lines: str) -> str:
        typed = "".join(f"{line}\n" for line in lines)
        done = subprocess.run(
            command, cwd=tmp_path, input=typed, capture_output=True, text=True, timeout=120, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    first = say("Read loom.md.", "")
    assert '[read_file {"path": "loom.md"}]' in first and "four treadles" in first and "\x1b" not in first
    again = say("How many lines does it have?")
    assert again.startswith("> ") is False and "going on after 4 messages" in again and "loom.md has 1 line" in again


def test_the_notebook_cells_run_and_show_the_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "README.md").write_text("# Hello\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    cells = runpy.run_path(str(ROOT / "examples" / "notebook.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert "README.md" in cells["first"].text
    assert "# Hello" in cells["second"].text
    assert any(line.startswith("refused:") and "await" in line for line in printed.splitlines())
    assert printed.splitlines()[-1] == "end"


async def test_the_model_of_ones_own_is_a_model_and_repeats_the_prompt():
    assert isinstance(custom_model.EchoModel(), Model)
    result = await custom_model.agent.run("Over hill and dale")
    assert result.text.split() == ["Over", "hill", "and", "dale"]
    assert result.usage == Usage(4, 4)


async def test_the_team_asks_before_each_change_and_spends_from_one_budget(tmp_path: Path):
    (tmp_path / "loom.md").write_text("A loom has four treadles.\n", encoding="utf-8")
    edit = {"old_text": "four", "new_text": "six"}
    model = ScriptedModel(
        call("reader", prompt="How many treadles?"),
        call("search_content", pattern="treadles"),
        "loom.md says four.",
        call("write_file", path="loom.md", content="none"),
        call("edit_file", path="loom.md", edits=[edit]),
        "Six now.",
    )
    asked = []

    def decide(pending: PendingCall) -> Decision:
        asked.append((pending.name, pending.reason))
        return Allow(key=pending.key) if pending.name == "edit_file" else Deny("Edit it instead.", key=pending.key)

    result = await team.finish(team.make(model, str(tmp_path)), "Make it six.", decide)
    assert (tmp_path / "loom.md").read_text(encoding="utf-8") == "A loom has six treadles.\n"
    assert asked == [("write_file", "write_file changes a file."), ("edit_file", "edit_file changes a file.")]
    assert (result.text, result.stop) == ("Six now.", "end")
    said = [part.content for message in result.messages for part in getattr(message, "results", ())]
    assert said[0] == "loom.md says four."
    assert "Edit it instead." in said[1]


def test_the_team_script_prints_its_answer():
    command = [sys.executable, "examples/team.py", "offline:demo", "Read README.md."]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False, input="")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1].endswith("tokens)")
