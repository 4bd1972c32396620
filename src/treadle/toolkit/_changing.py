"""The tools that change files, and the one that runs commands."""

from __future__ import annotations

import math
import os
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from treadle.errors import ToolError
from treadle.toolkit import _command
from treadle.toolkit._edit import edited
from treadle.toolkit._encoding import HEAD_BYTES, Encoding, encoding_of, encoding_of_all
from treadle.toolkit._names import brief, shown
from treadle.toolkit._reading import told
from treadle.tools import ToolOutput  # noqa: TC001 - read by `tool`

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from treadle.toolkit._edit import Change
    from treadle.toolkit.root import Root

MAX_EDIT_BYTES = 16 * 1024 * 1024
MAX_COMMAND_SECONDS = 600


@dataclass(frozen=True)
class Edit:
    """One replacement."""

    old_text: str
    new_text: str


class Plan(NamedTuple):
    """A file as it is and as it would be; `status` is None where there is none yet."""

    old: str
    new: str
    data: bytes
    status: os.stat_result | None
    changes: Sequence[Change] = ()


class Changing:
    """The functions behind the writing tools. Their docstrings are what a model reads."""

    def __init__(self, root: Root, environment: Mapping[str, str]) -> None:
        self._root = root
        self._environment = dict(environment)
        self._lock = threading.Lock()  # between reading a file and replacing it

    def write_file(self, path: str, content: str) -> str:
        """Write a whole file. An old one is replaced; directories that are missing are made.

        Args:
            path: The file, relative to the working directory.
            content: All of the new content.
        """
        with self._lock:
            plan = self.plan_write(path, content)
            with told(path):
                above = self._root.inside(path).rpartition("/")[0]
                if plan.status is None and above:
                    self._root.mkdir(above, parents=True)
                is_new = self._root.write(path, plan.data, expected=plan.status)
        return f"{'Made' if is_new else 'Replaced'} {shown(path)}: {len(plan.data)} bytes."

    def edit_file(self, path: str, edits: list[Edit]) -> str:
        """Replace parts of a text file. All edits are made, or none if one of them cannot be.

        Args:
            path: The file, relative to the working directory.
            edits: Each puts `new_text` in the place of `old_text`, which must be in the file exactly once, character
                for character; quote enough lines for that. All are looked for in the file as it is before the call.
        """
        with self._lock:
            plan = self.plan_edit(path, edits)
            with told(path):
                self._root.write(path, plan.data, expected=plan.status)
        lines = ", ".join(str(change.line) for change in plan.changes)
        return f"Edited {shown(path)} at line{'s' * (len(plan.changes) > 1)} {lines}."

    async def run_command(self, command: str, timeout_seconds: float = 120) -> ToolOutput:
        """Run a shell command in the working directory. It has no input and no terminal.

        Its output comes back with the exit code; of long output the beginning and the end. What it leaves running in
        the background is ended.

        Args:
            command: The command line, for the shell.
            timeout_seconds: After this time the command is ended, with all that it started. At most 600.
        """
        if not (math.isfinite(timeout_seconds) and 0 < timeout_seconds <= MAX_COMMAND_SECONDS):
            raise ToolError(f"timeout_seconds is above 0 and at most {MAX_COMMAND_SECONDS}")
        return await _command.run(self._root, command, timeout_seconds, self._environment)

    def plan_write(self, path: str, content: str) -> Plan:
        """What `write_file` would do. The mark that a Unicode file begins with stays, and so does its encoding."""
        if path.endswith("/"):
            raise ToolError(f"{brief(path)} names a directory; a file has a name of its own")
        old, status, encoding = b"", None, Encoding("utf-8")
        with told(path):
            try:
                with self._root.open(path) as file:
                    status = os.fstat(file.fileno())
                    old = file.read(MAX_EDIT_BYTES)
            except FileNotFoundError:
                pass
        there = encoding_of(old[:HEAD_BYTES])
        if there is not None and there.mark:
            encoding, content = there, content.removeprefix("\ufeff")
        try:
            data = encoding.encode(content)
        except UnicodeError:
            raise ToolError("content has half a surrogate pair in it, which is no character") from None
        shown_old = "" if there is None else old[len(there.mark) :].decode(there.codec, "replace")
        return Plan(shown_old, content, data, status)

    def plan_edit(self, path: str, edits: Sequence[Edit]) -> Plan:
        """What `edit_file` would do."""
        with told(path), self._root.open(path) as file:
            status = os.fstat(file.fileno())
            data = file.read(MAX_EDIT_BYTES + 1)
        if len(data) > MAX_EDIT_BYTES:
            raise ToolError(f"{brief(path)} is larger than {MAX_EDIT_BYTES >> 20} MiB; edit it with a command")
        encoding = encoding_of_all(data)
        if encoding is None:
            raise ToolError(f"{brief(path)} is a binary file, or text in an encoding that cannot be told")
        try:
            text = encoding.decode(data)
        except UnicodeError:
            raise ToolError(f"{brief(path)} is broken {encoding.codec} and could not be kept as it is") from None
        try:
            new, changes = edited(text, [(edit.old_text, edit.new_text) for edit in edits], encoding)
        except ToolError as error:
            raise ToolError(f"{brief(path)}: {error}") from None
        return Plan(text, new, encoding.encode(new), status, changes)
