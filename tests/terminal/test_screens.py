"""The conversation of the tutorial, whose screens are its pictures (`docs/screens`): drawn here, and compared."""

from __future__ import annotations

from pathlib import Path

from support.picture import shows
from support.provider import thought, tool, words

ROOT = Path(__file__).parents[2]
SCREENS = ROOT / "docs" / "screens"
GREETING = 'def greet(name: str) -> str:\n    return "Hello, " + name\n'
BETTER = 'return f"Good morning, {name}!"'
ANSWER = """\
The greeting is friendlier now:

```python
def greet(name: str) -> str:
    return f"Good morning, {name}!"
```

- `greet.py` has **one** changed line
- it runs: `python3 greet.py` prints *Good morning, Ada!*
"""


def test_the_screens_of_the_tutorial(chat, provider, root):
    (root / "greet.py").write_text(f'{GREETING}\n\nprint(greet("Ada"))\n')
    edit = tool("edit_file", path="greet.py", edits=[{"old_text": 'return "Hello, " + name', "new_text": BETTER}])
    server = provider(
        thought("First I look at the file.", tool("read_file", path="greet.py")),
        edit,
        tool("run_command", command="python3 greet.py"),
        words(ANSWER),
    )
    terminal = chat(server, lines=34, columns=84)
    shows(terminal, SCREENS / "start.txt", drawing=True)
    terminal.say("Make the greeting in greet.py friendlier, and run it.")
    terminal.sees("[y]es", "Good morning")
    shows(terminal, SCREENS / "question.txt", drawing=True)
    terminal.feed("y")
    terminal.sees("[y]es", "$ python3 greet.py")
    terminal.feed("a")
    terminal.sees("always allow")
    shows(terminal, SCREENS / "rule.txt", drawing=True)
    terminal.feed("y")
    terminal.has("Ada!")
    terminal.loses("[y]")
    shows(terminal, SCREENS / "answer.txt", drawing=True)
    terminal.feed("/co")
    terminal.sees("/compact", "/cost")
    shows(terminal, SCREENS / "menu.txt", drawing=True)


def test_every_screen_is_on_the_page_and_every_picture_of_the_page_is_a_screen():
    page = (ROOT / "docs" / "tutorial" / "terminal.md").read_text(encoding="utf-8")
    drawn = sorted(path.name for path in SCREENS.glob("*.svg"))
    assert drawn
    assert sorted(part.split(")")[0].split("/")[-1] for part in page.split("](../screens/")[1:]) == drawn
    assert sorted(path.stem for path in SCREENS.glob("*.txt")) == [name.removesuffix(".svg") for name in drawn]
