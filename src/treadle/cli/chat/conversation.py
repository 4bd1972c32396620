"""A conversation: what is sent, cancelled, steered and waits its turn. It knows no terminal and no keys."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Protocol

from treadle.errors import ConfigError, RunError, TreadleError, text_of
from treadle.events import RunStart

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

    from treadle import Agent, Event, FilePart, Message, Run, TextPart
    from treadle.store import Store

    Parts = Sequence[TextPart | FilePart]


class Face(Protocol):
    """Whoever shows a conversation."""

    def event(self, event: Event) -> None:
        """The log goes on."""
        ...

    async def room(self) -> None:
        """Waits as long as there is too much to show already."""
        ...

    def user(self, text: str) -> None:
        """The person said something."""
        ...

    def output(self, text: str) -> None:
        """What a command of the person's own printed, or the client has to show."""
        ...

    def note(self, text: str) -> None:
        """Something worth a line."""
        ...

    def error(self, text: str) -> None:
        """Something went wrong, in a line."""
        ...

    def replay(self, messages: Sequence[Message]) -> None:
        """An earlier conversation goes on."""
        ...

    def cost(self) -> str:
        """What was spent, in words."""
        ...

    def give_back(self, text: str) -> None:
        """What waited will not be said by itself: it is the person's again."""
        ...

    def changed(self) -> None:
        """What waits, or whether something goes on, is not what it was."""
        ...


class Conversation:
    """One session, sent to by one client. What is said while a run goes on waits in `queue`.

    `agent` makes the agent of the next run, and `message` the parts of what is said to it, both when they are needed:
    the model may have been changed meanwhile. `sent` is called once a run has taken them. Nothing is raised for a run
    that fails: the face is told.
    """

    def __init__(
        self,
        face: Face,
        store: Store,
        session: str,
        *,
        agent: Callable[[], Awaitable[Agent[Any, Any]]],
        message: Callable[[str, Agent[Any, Any]], Parts],
        sent: Callable[[], object] = lambda: None,
        shown: Callable[[str], str] = str,
    ) -> None:
        self.face: Face = face
        self.store: Store = store
        self.session: str = session
        self.queue: list[str] = []
        self._agent = agent
        self._message = message
        self._sent = sent
        self._shown = shown
        self._work: asyncio.Task[None] | None = None
        self._run: tuple[Run[Any], Agent[Any, Any]] | None = None
        self._in_run = False  # what goes on is a run that has begun, and tells of its own end
        self._steered: list[str] = []  # what the run was told since it began

    @property
    def busy(self) -> bool:
        """Whether a run, a command or a compaction goes on."""
        return self._work is not None

    @property
    def running(self) -> bool:
        """Whether a run goes on that can be steered."""
        return self._run is not None

    def send(self, text: str) -> None:
        """Says `text`: now, or once all that goes on and waits has ended."""
        if self.busy:
            self.queue.append(text)
            self.face.changed()
        else:
            self.start(self._answer(text))

    def steer(self, text: str) -> None:
        """Says `text` before the next step of the run that goes on."""
        if self._run is None:
            self.send(text)
            return
        run, agent = self._run
        try:
            run.steer(list(self._message(text, agent)))
        except ConfigError:  # it has just ended
            self.send(text)
        else:
            self._steered.append(text)
            self.face.user(self._shown(text))

    def take_back(self) -> str | None:
        """What waits and was said last, to be edited."""
        if not self.queue:
            return None
        taken = self.queue.pop()
        self.face.changed()
        return taken

    def cancel(self) -> bool:
        """Ends what goes on. The conversation stays valid, with what was shown. False where nothing does."""
        if self._work is None:
            return False
        # Soon, and not now: what is cancelled before it has begun never begins, and so never tells of its end.
        asyncio.get_running_loop().call_soon(_cancel_once, self._work)
        return True

    async def idle(self) -> None:
        """Returns when nothing goes on and nothing waits."""
        while self._work is not None:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(self._work)
            await asyncio.sleep(0)

    async def close(self) -> None:
        """Ends what goes on and waits for its end."""
        self.queue.clear()
        while (work := self._work) is not None:
            self.cancel()
            await asyncio.wait([work])

    def start(self, work: Coroutine[Any, Any, bool | None]) -> None:
        """Does `work` as what goes on now. Unless it says False, what waits is said after it."""
        self._work = asyncio.get_running_loop().create_task(self._do(work))
        self.face.changed()

    async def _do(self, work: Coroutine[Any, Any, bool | None]) -> None:
        done: bool | None = False
        self._in_run = False
        try:
            done = await work
        except asyncio.CancelledError:
            if not self._in_run:
                self.face.note("interrupted")
        except Exception as error:  # noqa: BLE001 - the client stays, whatever went wrong in one go
            self.face.error(said(error))
        finally:
            self._work = None
            if done is not False and self.queue:
                self.start(self._answer(self.queue.pop(0)))
            elif self.queue:
                waited, self.queue = "\n".join(self.queue), []
                self.face.give_back(waited)
            self.face.changed()

    async def _answer(self, text: str) -> bool:
        """One run. Whether it went well; if not, its last event told the face. What it has not taken waits again."""
        self.face.user(self._shown(text))
        self._steered = []
        run: Run[Any] | None = None
        try:
            agent = await self._agent()
            self.face.changed()  # the model may be known only now
            run = agent.stream(list(self._message(text, agent)), store=self.store, session=self.session)
            self._run = run, agent
            await self._follow(run)
        except RunError:
            return False
        finally:
            self._run = None
            if run is not None and not self._in_run and await self._has_begun(run.id):
                self._begun()
            if run is None or not self._in_run:  # nothing was sent
                self.queue[:0] = [text, *self._steered]
            else:
                self.queue[:0] = self._steered[len(self._steered) - len(run.unsent) :]
        return True

    async def _follow(self, run: Run[Any]) -> None:
        """Goes along with a run. The face sees its events by the agent's tap, which is told of cancelled ones too."""
        async with run:
            async for event in run:
                if isinstance(event, RunStart) and not self._in_run:  # it is stored
                    self._begun()
                await self.face.room()

    def _begun(self) -> None:
        self._in_run = True
        self._sent()

    async def _has_begun(self, run_id: str) -> bool:
        """Whether the session has the run: it may have been cancelled just as its first event was stored."""
        with contextlib.suppress(TreadleError):
            async for stored in self.store.read(self.session):
                if isinstance(stored.event, RunStart) and stored.event.run_id == run_id:
                    return True
        return False


def _cancel_once(work: asyncio.Task[None]) -> None:
    if not work.cancelling():  # a second time would cut short what ends the tools
        work.cancel()


def said(error: BaseException) -> str:
    """An error as a line for a person."""
    cause = error.__cause__ if isinstance(error, RunError) and error.__cause__ is not None else error
    text = text_of(cause) or type(cause).__name__
    return text if isinstance(cause, TreadleError) else f"{type(cause).__name__}: {text}"
