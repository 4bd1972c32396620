"""What each provider can do, as tables from the code: `python docs/capabilities.py` writes them into the page.

A cell is what a model says of itself, or what it does when it is asked to check a request. Nothing is sent.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from treadle import ConfigError, FilePart, ModelRequest, UnsupportedError, UserMessage
from treadle.providers import resolve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from treadle import Model

PAGE = Path(__file__).parent / "providers" / "index.md"
MARKS = ("<!-- {}: written by docs/capabilities.py -->\n", "\n<!-- end -->")
NOTHING = "–"

# Prefix: the page that tells of it, in the order of the table.
PAGES = {
    "anthropic": "anthropic",
    "anthropic-vertex": "anthropic",
    "anthropic-bedrock": "anthropic",
    "openai": "openai",
    "openai-chat": "openai",
    "azure": "azure",
    "azure-responses": "azure",
    "google": "google",
    "google-vertex": "google",
    "openrouter": "openrouter",
    "openrouter-responses": "openrouter",
    "groq": "groq",
    "mistral": "mistral",
    "deepseek": "deepseek",
    "deepseek-responses": "deepseek",
    "xai": "xai",
    "xai-responses": "xai",
    "together": "hosted",
    "cerebras": "hosted",
    "fireworks": "hosted",
    "huggingface": "hosted",
    "perplexity": "hosted",
    "moonshot": "hosted",
    "zai": "hosted",
    "alibaba": "hosted",
    "snowflake": "hosted",
    "ollama": "local",
    "lmstudio": "local",
    "lmstudio-responses": "local",
    "vllm": "local",
    "llamacpp": "local",
    "local": "local",
    "offline": "local",
}

OTHER = "other"
_CLAUDE = (
    "claude-3-5-haiku",
    "claude-3-7-sonnet",
    "claude-opus-4-1",
    "claude-sonnet-4-5",
    "claude-opus-4-5",
    "claude-sonnet-4-6",
    "claude-opus-4-7",
    "claude-sonnet-5",
    "claude-mythos-preview",
)
_GEMINI = ("gemini-2.0-flash", "gemini-2.5-flash-image", "gemini-2.5-flash", "gemini-2.5-pro", "gemini-3.6-flash")
_GPT = ("gpt-3.5-turbo", "gpt-4-turbo", "gpt-4o", "o3-mini", "o3", "gpt-5-mini", "gpt-5.2")
_GROK = ("grok-3", "grok-3-mini", "grok-4", "grok-4.3")

# Prefix: a name for each kind of model that the code tells apart. `OTHER` stands for names that it knows nothing of.
SAMPLES = {
    "anthropic": _CLAUDE,
    "anthropic-vertex": _CLAUDE,
    "anthropic-bedrock": tuple(f"anthropic.{name}" for name in _CLAUDE),
    "openai": _GPT,
    "openai-chat": (*_GPT[:3], "gpt-4o-audio-preview", *_GPT[3:]),
    "google": _GEMINI,
    "google-vertex": _GEMINI,
    "openrouter": ("anthropic/claude-sonnet-5",),
    "xai": _GROK,
    "xai-responses": _GROK,
    "cerebras": ("zai-glm-4.7",),
    "snowflake": ("claude-sonnet-4-6", "openai-gpt-5"),
}

_FILES = {
    "image": "image/png",
    "PDF": "application/pdf",
    "audio": "audio/wav",
    "video": "video/mp4",
    "text": "text/plain",
}
# What extras bring. They are looked for as if none were there, and what is missing is named.
_LIBRARIES = ("google.auth", "requests", "azure.identity", "botocore", "xllamacpp")


def model_of(prefix: str, name: str) -> Model:
    """The model, wherever its server is."""
    if prefix == "offline":
        return resolve("offline:demo")
    return resolve(f"{prefix}:{name}", base_url=None if prefix == "local" else "https://host.example")


def _reasoning(model: Model) -> str:
    can = model.capabilities
    smallest = can.min_reasoning_budget
    steered = ["effort"] if can.effort else []
    steered += [f"budget from {smallest:,}" if smallest else "budget"] if smallest is not None else []
    return ", ".join(steered) or "as it is" if can.reasoning else NOTHING


def _files(model: Model) -> str:
    check: Callable[[ModelRequest], None] | None = getattr(model, "check", None)
    if not model.capabilities.files or check is None:
        return NOTHING
    taken = []
    for kind, media_type in _FILES.items():
        part = FilePart(media_type, data="aGVsbG8=")
        try:
            check(ModelRequest(None, (UserMessage((part,)),)))
        except UnsupportedError:
            continue
        taken.append(kind)
    return ", ".join(taken)


def _hosted(model: Model) -> str:
    told = {"MCP": model.capabilities.hosted_mcp, "search": model.capabilities.hosted_web_search}
    return ", ".join(word for word, there in told.items() if there) or NOTHING


def _yes(*, value: bool) -> str:
    return "yes" if value else NOTHING


_COLUMNS: dict[str, Callable[[Model], str]] = {
    "tools": lambda model: _yes(value=model.capabilities.tools),
    "reasoning": _reasoning,
    "schema": lambda model: _yes(value=model.capabilities.output_schema),
    "files": _files,
    "hosted": _hosted,
    "counting": lambda model: _yes(value=model.capabilities.token_counting),
    "cost": lambda model: _yes(value=model.capabilities.cost),
}


def cells_of(model: Model) -> tuple[str, ...]:
    """What the model can do, in the order of the columns."""
    return tuple(tell(model) for tell in _COLUMNS.values())


def key_of(model: Model) -> Any:
    """Where the model's key is looked for; None where it needs no endpoint."""
    endpoint = getattr(model, "_endpoint", None)
    return None if endpoint is None else endpoint._key  # noqa: SLF001 - nothing public tells it


