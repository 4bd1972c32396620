"""Settings files: TOML with the settings by name, tables of them, and profiles. Everything in one is checked."""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING, Any

import msgspec

from treadle.cli.settings._keys import BY_NAME, KEYS, RULES, TABLES
from treadle.cli.settings._secrets import is_secret_name, looks_secret
from treadle.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

MAX_BYTES = 1 << 20
_MAX_PARTS = 32
# A dotted name, which the parser takes quadratic time and memory for.
_DEEP = re.compile(rb"(?:\.[ \t]*+(?:[A-Za-z0-9_-]++|\"[^\"\n]*+\"|'[^'\n]*+')[ \t]*+){%d}" % _MAX_PARTS)
_ELSEWHERE = {
    "root": "the directory to work in is only by the flag --root",
    "profile": "a profile is chosen by the flag --profile or by TREADLE_PROFILE; here stand tables [profile.NAME]",
}


class Layer(msgspec.Struct, frozen=True):
    """The settings of one source, checked, by name. `origin` says where they stand."""

    origin: str
    values: dict[str, Any]


class SettingsFile(msgspec.Struct, frozen=True):
    """A settings file: its top level, and its profiles."""

    label: str
    top: Layer
    profiles: dict[str, Layer]

    def layers(self, profile: str | None) -> list[Layer]:
        """The strongest first: a profile goes before the top level of its own file."""
        chosen = self.profiles.get(profile) if profile is not None else None
        return [self.top] if chosen is None else [chosen, self.top]


def read_user_file(path: Path, label: str) -> SettingsFile | None:
    """The user's own file, which may be a link; None where there is none. Raises `ConfigError`."""
    data = read_bytes(path, label)
    return None if data is None else parse(data, label)


def read_bytes(path: Path, label: str) -> bytes | None:
    """All of a regular file of the user's; None where there is none. Raises `ConfigError`."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
    try:
        with os.fdopen(os.open(path, flags), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ConfigError(f"{label} is not a regular file")
            data = file.read(MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigError(f"{label} cannot be read: {error.strerror or error}") from None
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{label} is larger than {MAX_BYTES >> 20} MiB")
    return data


def toml(data: bytes, label: str) -> dict[str, Any]:
    """The tables in a TOML file. Raises `ConfigError` with the line, as far as the parser tells it."""
    import tomllib

    if _DEEP.search(data):
        raise ConfigError(f"{label}: a name in it has more than {_MAX_PARTS} parts")
    try:
        return tomllib.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{label}, line {line}: the text is not UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{label} is no TOML: {error}") from None


def parse(data: bytes, label: str) -> SettingsFile:
    """The settings in a file. Raises `ConfigError`, one line that names the file and the key."""
    found = toml(data, label)
    _refuse_secrets(found, label)
    profiles = found.pop("profile", {})
    if not isinstance(profiles, dict) or not all(isinstance(table, dict) for table in profiles.values()):
        raise ConfigError(f"{label}: {_ELSEWHERE['profile']}")
    top = Layer(label, checked(found, label))
    layers = {
        name: Layer(f"profile {name} in {label}", checked(table, f"{label}, profile {name}"))
        for name, table in profiles.items()
    }
    return SettingsFile(label, top, layers)


def checked(table: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The values by full name, as they are used."""
    return {name: check(name, value, f"{where}: {name}") for name, value in _flat(table, where)}


def check(name: str, value: Any, what: str) -> Any:
    """`value` as the setting `name` uses it; an empty text unsets it.

    `what` begins the message of the `ConfigError`, which does not show the value.
    """
    if value == "" and BY_NAME[name].default is None:
        return None
    try:
        fit = BY_NAME[name].check(value)
        if name in RULES:
            _check_rules(fit, RULES[name])
    except ValueError as error:
        raise ConfigError(f"{what} {error}") from None
    return fit


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint at the known name that is meant, or nothing."""
    import difflib

    names = list(known)
    found = difflib.get_close_matches(name.replace("-", "_"), names, n=3, cutoff=0.6)
    found.sort(key=lambda one: sorted(one) != sorted(name))  # two letters that changed places are the likelier slip
    found = found or [one for one in names if one.rpartition(".")[2] == name][:1]
    return f"; did you mean {found[0]}?" if found else ""


def _check_rules(texts: tuple[str, ...], decision: str) -> None:
    from treadle.cli.permissions import parse_rule

    for text in texts:
        try:
            parse_rule(text, decision, "")
        except ConfigError as error:
            raise ValueError(f"has a rule that cannot be: {error}") from None


def _flat(table: Mapping[str, Any], where: str) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if key not in TABLES:
            yield _known(key, where), value
            continue
        if not isinstance(value, dict):
            names = [known.name.partition(".")[2] for known in KEYS if known.name.startswith(f"{key}.")]
            raise ConfigError(f"{where}: {key} is a table of {', '.join(names)}")
        for inner, below in value.items():
            yield _known(f"{key}.{inner}", where), below


def _known(name: str, where: str) -> str:
    if name in BY_NAME:
        return name
    if name in _ELSEWHERE:
        raise ConfigError(f"{where}: {_ELSEWHERE[name]}")
    raise ConfigError(f"{where}: there is no setting {_shown(name)}{nearest(name, [*BY_NAME, *TABLES])}")


def _refuse_secrets(found: Mapping[str, Any], label: str) -> None:
    for name, value in _leaves(found, ""):
        plain = name.removeprefix("profile.").partition(".")[2] if name.startswith("profile.") else name
        if plain not in BY_NAME and is_secret_name(name.rpartition(".")[2]):
            raise ConfigError(
                f"{label}: {_shown(name)} would hold a credential, and settings files hold none: "
                "keys are environment variables, like OPENAI_API_KEY"
            )
        if looks_secret(value) or looks_secret(name):
            raise ConfigError(
                f"{label}: the value of {_shown(plain)} looks like a credential, and settings files hold none: "
                "keys are environment variables, like OPENAI_API_KEY"
            )


def _leaves(value: Any, name: str) -> Iterator[tuple[str, str]]:
    """Every key with its text, also what is no text: a number may be a password as well."""
    if isinstance(value, dict):
        for key, below in value.items():
            yield from _leaves(below, f"{name}.{key}" if name else key)
    elif isinstance(value, list):
        for below in value:
            yield from _leaves(below, name)
    else:
        yield name, value if isinstance(value, str) else ""


def _shown(name: str) -> str:
    """A key as it stands in a message: short, printable, and not itself a credential."""
    if looks_secret(name):
        return "one key"
    text = name if len(name) <= 60 else f"{name[:57]}..."
    return text if text.isprintable() else repr(text)
