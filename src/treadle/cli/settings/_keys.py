"""Every setting: its name, what it may be, and what may set it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from treadle.cli.settings._checks import (
    MODES,
    YOLO,
    address,
    count,
    from_text,
    mode,
    one_of,
    positive,
    share,
    switch,
    switch_from_text,
    text,
    texts,
    variables,
)

THEMES = ("auto", "dark", "light", "none")
NOTIFY = ("auto", "bell", "none")


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """A setting. `check` gives the value as it is used and raises `ValueError` with what it should be.

    `free`: a project file may set it before its directory is trusted, where `free` says so of the value. `flag` is the
    option that sets it; `words` what such an option may be followed by. `environment` names its variable.
    """

    name: str
    check: Callable[[Any], Any]
    default: Any
    what: str
    metavar: str = "TEXT"
    words: tuple[str, ...] = ()
    flag: str | None = None
    short_flag: str | None = None
    free: Callable[[Any], bool] = lambda _: False
    is_switch: bool = False
    is_list: bool = False
    is_path: bool = False

    def from_text(self, value: Any) -> Any:
        """What the text of a variable or a flag stands for; `check` complains where that is nothing."""
        if self.is_switch:
            return switch_from_text(value)
        return from_text(value) if self.check in (count, positive, share) else value

    @property
    def environment(self) -> str:
        """The variable that sets it."""
        return f"TREADLE_{self.name.replace('.', '_').upper()}"


def _always(_: Any) -> bool:
    return True


KEYS: tuple[Key, ...] = (
    Key(
        name="model",
        check=text,
        default=None,
        what="the model, like `openai-chat:NAME`, `local:FILE.gguf`, `offline:demo`",
        metavar="PROVIDER:MODEL",
        flag="--model",
        short_flag="-m",
    ),
    Key(
        name="base_url",
        check=address,
        default=None,
        what="where the provider of the model answers, like `http://127.0.0.1:8000/v1`",
        metavar="URL",
        flag="--base-url",
    ),
    Key(
        name="effort",
        check=text,
        default=None,
        what="how much the model thinks: `low`, `medium`, `high`, or what else it takes",
        metavar="WORD",
        flag="--effort",
    ),
    Key(
        name="max_steps",
        check=count,
        default=50,
        what="most model requests of a run",
        metavar="N",
        flag="--max-steps",
    ),
    Key(
        name="max_output_tokens",
        check=count,
        default=None,
        what="most tokens of one answer, if not the library's default",
        metavar="N",
        flag="--max-output-tokens",
    ),
    Key(
        name="mode",
        check=mode,
        default="ask",
        what="what is asked about: `ask`, `auto-edit`, `plan`; by flag also `yolo`",
        metavar="MODE",
        words=(*MODES, YOLO),
        flag="--mode",
        free=lambda value: value == "plan",
    ),
    Key(
        name="theme",
        check=one_of(*THEMES),
        default="auto",
        what="colours: `auto`, `dark`, `light`, `none`",
        metavar="THEME",
        words=THEMES,
        flag="--theme",
        free=_always,
    ),
    Key(
        name="show_reasoning",
        check=switch,
        default=False,
        what="show the model's thinking",
        flag="--show-reasoning",
        free=_always,
        is_switch=True,
    ),
    Key(
        name="notify",
        check=one_of(*NOTIFY),
        default="auto",
        what="when a long run ends or asks: `auto`, `bell`, `none`",
        metavar="HOW",
        words=NOTIFY,
        flag="--notify",
        free=_always,
    ),
    Key(
        name="allow_writes",
        check=switch,
        default=None,
        what="offer the tools that change files; unset: where somebody can be asked",
        flag="--allow-writes",
        is_switch=True,
    ),
    Key(
        name="allow_commands",
        check=switch,
        default=None,
        what="offer the tool that runs commands as you, no sandbox; unset: where somebody can be asked",
        flag="--allow-commands",
        is_switch=True,
    ),
    Key(
        name="env",
        check=variables,
        default=(),
        what="further environment variables that commands get, by name",
        metavar="NAME",
        flag="--env",
        is_list=True,
    ),
    Key(
        name="fetch",
        check=switch,
        default=False,
        what="let the model read pages of the public web (extra: web)",
        flag="--fetch",
        is_switch=True,
    ),
    Key(
        name="search_url",
        check=address,
        default=None,
        what="let the model search the web by this SearXNG",
        metavar="URL",
        flag="--search-url",
    ),
    Key(
        name="mycelium",
        check=switch,
        default=False,
        what="let the model use this machine's mycelium: flows and memory",
        flag="--mycelium",
        is_switch=True,
    ),
    Key(
        name="mcp",
        check=texts,
        default=(),
        what="JSON files of MCP servers whose tools to add",
        metavar="FILE",
        flag="--mcp",
        is_list=True,
        is_path=True,
    ),
    Key(
        name="context_tokens",
        check=count,
        default=None,
        what="how many tokens the model's context holds, where that is not known",
        metavar="N",
        flag="--context-tokens",
    ),
    Key(
        name="compact_at",
        check=share,
        default=0.8,
        what="the share of the context at which older history is summarised",
        metavar="SHARE",
        flag="--compact-at",
    ),
    Key(
        name="limits.usd",
        check=positive,
        default=None,
        what="most US dollars of a run",
        metavar="USD",
        flag="--limit-usd",
    ),
    Key(
        name="limits.tokens",
        check=count,
        default=None,
        what="most tokens of a run",
        metavar="N",
        flag="--limit-tokens",
    ),
    Key(
        name="limits.seconds",
        check=positive,
        default=None,
        what="most seconds of a run, without the time in which you are asked",
        metavar="SECONDS",
        flag="--limit-seconds",
    ),
    Key(
        name="permissions.allow",
        check=texts,
        default=(),
        what="rules: calls that run without asking",
        is_list=True,
    ),
    Key(
        name="permissions.ask",
        check=texts,
        default=(),
        what="rules: calls that are asked about, whatever else allows them",
        is_list=True,
        free=_always,
    ),
    Key(
        name="permissions.deny",
        check=texts,
        default=(),
        what="rules: calls that never run",
        is_list=True,
        free=_always,
    ),
)
BY_NAME: dict[str, Key] = {key.name: key for key in KEYS}
RULES: dict[str, str] = {f"permissions.{word}": word for word in ("allow", "ask", "deny")}
TABLES: tuple[str, ...] = tuple(dict.fromkeys(name.partition(".")[0] for name in BY_NAME if "." in name))
