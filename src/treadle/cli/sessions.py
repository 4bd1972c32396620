"""`treadle sessions`: the stored conversations of a directory, from outside the chat."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from treadle.cli.exits import Exit
from treadle.cli.settings._commands import print_line
from treadle.cli.stored import chosen, described, session_store
from treadle.cli.terminal import complain, neutral
from treadle.cli.warned import warnings_shown
from treadle.errors import ConfigError, StoreError

if TYPE_CHECKING:
    import argparse

    from treadle.store import JsonLinesStore

_LISTS = "treadle sessions list"


def sessions(arguments: argparse.Namespace) -> int:
    """Lists the sessions of a directory, writes one out, or takes one away."""
    from treadle.toolkit import Root

    with Root(arguments.root):  # a directory that is not there has no sessions, and is rather a slip
        store = session_store(arguments.root, os.environ)
    action = {"list": _list, "export": _export, "remove": _remove}[arguments.sessions]
    try:
        with warnings_shown("treadle"):
            return asyncio.run(action(store, arguments))
    except StoreError as error:
        return complain(str(error), Exit.FAILED)


async def _list(store: JsonLinesStore, arguments: argparse.Namespace) -> int:
    found = await store.list()
    if arguments.json:
        print(json.dumps([msgspec.to_builtins(info) for info in found], indent=2))
        return Exit.COMPLETE
    for info in found:
        print_line(described(info).strip())
    if not found:
        print_line("no sessions are stored yet")
    return Exit.COMPLETE


async def _export(store: JsonLinesStore, arguments: argparse.Namespace) -> int:
    from treadle.cli.exporting import exported, write_new
    from treadle.sessions import load

    session = chosen(arguments.id, [info.id for info in await store.list()], _LISTS)
    messages = await load(store, session, originals=True)
    path = Path(arguments.file).expanduser() if arguments.file is not None else None  # noqa: ASYNC240 - asks nothing
    as_json = arguments.json or (path is not None and path.suffix == ".json")
    data = exported(session, messages, as_json=as_json)
    if path is not None:
        write_new(path, data)
        print_line(f"written to {path}")
    elif sys.stdout.isatty():
        print(neutral(data.decode()), end="")
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
    return Exit.COMPLETE


async def _remove(store: JsonLinesStore, arguments: argparse.Namespace) -> int:
    """Takes the whole id: nothing brings a session back that was removed by a slip."""
    from treadle.cli.chat.presence import Presence
    from treadle.cli.settings import paths
    from treadle.sessions import check_session_id

    try:
        check_session_id(arguments.id)
    except StoreError as error:
        raise ConfigError(f"{error}; {_LISTS} lists them") from None
    presence = Presence(paths(os.environ).state_dir / "open")
    presence.move_to(arguments.id)  # a client that has it open would go on with what is not there any more
    try:
        await store.remove(arguments.id)
    finally:
        presence.leave()
    print_line(f"session {arguments.id} is removed")
    return Exit.COMPLETE
