"""The pages on the client say what the code says, and show what the tests have seen."""

from __future__ import annotations

import re
from pathlib import Path

from treadle.cli.chat.commands import COMMANDS, KEYS

DOCS = Path(__file__).parents[2] / "docs"


def rows(page: str, title: str) -> list[tuple[str, ...]]:
    """The rows of the table below that heading, without its head."""
    text = (DOCS / page).read_text(encoding="utf-8").split(f"\n## {title}\n")[1].split("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [tuple(re.findall(r"\| (.*?) (?=\|)", line)) for line in lines[1:]]


def code(*words: str) -> str:
    return ", ".join(f"`{word}`" for word in words)


def test_the_page_on_keys_has_every_key_as_the_client_tells_it():
    told = [(code(*name.split(", ")), what.replace("\\", "`\\`")) for name, what in KEYS]
    assert rows("reference/keys.md", "Keys") == told


def test_the_page_on_keys_has_every_command_as_the_client_tells_it():
    told = [(code(f"/{each.name} {each.hint}".strip()), each.what) for each in COMMANDS]
    assert rows("reference/keys.md", "Commands") == told