def _key_cell(prefix: str) -> str:
    key = key_of(model_of(prefix, OTHER))
    if key is None:
        return NOTHING
    named = " or ".join(f"`{variable}`" for variable in key.variables)
    if key.sign is not None:
        return f"{named} or sign-in" if named else "sign-in"
    return (named if key.required else f"{named}, optional") if named else NOTHING


def extra_of(prefix: str) -> str:
    """The extra that a model without a key needs, by what it says where the extra is not installed."""
    with patch.dict(sys.modules, dict.fromkeys(_LIBRARIES)):
        try:
            model = model_of(prefix, __file__)  # a file that is there, for whoever asks
            key = key_of(model)
            if key is not None and key.sign is not None:
                key.sign()
            elif prefix == "local":
                asyncio.run(_ask(model))
        except ConfigError as error:
            found = re.search(r"treadle\[(\w+)\]", str(error))
            return f"`{found[1]}`" if found else str(error)
    return NOTHING


async def _ask(model: Model) -> None:
    async for _ in model.stream(ModelRequest(None, (UserMessage("?"),))):
        pass


def _rows_of_providers() -> Iterator[list[str]]:
    for prefix, page in PAGES.items():
        kinds = [cells_of(model_of(prefix, name)) for name in (*SAMPLES.get(prefix, ()), OTHER)]
        cells = [column[0] if len(set(column)) == 1 else "by model" for column in zip(*kinds, strict=True)]
        yield [f"[`{prefix}`]({page}.md)", *cells, _key_cell(prefix), extra_of(prefix)]


def _kinds_of(prefix: str) -> dict[tuple[str, ...], list[str]]:
    """The names of a provider's models by what they can do, alike ones together."""
    kinds: dict[tuple[str, ...], list[str]] = {}
    for name in SAMPLES.get(prefix, ()):
        kinds.setdefault(cells_of(model_of(prefix, name)), []).append(f"`{name}`")
    kinds.setdefault(cells_of(model_of(prefix, OTHER)), []).append("any other")
    return kinds


def _models_table() -> str:
    """Only what differs within some provider. Providers that differ in the same way share their rows."""
    tables = {prefix: kinds for prefix in SAMPLES if len(kinds := _kinds_of(prefix)) > 1}
    columns = list(_COLUMNS)
    places = [
        i for i in range(len(columns)) if any(len({cells[i] for cells in kinds}) > 1 for kinds in tables.values())
    ]
    rows: dict[tuple[tuple[str, ...], ...], list[str]] = {}
    for prefix, kinds in tables.items():
        told = tuple((", ".join(alike), *(cells[i] for i in places)) for cells, alike in kinds.items())
        rows.setdefault(told, []).append(f"`{prefix}`")
    lines = [[", ".join(prefixes), *row] for told, prefixes in rows.items() for row in told]
    return _table(["prefix", "models", *(columns[i] for i in places)], lines)


def _table(head: list[str], rows: Iterable[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])


def tables() -> dict[str, str]:
    """The tables by the name of their place in the page. The environment has no say in them."""
    with patch.dict(os.environ, {"GOOGLE_CLOUD_PROJECT": "project"}, clear=True):
        return {
            "providers": _table(["prefix", *_COLUMNS, "key", "extra"], _rows_of_providers()),
            "models": _models_table(),
        }


def written(page: str) -> str:
    """The page with its tables as they must be."""
    for name, table in tables().items():
        start, end = MARKS[0].format(name), MARKS[1]
        head, _, rest = page.partition(start)
        page = f"{head}{start}\n{table}\n{end}{rest.partition(end)[2]}"
    return page


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
