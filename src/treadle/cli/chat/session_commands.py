"""The commands about sessions: which one goes on, where it is forked, and how it is written out."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from treadle.cli.stored import chosen, described
from treadle.errors import ConfigError, NoSuchSessionError, StoreError
from treadle.events import Compaction, ModelFinish, RunStart, StepStart
from treadle.messages import TextPart, UserMessage
from treadle.sessions import load, new_session_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from treadle import Event, Message
    from treadle.cli.chat.client import Client
    from treadle.store import Store

MAX_SHOWN = 20


class Turn(NamedTuple):
    """Something that the person said, and the `seq` of the event that began its run."""

    seq: int
    text: str


async def clear(client: Client, _argument: str) -> None:
    """Begins a new session. The old one stays stored."""
    old = client.conversation.session
    await move(client, new_session_id())
    stored = any(info.id == old for info in await client.parts.store.list())
    client.face.note(f"a new conversation{f'; /resume {old} goes back' if stored else ''}")


async def show(client: Client, _argument: str) -> None:
    """Lists the sessions, the newest first."""
    found = await client.parts.store.list()
    lines = [described(info, current=info.id == client.conversation.session) for info in found[:MAX_SHOWN]]
    more = [f"  and {len(found) - MAX_SHOWN} older ones"] if len(found) > MAX_SHOWN else []
    client.face.output("\n".join(["sessions:", *lines, *more] if lines else ["no sessions are stored yet"]))


async def resume(client: Client, argument: str) -> None:
    """Goes on with a session by its id, the beginning of it, or with the last one."""
    others = [info.id for info in await client.parts.store.list() if info.id != client.conversation.session]
    session = chosen(argument, others)
    messages = await load(client.parts.store, session)
    await move(client, session)
    client.face.replay(messages)
    client.face.note(f"session {session} goes on")


async def fork(client: Client, argument: str) -> None:
    """Goes on in a copy of the session, from before one of the person's messages."""
    turns = await turns_of(client)
    if not turns:
        raise ConfigError("there is nothing to fork yet")
    if not argument:
        lines = [f"  {number}  {' '.join(turn.text[:200].split())[:70]}" for number, turn in enumerate(turns, 1)]
        title = "/fork NUMBER goes on from before a message:"
        client.face.output("\n".join([title, *lines]))
        return
    if not argument.isdecimal() or not 0 < int(argument[:9]) <= len(turns):
        raise ConfigError(f"/fork takes a number from 1 to {len(turns)}; /fork alone lists them")
    await _branch(client, turns[int(argument) - 1])
    client.face.note(f"session {client.conversation.session} goes on from before message {argument}")


async def undo(client: Client, _argument: str) -> None:
    """Goes on from before the last message, in a copy: the log keeps everything."""
    turns = await turns_of(client)
    if not turns:
        raise ConfigError("there is nothing to take back")
    before = client.conversation.session
    await _branch(client, turns[-1])
    client.face.note(f"the last message is taken back; session {before} still has it")


async def _branch(client: Client, turn: Turn) -> None:
    conversation = client.conversation
    session = new_session_id()
    if turn.seq:
        await conversation.store.fork(conversation.session, turn.seq, session)
    await move(client, session)
    client.face.give_back(client.pastes.fold(turn.text))


async def turns_of(client: Client) -> list[Turn]:
    """What the person said in the session, in order."""
    turns: list[Turn] = []
    own: set[str] = set()  # runs that are no sub-agent's
    try:
        async for stored in client.parts.store.read(client.conversation.session):
            event = stored.event
            if isinstance(event, RunStart) and event.parent is None:
                own.add(event.run_id)
            # A step begins with what steered the run.
            if isinstance(event, RunStart | StepStart) and event.run_id in own and (text := _said(event.input)):
                turns.append(Turn(stored.seq, text))
    except NoSuchSessionError:
        return []
    return turns


async def compact(client: Client, argument: str) -> None:
    """Has the model sum up the conversation; the next message goes on from the summary."""
    from treadle.compaction import summarize

    conversation, parts = client.conversation, client.parts
    messages = await _stored(client)
    if not messages:
        raise ConfigError("there is nothing to sum up yet")
    agent = await parts.agents.agent()
    client.face.note("summing up ...")
    event = await summarize(agent, messages, focus=argument or None)
    await parts.store.append(conversation.session, [event], durable=True)
    client.tap(event)


async def export(client: Client, argument: str) -> None:
    """Writes the conversation to a new file."""
    from treadle.cli.exporting import exported, write_new

    session = client.conversation.session
    messages = await _stored(client, originals=True)
    if not messages:
        raise ConfigError("there is nothing to export yet")
    path = client.root / Path(argument or f"treadle-{session}.md").expanduser()  # noqa: ASYNC240 - asks nothing
    write_new(path, exported(session, messages, as_json=path.suffix == ".json"))
    client.face.note(f"written to {path}")


async def move(client: Client, session: str) -> None:
    """Goes on in another session. Raises `StoreError` where another client has it open."""
    tokens = await context_tokens(client.parts.store, session)
    client.parts.presence.move_to(session)
    client.conversation.session = session
    client.context_tokens = tokens
    client.face.changed()


async def context_tokens(store: Store, session: str) -> int:
    """How much of the context a session fills, by the last answer in it. 0 is not known."""
    tokens = 0
    with contextlib.suppress(NoSuchSessionError):
        async for stored in store.read(session):
            tokens = tokens_after(stored.event, tokens)
    return tokens


def tokens_after(event: Event, before: int) -> int:
    """How much of the context is filled after an event. What a summary fills is known with the next answer."""
    if isinstance(event, Compaction):
        return 0
    return event.usage.total_tokens if isinstance(event, ModelFinish) and event.usage is not None else before


async def is_stored(client: Client) -> bool:
    """Whether anything of the session is kept, to go on with."""
    with contextlib.suppress(StoreError):
        async for _ in client.parts.store.read(client.conversation.session):
            return True
    return False


async def _stored(client: Client, *, originals: bool = False) -> tuple[Message, ...]:
    try:
        return await load(client.parts.store, client.conversation.session, originals=originals)
    except NoSuchSessionError:
        return ()


def _said(messages: Sequence[Message]) -> str:
    """The text that the person typed: the last part of the last message of theirs."""
    texts = [
        part.text
        for message in messages
        if isinstance(message, UserMessage)
        for part in message.content
        if isinstance(part, TextPart)
    ]
    return texts[-1] if texts else ""
