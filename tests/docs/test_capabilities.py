"""The pages of the providers say what the code does: the tables are made from it, and names and addresses are its own."""

from __future__ import annotations

import importlib.util
import itertools
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from treadle.providers import _MODELS
from treadle.providers.anthropic._models import traits_of as claude_traits
from treadle.providers.anthropic._platform import ANTHROPIC
from treadle.providers.google._models import traits_of as gemini_traits
from treadle.providers.openai._dialects import DIALECTS as RESPONSES
from treadle.providers.openai_chat._dialects import DIALECTS as CHAT

DOCS = Path(__file__).parents[2] / "docs"
ROWS = [(prefix, row) for table in (CHAT, RESPONSES) for prefix, row in table.items()] + [("anthropic", ANTHROPIC)]


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("capabilities", DOCS / "capabilities.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


capabilities = load()


def page_of(prefix: str) -> str:
    return (DOCS / "providers" / f"{capabilities.PAGES[prefix]}.md").read_text(encoding="utf-8")


def test_the_tables_of_the_page_are_what_the_code_says():
    page = capabilities.PAGE.read_text(encoding="utf-8")
    assert page == capabilities.written(page), "run: python docs/capabilities.py"


def test_the_tables_do_not_depend_on_the_environment(monkeypatch: pytest.MonkeyPatch):
    expected = capabilities.tables()
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "key")
    monkeypatch.setenv("OPENAI_BASE_URL", "nonsense")
    monkeypatch.setenv("GOOGLE_API_KEY", "key")
    monkeypatch.delenv("GOOGLE_CLOUD_PROJECT", raising=False)
    assert capabilities.tables() == expected


def test_a_page_with_an_old_table_gets_the_new_one_and_keeps_the_rest():
    page = capabilities.PAGE.read_text(encoding="utf-8")
    old = page.replace("| yes | by model |", "| no | by model |")
    assert old != page
    assert capabilities.written(old) == page


def test_every_prefix_has_a_row_and_a_page_that_speaks_of_it():
    assert set(capabilities.PAGES) == set(_MODELS)
    for prefix in _MODELS:
        assert f"`{prefix}`" in page_of(prefix), prefix


@pytest.mark.parametrize("prefix", sorted(_MODELS))
def test_the_page_of_a_prefix_names_the_variables_of_its_key(prefix: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "project")
    key = capabilities.key_of(capabilities.model_of(prefix, "some-model"))
    for variable in key.variables if key is not None else ():
        assert f"`{variable}`" in page_of(prefix)


@pytest.mark.parametrize(("prefix", "row"), ROWS, ids=[prefix for prefix, _ in ROWS])
def test_the_page_of_a_prefix_names_its_address(prefix: str, row: Any):
    for told in filter(None, (row.base_url, *row.base_url_variables, getattr(row, "bare_path", ""))):
        assert f"`{told}`" in page_of(prefix), told


def test_an_extra_is_named_for_each_cloud_and_for_a_file_of_ones_own():
    found = {prefix: capabilities.extra_of(prefix) for prefix in ("azure", "anthropic-bedrock", "local", "mistral")}
    assert found == {"azure": "`azure`", "anthropic-bedrock": "`bedrock`", "local": "`local`", "mistral": "–"}


@pytest.mark.parametrize(("prefix", "row"), ROWS[:-1], ids=[prefix for prefix, _ in ROWS[:-1]])
def test_there_is_a_sample_for_each_kind_of_model_in_the_dialects(prefix: str, row: Any):
    def first_that_fits(name: str) -> int:
        fits = (number for number, (pattern, _) in enumerate(row.models) if re.match(pattern, name, re.IGNORECASE))
        return next(fits, -1)

    names = (*capabilities.SAMPLES.get(prefix, ()), capabilities.OTHER)
    assert set(range(len(row.models))) <= {first_that_fits(name) for name in names}


@pytest.mark.parametrize("prefix", ["anthropic", "anthropic-vertex", "anthropic-bedrock"])
def test_there_is_a_sample_for_each_kind_of_claude(prefix: str):
    versions = [
        f"claude-{family}-{major}-{minor}" for major in range(3, 7) for minor in range(10) for family in ("opus", "x")
    ]
    samples = {capability_traits(claude_traits(name)) for name in (*capabilities.SAMPLES[prefix], capabilities.OTHER)}
    assert {capability_traits(claude_traits(name)) for name in versions} <= samples


def capability_traits(traits: Any) -> tuple[bool, ...]:
    return traits.reasoning, traits.effort, traits.budget, traits.output_schema


@pytest.mark.parametrize("prefix", ["google", "google-vertex"])
def test_there_is_a_sample_for_each_kind_of_gemini(prefix: str):
    versions = [
        f"gemini-{major}.{minor}-{kind}"
        for major, minor in itertools.product(range(1, 5), range(10))
        for kind in ("pro", "flash")
    ]
    samples = {gemini_traits(name) for name in (*capabilities.SAMPLES[prefix], capabilities.OTHER)}
    kinds = {(t.modern, t.tools, t.reasoning, t.min_reasoning_budget) for t in samples}
    found = {(t.modern, t.tools, t.reasoning, t.min_reasoning_budget) for t in map(gemini_traits, versions)}
    assert found <= kinds
