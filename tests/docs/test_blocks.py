"""Every Python and console block of the README and the docs runs.

Python blocks of one page share a namespace, in order, and may await. A block of `output` right behind one is what it
prints. In console blocks, the commands that call treadle exit with 0. Blocks of any other language are not looked at.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import os
import re
import shutil
import subprocess
import sys
import types
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^(?P<fence>`{3,})(?P<language>[^\n`]*)\n(?P<text>.*?)^(?P=fence)[ ]*$", re.MULTILINE | re.DOTALL)
TREADLE = re.compile(r"\btreadle( (run|chat|sessions|manifest|mcp|config|permissions|trust|--)|$)")


class Block(NamedTuple):
    language: str
    text: str
    line: int
    end: int


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(found["language"].strip(), found["text"], text.count("\n", 0, found.start()) + 2, found.end())
        for found in FENCE.finditer(text)
    ]


def pages_with(*languages: str) -> list[object]:
    return [
        pytest.param(page, id=str(page.relative_to(ROOT)))
        for page in PAGES
        if any(block.language in languages for block in blocks_of(page))
    ]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A copy of what the pages speak of, so that they may write."""
    for name in ("README.md", "CHANGELOG.md", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def execute(block: Block, page: Path, module: types.ModuleType, runner: asyncio.Runner) -> str:
    """Runs one block and gives what it printed; tracebacks point into the page."""
    source = "\n" * (block.line - 1) + block.text
    code = compile(source, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        if code.co_flags & inspect.CO_COROUTINE:
            runner.run(eval(code, module.__dict__))
        else:
            exec(code, module.__dict__)
    return printed.getvalue()


@pytest.mark.parametrize("page", pages_with("python"))
def test_the_python_blocks_of_a_page_run_in_order_and_print_what_it_says(
    page: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(workspace)
    module = types.ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    blocks = blocks_of(page)
    with asyncio.Runner() as runner:
        for block, following in zip(blocks, [*blocks[1:], None], strict=True):
            if block.language != "python":
                continue
            printed = execute(block, page, module, runner)
            if following and following.language == "output" and touching(page, block, following):
                assert printed == following.text, f"{page.name}:{block.line} prints something else"


def touching(page: Path, block: Block, following: Block) -> bool:
    between = page.read_text(encoding="utf-8").splitlines()[: following.line - 2]
    return not any(line.strip() for line in between[block.line + block.text.count("\n") :])


@pytest.mark.parametrize("page", pages_with("console"))
def test_the_treadle_commands_of_a_page_succeed(page: Path, workspace: Path):
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "TREADLE_MODEL": "offline:demo",  # else a command without -m would ask whatever this machine has
        "TREADLE_HOME": str(workspace / "home"),
    }
    for block in blocks_of(page):
        commands = re.findall(r"^\$ (.*(?:\\\n.*)*)", block.text, re.MULTILINE)
        for command in commands:
            if block.language != "console" or not TREADLE.search(command):
                continue
            done = subprocess.run(
                ["bash", "-o", "pipefail", "-c", command],
                cwd=workspace,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            assert done.returncode == 0, f"{page.name}:{block.line}: {command}\n{done.stdout}{done.stderr}"


def test_there_are_blocks_to_run():
    languages = [block.language for page in PAGES for block in blocks_of(page)]
    assert languages.count("python") > 20
    assert languages.count("console") > 5


def test_blocks_have_no_language_that_hides_python_from_these_tests():
    known = {
        "python",
        "console",
        "output",
        "text",
        "json",
        "toml",
        "yaml",
        "{toctree}",
        "{eval-rst}",
        "{literalinclude}",
    }
    for page in PAGES:
        for block in blocks_of(page):
            language = block.language.split()[0] if block.language else ""
            assert language in known, f"{page.name}:{block.line}: a block of {language!r}"


def test_the_page_on_the_command_line_tells_every_option_and_exit_code():
    page = (ROOT / "docs" / "how-to" / "command-line.md").read_text(encoding="utf-8")
    for command in ("run", "manifest"):
        asked = [sys.executable, "-m", "treadle", command, "--help"]
        shown = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=True).stdout
        options = set(re.findall(r"--[a-z][a-z-]+", shown)) - {"--help"}
        assert len(options) >= 2
        assert not [option for option in options if f"`{option}" not in page and f" {option} " not in page]
        codes = re.findall(r"^  (\d+) ", shown, re.MULTILINE)
        assert codes == re.findall(r"^\| (\d+) \|", page, re.MULTILINE)
