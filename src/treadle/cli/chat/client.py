"""The client: what a line typed at the prompt does. It knows neither terminal nor keys."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

from treadle.cli.chat.conversation import Conversation, Face, said
from treadle.cli.chat.drafts import message_of
from treadle.cli.chat.pastes import Pastes
from treadle.cli.chat.session_commands import tokens_after
from treadle.errors import ToolError, TreadleError

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from treadle import Agent, Event, FilePart, TextPart
    from treadle.cli.chat.agents import Agents
    from treadle.cli.chat.approvals import Approvals
    from treadle.cli.chat.presence import Presence
    from treadle.cli.context import Context
    from treadle.cli.settings import Settings
    from treadle.store import Store
    from treadle.toolkit import Workspace

COMMAND_SECONDS = 600
MODES = ("ask", "auto-edit", "plan")


class Parts:
    """What a client is made of."""

    def __init__(
        self,
        *,
        settings: Settings,
        store: Store,
        presence: Presence,
        workspace: Workspace,
        context: Context,
        rules: Any,
        approvals: Approvals,
        agents: Agents,
    ) -> None:
        self.settings: Settings = settings
        self.store: Store = store
        self.presence: Presence = presence
        self.workspace: Workspace = workspace
        self.context: Context = context
        self.rules: Any = rules
        self.approvals: Approvals = approvals
        self.agents: Agents = agents


class Client:
    """Takes lines: to the model, to a command of the client (`/`), to the shell (`!`)."""

    def __init__(self, face: Face, parts: Parts, session: str) -> None:
        self.face: Face = face
        self.parts: Parts = parts
        self.pastes: Pastes = Pastes()
        self.leaving: asyncio.Event = asyncio.Event()
        self.conversation: Conversation = Conversation(
            face,
            parts.store,
            session,
            agent=parts.agents.next_run,
            message=self._message,
            sent=self._outputs_sent,
            shown=self.pastes.shown,
        )
        self.context_tokens: int = 0  # of the last request and its answer
        parts.agents.tap, parts.agents.note, parts.approvals.changed = self.tap, face.note, face.changed
        self._outputs: list[str] = []
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def root(self) -> Path:
        """The directory that the client works in."""
        return Path(self.parts.workspace.root.path)

    def tap(self, event: Event) -> None:
        """Takes every event of the client's runs."""
        self.context_tokens = tokens_after(event, self.context_tokens)
        self.face.event(event)

    def enter(self, line: str) -> None:
        """Does what a line asks for."""
        if not line.strip():
            return
        if line.startswith("!"):
            self._shell(self.pastes.whole(line[1:]).strip())
        elif line.startswith("/") and (word := line[1:].partition(" ")[0].partition("\n")[0]) and "/" not in word:
            self._command(word, line[1 + len(word) :].strip())
        else:
            self.conversation.send(line)

    def steer(self, line: str) -> None:
        """Says a line before the next step of the run that goes on."""
        if line.strip():
            self.conversation.steer(line)

    async def choose_model(self) -> None:
        """Settles the model where nobody named one."""
        await self.parts.agents.choose()
        self.face.changed()

    def next_mode(self) -> str:
        """Goes to the mode after the one that holds."""
        mode = self.parts.rules.mode
        index = MODES.index(mode) + 1 if mode in MODES else 0
        self.set_mode(MODES[index % len(MODES)])
        return MODES[index % len(MODES)]

    def set_mode(self, mode: str) -> None:
        """Changes what is asked about; what waits for an answer may need none any more."""
        self.parts.rules.mode = mode
        self.parts.approvals.look_again()
        self.face.changed()

    async def close(self) -> None:
        """Ends everything that goes on, and gives the session free."""
        for task in tuple(self._tasks):
            task.cancel()
        await self.conversation.close()
        await self.parts.agents.close()
        self.parts.presence.leave()

    async def settled(self) -> None:
        """Returns when nothing goes on any more."""
        while self._tasks or self.conversation.busy:
            await asyncio.gather(*self._tasks, self.conversation.idle())
            await asyncio.sleep(0)

    def do(self, work: Coroutine[Any, Any, None]) -> None:
        """Does something beside the conversation. What fails is told."""
        task = asyncio.get_running_loop().create_task(self._told(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _told(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except TreadleError as error:
            self.face.error(said(error))
        except Exception as error:  # noqa: BLE001 - the client stays, whatever a command did
            self.face.error(f"{type(error).__name__}: {error}")

    def _command(self, word: str, argument: str) -> None:
        from treadle.cli.chat.commands import find

        found = find(self, word)
        if isinstance(found, str):
            self.face.error(found)
        elif not found.alone:
            self.do(found.run(self, argument))
        elif self.conversation.busy:
            self.face.error(f"/{word} has to wait: something goes on; ctrl-c ends it")
        else:
            self.conversation.start(found.run(self, argument))

    def _shell(self, command: str) -> None:
        if not command:
            self.face.error("! is followed by a command, like !git status")
        elif self.conversation.busy:
            self.face.error("a command has to wait: something goes on; ctrl-c ends it")
        else:
            self.conversation.start(self._run_command(command))

    async def _run_command(self, command: str) -> None:
        """Runs the person's own command, as the model's are run, and keeps what it printed for the next message."""
        tools = {tool.name: tool for tool in await self.parts.workspace.tools()}
        self.face.user(f"!{command}")
        try:
            output = await tools["run_command"].invoke({"command": command, "timeout_seconds": COMMAND_SECONDS})
        except ToolError as error:
            self.face.error(str(error))
            return
        text = str(output.content)
        self.face.output(text)
        self._outputs.append(f"I ran this command myself:\n$ {command}\n{text}")

    def _message(self, text: str, agent: Agent[Any, Any]) -> list[TextPart | FilePart]:
        files = agent.model.capabilities.files
        outputs = () if self.conversation.running else self._outputs  # which have gone along with what began the run
        made = message_of(
            self.pastes.whole(text), root=self.root, typed=self.pastes.typed(text), outputs=outputs, files=files
        )
        for note in made.notes:
            self.face.note(note)
        return made.parts

    def _outputs_sent(self) -> None:
        self._outputs = []
