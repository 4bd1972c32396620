"""What a rule looks at in a call: its files, its host, its command."""

from __future__ import annotations

import fnmatch
import os
import re
import shlex
import unicodedata
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from treadle.cli.permissions._rules import (
    COMMAND,
    EDITS,
    FETCH,
    FILES,
    PermissionRule,
    host_matches,
    path_matches,
    words_match,
)
from treadle.cli.permissions._shell import ANYTHING, Words, commands, spoken_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

# Beside names that begin with a dot, which are settings of programs, shells, editors, git and CI, or secrets: what
# tells agents what to do, what a CI server or Python runs by itself, and what usually holds keys.
_SENSITIVE = (
    "agents.md", "claude.md", "gemini.md", "skill.md", "jenkinsfile", "azure-pipelines*.y*ml",
    "bitbucket-pipelines.y*ml", "appveyor.y*ml", "cloudbuild.y*ml", "buildspec.y*ml", "*.pem", "*.key", "*.p12",
    "*.pfx", "*.jks", "*.keystore", "*.kdbx", "id_rsa*", "id_ed25519*", "id_ecdsa*", "credentials*", "secrets*",
    "sitecustomize.py", "usercustomize.py", "*.pth",
)  # fmt: skip
# With it a directory is a repository of its own for git, which then obeys the `config` beside it.
_GIT_HEAD = "head"
_HOST = re.compile(r"[a-z0-9._-]{1,253}")
_ADDRESS = re.compile(r"https?://([^/?#\s\\@\[\]%:]+)(?::(\d+))?(?=[/?#]|\Z)", re.IGNORECASE)
_PORTS = (None, "80", "443")


class Call(msgspec.Struct, frozen=True):
    """A call as rules see it. `effect` is the tool's own word."""

    name: str
    effect: str
    arguments: Mapping[str, Any]

    @property
    def line(self) -> str | None:
        """The shell line, if it is one."""
        line = self.arguments.get("command")
        return line if self.name == COMMAND and isinstance(line, str) else None


class Place:
    """The directory that calls work in, which paths are relative to. `own` are directories of the program's own."""

    def __init__(self, root: Path | None, own: Iterable[Path] = ()) -> None:
        self._root = None if root is None else os.path.realpath(root)
        self._own = [os.path.realpath(folder) for folder in own]

    def plain_commands(self, line: str) -> list[Words]:
        """The commands of a plain line. Going first to where it runs anyway is none. Raises `NotPlainError`."""
        if self._root is not None:
            line = line.removeprefix(f"cd {shlex.quote(self._root)} && ")
        return commands(line)

    def paths(self, call: Call) -> tuple[str, ...]:
        """The path of a call relative to the root: as it is written, and where its links lead; () if it leads out."""
        given = call.arguments.get("path")
        if call.name not in FILES or not isinstance(given, str) or "\0" in given:
            return ()
        if self._root is None:
            written = os.path.normpath(given)
            return () if given.startswith("/") or ".." in given.split("/") else (written,)
        path = os.path.join(self._root, given)  # noqa: PTH118 - a path of the model's, links unresolved
        found = (os.path.normpath(path), os.path.realpath(path))
        inside = tuple(dict.fromkeys(os.path.relpath(one, self._root) for one in found))
        return () if any(one == ".." or one.startswith("../") for one in inside) else inside

    def is_safe_edit(self, call: Call) -> bool:
        """Whether a call changes a file of the root that nothing but the work itself depends on."""
        paths = self.paths(call)
        is_edit = call.name in EDITS and call.effect == "write" and bool(paths) and "." not in paths
        return is_edit and not any(map(self.is_sensitive, paths))

    def is_sensitive(self, path: str) -> bool:
        """As the function, or in a directory that holds rules, trust and sessions."""
        whole = f"{self._root or ''}/{path}".casefold()  # as file systems compare that do not tell case
        own = (folder.casefold() for folder in self._own)
        return is_sensitive(path) or any(os.path.commonpath([whole, folder]) == folder for folder in own)


