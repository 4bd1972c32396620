"""The rules that were saved by answering "always": a file of the program's own, so that it can be rewritten.

A rule is saved for the directory in which it was agreed to: what `make test` does is another thing elsewhere.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from treadle.cli.permissions._rules import PermissionRule, parse_rule
from treadle.cli.settings._files import read_bytes, toml
from treadle.cli.settings._paths import short
from treadle.cli.settings._trust import locked, write_private
from treadle.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_HEAD = '# Rules saved by answering "always", by directory. `treadle permissions` lists, explains and revokes them.\n'


class SavedRules:
    """The saved rules of one directory. `label` is their origin. Failures are `ConfigError`s."""

    label: str

    def __init__(self, file: Path, root: Path, environ: Mapping[str, str]) -> None:
        self._file = Path(os.path.realpath(file))  # where it is a link, the link stays
        self._root = os.path.realpath(root)
        self.label = f"saved rules {short(file, environ)}"

    def rules(self) -> list[PermissionRule]:
        """The rules, oldest first."""
        texts = self._read().get(self._root, [])
        try:
            return [parse_rule(text, "allow", self.label) for text in texts]
        except ConfigError as error:
            raise ConfigError(f"{self.label}: {error}") from None

    def add(self, rules: Sequence[PermissionRule]) -> list[PermissionRule]:
        """Saves rules, and gives them with their origin."""
        new = [parse_rule(rule.text, "allow", self.label) for rule in rules]
        texts = [rule.text for rule in new]
        self._change(lambda before: [*before, *(text for text in texts if text not in before)])
        return new

    def remove(self, text: str) -> bool:
        """Takes a rule out; whether it was there."""
        if text not in self._read().get(self._root, []):
            return False
        self._change(lambda before: [one for one in before if one != text])
        return True

    def _change(self, change: Callable[[list[str]], list[str]]) -> None:
        try:
            with locked(self._file):
                everything = self._read()
                everything[self._root] = change(everything.get(self._root, []))
                write_private(self._file, _written(everything))
        except OSError as error:
            raise ConfigError(f"{self._file} cannot be written: {error.strerror or error}") from None

    def _read(self) -> dict[str, list[str]]:
        data = read_bytes(self._file, self.label)
        return {} if data is None else {path: _texts(entry, self.label) for path, entry in _tables(data, self.label)}


def _tables(data: bytes, label: str) -> list[tuple[str, Any]]:
    found = toml(data, label).get("directories", {})
    if not isinstance(found, dict):
        raise ConfigError(f"{label}: directories is a table")
    return list(found.items())


def _texts(entry: Any, label: str) -> list[str]:
    texts = entry.get("allow") if isinstance(entry, dict) else None
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ConfigError(f"{label}: each directory has a list `allow` of rules")
    return texts


def _written(everything: Mapping[str, Sequence[str]]) -> bytes:
    blocks = [_HEAD]
    for path, texts in sorted(everything.items()):
        if texts:
            lines = "".join(f"    {_quoted(text)},\n" for text in texts)
            blocks.append(f"[directories.{_quoted(path)}]\nallow = [\n{lines}]\n")
    try:
        return "\n".join(blocks).encode()
    except UnicodeEncodeError:
        raise ConfigError("the directory's name is no text, so rules for it cannot be saved") from None


def _quoted(text: str) -> str:
    """A TOML string: as in JSON, but for the one control character that JSON leaves as it is."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
