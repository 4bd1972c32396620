"""Long pastes: one character each while a prompt is edited, whole when it is sent."""

from __future__ import annotations

import re

from treadle.messages import encodable

# Private use: no text has these characters for what they are, and what is pasted loses them.
_FIRST, _LAST = 0xF0000, 0xFFFFD
_OURS = re.compile(f"[{chr(_FIRST)}-{chr(_LAST)}]")
_UNKNOWN = "\ufffd"
MAX_LINES = 8
MAX_CHARACTERS = 1_000


class Pastes:
    """The pastes of one client. Each is held as a character, so that the cursor and a deletion take it as a unit."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._names: dict[str, str] = {}

    def fold(self, text: str, name: str | None = None) -> str:
        """What to put into the prompt for a pasted text: short ones as they are, a long one as its character.

        A text with a `name` is always folded, and shown as that.
        """
        text = plain(text)
        if name is not None:
            self._names[text] = name
        elif text.count("\n") < MAX_LINES and len(text) <= MAX_CHARACTERS:
            return text
        if text in self._texts:
            return chr(_FIRST + self._texts.index(text))
        if _FIRST + len(self._texts) > _LAST:
            return text
        self._texts.append(text)
        return chr(_FIRST + len(self._texts) - 1)

    def whole(self, text: str) -> str:
        """`text` with every paste in full."""
        return _OURS.sub(lambda found: self._text(found[0]) or _UNKNOWN, text)

    def shown(self, text: str) -> str:
        """`text` with every paste as what stands for it on the screen."""
        return _OURS.sub(lambda found: self.label(found[0]) or _UNKNOWN, text)

    def typed(self, text: str) -> str:
        """`text` as it was typed: what was only pasted is left out, and named texts are their names."""
        return _OURS.sub(lambda found: self._names.get(self._text(found[0]) or "", _UNKNOWN), text)

    def label(self, character: str) -> str | None:
        """What is shown for a paste's character; None for any other."""
        text = self._text(character)
        if text is None:
            return None
        if text in self._names:
            return f"[{self._names[text]}]"
        lines = text.count("\n") + (not text.endswith("\n"))
        return f"[pasted {lines:,} lines]" if lines > 1 else f"[pasted {len(text):,} characters]"

    def _text(self, character: str) -> str | None:
        index = ord(character) - _FIRST
        return self._texts[index] if 0 <= index < len(self._texts) else None


def plain(text: str) -> str:
    """`text` with line feeds as its only line ends, without half characters and those that stand for pastes."""
    return _OURS.sub(_UNKNOWN, encodable(text).replace("\r\n", "\n").replace("\r", "\n"))
