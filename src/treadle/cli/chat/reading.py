"""What comes from the keyboard: a long paste takes a time that grows with its length, and not with its square."""

from __future__ import annotations

from typing import Any

from prompt_toolkit.input.vt100_parser import Vt100Parser

_END = "\x1b[201~"
_GIVE_UP = "\x03"


class PasteParser(Vt100Parser):
    """The library's parser, which would look through all of a paste again with each piece of it that comes.

    A ctrl-c that comes alone ends a paste, too: its end may have been lost on the way.
    """

    def __init__(self, *given: Any) -> None:
        self._pieces: list[str] = []
        self._tail = ""  # of what has come: the end mark may be cut in two
        super().__init__(*given)

    def feed(self, data: str) -> None:
        """Takes the next piece."""
        if not self._in_bracketed_paste:
            super().feed(data)
            return
        if data == _GIVE_UP:
            data = _END
        self._pieces.append(data)
        recent = self._tail + data
        self._tail = recent[1 - len(_END) :]
        if _END in recent:
            whole, self._pieces, self._tail = "".join(self._pieces), [], ""
            super().feed(whole)
