"""Between the protocol's tools and ours."""

from __future__ import annotations

import contextlib
import fnmatch
from typing import TYPE_CHECKING, Any

import msgspec

from treadle.errors import ConfigError
from treadle.events import Effect
from treadle.mcp._spec import log
from treadle.messages import FilePart
from treadle.tools import Tool, ToolOutput

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from treadle.mcp._names import Names
    from treadle.tools import ToolContext

    Call = Callable[[str, dict[str, Any], ToolContext[Any]], Awaitable[ToolOutput]]

_NOTHING = object()


class Bridge:
    """Makes our tools of a server's: those that `allow` and `deny` let through, patterns of the server's own names."""

    def __init__(
        self,
        server: str,
        names: Names,
        call: Call,
        *,
        allow: Sequence[str] | None,
        deny: Sequence[str],
        effect: Effect | None,
    ) -> None:
        self._server = server
        self._names = names
        self._call = call
        self._allow = allow
        self._deny = deny
        self._effect = effect

    def tools(self, listed: Iterable[Any]) -> tuple[Tool[..., Any], ...]:
        """Our tools. One whose schema or name cannot be used is left out with a warning."""
        offered: dict[str, Any] = {}
        for tool in listed:
            if tool.name in offered:
                log.warning("MCP server %s: offers the tool %.80r twice; the first is taken", self._server, tool.name)
            else:
                offered[tool.name] = tool
        for pattern in self._allow or ():
            if not fnmatch.filter(offered, pattern):
                log.warning("MCP server %s: has no tool %r, which is allowed", self._server, pattern)
        wanted = {name: tool for name, tool in offered.items() if self._lets_through(name)}
        names = self._names.give(wanted)
        made = (self._tool(tool, names[name]) for name, tool in wanted.items())
        return tuple(tool for tool in made if tool is not None)

    def _lets_through(self, name: str) -> bool:
        def among(patterns: Sequence[str]) -> bool:
            return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)

        return (self._allow is None or among(self._allow)) and not among(self._deny)

    def _tool(self, tool: Any, name: str) -> Tool[..., Any] | None:
        original = tool.name

        async def call(arguments: dict[str, Any], context: ToolContext[Any]) -> ToolOutput:
            return await self._call(original, arguments, context)

        hints = tool.annotations
        reads = bool(hints and hints.read_only_hint)
        effect = self._effect or (Effect.READ if reads else Effect.EXTERNAL)
        try:
            return Tool.raw(
                name,
                tool.description or tool.title or "",
                tool.input_schema,
                call,
                effect=effect,
                idempotent=reads or bool(hints and hints.idempotent_hint),
                output_schema=tool.output_schema,
            )
        except ConfigError as error:
            log.warning("MCP server %s: left out the tool %.80r: %s", self._server, original, error)
            return None


def output(result: Any) -> ToolOutput:
    """What the model reads of a `CallToolResult`: nothing is left out, and what comes twice is told once."""
    texts: list[str] = []
    files: list[FilePart] = []
    plain: list[str] = []
    for block in result.content:
        if block.type == "text":
            plain.append(block.text)
        shown = _shown(block)
        if isinstance(shown, FilePart):
            files.append(shown)
        else:
            texts.append(shown)
    structured = result.structured_content
    if structured is not None and not _told_already(structured, plain):
        texts.append(msgspec.json.encode(structured).decode())
    text = "\n".join(texts)
    if not text and not files:
        return ToolOutput("The tool failed and gave no reason." if result.is_error else None, (), bool(result.is_error))
    return ToolOutput(text, tuple(files), bool(result.is_error))


def content(block: Any) -> str | FilePart:
    """A piece of content of a prompt or a resource."""
    return _shown(block)


def _shown(block: Any) -> str | FilePart:
    if block.type == "text":
        return str(block.text)
    if block.type in ("image", "audio"):
        return FilePart(block.mime_type, data=block.data)
    if block.type == "resource":
        return resource(block.resource)
    words = [f"{block.title or block.name}: {block.uri}"]
    words += [f"({block.mime_type})"] if block.mime_type else []
    words += [block.description] if block.description else []
    return f"[resource {' '.join(words)}]"


def resource(found: Any) -> str | FilePart:
    """The contents of a resource: its text under its URI, or a file."""
    text = getattr(found, "text", None)
    if text is not None:
        return f"[resource {found.uri}]\n{text}"
    return FilePart(found.mime_type or "application/octet-stream", data=found.blob, name=str(found.uri))


def _told_already(structured: Any, texts: list[str]) -> bool:
    """Whether the texts say the same: as JSON, or each item of a `result` by itself, as some servers write it."""
    values = [_decoded(text) for text in texts]
    if len(values) == 1 and values[0] == structured:
        return True
    if isinstance(structured, dict) and structured.keys() == {"result"}:
        wrapped = structured["result"]
        items = wrapped if isinstance(wrapped, list) else [wrapped]
        same = len(items) == len(texts) and all(
            item in (text, value) for item, text, value in zip(items, texts, values, strict=True)
        )
        return same or (len(values) == 1 and values[0] == wrapped)
    return False


def _decoded(text: str) -> Any:
    with contextlib.suppress(msgspec.MsgspecError, RecursionError):
        return msgspec.json.decode(text)
    return _NOTHING
