"""What a server asks of the person in front of the program."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from treadle.approval import Allow, Decision, Deny, Edit
from treadle.mcp._spec import log

if TYPE_CHECKING:
    from treadle.mcp._spec import Life


class Elicitation(msgspec.Struct, frozen=True):
    """A server's question: a form with a JSON `schema` of flat properties, or a `url` that the person should open.

    The answer is a decision as of an approval: `Edit(values)` fills in the form, `Allow()` takes its defaults or
    agrees to the URL, `Deny()` declines, `Pause()` leaves it open.
    """

    server: str
    message: str
    schema: dict[str, Any] | None = None
    url: str | None = None


Elicit: TypeAlias = Callable[[Elicitation], Decision | Awaitable[Decision]]


async def answer(elicit: Elicit, life: Life, params: Any) -> Any:
    """The SDK's `ElicitResult`. Time that the person takes counts for no timeout. A function that fails declines."""
    import mcp_types as types

    schema, url = getattr(params, "requested_schema", None), getattr(params, "url", None)
    try:
        with life.asking_a_person():
            decision = elicit(Elicitation(life.name, params.message, schema, url))
            if inspect.isawaitable(decision):
                decision = await decision
        if isinstance(decision, Allow | Edit):
            content = None if schema is None else _values(decision, schema)
            return types.ElicitResult(action="accept", content=content)
    except Exception:  # noqa: BLE001 - what cannot say yes says no
        log.exception("the answer to a question of MCP server %s failed; it is declined", life.name)
        return types.ElicitResult(action="decline")
    return types.ElicitResult(action="decline" if isinstance(decision, Deny) else "cancel")


def _values(decision: Allow | Edit, schema: dict[str, Any]) -> dict[str, Any]:
    properties = schema.get("properties") or {}
    defaults = {name: about for name, about in properties.items() if isinstance(about, dict) and "default" in about}
    values = {name: about["default"] for name, about in defaults.items()}
    if isinstance(decision, Edit):
        given = decision.args
        values |= msgspec.json.decode(given) if isinstance(given, str) else given
    return values
