"""What the keys do."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from prompt_toolkit.application.current import get_app
from prompt_toolkit.filters import Condition, has_completions, is_searching
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.keys import Keys

if TYPE_CHECKING:
    from collections.abc import Callable

    from prompt_toolkit.filters import Filter
    from prompt_toolkit.key_binding import KeyPressEvent

    from treadle.cli.chat.app import App

LEAVE_SECONDS = 2.0
_ANSWERS = ("y", "s", "a", "n", "v")


def bindings(app: App) -> KeyBindings:
    """The keys of the client, over those of an emacs-like prompt."""
    keys, buffer = KeyBindings(), app.buffer
    empty = Condition(lambda: not buffer.text)
    waiting = Condition(lambda: bool(app.client.conversation.queue))

    def on(*sequence: str, do: Callable[[], object], when: Filter = ~is_searching) -> None:
        keys.add(*sequence, filter=when)(lambda _: do())

    on("enter", do=app.enter)
    on("escape", "enter", do=lambda: buffer.insert_text("\n"))
    on("c-j", do=lambda: buffer.insert_text("\n"))
    on("escape", "s", do=app.steer)
    on("s-tab", do=app.client.next_mode)
    on("tab", do=lambda: _complete(app))
    on("up", do=app.take_back, when=~is_searching & empty & waiting)
    on("c-x", "c-e", do=app.edit)
    ending = Ending(app)
    on("c-c", do=ending.interrupt)
    on("<sigint>", do=ending.interrupt)
    on("escape", do=ending.escape, when=~is_searching & ~has_completions)
    on("escape", do=buffer.cancel_completion, when=~is_searching & has_completions)
    on("c-d", do=app.leave, when=~is_searching & empty)
    on("c-z", do=lambda: get_app().suspend_to_background())
    keys.add(Keys.BracketedPaste)(lambda event: _paste(app, event))
    _answering(keys, app)
    return keys


class Ending:
    """What ctrl-c and escape end."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._asked = -LEAVE_SECONDS

    def interrupt(self) -> None:
        """Ends what goes on; else clears the prompt; at an empty one twice within two seconds leaves."""
        app = self._app
        if app.client.conversation.cancel():
            return
        if app.buffer.text:
            app.buffer.reset()
            return
        now = time.monotonic()
        if now - self._asked < LEAVE_SECONDS:
            app.leave()
        self._asked = now
        app.screen.hint("ctrl-c again leaves")

    def escape(self) -> None:
        """Says no to a question, else ends what goes on."""
        if self._app.asking.question is not None:
            self._app.back()
        else:
            self._app.client.conversation.cancel()


def _complete(app: App) -> None:
    if app.buffer.complete_state:
        app.buffer.complete_next()
    else:
        app.buffer.start_completion(select_first=True)


def _paste(app: App, event: KeyPressEvent) -> None:
    event.current_buffer.insert_text(app.client.pastes.fold(event.data))


def _answering(keys: KeyBindings, app: App) -> None:
    choosing = ~is_searching & Condition(lambda: app.asking.stage in ("choice", "rule"))

    @keys.add(Keys.Any, filter=choosing)
    @keys.add("enter", filter=choosing)
    def _answer(event: KeyPressEvent) -> None:
        if (key := event.data.lower()) in _ANSWERS:
            app.answer(key)

    @keys.add(Keys.BracketedPaste, filter=choosing)
    def _keep(event: KeyPressEvent) -> None:
        """A paste is no answer, whatever it says: it is for the prompt."""
        app.keep(app.client.pastes.fold(event.data))
