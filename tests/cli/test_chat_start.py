"""How the client begins: where there is no terminal, and where its extra is missing."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

from support.program import BOUND, Program
from treadle.cli.chat.start import PACKAGES

ROOT = Path(__file__).parents[2]
_WITHOUT = "import sys; sys.modules['{}'] = None; from treadle.cli import main; sys.exit(main({}))"


def in_a_terminal(treadle: Program, code: str, **environ: str) -> tuple[int, str]:
    """Runs Python with a terminal as its input and output; what it says on standard error."""
    master, slave = pty.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-c", code],
            stdin=slave,
            stdout=slave,
            stderr=subprocess.PIPE,
            cwd=treadle.folder,
            env={**treadle.environ, "TERM": "xterm", "TREADLE_HOME": str(treadle.folder / "home"), **environ},
            timeout=BOUND,
            check=False,
        )
    finally:
        os.close(master)
        os.close(slave)
    return done.returncode, done.stderr.decode()


def test_without_a_terminal_and_any_input_the_chat_says_what_to_do(treadle: Program) -> None:
    assert treadle() == treadle("chat")
    assert treadle().code == 2 and "treadle run PROMPT" in treadle().err


def test_plain_lines_need_no_library_of_keys(treadle: Program) -> None:
    code = (
        "import sys; from treadle.cli import main; "
        "main(['-m', 'offline:demo']); sys.exit('prompt_toolkit' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=b"hello\n/cost\n",
        capture_output=True,
        cwd=treadle.folder,
        env=treadle.environ,
        timeout=BOUND,
        check=False,
    )
    assert done.returncode == 0 and b"tokens in" in done.stderr
    assert b"offline stand-in" in done.stdout and b"\x1b" not in done.stdout + done.stderr


def test_without_the_extra_one_line_names_it(treadle: Program) -> None:
    for missing in ("prompt_toolkit", "markdown_it"):
        code, err = in_a_terminal(treadle, _WITHOUT.format(missing, []))
        assert (code, err) == (
            2,
            'treadle: treadle chat needs packages that are not there: pip install "treadle[terminal]"\n',
        )


def test_the_client_asks_for_the_packages_that_the_extra_installs() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    distributions = packages_distributions()
    needed = {distributions[name][0].lower().replace("_", "-") for name in PACKAGES}
    assert needed == {requirement.split(">=")[0] for requirement in extras["terminal"]}


def test_a_session_that_is_not_there_is_told(treadle: Program) -> None:
    code, err = in_a_terminal(treadle, _WITHOUT.format("nothing", ["chat", "--resume", "nowhere"]))
    assert code == 2 and "no session of this directory is stored yet" in err


def test_an_agent_that_is_none_is_told(treadle: Program) -> None:
    code, err = in_a_terminal(treadle, _WITHOUT.format("nothing", ["chat", "json:dumps"]))
    assert code == 2 and "json:dumps is a function, not an Agent" in err


def test_nothing_heavy_is_loaded_before_the_first_message(treadle: Program) -> None:
    code = (
        "import sys; import treadle.cli.chat.building, treadle.cli.chat.start; "
        "print([n for n in ('httpx2', 'httpx', 'pydantic', 'rich', 'pygments', 'http.client') if n in sys.modules],"
        " file=sys.stderr)"
    )
    assert in_a_terminal(treadle, code) == (0, "[]\n")
