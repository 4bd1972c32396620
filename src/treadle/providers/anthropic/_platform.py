"""Where Claude models are served, and how each place differs from Anthropic's own. As of 2026-11."""

from __future__ import annotations

import msgspec

from treadle.providers._endpoint import Key


class Platform(msgspec.Struct, frozen=True, kw_only=True):
    """One place: its address and what it takes. The defaults are those of Anthropic's own API.

    Paths stand behind the address, without its `endings`. A `version` is told in the body, and then the model is named
    in the path alone.
    """

    provider: str = "anthropic"
    key: Key = Key(variables=("ANTHROPIC_API_KEY",), required=True, header="x-api-key", prefix="")
    base_url: str = "https://api.anthropic.com"
    base_url_variables: tuple[str, ...] = ("ANTHROPIC_BASE_URL",)
    endings: tuple[str, ...] = ("/messages", "/v1")
    path: str = "/v1/messages"
    counting_path: str = "/v1/messages/count_tokens"
    version: str | None = None
    marks_by_itself: bool = True
    """Whether one cache mark beside the messages is put on the last block by the server."""
    hosted_mcp: bool = True
    hosted_web_search: bool = True
    output_schema: bool = True
    file_urls: bool = True
    missing_model: str = "the models are listed at https://platform.claude.com/docs/en/about-claude/models"
    """What to do when the server knows no such model."""


ANTHROPIC = Platform()

# Each takes the signatures of the others: "values generated on one platform will be compatible with another"
# (Anthropic's page on thinking, 2026-11). Nothing is promised of what their own tools leave behind.
FAMILY = frozenset({"anthropic", "anthropic-vertex", "anthropic-bedrock"})
