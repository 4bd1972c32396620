"""The prompt: its text, history, completion, and how pastes look in it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import Completer, Completion
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import History
from prompt_toolkit.layout.processors import Processor, Transformation, TransformationInput

from treadle.cli.chat.commands import all_commands
from treadle.cli.chat.files import ranked
from treadle.cli.terminal import neutral, one_line

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable

    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document
    from prompt_toolkit.formatted_text import StyleAndTextTuples

    from treadle.cli.chat.client import Client
    from treadle.cli.chat.files import Files
    from treadle.cli.chat.history import HistoryFile
    from treadle.cli.chat.pastes import Pastes

_COMMAND = re.compile(r"/([\w:-]*)")
_PATH = re.compile(r'(?:^|\s)@("[^"\n]*|[^\s"]*)$')


def prompt_buffer(client: Client, files: Files, history: HistoryFile) -> Buffer:
    """The text that is edited, with what is offered while it is typed."""
    buffer: Buffer = Buffer(
        completer=PromptCompleter(client, files),
        history=PromptHistory(history, client.pastes),
        multiline=True,
        complete_while_typing=Condition(lambda: completes(buffer.document.text_before_cursor)),
    )
    return buffer


def completes(text: str) -> bool:
    """Whether something is offered for what stands before the cursor."""
    return _COMMAND.fullmatch(text) is not None or _named(text) is not None


class PromptCompleter(Completer):
    """Commands behind `/`, files behind `@`. Those that are nearest to what is typed come first."""

    def __init__(self, client: Client, files: Files) -> None:
        self._client = client
        self._files = files

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:  # noqa: ARG002
        """Nothing: what is offered may have to be looked up first."""
        return ()

    async def get_completions_async(
        self,
        document: Document,
        complete_event: CompleteEvent,  # noqa: ARG002 - the library's signature
    ) -> AsyncGenerator[Completion, None]:
        """What is offered for the text before the cursor."""
        text = document.text_before_cursor
        if (command := _COMMAND.fullmatch(text)) is not None:
            for offered in self._commands(command[1]):
                yield offered
        elif (typed := _named(text)) is not None:
            for path in await self._files.matching(typed.lstrip('"')):
                quoted = f'"{path}"' if " " in path else path
                yield Completion(quoted, -len(typed), display=one_line(path))

    def _commands(self, typed: str) -> Iterable[Completion]:
        commands = {command.name: command for command in all_commands(self._client)}
        for name in ranked(typed, list(commands)) if typed else commands:
            command = commands[name]
            display = one_line(f"/{name} {command.hint}".rstrip())
            end = " " if command.hint else ""
            yield Completion(f"{name}{end}", -len(typed), display=display, display_meta=one_line(command.what))


def _named(text: str) -> str | None:
    """What is typed of a path behind an `@`, up to the cursor."""
    found = _PATH.search(text)
    return None if found is None else found[1]


class PromptHistory(History):
    """The lines of all sessions; long ones are folded like pastes."""

    def __init__(self, file: HistoryFile, pastes: Pastes) -> None:
        super().__init__()
        self._file = file
        self._pastes = pastes

    def load_history_strings(self) -> Iterable[str]:
        """What earlier sessions left, the newest first."""
        return [self._pastes.fold(entry) for entry in reversed(self._file.read())]

    def store_string(self, string: str) -> None:
        """Keeps a line, whole."""
        self._file.add(self._pastes.whole(string))


class ShownPastes(Processor):
    """Shows what stands for a paste instead of its character, and nothing that a terminal would obey."""

    def __init__(self, pastes: Pastes) -> None:
        self._pastes = pastes

    def apply_transformation(self, transformation_input: TransformationInput) -> Transformation:
        """The line as it is shown, and which place in it is which in the text."""
        fragments: StyleAndTextTuples = []
        places = [0]
        for style, text, *_ in transformation_input.fragments:
            for char in text:
                label = self._pastes.label(char)
                fragments.append((style, neutral(char)) if label is None else ("class:paste", label))
                places.append(places[-1] + len(fragments[-1][1]))
        ends = {place: index for index, place in enumerate(places)}
        return Transformation(
            fragments,
            source_to_display=lambda index: places[min(index, len(places) - 1)],
            display_to_source=lambda place: ends.get(place, 0),
        )
