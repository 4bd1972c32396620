"""Tools over this machine's `mycelium` program: flows to run, and a memory to search."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from treadle.errors import ToolError
from treadle.toolkit._processes import find_program, run_program

if TYPE_CHECKING:
    from treadle.tools import Tool

MAX_OUTPUT_BYTES = 48 * 1024  # below the cap of a tool result
MAX_ARGUMENT = 4000  # characters


def mycelium(timeout_seconds: float = 600.0) -> list[Tool[..., Any]]:
    """`list_flows`, `run_flow` and `search_memory`; no tools where this machine has no `mycelium` program.

    The program is looked for once, in the absolute folders of `PATH`, and started without a shell, with the host's
    environment and in its current folder. `timeout_seconds` bounds each call; then the program is ended.
    """
    from treadle.tools import tool

    program = find_program("mycelium")
    if program is None:
        return []

    @tool(effect="read", timeout_seconds=timeout_seconds)
    async def list_flows() -> str:
        """List the flows that run_flow can run."""
        return await _run(program, "flow", "list")

    @tool(effect="external", timeout_seconds=timeout_seconds)
    async def run_flow(name: str) -> str:
        """Run a flow and give its output.

        Args:
            name: The flow's name, as list_flows shows it.
        """
        return await _run(program, "flow", "run", _argument("name", name))

    @tool(effect="read", timeout_seconds=timeout_seconds)
    async def search_memory(query: str) -> str:
        """Search what was remembered earlier; ten entries at most.

        Args:
            query: What to look for.
        """
        return await _run(program, "memory", "search", _argument("query", query), "--limit", "10")

    return [list_flows, run_flow, search_memory]


def _argument(name: str, value: str) -> str:
    """`value` as one word that cannot be taken for an option."""
    value = value.strip()
    if not 0 < len(value) <= MAX_ARGUMENT or "\0" in value:
        raise ToolError(f"{name} has 1 to {MAX_ARGUMENT} characters and no NUL among them")
    if value.startswith("-"):
        raise ToolError(f"{name} may not begin with a dash")
    return value


async def _run(program: str, *arguments: str) -> str:
    try:
        ended = await run_program([program, *arguments], max_bytes=MAX_OUTPUT_BYTES)
    except OSError as error:
        raise ToolError(f"mycelium cannot be started: {error.strerror}") from None
    out, err = (piece.decode("utf-8", "replace").strip() for piece in (ended.out, ended.err))
    if ended.code != 0:
        raise ToolError(f"mycelium {arguments[0]} {arguments[1]} failed with code {ended.code}: {err or out}"[:4000])
    note = f"\n[cut: the first {MAX_OUTPUT_BYTES} bytes are shown]" if ended.cut else ""
    return (out or "(no output)") + note
