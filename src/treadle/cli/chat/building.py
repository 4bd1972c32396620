"""Puts a client together from the settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from treadle.cli.calls import Calls
from treadle.cli.chat.agents import Agents
from treadle.cli.chat.approvals import Approvals
from treadle.cli.chat.client import Parts
from treadle.cli.chat.presence import Presence
from treadle.cli.chat.view import View, choose_theme
from treadle.cli.context import load_context
from treadle.cli.permissions import load_permissions
from treadle.cli.settings import paths
from treadle.cli.stored import chosen, session_store
from treadle.errors import StoreError
from treadle.sessions import load, new_session_id
from treadle.toolkit import Workspace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from treadle import Agent, Message
    from treadle.cli.settings import Settings
    from treadle.store import Store


class Built(NamedTuple):
    """What every kind of client is made of."""

    parts: Parts
    view: View
    opened: Opened


class Opened(NamedTuple):
    """The session that a client begins with, and what to say of it."""

    session: str
    messages: tuple[Message, ...] = ()
    notes: tuple[str, ...] = ()


async def build(
    settings: Settings,
    wanted: str | None,
    environ: Mapping[str, str],
    given: Agent[Any, Any] | None,
    *,
    drawn: bool = True,
) -> Built:
    """The parts of a client for the directory of the settings.

    `wanted` is the session to go on with: "" the last, None a new one. `given` is an agent of the user's own, and
    `drawn` says that the terminal can draw. Raises `ConfigError` and `StoreError`.
    """
    where, root = paths(environ), settings.project.path
    store = session_store(root, environ)
    presence = Presence(where.state_dir / "open")
    opened = await _opened(store, presence, wanted)
    variables = {name: environ[name] for name in settings.env if name in environ}
    workspace = Workspace(root, allow_commands=True, environment=variables)
    rules = load_permissions(settings, root=Path(root), environ=environ)
    context, calls, approvals = load_context(settings.project, environ), Calls(), Approvals(rules, workspace)
    agents = Agents(settings, workspace, context, approve=approvals, calls=calls, given=given)
    view = View(
        choose_theme(settings.theme, environ) if drawn else "none",
        show_reasoning=settings.show_reasoning,
        change=calls.change,
        model=agents.model,
        mode=rules.mode,
        window=settings.context_tokens,
        listed_prices=settings.base_url is None,
    )
    parts = Parts(
        settings=settings,
        store=store,
        presence=presence,
        workspace=workspace,
        context=context,
        rules=rules,
        approvals=approvals,
        agents=agents,
    )
    return Built(parts, view, opened)


async def _opened(store: Store, presence: Presence, wanted: str | None) -> Opened:
    """The session. Of one that another client has open a copy goes on."""
    if wanted is None:
        session = new_session_id()
        presence.move_to(session)
        return Opened(session)
    session = chosen(wanted, [info.id for info in await store.list()])
    try:
        presence.move_to(session)
    except StoreError as error:
        copy = await store.fork(session)
        presence.move_to(copy)
        return Opened(copy, await load(store, copy), (f"{error}; a copy of it goes on here, as {copy}",))
    return Opened(session, await load(store, session), (f"session {session} goes on",))
