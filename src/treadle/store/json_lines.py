"""Sessions as files of JSON lines, one file each, only ever added to."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import logging
import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from treadle._threads import run_in_thread, to_its_end
from treadle.errors import NoSuchSessionError, StoreError
from treadle.sessions import SessionInfo, StoredEvent, check_session_id, new_session_id
from treadle.store._claim import Claim, claim_file
from treadle.store._files import growing, opened, refusal, replace, sync_directory
from treadle.store._info import session_info
from treadle.store._lines import FORMAT, Header, encode_lines, read_lines
from treadle.store._writer import Writer

if TYPE_CHECKING:
    import builtins
    from collections.abc import AsyncIterator, Callable, Generator, Sequence

    from treadle.events import Event

_log = logging.getLogger("treadle")

_BATCH = 1_000


class Damage(msgspec.Struct, frozen=True):
    """What could not be read of a session: how many lines, and the file in which they are kept, once set aside."""

    lines: int
    file: Path | None = None


class JsonLinesStore:
    """Keeps each session as `ID.jsonl` in a directory that only its owner may read; makes both when they are needed.

    A line is written by one `write`, and a failed one is taken back, so that a crash can tear the last line at most.
    Lines that cannot be read are passed over with a warning, and told in `damage` by session id; the next claim moves
    them into `ID.damaged`. `ID.lock` is there while somebody holds the claim, and names the process.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory: Path = Path(directory)
        self.damage: dict[str, Damage] = {}
        self._writers: dict[str, Writer] = {}

    def path(self, session: str) -> Path:
        """The file of a session, whether it is there or not."""
        return self.directory / f"{check_session_id(session)}.jsonl"

    async def append(self, session: str, events: Sequence[Event], *, durable: bool = False) -> int:
        """See `Store.append`. Only a `durable` one leaves the event loop's thread."""
        writer = self._writers.get(session)
        if writer is None:
            async with self.claim(session):
                return await self.append(session, events, durable=durable)
        if durable:
            return await run_in_thread(functools.partial(writer.append, events, durable=True))
        return writer.append(events, durable=False)

    async def read(self, session: str, after: int = -1) -> AsyncIterator[StoredEvent]:
        """See `Store.read`."""
        stored = self._stored(session)
        try:
            while batch := await run_in_thread(lambda: list(itertools.islice(stored, _BATCH))):
                for event in batch:
                    if event.seq > after:
                        yield event
        finally:
            with contextlib.suppress(ValueError):  # a thread that was abandoned is at it, and closes it
                stored.close()

    async def list(self) -> builtins.list[SessionInfo]:
        """See `Store.list`. A file that cannot be read is left out, with a warning."""
        return await run_in_thread(self._list)

    async def fork(self, session: str, at: int | None = None, new: str | None = None) -> str:
        """See `Store.fork`."""
        return await run_in_thread(functools.partial(self._fork, session, at, new or new_session_id()))

    async def remove(self, session: str) -> None:
        """Takes a session away for good, with what was set aside of it.

        Raises `NoSuchSessionError` where there is none, and `StoreError` while somebody adds to it.
        """
        await run_in_thread(functools.partial(self._remove, session))

    @contextlib.asynccontextmanager
    async def claim(self, session: str) -> AsyncIterator[None]:
        """See `Store.claim`. Within the process the holder's own store lets every append through."""
        opening = _Opening(functools.partial(self._open, self.path(session), session))
        self._writers[session], claim = await opening.held()
        try:
            yield
        finally:
            self._writers.pop(session).close()
            claim.release()

    # In threads

    def _open(self, path: Path, session: str) -> tuple[Writer, Claim]:
        with refusal(path):
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            claim = claim_file(path.with_suffix(".lock"), session)
            try:
                return Writer(path, session, self._mend(path, session)), claim
            except BaseException:
                claim.release()
                raise

    def _mend(self, path: Path, session: str) -> int:
        """Moves what is torn out of the file, and returns the `seq` that comes next."""
        next_seq, bad = 0, []
        with contextlib.suppress(FileNotFoundError), opened(path) as file:
            for line in read_lines(file, path):
                if isinstance(line.found, StoredEvent):
                    next_seq = max(next_seq, line.found.seq + 1)
                if line.bad:
                    bad.append(line.bad)
        if bad:
            self._set_aside(path, session, bad)
        return next_seq

    def _set_aside(self, path: Path, session: str, bad: Sequence[bytes]) -> None:
        aside = path.with_suffix(".damaged")
        with opened(aside, os.O_WRONLY | os.O_APPEND | os.O_CREAT) as file:
            file.write(b"".join(line if line.endswith(b"\n") else line + b"\n" for line in bad))
            file.flush()
            os.fsync(file.fileno())
        with opened(path) as file:
            replace(path, (line.raw for line in read_lines(file, path) if line.found is not None))
        self._tell(session, Damage(len(bad), aside))

    def _tell(self, session: str, damage: Damage) -> None:
        self.damage[session] = damage
        where = "passed over" if damage.file is None else f"set aside in {damage.file}"
        _log.warning("%d line(s) of session %s could not be read and were %s", damage.lines, session, where)

    def _stored(self, session: str) -> Generator[StoredEvent]:
        """The events of a session, in a file that may be written to meanwhile."""
        path, bad = self.path(session), 0
        with refusal(path):
            try:
                file = opened(path)
            except FileNotFoundError:
                raise NoSuchSessionError(f"there is no session {session!r} in {self.directory}") from None
            with file:
                for line in read_lines(growing(file), path):
                    if isinstance(line.found, StoredEvent):
                        yield line.found
                    bad += bool(line.bad)
        if bad:
            self._tell(session, Damage(bad))

    def _list(self) -> builtins.list[SessionInfo]:
        found = []
        for path in self.directory.glob("*.jsonl"):
            try:
                check_session_id(path.stem)
                with refusal(path), opened(path) as file:
                    found.append(session_info(file, path))
            except StoreError as error:
                _log.warning("a session is left out of the list: %s", error)
        return sorted(found, key=lambda info: info.updated, reverse=True)

    def _fork(self, session: str, at: int | None, new: str) -> str:
        path = self.path(new)
        events = list(self._stored(session))
        end = events[-1].seq + 1 if events else 0
        if at is not None and not 0 <= at <= end:
            raise StoreError(f"session {session!r} can be forked at 0 to {end}, and not at {at!r:.80}")
        header = Header(FORMAT, new, time.time(), session, end if at is None else at)
        kept = (event for event in events if at is None or event.seq < at)
        with refusal(path):
            lines = itertools.chain((encode_lines((header,)),), (encode_lines((event,)) for event in kept))
            claim = claim_file(path.with_suffix(".lock"), new)
            try:
                if path.exists():
                    raise StoreError(f"there is a session {new!r} already: choose another id")
                replace(path, lines)
            finally:
                claim.release()
        return new

    def _remove(self, session: str) -> None:
        path = self.path(session)
        with refusal(path):
            if not os.path.lexists(path):
                raise NoSuchSessionError(f"there is no session {session!r} in {self.directory}")
            claim = claim_file(path.with_suffix(".lock"), session)
            try:
                path.with_suffix(".damaged").unlink(missing_ok=True)
                path.unlink(missing_ok=True)
                sync_directory(path)
            finally:
                claim.release()
        self.damage.pop(session, None)


class _Opening:
    """Claims a session in a thread, and gives it free where nobody waits for it any more."""

    def __init__(self, work: Callable[[], tuple[Writer, Claim]]) -> None:
        self._work = work
        self._mutex = threading.Lock()
        self._made: tuple[Writer, Claim] | None = None
        self._wanted = True

    async def held(self) -> tuple[Writer, Claim]:
        task, cancelled = await to_its_end(run_in_thread(self._make))
        if cancelled is None and not task.cancelled():
            return task.result()
        with self._mutex:  # where the task was cancelled itself, the thread is at it still
            self._wanted = False
            if self._made is not None:
                self._made[1].release()
        raise cancelled or asyncio.CancelledError

    def _make(self) -> tuple[Writer, Claim]:
        made = self._work()
        with self._mutex:
            if self._wanted:
                self._made = made
            else:
                made[1].release()
        return made