def is_sensitive(path: str) -> bool:
    """Whether a file has a name that settings, secrets, CI or instructions have, or lies below one."""
    names = [_folded(name) for name in path.split("/") if name not in ("", ".")]
    if any(name.startswith(".") for name in names) or names[-1:] == [_GIT_HEAD]:
        return True
    return any(fnmatch.fnmatchcase(name, pattern) for name in names for pattern in _SENSITIVE)


def host_of(call: Call) -> str | None:
    """The host of the address, if it is certain which one that is, by name or number, at its usual port."""
    url = call.arguments.get("url")
    found = _ADDRESS.match(url.strip()) if isinstance(url, str) else None
    if found is None or found[2] not in _PORTS:
        return None
    host = found[1].lower().removesuffix(".")
    return host if _HOST.fullmatch(host) else None


def allows(rule: PermissionRule, call: Call, place: Place) -> bool:
    """Whether an `allow` rule covers a whole call that is no command: it does only where that is certain."""
    if call.name == COMMAND or not fnmatch.fnmatchcase(call.name, rule.tool):
        return False
    if rule.about is None:
        return not (call.name in EDITS and any(map(place.is_sensitive, place.paths(call))))
    if rule.tool == FETCH:
        host = host_of(call)
        return host is not None and host_matches(host, rule.about)
    paths = place.paths(call)
    return bool(paths) and all(_allows_path(rule.about, path, call, place) for path in paths)


def covers(rule: PermissionRule, words: Words) -> bool:
    """Whether an `allow` rule covers one plain command."""
    return rule.tool == COMMAND and words_match(words, rule.words) and not any(map(_climbs, words, rule.words))


def speaks_of(rule: PermissionRule, call: Call, place: Place) -> bool:
    """Whether a `deny` or `ask` rule is about a call: it is wherever that may be."""
    if not fnmatch.fnmatchcase(call.name, rule.tool):
        return False
    if rule.about is None:
        return True
    if rule.tool == COMMAND:
        return any(words == ANYTHING or words_match(words, rule.words) for words in spoken_of(call.line or ""))
    if rule.tool == FETCH:
        host = _host_at_all(call)
        return host is None or host_matches(host, rule.about)
    pattern = _alike(rule.about)
    paths = place.paths(call) or (os.path.normpath(str(call.arguments.get("path", "."))),)
    return any(path_matches(_alike(path), pattern) for path in paths)


def _allows_path(pattern: str, path: str, call: Call, place: Place) -> bool:
    """Names that are sensitive have to be named: no wildcard stands for one."""
    if call.name in EDITS and place.is_sensitive(path) and not _is_plain(pattern):
        return False
    return path_matches(path, pattern)


def _climbs(word: str, pattern: str) -> bool:
    """Whether a word leads by `..` out of where a pattern for paths, like `src/*`, seems to keep it."""
    names = pattern.split("/")
    return len(names) > 1 and not _is_plain(pattern) and ".." in word.split("/") and ".." not in names


def _is_plain(pattern: str) -> bool:
    return not re.search(r"[*?\[]", re.sub(r"\[[*?\[]\]", "", pattern))


def _host_at_all(call: Call) -> str | None:
    """The host of an address, at any port; None where it cannot be told."""
    url = call.arguments.get("url")
    found = _ADDRESS.match(url.strip()) if isinstance(url, str) else None
    host = found[1].lower().removesuffix(".") if found is not None else ""
    return host if _HOST.fullmatch(host) else None


def _alike(path: str) -> str:
    """A path as file systems compare it that tell neither case nor how an accent is put together."""
    return unicodedata.normalize("NFC", path).casefold()


def _folded(name: str) -> str:
    """A name as the most forgiving file system compares it."""
    visible = "".join(char for char in unicodedata.normalize("NFKC", name) if unicodedata.category(char) != "Cf")
    return visible.casefold().strip()
