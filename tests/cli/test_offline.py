"""`offline:demo`: fixed rules, real tools, and answers built only from what the tools returned."""

from __future__ import annotations

from pathlib import Path

import pytest

from treadle import Agent, ModelFinish, TextDelta, ToolError, ToolStart, tool
from treadle.messages import TextPart
from treadle.providers.offline import OfflineModel
from treadle.toolkit import Workspace


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "main.py").write_text("import sys\n\nprint(sys.argv)\n")
    (tmp_path / "README.md").write_text("# Loom\n\nA loom of our own.\n\n## Use\n\nTurn it.\n\n## Licence\n\nFree.\n")
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "loom"\nversion = "1"\n')
    return Agent(OfflineModel(), tools=Workspace(tmp_path).read_only())


async def ask(agent: Agent, prompt: str, **options) -> tuple[str, list[tuple[str, str]]]:
    """The answer, and the calls that were made for it."""
    result = await agent.run(prompt, **options)
    return result.text, [(call.name, call.args) for step in result.steps for call in step.calls]


LIST = ("list_directory", '{"path": "."}')
LIST_SRC = ("list_directory", '{"path": "src"}')
README = ("read_file", '{"path": "README.md"}')
PYPROJECT = ("read_file", '{"path": "pyproject.toml"}')


@pytest.mark.parametrize(
    ("prompt", "calls", "told"),
    [
        ("which files are here?", [LIST], ["README.md", "pyproject.toml", "src/"]),
        ("List the files here.", [LIST], ["3 entries"]),
        ("list the files in src", [LIST_SRC], ["src has 1 entry", "main.py"]),
        ("What's in src?", [LIST_SRC], ["main.py"]),
        ("ls", [LIST], ["README.md"]),
        ("Show me the docs folder and ls src/", [("list_directory", '{"path": "docs"}'), LIST_SRC], ["could not list docs", "main.py"]),
        ("Read README.md", [README], ["11 lines", "A loom of our own."]),
        ("Read @README.md", [README], ["11 lines", "A loom of our own."]),
        ("What does README.md say?", [README], ["A loom of our own."]),
        ("read `src/main.py`", [("read_file", '{"path": "src/main.py"}')], ["print(sys.argv)"]),
        ("Summarise README.md", [README], ["begins", "# Loom", "Its sections: Use, Licence."]),
        ("How many lines does README.md have?", [README], ["README.md has 11 lines."]),
        ("find the word loom in pyproject.toml", [PYPROJECT], ["on 1 line", '2: name = "loom"']),
        ("Does README.md mention weavers?", [README], ["did not find 'weavers'"]),
        ('search README.md for "of our own"', [README], ["3: A loom of our own."]),
        ("What does this project do?", [LIST, README], ["A loom of our own."]),
        ("Read README.md and pyproject.toml", [README, PYPROJECT], ["A loom of our own.", 'name = "loom"']),
        ("What is in this directory and what does README.md say?", [LIST, README], ["src/", "A loom of our own."]),
        ("Count the lines in README.md, then list src", [README, LIST_SRC], ["11 lines", "main.py"]),
    ],
)  # fmt: skip
async def test_a_prompt_about_files_calls_the_matching_tools_and_tells_what_they_returned(agent, prompt, calls, told):
    answer, made = await ask(agent, prompt)
    assert made == calls
    for text in told:
        assert text in answer


@pytest.mark.parametrize(
    "prompt", ["hello", "Write a poem about the sea.", "What is 2 and 3?", "Find treadle", "read it", "?"]
)
async def test_anything_else_is_declined_in_one_sentence(agent, prompt):
    answer, calls = await ask(agent, prompt)
    assert calls == []
    assert answer.startswith("I am the offline stand-in and no language model")
    assert answer.count(".") == 1


