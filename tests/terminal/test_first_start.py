"""The first start: what is shown, what is loaded, and what a terminal without colours or without abilities gets."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from support.picture import shows
from support.provider import Hold, words
from support.terminal import LONG, strange

GOLDEN = Path(__file__).parent / "golden"
HEAVY = {"httpx2", "httpcore2", "pydantic", "pydantic_core", "mcp", "mcp_types", "treadle.providers.openai_chat"}


@pytest.mark.parametrize("columns", [pytest.param(40, marks=LONG), 80, pytest.param(200, marks=LONG)])
def test_the_first_screen_at_every_width(chat, provider, columns, home):
    terminal = chat(provider(words("Hello.")), columns=columns)
    shows(terminal, GOLDEN / f"first-{columns}.txt")
    terminal.press("ctrl-d")
    terminal.restored(0)
    assert strange(terminal.raw) == []


def test_without_arguments_and_without_a_model_it_starts_too(start):
    terminal = start(TREADLE_MODEL_REQUESTS="deny", OPENAI_API_KEY="")
    terminal.wait(lambda: terminal.modes.paste, "the prompt")
    terminal.say("Read notes.txt.")
    terminal.has("stand-in")
    terminal.press("ctrl-d")
    terminal.restored(0)


def test_what_is_private_is_readable_by_its_owner_alone(chat, provider, home):
    terminal = chat(provider(words("Hello.")))
    terminal.say("hi")
    terminal.has("Hello.")
    terminal.press("ctrl-d")
    terminal.restored(0)
    files = [path for path in (home / ".treadle-home").rglob("*") if path.is_file()]
    assert files and not [path for path in files if path.stat().st_mode & 0o077]


def test_at_the_first_prompt_nothing_is_loaded_that_speaks_http(chat, provider, home, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import os, signal, sys\n"
        "def tell(*_):\n    open(os.environ['MODULES'], 'w').write('\\n'.join([*sys.modules, 'END']))\n"
        "signal.signal(signal.SIGUSR1, tell)\n"
    )
    told = tmp_path / "modules"
    terminal = chat(provider(words("Hello.")), PYTHONPATH=str(tmp_path), MODULES=str(told))
    terminal.feed("typed")
    terminal.sees("typed")
    os.kill(terminal.process.pid, signal.SIGUSR1)
    terminal.wait(lambda: told.exists() and told.read_text().endswith("END"), "the list of modules")
    modules = set(told.read_text().split("\n"))
    assert "prompt_toolkit" in modules
    assert not HEAVY & modules


def test_no_colour_where_none_is_wanted(chat, provider):
    terminal = chat(provider(words("A **bold** `word`.\n\n```python\nx = 1\n```\n\nEnd.")), NO_COLOR="1")
    terminal.say("hi")
    terminal.has("End.")
    terminal.press("ctrl-d")
    terminal.restored(0)
    codes = {code for found in re.findall(rb"\x1b\[([0-9;]*)m", terminal.raw) for code in found.split(b";")}
    assert not {code for code in codes if re.fullmatch(rb"[34]\d|9\d|10\d", code)}


def test_a_dumb_terminal_has_the_conversation_in_plain_lines_and_ctrl_c_ends_a_run(start, provider):
    hold = Hold()
    terminal = start("chat", *provider([hold, *words("Late.")], words("The **answer**.")).model, TERM="dumb")
    terminal.has("/help")
    terminal.feed("hi\n")
    terminal.wait(hold.reached, "the request")
    terminal.press("ctrl-c")
    terminal.matches(r"cancelled; what was shown is kept[^\n]*\n>")
    terminal.feed("again\n")
    terminal.matches(r"The \*\*answer\*\*\.\n>")
    terminal.press("ctrl-d")
    terminal.restored(0)
    assert b"\x1b" not in terminal.raw and "Late." not in terminal.text
