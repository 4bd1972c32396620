"""A chat client without a terminal: its face writes down what it is told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from treadle import Agent, Message
from treadle.cli.calls import Calls
from treadle.cli.chat.agents import Agents
from treadle.cli.chat.approvals import Approvals
from treadle.cli.chat.client import Client, Parts
from treadle.cli.chat.presence import Presence
from treadle.cli.context import load_context
from treadle.cli.permissions import Permissions
from treadle.cli.settings import Trust, load_settings, paths
from treadle.cli.stored import session_store
from treadle.events import Event
from treadle.toolkit import Workspace


class Heard:
    """A face. `said` has every line that is shown, with what it is in front."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.events: list[Event] = []
        self.given_back: list[str] = []
        self.replayed: list[Message] = []
        self.on_event: Callable[[Event], object] = lambda _: None

    def event(self, event: Event) -> None:
        self.events.append(event)
        self.on_event(event)

    async def room(self) -> None: ...

    def user(self, text: str) -> None:
        self.said.append(f"user: {text}")

    def output(self, text: str) -> None:
        self.said.append(f"output: {text}")

    def note(self, text: str) -> None:
        self.said.append(f"note: {text}")

    def error(self, text: str) -> None:
        self.said.append(f"error: {text}")

    def replay(self, messages: Sequence[Message]) -> None:
        self.replayed += messages

    def cost(self) -> str:
        return "nothing"

    def give_back(self, text: str) -> None:
        self.given_back.append(text)

    def changed(self) -> None: ...


def make_parts(folder: Path, agent: Agent[Any, Any] | None = None, *, mode: str = "ask", **flags: Any) -> Parts:
    """What a client in `folder / "root"` is made of, with its own files in `folder / "home"`."""
    root, environ = folder / "root", {"TREADLE_HOME": str(folder / "home"), "HOME": str(folder)}
    root.mkdir(exist_ok=True)
    project = Trust(paths(environ)).look(root)
    settings = load_settings(root=root, flags={"mode": mode, **flags}, environ=environ, project=project)
    workspace = Workspace(root, allow_commands=True)
    rules = Permissions(settings.mode, settings.rules, root=root)
    context = load_context(project, environ)
    approvals = Approvals(rules, workspace)
    return Parts(
        settings=settings,
        store=session_store(root, environ),
        presence=Presence(folder / "home" / "open"),
        workspace=workspace,
        context=context,
        rules=rules,
        approvals=approvals,
        agents=Agents(settings, workspace, context, approve=approvals, calls=Calls(), given=agent),
    )


def make_client(folder: Path, model: Any, *, tools: Sequence[Any] = (), mode: str = "ask") -> tuple[Client, Heard]:
    """A client that talks to `model`, in a session of its own."""
    face = Heard()
    parts = make_parts(folder, Agent(model, tools=tools, retry=None), mode=mode)
    parts.presence.move_to("first")
    return Client(face, parts, "first"), face