async def test_a_follow_up_means_the_file_of_the_turn_before(agent):
    first = await agent.run("Summarise README.md")
    answer, calls = await ask(agent, "And how many lines does it have?", messages=first.messages)
    assert calls == [README]
    assert answer == "README.md has 11 lines."


async def test_a_follow_up_looks_again_and_does_not_answer_from_memory(agent, tmp_path):
    first = await agent.run("How many lines does README.md have?")
    (tmp_path / "README.md").write_text("one\n")
    assert await ask(agent, "How many lines does README.md have?", messages=first.messages) == (
        "README.md has 1 line.",
        [README],
    )


async def test_an_attached_file_is_what_the_prompt_means(agent):
    result = await agent.run([TextPart("File README.md:\n\n# Loom in other.md"), TextPart("Summarise it.")])
    assert [call.args for call in result.steps[0].calls] == ['{"path": "README.md"}']


async def test_a_failing_tool_is_told_in_the_answer(agent):
    answer, calls = await ask(agent, "Read nothing.md and README.md")
    assert len(calls) == 2
    assert answer.startswith("I could not read nothing.md: no such file or directory")
    assert "A loom of our own." in answer


async def test_a_project_without_a_readme_is_described_by_its_files(agent, tmp_path):
    (tmp_path / "README.md").unlink()
    answer, calls = await ask(agent, "What does this project do?")
    assert calls == [LIST]
    assert "pyproject.toml" in answer


async def test_tools_of_another_name_are_found_by_what_they_take():
    @tool
    def my_reader(filename: str) -> str:
        """Read."""
        return f"what {filename} holds"

    @tool
    def unrelated(path: str) -> str:
        """Never asked for."""
        raise ToolError("never")

    answer, calls = await ask(Agent(OfflineModel(), tools=[my_reader, unrelated]), "Read notes.txt")
    assert calls == [("my_reader", '{"filename": "notes.txt"}')]
    assert "what notes.txt holds" in answer


async def test_without_a_fitting_tool_it_says_so_and_makes_nothing_up():
    answer, calls = await ask(Agent(OfflineModel()), "Read README.md")
    assert (answer, calls) == ("That takes a tool that can read here, and none is on offer.", [])


async def test_a_partly_read_file_is_never_counted_as_whole(agent, tmp_path):
    (tmp_path / "long.txt").write_text("line\n" * 50_000)
    assert (await ask(agent, "How many lines does long.txt have?"))[0] == "long.txt has 50000 lines."
    assert "of 50000 lines, I read" in (await ask(agent, "Find nothing in long.txt"))[0]


async def test_the_same_request_streams_the_same_answer_in_pieces_with_usage(agent):
    async def events():
        async with agent.stream("Summarise README.md", run_id="run") as run:
            return [event async for event in run if isinstance(event, TextDelta | ModelFinish | ToolStart)]

    first, second = await events(), await events()
    assert first == second
    texts = [event.text for event in first if isinstance(event, TextDelta)]
    finishes = [event for event in first if isinstance(event, ModelFinish)]
    assert len(texts) > 2
    assert "".join(texts) == finishes[-1].message.text
    assert all(finish.usage and finish.usage.input_tokens and finish.usage.output_tokens for finish in finishes)
    assert str(finishes[-1].model) == "offline:demo"


async def test_it_makes_no_request_and_runs_where_requests_are_denied(agent, monkeypatch):
    monkeypatch.setenv("TREADLE_MODEL_REQUESTS", "deny")
    assert (await ask(agent, "ls"))[1] == [LIST]


async def test_fifty_runs_at_once_keep_to_themselves(agent, tmp_path):
    import asyncio

    for number in range(50):
        (tmp_path / f"f{number}.txt").write_text(f"number {number}\n")
    answers = await asyncio.wait_for(asyncio.gather(*(ask(agent, f"Read f{n}.txt") for n in range(50))), 30)
    assert [f"number {n}\n" in f"{answer}\n" for n, (answer, _) in enumerate(answers)] == [True] * 50
